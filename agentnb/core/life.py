"""One agent while it lives, and how it ends.

Plain holders and pure helpers: what an agent was given, what came of its children, and the
event that tells of its end. Who starts it, and who stops it, is the orchestrator's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agentnb.core import prompt
from agentnb.core.cancel import CancelScope
from agentnb.core.context import AgentContext
from agentnb.core.errors import OrchestratorError
from agentnb.core.events import (
    AgentCancelled,
    AgentCompleted,
    AgentExhausted,
    AgentFailed,
    Event,
    SpawnIgnored,
)
from agentnb.core.port import AgentPort, Siblings
from agentnb.core.protocols import Provider, Tool
from agentnb.core.request import RequestContext
from agentnb.core.spawn import SpawnReading, read_reply
from agentnb.core.synthesis import said_and_results
from agentnb.core.types import (
    AgentStatus,
    Message,
    SpawnMode,
    SubAgentResult,
    child_id,
    one_line,
    path_of,
)


class NumberedTask(NamedTuple):
    """A task that an agent asked for."""

    number: int
    """Its place among all tasks that this agent asked for, from 1, skipped ones included."""
    task: str


@dataclass(slots=True)
class Agent:
    """One agent while it lives."""

    agent_id: str
    parent: Agent | None
    task: str
    context: AgentContext
    request: RequestContext
    scope: CancelScope
    port: AgentPort
    system: str
    messages: tuple[Message, ...]
    provider: Provider
    """Who answers it."""
    own_tools: tuple[Tool, ...]
    """What it may call and hand on: all but the tools that start sub-agents."""
    spawn_tools: Sequence[Tool]
    turns_left: int
    started_at_s: float
    turns_taken: int = 0
    attempt: int = 1
    link: int = 0
    """Which model of a fallback chain it has come to."""
    said: str = ""
    """What it said before it delegated."""
    results: list[SubAgentResult] = field(default_factory=list)
    """Of its own sub-agents in task order; a task that has not ended yet is `skipped`."""
    numbers: list[int] = field(default_factory=list)
    """Of the tasks, in the order of the results."""
    synthesis: str = ""
    children: list[Agent] = field(default_factory=list)
    below: Siblings = field(default_factory=Siblings)
    """What its children share."""

    @property
    def model(self) -> str:
        """`provider/model`."""
        return self.context.agent_config.model

    @property
    def is_root(self) -> bool:
        return self.parent is None

    @property
    def lineage(self) -> tuple[str, ...]:
        """Its own task and its ancestors'."""
        tasks, agent = [], self
        while agent.parent is not None:
            tasks.append(agent.task)
            agent = agent.parent
        return (*tasks, agent.task)

    @property
    def tools(self) -> dict[str, Tool]:
        """All that it may call, by name."""
        return {tool.spec.name: tool for tool in (*self.own_tools, *self.spawn_tools)}

    @property
    def reached(self) -> str:
        """What it has said so far, with no half spawn block in it."""
        newest = self.port.text
        if "<spawn_agents" in newest and has_block(reading := read_reply(newest)):
            newest = reading.text_before
        return newest.strip() or self.said

    @property
    def left(self) -> str:
        """What there is of an agent that did not come to its own end: words, then results."""
        return said_and_results(self.reached, self.results)

    def elapsed_ms(self) -> int:
        """Milliseconds since it was spawned."""
        return round((self.request.clock.now() - self.started_at_s) * 1000)

    def part_from_children(self) -> None:
        """At the end of the run: parents and children hold each other, and the whole record."""
        below = [self]
        while below:
            agent = below.pop()
            below += agent.children
            agent.children.clear()
            agent.port.jobs = None
            agent.port.withheld = {}

    @property
    def path(self) -> str:
        """What a person reads: `root`, `1`, `1.2`."""
        return self.port.path

    def number(self, tasks: Sequence[str]) -> list[NumberedTask]:
        """Give each task its number. Once for each order, before it is known what is followed."""
        numbers = self.port.take_numbers(len(tasks))
        return [NumberedTask(*pair) for pair in zip(numbers, tasks, strict=True)]

    def path_of_child(self, number: int) -> str:
        """The path of the sub-agent with that number, also where there is none."""
        return path_of(child_id(self.agent_id, number), self.request.thread_id)

    def add_place(self, task: NumberedTask, why: str) -> int:
        """Give a task its place among the results, as skipped until it has ended.

        Args:
            task: What was asked for.
            why: It is not done, so far.

        Returns:
            The index of the place.
        """
        path = self.path_of_child(task.number)
        self.results.append(
            SubAgentResult(None, task.task, AgentStatus.SKIPPED, error=why, path=path)
        )
        self.numbers.append(task.number)
        return len(self.results) - 1

    def ignore(self, reason: str, tasks: Sequence[NumberedTask]) -> None:
        """Tell that a spawn of its, or some of its tasks, is not followed."""
        self.port.publish(
            SpawnIgnored(
                agent_id=self.agent_id,
                reason=reason,
                tasks=tuple(task for _, task in tasks),
                numbers=tuple(number for number, _ in tasks),
            )
        )


@dataclass(frozen=True, slots=True)
class Ending:
    """How an agent ended."""

    status: AgentStatus
    text: str
    error: OrchestratorError | None = None
    reason: str = ""
    cut: bool = False
    from_outside: asyncio.CancelledError | None = None


def has_block(reading: SpawnReading) -> bool:
    """Whether a spawn block stands outside all code, complete or not."""
    return reading.instruction is not None or reading.problem is not None


def without_block(text: str) -> str:
    """`text` as a last word: a start tag that stands outside all code is made words.

    An answer that is put together may have one though no part of it was an order: in a task's
    own name, in an error, or between two fences that were cut off.
    """
    if "<spawn_agents" not in text or not has_block(read_reply(text)):
        return text
    return text.replace("<spawn_agents", "&lt;spawn_agents")


def cache_prefix(parent: Agent | None, mode: SpawnMode | None, total: int, system: str) -> int:
    """The prefix that siblings share, where a later one will read what this call would write."""
    if parent is None or mode is None or total < 2:
        return 0
    if mode is SpawnMode.PARALLEL and not parent.below.have_answered:
        return 0
    return prompt.shared_prefix_length(system)


def incomplete(agent: Agent) -> list[SubAgentResult]:
    """Every task below `agent` that was not completed, in path order."""
    found: list[SubAgentResult] = []
    open_ = _tasks_of(agent)
    while open_:
        result, child = open_.pop()
        if result.status is not AgentStatus.COMPLETED:
            found.append(result)
        if child is not None:
            open_ += _tasks_of(child)
    return found


def _tasks_of(agent: Agent) -> list[tuple[SubAgentResult, Agent | None]]:
    """The results of an agent's tasks, the last one first, each with the agent that had it."""
    children = {child.agent_id: child for child in agent.children}
    return [(r, children.get(r.agent_id or "")) for r in reversed(agent.results)]


def terminal_event(agent: Agent, ending: Ending, result: SubAgentResult) -> Event:
    agent_id, text = agent.agent_id, ending.text
    tokens, ms = result.tokens_used, result.duration_ms
    match ending.status:
        case AgentStatus.COMPLETED:
            return AgentCompleted(
                agent_id=agent_id,
                result_summary=one_line(text),
                text=text,
                tokens_used=tokens,
                duration_ms=ms,
                cut=ending.cut,
            )
        case AgentStatus.CANCELLED:
            return AgentCancelled(
                agent_id=agent_id,
                reason=ending.reason,
                text=text,
                tokens_used=tokens,
                duration_ms=ms,
            )
        case AgentStatus.EXHAUSTED:
            return AgentExhausted(
                agent_id=agent_id,
                reason=ending.reason,
                text=text,
                tokens_used=tokens,
                duration_ms=ms,
            )
        case _:
            return AgentFailed(
                agent_id=agent_id,
                error=result.error or "",
                will_retry=False,
                attempt=agent.attempt,
                text=text,
                tokens_used=tokens,
                duration_ms=ms,
            )
