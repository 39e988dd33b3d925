"""The entry point of the core: runs trees of agents, one after another or side by side.

One algorithm for every agent, the root included: get a reply; if it holds a spawn block, run the
sub-agents; then give the same conversation their results and get the final reply.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentnb.core import observers
from agentnb.core._budget.meter import Meter
from agentnb.core._call.engine import InProcessEngine
from agentnb.core._run.execution import Execution
from agentnb.core.bus import EventBus
from agentnb.core.context import AgentContext
from agentnb.core.errors import OrchestratorError
from agentnb.core.journal import Recorder
from agentnb.core.money import TOKENS
from agentnb.core.past import Past
from agentnb.core.plan import Plan
from agentnb.core.protocols import (
    BudgetGate,
    Delegation,
    Engine,
    OutputType,
    Provider,
    SupportsCommit,
    Tool,
)
from agentnb.core.questions import Questions
from agentnb.core.records import PRICES, UNIT, RunHead
from agentnb.core.request import RequestContext, RunState
from agentnb.core.synthesis import build_synthesis_prompt
from agentnb.core.text import literal
from agentnb.core.types import OrchestratorResult

__all__ = ["AgentOrchestrator", "InProcessEngine", "build_synthesis_prompt"]


class AgentOrchestrator:
    """Runs trees of agents, and keeps no state of any of them.

    Args:
        max_depth: Depth of the deepest sub-agent. The request's own limit applies, too.
        engine: Runs the attempts; by default in this process.
        sub_agent_memory: `inherit` passes the parent's recalled memories to sub-agents, `fresh`
            does not.
        max_turns: Most model calls of one agent.
        delegation: How agents may start sub-agents; by default with a spawn block.

    Raises:
        ValueError: `sub_agent_memory` is neither `inherit` nor `fresh`.
    """

    def __init__(
        self,
        max_depth: int = 3,
        *,
        engine: Engine | None = None,
        sub_agent_memory: str = "inherit",
        max_turns: int = 50,
        delegation: Delegation | None = None,
    ) -> None:
        if sub_agent_memory not in ("inherit", "fresh"):
            raise ValueError(
                f"`sub_agent_memory` must be 'inherit' or 'fresh', not {literal(sub_agent_memory)}."
            )
        self.max_depth = max_depth
        self.engine: Engine = engine or InProcessEngine()
        self.inherit_memory = sub_agent_memory == "inherit"
        self.max_turns = max_turns
        self.delegation = delegation or Delegation()

    async def execute(
        self,
        provider: Provider,
        context: AgentContext,
        user_message: str,
        request: RequestContext,
        bus: EventBus,
        *,
        budget_gate: BudgetGate | None = None,
        tools: Sequence[Tool] | None = None,
        journal: SupportsCommit | None = None,
        head: RunHead | None = None,
        plan: Plan | None = None,
        output: OutputType | None = None,
        past: Past | None = None,
        refusal: OrchestratorError | None = None,
    ) -> OrchestratorResult:
        """Run one tree from one message to its end.

        Args:
            provider: Answers the calls of agents that have no model of their own.
            context: The root agent's configuration, memories and history.
            user_message: The person's task.
            request: Budget, limits, cancellation. For one run only.
            bus: Where the events are published. For one run only.
            budget_gate: Asked at the budget's warning line.
            tools: Tools that agents may call, without the spawn tools.
            journal: Stores what happens. See `agentnb.core.protocols.Journal`.
            head: The run's head for the journal; by default built from the other arguments.
            plan: A person's own tasks: the root only combines their results.
            output: The type of the root's answer; `None` for text. With a plan, see `Plan.output`.
            past: The record that the run repeats: of its own earlier part, or of a run to replay.
            refusal: Why no model can be asked: the run then fails at once with this error.

        Returns:
            The result, also of a run that a limit ended.

        Raises:
            ValueError: The plan has no task and is not a table, which may be empty.
            LlmError: The root's own call failed for good.
            NoAnswer: The root gave no answer, even when it was asked once more.
            RunCancelled: The whole run was cancelled.
            InternalError: A bug in agentnb or in foreign code, or the journal failed.

        Each except `ValueError` has `partial_result`.
        """
        if plan is not None and not plan.instruction.tasks and plan.rows is None:
            raise ValueError("The plan has no task: give at least one.")
        request.limits.lower_depth(self.max_depth)
        recorder = Recorder(journal, bus, request.clock, past)
        questions = Questions(
            bus,
            request.clock,
            root_id=request.thread_id,
            timeout_s=request.pause_timeout_s,
            patience=request.patience,
            recorder=recorder,
        )
        meter = Meter(
            request.budget,
            bus,
            request.clock,
            policy=request.on_budget_warning,
            gate=budget_gate,
            is_attended=request.is_attended,
            questions=questions,
            root_id=request.thread_id,
            limits=request.limits,
            recorder=recorder,
            rate=request.rate_of(_first_asked(context, provider, plan)),
        )
        run = RunState(
            request=request,
            bus=bus,
            meter=meter,
            recorder=recorder,
            questions=questions,
            engine=self.engine,
            provider=provider,
            tools=tuple(tools or ()),
            delegation=self.delegation,
            inherit_memory=self.inherit_memory,
            max_turns=self.max_turns,
            past=past,
        )
        execution = Execution(run)
        request.begin(meter, execution.admission, questions)
        bus.begin(request.run_id)
        root = _root_context(context, run)
        head = head or _head_of(request, root, user_message)
        observed = observers.begin(bus, head, request)
        try:
            return await execution.execute(root, user_message, plan, output, head, refusal)
        finally:
            if not isinstance(sys.exception(), GeneratorExit):  # a closing coroutine may not await
                await observed()


def _first_asked(context: AgentContext, provider: Provider, plan: Plan | None) -> str:
    """The model whose prices the root's reserve uses; in a table with judges, the first judge's.

    The root of a table makes no call, so its own model needs no price.
    """
    judge = None if plan is None or plan.rows is None else plan.rows.model_of(1)
    return context.agent_config.model or provider.name if judge is None else judge.name


def _head_of(request: RequestContext, root: AgentContext, task: str) -> RunHead:
    return RunHead(
        run_id=request.run_id,
        thread_id=request.thread_id,
        task=task,
        model=root.agent_config.model,
        budget_total=request.budget.total,
        max_depth=request.max_depth,
        started_at=time.time(),
        settings={} if request.budget.unit == TOKENS else _of_money(request),
    )


def _of_money(request: RequestContext) -> dict[str, Any]:
    """What the head of a run with a budget of dollars says of it."""
    prices = {model: rate.as_plain() for model, rate in request.rates.items()}
    return {UNIT: request.budget.unit, PRICES: prices}


def _root_context(context: AgentContext, run: RunState) -> AgentContext:
    """The root's context with this run's settings: the model's name, and how agents delegate."""
    config, delegation = context.agent_config, run.delegation
    return replace(
        context,
        agent_config=config if config.model else replace(config, model=run.provider.name),
        max_depth=run.limits.max_depth,
        by_block=delegation.by_block,
        nested_spawn=delegation.nested,
        profiles=delegation.profiles if delegation.spawn_tools else "",
    )
