"""Jobs: sub-agents that an agent starts by tools and that run beside it.

An agent sees only its own jobs. It never ends before them, and before it ends it gets every result
that was not reported to it yet, so no finished work is lost.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from agentnb.core.cycles import is_among
from agentnb.core.protocols import JobOrder, JobState, Tool
from agentnb.core.types import AgentStatus, SubAgentResult

if TYPE_CHECKING:
    from agentnb.core._run.agent import Agent

_ID_LENGTH = 6
_STOPPED_BY_PARENT = "stopped by its parent"


@dataclass(slots=True)
class Job:
    """A sub-agent that an agent started by a tool."""

    job_id: str
    parent: Agent
    index: int
    """Index of its result among its parent's."""
    agent: Agent
    task: asyncio.Task[None]
    """Ends when the sub-agent has ended."""
    is_reported: bool = False
    """Whether its result was reported to its parent."""

    @property
    def result(self) -> SubAgentResult:
        return self.parent.results[self.index]


class JobHost(Protocol):
    """What jobs need of their run."""

    def start_job(self, agent_id: str, order: JobOrder, closed: str | None) -> Job:
        """Start a sub-agent of the agent with that id.

        Args:
            agent_id: The agent that delegates.
            order: The job's task, context and profile.
            closed: Why the agent may start no more jobs; `None` while it may.

        Raises:
            NotStarted: A limit refuses it, or `closed` does. The refusal is published.
        """
        ...

    def withhold_spawn(self, agent_id: str, input: Mapping[str, Any]) -> str:
        """Publish that a `spawn` call is not followed. Returns the reason, for the model."""
        ...

    def activity_of(self, agent: Agent) -> tuple[AgentStatus, str]:
        """The status of a running agent, and what it is doing, in words."""
        ...

    def stop(self, agent: Agent, reason: str) -> None:
        """Cancel an agent and all below it."""
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
        """Makes the ids hard to guess. See `job_id`."""

    # -- for the tools --------------------------------------------------------------------------

    def start(self, order: JobOrder) -> str:
        asyncio.get_running_loop()  # raises on a tool's thread, before anything is started
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
            # Not `gather`, which would cancel the jobs when this wait is cancelled.
            await asyncio.wait(tasks)

    def mark_reported(self, job_ids: Sequence[str]) -> None:
        for each in job_ids:
            if (job := self._jobs.get(each)) is not None and job.task.done():
                job.is_reported = True

    async def cancel(self, job_ids: Sequence[str]) -> list[str]:
        going_on = [each for each in job_ids if each in self._jobs and not self._is_over(each)]
        for each in going_on:
            self._host.stop(self._jobs[each].agent, _STOPPED_BY_PARENT)
        await self.wait(going_on)
        # A job that ended by itself meanwhile has a result, still to be reported to its agent. In a
        # repeated run, the recorded cancel may have come before this one.
        stopped = [
            each
            for each in job_ids
            if self._was_stopped(each) or (each in going_on and self._was_cancelled(each))
        ]
        self.mark_reported(stopped)
        return stopped

    def _was_cancelled(self, job_id: str) -> bool:
        return self._jobs[job_id].result.status is AgentStatus.CANCELLED

    def _was_stopped(self, job_id: str) -> bool:
        """Whether the parent stopped a job, and this was not reported to it yet."""
        job = self._jobs.get(job_id)
        if job is None or job.is_reported or not job.task.done():
            return False
        return job.result.error == _STOPPED_BY_PARENT

    def _is_over(self, job_id: str) -> bool:
        return self._jobs[job_id].task.done()

    # -- for the run ----------------------------------------------------------------------------

    def close(self, why: str) -> None:
        """Refuse further jobs from now on. The first reason stays."""
        self._closed = self._closed or why

    def stop(self, reason: str) -> None:
        """Cancel all running jobs."""
        for job in self._jobs.values():
            if not job.task.done():
                self._host.stop(job.agent, reason)

    def new_id(self, agent: Agent, number: int, taken: Container[str]) -> str:
        """An id for the next job of this agent that is not in `taken`."""
        self._secret = self._secret or _secret_of(agent)
        return job_id(agent.path_of_child(number), taken, secret=self._secret)

    @property
    def all(self) -> list[tuple[int, Agent, asyncio.Task[None]]]:
        """Each job's index among its parent's results, its agent and its task."""
        return [(job.index, job.agent, job.task) for job in self._jobs.values()]

    @property
    def has_unreported(self) -> bool:
        """Whether a job is running, or its result was not reported to the agent."""
        return bool(self.unreported)

    @property
    def unreported(self) -> list[Job]:
        """The jobs that are running, or whose results were not reported to the agent."""
        return [job for job in self._jobs.values() if not job.is_reported]

    def take_unreported(self) -> list[SubAgentResult]:
        """Results not yet reported to the agent, in job order. Marks them as reported."""
        left = self.unreported
        for job in left:
            job.is_reported = True
        return [job.result for job in left]

    def break_cycles(self) -> None:
        """Drop the jobs at the run's end: they refer to agents, and these to the whole record."""
        self._jobs.clear()


def repeat_key(order: JobOrder, lineage: Sequence[str], above: Collection[str]) -> str:
    """Key that detects a repeated job: its task plus the context it was given.

    For the task of an agent above, the key is the task alone: no context makes it a new one.
    """
    if is_among(order.task, lineage, above):
        return order.task
    handed = "\n".join(filter(None, (order.profile, order.context.strip())))
    if not handed:
        return order.task
    mark = hashlib.sha256(handed.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{order.task} (with {mark})"


def _secret_of(agent: Agent) -> str:
    """A digest of an agent's whole conversation, which none of its jobs is handed in full."""
    words = [agent.system, *(message.text for message in agent.messages), agent.services.text]
    return hashlib.sha256("\n".join(words).encode("utf-8", "replace")).hexdigest()


def job_id(path: str, taken: Container[str], *, secret: str) -> str:
    """Six hexadecimal characters for the job of the agent at `path`, not in `taken`.

    They cannot be guessed without the secret, and are the same when a run is repeated exactly.
    """
    for number in count():
        text = f"{secret} {path} {number}"
        made = hashlib.sha256(text.encode()).hexdigest()[:_ID_LENGTH]
        if made not in taken:
            return made
    raise AssertionError("the numbers do not end")
