"""Drawing functions for figures: text, lines, boxes and marks, in pixels from the top left.

It uses no `Axes`, so it ignores the user's matplotlib settings and needs few artists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, hypot

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.path import Path
from matplotlib.transforms import Affine2D, Transform

from agentnb.core.types import AgentStatus
from agentnb.views.figures.figure import CSS_DPI, RunFigure
from agentnb.views.figures.lettering import BOLD, REGULAR, Align, Lettering, composed
from agentnb.views.figures.shapes import SHAPES
from agentnb.views.figures.theme import BODY, Theme

Point = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, top, width, height."""

MARKS_OF = "agentnb-"
"""Prefix of a status in the id of its marks, also in an SVG file."""
_POINTS = 72 / CSS_DPI
"""Points in a pixel."""
_ROUND = 5.0
_CURVE = 0.5523
"""Length of a cubic curve's handles for a quarter of a circle, per radius."""


class Sheet:
    """A figure, and methods to draw on it."""

    def __init__(
        self, width: float, height: float, theme: Theme, *, name: str, alt_text: str
    ) -> None:
        self.theme = theme
        self.figure = RunFigure(
            width, height, background=theme.background, name=name, alt_text=alt_text
        )
        _plain(self.figure.patch)
        height = self.figure.get_figheight() * CSS_DPI
        to_inches = Affine2D().scale(1 / CSS_DPI, -1 / CSS_DPI).translate(0, height / CSS_DPI)
        self._place: Transform = to_inches + self.figure.dpi_scale_trans

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        room: float | None = None,
        size: float = BODY,
        colour: str | None = None,
        bold: bool = False,
        ha: Align = "left",
    ) -> float:
        """Write text on the baseline `y`, cut to `room`; returns its width."""
        font = BOLD if bold else REGULAR
        said = composed(text) if room is None else font.fitted(text, size, room)
        if not said:
            return 0.0
        colour = colour or self.theme.text
        self._add(
            Lettering(x, y, said, size=size * _POINTS, colour=colour, ha=ha, bold=bold), zorder=5
        )
        return font.width(said, size)

    def lines(
        self,
        lines: Sequence[Sequence[Point]],
        colour: str,
        *,
        width: float = 1.0,
        dashed: bool = False,
        zorder: float = 2,
    ) -> None:
        """Draw lines through points."""
        if lines:
            self._add(
                LineCollection(
                    _in_dashes(lines, width) if dashed else list(lines),
                    colors=[colour],
                    linewidths=[width * _POINTS],
                    linestyles=["solid"],
                    antialiaseds=[True],
                    capstyle="butt",
                    joinstyle="round",
                ),
                zorder=zorder,
            )

    def curves(self, paths: Sequence[Path], colour: str, *, width: float = 1.0) -> None:
        """Draw curved lines."""
        if paths:
            self._add(
                PathCollection(
                    list(paths),
                    facecolors="none",
                    edgecolors=[colour],
                    linewidths=[width * _POINTS],
                    linestyles=["solid"],
                    antialiaseds=[True],
                    capstyle="round",
                    joinstyle="round",
                ),
                zorder=2,
            )

    def boxes(self, boxes: Sequence[Box], colour: str, *, zorder: float = 1) -> None:
        """Fill boxes with sharp corners."""
        self.areas(
            [[(x, y), (x + w, y), (x + w, y + h), (x, y + h)] for x, y, w, h in boxes],
            colour,
            zorder=zorder,
        )

    def areas(self, areas: Sequence[Sequence[Point]], colour: str, *, zorder: float = 1) -> None:
        """Fill polygons."""
        if areas:
            self._add(
                PolyCollection(
                    list(areas),
                    facecolors=[colour],
                    edgecolors="none",
                    linewidths=[0],
                    antialiaseds=[True],
                ),
                zorder=zorder,
            )

    def cards(self, boxes: Sequence[Box], colour: str, edge: str) -> None:
        """Draw boxes with round corners and an edge."""
        if boxes:
            self._add(
                PathCollection(
                    [_rounded(box) for box in boxes],
                    facecolors=[colour],
                    edgecolors=[edge],
                    linewidths=[_POINTS],
                    linestyles=["solid"],
                    antialiaseds=[True],
                ),
                zorder=1,
            )

    def marks(self, places: Mapping[AgentStatus, Sequence[Point]], radius: float) -> None:
        """Draw each status's shape in its colour at its places."""
        for status, points in places.items():
            if not points:
                continue
            # The minus flips y: down in pixels, up in a shape.
            shape = [[(x * radius, -y * radius) for x, y in outline] for outline in SHAPES[status]]
            one = Path.make_compound_path(*(Path([*o, o[0]], closed=True) for o in shape))
            corners = np.asarray(one.vertices, dtype=float)
            self._add(
                PathCollection(
                    [Path(corners + np.array(point), one.codes) for point in points],
                    facecolors=[self.theme.status[status]],
                    edgecolors="none",
                    linewidths=[0],
                    antialiaseds=[True],
                ),
                zorder=4,
                gid=f"{MARKS_OF}{status}",
            )

    def _add(self, artist: Artist, *, zorder: float, gid: str | None = None) -> None:
        _plain(artist)
        artist.set_gid(gid)
        artist.set_zorder(zorder)
        artist.set_transform(self._place)
        self.figure.add_artist(artist)


def _in_dashes(lines: Sequence[Sequence[Point]], width: float) -> list[tuple[Point, Point]]:
    """Split lines into dashes: the user's settings would scale matplotlib's own dashes."""
    on, period = 4 * width, 7 * width
    pieces: list[tuple[Point, Point]] = []
    for line in lines:
        for (x, y), (to_x, to_y) in pairwise(line):
            length = hypot(to_x - x, to_y - y)
            for number in range(ceil(length / period) if length else 0):
                begin, end = number * period / length, min(1, (number * period + on) / length)
                pieces.append(
                    (
                        (x + begin * (to_x - x), y + begin * (to_y - y)),
                        (x + end * (to_x - x), y + end * (to_y - y)),
                    )
                )
    return pieces


def _plain(artist: Artist) -> None:
    """Remove effects that come from the user's settings, such as `plt.xkcd()`."""
    artist.set_sketch_params(None)
    artist.set_path_effects([])
    artist.set_snap(None)


def _rounded(box: Box) -> Path:
    x, y, w, h = box
    r = min(_ROUND, w / 2, h / 2)
    k = r * (1 - _CURVE)
    right, bottom = x + w, y + h
    points = [
        *((x + r, y), (right - r, y)),
        *((right - k, y), (right, y + k), (right, y + r)),
        (right, bottom - r),
        *((right, bottom - k), (right - k, bottom), (right - r, bottom)),
        (x + r, bottom),
        *((x + k, bottom), (x, bottom - k), (x, bottom - r)),
        (x, y + r),
        *((x, y + k), (x + k, y), (x + r, y)),
    ]
    curve = [Path.CURVE4] * 3
    codes = [Path.MOVETO, *([Path.LINETO, *curve] * 4)]
    return Path(points, codes)
