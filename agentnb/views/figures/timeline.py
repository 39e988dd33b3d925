"""A picture of a run over time: a bar for each agent, below the use of the budget."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from agentnb.core.events import Row
from agentnb.core.money import USD, in_words, share_in_words
from agentnb.core.text import visible
from agentnb.core.types import ROOT_PATH, AgentStatus
from agentnb.views.figures.empty import empty_figure
from agentnb.views.figures.figure import RunFigure
from agentnb.views.figures.header import Header, Key
from agentnb.views.figures.lettering import BOLD, REGULAR
from agentnb.views.figures.sheet import Box, Point, Sheet
from agentnb.views.figures.spans import AgentTime, SpanKind, Times, times
from agentnb.views.figures.theme import BODY, MARGIN, SMALL, WIDTH, Theme, theme
from agentnb.views.figures.ticks import amount_labels, ticks, time_ticks
from agentnb.views.figures.words import by_status, counted, seconds, share, status_list

DRAWN = 400
"""Most agents with a bar: of more, those that took longest."""
WARNING_PART = 0.8
_TALLEST = 1500.0
_LABELS = 260.0
_NARROW_LABELS = 120.0
_RIGHT = 34.0
"""Room for the mark of an agent's status."""
_BUDGET_HEIGHT = 84.0
_WARNING = f"{100 * WARNING_PART:.0f} % of it"
_KEY = 25.0
"""From the left margin to the words of the budget's key."""
_AXIS = 34.0
_LABEL_HEIGHT = 15.0
"""Height of a label: if rows are lower, only some have one."""


def timeline_figure(rows: Sequence[Row], *, dark: bool = False) -> RunFigure:
    """Draw the timeline of a record's rows."""
    run = times(rows)
    if not run.agents:
        return empty_figure("timeline", "Nothing has happened yet: no agent to draw.", dark=dark)
    agents = [(agent.path, agent.status) for agent in run.agents]
    title = f"{counted(len(agents), 'agent')} over {seconds(run.end_s)}"
    colours = theme(dark)
    header = Header(title, _budget_words(run), _keys(run, colours), width=WIDTH)
    drawn = _longest(run.agents)
    row = _row_height(len(drawn))
    left_out = len(agents) - len(drawn)
    height = header.height + _BUDGET_HEIGHT + _AXIS + row * len(drawn) + (24 if left_out else 0)
    sheet = Sheet(
        WIDTH,
        height + MARGIN,
        colours,
        name=f"timeline of {counted(len(agents), 'agent')}",
        alt_text=f"Timeline of {title}: {status_list(agents)}. {_budget_words(run)}.",
    )
    header.draw(sheet, WIDTH)
    _Drawing(sheet, run, drawn, header.height, row).draw()
    if left_out:
        words = f"… {counted(left_out, 'more agent')}, which took less time than these"
        sheet.text(MARGIN, height + 2, words, colour=colours.muted)
    return sheet.figure


def _row_height(rows: int) -> float:
    return max(3.0, min(24.0, _TALLEST / rows))


def _longest(agents: Sequence[AgentTime]) -> list[AgentTime]:
    if len(agents) <= DRAWN:
        return list(agents)
    # A stable sort: of agents with equal times the first ones.
    ranked = sorted(agents[1:], key=lambda agent: agent.begin_s - agent.end_s)
    kept = {agents[0].agent_id, *(agent.agent_id for agent in ranked[: DRAWN - 1])}
    return [agent for agent in agents if agent.agent_id in kept]


def _budget_words(run: Times) -> str:
    if not run.levels:
        return ""
    used, total = run.levels[-1].used, run.levels[-1].total
    if run.unit == USD:
        words = f"{in_words(used, USD)} of the budget of {in_words(total, USD)} used"
    else:
        words = f"{share_in_words(used, total, run.unit)} of the budget used"
    return f"{words} ({share(used, total)})"


def _keys(run: Times, colours: Theme) -> list[Key]:
    """The keys of everything in the figure."""
    seen = {span.kind for agent in run.agents for span in agent.spans}
    words = {
        SpanKind.CALL: ("model call", colours.call, 11.0),
        SpanKind.TOOL: ("tool", colours.tool, 8.0),
        SpanKind.WAITING: ("waiting to ask", colours.waiting, 5.0),
        SpanKind.CHILDREN: ("waiting for its sub-agents", colours.line, 2.0),
    }
    keys = [Key(said, colour=c, height=h) for kind, (said, c, h) in words.items() if kind in seen]
    if any(agent.retries_s for agent in run.agents):
        keys.append(Key("tried again", colour=colours.trouble, height=14.0, is_upright=True))
    if run.pauses:
        keys.append(Key("paused", colour=colours.pause, height=14.0))
    counts = by_status(agent.status for agent in run.agents)
    return keys + [Key(f"{count:,} {status}", status) for status, count in counts.items()]


class _Drawing:
    """One run on one sheet."""

    def __init__(
        self, sheet: Sheet, run: Times, drawn: Sequence[AgentTime], top: float, row: float
    ) -> None:
        self._sheet, self._run, self._drawn, self._row = sheet, run, drawn, row
        wanted = max(self._label_width(agent) for agent in drawn)
        highest = max((max(level.used, level.total) for level in run.levels), default=0) or 1
        places = ticks(highest, 3)
        labels = amount_labels(places, run.unit)
        self._highest, self._amounts = highest, list(zip(places, labels, strict=True))
        narrow = max(_NARROW_LABELS, _beside_the_key(labels))
        self._left = MARGIN + max(narrow, min(_LABELS, wanted)) + 14
        self._right = WIDTH - MARGIN - _RIGHT
        self._budget_top = top
        self._bars_top = top + _BUDGET_HEIGHT + _AXIS
        # A run of length 0 still places its agents.
        self._scale = (self._right - self._left) / (run.end_s or 1.0)

    def draw(self) -> None:
        self._grid()
        self._budget()
        self._bars()
        self._labels()

    def _x(self, at_s: float) -> float:
        return self._left + at_s * self._scale

    def _label_width(self, agent: AgentTime) -> float:
        size = self._size
        return (
            BOLD.width(visible(agent.path, 40), size)
            + 8
            + REGULAR.width(visible(agent.task, 60), size)
        )

    @property
    def _size(self) -> float:
        return BODY if self._row >= 18 else SMALL

    # -- time ---------------------------------------------------------------------------------

    def _grid(self) -> None:
        sheet, bottom = self._sheet, self._bars_top + self._row * len(self._drawn)
        places = time_ticks(self._run.end_s, 8)
        stripes = ((self._budget_top, self._bars_top - _AXIS), (self._bars_top - 6, bottom))
        lines = [[(self._x(s), y), (self._x(s), end)] for s in places for y, end in stripes]
        sheet.lines(lines, sheet.theme.grid)
        y = self._bars_top - 14
        for at_s in places:
            words = "0" if at_s == 0 else seconds(at_s)
            sheet.text(self._x(at_s), y, words, size=SMALL, colour=sheet.theme.muted, ha="center")

    # -- the budget ---------------------------------------------------------------------------

    def _budget(self) -> None:
        levels, sheet = self._run.levels, self._sheet
        if not levels:
            return
        theme, highest = sheet.theme, self._highest
        bottom = self._budget_top + _BUDGET_HEIGHT - 6

        def place(at_s: float, amount: float) -> Point:
            return self._x(at_s), bottom - (bottom - self._budget_top - 8) * amount / highest

        pauses = [
            (
                self._x(begin),
                self._budget_top,
                max(1.0, self._x(end) - self._x(begin)),
                bottom - self._budget_top,
            )
            for begin, end in self._run.pauses
        ]
        sheet.boxes(pauses, theme.pause)
        used = _thinned([place(level.at_s, level.used) for level in levels])
        total = _thinned([place(level.at_s, level.total) for level in levels])
        warning = _thinned([place(level.at_s, level.total * WARNING_PART) for level in levels])
        sheet.areas([[*used, (used[-1][0], bottom), (used[0][0], bottom)]], theme.used)
        sheet.lines([used], theme.call, width=2)
        sheet.lines([total], theme.text, width=1.2)
        sheet.lines([warning], theme.trouble, dashed=True)
        sheet.lines([[(self._left, bottom), (self._right, bottom)]], theme.line)
        for at_s in self._run.warnings_s:
            x = self._x(at_s)
            sheet.lines([[(x, self._budget_top + 4), (x, bottom)]], theme.trouble, width=1.5)
        self._budget_labels(bottom)

    def _budget_labels(self, bottom: float) -> None:
        sheet = self._sheet
        tall = bottom - self._budget_top - 8
        for amount, words in self._amounts:
            y = bottom - tall * amount / self._highest
            sheet.text(
                self._left - 8,
                y + 3.8,
                words,
                size=SMALL,
                colour=sheet.theme.muted,
                ha="right",
            )
        sheet.text(MARGIN, self._budget_top + 12, "Budget", bold=True)
        theme = sheet.theme
        for number, (words, colour, dashed) in enumerate(
            [
                ("total", theme.text, False),
                (_WARNING, theme.trouble, True),
                ("used", theme.call, False),
            ]
        ):
            y = self._budget_top + 28 + 16 * number
            sheet.lines([[(MARGIN, y), (MARGIN + 18, y)]], colour, width=1.5, dashed=dashed)
            sheet.text(MARGIN + _KEY, y + 3.8, words, size=SMALL, colour=theme.muted)

    # -- agents -------------------------------------------------------------------------------

    def _bars(self) -> None:
        theme, sheet = self._sheet.theme, self._sheet
        looks = {
            SpanKind.CALL: (theme.call, 0.62),
            SpanKind.TOOL: (theme.tool, 0.46),
            SpanKind.WAITING: (theme.waiting, 0.3),
            SpanKind.CHILDREN: (theme.line, 0.12),
            SpanKind.IDLE: (theme.line, 0.06),
        }
        boxes: dict[SpanKind, list[Box]] = {kind: [] for kind in looks}
        retries: list[Sequence[Point]] = []
        ends: dict[AgentStatus, list[Point]] = {}
        for number, agent in enumerate(self._drawn):
            y = self._bars_top + (number + 0.5) * self._row
            for span in agent.spans:
                tall = max(1.0, looks[span.kind][1] * self._row)
                x = self._x(span.begin_s)
                # A very short span is visible too.
                wide = max(0.75, self._x(span.end_s) - x)
                boxes[span.kind].append((x, y - tall / 2, wide, tall))
            half = 0.42 * self._row
            retries += [[(self._x(s), y - half), (self._x(s), y + half)] for s in agent.retries_s]
            ends.setdefault(agent.status, []).append((self._x(agent.end_s) + 9, y))
        for kind, (colour, _) in looks.items():
            sheet.boxes(boxes[kind], colour, zorder=3)
        sheet.lines(retries, theme.trouble, width=2, zorder=3.5)
        sheet.marks(ends, max(1.8, min(5.0, self._row * 0.46)))

    def _labels(self) -> None:
        sheet, size = self._sheet, self._size
        right = self._left - 12
        for number in _with_label([agent.path for agent in self._drawn], self._row):
            agent = self._drawn[number]
            y = self._bars_top + (number + 0.5) * self._row + 4.2
            x = float(MARGIN)
            x += 7 + sheet.text(x, y, agent.path, room=(right - x) * 0.6, size=size, bold=True)
            sheet.text(x, y, agent.task, room=right - x, size=size, colour=sheet.theme.muted)


def _beside_the_key(labels: Sequence[str]) -> float:
    """The room that the axis of the budget needs beside its key: amounts of cents are long."""
    widest = max(REGULAR.width(label, SMALL) for label in labels)
    return _KEY + REGULAR.width(_WARNING, SMALL) + widest + 4


def _with_label(paths: Sequence[str], row: float) -> list[int]:
    """The rows with a label, if not all fit: those high in the tree first."""
    apart = ceil(_LABEL_HEIGHT / row)
    if apart <= 1:
        return list(range(len(paths)))
    taken = [False] * (len(paths) + 2 * apart)
    chosen = []
    levels = [0 if path == ROOT_PATH else 1 + path.count(".") for path in paths]
    for number in sorted(range(len(paths)), key=lambda number: levels[number]):
        if not taken[number + apart]:
            chosen.append(number)
            taken[number + 1 : number + 2 * apart] = [True] * (2 * apart - 1)
    return sorted(chosen)


def _thinned(points: Sequence[Point]) -> list[Point]:
    """Thin out points within a pixel's width: keep the lowest and the highest."""
    kept: list[Point] = []
    for x, y in points:
        if len(kept) >= 4 and x - kept[-4][0] < 0.5:
            low, high = min(kept[-3][1], kept[-2][1], y), max(kept[-3][1], kept[-2][1], y)
            kept[-3:] = [(kept[-3][0], low), (x, high), (x, y)]
        else:
            kept.append((x, y))
    return kept
