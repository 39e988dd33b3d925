"""Ends are clean: a call's end is told, a stream closed in peace, the record has a last event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from agentnb.core.budget import RequestBudget
from agentnb.core.context import AgentContext
from agentnb.core.events import AgentCompleted, ModelCallFinished, RunFinished
from agentnb.core.types import (
    AgentConfig,
    AgentStatus,
    CompletionRequest,
    SpawnInstruction,
    SpawnMode,
    Stopped,
    StreamEvent,
    TextDelta,
    assistant_message,
)
from agentnb.providers.scripted import ScriptedProvider
from tests.core.clock import ManualClock, everyone_waits
from tests.core.random_trees import SlowJournal
from tests.support import make_tree, run_tree


async def test_call_whose_agent_is_cancelled_while_its_end_is_being_kept_is_still_told() -> None:
    journal = SlowJournal()
    tree = make_tree(ScriptedProvider(["done"]), journal=journal)
    running = tree.start()
    await everyone_waits()  # the call is over; its end is being kept

    tree.cancel("root")
    while not running.done():
        await everyone_waits()
        journal.let_commits_end()
    await running

    [call] = tree.of(ModelCallFinished)
    assert tree.request.budget.tokens_used == call.usage.budget_tokens
    assert tree.result.total_tokens_used == call.usage.total_tokens


class ClosesSlowly:
    name = "slow to close"

    def __init__(self, pieces: list[str]) -> None:
        self.pieces = pieces
        self.closed = False
        self.closing = asyncio.Event()
        self.go: asyncio.Event | None = None

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        try:
            for piece in self.pieces:
                yield TextDelta(piece)
            yield Stopped("end_turn", assistant_message("".join(self.pieces)))
            await asyncio.Event().wait()
        finally:
            self.closing.set()
            if self.go is not None:
                await self.go.wait()
            for _ in range(3):
                await asyncio.sleep(0)  # gives its connection back
            self.closed = True


async def test_stream_that_the_budget_ends_is_closed_in_peace() -> None:
    provider = ClosesSlowly(["word " * 2000] * 3)

    tree = await run_tree(provider, budget=4_000)

    assert tree.result.status is AgentStatus.EXHAUSTED
    assert provider.closed


async def test_finished_stream_is_closed_in_peace_though_the_total_is_set_to_nothing() -> None:
    provider = ClosesSlowly(["The answer."])
    provider.go = asyncio.Event()
    plan = SpawnInstruction(SpawnMode.PARALLEL, ("A",))
    tree = make_tree(provider, plan=plan, synthesis=False)
    running = tree.start()
    await provider.closing.wait()

    tree.request.budget.set_total(0)
    await everyone_waits()
    provider.go.set()
    await running

    assert provider.closed
    assert tree.statuses()["1"] == "completed", "its answer was whole when the total was set"
    assert "The answer." in tree.result.final_response


async def test_run_cancelled_from_outside_while_its_question_is_taken_back_has_a_last_event() -> (
    None
):
    clock = ManualClock()
    held = asyncio.Event()
    provider = ClosesSlowly(["An ", "answer."])
    provider.go = asyncio.Event()

    async def gate(_: object) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            await held.wait()
        return "continue"

    tree = make_tree(
        provider,
        budget=RequestBudget(100_000, warn_at=0.0001),
        context=AgentContext(AgentConfig(model="a/b", max_output_tokens=2000)),
        budget_gate=gate,
        clock=clock,
    )
    running = asyncio.create_task(
        tree.orchestrator.execute(
            tree.provider, tree.context, "t", tree.request, tree.bus, budget_gate=gate
        )
    )
    await everyone_waits()
    provider.go.set()
    await everyone_waits()
    assert len(tree.of(AgentCompleted)) == 1  # all that is left is the gate
    running.cancel()
    await everyone_waits()
    held.set()
    await asyncio.wait([running])
    await everyone_waits()
    clock.advance(10)

    assert isinstance(tree.events[-1], RunFinished)
    assert clock.pending == 0
