"""A picture of the tree: its agents, their tasks and statuses."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.path import Path

from agentnb.core.text import visible
from agentnb.core.types import AgentNode, AgentStatus
from agentnb.views.figures.columns import GAP, MARK_ROOM, ROW_WIDTH, Columns
from agentnb.views.figures.empty import empty_figure
from agentnb.views.figures.figure import RunFigure
from agentnb.views.figures.header import Header, Key
from agentnb.views.figures.layout import BLOCK_GAP, MARK_STEP, MARKS, Cell, Layout, layout
from agentnb.views.figures.lettering import BOLD, ELLIPSIS, REGULAR
from agentnb.views.figures.sheet import Box, Point, Sheet
from agentnb.views.figures.theme import BODY, MARGIN, SMALL, theme
from agentnb.views.figures.words import as_agents, by_status, counted, short_count, status_list

_LONG_PATH = 30
"""Longest path, in letters, in the text above bare marks."""
_WORD_FROM = 190.0
"""Least width of a row, in pixels, that shows the status as a word."""
_SHORTEST = 24.0
"""Least width of a task, in pixels: a shorter one is not worth showing."""
_NARROWEST = 340.0
_CARD_GAP = 8.0
_DESCENT = 4.2
"""From the middle of a line to its baseline."""


def tree_figure(root: AgentNode | None, *, dark: bool = False) -> RunFigure:
    """Draw the tree below `root`."""
    if root is None:
        return empty_figure("tree", "Nothing has run yet: there is no agent to draw.", dark=dark)
    agents = as_agents(root)
    counts = by_status(status for _, status in agents)
    title = counted(len(agents), "agent")
    detail = f"{sum(node.tokens_used for node in root.walk()):,} tokens"
    keys = [Key(f"{count:,} {status}", status) for status, count in counts.items()]
    if len(agents) == 1:
        keys = []  # its card shows everything
    placed = layout(root)
    columns = Columns(placed)
    width = max(columns.width, _NARROWEST)
    header = Header(title, detail, keys, width=width)
    sheet = Sheet(
        width,
        header.height + placed.height + MARGIN,
        theme(dark),
        name=f"tree of {title}",
        alt_text=f"Tree of {title}: {status_list(agents)}.",
    )
    header.draw(sheet, width)
    _Drawing(sheet, placed, columns, header.height, width - MARGIN).draw()
    return sheet.figure


class _Drawing:
    """One tree on one sheet."""

    def __init__(
        self, sheet: Sheet, placed: Layout, columns: Columns, top: float, right: float
    ) -> None:
        self._sheet, self._placed, self._columns = sheet, placed, columns
        self._top, self._right = top, right
        self._has_below = {cell.parent for cell in placed.cells}
        self._marks: dict[AgentStatus, list[Point]] = {}
        self._small_marks: dict[AgentStatus, list[Point]] = {}
        self._size = BODY if placed.style.row > 20 else SMALL

    def draw(self) -> None:
        cells, style = self._placed.cells, self._placed.style
        self._edges()
        if style.has_cards:
            cards = [self._box(index) for index in range(len(cells))]
            self._sheet.cards(cards, self._sheet.theme.card, self._sheet.theme.card_edge)
        for index, cell in enumerate(cells):
            if cell.columns == 0:
                self._mark_block(index, cell)
            elif cell.is_block:
                self._label_block(index, cell)
            elif style.has_cards:
                self._card(self._box(index), cell.nodes[0])
            else:
                x, _, width, _ = self._box(index)
                self._row(x, self._middle(index), width, cell.nodes[0])
        self._sheet.marks(self._marks, 5.5 if style.row > 20 else 4.8)
        self._sheet.marks(self._small_marks, 4.0)

    # -- places -------------------------------------------------------------------------------

    def _middle(self, index: int) -> float:
        return self._top + self._placed.middles[index]

    def _box(self, index: int) -> Box:
        cell = self._placed.cells[index]
        x = self._columns.lefts[cell.level]
        is_bounded = index in self._has_below and not self._placed.is_list
        width = self._columns.widths[cell.level] if is_bounded else self._right - x
        height = cell.height - (_CARD_GAP if self._placed.style.has_cards else 0)
        if self._placed.style.has_cards:
            width = self._columns.card_width
        return x, self._middle(index) - height / 2, width, height

    # -- what connects ------------------------------------------------------------------------

    def _edges(self) -> None:
        paths: list[Path] = []
        brackets: list[Sequence[Point]] = []
        for index, cell in enumerate(self._placed.cells):
            if cell.parent < 0:
                continue
            x, y, _, height = self._box(index)
            if cell.is_block:
                x -= 5
                brackets.append([(x, y + 2), (x, y + height - BLOCK_GAP - 2)])
            target = y + 9 if self._placed.is_list and cell.is_block else self._middle(index)
            paths.append(self._edge(cell.parent, x, target))
        self._sheet.curves(paths, self._sheet.theme.line)
        self._sheet.lines(brackets, self._sheet.theme.line)

    def _edge(self, parent: int, x: float, y: float) -> Path:
        left, _, width, _ = self._box(parent)
        middle = self._middle(parent)
        if self._placed.is_list:
            end = max(x - 1, left + 8)
            return Path([(left + 6, middle + 8), (left + 6, y), (end, y)])
        # Close to the level below, so that all edges of a parent share their upright part.
        turn = x - GAP / 2
        begin = (left + width + (0 if self._placed.style.has_cards else 4), middle)
        if abs(y - middle) < 1:
            return Path([begin, (x - 3, y)])
        bend = min(6.0, abs(y - middle) / 2) * (1 if y > middle else -1)
        return Path(
            [
                begin,
                (turn - abs(bend), middle),
                *((turn, middle), (turn, middle + bend)),
                (turn, y - bend),
                *((turn, y), (turn + abs(bend), y)),
                (x - 3, y),
            ],
            [
                Path.MOVETO,
                Path.LINETO,
                *[Path.CURVE3] * 2,
                Path.LINETO,
                *[Path.CURVE3] * 2,
                Path.LINETO,
            ],
        )

    # -- agents -------------------------------------------------------------------------------

    def _card(self, box: Box, node: AgentNode) -> None:
        x, y, width, _ = box
        theme = self._sheet.theme
        self._marks.setdefault(node.status, []).append((x + 15, y + 14.5))
        tokens = f"{node.tokens_used:,}" if node.tokens_used else ""
        left, right, line = x + 28, x + width - 10, y + 18.5
        used = self._sheet.text(right, line, tokens, room=90, colour=theme.muted, ha="right")
        room = right - left - used - 8
        left += self._path(left, line, node, room * 0.7, BODY) + 7
        self._sheet.text(
            left, line, str(node.status), room=right - left - used - 8, colour=theme.muted
        )
        self._sheet.text(x + 10, y + 34.5, node.task, room=width - 20, size=SMALL)

    def _row(self, x: float, middle: float, width: float, node: AgentNode) -> None:
        """One agent on one line: mark, path, its status unless completed, task, tokens."""
        muted, size = self._sheet.theme.muted, self._size
        baseline, right = middle + _DESCENT, x + width
        self._marks.setdefault(node.status, []).append((x + 6, middle))
        x += MARK_ROOM - 4
        x += self._path(x, baseline, node, right - x, size) + 6
        tokens = short_count(node.tokens_used) if node.tokens_used else ""
        needed = REGULAR.width(tokens, size)
        if tokens and x + needed <= right:
            self._sheet.text(right, baseline, tokens, size=size, colour=muted, ha="right")
            right -= needed + 8
        words = str(node.status)
        needed = REGULAR.width(words, size)
        # By the row's width, so that all agents of a block have the word, or none.
        has_word = node.status is not AgentStatus.COMPLETED and width >= _WORD_FROM
        if has_word and x + needed <= right:
            x += 6 + self._sheet.text(x, baseline, words, size=size, colour=muted)
        if right - x > _SHORTEST:
            self._sheet.text(x, baseline, node.task, room=right - x, size=size)

    def _path(self, x: float, baseline: float, node: AgentNode, room: float, size: float) -> float:
        """Write a path; if it is too long, its end, which distinguishes siblings."""
        path = visible(node.path, 10_000)
        if self._placed.is_list:
            room *= 0.35 if room > ROW_WIDTH / 2 else 0.5
        if BOLD.width(path, size) > room:
            letters = max(1, int(room / size))
            path = ELLIPSIS + path[-letters:].lstrip(".")
        return self._sheet.text(x, baseline, path, size=size, bold=True)

    def _label_block(self, index: int, cell: Cell) -> None:
        """Leaves in columns, read downwards."""
        x, y, width, _ = self._box(index)
        row = self._placed.style.row
        rows = -(-len(cell.nodes) // cell.columns)
        step = (width + 14) / cell.columns
        for number, node in enumerate(cell.nodes):
            column, line = divmod(number, rows)
            self._row(x + column * step, y + (line + 0.5) * row, step - 14, node)

    def _mark_block(self, index: int, cell: Cell) -> None:
        """Agents as bare marks, read line by line, below a line that names them."""
        x, y, width, _ = self._box(index)
        first, last = cell.nodes[0].path, cell.nodes[-1].path
        count = counted(len(cell.nodes), "agent")
        tokens = sum(node.tokens_used for node in cell.nodes)
        words = count
        if max(len(first), len(last)) <= _LONG_PATH:
            words += f", {first} to {last}"
        if len(cell.nodes) > MARKS:
            words += f"; the first {MARKS:,} are drawn"
        words += f" · {short_count(tokens)} tokens" if tokens else ""
        row = self._placed.style.row
        self._sheet.text(
            x, y + row / 2 + _DESCENT, words, room=width, size=SMALL, colour=self._sheet.theme.muted
        )
        for number, node in enumerate(cell.nodes[:MARKS]):
            line, column = divmod(number, self._placed.style.marks)
            place = (x + 5 + column * MARK_STEP, y + row + (line + 0.5) * MARK_STEP)
            self._small_marks.setdefault(node.status, []).append(place)
