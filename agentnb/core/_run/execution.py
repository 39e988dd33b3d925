"""One run of one tree: starts, joins and stops its agents, and returns one result.

Each agent has its own task in its own cancel scope. `_supervise` publishes exactly one terminal
event for it. A parent never ends before its subtree, and when `execute` returns, nothing of the
run is left running.

How an agent goes through here:

- `_supervise` wraps `_with_jobs`, which wraps `_work` (for the root of a plan: `_work_on_plan`).
- `_work` runs the first turns. Without sub-agents their text is the answer. A spawn block goes to
  `_delegate`, which runs the children through the same three functions; jobs were started during
  the turns, by `start_job`. Then the synthesis, with jobs' results first.
- However `_work` ends (by returning, an error, a cancel), `_with_jobs` joins the jobs first.
- If it has completed and a person said something meanwhile, `_to_end` adds a turn.
- `_finish` is the one place where an agent's end is kept and published.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentnb.core._call.engine import CUT_REASONS, NO_TURNS_LEFT
from agentnb.core._run.admission import Admission
from agentnb.core._run.agent import (
    BEFORE_ITS_TURN,
    Agent,
    AgentEnd,
    NumberedTask,
    Spawned,
    agent_for_job,
    agent_for_row,
    agent_for_task,
    root_agent,
)
from agentnb.core._run.conversation import Conversation
from agentnb.core._run.following import Following
from agentnb.core._run.jobs import AgentJobs, Job, repeat_key
from agentnb.core._run.mapped import MappedRows
from agentnb.core._run.planning import Plans, Upcoming
from agentnb.core._run.results import result_of
from agentnb.core.cancel import AgentStopped, foreign, is_own_cancellation, wait_shielded
from agentnb.core.context import AgentContext
from agentnb.core.errors import AgentnbError, InternalError, OrchestratorError, RunCancelled
from agentnb.core.events import AgentCompleted, ModelCallFinished, RunFinished, RunStarted
from agentnb.core.limits import Refusal
from agentnb.core.money import TOKENS
from agentnb.core.plan import Plan
from agentnb.core.protocols import AgentOutcome, JobOrder, NotStarted, OutputType
from agentnb.core.reading import agent_ended
from agentnb.core.records import EndRecord, RunHead
from agentnb.core.request import RunState
from agentnb.core.spawn import (
    SpawnProblem,
    SpawnReading,
    task_of,
    without_acting_block,
    without_block,
)
from agentnb.core.synthesis import is_none_done, results_as_text, synthesis_need, why_none
from agentnb.core.tree import TreeFold
from agentnb.core.types import AgentStatus, OrchestratorResult, SpawnMode, SubAgentResult

_NOT_STARTED = "not started"
_AT_WORK = "still at work"
"""Why a running job's task is not done; unlike for `_NOT_STARTED`, its agent exists."""
_FROM_OUTSIDE = "its task was cancelled from outside"
_PARENT_STOPPED = "its parent was stopped"
_PLANS_NOTHING = "the root of a person's own list of tasks only brings their results together"
_NOT_NESTED = "the sub-agents of this run start no others by tools (`nested_spawn` is off)"
_NO_ROWS = "The table has no rows."
_PROBLEMS: Mapping[SpawnProblem | None, str] = {
    SpawnProblem.UNCLOSED: "the spawn block has no end",
    SpawnProblem.NO_TASK: "the spawn block names no task",
}


def _end_of_run(event: RunFinished, at_s: float) -> EndRecord:
    return EndRecord(
        None,
        event.status,
        error=event.error,
        tokens_used=event.tokens_used,
        duration_ms=event.duration_ms,
        at_s=at_s,
    )


async def _refuse(why: OrchestratorError) -> AgentEnd:
    """The work of a root that cannot start."""
    raise why


def _unstarted(agent: Agent) -> list[int]:
    """Indices of the results of an agent's tasks that were not started so far."""
    return [at for at, result in enumerate(agent.results) if result.error == _NOT_STARTED]


class Execution:
    """One run of one tree."""

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._bus = run.bus
        self._agents: dict[str, Agent] = {}
        self._ends: dict[str, SubAgentResult] = {}
        self._job_ids: set[str] = set()
        self.admission = Admission(run, self._agents)
        """Which tasks may start. Assignments to other threads ask it, too."""
        self._plans = Plans(run)
        self._following = Following(run, self._agents)
        self._fold = TreeFold()
        """Folds the record for `activity_of`, which feeds it new rows."""
        self._folded = 0

    # -- the run ------------------------------------------------------------------------------

    async def execute(
        self,
        context: AgentContext,
        task: str,
        plan: Plan | None,
        output: OutputType | None,
        head: RunHead,
        refusal: OrchestratorError | None = None,
    ) -> OrchestratorResult:
        """Run the tree. See `agentnb.core.orchestrator.AgentOrchestrator.execute`.

        `RunFinished` is published whatever happens, and after everything else.
        """
        run, request, bus = self._run, self._run.request, self._bus
        recorder = run.recorder
        started_at_s = request.clock.now()
        recorder.begin(head)
        following = self._following
        request.cancellation.when_ordered(following.cancel_ordered)
        following.begin()
        bus.publish(
            RunStarted(
                task_description=task,
                model=context.agent_config.model,
                budget_total=head.budget_total,
                unit=request.budget.unit,
                max_depth=request.max_depth,
                thread_id=request.thread_id,
                recovered=0 if run.past is None else run.past.times,
            )
        )
        request.words.begin(
            keep=lambda path, note: recorder.order(
                "tell", note.by, {"agent": path, "text": note.text}, path
            ),
            has_ended=lambda path: run.past is not None and run.past.has_ended(path),
        )
        if plan is not None and not plan.synthesis:
            request.words.close(request.thread_id, "asks no model")
        request.pauses.begin(bus, recorder)
        end = AgentEnd(AgentStatus.FAILED, "")
        error: BaseException | None = None
        try:
            has_plan = plan is not None
            root = self._add(root_agent(run, self, context, task, has_plan=has_plan, output=output))
            if plan is not None:  # now: the root may be cancelled before its first step
                for each in root.number(plan.instruction.tasks):
                    root.add_task(each, _NOT_STARTED)
            async with run.meter:
                work = self._work(root) if plan is None else self._work_on_plan(root, plan)
                if refusal is not None:
                    work.close()
                    work = _refuse(refusal)
                end = await self._supervise(root, work)
            await recorder.commit()
            result = result_of(root, end, self._ends, bus.lifecycle_rows)
            # The journal's failure is raised only if the run itself did not fail.
            error = end.from_outside or end.error or recorder.error
            if isinstance(error, OrchestratorError):
                error.partial_result = result
        except asyncio.CancelledError as cancelled:  # from outside, after the root had ended
            end = AgentEnd(AgentStatus.CANCELLED, "", reason=_FROM_OUTSIDE)
            error = cancelled
        except BaseException as bug:
            end = AgentEnd(AgentStatus.FAILED, "")
            error = bug
            if not is_own_cancellation(bug):  # a `GeneratorExit` of our own passes as it is
                error = InternalError.wrapping(bug, where="the orchestrator")
        self._break_cycles()
        request.cancellation.when_ordered(None)
        request.pauses.work_ended()
        finished = RunFinished(
            status=end.status,
            tokens_used=self._tokens_used(),
            duration_ms=round((request.clock.now() - started_at_s) * 1000),
            error=str(error or "")
            or (end.reason if error or end.status is AgentStatus.FAILED else None),
        )
        if not isinstance(error, GeneratorExit):
            await following.end(end.status)
        recorder.keep(_end_of_run(finished, bus.now_s))
        try:
            if not isinstance(error, GeneratorExit):  # a coroutine that is closed may not await
                await recorder.commit_end()
        finally:  # always: readers of the record wait for this event
            request.pauses.end()
            bus.publish(finished)
        if not isinstance(error, GeneratorExit):
            await recorder.end()
        if error is None and recorder.error is not None:
            error = recorder.error
            error.partial_result = result
        if error is not None:
            raise error
        return result

    def _tokens_used(self) -> int:
        """Tokens of the run's calls, as a budget of tokens counts them."""
        budget = self._run.request.budget
        if budget.unit == TOKENS:
            return budget.tokens_used_by_run
        events = (event for _, event in self._bus.lifecycle_rows)
        return sum(e.usage.budget_tokens for e in events if isinstance(e, ModelCallFinished))

    def _add(self, agent: Agent) -> Agent:
        self._agents[agent.agent_id] = agent
        return agent

    def _break_cycles(self) -> None:
        """Free the record at once: reference cycles would keep it until a garbage collection."""
        self._run.request.end()
        self._run.request.words.end()
        for agent in self._agents.values():
            agent.break_cycles()
        self._agents.clear()

    # -- one agent ----------------------------------------------------------------------------

    async def _supervise(self, agent: Agent, work: Coroutine[Any, Any, AgentEnd]) -> AgentEnd:
        """Run an agent to its end, and publish that end when nothing of the agent runs.

        All ways out of the agent's work meet here: it returns an end; its scope raises
        `AgentStopped` (cancelled by a person or by its parent); its task was cancelled from
        outside; an error or a bug. Each becomes one `AgentEnd`.
        """
        try:
            async with agent.scope:
                end = await self._with_jobs(agent, work)
                if agent.services.past is not None:
                    await agent.services.past.is_cancelled()
        except BaseException as error:
            # A `GeneratorExit` of our own: the coroutine is being closed and may not await again.
            if is_own_cancellation(error) and not isinstance(error, asyncio.CancelledError):
                raise
            end = self._end_from_error(agent, error)
        finally:
            work.close()  # an agent cancelled before its first step never awaited it
        try:
            await self._release(agent)
        except InternalError as error:  # keep its answer, and report the error
            end = replace(end, status=AgentStatus.FAILED, error=end.error or error)
        finally:  # also when its task is cancelled from outside meanwhile
            end = await self._ended(agent, end)
        return end

    async def _ended(self, agent: Agent, end: AgentEnd) -> AgentEnd:
        """Publish an agent's end, without an ignored spawn block in its text."""
        if agent.is_root:  # its answer is final: a limit reached from now on changes nothing
            self._run.limits.end()
        text = without_block(end.text)
        if text != end.text and agent.output is not None:
            text = without_acting_block(end.text)
        if text != end.text:
            end = replace(end, text=text)
        await self._finish(agent, end)
        return end

    async def _release(self, agent: Agent) -> None:
        """Release what the agent held outside the run, before its end is published."""
        handles = self._run.request.handles
        if handles is None:
            return
        release = asyncio.ensure_future(handles.agent_ended(agent.agent_id))
        cancelled = await wait_shielded([release])
        with foreign("the objects of an agent"):
            release.result()
        if cancelled is not None:
            raise cancelled

    def _end_from_error(self, agent: Agent, error: BaseException) -> AgentEnd:
        """The end of an agent whose work raised `error`: its partial answer is kept."""
        is_stop = isinstance(error, AgentStopped | asyncio.CancelledError)
        self._skip_unstarted(
            agent, f"its parent {'was stopped' if is_stop else 'failed'} before its turn"
        )
        match error:
            case AgentStopped() if agent.is_root and self._following.missing is not None:
                missing = self._following.missing
                return AgentEnd(AgentStatus.FAILED, agent.partial_answer, error=missing)
            case AgentStopped(reason=reason):
                stop = RunCancelled(reason)
                return AgentEnd(
                    AgentStatus.CANCELLED, agent.partial_answer, error=stop, reason=reason
                )
            case asyncio.CancelledError():
                return AgentEnd(
                    AgentStatus.CANCELLED,
                    agent.partial_answer,
                    reason=_FROM_OUTSIDE,
                    from_outside=error,
                )
            case OrchestratorError():
                return AgentEnd(AgentStatus.FAILED, agent.partial_answer, error=error)
            case _:
                wrapped = InternalError.wrapping(error, where="the orchestrator")
                return AgentEnd(AgentStatus.FAILED, agent.partial_answer, error=wrapped)

    async def _finish(self, agent: Agent, end: AgentEnd) -> None:
        """Commit an agent's work to the journal, then publish its end."""
        agent.services.news.close()
        result = self._ends[agent.agent_id] = end.result_of(agent)
        recorder = self._run.recorder
        record = end.record_of(agent, result, self._bus.now_s)
        recorder.keep(record)
        try:
            await recorder.commit()
        finally:  # also when the task is cancelled from outside during the commit
            self._run.request.pauses.agent_ended(agent.agent_id)
            event = agent_ended(record, agent.agent_id)
            if end.typed is not None:
                self._bus.keep_data(agent.agent_id, end.typed.data)
                if isinstance(event, AgentCompleted):
                    event = replace(event, typed=True)
            self._bus.publish(event)
            agent.scope.ended.set()
        if end.status is AgentStatus.FAILED and not agent.is_root:
            self._run.limits.agent_failed()

    async def _work(self, agent: Agent) -> AgentEnd:
        """An agent's whole work: its turns, its sub-agents, its synthesis."""
        if agent.is_root:
            await self._recall(agent, agent.task)
        conversation = Conversation(agent, self._run)
        outcome = await conversation.run_turns()
        # Stopped by a limit in its turns: a spawn block in the text is not followed.
        if outcome.exhausted is not None:
            return await self._end_exhausted(agent, conversation, outcome.exhausted)
        if conversation.gives_answer(outcome) and not agent.has_unreported_jobs():
            return conversation.completed(outcome.text, outcome)
        reading = conversation.read(outcome)
        reported: Sequence[SubAgentResult] = ()
        if reading.has_block:
            agent.set_text_before_results(reading.text_before)
            before = len(agent.results)
            why_not = await self._delegate(agent, conversation, reading, outcome)
            reported = agent.results[before:]
            # The block is not followed and there are no jobs, so there is nothing to combine: the
            # agent answers directly. With jobs it continues with its synthesis.
            if why_not is not None and not agent.has_unreported_jobs():
                agent.set_text_before_results("")
                reported = ()
                end = await conversation.answer_directly(reading, outcome, why_not)
                if not agent.has_unreported_jobs():
                    return end
                # Its corrective turn started jobs by tools: wait for them like for any others.
                if end.status is AgentStatus.EXHAUSTED:
                    return await self._end_exhausted(agent, conversation, end.reason)
                agent.set_text_before_results(end.text if end.error is None else "")
        elif not agent.has_unreported_jobs():
            return conversation.completed(outcome.text, outcome)
        else:  # its turns ended while jobs were running
            agent.set_text_before_results(outcome.text)
        # Jobs' results first: jobs began during the turns, before the block at their end.
        end = await conversation.synthesise([*await self._unreported_results(agent), *reported])
        ran_out = outcome.stop_reason == NO_TURNS_LEFT
        return replace(end, cut=True) if ran_out and end.error is None else end

    async def _recall(self, root: Agent, words: str) -> None:
        """Put recalled memories into the root's prompt, if `recall` is set."""
        request = self._run.request
        if request.memory is None or request.recall < 1:
            return
        if (past := root.services.past) is not None:
            if (value := past.verdict("recalled")) is not None:
                root.recall([each["text"] for each in value])
                root.services.verdict("recalled", value)
                return
            await past.does_more()
        try:
            with foreign("the memories", passes=(AgentnbError,)):
                recalled = await request.memory.recall(words, request.recall)
                root.recall([memory.text for memory in recalled])
                value = [{"id": memory.id, "text": memory.text} for memory in recalled]
        except InternalError:
            raise
        except AgentnbError:  # a store reports its own trouble, and runs continue without it
            value = []
        root.services.verdict("recalled", value)

    async def _end_exhausted(self, agent: Agent, conversation: Conversation, why: str) -> AgentEnd:
        """The end of an agent that a limit of the run stopped, once its jobs have ended."""
        unreported = await self._unreported_results(agent)
        # Only the root has reserved tokens; without results it has nothing to combine.
        if agent.is_root and agent.results:
            return await conversation.answer_from_reserve(unreported)
        return conversation.exhausted(why)

    async def _work_on_plan(self, root: Agent, plan: Plan) -> AgentEnd:
        """A person's own fan-out: the tasks are given, the root's one call is the synthesis."""
        todo, synthesis = plan.instruction, plan.synthesis
        if plan.rows is None:
            await self._recall(root, "\n".join(todo.tasks))
        conversation = Conversation(root, self._run)
        if not todo.tasks:  # of an empty table
            return AgentEnd(AgentStatus.COMPLETED, _NO_ROWS)
        beginning = conversation.empty_synthesis_tokens() if synthesis else None
        self._reserve_for_synthesis(root, beginning)
        tasks = [NumberedTask(*pair) for pair in zip(root.numbers, todo.tasks, strict=True)]
        was_known = self._was_admitted(root, tasks)
        refusals = self.admission.admit(root, tasks, in_plan=True)
        for at, refusal in enumerate(refusals):
            if refusal is not None:
                root.put(at, replace(root.results[at], error=refusal.reason))
        mapped = None if plan.rows is None else MappedRows(self._run, self, root, plan, plan.rows)
        delegation = Upcoming(
            root,
            conversation,
            todo.mode,
            0,
            has_synthesis=synthesis,
            in_plan=True,
            was_known=was_known,
            rows=None if mapped is None else mapped.calls,
        )
        if mapped is not None:
            await mapped.work(self._plans, delegation, refusals)
        else:
            refusals = await self._plans.settle(delegation, refusals)
            await self._run_children(root, todo.mode, 0, refusals, plan.output)
        if not root.children:  # the budget was empty before the first of them
            return conversation.exhausted(f"{self._run.meter.ended_by} before any task was started")
        if synthesis:
            self._close_jobs(root)
            return await conversation.synthesise(root.results)
        end = conversation.completed(results_as_text(root.results), None)
        judges = 1 if plan.rows is None else plan.rows.judges
        if end.status is AgentStatus.COMPLETED and is_none_done(root.results, judges):
            text = end.text if any(each.response for each in root.results) else ""
            why = why_none(root.results, "task" if mapped is None else "row")
            return AgentEnd(AgentStatus.FAILED, text, reason=why)
        return end

    # -- delegation -----------------------------------------------------------------------------

    async def _delegate(
        self, agent: Agent, conversation: Conversation, reading: SpawnReading, outcome: AgentOutcome
    ) -> str | None:
        """Follow a spawn block: run its tasks and set their results.

        Returns:
            Why the block is not followed, for the model; `None` if it is.
        """
        tasks = agent.number(reading.tasks)
        # Four ways to refuse the whole block; each publishes all of its tasks as not done: blocks
        # are off here, the agent is too deep, the block cannot be read, or every task is refused.
        if not self._run.delegation.by_block:
            why = "sub-agents are not started by a spawn block here"
            agent.ignore(why, tasks)
            return why
        if (too_deep := self._run.limits.too_deep(agent.request.depth + 1)) is not None:
            self.admission.publish_too_deep(agent, tasks, too_deep)
            return too_deep.reason
        if reading.instruction is None:
            was_cut = outcome.stop_reason in CUT_REASONS
            why = _PROBLEMS[reading.problem] + (
                ", since the reply was cut by `max_tokens`" if was_cut else ""
            )
            agent.ignore(why, tasks)
            return why
        instruction = reading.instruction
        total = len(instruction.tasks)
        if reading.extra_blocks or reading.other_tasks:
            agent.ignore("only the first spawn block of a reply counts", tasks[total:])
        past, was_known = agent.services.past, self._was_admitted(agent, tasks[:total])
        if past is not None and not was_known:
            await past.is_cancelled()  # its recorded cancel may have come before the admission
        refusals = self.admission.admit(agent, tasks[:total])
        first = len(agent.results)
        for task, refusal in zip(tasks[:total], refusals, strict=True):
            agent.add_task(task, _NOT_STARTED if refusal is None else refusal.reason)
        refusals = await self._plans.settle(
            Upcoming(agent, conversation, instruction.mode, first, was_known=was_known), refusals
        )
        if all(refusals):
            return "; ".join(dict.fromkeys(refusal.reason for refusal in refusals if refusal))
        self._reserve_for_synthesis(agent)
        await self._run_children(agent, instruction.mode, first, refusals)
        return None

    def _was_admitted(self, agent: Agent, tasks: Sequence[NumberedTask]) -> bool:
        """Whether the limits' verdict on these tasks is recorded."""
        past = agent.services.past
        return past is not None and past.was_admitted([each.number for each in tasks])

    def _reserve_for_synthesis(self, agent: Agent, beginning: int | None = 0) -> None:
        """If the root delegates, reserve what its synthesis needs at least.

        Args:
            agent: The agent that delegates; nothing happens if it is not the root.
            beginning: Tokens of the root's conversation before any call; `None` if there is no
                synthesis.
        """
        if agent.is_root:
            self._run.meter.root_delegates(
                lambda: (
                    0
                    if beginning is None
                    else synthesis_need(
                        agent.services.conversation_tokens or beginning, len(agent.results)
                    )
                )
            )

    async def _run_children(
        self,
        agent: Agent,
        mode: SpawnMode,
        first: int,
        refusals: Sequence[Refusal | None],
        output: OutputType | None = None,
    ) -> None:
        """Run the tasks of one spawn, and set their results.

        Args:
            agent: The agent that delegates; `add_task` was called for each task.
            mode: Whether they run in parallel or in sequence.
            first: Index of the first of them in the agent's results.
            refusals: Per task: why it does not run, or `None`.
            output: The type of each answer; `None` for text.
        """
        places = [at for at, refusal in enumerate(refusals, first) if refusal is None]

        def child(at: int, previous: SubAgentResult | None = None) -> Agent:
            spawned = Spawned(
                number=agent.numbers[at], index=at - first, total=len(refusals), mode=mode
            )
            task = agent.results[at].task
            return self._add(
                agent_for_task(self._run, self, agent, task, spawned, previous, output)
            )

        if mode is SpawnMode.PARALLEL:
            # All are created before any starts, so that their events come first, in task order.
            children = [(at, child(at)) for at in places]
            await self.join(agent, [(at, each, self._begin(at, each)) for at, each in children])
            return
        previous: SubAgentResult | None = None
        for at in places:
            # In a sequence, an exhausted run skips the rest. Parallel children have started
            # already: there each call is refused by itself.
            if await self.skips_rest(agent, at):
                return
            each = child(at, previous)
            await self.join(agent, [(at, each, self._begin(at, each))])
            previous = agent.results[at]

    async def skips_rest(self, agent: Agent, at: int) -> bool:
        """If the run is exhausted, skip the agent's unstarted tasks. Returns whether it did."""
        why = await self._why_not_started(agent, at)
        if why is None:
            return False
        numbers = [agent.numbers[at] for at in _unstarted(agent)]
        agent.services.verdict("skipped", {"numbers": numbers, "why": why})
        self._skip_unstarted(agent, why)
        return True

    async def _why_not_started(self, agent: Agent, at: int) -> str | None:
        """Why an exhausted run starts no further task of a sequence; `None` if it continues."""
        meter, past = self._run.meter, agent.services.past
        if past is not None:
            found = past.verdict(
                "skipped",
                lambda value: value["numbers"] == [agent.numbers[n] for n in _unstarted(agent)],
            )
            if found is not None:
                meter.exhausted_before(found["why"].removesuffix(BEFORE_ITS_TURN))
                return str(found["why"])
            if past.started(agent.numbers[at]):
                return None
            await past.does_more()
        if not meter.is_exhausted:
            return None
        meter.report_exhausted()
        return meter.ended_by + BEFORE_ITS_TURN

    def _skip_unstarted(self, agent: Agent, why: str) -> None:
        """Mark an agent's unstarted tasks as skipped for good, and publish that."""
        rest = _unstarted(agent)
        for at in rest:
            agent.put(at, replace(agent.results[at], error=why))
        if rest:
            tasks = [NumberedTask(agent.numbers[at], agent.results[at].task) for at in rest]
            agent.ignore(why, tasks)

    def _begin(self, index: int, child: Agent) -> asyncio.Task[None]:
        return self.start(index, child, lambda: self._work(child))

    def start(
        self, index: int, child: Agent, work: Callable[[], Coroutine[Any, Any, AgentEnd]]
    ) -> asyncio.Task[None]:
        """Start a sub-agent. The task ends when the sub-agent has ended and its result is set."""

        async def supervised() -> None:
            await self._supervise(child, work())
            assert child.parent is not None
            child.parent.put(index, self._ends[child.agent_id])

        return asyncio.create_task(supervised())

    # -- a mapped table: `agentnb.core._run.mapped.RowHost` --------------------------------------

    def add_row(self, root: Agent, task: NumberedTask, spawned: Spawned, plan: Plan) -> Agent:
        return self._add(agent_for_row(self._run, self, root, task.task, spawned, plan))

    async def work_on_row(self, agent: Agent) -> AgentEnd:
        return await self._work(agent)

    async def join(
        self, agent: Agent, running: Sequence[tuple[int, Agent, asyncio.Task[None]]]
    ) -> None:
        """Join sub-agents, and set their results. A cancelled parent joins them all the same.

        Raises:
            CancelledError: The parent was cancelled meanwhile; all of them have ended by now.
        """

        def stop_all() -> None:
            # If the parent's scope was cancelled, so were theirs, and this changes nothing. If its
            # task was cancelled from outside, no scope knows of it.
            for _, child, _ in running:
                self.stop(child, _PARENT_STOPPED)

        cancelled = await wait_shielded([task for _, _, task in running], on_cancel=stop_all)
        for index, child, task in running:
            if not task.cancelled():
                task.result()  # raises what `_supervise` itself raised: a bug of ours
            if child.agent_id not in self._ends:  # cancelled before its first step: not supervised
                await self._finish(child, AgentEnd(AgentStatus.CANCELLED, "", reason=_FROM_OUTSIDE))
            agent.put(index, self._ends[child.agent_id])
        if cancelled is not None:
            raise cancelled

    # -- delegation by tools: `agentnb.core._run.jobs.JobHost` -------------------------------------

    def start_job(self, agent_id: str, order: JobOrder, closed: str | None) -> Job:
        agent = self._agents[agent_id]
        assert agent.jobs is not None
        # Synchronous, so that several `spawn` calls of one turn are numbered and admitted in order.
        (task,) = agent.number([order.task])  # a refused task has a number in its event, too
        if closed is not None:
            agent.ignore(closed, [task])
            raise NotStarted(closed)
        (refusal,) = self.admission.admit(
            agent, [task], key=repeat_key(order, agent.lineage, agent.request.above)
        )
        if refusal is not None:
            raise NotStarted(refusal.reason)
        job_id = self._job_id(agent, agent.jobs, task.number)
        self._job_ids.add(job_id)
        index = agent.add_task(task, _AT_WORK)
        self._reserve_for_synthesis(agent)
        spawned = Spawned(
            number=task.number, index=index, total=index + 1, job_id=job_id, profile=order.profile
        )
        child = self._add(agent_for_job(self._run, self, agent, order, spawned))
        return Job(job_id, agent, index, child, self._begin(index, child))

    def _job_id(self, agent: Agent, jobs: AgentJobs, number: int) -> str:
        """The id of a new job; the recorded one if there is one.

        An id is derived from the conversation, in which a record may mask secrets, so a repeated
        run could not derive the same one.
        """
        past = agent.services.past
        found = past and past.verdict("job", lambda value: value["number"] == number)
        job_id = found["id"] if found else jobs.new_id(agent, number, self._job_ids)
        agent.services.verdict("job", {"number": number, "id": job_id})
        return str(job_id)

    def withhold_spawn(self, agent_id: str, input: Mapping[str, Any]) -> str:
        agent = self._agents[agent_id]
        tasks = agent.number([task] if (task := task_of(input)) else [])
        if (too_deep := self._run.limits.too_deep(agent.request.depth + 1)) is not None:
            self.admission.publish_too_deep(agent, tasks, too_deep)
            why = too_deep.reason
        else:
            why = _PLANS_NOTHING if agent.is_root else _NOT_NESTED
            agent.ignore(why, tasks)
        return f"{NotStarted(why).for_model} Do the task yourself."

    def activity_of(self, agent: Agent) -> tuple[AgentStatus, str]:
        rows = self._bus.rows_since(self._folded)
        self._folded += len(rows)
        self._fold.feed(rows)
        state = self._fold.agents[agent.agent_id]
        is_waiting = state.status is AgentStatus.WAITING
        status = AgentStatus.WAITING if is_waiting else AgentStatus.RUNNING
        return status, self._fold.describe(state, with_reports=True)

    def stop(self, agent: Agent, reason: str) -> None:
        """Cancel an agent and all below it."""
        past = self._run.past
        if past is None or past.is_over:
            self._run.request.cancellation.cancel(agent.agent_id, reason, by="agent")
        elif agent.services.past is not None and agent.services.past.end is None:
            past.stop_when_taken(agent.services.path, reason)

    async def _with_jobs(self, agent: Agent, work: Coroutine[Any, Any, AgentEnd]) -> AgentEnd:
        """Await an agent's work to its end, then join its jobs, whatever ended the work."""
        jobs = agent.jobs
        if jobs is None:
            return await self._to_end(agent, work)
        try:
            return await self._to_end(agent, work)
        except BaseException:
            jobs.stop(_PARENT_STOPPED)  # an agent that failed gets no results: end them now
            raise
        finally:
            # Waits only after an error or a cancel: `_work` returns with all jobs ended.
            jobs.close("this agent has ended")
            await self.join(agent, jobs.all)

    async def _to_end(self, agent: Agent, work: Coroutine[Any, Any, AgentEnd]) -> AgentEnd:
        """Await an agent's work, then add a turn as long as notes from persons arrived meanwhile.

        Nothing else runs between the last check for notes and `close`: later notes are refused, and
        none is lost.
        """
        end = await Conversation(agent, self._run).typed(await work)
        while end.status is AgentStatus.COMPLETED and await agent.services.news.has_words():
            if agent.scope.reason is not None:  # a cancel is on its way
                break
            if agent.jobs is not None:
                agent.jobs.close("you have given your answer: change it yourself")
            again = await Conversation(agent, self._run).answer_again(end)
            if again is None:
                break
            end = await Conversation(agent, self._run).typed(again)
        agent.services.news.close()
        return end

    async def _unreported_results(self, agent: Agent) -> list[SubAgentResult]:
        """Join all jobs of an agent, and take the results not yet reported to it."""
        self._close_jobs(agent)
        if agent.jobs is None:
            return []
        await self.join(agent, agent.jobs.all)
        return agent.jobs.take_unreported()

    def _close_jobs(self, agent: Agent) -> None:
        """Let an agent start no more jobs: its next text is its answer."""
        if agent.jobs is not None:
            agent.jobs.close("the results of your sub-agents are in: finish your answer with them")
