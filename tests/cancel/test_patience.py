"""Every wait has a way out: nobody waits for ever for what does not stop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import CancelledError
from typing import Any

import pytest

from agentnb.core.errors import RunCancelled
from agentnb.core.events import (
    AgentCompleted,
    BudgetPaused,
    BudgetResumed,
    BudgetWarning,
    RunFinished,
)
from agentnb.core.protocols import ToolContext
from agentnb.core.questions import GATE_PATIENCE_S
from agentnb.core.types import (
    AgentStatus,
    CompletionRequest,
    StreamEvent,
    TextDelta,
    ToolSpec,
    ToolUse,
    Usage,
)
from agentnb.providers.scripted import Reply
from agentnb.runtime import GONE, Runtime, get_runtime
from agentnb.session import Session
from tests.cancel.phases import execution_of, on_the_runtime
from tests.core.clock import ManualClock, everyone_waits
from tests.support import DEADLINE_S, Hold, Tree, by_agent, check_record, make_tree, path_of, spawn


class Stubborn:
    """Goes on whenever it is thrown out, until it is let go."""

    def __init__(self) -> None:
        self.hold = Hold()

    async def __call__(self) -> None:
        waiting = asyncio.ensure_future(self.hold())
        while not waiting.done():
            try:
                await asyncio.shield(waiting)
            except asyncio.CancelledError:
                continue


class StubbornTool:
    spec = ToolSpec("wait", "Waits.", {"type": "object"})

    def __init__(self, stubborn: Stubborn) -> None:
        self._stubborn = stubborn

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str:
        await self._stubborn()
        return "at last"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentnb.run.STOP_PATIENCE_S", 0.05)


# -- agents that do not stop ----------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("where", ["provider", "tool"])
def test_agent_that_does_not_stop_is_named_and_nobody_waits_for_it(where: str) -> None:
    stubborn = Stubborn()
    order = Reply("I wait.", tool_uses=(ToolUse("t1", "wait", {}),))
    reply = Reply("half of it", pause=stubborn) if where == "provider" else order
    provider = by_agent({"root": [spawn("A", "B"), "never"], "A": reply})
    run = on_the_runtime(make_tree(provider, tools=[StubbornTool(stubborn)]))
    stubborn.hold.wait()
    assert run.tree is not None
    root, first = run.tree.agent_id, run.tree.children[0].agent_id

    receipts = [run.cancel("1"), run.cancel("1"), run.cancel()]

    assert [r.agents for r in receipts] == [(first,), (), (root,)]
    assert [r.still_running for r in receipts] == [(first,), (first,), (root, first)]
    assert not run.done
    stubborn.hold.release()
    with pytest.raises(RunCancelled):
        run.result(DEADLINE_S)
    check_record(run.events)
    assert run.cancel().still_running == ()


@pytest.mark.usefixtures("impatient")
def test_cancel_returns_though_something_blocks_the_loop() -> None:
    blocked, go = threading.Event(), threading.Event()

    class Blocking:
        name = "blocking"

        async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
            blocked.set()
            assert go.wait(DEADLINE_S)
            yield TextDelta("too late")

    run = Session(provider=Blocking()).spawn("a task")
    assert blocked.wait(DEADLINE_S)

    receipt = run.cancel(reason="no patience")

    assert len(receipt.agents) == 1
    assert receipt.still_running == receipt.agents
    go.set()
    with pytest.raises(RunCancelled, match="no patience"):
        run.result(DEADLINE_S)


def test_second_cancel_waits_for_what_the_first_has_ordered() -> None:
    hold, closing = Hold(), Hold()

    class SlowToHangUp:
        name = "slow"

        async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
            try:
                await hold()
                yield TextDelta("never")
            finally:
                await closing()

    run = Session(provider=SlowToHangUp()).spawn("a task")
    hold.wait()
    get_runtime().call(run.cancel)
    closing.wait()
    # Whenever it is let go: a cancel that did not wait would find it running.
    threading.Timer(0.05, closing.release).start()

    receipt = run.cancel()

    assert (receipt.agents, receipt.still_running) == ((), ())
    assert run.done


# -- a budget gate that does not end --------------------------------------------------------------


class StubbornGate:
    def __init__(self) -> None:
        self.stubborn = Stubborn()

    async def __call__(self, warning: BudgetWarning) -> str:
        await self.stubborn()
        return "continue"


def asked_tree() -> tuple[Tree, Stubborn, ManualClock]:
    gate, clock = StubbornGate(), ManualClock()
    plan = Reply(spawn("A"), usage=Usage(85_000, 0))
    provider = by_agent({"root": [plan, "together"]})
    return (
        make_tree(provider, budget=100_000, budget_gate=gate, clock=clock),
        gate.stubborn,
        clock,
    )


async def test_raise_lets_a_run_go_on_though_its_gate_does_not_end() -> None:
    tree, stubborn, clock = asked_tree()
    run = asyncio.create_task(execution_of(tree))
    await stubborn.hold.until_reached()

    tree.request.budget.set_total(200_000)
    await everyone_waits()
    assert [e.reason for e in tree.of(BudgetResumed)] == ["raised"]
    assert [path_of(e.agent_id) for e in tree.of(AgentCompleted)] == ["1", "root"]
    clock.advance(GATE_PATIENCE_S)
    result = await run

    assert result.status is AgentStatus.COMPLETED
    stubborn.hold.release()
    await everyone_waits()


async def test_cancelled_run_ends_though_its_gate_does_not() -> None:
    tree, stubborn, clock = asked_tree()
    run = asyncio.create_task(execution_of(tree))
    await stubborn.hold.until_reached()
    assert tree.of(BudgetPaused)

    tree.cancel("root")
    await everyone_waits()
    assert not run.done(), "it is given some time"
    clock.advance(GATE_PATIENCE_S)
    with pytest.raises(RunCancelled):
        await run

    assert isinstance(tree.events[-1], RunFinished)
    stubborn.hold.release()
    await everyone_waits()


# -- a loop that is gone --------------------------------------------------------------------------


def test_whoever_waits_for_what_a_closed_runtime_left_behind_is_told() -> None:
    runtime = Runtime()
    began = threading.Event()

    async def work() -> None:
        while True:
            began.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    left = runtime.submit(work())
    assert began.wait(DEADLINE_S)
    told: list[BaseException | None] = []
    waiting = threading.Thread(target=lambda: told.append(left.exception(DEADLINE_S)))
    waiting.start()

    runtime.close()
    waiting.join(DEADLINE_S)

    assert [str(error) for error in told] == [GONE]
    assert not runtime.is_alive


class NeverStops:
    """Goes on whenever it is thrown out, for ever."""

    name = "never stops"

    def __init__(self) -> None:
        self.began = threading.Event()

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        yield TextDelta("A beginning.")
        while True:
            self.began.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()


def test_whoever_reads_along_is_told_that_the_loop_is_gone() -> None:
    runtime, provider = Runtime(), NeverStops()
    run = on_the_runtime(make_tree(provider), runtime)
    assert provider.began.wait(DEADLINE_S)

    async def read() -> None:
        async for _ in run.stream():
            pass

    told: list[str] = []

    def follow() -> None:
        try:
            asyncio.run(read())
        except RuntimeError as error:
            told.append(str(error))

    reading = threading.Thread(target=follow)
    reading.start()
    runtime.close()
    reading.join(DEADLINE_S)

    assert told == [GONE]


def test_orders_to_a_closed_runtime_are_refused_in_one_sentence() -> None:
    runtime = Runtime()
    runtime.close()

    async def work() -> None:
        raise AssertionError("never begun")

    with pytest.raises(RuntimeError, match="This run's event loop no longer exists"):
        runtime.call(lambda: None)
    with pytest.raises(RuntimeError, match="This run's event loop no longer exists"):
        runtime.submit(work())


def test_many_orders_while_a_runtime_closes_are_answered_or_refused() -> None:
    for _ in range(10):
        runtime = Runtime()
        together = threading.Barrier(5)
        answers: list[str] = []

        def order(
            runtime: Runtime = runtime,
            together: threading.Barrier = together,
            answers: list[str] = answers,
        ) -> None:
            together.wait(DEADLINE_S)
            for _ in range(50):
                try:
                    answers.append(runtime.submit(asyncio.sleep(0, "done")).result(DEADLINE_S))
                except (RuntimeError, CancelledError) as error:
                    answers.append(type(error).__name__)

        threads = [threading.Thread(target=order) for _ in range(4)]
        for thread in threads:
            thread.start()
        together.wait(DEADLINE_S)
        runtime.close()
        for thread in threads:
            thread.join(DEADLINE_S)

        assert len(answers) == 200
