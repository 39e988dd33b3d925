"""The tree of a run, folded from its events.

The one place that decides what an event means for the tree that a person sees. An agent's state
depends only on its own events, so the interleaving of agents' events does not matter. A running
run and one from a file are folded alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter
from typing import Any, NamedTuple

from agentnb.core.events import (
    AgentCancelled,
    AgentCompleted,
    AgentExhausted,
    AgentFailed,
    AgentInterrupted,
    AgentSpawned,
    AgentTextDelta,
    AgentTold,
    AgentWaiting,
    CycleDetected,
    DepthLimitReached,
    Entry,
    Event,
    ModelCallFinished,
    ModelCallStarted,
    ProviderFailover,
    QuestionAnswered,
    Row,
    SpawnIgnored,
    SynthesisStarted,
    ToolCallFinished,
    ToolCallReported,
    ToolCallStarted,
    root_id_in,
)
from agentnb.core.pauses import PAUSED
from agentnb.core.questions import WAITS_FOR_PLAN
from agentnb.core.shown import counted
from agentnb.core.text import one_line, visible
from agentnb.core.types import (
    AgentNode,
    AgentStatus,
    RunUsage,
    Usage,
    child_id,
    id_at,
    path_key,
    path_of,
)

STALLED_AFTER_S = 30.0
"""Seconds without text after which an open call counts as stalled."""
LINE_LENGTH = 200
"""Most characters of an agent's activity and of a tool's report."""
_TOOL_LENGTH = 60


class ToolCount(NamedTuple):
    """An agent's own tool calls, open ones included."""

    calls: int
    errors: int
    """Calls that ended in an error; cancelled ones do not count."""

    def __str__(self) -> str:
        """`3 tool calls, 1 error`."""
        return counted(self.calls, "tool call") + (
            f", {counted(self.errors, 'error')}" if self.errors else ""
        )


@dataclass(frozen=True, slots=True)
class SkippedTask:
    """A task that an agent asked for and that was never started."""

    task: str
    reason: str
    number: int | None
    """Its number among all tasks that its agent asked for; `None` in older records."""


@dataclass(slots=True)
class OpenTool:
    """A tool call that has not ended."""

    name: str
    since_s: float
    """Start, in seconds since the run began."""
    said: str = ""
    """Its newest report."""


@dataclass(slots=True)
class Activity:
    """What an agent is doing, in addition to its status, folded from its own events."""

    is_calling: bool = False
    heard_at_s: float = 0.0
    """When its open call began or last produced text, in seconds since the run began."""
    said: int = 0
    """Characters of the streaming reply so far."""
    synthesising: int = 0
    """Number of results that it combines; 0 before its synthesis."""
    attempt: int = 1
    wait_until_s: float | None = None
    tools: dict[str, OpenTool] = field(default_factory=dict)
    """Open tool calls by id, in the order in which they began."""

    def learn(self, at_s: float, event: Event) -> None:
        """Apply one of the agent's events."""
        match event:
            case ModelCallStarted():
                self.is_calling, self.heard_at_s, self.said = True, at_s, 0
                self.wait_until_s = None
            case ModelCallFinished():
                self.is_calling, self.said = False, 0
            case AgentTextDelta():
                self.heard_at_s = at_s
                self.said += len(event.text)
            case AgentWaiting():
                self.wait_until_s = None if event.wait_s is None else at_s + event.wait_s
            case AgentFailed(will_retry=True):
                self.attempt = event.attempt + 1
            case SynthesisStarted():
                self.synthesising = event.total
            case ToolCallStarted():
                self.tools[event.tool_use_id] = OpenTool(event.name, at_s)
            case ToolCallReported():
                if (tool := self.tools.get(event.tool_use_id)) is not None:
                    tool.said = event.text
            case ToolCallFinished():
                self.tools.pop(event.tool_use_id, None)
            case (
                AgentCompleted()
                | AgentFailed()
                | AgentCancelled()
                | AgentExhausted()
                | AgentInterrupted()
            ):
                self.is_calling, self.said = False, 0
                self.tools.clear()  # if the process died, their own ends are missing

    @property
    def newest_tool(self) -> OpenTool | None:
        """The open tool call that began last."""
        return next(reversed(self.tools.values()), None)

    @property
    def tool_words(self) -> str:
        """`look_up and 2 more`; empty if no tool call is open."""
        newest, others = self.newest_tool, len(self.tools) - 1
        if newest is None:
            return ""
        more = f" and {others:,} more" if others else ""
        return f"{visible(newest.name, _TOOL_LENGTH)}{more}"


@dataclass(slots=True)
class AgentState:
    """One agent's state after the events so far."""

    agent_id: str
    path: str
    key: tuple[tuple[int, str], ...]
    """Sort key: a parent before its children, siblings in spawn order."""
    parent_id: str | None = None
    task: str = ""
    depth: int = 0
    status: AgentStatus = AgentStatus.PENDING
    model: str = ""
    tokens_used: int = 0
    error: str | None = None
    waiting_for: str | None = None
    notes: list[str] = field(default_factory=list)
    """Spawns and tasks that were not followed, failovers, a cut answer, what providers note of
    their replies: one line each."""
    spawned_at_s: float = 0.0
    seen_at_s: float = 0.0
    """Time of its newest event."""
    ended_ms: int | None = None
    """Its duration, once it has ended."""
    job_id: str = ""
    """Its job's id, if a tool started it; else empty."""
    profile: str = ""
    """The name of its profile; empty for none."""
    tool_calls: int = 0
    tool_errors: int = 0
    calls: int = 0
    """Model calls, open ones included."""
    usage: dict[str, Usage] = field(default_factory=dict)
    """By `provider/model`, of the calls that have ended."""
    answer: str | None = None
    """Its final text; `None` before its end, and if its process died."""
    cut: bool = False
    """Whether its answer was cut at a limit."""
    typed: bool = False
    """Whether its answer is a typed one."""
    skipped: list[SkippedTask] = field(default_factory=list)
    """Tasks that it asked for and that were not started, in the order of their events."""
    activity: Activity = field(default_factory=Activity)

    @property
    def duration_ms(self) -> int:
        """Milliseconds from its spawn to its end, or to its newest event."""
        if self.ended_ms is not None:
            return self.ended_ms
        return round((self.seen_at_s - self.spawned_at_s) * 1000)

    def skip(self, tasks: Sequence[str], reason: str, numbers: Sequence[int | None]) -> None:
        """Add tasks that are not done. `numbers` may be shorter: older records have none."""
        padded = [*numbers[: len(tasks)], *[None] * (len(tasks) - len(numbers))]
        self.skipped += [
            SkippedTask(task, reason, number) for task, number in zip(tasks, padded, strict=True)
        ]

    @property
    def reasons(self) -> list[str]:
        """Why it did not complete: one line, or none if it completed or no reason is known."""
        if not self.error:
            return []
        return [f"error: {self.error}" if self.status is AgentStatus.FAILED else self.error]

    def resume(self) -> None:
        """Mark it as running."""
        self.status, self.waiting_for, self.ended_ms = AgentStatus.RUNNING, None, None


def describe(
    agent: AgentState,
    status: AgentStatus,
    *,
    below: int = 0,
    is_stalled: bool = False,
    with_reports: bool = False,
) -> str:
    """What an agent is doing or waiting for, on one visible line; empty if its text shows it.

    Args:
        agent: The agent.
        status: Its status as shown: see `TreeFold.status_of`.
        below: How many of its own sub-agents are running.
        is_stalled: Whether its open call produced no text for `STALLED_AFTER_S`.
        with_reports: Whether to include a tool's report, which changes many times a second.
    """
    activity = agent.activity
    if status is AgentStatus.PENDING:
        return f"preparing to call {visible(agent.model, 60)}" if agent.model else "starting"
    if status is AgentStatus.WAITING:
        reason = str(agent.waiting_for)
        if reason == PAUSED:
            return PAUSED
        # A reason is a noun ("room in the budget") or an infinitive ("to try again").
        return visible(f"waiting {'' if reason.startswith('to ') else 'for '}{reason}", LINE_LENGTH)
    if is_stalled:
        return f"no text for {STALLED_AFTER_S:.0f} s"
    if activity.is_calling and not activity.said:
        return "waiting for the first token"
    at_work = f"{below} working below" if below else ""
    if activity.newest_tool is not None:
        said = visible(activity.newest_tool.said, LINE_LENGTH) if with_reports else ""
        tool = f"tool {activity.tool_words}" + (f": {said}" if said else "")
        return ", ".join(filter(None, (tool, at_work)))
    if not at_work and activity.synthesising and activity.is_calling:
        return f"combining {activity.synthesising} results"
    return at_work


class TreeFold:
    """Folds entries into a tree. Feed each entry once, in order; read at any time.

    Args:
        entries: The first entries.
        is_over: Whether the run has ended, so that activity need not be folded.
    """

    def __init__(self, entries: Iterable[Entry] = (), *, is_over: bool = False) -> None:
        self._is_over = is_over
        self.agents: dict[str, AgentState] = {}
        self.root_id = ""
        """The id of the run's root; empty before it is known."""
        self._usage: dict[str, Usage] = {}
        # By the parent's id: its own events may come after those of its sub-agents.
        self._children: Counter[str] = Counter()
        self._children_open: Counter[str] = Counter()
        for entry in entries:
            self.apply(entry)

    def apply(self, entry: Entry) -> None:
        self.learn(entry.at_s, entry.event)

    def feed(self, rows: Iterable[Row]) -> None:
        """Apply rows of a record. Cheap for text, which most rows are."""
        for row in rows:
            if len(row) == 3:
                at_s, agent_id, text = row
                self.apply_text(at_s, agent_id, text)
            else:
                self.learn(*row)

    def apply_text(self, at_s: float, agent_id: str, text: str) -> Activity:
        """Apply a piece of an agent's text. Returns the agent's activity."""
        agent = self.agents.get(agent_id) or self._new_agent(agent_id)
        activity = agent.activity
        agent.seen_at_s = activity.heard_at_s = at_s
        activity.said += len(text)
        if agent.status is not AgentStatus.RUNNING:
            agent.resume()
        return activity

    def path_of(self, agent_id: str) -> str:
        """The path of an agent of this run."""
        return path_of(agent_id, self.root_id)

    def id_at(self, path: str) -> str:
        """The id of the agent of this run with that path."""
        return id_at(path, self.root_id)

    def agent_at(self, path: str) -> AgentState | None:
        """The agent of this run with that path; `None` if there is none so far."""
        # The path of an agent that is not below the root is its id.
        agent = self.agents.get(self.id_at(path)) or self.agents.get(path)
        return agent if agent is not None and agent.path == path else None

    def _new_agent(self, agent_id: str) -> AgentState:
        path = self.path_of(agent_id)
        agent = self.agents[agent_id] = AgentState(agent_id, path, path_key(path))
        return agent

    def _set_root(self, root_id: str) -> None:
        self.root_id = root_id
        for agent in self.agents.values():  # agents whose events came before the root's
            agent.path = self.path_of(agent.agent_id)
            agent.key = path_key(agent.path)

    def learn(self, at_s: float, event: Event) -> None:
        """Apply an event."""
        if not self.root_id and (root_id := root_id_in(event)):
            self._set_root(root_id)
        agent_id = getattr(event, "agent_id", None)
        if agent_id is None:
            return
        agent = self.agents.get(agent_id) or self._new_agent(agent_id)
        agent.seen_at_s = at_s
        if not self._is_over:
            agent.activity.learn(at_s, event)
        match event:
            case AgentSpawned():
                if event.parent_id is not None:
                    self._children[event.parent_id] += 1
                    self._children_open[event.parent_id] += 1
                agent.parent_id, agent.depth = event.parent_id, event.depth
                agent.task, agent.model = event.task_description, event.model
                agent.job_id, agent.profile = event.job_id, event.profile
                agent.spawned_at_s = at_s
            case ModelCallStarted():
                agent.resume()
                agent.calls += 1
                agent.model = event.model
            case AgentTextDelta():
                agent.resume()
            case ToolCallStarted():
                agent.resume()
                agent.tool_calls += 1
            case ToolCallFinished():
                agent.tool_errors += event.is_error and not event.was_cancelled
            case AgentWaiting():
                agent.status, agent.waiting_for = AgentStatus.WAITING, event.reason
            case QuestionAnswered() if agent.waiting_for == WAITS_FOR_PLAN:
                agent.resume()
            case ProviderFailover():
                # On one short line: while a model is down, many agents have this note.
                note = f"switched to {event.to_provider}: {event.error}"
                agent.notes.append(one_line(note, limit=80))
            case AgentTold():
                agent.notes.append(one_line(f"received a note: {event.text}", limit=80))
            case ModelCallFinished():
                if event.stop_reason not in (None, "refusal") and event.error:
                    agent.notes += {one_line(event.error, limit=200)}.difference(agent.notes)
                agent.tokens_used += event.usage.total_tokens
                for usage in (agent.usage, self._usage):
                    usage[event.model] = usage.get(event.model, Usage()) + event.usage
            case CycleDetected():
                agent.notes.append(f"not started: {event.cycle_description}")
                if event.number != 0:  # an assignment has no place among the agent's tasks
                    agent.skip([event.task_description], event.cycle_description, [event.number])
            case DepthLimitReached():
                depths = f"depth {event.attempted_depth}; the deepest allowed is {event.max_depth}"
                agent.notes += [f"skipped: {task} (at {depths})" for task in event.tasks] or [
                    f"asked for sub-agents at {depths}"
                ]
                agent.skip(event.tasks, f"asked for at {depths}", event.numbers)
            case SpawnIgnored():
                agent.notes += [f"skipped: {task} ({event.reason})" for task in event.tasks] or [
                    f"spawn not followed: {event.reason}"
                ]
                agent.skip(event.tasks, event.reason, event.numbers)
            case _:
                self._end(agent, event)

    def _end(self, agent: AgentState, event: Any) -> None:
        match event:
            case AgentFailed(will_retry=True):
                agent.status, agent.waiting_for = AgentStatus.WAITING, "a second attempt"
                return
            case AgentFailed():
                agent.status, agent.error = AgentStatus.FAILED, event.error
            case AgentCompleted():
                agent.status = AgentStatus.COMPLETED
                if event.cut:
                    agent.notes.append("the answer was cut at a limit")
            case AgentCancelled():
                agent.status, agent.error = AgentStatus.CANCELLED, event.reason
            case AgentExhausted():
                agent.status, agent.error = AgentStatus.EXHAUSTED, event.reason
            case AgentInterrupted():
                agent.status, agent.error = AgentStatus.INTERRUPTED, event.reason or None
            case _:
                return
        if agent.parent_id is not None:
            self._children_open[agent.parent_id] -= 1
        agent.waiting_for = None
        agent.answer, agent.cut = getattr(event, "text", None), getattr(event, "cut", False)
        agent.typed = getattr(event, "typed", False)
        agent.ended_ms = getattr(event, "duration_ms", agent.duration_ms)

    def status_of(self, agent: AgentState) -> AgentStatus:
        """An agent's status as shown to a person."""
        # The root of a plan makes no call before its sub-agents, but it is not pending.
        is_at_work = agent.status is AgentStatus.PENDING and self._children[agent.agent_id]
        return AgentStatus.RUNNING if is_at_work else agent.status

    def describe(
        self, agent: AgentState, *, is_stalled: bool = False, with_reports: bool = False
    ) -> str:
        """See the function `describe`."""
        return describe(
            agent,
            self.status_of(agent),
            below=self._children_open[agent.agent_id],
            is_stalled=is_stalled,
            with_reports=with_reports,
        )

    @property
    def usage(self) -> RunUsage:
        return RunUsage.of(self._usage)

    @property
    def tool_counts(self) -> dict[str, ToolCount]:
        """Tool calls by path, of each agent that made any."""
        return {
            agent.path: ToolCount(agent.tool_calls, agent.tool_errors)
            for agent in self.in_path_order()
            if agent.tool_calls
        }

    def in_path_order(self) -> list[AgentState]:
        """All agents: a parent before its children, siblings in spawn order."""
        return sorted(self.agents.values(), key=attrgetter("key"))

    def root(self) -> AgentNode | None:
        """The tree; `None` before its root was spawned."""
        children: dict[str | None, list[AgentNode]] = {}
        # Backwards, so that the nodes of an agent's children exist; the last child comes first.
        for agent in reversed(self.in_path_order()):
            below = tuple(reversed(children.get(agent.agent_id, ())))
            node = AgentNode(
                agent_id=agent.agent_id,
                parent_id=agent.parent_id,
                path=agent.path,
                task=agent.task,
                depth=agent.depth,
                status=self.status_of(agent),
                model=agent.model,
                tokens_used=agent.tokens_used,
                duration_ms=agent.duration_ms,
                children=below,
            )
            children.setdefault(agent.parent_id, []).append(node)
        roots = [node for node in children.get(None, ()) if node.depth == 0]
        return roots[-1] if roots else None

    def skipped(self) -> list[tuple[str, AgentState, SkippedTask]]:
        """Tasks that were not started: each with its would-be path and the asking agent."""
        children = Counter(agent.parent_id for agent in self.agents.values())
        return [
            (self.path_of(child_id(agent.agent_id, number)), agent, task)
            for agent in self.in_path_order()
            for number, task in self._numbered(agent, children[agent.agent_id])
        ]

    def _numbered(self, agent: AgentState, children: int) -> list[tuple[int, SkippedTask]]:
        """An agent's skipped tasks by number; those without one get numbers after all others."""
        found: dict[int, SkippedTask] = {}
        without: list[SkippedTask] = []

        def is_free(number: int) -> bool:
            return number not in found and child_id(agent.agent_id, number) not in self.agents

        for task in agent.skipped:
            if task.number is not None and task.number > 0 and is_free(task.number):
                found[task.number] = task
            else:
                without.append(task)
        free = filter(is_free, count(max([children, *found]) + 1))
        found.update(zip(free, without, strict=False))
        return sorted(found.items())

    def notes(self) -> dict[str, list[str]]:
        """By path: why an agent did not complete, and its notes."""
        return {
            agent.path: lines
            for agent in self.in_path_order()
            if (lines := [*agent.reasons, *agent.notes])
        }
