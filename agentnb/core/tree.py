"""The tree of a run, folded from its events.

The one place that knows what an event means for what a person sees. The fold looks at each
agent's own events only, so the order in which agents' events were interleaved is of no
consequence; a run that is still going on is folded just as one from a file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from agentnb.core.events import (
    AgentCancelled,
    AgentCompleted,
    AgentExhausted,
    AgentFailed,
    AgentInterrupted,
    AgentSpawned,
    AgentTextDelta,
    AgentWaiting,
    CycleDetected,
    DepthLimitReached,
    Entry,
    ModelCallFinished,
    ModelCallStarted,
    ProviderFailover,
    SpawnIgnored,
    ToolCallStarted,
)
from agentnb.core.types import (
    AgentNode,
    AgentStatus,
    RunUsage,
    Usage,
    one_line,
    path_key,
    path_of,
)


@dataclass(slots=True)
class AgentState:
    """What the events so far say of one agent."""

    agent_id: str
    parent_id: str | None = None
    task: str = ""
    depth: int = 0
    status: AgentStatus = AgentStatus.PENDING
    model: str = ""
    tokens_used: int = 0
    duration_ms: int = 0
    error: str | None = None
    waiting_for: str | None = None
    notes: list[str] = field(default_factory=list)
    """What was asked for and not done, one line each."""
    _spawned_at_s: float = 0.0


class TreeFold:
    """Entries in, tree out. Feed it each entry once; ask as often as you like."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.agents: dict[str, AgentState] = {}
        self._usage: dict[str, Usage] = {}
        for entry in entries:
            self.apply(entry)

    def apply(self, entry: Entry) -> None:
        event = entry.event
        agent_id = getattr(event, "agent_id", None)
        if agent_id is None:
            return
        agent = self.agents.get(agent_id)
        if agent is None:
            agent = self.agents[agent_id] = AgentState(agent_id)
        if not agent.status.is_terminal:
            agent.duration_ms = round((entry.at_s - agent._spawned_at_s) * 1000)
        match event:
            case AgentSpawned():
                agent.parent_id, agent.depth = event.parent_id, event.depth
                agent.task, agent.model = event.task_description, event.model
                agent._spawned_at_s = entry.at_s
                agent.duration_ms = 0
            case AgentTextDelta() | ModelCallStarted() | ToolCallStarted():
                agent.status, agent.waiting_for = AgentStatus.RUNNING, None
                if isinstance(event, ModelCallStarted):
                    agent.model = event.model
            case AgentWaiting():
                agent.status, agent.waiting_for = AgentStatus.WAITING, event.reason
            case ProviderFailover():
                # In one line: where a model is down, each of many agents has this note.
                note = f"went on with {event.to_provider}: {event.error}"
                agent.notes.append(one_line(note, limit=80))
            case ModelCallFinished():
                agent.tokens_used += event.usage.total_tokens
                self._usage[event.model] = self._usage.get(event.model, Usage()) + event.usage
            case CycleDetected():
                agent.notes.append(f"not started: {event.cycle_description}")
            case DepthLimitReached():
                agent.notes.append(
                    f"asked for sub-agents at depth {event.attempted_depth}; "
                    f"the deepest allowed is {event.max_depth}"
                )
            case SpawnIgnored():
                agent.notes += [f"skipped: {task} ({event.reason})" for task in event.tasks] or [
                    f"spawn not followed: {event.reason}"
                ]
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
            case AgentCancelled():
                agent.status, agent.error = AgentStatus.CANCELLED, event.reason
            case AgentExhausted():
                agent.status, agent.error = AgentStatus.EXHAUSTED, event.reason
            case AgentInterrupted():
                agent.status, agent.error = AgentStatus.INTERRUPTED, event.reason or None
                agent.waiting_for = None
                return
            case _:
                return
        agent.waiting_for = None
        agent.duration_ms = event.duration_ms

    @property
    def usage(self) -> RunUsage:
        return RunUsage.of(self._usage)

    def in_path_order(self) -> list[AgentState]:
        """Agents as a tree is read: a parent before its children, siblings in spawn order."""
        return sorted(self.agents.values(), key=lambda agent: path_key(path_of(agent.agent_id)))

    def root(self) -> AgentNode | None:
        """The tree, or `None` before its root was spawned."""
        children: dict[str | None, list[AgentNode]] = {}
        # Deepest first: every agent finds its children made.
        for agent in sorted(self.in_path_order(), key=lambda agent: -agent.depth):
            below = tuple(children.get(agent.agent_id, ()))
            # The root of a person's own fan-out makes no call before its sub-agents.
            is_waiting_for_them = bool(below) and agent.status is AgentStatus.PENDING
            node = AgentNode(
                agent_id=agent.agent_id,
                parent_id=agent.parent_id,
                path=path_of(agent.agent_id),
                task=agent.task,
                depth=agent.depth,
                status=AgentStatus.RUNNING if is_waiting_for_them else agent.status,
                model=agent.model,
                tokens_used=agent.tokens_used,
                duration_ms=agent.duration_ms,
                children=below,
            )
            children.setdefault(agent.parent_id, []).append(node)
        roots = [node for node in children.get(None, ()) if node.depth == 0]
        return roots[0] if roots else None

    def notes(self) -> dict[str, list[str]]:
        """By path: what went wrong with an agent, and what it asked for and did not get."""
        return {
            path_of(agent.agent_id): [
                *([_why(agent)] if agent.error else []),
                *agent.notes,
            ]
            for agent in self.in_path_order()
            if agent.error or agent.notes
        }


def _why(agent: AgentState) -> str:
    return f"error: {agent.error}" if agent.status is AgentStatus.FAILED else str(agent.error)
