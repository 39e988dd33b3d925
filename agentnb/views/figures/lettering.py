"""Words in a figure, drawn as the outlines of their letters.

matplotlib's own text takes milliseconds a label, reads the person's settings, and warns of letters
that a font does not have. Here a letter's outline is looked up once and then only placed, so that
hundreds of labels cost what a few cost there; every text is data (`$` is a dollar); and what no
font of the machine can show becomes a box.

The outlines are shared by all threads under a lock; whatever comes out of here is not changed any
more.
"""

from __future__ import annotations

import threading
import unicodedata
from functools import cache
from pathlib import Path as FilePath
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.backend_bases import RendererBase
from matplotlib.colors import to_rgba
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.ft2font import FT2Font, LoadFlags
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.textpath import text_to_path
from matplotlib.transforms import Affine2D, Bbox
from numpy.typing import NDArray

from agentnb.views.text import visible

MISSING = "□"
"""Stands for a letter that no font of the machine has."""
ELLIPSIS = "…"
_LONGEST = 240
"""Letters of a text that are looked at: no label is wider."""
_UNITS = 100
"""The size at which outlines are read."""

_FAMILIES = (
    *("Noto Sans CJK JP", "Noto Sans CJK SC", "Source Han Sans", "PingFang SC", "Hiragino Sans"),
    *("Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "WenQuanYi Zen Hei", "IPAGothic"),
    *("Noto Sans", "Noto Sans Devanagari", "Noto Emoji", "Symbola", "Arial Unicode MS"),
)
"""Asked for what DejaVu does not have, in this order, as far as they are there."""

Align = Literal["left", "center", "right"]

_Letter = tuple[NDArray[np.float64], NDArray[np.uint8], float]
"""An outline (vertices and codes of a `Path`) and how far the next letter is, in ems."""


class Font:
    """The letters of one weight. Safe from any thread."""

    def __init__(self, file: str) -> None:
        self._file = FilePath(matplotlib.get_data_path()) / "fonts" / "ttf" / file
        self._lock = threading.RLock()
        self._letters: dict[str, _Letter] = {}
        self._faces: list[FT2Font] = []

    def shown(self, text: str) -> str:
        """`text` as it can be shown: composed, and with a box for each letter that is missing."""
        if text.isascii():
            return text
        composed = unicodedata.normalize("NFC", text)
        return "".join(self._shown(letter) for letter in composed)

    def _shown(self, letter: str) -> str:
        if letter.isascii() or self._face_with(letter) is not None:
            return letter
        # A joiner or a variation selector has no look of its own.
        return "" if unicodedata.category(letter) in ("Cf", "Mn", "Me") else MISSING

    def width(self, text: str, size: float) -> float:
        """How wide `text` is in letters of `size`, in the unit of `size`."""
        letters = self._letters
        try:
            return size * sum([letters[letter][2] for letter in text])
        except KeyError:
            return size * sum([self._letter(letter)[2] for letter in text])

    def fitted(self, text: str, size: float, room: float) -> str:
        """`text` on one line of visible letters, cut to `room`; empty where nothing fits."""
        line = self.shown(visible(text, _LONGEST))
        if self.width(line, size) <= room:
            return line
        left = room - self.width(ELLIPSIS, size)
        count = 0
        for letter in line:
            left -= size * self._letter(letter)[2]
            if left < 0:
                break
            count += 1
        return self.shown(visible(text, count + 1)) if count else ""

    def outline(self, text: str) -> Path:
        """The letters of `text`, which begins at the origin and is one unit high."""
        if _needs_shaping(text):
            return self._shaped(text)
        vertices, codes, at = [], [], 0.0
        for letter in text:
            points, kinds, advance = self._letter(letter)
            if len(points):
                vertices.append(points + np.array((at, 0.0)))
                codes.append(kinds)
            at += advance
        if not vertices:
            return Path(np.empty((0, 2)))
        return Path(np.concatenate(vertices), np.concatenate(codes))

    def _shaped(self, text: str) -> Path:
        """Scripts whose letters depend on their neighbours are left to matplotlib."""
        properties = FontProperties(fname=str(self._file), size=_UNITS)
        points, kinds = text_to_path.get_text_path(properties, text, ismath=False)
        vertices = np.asarray(points, dtype=float).reshape(-1, 2) / text_to_path.FONT_SCALE
        return (
            Path(vertices, np.asarray(kinds, dtype=np.uint8)) if len(vertices) else Path(vertices)
        )

    def _letter(self, letter: str) -> _Letter:
        found = self._letters.get(letter)
        if found is None:
            with self._lock:
                found = self._letters[letter] = self._read(letter)
        return found

    def _read(self, letter: str) -> _Letter:
        face = self._face_with(letter) or self._all_faces()[0]
        glyph = face.load_char(ord(letter), flags=LoadFlags.NO_HINTING)
        vertices, codes = face.get_path()
        points = np.asarray(vertices, dtype=float).reshape(-1, 2) / _UNITS
        kinds = np.asarray(codes, dtype=np.uint8)
        return points, kinds, glyph.linearHoriAdvance / 65536 / _UNITS

    def _face_with(self, letter: str) -> FT2Font | None:
        with self._lock:
            for face in self._all_faces(only_own=letter.isascii()):
                if face.get_char_index(ord(letter)):
                    return face
        return None

    def _all_faces(self, *, only_own: bool = True) -> list[FT2Font]:
        if not self._faces:
            self._faces.append(_opened(str(self._file)))
        if not only_own and len(self._faces) == 1:
            self._faces += [_opened(file) for file in _further_files()]
        return self._faces


def _opened(file: str) -> FT2Font:
    face = FT2Font(file)
    face.set_size(_UNITS, 72)
    return face


@cache
def _further_files() -> tuple[str, ...]:
    known = {entry.name: entry.fname for entry in reversed(fontManager.ttflist)}
    return tuple(known[family] for family in _FAMILIES if family in known)


def _needs_shaping(text: str) -> bool:
    if text.isascii():
        return False
    return any(
        "\u0590" <= letter <= "\u109f"
        or "\u1780" <= letter <= "\u17ff"
        or unicodedata.combining(letter)
        for letter in text
    )


REGULAR = Font("DejaVuSans.ttf")
BOLD = Font("DejaVuSans-Bold.ttf")


class Lettering(Text):
    """One label. A `Text` as far as anyone asks, but drawn as outlines, on its baseline.

    Args:
        x: Where it begins, ends or has its middle, by `ha`; in the unit of its transform.
        y: Its baseline.
        text: What it says; see `Font.shown`.
        size: In points.
        colour: Of the letters.
        ha: `left`, `right` or `center`.
        bold: Whether it is bold.
    """

    def __init__(
        self, x: float, y: float, text: str, *, size: float, colour: str, ha: Align, bold: bool
    ) -> None:
        self._font = BOLD if bold else REGULAR
        super().__init__(
            x,
            y,
            text,
            color=colour,
            horizontalalignment=ha,
            verticalalignment="baseline",
            fontproperties=_properties(size, bold),
            usetex=False,
            wrap=False,
            parse_math=False,
            antialiased=True,
        )

    def draw(self, renderer: RendererBase) -> None:
        """Fill the outlines with the colour."""
        self.stale = False
        if not self.get_visible() or not self.get_text():
            return
        gc = renderer.new_gc()
        gc.set_linewidth(0)
        gc.set_snap(False)
        colour: Any = to_rgba(self.get_color(), self.get_alpha())
        path, place = self._placed()
        renderer.draw_path(gc, path, place, colour)
        gc.restore()

    def get_window_extent(
        self, renderer: RendererBase | None = None, dpi: float | None = None
    ) -> Bbox:
        """The box of the outlines, in pixels."""
        path, place = self._placed(dpi)
        if not np.size(path.vertices):
            x, y = place.transform((0.0, 0.0))
            return Bbox([[x, y], [x, y]])
        return path.get_extents(place)

    def _placed(self, dpi: float | None = None) -> tuple[Path, Affine2D]:
        """The outlines, and where they go."""
        text = self._font.shown(self.get_text())
        figure = self.get_figure(root=True)
        scale = float(self.get_fontsize()) / 72 * (dpi or (figure.dpi if figure else 72))
        x, y = self.get_transform().transform(self.get_position())
        part = {"left": 0.0, "center": 0.5, "right": 1.0}[self.get_horizontalalignment()]
        x -= part * self._font.width(text, scale)
        return self._font.outline(text), Affine2D().scale(scale).translate(x, y)


@cache
def _properties(size: float, bold: bool) -> FontProperties:
    # All is said, since what is not said is taken from the person's settings.
    return FontProperties(
        family="DejaVu Sans",
        style="normal",
        variant="normal",
        weight="bold" if bold else "normal",
        stretch="normal",
        size=size,
        math_fontfamily="dejavusans",
    )
