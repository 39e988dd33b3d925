"""The progress of a map: a fold of its run's events into counts of rows.

A row is done when all its judges have answered. Rows that are reused from an earlier map are
counted separately and do not affect the rate; nor does the time during which a question or a pause
held the run.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentnb.core.bus import EventBus
from agentnb.core.events import (
    AgentCancelled,
    AgentCompleted,
    AgentExhausted,
    AgentFailed,
    AgentInterrupted,
    AgentSpawned,
    BudgetPaused,
    BudgetResumed,
    Event,
    ModelCallStarted,
    QuestionAnswered,
    QuestionAsked,
    Row,
    RunFinished,
    RunPaused,
    RunResumed,
    is_terminal,
)
from agentnb.core.questions import PLAN, SAMPLE
from agentnb.views.figures.words import counted
from agentnb.views.panel.clock import clock

WINDOW_S = 30.0
"""Seconds over which the rate is computed: that of the rows which ended in the newest of them."""
LEAST_ROWS = 20
"""Fewest rows for the rate, even if they took longer, so that slow rows still give one."""


@dataclass(frozen=True, slots=True)
class MapShape:
    """What the views of a map need to know of its table."""

    rows: int
    judges: int = 1
    labels: Sequence[str] = ()
    """The beginning of each row, in order; empty if the prompts serve as labels."""


@dataclass(frozen=True, slots=True)
class MapProgress:
    """The progress of a map, in rows."""

    rows: int
    done: int = 0
    """Rows that all judges have answered, including reused rows."""
    reused: int = 0
    """Rows done without any call, with answers of an earlier map."""
    failed: int = 0
    """Ended rows of which a judge has failed."""
    stopped: int = 0
    """Rows that ended without all answers for another reason: cancelled, or no budget left."""
    running: int = 0
    per_s: float | None = None
    """Rows that lately ended per second; `None` while unknown, and while nothing is running."""
    is_over: bool = False

    @property
    def ended(self) -> int:
        """Number of rows that have ended."""
        return self.done + self.failed + self.stopped

    @property
    def open(self) -> int:
        """Number of rows that have not begun."""
        return self.rows - self.ended - self.running

    @property
    def left_s(self) -> float | None:
        """Seconds until the last row, at the present rate; `None` while unknown."""
        rows = self.rows - self.ended
        return rows / self.per_s if self.per_s and rows and not self.is_over else None

    @property
    def times_so_far(self) -> float | None:
        """The expected cost of all rows, as a multiple of the cost so far; `None` while unknown."""
        asked = self.ended - self.reused
        return (self.rows - self.reused) / asked if asked and not self.is_over else None


class _RowState:
    __slots__ = ("answered", "begun", "ended", "has_called", "has_failed")

    def __init__(self) -> None:
        self.begun = self.ended = self.answered = 0
        """Numbers of judges that have begun, ended and answered."""
        self.has_called = self.has_failed = False


_HEARD = frozenset(
    {
        *(AgentSpawned, ModelCallStarted, RunPaused, RunResumed, BudgetPaused, BudgetResumed),
        *(QuestionAsked, QuestionAnswered, RunFinished, AgentCompleted, AgentFailed),
        *(AgentCancelled, AgentExhausted, AgentInterrupted),
    }
)
"""Types of the events that change a row; most events of a record do not."""


class MapFold:
    """Counts the rows of a map. Feed each event once, in order."""

    def __init__(self, rows: int, judges: int = 1) -> None:
        self._judges = judges
        self._rows = [_RowState() for _ in range(rows)]
        self._root = ""
        self._done = self._reused = self._failed = self._stopped = self._running = 0
        self._ended_s: list[float] = []
        """Times of the ends of asked rows, in order, since the run was last held."""
        self._since_s: float | None = None
        """When the first of these rows began, or the run continued."""
        self._holds = 0
        """Pauses and questions that hold all rows."""
        self._is_over = False

    def feed(self, rows: Iterable[Row]) -> None:
        """Fold in rows of the record."""
        for row in rows:
            if len(row) == 2:
                self.learn(*row)

    def learn(self, at_s: float, event: Event) -> None:
        """Fold in an event; `at_s` is its time in seconds since the run began."""
        if type(event) not in _HEARD:
            return
        match event:
            case AgentSpawned(depth=0):
                self._root = event.agent_id
            case AgentSpawned(depth=1):
                self._begun(event.agent_id)
            case ModelCallStarted():
                self._called(at_s, event.agent_id)
            case RunPaused(agent_id=None) | BudgetPaused():
                self._holds += 1
            case QuestionAsked(agent_id=self._root, question=kind) if kind in (SAMPLE, PLAN):
                self._holds += 1
            case RunResumed(agent_id=None) | BudgetResumed():
                self._goes_on(at_s)
            case QuestionAnswered(agent_id=self._root):
                self._goes_on(at_s)
            case RunFinished():
                self._is_over, self._running = True, 0
            case _ if is_terminal(event):
                self._ended(at_s, event)

    def progress(self, now_s: float) -> MapProgress:
        """The counts, with the rate at `now_s` seconds since the run began."""
        moves = not (self._is_over or self._holds)
        return MapProgress(
            rows=len(self._rows),
            done=self._done,
            reused=self._reused,
            failed=self._failed,
            stopped=self._stopped,
            running=self._running,
            per_s=rate_of(self._ended_s, self._since_s or 0.0, now_s) if moves else None,
            is_over=self._is_over,
        )

    def _row_of(self, agent_id: str) -> _RowState | None:
        """The row of an agent, or of the one above it."""
        head, root = agent_id.removeprefix(f"{self._root}."), self._root
        number = head.partition(".")[0]
        if not root or head == agent_id or not number.isdecimal():
            return None
        place = (int(number) - 1) // self._judges
        return self._rows[place] if 0 <= place < len(self._rows) else None

    def _begun(self, agent_id: str) -> None:
        row = self._row_of(agent_id)
        if row is None:
            return
        self._running += not row.begun
        row.begun += 1

    def _called(self, at_s: float, agent_id: str) -> None:
        row = self._row_of(agent_id)
        if row is None:
            return
        row.has_called = True
        if self._since_s is None:
            self._since_s = at_s

    def _goes_on(self, at_s: float) -> None:
        self._holds = max(0, self._holds - 1)
        self._ended_s.clear()
        self._since_s = at_s

    def _ended(self, at_s: float, event: Event) -> None:
        agent_id: str = getattr(event, "agent_id", "")
        row = self._row_of(agent_id)
        if row is None or agent_id.count(".") > self._root.count(".") + 1:
            return
        row.ended += 1
        row.answered += isinstance(event, AgentCompleted)
        row.has_failed |= isinstance(event, AgentFailed)
        if row.ended != self._judges:
            return
        self._running = max(0, self._running - 1)
        if row.answered == self._judges:
            self._done += 1
            self._reused += not row.has_called
        elif row.has_failed:
            self._failed += 1
        else:
            self._stopped += 1
        if row.has_called:
            self._ended_s.append(at_s)


def rate_of(ended_s: Sequence[float], since_s: float, now_s: float) -> float | None:
    """Rows per second over the newest part of a run; `None` before any.

    Args:
        ended_s: When rows ended, in order, in seconds since the run began.
        since_s: When the first of them began.
        now_s: The present.
    """
    if not ended_s:
        return None
    newest = ended_s[-LEAST_ROWS] if len(ended_s) > LEAST_ROWS else since_s
    begin = max(since_s, min(now_s - WINDOW_S, newest))
    ended, took_s = len(ended_s) - bisect_right(ended_s, begin), now_s - begin
    return ended / took_s if ended and took_s > 0 else None


class MapWatch:
    """The progress of one map, read from its run's record. Thread-safe."""

    def __init__(self, bus: EventBus, shape: MapShape) -> None:
        self.bus = bus
        """The run's: what follows one in its place has its rows and more."""
        self._fold = MapFold(shape.rows, shape.judges)
        self._position = 0
        self._lock = threading.Lock()

    def follow(self, until: int | None = None) -> None:
        """Read new events, so that `progress` has only the rest to read."""
        with self._lock:
            self._read(until)

    def progress(self, until: int | None = None) -> MapProgress:
        """The progress now, or after a number of the run's events."""
        with self._lock:
            self._read(until)
            return self._fold.progress(self.bus.now_s)

    def _read(self, until: int | None) -> None:
        most = None if until is None else max(0, until - self._position)
        rows = self.bus.rows_since(self._position)[:most]
        self._position += len(rows)
        self._fold.feed(rows)


# -- in words -------------------------------------------------------------------------------------


def count_words(progress: MapProgress) -> list[str]:
    """`1,204 of 2,000 rows done`, `12 failed` and so on, in a fixed order."""
    done = f"{progress.done:,} of {counted(progress.rows, 'row')} done"
    others = [
        (progress.failed, "failed"),
        (progress.stopped, "stopped"),
        (progress.running, "running"),
        (progress.open, "open"),
        (progress.reused, "reused"),
    ]
    return [done, *(f"{count:,} {word}" for count, word in others if count)]


def pace_words(progress: MapProgress) -> list[str]:
    """`8.3 rows a second`, `1:36 left`; empty while these are unknown."""
    per_s, left_s = progress.per_s, progress.left_s
    if not per_s or left_s is None:
        return []
    pace = f"{_short(per_s)} rows a second" if per_s >= 0.5 else f"{_short(60 * per_s)} a minute"
    return [pace, f"{clock(left_s)} left"]


def _short(number: float) -> str:
    return f"{number:,.1f}" if number < 9.95 else f"{number:,.0f}"
