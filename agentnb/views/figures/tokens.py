"""A picture of token use: a bar for each agent's own tokens."""

from __future__ import annotations

from collections.abc import Sequence

from agentnb.core.text import visible
from agentnb.core.types import AgentNode
from agentnb.views.figures.empty import empty_figure
from agentnb.views.figures.figure import RunFigure
from agentnb.views.figures.header import Header, Key
from agentnb.views.figures.lettering import BOLD, REGULAR
from agentnb.views.figures.sheet import Box, Point, Sheet
from agentnb.views.figures.theme import BODY, MARGIN, SMALL, WIDTH, theme
from agentnb.views.figures.words import (
    as_agents,
    by_status,
    counted,
    share,
    short_count,
    status_list,
)

BARS = 40
"""Most agents with a bar: those that used most tokens."""
_ROW = 23.0
_BAR = 13.0
_LABELS = 350.0
_MARK_ROOM = 20.0


def tokens_figure(root: AgentNode | None, *, dark: bool = False) -> RunFigure:
    """Draw the tokens of each agent of the tree."""
    if root is None:
        return empty_figure("tokens", "Nothing has run yet: no tokens were used.", dark=dark)
    agents = as_agents(root)
    nodes = list(root.walk())
    total = sum(node.tokens_used for node in nodes)
    # A stable sort: agents with equal tokens stay in tree order.
    ranked = sorted(nodes, key=lambda node: -node.tokens_used)
    drawn, rest = ranked[:BARS], ranked[BARS:]
    title, detail = f"{total:,} tokens", f"by {counted(len(nodes), 'agent')}, each its own"
    counts = by_status(status for _, status in agents)
    keys = [Key(f"{count:,} {status}", status) for status, count in counts.items()]
    header = Header(title, detail, keys, width=WIDTH)
    height = header.height + _ROW * (len(drawn) + (1 if rest else 0)) + MARGIN
    sheet = Sheet(
        WIDTH,
        height,
        theme(dark),
        name=f"tokens of {counted(len(nodes), 'agent')}",
        alt_text=f"{title} {detail}: {_alt(drawn, total)}. {status_list(agents)}.",
    )
    header.draw(sheet, WIDTH)
    _draw_bars(sheet, drawn, total, header.height)
    if rest:
        _draw_rest(sheet, rest, total, header.height + _ROW * len(drawn))
    return sheet.figure


def _alt(drawn: Sequence[AgentNode], total: int) -> str:
    named = [
        f"{node.path} {node.tokens_used:,} ({share(node.tokens_used, total)})" for node in drawn[:5]
    ]
    return ", ".join(named) + (", …" if len(drawn) > len(named) else "")


def _draw_bars(sheet: Sheet, drawn: Sequence[AgentNode], total: int, top: float) -> None:
    colours = sheet.theme
    wanted = max(
        _MARK_ROOM
        + BOLD.width(visible(n.path, 40), BODY)
        + 8
        + REGULAR.width(visible(n.task, 80), BODY)
        for n in drawn
    )
    left = MARGIN + min(_LABELS, wanted) + 12
    most = max(node.tokens_used for node in drawn)
    numbers = REGULAR.width(f"{most:,}", BODY) + REGULAR.width("100 %", SMALL) + 20
    scale = (WIDTH - MARGIN - numbers - left) / (most or 1)
    bars: list[Box] = []
    marks: dict[object, list[Point]] = {}
    for number, node in enumerate(drawn):
        middle = top + (number + 0.5) * _ROW
        base = middle + 4.2
        marks.setdefault(node.status, []).append((MARGIN + 6, middle))
        x = MARGIN + _MARK_ROOM - 2
        x += 7 + sheet.text(x, base, node.path, room=(left - x) * 0.6, bold=True)
        sheet.text(x, base, node.task, room=left - 12 - x)
        wide = node.tokens_used * scale
        bars.append((left, middle - _BAR / 2, max(wide, 1.0 if node.tokens_used else 0.0), _BAR))
        x = left + wide + 7
        x += 8 + sheet.text(x, base, f"{node.tokens_used:,}")
        sheet.text(x, base, share(node.tokens_used, total), size=SMALL, colour=colours.muted)
    bottom = top + len(drawn) * _ROW
    sheet.lines([[(left, top), (left, bottom)]], colours.line)
    sheet.boxes(bars, colours.call, zorder=3)
    sheet.marks(marks, 5.5)  # type: ignore[arg-type]


def _draw_rest(sheet: Sheet, rest: Sequence[AgentNode], total: int, top: float) -> None:
    spent = sum(node.tokens_used for node in rest)
    words = (
        f"… {counted(len(rest), 'more agent')}: {spent:,} tokens in all ({share(spent, total)}), "
        f"at most {short_count(rest[0].tokens_used)} each"
    )
    sheet.text(
        MARGIN, top + _ROW / 2 + 4.2, words, room=WIDTH - 2 * MARGIN, colour=sheet.theme.muted
    )
