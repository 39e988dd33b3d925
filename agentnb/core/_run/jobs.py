"""Jobs: the sub-agents that an agent starts by tools, and that go on while it does.

An agent sees its own jobs and no others. One that ends before a result was reported to it gets that
first, so nothing that was done is lost, and a parent never ends before its jobs.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from agentnb.core.cycles import signature
from agentnb.core.protocols import JobOrder, JobState, Tool
from agentnb.core.types import AgentStatus, SubAgentResult

if TYPE_CHECKING:
    from agentnb.core._run.agent import Agent

_ID_LENGTH = 6
_TAKEN_BACK = "stopped by its parent"


@dataclass(slots=True)
class Job:
    """A sub-agent that an agent started by a tool."""

    job_id: str
    parent: Agent
    index: int
    """Where its result stands among its parent's."""
    agent: Agent
    task: asyncio.Task[None]
    """Ends when the sub-agent has."""
    is_reported: bool = False
    """Whether its result was reported to its parent."""

    @property
    def result(self) -> SubAgentResult:
        return self.parent.results[self.index]


class JobHost(Protocol):
    """What jobs need of the run that they belong to."""

    def start_job(self, agent_id: str, order: JobOrder, closed: str | None) -> Job:
        """Start a sub-agent of the agent with that id.

        Args:
            agent_id: The agent that orders it.
            order: What the sub-agent is handed.
            closed: Why the agent may start no more jobs; `None` while it may.

        Raises:
            NotStarted: It was refused, as the run's record tells it then.
        """
        ...

    def withhold_spawn(self, agent_id: str, input: Mapping[str, Any]) -> str:
        """Say to an agent without the tool `spawn` why it has none, and have it recorded."""
        ...

    def activity_of(self, agent: Agent) -> tuple[AgentStatus, str]:
        """How an agent at work stands, and what it is doing, in words."""
        ...

    def stop(self, agent: Agent, reason: str) -> None:
        """Order an agent, and all below it, to stop."""
        ...


class AgentJobs:
    """One agent's jobs. See `agentnb.core.protocols.Jobs`."""

    def __init__(self, agent_id: str, tools: Sequence[Tool], host: JobHost) -> None:
        self.tools = tools
        self._agent_id = agent_id
        self._host = host
        self._jobs: dict[str, Job] = {}
        self._closed: str | None = None
        self._secret = ""
        """What the ids are made from, beside the paths."""

    # -- for the tools --------------------------------------------------------------------------

    def start(self, order: JobOrder) -> str:
        asyncio.get_running_loop()  # before anything is done: a thread of a tool has none
        job = self._host.start_job(self._agent_id, order, self._closed)
        self._jobs[job.job_id] = job
        return job.job_id

    def ids(self) -> list[str]:
        return list(self._jobs)

    def state(self, job_id: str) -> JobState | None:
        job = self._jobs.get(job_id)
        if job is None:
            return None
        agent, has_ended = job.agent, job.task.done()
        status, doing = (job.result.status, "") if has_ended else self._host.activity_of(agent)
        return JobState(
            job_id=job_id,
            path=agent.path,
            task=agent.task,
            status=status,
            doing=doing,
            said=agent.reached,
            result=job.result if has_ended else None,
        )

    async def wait(self, job_ids: Sequence[str]) -> None:
        tasks = {self._jobs[each].task for each in job_ids if each in self._jobs}
        if tasks:
            # Not `gather`: whoever waits here may be cancelled, and they go on.
            await asyncio.wait(tasks)

    def mark_reported(self, job_ids: Sequence[str]) -> None:
        for each in job_ids:
            if (job := self._jobs.get(each)) is not None and job.task.done():
                job.is_reported = True

    async def cancel(self, job_ids: Sequence[str]) -> list[str]:
        going_on = [each for each in job_ids if each in self._jobs and not self._is_over(each)]
        for each in going_on:
            self._host.stop(self._jobs[each].agent, _TAKEN_BACK)
        await self.wait(going_on)
        self.mark_reported(going_on)
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
                self._host.stop(job.agent, reason)

    def new_id(self, agent: Agent, number: int, taken: Container[str]) -> str:
        """The id of the next job of this agent, unlike all that are taken."""
        self._secret = self._secret or _secret_of(agent)
        return job_id(agent.path_of_child(number), taken, secret=self._secret)

    @property
    def all(self) -> list[tuple[int, Agent, asyncio.Task[None]]]:
        """Where the result of each will stand, who works on it, and until when."""
        return [(job.index, job.agent, job.task) for job in self._jobs.values()]

    @property
    def has_open(self) -> bool:
        """Whether the result of one of them has not been reported to the agent."""
        return any(not job.is_reported for job in self._jobs.values())

    def take_unreported(self) -> list[SubAgentResult]:
        """Results not yet reported to the agent, in job order. Marks them as reported."""
        left = [job for job in self._jobs.values() if not job.is_reported]
        for job in left:
            job.is_reported = True
        return [job.result for job in left]

    def break_cycles(self) -> None:
        """At the end of the run: jobs hold the agents, and these the whole record."""
        self._jobs.clear()


def repeat_key(order: JobOrder, lineage: Sequence[str]) -> str:
    """Key that detects a repeated job: its task plus the context it was given.

    The task of an agent above is known by its words alone, whatever comes with it.
    """
    if signature(order.task) in map(signature, lineage):
        return order.task
    handed = "\n".join(filter(None, (order.profile, order.context.strip())))
    if not handed:
        return order.task
    mark = hashlib.sha256(handed.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{order.task} (with {mark})"


def _secret_of(agent: Agent) -> str:
    """A digest of what an agent was told and is saying: no job of its is handed all of it."""
    words = [agent.system, *(message.text for message in agent.messages), agent.services.text]
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
