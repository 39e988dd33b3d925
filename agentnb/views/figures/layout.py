"""Places the agents of a tree: pure, in time linear in their number.

A tree is first cut into cells. A cell is one agent, or a block: a run of siblings without
sub-agents, in columns or as bare marks, or all agents below a fold. Cells are placed left to right
by level. Everything below a cell has its own stripe of the picture, so nothing overlaps. A deep
tree becomes a list instead, with one row for each cell, indented by level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from agentnb.core.types import AgentNode

CARDS = 14
"""Rows up to which each agent has a card of two lines."""
PLAIN_ROWS = 56
"""Rows up to which each agent has a row of its own."""
LABELLED_HEIGHT = 1500.0
"""Height in pixels up to which every agent has a label and the tree is not folded."""
_GOOD_HEIGHT = 940.0
"""Height up to which leaves are set in fewer columns, with longer labels."""
HEIGHT = 1800.0
"""Largest height of a tree, roughly: a taller one is folded from the deepest level up, and if that
is not enough, agents without sub-agents become bare marks."""
MARKS = 6000
"""Most bare marks that are drawn."""
MARK_STEP = 12.0
BLOCK_GAP = 6.0
"""Below a block."""
_COLUMNS = 4
_SMALLEST_RUN = 3


@dataclass(frozen=True, slots=True)
class Style:
    """How much is shown of each agent."""

    row: float
    """Height of an agent with a label, in pixels, including the space to the next one."""
    has_cards: bool = False
    columns: int = 1
    """Number of columns for leaves; 0 for bare marks."""
    marks: int = 0
    """Number of bare marks in a row."""
    levels: int = 0
    """Trees of up to this many levels are set in columns, deeper ones as a list: narrow columns
    have no room for labels."""
    fold: int | None = None
    """The level below whose agents all descendants are one block."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One agent, or a block of several."""

    nodes: tuple[AgentNode, ...]
    parent: int
    """Index of the cell above; -1 for the root's."""
    level: int
    columns: int
    """Columns of a block of labels; 0 for a block of marks; 1 for a single agent."""
    height: float

    @property
    def is_block(self) -> bool:
        """Whether it holds several agents."""
        return self.columns != 1


@dataclass(frozen=True, slots=True)
class Layout:
    """A tree, cut and placed."""

    style: Style
    is_list: bool
    cells: tuple[Cell, ...]
    middles: tuple[float, ...]
    """The middle of each cell, in pixels from the top."""
    height: float


def layout(root: AgentNode) -> Layout:
    """Cut and place the tree, showing as much of each agent as fits."""
    levels = root_levels(root)
    cards = Style(row=50, has_cards=True, levels=4)
    if levels <= cards.levels and _leaves(root) <= CARDS:
        return _placed(root, cards, levels)
    rows = Style(row=21, levels=4)
    if levels > rows.levels:
        fits = sum(1 for _ in root.walk()) <= PLAIN_ROWS
    else:
        fits = _leaves(root) <= PLAIN_ROWS
    if fits:
        return _placed(root, rows, levels)
    for columns in range(2, _COLUMNS + 1):
        found = _placed(root, Style(row=17, columns=columns, levels=3), levels)
        if found.height <= (LABELLED_HEIGHT if columns == _COLUMNS else _GOOD_HEIGHT):
            return found
    found = _folded(root, Style(row=17, columns=_COLUMNS, levels=3), levels)
    if found.height <= HEIGHT:
        return found
    # A deep tree leaves less room for the last level.
    marks = 64 if levels <= 3 else 42
    return _folded(root, Style(row=17, columns=0, marks=marks, levels=4), levels)


def _leaves(root: AgentNode) -> int:
    return sum(1 for node in root.walk() if not node.children)


def _folded(root: AgentNode, style: Style, levels: int) -> Layout:
    """The tree, folded at the deepest level at which it is not too tall."""
    found = _placed(root, style, levels)
    fits, too_tall = 0, levels
    while found.height > HEIGHT and too_tall - fits > 1:
        fold = (fits + too_tall) // 2
        folded = _placed(root, replace(style, fold=fold), levels)
        fits, too_tall = (fold, too_tall) if folded.height <= HEIGHT else (fits, fold)
    return found if found.height <= HEIGHT else _placed(root, replace(style, fold=fits), levels)


def root_levels(root: AgentNode) -> int:
    """The number of levels of the tree."""
    level, count = [root], 0
    while level:
        count += 1
        level = [child for node in level for child in node.children]
    return count


def _placed(root: AgentNode, style: Style, levels: int) -> Layout:
    is_list = levels > style.levels
    cells = cut(root, style)
    heights = [cell.height for cell in cells]
    parents = [cell.parent for cell in cells]
    middles = list_middles(heights) if is_list else tidy_middles(parents, heights)
    height = max(m + h / 2 for m, h in zip(middles, heights, strict=True))
    return Layout(style, is_list, tuple(cells), tuple(middles), height)


def cut(root: AgentNode, style: Style) -> list[Cell]:
    """The cells of a tree, each after its parent."""
    cells: list[Cell] = []
    # A stack of cells to cut: their nodes, the cell above and the level.
    waiting: list[tuple[tuple[AgentNode, ...], int, int]] = [((root,), -1, 0)]
    while waiting:
        nodes, parent, level = waiting.pop()
        if len(nodes) > 1:
            cells.append(_block(nodes, parent, level, style))
            continue
        here = len(cells)
        cells.append(Cell(nodes, parent, level, 1, style.row))
        node = nodes[0]
        if level == style.fold and node.children:
            below = tuple(node.walk())[1:]
            waiting.append((below, here, level + 1))
        else:
            runs = _runs(node.children, style)
            waiting.extend((run, here, level + 1) for run in reversed(runs))
    return cells


def _runs(children: Sequence[AgentNode], style: Style) -> list[tuple[AgentNode, ...]]:
    """Siblings, grouped into blocks."""
    runs: list[tuple[AgentNode, ...]] = []
    run: list[AgentNode] = []
    for child in children:
        if child.children or style.columns == 1:
            runs += _as_blocks(run)
            run = []
            runs.append((child,))
        else:
            run.append(child)
    return runs + _as_blocks(run)


def _as_blocks(run: list[AgentNode]) -> list[tuple[AgentNode, ...]]:
    return [tuple(run)] if len(run) >= _SMALLEST_RUN else [(node,) for node in run]


def _block(nodes: tuple[AgentNode, ...], parent: int, level: int, style: Style) -> Cell:
    if style.columns:
        rows = ceil(len(nodes) / style.columns)
        height = rows * style.row + BLOCK_GAP
        return Cell(nodes, parent, level, min(style.columns, len(nodes)), height)
    rows = ceil(min(len(nodes), MARKS) / style.marks)
    # With a line of text above the marks.
    return Cell(nodes, parent, level, 0, style.row + rows * MARK_STEP + BLOCK_GAP)


def tidy_middles(parents: Sequence[int], heights: Sequence[float]) -> list[float]:
    """Place cells in columns by level so that no two overlap.

    Each subtree has its own stripe; a cell is in the middle between its first and last child.

    Args:
        parents: Index of each cell's parent: -1 for the first, a smaller index for any other.
        heights: Height of each cell in pixels, including the space to the next.

    Returns:
        The middle of each cell, in pixels from the top.
    """
    stripe = [0.0] * len(parents)
    """The height of each subtree: the larger of the cell and all cells below it."""
    below = [0.0] * len(parents)
    for cell in range(len(parents) - 1, -1, -1):
        stripe[cell] = max(heights[cell], below[cell])
        if parents[cell] >= 0:
            below[parents[cell]] += stripe[cell]
    top = [0.0] * len(parents)
    next_top = [0.0] * len(parents)
    for cell, parent in enumerate(parents):
        if parent >= 0:
            top[cell] = next_top[parent]
            next_top[parent] += stripe[cell]
        next_top[cell] = top[cell] + (stripe[cell] - below[cell]) / 2
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    middles = [0.0] * len(parents)
    for cell in range(len(parents) - 1, -1, -1):
        middle = top[cell] + stripe[cell] / 2
        if cell in last:
            # A tall cell stays inside its stripe.
            half = heights[cell] / 2
            middle = (first[cell] + last[cell]) / 2
            middle = min(max(middle, top[cell] + half), top[cell] + stripe[cell] - half)
        middles[cell] = middle
        last.setdefault(parents[cell], middle)
        first[parents[cell]] = middle
    return middles


def list_middles(heights: Sequence[float]) -> list[float]:
    """Place cells one below the other; returns their middles, in pixels from the top."""
    middles, top = [], 0.0
    for height in heights:
        middles.append(top + height / 2)
        top += height
    return middles


def shared_room(wanted: Sequence[float], room: float) -> list[float]:
    """Share out `room`: each gets what it wants, up to a limit that is the same for all."""
    given = list(wanted)
    left, open_ones = room, sorted(range(len(given)), key=lambda i: given[i])
    for place, i in enumerate(open_ones):
        fair = left / (len(open_ones) - place)
        given[i] = max(0.0, min(given[i], fair))
        left -= given[i]
    return given
