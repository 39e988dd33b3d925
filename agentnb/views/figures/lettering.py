"""Text in a figure, drawn as the outlines of its letters.

matplotlib's own text takes milliseconds per label, reads the user's settings, and warns about
letters missing from a font. Here each letter's outline is read once and then only placed, so that
hundreds of labels cost as much as a few. All text is literal (`$` is a dollar), and a letter that
no installed font has becomes a box.

All threads share the outlines under a lock; an outline never changes.
"""

from __future__ import annotations

import threading
import unicodedata
from functools import cache, cached_property
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

from agentnb.core.text import visible

MISSING = "□"
"""Replaces a letter that no installed font has."""
ELLIPSIS = "…"
_LONGEST = 240
"""Letters of a text that are used: no label is longer."""
_UNITS = 100
"""The font size at which outlines are read."""

_FAMILIES = (
    *("Noto Sans CJK JP", "Noto Sans CJK SC", "Source Han Sans", "PingFang SC", "Hiragino Sans"),
    *("Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "WenQuanYi Zen Hei", "IPAGothic"),
    *("Noto Sans", "Noto Sans Devanagari", "Noto Emoji", "Symbola", "Arial Unicode MS"),
)
"""Fallback fonts for letters that DejaVu lacks, in this order, if installed."""

Align = Literal["left", "center", "right"]

_Letter = tuple[NDArray[np.float64], NDArray[np.uint8], float]
"""An outline (vertices and codes of a `Path`) and its advance, in ems."""
_NOTHING: _Letter = (np.empty((0, 2)), np.empty(0, dtype=np.uint8), 0.0)


class Font:
    """The letters of one weight. Thread-safe.

    A missing letter is taken from another installed font; if none has it, it becomes a box.
    """

    def __init__(self, file: str) -> None:
        self._file = FilePath(matplotlib.get_data_path()) / "fonts" / "ttf" / file
        self._lock = threading.RLock()
        self._letters: dict[str, _Letter] = {}

    def width(self, text: str, size: float) -> float:
        """The width of `text` at `size`, in the unit of `size`."""
        letters = self._letters
        try:
            return size * sum([letters[letter][2] for letter in text])
        except KeyError:
            return size * sum([self._letter(letter)[2] for letter in text])

    def fitted(self, text: str, size: float, room: float) -> str:
        """`text` as one visible line, cut to `room`; empty if nothing fits."""
        line = visible(composed(text), _LONGEST)
        if self.width(line, size) <= room:
            return line
        left = room - self.width(ELLIPSIS, size)
        count = 0
        for letter in line:
            left -= size * self._letter(letter)[2]
            if left < 0:
                break
            count += 1
        # Two letters give way to the ellipsis at least: a limit of the whole length cuts nothing.
        count = min(count, len(line) - 2)
        return visible(composed(text), count + 1) if count > 0 else ""

    def outline(self, text: str) -> Path:
        """The outline of `text`, from the origin, at size 1."""
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
        """Outline by matplotlib, for scripts whose letters depend on their neighbours."""
        properties = FontProperties(fname=str(self._file), size=_UNITS)
        with self._lock:
            known = "".join(self._stand_in(letter) for letter in text)
        points, kinds = text_to_path.get_text_path(properties, known, ismath=False)
        vertices = np.asarray(points, dtype=float).reshape(-1, 2) / text_to_path.FONT_SCALE
        return (
            Path(vertices, np.asarray(kinds, dtype=np.uint8)) if len(vertices) else Path(vertices)
        )

    def _stand_in(self, letter: str) -> str:
        if self._own_face.get_char_index(ord(letter)):
            return letter
        return "" if _is_unseen(letter) else MISSING

    def _letter(self, letter: str) -> _Letter:
        found = self._letters.get(letter)
        if found is None:
            with self._lock:
                found = self._letters[letter] = self._read(letter)
        return found

    def _read(self, letter: str) -> _Letter:
        face = self._face_with(letter)
        if face is None:
            return _NOTHING if _is_unseen(letter) else self._letter(MISSING)
        glyph = face.load_char(ord(letter), flags=LoadFlags.NO_HINTING)
        vertices, codes = face.get_path()
        points = np.asarray(vertices, dtype=float).reshape(-1, 2) / _UNITS
        kinds = np.asarray(codes, dtype=np.uint8)
        return points, kinds, glyph.linearHoriAdvance / 65536 / _UNITS

    def _face_with(self, letter: str) -> FT2Font | None:
        if self._own_face.get_char_index(ord(letter)):
            return self._own_face
        if letter.isascii():  # a control character: no font has it
            return None
        return next((f for f in self._further_faces if f.get_char_index(ord(letter))), None)

    @cached_property
    def _own_face(self) -> FT2Font:
        return _opened(str(self._file))

    @cached_property
    def _further_faces(self) -> list[FT2Font]:
        return [_opened(file) for file in _further_files()]


def _opened(file: str) -> FT2Font:
    face = FT2Font(file)
    face.set_size(_UNITS, 72)
    return face


@cache
def _further_files() -> tuple[str, ...]:
    known = {entry.name: entry.fname for entry in reversed(fontManager.ttflist)}
    return tuple(known[family] for family in _FAMILIES if family in known)


def composed(text: str) -> str:
    """`text` with letters and accents composed (NFC)."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _is_unseen(letter: str) -> bool:
    """Whether a letter is invisible alone: a joiner, a variation selector, an accent."""
    return unicodedata.category(letter) in ("Cf", "Mn", "Me")


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
    """One label: a `Text` that is drawn as outlines, on its baseline.

    Args:
        x: Its left, right or middle, depending on `ha`, in the unit of its transform.
        y: Its baseline.
        text: Its text; see `Font`.
        size: Font size in points.
        colour: The colour of the letters.
        ha: `left`, `right` or `center`.
        bold: Whether it is bold.
    """

    def __init__(
        self, x: float, y: float, text: str, *, size: float, colour: str, ha: Align, bold: bool
    ) -> None:
        self._is_bold = bold
        self._outlined: tuple[str, Path] | None = None
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
        points = np.asarray(path.vertices, dtype=float).reshape(-1, 2)
        if path.codes is not None:
            points = points[path.codes != Path.CLOSEPOLY]  # its point is the origin
        if not len(points):
            points = np.zeros((1, 2))
        corners = place.transform(points)
        return Bbox([corners.min(axis=0), corners.max(axis=0)])

    @property
    def _font(self) -> Font:
        return BOLD if self._is_bold else REGULAR

    def _placed(self, dpi: float | None = None) -> tuple[Path, Affine2D]:
        """The outlines, and the transform that places them."""
        text = self.get_text()
        figure = self.get_figure(root=True)
        scale = float(self.get_fontsize()) / 72 * (dpi or (figure.dpi if figure else 72))
        x, y = self.get_transform().transform(self.get_position())
        part = {"left": 0.0, "center": 0.5, "right": 1.0}[self.get_horizontalalignment()]
        x -= part * self._font.width(text, scale)
        if self._outlined is None or self._outlined[0] != text:
            self._outlined = text, self._font.outline(text)
        return self._outlined[1], Affine2D().scale(scale).translate(x, y)


@cache
def _properties(size: float, bold: bool) -> FontProperties:
    # Everything explicit: the rest would come from the user's settings.
    return FontProperties(
        family="DejaVu Sans",
        style="normal",
        variant="normal",
        weight="bold" if bold else "normal",
        stretch="normal",
        size=size,
        math_fontfamily="dejavusans",
    )
