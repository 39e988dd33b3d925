"""Jobs: the sub-agents that an agent starts by tools, and that go on while it does.

An agent sees its own jobs and no others. Whoever ends without having been told what came of them
is handed that first, so nothing that was done is lost, and a parent never ends before its jobs.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from agentnb.core.life import Agent, NumberedTask
from agentnb.core.protocols import JobOrder, JobState, NotStarted, Tool
from agentnb.core.types import AgentStatus, SubAgentResult

SPAWN = "spawn"
"""The tool by which an agent starts a job; its input names the `task`."""
_ID_LENGTH = 6
_TAKEN_BACK = "stopped by its parent"


@dataclass(frozen=True, slots=True)
class Delegation:
    """How the agents of a run may start sub-agents.

    Args:
        by_block: By a spawn block in a reply.
        spawn_tools: The tools that start sub-agents, and look after them; none for not by tools.
        nested: Whether sub-agents get these tools, too, as far as the depth allows.
        profiles: What an agent that has them is told of the profiles that there are.
    """

    by_block: bool = True
    spawn_tools: Sequence[Tool] = ()
    nested: bool = False
    profiles: str = ""

    @property
    def by_tools(self) -> bool:
        return bool(self.spawn_tools)

    def tools_at(self, depth: int, max_depth: int) -> Sequence[Tool]:
        """The spawn tools of an agent."""
        may_spawn = depth < max_depth and (self.nested or depth == 0)
        return self.spawn_tools if may_spawn else ()


class Crew(Protocol):
    """What jobs need of the run that they belong to."""

    job_ids: set[str]
    """All that were given in the run."""

    def refusal(
        self, agent: Agent, order: JobOrder, task: NumberedTask, closed: str | None
    ) -> str | None:
        """Why an agent may not start a job, as the run's record tells it; else `None`."""
        ...

    def begin(
        self, agent: Agent, order: JobOrder, task: NumberedTask, job_id: str
    ) -> tuple[Agent, asyncio.Task[None]]:
        """Have a sub-agent begin; the task ends when the sub-agent has."""
        ...

    def stop(self, agent: Agent, reason: str) -> None:
        """Order an agent, and all below it, to stop."""
        ...


@dataclass(slots=True)
class _Job:
    agent: Agent
    index: int
    """Where its result stands among its parent's."""
    task: asyncio.Task[None]
    is_handed_over: bool = False


class AgentJobs:
    """One agent's jobs. See `agentnb.core.protocols.Jobs`."""

    def __init__(self, agent: Agent, crew: Crew) -> None:
        self._agent = agent
        self._crew = crew
        self._jobs: dict[str, _Job] = {}
        self._closed: str | None = None
        self._secret = ""
        """What the ids are made from, beside the paths."""

    # -- for the tools --------------------------------------------------------------------------

    @property
    def tools(self) -> Sequence[Tool]:
        return self._agent.own_tools

    def start(self, order: JobOrder) -> str:
        asyncio.get_running_loop()  # before anything is done: a thread of a tool has none
        agent, crew = self._agent, self._crew
        (task,) = agent.number([order.task])  # also where it is refused: it is told as a task
        why_not = crew.refusal(agent, order, task, self._closed)
        if why_not is not None:
            raise NotStarted(why_not)
        self._secret = self._secret or secret_of(agent)
        made = job_id(agent.path_of_child(task.number), crew.job_ids, secret=self._secret)
        crew.job_ids.add(made)
        index = len(agent.results)
        child, work = crew.begin(agent, order, task, made)
        self._jobs[made] = _Job(child, index, work)
        return made

    def ids(self) -> list[str]:
        return list(self._jobs)

    def state(self, job_id: str) -> JobState | None:
        job = self._jobs.get(job_id)
        if job is None:
            return None
        agent = job.agent
        has_ended, result = job.task.done(), self._agent.results[job.index]
        status = AgentStatus.WAITING if agent.port.waits_for else AgentStatus.RUNNING
        return JobState(
            job_id=job_id,
            path=agent.path,
            task=agent.task,
            status=result.status if has_ended else status,
            doing="" if has_ended else agent.port.doing,
            said=agent.reached,
            result=result if has_ended else None,
        )

    async def wait(self, job_ids: Sequence[str]) -> None:
        tasks = {self._jobs[each].task for each in job_ids if each in self._jobs}
        if tasks:
            # Not `gather`: whoever waits here may be cancelled, and they go on.
            await asyncio.wait(tasks)

    def hand_over(self, job_ids: Sequence[str]) -> None:
        for each in job_ids:
            if (job := self._jobs.get(each)) is not None and job.task.done():
                job.is_handed_over = True

    async def cancel(self, job_ids: Sequence[str]) -> list[str]:
        going_on = [each for each in job_ids if each in self._jobs and not self._is_over(each)]
        for each in going_on:
            self._crew.stop(self._jobs[each].agent, _TAKEN_BACK)
        await self.wait(going_on)
        self.hand_over(going_on)
        return going_on

    def _is_over(self, job_id: str) -> bool:
        return self._jobs[job_id].task.done()

    # -- for the run ----------------------------------------------------------------------------

    def close(self, why: str) -> None:
        """Let no more of them begin. The first reason counts."""
        self._closed = self._closed or why

    def stop(self, reason: str) -> None:
        """Order all of them to stop."""
        for job in self._jobs.values():
            if not job.task.done():
                self._crew.stop(job.agent, reason)

    @property
    def all(self) -> list[tuple[int, Agent, asyncio.Task[None]]]:
        """Where the result of each will stand, who works on it, and until when."""
        return [(job.index, job.agent, job.task) for job in self._jobs.values()]

    @property
    def has_open(self) -> bool:
        """Whether the agent was not told yet what came of one of them."""
        return any(not job.is_handed_over for job in self._jobs.values())

    def take_open(self) -> list[SubAgentResult]:
        """What came of those that the agent was not told of, in their order; it is told now."""
        left = [job for job in self._jobs.values() if not job.is_handed_over]
        for job in left:
            job.is_handed_over = True
        return [self._agent.results[job.index] for job in left]


def not_started(why: str) -> str:
    """What a model is told whose sub-agent was not started."""
    return f"The sub-agent was not started: {why}."


def signature(order: JobOrder, lineage: Sequence[str]) -> str:
    """By what an order is known when it comes again: its task, and what is handed over with it.

    The task of an agent above is known by its words alone, whatever comes with it.
    """
    if _folded(order.task) in map(_folded, lineage):
        return order.task
    handed = "\n".join(filter(None, (order.profile, order.context.strip())))
    if not handed:
        return order.task
    mark = hashlib.sha256(handed.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{order.task} (with {mark})"


def _folded(task: str) -> str:
    return " ".join(task.lower().split())


def secret_of(agent: Agent) -> str:
    """A digest of what an agent was told and is saying: no job of its is handed all of it."""
    words = [agent.system, *(message.text for message in agent.messages), agent.port.text]
    return hashlib.sha256("\n".join(words).encode("utf-8", "replace")).hexdigest()


def job_id(path: str, taken: Container[str], *, secret: str) -> str:
    """Six hexadecimal characters for the job of the agent at `path`, unlike all that are taken.

    Who does not know the secret cannot foretell them. A run that is repeated word by word has the
    same ones.
    """
    for number in count():
        text = f"{secret} {path} {number}"
        made = hashlib.sha256(text.encode()).hexdigest()[:_ID_LENGTH]
        if made not in taken:
            return made
    raise AssertionError("the numbers do not end")
