"""A figure that displays itself in a notebook without pyplot, with alternative text.

It is an ordinary `matplotlib.figure.Figure` on a canvas of its own, outside pyplot's global state:
no front end's event can close it, and any thread can draw it. (matplotlib can draw separate figures
on separate threads if none goes through pyplot; its font cache is per thread.) As with any figure,
two threads must not draw the same one at once.
"""

from __future__ import annotations

import base64
import io
from html import escape
from math import ceil
from os import PathLike
from pathlib import Path
from typing import IO, Any

from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from PIL import Image
from PIL.PngImagePlugin import PngInfo

CSS_DPI = 96
"""A browser's pixels per inch, the unit of lengths in figures."""
SHARP, LESS_SHARP = 2.0, 1.5
"""Dots for each pixel, so that letters are sharp on a fine screen."""
_LARGE = 900_000
"""Figures of this many pixels are less sharp, since each dot takes time."""
_COLOURS = 96
"""Colours of a picture: few colours make it small in a saved notebook."""
_SAMPLED = 3
"""The palette comes from every third dot of every third line, in a ninth of the time."""
_ALIKE = 8
"""Colours this close to the background are replaced by it."""
_DESCRIBED_IN = {
    "png": ("Title", "Description"),
    "svg": ("Title", "Description"),
    "pdf": ("Title", "Subject"),
}


class RunFigure(Figure):
    """A picture of a run.

    Args:
        width: In pixels, as a browser counts them.
        height: In pixels.
        background: As `#rrggbb`.
        name: A short name, the same in every replay.
        alt_text: What the figure shows, in words.
    """

    def __init__(
        self, width: float, height: float, *, background: str, name: str, alt_text: str
    ) -> None:
        # Whole pixels: half a pixel at the edge would be a line.
        width, height = ceil(width), ceil(height)
        super().__init__(
            figsize=(width / CSS_DPI, height / CSS_DPI),
            dpi=CSS_DPI * (SHARP if width * height < _LARGE else LESS_SHARP),
            facecolor=background,
            edgecolor=background,
            linewidth=0,
            frameon=True,
            layout="none",  # type: ignore[arg-type]  # the stubs know the engines only
        )
        FigureCanvasAgg(self)
        self.alt_text = alt_text
        self._name = name

    def __repr__(self) -> str:
        return f"<Figure: {self._name}>"

    __str__ = __repr__

    def to_png(self) -> bytes:
        """The figure as a PNG file with its alternative text in it."""
        # An unpickled figure has no canvas that can draw.
        is_ready = isinstance(self.canvas, FigureCanvasAgg)
        canvas: Any = self.canvas if is_ready else FigureCanvasAgg(self)
        canvas.draw()
        size = canvas.get_width_height(physical=True)
        picture = Image.frombuffer("RGBA", size, canvas.buffer_rgba(), "raw", "RGBA", 0, 1)
        few = _in_few_colours(picture.convert("RGB"))
        words = PngInfo()
        words.add_itxt("Title", self._name)
        words.add_itxt("Description", self.alt_text)
        file = io.BytesIO()
        few.save(file, "png", pnginfo=words, dpi=(self.dpi, self.dpi), compress_level=5)
        return file.getvalue()

    def bundle(self) -> tuple[dict[str, str], dict[str, Any]]:
        """Data and metadata of a notebook's output: the picture, and its name as plain text."""
        picture = base64.b64encode(self.to_png()).decode("ascii")
        width, height = (round(side * CSS_DPI) for side in self.get_size_inches())
        about = {"width": width, "height": height, "alt": self.alt_text}
        return {"image/png": picture, "text/plain": repr(self)}, {"image/png": about}

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        return self.bundle()

    def savefig(self, fname: str | PathLike[str] | IO[Any], **options: Any) -> None:
        """Save as `Figure.savefig` does, with the alternative text in PNG, SVG and PDF."""
        kind = str(options.get("format") or _suffix(fname)).lower()
        words = dict.fromkeys(_DESCRIBED_IN.get(kind, ()), "")
        for field, text in zip(words, (self._name, self.alt_text), strict=False):
            words[field] = text
        if kind in _DESCRIBED_IN:
            # No date and no software name, so that the same figure gives the same file.
            extra = {
                "png": {"Software": None},
                "svg": {"Date": None},
                "pdf": {"CreationDate": None},
            }
            options["metadata"] = {**words, **extra[kind], **(options.get("metadata") or {})}
        # Explicit, since the user's settings are made for other figures.
        options.setdefault("dpi", self.dpi)
        options.setdefault("facecolor", self.get_facecolor())
        options.setdefault("edgecolor", self.get_edgecolor())
        options.setdefault("transparent", False)
        options.setdefault("pad_inches", 0)
        if kind != "svg":
            super().savefig(fname, **options)
            return
        file = io.BytesIO()
        super().savefig(file, **{**options, "format": "svg"})
        _write(fname, self._described(file.getvalue().decode()))

    def _described(self, svg: str) -> str:
        """The SVG with its alternative text for screen readers."""
        words = escape(self.alt_text)
        svg = svg.replace("<svg ", f'<svg role="img" aria-label="{words}" ', 1)
        return svg.replace("</title>", f"</title>\n <desc>{words}</desc>", 1)

    def get_tightbbox(
        self, renderer: RendererBase | None = None, bbox_extra_artists: Any = None
    ) -> Bbox:
        """The whole figure, so that `tight` does not cut its margins."""
        return self.bbox_inches.frozen()


def _write(target: str | PathLike[str] | IO[Any], text: str) -> None:
    if isinstance(target, str | PathLike):
        Path(target).write_text(text, encoding="utf-8")
    else:
        is_text = isinstance(target, io.TextIOBase)
        target.write(text if is_text else text.encode())


def _suffix(target: object) -> str:
    return Path(target).suffix.lstrip(".") if isinstance(target, str | PathLike) else "png"


def _in_few_colours(picture: Image.Image) -> Image.Image:
    """The picture with a small palette; its background colour stays exact."""
    width, height = picture.size
    sample = picture.resize(
        (max(1, width // _SAMPLED), max(1, height // _SAMPLED)), Image.Resampling.NEAREST
    )
    found = sample.quantize(_COLOURS, method=Image.Quantize.FASTOCTREE)
    channels = found.getpalette() or []
    background = picture.getpixel((0, 0))
    assert isinstance(background, tuple)
    colours = {tuple(channels[at : at + 3]): None for at in range(0, len(channels), 3)}
    kept = [background] + [
        colour
        for colour in colours
        if max(abs(a - b) for a, b in zip(colour, background, strict=True)) > _ALIKE
    ]
    palette = Image.new("P", (1, 1))
    palette.putpalette([channel for colour in kept for channel in colour])
    return picture.quantize(palette=palette, dither=Image.Dither.NONE)
