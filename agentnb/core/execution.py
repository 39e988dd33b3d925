"""One run of one tree: who is spawned, waited for and stopped, and how it becomes one answer.

Each agent has a task of its own, in a cancel scope of its own, under a supervisor that
publishes exactly one terminal event for it. A parent never ends before its subtree, and when
`run` returns, nothing of the run is left running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from agentnb.core.agent import CUT_REASONS, NO_TURNS_LEFT
from agentnb.core.birth import AgentFactory, Spawned
from agentnb.core.bus import EventBus
from agentnb.core.cancel import AgentStopped, is_own_cancellation, wait_shielded
from agentnb.core.context import AgentContext
from agentnb.core.conversation import Conversation
from agentnb.core.errors import InternalError, OrchestratorError, RunCancelled
from agentnb.core.events import (
    CycleDetected,
    DepthLimitReached,
    RunFinished,
    RunStarted,
)
from agentnb.core.jobs import SPAWN, AgentJobs, Delegation, not_started, signature
from agentnb.core.journal import ShieldedJournal
from agentnb.core.life import (
    Agent,
    Ending,
    NumberedTask,
    has_block,
    terminal_event,
    without_block,
)
from agentnb.core.meter import Meter
from agentnb.core.protocols import AgentOutcome, Engine, JobOrder
from agentnb.core.request import RequestContext
from agentnb.core.result import result_of
from agentnb.core.spawn import SpawnProblem, SpawnReading, task_of
from agentnb.core.synthesis import results_as_text, synthesis_need
from agentnb.core.types import (
    AgentStatus,
    OrchestratorResult,
    SpawnInstruction,
    SpawnMode,
    SubAgentResult,
)

_NOT_STARTED = "not started"
_AT_WORK = "still at work"
"""Of a job until it has ended: unlike a task that waits for its turn, it has its agent."""
_FROM_OUTSIDE = "its task was cancelled from outside"
_PARENT_STOPPED = "its parent was stopped"
_PLANS_NOTHING = "the root of a person's own list of tasks only brings their results together"
_NOT_NESTED = "the sub-agents of this run start no others by tools (`nested_spawn` is off)"


class Execution:
    """One run of one tree."""

    def __init__(
        self,
        request: RequestContext,
        bus: EventBus,
        *,
        meter: Meter,
        journal: ShieldedJournal,
        engine: Engine,
        agents: AgentFactory,
        max_depth: int,
        delegation: Delegation,
    ) -> None:
        self._request = request
        self._bus = bus
        self._meter = meter
        self._journal = journal
        self._engine = engine
        self._agents = agents
        self._max_depth = max_depth
        self._delegation = delegation
        self._endings: dict[str, SubAgentResult] = {}
        self._jobs: dict[str, AgentJobs] = {}
        """Of the agents that may start sub-agents by tools."""
        self.job_ids: set[str] = set()

    # -- the run ------------------------------------------------------------------------------

    async def run(
        self,
        context: AgentContext,
        task: str,
        plan: SpawnInstruction | None,
        synthesis: bool,
    ) -> OrchestratorResult:
        started_at_s = self._request.clock.now()
        self._bus.publish(
            RunStarted(
                task_description=task,
                model=context.agent_config.model,
                budget_total=self._request.budget.total,
                max_depth=self._max_depth,
                thread_id=self._request.thread_id,
            )
        )
        ending = Ending(AgentStatus.FAILED, "")
        error: BaseException | None = None
        try:
            root = self._agents.root(context, task, has_plan=plan is not None)
            if plan is not None:  # before the root begins: it may be stopped before that
                for each in root.number(plan.tasks):
                    root.add_place(each, _NOT_STARTED)
            async with self._meter:
                work = (
                    self._work(root) if plan is None else self._work_to_plan(root, plan, synthesis)
                )
                ending = await self._supervise(root, work)
            await self._journal.commit()
            result = result_of(root, ending, self._endings, self._bus.milestones)
            root.part_from_children()
            self._jobs.clear()  # they hold this, and it the whole record
            error = ending.from_outside or ending.error or self._journal.error
            if isinstance(error, OrchestratorError):
                error.partial_result = result
        except asyncio.CancelledError as cancelled:  # from outside, when the root had ended
            ending = Ending(AgentStatus.CANCELLED, "", reason=_FROM_OUTSIDE)
            error = cancelled
        except BaseException as bug:
            ending = Ending(AgentStatus.FAILED, "")
            error = bug
            if not is_own_cancellation(bug):
                error = InternalError.wrapping(bug, where="the orchestrator")
        self._jobs.clear()  # they hold this, and with it the whole record
        # Whatever happened: those who follow the record wait for its end.
        self._bus.publish(
            RunFinished(
                status=ending.status,
                tokens_used=self._request.budget.tokens_used,
                duration_ms=round((self._request.clock.now() - started_at_s) * 1000),
                error=str(error) or ending.reason if error else None,
            )
        )
        if error is not None:
            raise error
        return result

    # -- one agent ----------------------------------------------------------------------------

    async def _supervise(self, agent: Agent, work: Coroutine[Any, Any, Ending]) -> Ending:
        """Bring an agent to exactly one end, and tell it when nothing of it runs any more."""
        try:
            async with agent.scope:
                ending = await self._with_its_jobs(agent, work)
        except BaseException as error:
            if is_own_cancellation(error) and not isinstance(error, asyncio.CancelledError):
                raise
            ending = self._ending_by(agent, error)
        finally:
            work.close()  # it never began when the agent was cancelled before its first step
        if (text := without_block(ending.text)) != ending.text:
            ending = replace(ending, text=text)
        await self._tell_end(agent, ending)
        return ending

    def _ending_by(self, agent: Agent, error: BaseException) -> Ending:
        """How an agent ends that did not come to its own end."""
        is_stop = isinstance(error, AgentStopped | asyncio.CancelledError)
        self._skip_unstarted(
            agent, f"its parent {'was stopped' if is_stop else 'failed'} before its turn"
        )
        match error:
            case AgentStopped(reason=reason):
                stop = RunCancelled(reason)
                return Ending(AgentStatus.CANCELLED, agent.left, error=stop, reason=reason)
            case asyncio.CancelledError():
                return Ending(
                    AgentStatus.CANCELLED, agent.left, reason=_FROM_OUTSIDE, from_outside=error
                )
            case OrchestratorError():
                return Ending(AgentStatus.FAILED, agent.left, error=error)
            case _:
                wrapped = InternalError.wrapping(error, where="the orchestrator")
                return Ending(AgentStatus.FAILED, agent.left, error=wrapped)

    async def _tell_end(self, agent: Agent, ending: Ending) -> None:
        error = ending.reason or (str(ending.error) if ending.error else None)
        result = SubAgentResult(
            agent_id=agent.agent_id,
            task=agent.task,
            status=ending.status,
            response=ending.text,
            error=error if ending.status is not AgentStatus.COMPLETED else None,
            tokens_used=agent.port.usage.total_tokens,
            duration_ms=agent.elapsed_ms(),
            path=agent.path,
            cut=ending.cut and ending.status is AgentStatus.COMPLETED,
        )
        self._endings[agent.agent_id] = result
        try:
            await self._journal.commit()
        finally:  # also when its task is cancelled from outside meanwhile
            self._bus.publish(terminal_event(agent, ending, result))
            agent.scope.ended.set()

    async def _work(self, agent: Agent) -> Ending:
        talk = self._conversation(agent)
        outcome = await talk.speak()
        if outcome.exhausted is not None:
            return await self._end_exhausted(agent, talk, outcome.exhausted)
        reading = talk.read(outcome)
        told: Sequence[SubAgentResult] = ()
        if has_block(reading):
            agent.said = reading.text_before
            before = len(agent.results)
            why_not = await self._delegate(agent, talk, reading, outcome)
            told = agent.results[before:]
            if why_not is not None and not self._has_open_jobs(agent):
                agent.said, told = "", ()
                ending = await talk.answer_without(reading, outcome, why_not)
                if not self._has_open_jobs(agent):
                    return ending
                # It has started some after all, now that it knows how.
                if ending.status is AgentStatus.EXHAUSTED:
                    return await self._end_exhausted(agent, talk, ending.reason)
                agent.said = ending.text if ending.error is None else ""
        elif not self._has_open_jobs(agent):
            return talk.completed(outcome.text, outcome)
        else:
            agent.said = outcome.text
        # Jobs began while the agent had its turn, so before the tasks of the block that ended it.
        ending = await talk.synthesise([*await self._open_results(agent), *told])
        ran_out = outcome.stop_reason == NO_TURNS_LEFT
        return replace(ending, cut=True) if ran_out and ending.error is None else ending

    async def _end_exhausted(self, agent: Agent, talk: Conversation, why: str) -> Ending:
        """The end of an agent that the budget stopped, when its jobs have ended, too."""
        unheard = await self._open_results(agent)
        if agent.is_root and agent.results:
            return await talk.last_words(unheard)
        return talk.exhausted(why)

    async def _work_to_plan(self, root: Agent, plan: SpawnInstruction, synthesis: bool) -> Ending:
        """A person's own fan-out: the tasks are given, the root's one call is the synthesis."""
        talk = self._conversation(root)
        root.port.conversation_tokens = talk.size_of_beginning()
        self._keep_for_synthesis(root, is_made=synthesis)
        # Limits are for models: a person's list is run whole, also where tasks are the same.
        await self._run_children(root, plan.mode, range(len(plan.tasks)), len(plan.tasks))
        if not root.children:  # the budget was empty before the first of them
            return talk.exhausted("the budget ended before any task was started")
        if synthesis:
            self._close_jobs(root)
            return await talk.synthesise(root.results)
        return talk.completed(results_as_text(root.results), None)

    # -- delegation -----------------------------------------------------------------------------

    async def _delegate(
        self, agent: Agent, talk: Conversation, reading: SpawnReading, outcome: AgentOutcome
    ) -> str | None:
        """Follow a spawn block. Returns why it could not be followed, or `None` when it was."""
        tasks = talk.tasks_of(reading)
        if not self._delegation.by_block:
            why = "sub-agents are not started by a spawn block here"
            talk.ignore(why, tasks)
            return why
        if (too_deep := self._too_deep(agent, tasks)) is not None:
            return too_deep
        if reading.instruction is None:
            was_cut = outcome.stop_reason in CUT_REASONS
            why = _PROBLEMS[reading.problem] + (
                ", since the reply was cut by `max_tokens`" if was_cut else ""
            )
            talk.ignore(why, tasks)
            return why
        instruction = reading.instruction
        total = len(instruction.tasks)
        if reading.extra_blocks or reading.other_tasks:
            talk.ignore("only the first spawn block of a reply counts", tasks[total:])
        admitted, why_none = self._admit(agent, talk, tasks[:total])
        places = [
            agent.add_place(task, why or _NOT_STARTED)
            for task, why in zip(tasks[:total], admitted, strict=True)
        ]
        wanted = [at for at, why in zip(places, admitted, strict=True) if why is None]
        if wanted:
            self._keep_for_synthesis(agent)
        await self._run_children(agent, instruction.mode, wanted, total)
        return None if wanted else why_none

    def _too_deep(self, agent: Agent, tasks: Sequence[NumberedTask]) -> str | None:
        """Why an agent at the deepest level starts none of these, as the record tells it then."""
        depth = agent.request.depth + 1
        if depth <= self._max_depth:
            return None
        self._bus.publish(
            DepthLimitReached(
                agent_id=agent.agent_id,
                attempted_depth=depth,
                max_depth=self._max_depth,
                tasks=tuple(task for _, task in tasks),
                numbers=tuple(number for number, _ in tasks),
            )
        )
        return f"sub-agents at depth {depth} are not allowed (the deepest is {self._max_depth})"

    def _admit(
        self, agent: Agent, talk: Conversation, tasks: Sequence[NumberedTask]
    ) -> tuple[list[str | None], str]:
        """Per task: `None`, or why it is not started. And the reasons in one sentence."""
        cycles = [self._cycle(agent, each, each.task) for each in tasks]
        fresh = [each for each, cycle in zip(tasks, cycles, strict=True) if cycle is None]
        places = iter(self._places(talk, fresh))
        admitted = [cycle if cycle is not None else next(places) for cycle in cycles]
        return admitted, "; ".join(dict.fromkeys(why for why in admitted if why))

    def _cycle(self, agent: Agent, task: NumberedTask, known_as: str) -> str | None:
        """Count a task, and why it is not started if it came up too often."""
        cycle = self._request.cycle_detector.check_and_register(
            known_as, agent.request.depth + 1, agent.lineage
        )
        if cycle is not None:
            self._bus.publish(
                CycleDetected(
                    agent_id=agent.agent_id,
                    task_description=task.task,
                    cycle_description=cycle,
                    number=task.number,
                )
            )
        return cycle

    def _keep_for_synthesis(self, agent: Agent, *, is_made: bool = True) -> None:
        """When the root delegates: leave in the budget what its synthesis needs at least."""
        if agent.is_root:
            self._meter.root_delegates(
                lambda: (
                    synthesis_need(agent.port.conversation_tokens, len(agent.results))
                    if is_made
                    else 0
                )
            )

    @property
    def _no_place(self) -> str:
        return f"the run has all of its {self._request.max_agents} sub-agents"

    def _places(self, talk: Conversation, tasks: Sequence[NumberedTask]) -> list[str | None]:
        """Per task: `None`, or that the run has as many sub-agents as it may have."""
        why = self._no_place
        places = [None if self._request.take_place() else why for _ in tasks]
        over = [each for each, place in zip(tasks, places, strict=True) if place is not None]
        if over:
            talk.ignore(why, over)
        return places

    async def _run_children(
        self, agent: Agent, mode: SpawnMode, tasks: Sequence[int], total: int
    ) -> None:
        """Run tasks of one spawn, and put what came of each in its place.

        Args:
            agent: Who asked for them, with a place for each task of the spawn in its results.
            mode: At once, or one by one.
            tasks: The places of those that are run.
            total: How many the spawn had; they stand at the end of the results.
        """
        first = len(agent.results) - total

        def child(at: int, previous: SubAgentResult | None = None) -> Agent:
            spawned = Spawned(number=agent.numbers[at], index=at - first, total=total, mode=mode)
            return self._agents.child(agent, at, spawned, previous)

        if mode is SpawnMode.PARALLEL:
            await self._wait_for(agent, [(at, child(at)) for at in tasks])
            return
        previous: SubAgentResult | None = None
        for at in tasks:
            if self._meter.is_exhausted:
                self._meter.tell_exhausted()
                self._skip_unstarted(agent, "the budget ended before its turn")
                return
            await self._wait_for(agent, [(at, child(at, previous))])
            previous = agent.results[at]

    def _skip_unstarted(self, agent: Agent, why: str) -> None:
        """Let those tasks of an agent that wait for their turn have none any more."""
        rest = [at for at, result in enumerate(agent.results) if result.error == _NOT_STARTED]
        for at in rest:
            agent.results[at] = replace(agent.results[at], error=why)
        if rest:
            tasks = [NumberedTask(agent.numbers[at], agent.results[at].task) for at in rest]
            agent.ignore(why, tasks)

    async def _wait_for(self, agent: Agent, children: Sequence[tuple[int, Agent]]) -> None:
        """Run children to their ends, whatever happens to their parent meanwhile."""
        await self._see_out(agent, [(i, each, self._begin(agent, i, each)) for i, each in children])

    def _begin(self, agent: Agent, index: int, child: Agent) -> asyncio.Task[None]:
        async def run() -> None:
            await self._supervise(child, self._work(child))
            agent.results[index] = self._endings[child.agent_id]

        return asyncio.create_task(run())

    async def _see_out(
        self, agent: Agent, running: Sequence[tuple[int, Agent, asyncio.Task[None]]]
    ) -> None:
        """Wait for the ends of sub-agents, whatever happens to their parent meanwhile."""

        def stop_all() -> None:
            # By its scope, the children's scopes know already; from outside, they do not.
            for _, child, _ in running:
                self.stop(child, _PARENT_STOPPED)

        cancelled = await wait_shielded([task for _, _, task in running], on_cancel=stop_all)
        for index, child, task in running:
            if not task.cancelled():
                task.result()
            if child.agent_id not in self._endings:  # its task was cancelled before it began
                await self._tell_end(child, Ending(AgentStatus.CANCELLED, "", reason=_FROM_OUTSIDE))
            agent.results[index] = self._endings[child.agent_id]
        if cancelled is not None:
            raise cancelled

    # -- delegation by tools: what `agentnb.core.jobs` needs of a run ------------------------------

    def refusal(
        self, agent: Agent, order: JobOrder, task: NumberedTask, closed: str | None
    ) -> str | None:
        """Why an agent may not start a job, as the record tells it then; `None` when it may."""
        why = closed
        if why is None:
            why = self._cycle(agent, task, signature(order, agent.lineage))
            if why is not None:
                return why
            if self._request.take_place():
                return None
            why = self._no_place
        agent.ignore(why, [task])
        return why

    def _withhold_spawn(self, agent: Agent, input: Mapping[str, Any]) -> str:
        """Tell an agent without the tool `spawn` why it has none. The record names its task."""
        tasks = agent.number([task] if (task := task_of(input)) else [])
        why = self._too_deep(agent, tasks)
        if why is None:
            why = _PLANS_NOTHING if agent.is_root else _NOT_NESTED
            agent.ignore(why, tasks)
        return f"{not_started(why)} Do the task yourself."

    def begin(
        self, agent: Agent, order: JobOrder, task: NumberedTask, job_id: str
    ) -> tuple[Agent, asyncio.Task[None]]:
        """Have a sub-agent begin; the task ends when the sub-agent has."""
        index = agent.add_place(task, _AT_WORK)
        self._keep_for_synthesis(agent)
        child = self._agents.worker(agent, order, task.number, job_id)
        return child, self._begin(agent, index, child)

    def stop(self, agent: Agent, reason: str) -> None:
        """Order an agent, and all below it, to stop."""
        self._request.cancellation.cancel(agent.agent_id, reason)

    async def _with_its_jobs(self, agent: Agent, work: Coroutine[Any, Any, Ending]) -> Ending:
        """Do an agent's work. Whatever ends it, its jobs have ended by then."""
        if not agent.spawn_tools:
            if self._delegation.by_tools:
                agent.port.withheld = {SPAWN: partial(self._withhold_spawn, agent)}
            return await work
        jobs = self._jobs[agent.agent_id] = AgentJobs(agent, self)
        agent.port.jobs = jobs
        try:
            return await work
        except BaseException:
            jobs.stop(_PARENT_STOPPED)
            raise
        finally:
            jobs.close("this agent has ended")
            await self._see_out(agent, jobs.all)

    def _has_open_jobs(self, agent: Agent) -> bool:
        jobs = self._jobs.get(agent.agent_id)
        return jobs is not None and jobs.has_open

    async def _open_results(self, agent: Agent) -> list[SubAgentResult]:
        """Wait for all jobs of an agent, and take what came of those that it was not told of."""
        self._close_jobs(agent)
        jobs = self._jobs.get(agent.agent_id)
        if jobs is None:
            return []
        await self._see_out(agent, jobs.all)
        return jobs.take_open()

    def _close_jobs(self, agent: Agent) -> None:
        """Let an agent start no more of them: what it says next is its answer."""
        if (jobs := self._jobs.get(agent.agent_id)) is not None:
            jobs.close("the results of your sub-agents are in: finish your answer with them")

    def _conversation(self, agent: Agent) -> Conversation:
        return Conversation(
            agent,
            engine=self._engine,
            meter=self._meter,
        )


# -- pure helpers -------------------------------------------------------------------------------


_PROBLEMS: Mapping[SpawnProblem | None, str] = {
    SpawnProblem.UNCLOSED: "the spawn block has no end",
    SpawnProblem.NO_TASK: "the spawn block names no task",
}
