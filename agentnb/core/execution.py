"""One run of one tree: who is spawned, waited for and stopped, and how it becomes one answer.

Each agent has a task of its own, in a cancel scope of its own, under a supervisor that
publishes exactly one terminal event for it. A parent never ends before its subtree, and when
`run` returns, nothing of the run is left running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentnb.core.agent import CUT_REASONS
from agentnb.core.birth import AgentFactory
from agentnb.core.bus import EventBus
from agentnb.core.cancel import AgentStopped, is_own_end
from agentnb.core.context import AgentContext
from agentnb.core.conversation import Conversation
from agentnb.core.errors import InternalError, OrchestratorError, RunCancelled
from agentnb.core.events import CycleDetected, DepthLimitReached, RunFinished, RunStarted
from agentnb.core.journal import CarefulJournal
from agentnb.core.life import (
    Agent,
    Ending,
    has_block,
    incomplete,
    terminal_event,
    without_block,
)
from agentnb.core.meter import Meter
from agentnb.core.protocols import AgentOutcome, Engine, Provider, Tool
from agentnb.core.request import RequestContext
from agentnb.core.spawn import SpawnProblem, SpawnReading
from agentnb.core.synthesis import result_body, results_as_text
from agentnb.core.tree import TreeFold
from agentnb.core.types import (
    AgentMemoryContext,
    AgentStatus,
    OrchestratorResult,
    SpawnInstruction,
    SpawnMode,
    SubAgentResult,
)

_NOT_STARTED = "not started"
_FROM_OUTSIDE = "its task was cancelled from outside"


class Execution:
    """One run of one tree."""

    def __init__(
        self,
        provider: Provider,
        request: RequestContext,
        bus: EventBus,
        *,
        meter: Meter,
        journal: CarefulJournal,
        engine: Engine,
        tools: Sequence[Tool],
        agents: AgentFactory,
        max_depth: int,
    ) -> None:
        self._provider = provider
        self._request = request
        self._bus = bus
        self._meter = meter
        self._journal = journal
        self._engine = engine
        self._tools: Mapping[str, Tool] = {tool.spec.name: tool for tool in tools}
        self._agents = agents
        self._max_depth = max_depth
        self._endings: dict[str, SubAgentResult] = {}

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
            )
        )
        ending = Ending(AgentStatus.FAILED, "")
        error: BaseException | None = None
        try:
            root = self._agents.root(context, task, has_plan=plan is not None)
            async with self._meter:
                work = (
                    self._work(root) if plan is None else self._work_to_plan(root, plan, synthesis)
                )
                ending = await self._supervise(root, work)
            await self._journal.commit()
            result = self._result(root, ending)
            root.part_from_children()
            error = ending.from_outside or ending.error or self._journal.error
            if isinstance(error, OrchestratorError):
                error.partial_result = result
        except asyncio.CancelledError as cancelled:  # from outside, when the root had ended
            ending = Ending(AgentStatus.CANCELLED, "", reason=_FROM_OUTSIDE)
            error = cancelled
        except BaseException as bug:
            ending = Ending(AgentStatus.FAILED, "")
            error = bug
            if not is_own_end(bug):
                error = InternalError.wrapping(bug, where="the orchestrator")
        self._request.deadlines.close()
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

    def _result(self, root: Agent, ending: Ending) -> OrchestratorResult:
        fold = TreeFold()
        fold.feed(self._bus.milestones)
        tree = fold.root()
        assert tree is not None
        order = [node.agent_id for node in tree.walk()]
        everyone = [self._endings[agent_id] for agent_id in order]
        return OrchestratorResult(
            status=ending.status,
            final_response=self._final_response(ending),
            agent_tree=tree,
            pre_spawn_text=root.said,
            sub_agent_results=tuple(root.results),
            synthesis=root.synthesis,
            total_tokens_used=fold.usage.total_tokens,
            usage=fold.usage,
            memory_contexts=tuple(
                AgentMemoryContext(str(end.agent_id), end.response, end.task)
                for end in everyone
                if end.status is AgentStatus.COMPLETED
            ),
            incomplete=tuple(incomplete(root))
            or tuple(end for end in everyone[:1] if end.status is not AgentStatus.COMPLETED),
            cut=ending.cut,
        )

    def _final_response(self, ending: Ending) -> str:
        """The root's last words; for a run that ended early, what there is and why it ended."""
        if ending.error is None:
            return ending.text or "(no output)"
        parts = [part for part in (ending.text, f"*{ending.error}*") if part]
        return without_block("\n\n".join(parts))

    # -- one agent ----------------------------------------------------------------------------

    async def _supervise(self, agent: Agent, work: Coroutine[Any, Any, Ending]) -> Ending:
        """Bring an agent to exactly one end, and tell it when nothing of it runs any more."""
        try:
            async with agent.scope:
                ending = await work
        except AgentStopped as stop:
            ending = Ending(
                AgentStatus.CANCELLED,
                agent.left,
                error=RunCancelled(stop.reason),
                reason=stop.reason,
            )
        except asyncio.CancelledError as cancelled:
            ending = Ending(
                AgentStatus.CANCELLED, agent.left, reason=_FROM_OUTSIDE, from_outside=cancelled
            )
        except OrchestratorError as error:
            ending = Ending(AgentStatus.FAILED, agent.left, error=error)
        except BaseException as bug:
            if is_own_end(bug):
                raise
            wrapped = InternalError.wrapping(bug, where="the orchestrator")
            ending = Ending(AgentStatus.FAILED, agent.left, error=wrapped)
        finally:
            work.close()  # it never began when the agent was cancelled before its first step
        if (text := without_block(ending.text)) != ending.text:
            ending = replace(ending, text=text)
        await self._tell_end(agent, ending)
        return ending

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
            return talk.exhausted(outcome.exhausted)
        reading = talk.read(outcome)
        if not has_block(reading):
            return talk.completed(outcome.text, outcome)
        agent.said = reading.text_before
        why_not = await self._delegate(agent, talk, reading, outcome)
        if why_not is not None:
            agent.said = ""
            return await talk.answer_without(reading, outcome, why_not)
        return await talk.synthesise()

    async def _work_to_plan(self, root: Agent, plan: SpawnInstruction, synthesis: bool) -> Ending:
        """A person's own fan-out: the tasks are given, the root's one call is the synthesis."""
        talk = self._conversation(root)
        # A person may well ask the same thing five times: no cycle check here.
        await self._run_children(root, talk, plan, self._places(talk, plan.tasks))
        if not root.children:
            reasons = "; ".join(f"{r.task}: {r.error}" for r in root.results)
            return Ending(AgentStatus.COMPLETED, f"No task could be started ({reasons}).")
        if synthesis:
            return await talk.synthesise()
        return talk.completed(results_as_text(root.results), None)

    # -- delegation -----------------------------------------------------------------------------

    async def _delegate(
        self, agent: Agent, talk: Conversation, reading: SpawnReading, outcome: AgentOutcome
    ) -> str | None:
        """Follow a spawn block. Returns why it could not be followed, or `None` when it was."""
        depth = agent.request.depth + 1
        if depth > self._max_depth:
            self._bus.publish(
                DepthLimitReached(
                    agent_id=agent.agent_id, attempted_depth=depth, max_depth=self._max_depth
                )
            )
            return f"sub-agents at depth {depth} are not allowed (the deepest is {self._max_depth})"
        if reading.instruction is None:
            was_cut = outcome.stop_reason in CUT_REASONS
            why = _PROBLEMS[reading.problem] + (
                ", since the reply was cut by `max_tokens`" if was_cut else ""
            )
            talk.ignore(why)
            return why
        if reading.extra_blocks:
            talk.ignore("only the first spawn block of a reply counts")
        admitted, why_not = self._admit(agent, talk, reading.instruction)
        await self._run_children(agent, talk, reading.instruction, admitted)
        return None if any(why is None for why in admitted) else why_not

    def _admit(
        self, agent: Agent, talk: Conversation, instruction: SpawnInstruction
    ) -> tuple[list[str | None], str]:
        """Per task: `None`, or why it is not started. And the reasons in one sentence."""
        cycles: list[str | None] = []
        for task in instruction.tasks:
            cycle = self._request.cycle_detector.check_and_register(
                task, agent.request.depth + 1, agent.lineage
            )
            if cycle is not None:
                self._bus.publish(
                    CycleDetected(
                        agent_id=agent.agent_id, task_description=task, cycle_description=cycle
                    )
                )
            cycles.append(cycle)
        fresh = [t for t, cycle in zip(instruction.tasks, cycles, strict=True) if cycle is None]
        places = iter(self._places(talk, fresh))
        admitted = [cycle if cycle is not None else next(places) for cycle in cycles]
        return admitted, "; ".join(dict.fromkeys(why for why in admitted if why))

    def _places(self, talk: Conversation, tasks: Sequence[str]) -> list[str | None]:
        """Per task: `None`, or that the run has as many sub-agents as it may have."""
        why = f"the run has all of its {self._request.max_agents} sub-agents"
        places = [None if self._request.take_place() else why for _ in tasks]
        over = tuple(t for t, place in zip(tasks, places, strict=True) if place is not None)
        if over:
            talk.ignore(why, over)
        return places

    async def _run_children(
        self,
        agent: Agent,
        talk: Conversation,
        instruction: SpawnInstruction,
        admitted: Sequence[str | None],
    ) -> None:
        """Run the admitted tasks. `agent.results` then holds all tasks, in their order."""
        agent.results = [
            SubAgentResult(None, task, AgentStatus.SKIPPED, error=why or _NOT_STARTED)
            for task, why in zip(instruction.tasks, admitted, strict=True)
        ]
        wanted = [index for index, why in enumerate(admitted) if why is None]
        if instruction.mode is SpawnMode.PARALLEL:
            children = [self._agents.child(agent, i, instruction.mode, None) for i in wanted]
            await self._wait_for(agent, list(zip(wanted, children, strict=True)))
            return
        previous: str | None = None
        for position, index in enumerate(wanted):
            if self._meter.ran_dry:
                self._skip_rest(agent, talk, wanted[position:])
                return
            child = self._agents.child(agent, index, instruction.mode, previous)
            await self._wait_for(agent, [(index, child)])
            previous = result_body(agent.results[index])

    def _skip_rest(self, agent: Agent, talk: Conversation, rest: Sequence[int]) -> None:
        why = "the budget ended before its turn"
        for index in rest:
            task = agent.results[index].task
            agent.results[index] = SubAgentResult(None, task, AgentStatus.SKIPPED, error=why)
        self._meter.tell_exhausted()
        talk.ignore(why, [agent.results[index].task for index in rest])

    async def _wait_for(self, agent: Agent, children: Sequence[tuple[int, Agent]]) -> None:
        """Run children to their ends, whatever happens to their parent meanwhile."""

        async def run(index: int, child: Agent) -> None:
            await self._supervise(child, self._work(child))
            agent.results[index] = self._endings[child.agent_id]

        pending = {asyncio.create_task(run(index, child)) for index, child in children}
        stopped: asyncio.CancelledError | None = None
        while pending:
            try:
                done, pending = await asyncio.wait(pending)
            except asyncio.CancelledError as cancelled:
                # By its scope, the children's scopes know already; from outside, they do not.
                stopped = cancelled
                for _, child in children:
                    self._request.cancellation.cancel(child.agent_id, "its parent was stopped")
                continue
            for task in done:
                if not task.cancelled():
                    task.result()
        for index, child in children:
            if child.agent_id not in self._endings:  # its task was cancelled before it began
                await self._tell_end(child, Ending(AgentStatus.CANCELLED, "", reason=_FROM_OUTSIDE))
            agent.results[index] = self._endings[child.agent_id]
        if stopped is not None:
            raise stopped

    def _conversation(self, agent: Agent) -> Conversation:
        return Conversation(
            agent,
            engine=self._engine,
            provider=self._provider,
            tools=self._tools,
            meter=self._meter,
        )


# -- pure helpers -------------------------------------------------------------------------------

_PROBLEMS: Mapping[SpawnProblem | None, str] = {
    SpawnProblem.UNCLOSED: "the spawn block has no end",
    SpawnProblem.NO_TASK: "the spawn block names no task",
}
