"""Trees of every shape, and what a finished figure shows."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from matplotlib.collections import PathCollection
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from agentnb.core.types import AgentNode, AgentStatus
from agentnb.views.figures.figure import RunFigure
from agentnb.views.figures.sheet import MARKS_OF

SHAPES = ("wide", "deep", "three levels", "mixed", "lopsided", "pairs")
SIZES = (1, 5, 40, 300)
STATUSES = list(AgentStatus)
TASKS = (
    "Collect the facts about heat pumps in cold climates, with sources, " + "and so on, " * 40,
    "Find arguments against",
    "Check $x_1^2$ and \\alpha & 100 % of it",
    "二酸化炭素の排出量を比較する",
    "قارن بين ثلاث طرق للتدفئة",
    "🎉 party 👩‍💻 line\nbreak\ttab \x1b[31m \u202eevil\ud800",
    "",
)


def parents(shape: str, count: int, seed: int = 1) -> list[int]:
    """The parent of each agent, by index; -1 for the root."""
    chance = random.Random(seed)
    broad = max(1, int(count**0.5))
    found = [-1]
    for i in range(1, count):
        found.append(
            {
                "wide": 0,
                "deep": i - 1,
                "three levels": 0 if i <= broad else 1 + (i - broad - 1) % broad,
                "mixed": chance.randrange(i),
                "lopsided": 0 if i % 3 or i < 3 else 3 * chance.randrange(1 + i // 9),
                "pairs": (i - 1) // 2,
            }[shape]
        )
    return found


def tree(
    shape: str,
    count: int,
    *,
    tasks: Sequence[str] = TASKS,
    statuses: Sequence[AgentStatus] = STATUSES,
    seed: int = 1,
) -> AgentNode:
    """A tree of so many agents."""
    above = parents(shape, count, seed)
    below: list[list[int]] = [[] for _ in above]
    for i, parent in enumerate(above[1:], start=1):
        below[parent].append(i)
    paths, depths = ["root"] * count, [0] * count
    for i in range(count):  # a parent comes before its children
        for number, child in enumerate(below[i], start=1):
            paths[child] = f"{number}" if i == 0 else f"{paths[i]}.{number}"
            depths[child] = depths[i] + 1
    made: dict[int, AgentNode] = {}
    for i in reversed(range(count)):
        made[i] = AgentNode(
            agent_id="nb_20261101_k3x9aa" + (f".{paths[i]}" if i else ""),
            parent_id=None if i == 0 else "above",
            path=paths[i],
            task=tasks[i % len(tasks)],
            depth=depths[i],
            status=statuses[i % len(statuses)],
            tokens_used=i * 7919 % 30_000,
            children=tuple(made[child] for child in below[i]),
        )
    return made[0]


def texts(figure: RunFigure) -> list[str]:
    """All words in a figure."""
    return [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]


def marks(figure: RunFigure) -> dict[str, int]:
    """How many marks of each status there are, those of the key included."""
    found: dict[str, int] = {}
    for artist in figure.findobj(PathCollection):
        assert isinstance(artist, PathCollection)
        name = str(artist.get_gid() or "")
        if name.startswith(MARKS_OF):
            status = name.removeprefix(MARKS_OF)
            found[status] = found.get(status, 0) + len(artist.get_paths())
    return found


def crowded(figure: RunFigure, *, with_marks: bool = True) -> list[str]:
    """What overlaps something else, or leaves the figure."""
    figure.canvas.draw()
    boxes: list[Bbox] = []
    names: list[str] = []
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text.get_text():
            boxes.append(text.get_window_extent())
            names.append(text.get_text())
    for artist in figure.findobj(PathCollection):
        assert isinstance(artist, PathCollection)
        if with_marks and str(artist.get_gid() or "").startswith(MARKS_OF):
            place = artist.get_transform()
            boxes += [path.get_extents(place) for path in artist.get_paths()]
            names += [str(artist.get_gid())] * len(artist.get_paths())
    ends = np.array([box.extents for box in boxes])
    left, bottom, right, top = ends.T
    width, height = figure.bbox.width, figure.bbox.height
    outside = (left < 0) | (bottom < 0) | (right > width) | (top > height)
    said = [f"{names[i]!r} leaves the figure" for i in np.flatnonzero(outside)]
    meeting = _between(left, right) & _between(bottom, top) & ~np.eye(len(names), dtype=bool)
    said += [f"{names[i]!r} meets {names[j]!r}" for i, j in np.argwhere(np.triu(meeting))]
    return said


def _between(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which stripes share more than half a dot."""
    return np.minimum(high[:, None], high[None]) - np.maximum(low[:, None], low[None]) > 0.5
