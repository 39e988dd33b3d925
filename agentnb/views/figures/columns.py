"""The widths of a tree's levels, from the labels of its agents."""

from __future__ import annotations

from agentnb.core.text import visible
from agentnb.core.types import AgentNode
from agentnb.views.figures.layout import MARK_STEP, Cell, Layout, shared_room
from agentnb.views.figures.lettering import BOLD, REGULAR
from agentnb.views.figures.theme import BODY, MARGIN, SMALL, WIDTH
from agentnb.views.figures.words import short_count

GAP = 34.0
"""Gap between two levels of a tidy tree, for the connecting lines."""
MARK_ROOM = 20.0
"""Width of a mark before its label."""
ROW_WIDTH = 520.0
"""Widest agent on one line."""
_WIDEST_CARD, _NARROWEST_CARD = 388.0, 190.0
_LEAF_WIDTH = 300.0
"""Least width of the last level if each agent has a row."""
_BLOCK_COLUMN = 150.0
"""Least width of a block's column."""
_BESIDE_BLOCKS = 200.0
"""Widest agent beside blocks."""
_LIST_INDENT = 18.0
_LIST_ROOM = 360.0
"""Largest indent of a list."""


class Columns:
    """Where each level begins, and how wide its cells may be, in pixels.

    A level is as wide as its widest agent needs, if enough room is left for the last level.
    """

    def __init__(self, placed: Layout) -> None:
        self._placed = placed
        levels = max(cell.level for cell in placed.cells) + 1
        if placed.is_list:
            self._indent = min(_LIST_INDENT, _LIST_ROOM / levels)
            self.lefts = [MARGIN + self._indent * level for level in range(levels)]
            self.widths = [0.0] * levels
            rights = [self.lefts[cell.level] + self._natural(cell) for cell in placed.cells]
            self.width = min(float(WIDTH), max(rights) + MARGIN)
            return
        widest = min(_WIDEST_CARD, (WIDTH - 2 * MARGIN + GAP) / levels - GAP)
        self.card_width = min(widest, max(_card_wants(cell.nodes[0]) for cell in placed.cells))
        inner, leaf = self._wanted(levels)
        room = WIDTH - 2 * MARGIN - self._leaf_room() - GAP * (levels - 1)
        self.widths = shared_room(inner, room)
        self.lefts = [float(MARGIN)]
        for width in self.widths[:-1]:
            self.lefts.append(self.lefts[-1] + width + GAP)
        rights = [left + w for left, w in zip(self.lefts, leaf, strict=True) if w]
        self.width = min(float(WIDTH), max(rights) + MARGIN)

    def _leaf_room(self) -> float:
        """The least width of the deepest level."""
        style = self._placed.style
        if style.has_cards:
            return self.card_width
        if style.columns == 0:
            return style.marks * MARK_STEP
        return _LEAF_WIDTH if style.columns == 1 else _BLOCK_COLUMN * style.columns

    def _wanted(self, levels: int) -> tuple[list[float], list[float]]:
        """The widths needed by agents with and without sub-agents, by level."""
        inner, leaf = [0.0] * levels, [0.0] * levels
        has_below = {cell.parent for cell in self._placed.cells}
        for index, cell in enumerate(self._placed.cells):
            wants = inner if index in has_below else leaf
            wants[cell.level] = max(wants[cell.level], self._natural(cell))
        return inner, leaf

    def _natural(self, cell: Cell) -> float:
        if self._placed.style.has_cards:
            return self.card_width
        if cell.is_block:
            return float(WIDTH)
        node = cell.nodes[0]
        task, tokens = visible(node.task, 60), short_count(node.tokens_used)
        words = f"{node.path}  {node.status}  {task}    {tokens}"
        is_beside = self._placed.style.columns != 1 and not self._placed.is_list
        widest = _BESIDE_BLOCKS if is_beside else ROW_WIDTH
        return min(widest, MARK_ROOM + BOLD.width(words, BODY))


def _card_wants(node: AgentNode) -> float:
    """The width at which a card shows all of an agent."""
    head = BOLD.width(visible(node.path, 40), BODY) + REGULAR.width(
        f"{node.status}{node.tokens_used:,}", BODY
    )
    task = REGULAR.width(visible(node.task, 80), SMALL)
    return max(_NARROWEST_CARD, head + 70, task + 24)
