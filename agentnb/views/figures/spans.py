"""Folds events into spans of time, in one pass.

A span is a time in which an agent did one thing. Text deltas, most of a record, are ignored. A
running run is folded up to its last entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agentnb.core.events import (
    AgentCancelled,
    AgentCompleted,
    AgentExhausted,
    AgentFailed,
    AgentInterrupted,
    AgentSpawned,
    AgentWaiting,
    BudgetChanged,
    BudgetExhausted,
    BudgetPaused,
    BudgetResumed,
    BudgetUpdate,
    BudgetWarning,
    ModelCallFinished,
    ModelCallStarted,
    QuestionAnswered,
    QuestionAsked,
    Row,
    RunFinished,
    RunPaused,
    RunResumed,
    RunStarted,
    SynthesisStarted,
    ToolCallFinished,
    ToolCallStarted,
    root_id_in,
)
from agentnb.core.money import TOKENS
from agentnb.core.questions import PLAN
from agentnb.core.types import AgentStatus, path_key, path_of


class SpanKind(StrEnum):
    """What an agent does in a span."""

    CALL = "call"
    """A model call is open."""
    TOOL = "tool"
    WAITING = "waiting"
    """It waits to call a model: the rate gate, a retry, the budget."""
    CHILDREN = "children"
    """It waits for its own sub-agents."""
    IDLE = "idle"
    """None of these."""


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time, in seconds since the run began."""

    kind: SpanKind
    begin_s: float
    end_s: float


@dataclass(slots=True)
class AgentTime:
    """One agent's time."""

    agent_id: str
    path: str
    """The path that users see."""
    task: str
    begin_s: float
    end_s: float
    """When it ended; if it has not, the time of the last entry."""
    status: AgentStatus = AgentStatus.PENDING
    spans: list[Span] = field(default_factory=list)
    """In order and without gaps; empty spans are left out."""
    retries_s: list[float] = field(default_factory=list)
    """When calls or attempts were retried."""


@dataclass(frozen=True, slots=True)
class Level:
    """The budget at one time."""

    at_s: float
    used: int
    """In the unit of the run's budget; so is `total`."""
    total: int


@dataclass(slots=True)
class Times:
    """A whole run over time."""

    agents: list[AgentTime] = field(default_factory=list)
    """In path order."""
    levels: list[Level] = field(default_factory=list)
    """The budget over time, oldest first."""
    unit: str = TOKENS
    """Of the budget: `tokens`, or `usd` for micro-dollars."""
    warnings_s: list[float] = field(default_factory=list)
    pauses: list[tuple[float, float]] = field(default_factory=list)
    """Begin and end of the times in which all new calls waited for a person."""
    end_s: float = 0.0
    """The latest time of an entry."""
    has_ended: bool = False


def times(rows: Iterable[Row]) -> Times:
    """Fold a record's rows into spans."""
    fold = _Fold()
    handlers = fold.handlers
    end_s = 0.0
    for row in rows:
        if row[0] > end_s:  # times may be out of order when two threads publish at once
            end_s = row[0]
        if len(row) == 2 and (handler := handlers.get(type(row[1]))) is not None:
            handler(*row)
    return fold.result(end_s)


class _Open:
    """An agent that has not ended."""

    __slots__ = ("agent", "has_ended", "kind", "since_s", "tools")

    def __init__(self, agent: AgentTime) -> None:
        self.agent = agent
        self.kind = SpanKind.IDLE
        self.since_s = agent.begin_s
        self.tools = 0
        self.has_ended = False

    def go_to(self, kind: SpanKind, at_s: float) -> None:
        if at_s > self.since_s:
            self.agent.spans.append(Span(self.kind, self.since_s, at_s))
        self.kind, self.since_s = kind, at_s


class _Fold:
    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._root_id = ""
        self._times = Times()
        self._used = self._total = 0
        self._paused_at_s = 0.0
        self._paused_by: set[str] = set()
        """`budget`, `person` or both, while the whole run is paused."""
        self._plans: set[str] = set()
        """Ids of the questions about what an agent is about to start."""
        self.handlers: dict[type, Callable[[float, Any], None]] = {
            RunStarted: self._run_started,
            AgentSpawned: self._spawned,
            AgentWaiting: self._waiting,
            QuestionAsked: self._asked,
            QuestionAnswered: self._answered,
            ModelCallStarted: self._call_started,
            ModelCallFinished: self._call_finished,
            ToolCallStarted: self._tool_started,
            ToolCallFinished: self._tool_finished,
            SynthesisStarted: self._synthesis,
            AgentFailed: self._failed,
            AgentCompleted: self._ends_as(AgentStatus.COMPLETED),
            AgentCancelled: self._ends_as(AgentStatus.CANCELLED),
            AgentExhausted: self._ends_as(AgentStatus.EXHAUSTED),
            AgentInterrupted: self._ends_as(AgentStatus.INTERRUPTED),
            BudgetUpdate: self._budget,
            BudgetWarning: self._warning,
            BudgetPaused: self._paused,
            BudgetResumed: self._resumed,
            RunPaused: self._paused_by_person,
            RunResumed: self._resumed_by_person,
            BudgetChanged: self._budget_changed,
            BudgetExhausted: self._budget,
            RunFinished: self._run_finished,
        }

    def result(self, end_s: float) -> Times:
        found = self._times
        found.end_s = end_s
        for opened in self._open.values():
            if not opened.has_ended:
                opened.go_to(opened.kind, end_s)
                opened.agent.end_s = end_s
        if self._paused_by:
            found.pauses.append((self._paused_at_s, end_s))
        if found.levels:
            found.levels.append(Level(end_s, self._used, self._total))
        agents = [opened.agent for opened in self._open.values()]
        for agent in agents:
            agent.path = path_of(agent.agent_id, self._root_id)
        found.agents = sorted(agents, key=lambda agent: path_key(agent.path))
        return found

    # -- agents -------------------------------------------------------------------------------

    def _spawned(self, at_s: float, event: AgentSpawned) -> None:
        self._root_id = self._root_id or root_id_in(event)
        agent = AgentTime(event.agent_id, "", event.task_description, at_s, at_s)
        self._open[event.agent_id] = _Open(agent)
        parent = self._open.get(event.parent_id or "")
        # A parent that spawns by a tool stays in that tool until its sub-agents end.
        if parent is not None and parent.kind is SpanKind.IDLE:
            parent.kind = SpanKind.CHILDREN
            if parent.agent.status is AgentStatus.PENDING:
                parent.agent.status = AgentStatus.RUNNING

    def _turn(
        self, agent_id: str, kind: SpanKind, status: AgentStatus, at_s: float
    ) -> _Open | None:
        opened = self._open.get(agent_id)
        if opened is None or opened.has_ended:
            return None
        opened.go_to(kind, at_s)
        opened.agent.status = status
        return opened

    def _waiting(self, at_s: float, event: AgentWaiting) -> None:
        self._turn(event.agent_id, SpanKind.WAITING, AgentStatus.WAITING, at_s)

    def _asked(self, at_s: float, event: QuestionAsked) -> None:
        if event.question == PLAN:
            self._plans.add(event.question_id)

    def _answered(self, at_s: float, event: QuestionAnswered) -> None:
        if event.question_id in self._plans:  # what its agent does next may tell nothing of it
            self._turn(event.agent_id, SpanKind.IDLE, AgentStatus.RUNNING, at_s)

    def _call_started(self, at_s: float, event: ModelCallStarted) -> None:
        opened = self._turn(event.agent_id, SpanKind.CALL, AgentStatus.RUNNING, at_s)
        if opened is not None and event.attempt > 1:
            opened.agent.retries_s.append(at_s)

    def _call_finished(self, at_s: float, event: ModelCallFinished) -> None:
        self._turn(event.agent_id, SpanKind.IDLE, AgentStatus.RUNNING, at_s)

    def _tool_started(self, at_s: float, event: ToolCallStarted) -> None:
        opened = self._turn(event.agent_id, SpanKind.TOOL, AgentStatus.RUNNING, at_s)
        if opened is not None:
            opened.tools += 1

    def _tool_finished(self, at_s: float, event: ToolCallFinished) -> None:
        opened = self._open.get(event.agent_id)
        if opened is not None:
            opened.tools = max(0, opened.tools - 1)
            if not opened.tools and opened.kind is SpanKind.TOOL:
                opened.go_to(SpanKind.IDLE, at_s)

    def _synthesis(self, at_s: float, event: SynthesisStarted) -> None:
        self._turn(event.agent_id, SpanKind.IDLE, AgentStatus.RUNNING, at_s)

    def _failed(self, at_s: float, event: AgentFailed) -> None:
        if not event.will_retry:
            self._end(at_s, event.agent_id, AgentStatus.FAILED)
            return
        opened = self._turn(event.agent_id, SpanKind.WAITING, AgentStatus.WAITING, at_s)
        if opened is not None:
            opened.tools = 0
            opened.agent.retries_s.append(at_s)

    def _ends_as(self, status: AgentStatus) -> Callable[[float, Any], None]:
        return lambda at_s, event: self._end(at_s, event.agent_id, status)

    def _end(self, at_s: float, agent_id: str, status: AgentStatus) -> None:
        opened = self._turn(agent_id, SpanKind.IDLE, status, at_s)
        if opened is not None:
            opened.agent.end_s = at_s
            opened.has_ended = True

    # -- the budget ---------------------------------------------------------------------------

    def _level(self, at_s: float, used: int, total: int) -> None:
        if self._times.levels and total != self._total:
            # A new total is a step: repeat the old one up to now.
            self._times.levels.append(Level(at_s, used, self._total))
        self._used, self._total = used, total
        self._times.levels.append(Level(at_s, used, total))

    def _run_started(self, at_s: float, event: RunStarted) -> None:
        self._root_id = root_id_in(event)
        self._times.unit = event.unit
        self._level(at_s, 0, event.budget_total)

    def _budget(self, at_s: float, event: BudgetUpdate | BudgetExhausted) -> None:
        self._level(at_s, event.tokens_used, event.budget_total)

    def _budget_changed(self, at_s: float, event: BudgetChanged) -> None:
        self._level(at_s, event.tokens_used, event.budget_total)

    def _warning(self, at_s: float, event: BudgetWarning) -> None:
        self._level(at_s, event.tokens_used, event.budget_total)
        self._times.warnings_s.append(at_s)

    def _paused(self, at_s: float, event: BudgetPaused) -> None:
        self._pause(at_s, "budget")

    def _resumed(self, at_s: float, event: BudgetResumed) -> None:
        self._resume(at_s, "budget")

    def _paused_by_person(self, at_s: float, event: RunPaused) -> None:
        if event.agent_id is None:  # of a branch its own spans tell
            self._pause(at_s, "person")

    def _resumed_by_person(self, at_s: float, event: RunResumed) -> None:
        if event.agent_id is None:
            self._resume(at_s, "person")

    def _pause(self, at_s: float, by: str) -> None:
        if not self._paused_by:
            self._paused_at_s = at_s
        self._paused_by.add(by)

    def _resume(self, at_s: float, by: str) -> None:
        if by in self._paused_by:
            self._paused_by.discard(by)
            if not self._paused_by:
                self._times.pauses.append((self._paused_at_s, at_s))

    def _run_finished(self, at_s: float, event: RunFinished) -> None:
        self._times.has_ended = True
