"""A tool that takes too long, or is cancelled, is stopped or left behind, and holds up nobody."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Mapping
from typing import Any

import pytest

from agentnb.core._call.tool_call import THREAD_PATIENCE_S
from agentnb.core.events import ToolCallFinished, ToolCallReported, ToolCallStarted
from agentnb.core.protocols import ToolContext
from agentnb.core.types import ToolResultBlock
from tests.core.clock import ManualClock, everyone_waits
from tests.core.tool_bodies import Tool, looking, on_thread, order, told
from tests.support import DEADLINE_S, Hold, Tree, by_agent, make_tree, run_tree, spawn, until

# -- how long it may take --------------------------------------------------------------------------


async def test_tool_that_takes_too_long_is_stopped_and_the_model_told_so() -> None:
    clock, was_cancelled = ManualClock(), asyncio.Event()

    async def body(_: Mapping[str, Any], context: ToolContext) -> str:
        try:
            await Hold()()
        except asyncio.CancelledError:
            assert context.cancelled
            was_cancelled.set()
            raise
        return "never"

    tree = make_tree(looking(), tools=[Tool(body, timeout_s=20)], clock=clock)
    running = tree.start()
    await tree.saw(ToolCallStarted)
    await everyone_waits()
    clock.advance(19.9)
    await everyone_waits()
    assert not was_cancelled.is_set()
    clock.advance(0.2)
    await running

    assert was_cancelled.is_set()
    words = "The tool 'look' was stopped: it did not end within 20 s."
    assert told(tree) == (ToolResultBlock("t1", words, is_error=True),)
    assert tree.result.final_response == "Seen."


@pytest.mark.parametrize("comes_to", ["a value", "an error"])
async def test_tool_that_is_too_slow_stays_so_whatever_it_then_comes_to(comes_to: str) -> None:
    clock = ManualClock()

    async def body(_: Mapping[str, Any], context: ToolContext) -> str:
        try:
            await Hold()()
        except asyncio.CancelledError:
            if comes_to == "an error":
                raise ValueError("in the way out") from None
        return "late"

    tree = make_tree(looking(), tools=[Tool(body, timeout_s=0.5)], clock=clock)
    running = tree.start()
    await tree.saw(ToolCallStarted)
    await everyone_waits()
    clock.advance(1)
    await running

    assert "did not end within 0.5 s" in told(tree)[0].text
    assert tree.statuses() == {"root": "completed"}


async def test_thread_that_is_too_slow_is_left_behind_at_once_and_its_result_dropped() -> None:
    clock, go_on, saw = ManualClock(), threading.Event(), threading.Event()

    def body(context: ToolContext) -> str:
        assert go_on.wait(DEADLINE_S)
        assert context.cancelled
        context.report("too late")
        saw.set()
        return "never read"

    tree = make_tree(looking(), tools=[Tool(on_thread(body), timeout_s=20)], clock=clock)
    running = tree.start()
    await tree.saw(ToolCallStarted)
    await everyone_waits()
    clock.advance(20)
    await running

    assert "did not end within 20 s" in told(tree)[0].text
    assert tree.request.abandoned.agent_ids == {tree.id_of("root")}
    assert clock.pending == 0
    await let_end(tree, go_on)
    assert saw.is_set()
    assert tree.of(ToolCallReported) == []


@pytest.mark.parametrize("kind", ["on the loop", "on a thread", "on the loop, and late"])
async def test_tool_that_is_too_slow_is_let_go_without_the_help_of_the_cyclic_collector(
    kind: str,
) -> None:
    clock, go_on = ManualClock(), threading.Event()
    contexts: list[weakref.ref[ToolContext]] = []

    def blocks(context: ToolContext) -> str:
        go_on.wait(DEADLINE_S)
        return "late"

    async def body(given: Mapping[str, Any], context: ToolContext) -> str:
        contexts.append(weakref.ref(context))
        if kind == "on a thread":
            return str(await on_thread(blocks)(given, context))
        try:
            await Hold()()
        except asyncio.CancelledError:
            if kind == "on the loop":
                raise
        return "late"

    tree = make_tree(looking(), tools=[Tool(body, timeout_s=20)], clock=clock)
    gc.collect()
    gc.disable()
    try:
        running = tree.start()
        await tree.saw(ToolCallStarted)
        await everyone_waits()
        clock.advance(20)
        await running
        await let_end(tree, go_on)
        await everyone_waits()
        (left,) = [context() for context in contexts]
        assert left is None
    finally:
        gc.enable()
    assert "did not end within 20 s" in told(tree)[0].text


async def test_timeout_leaves_the_timer_of_a_quick_tool_behind_nowhere() -> None:
    clock = ManualClock()

    async def body(_: Mapping[str, Any], context: ToolContext) -> str:
        return "there"

    tree = await run_tree(looking(), tools=[Tool(body, timeout_s=20)], clock=clock)

    assert clock.pending == 0
    assert not told(tree)[0].is_error


# -- cancelling ------------------------------------------------------------------------------------


async def let_end(tree: Tree, go_on: threading.Event) -> None:
    """Let a thread that was left behind end, and wait until it has."""
    go_on.set()
    await until(lambda: not tree.request.abandoned.agent_ids)


async def test_thread_that_sees_its_cancel_holds_up_nobody_and_what_it_returns_is_dropped() -> None:
    clock, begun = ManualClock(), threading.Event()

    def body(context: ToolContext) -> str:
        begun.set()
        while not context.cancelled:
            threading.Event().wait(0.001)
        return "never read"

    provider = by_agent({"root": [spawn("A"), "ok"], "A": order("look")})
    tree = make_tree(provider, tools=[Tool(on_thread(body))], clock=clock)
    running = tree.start()
    await tree.saw(ToolCallStarted)
    tree.cancel("1")
    await running

    assert begun.is_set()
    assert clock.now() == 0, "no time had to pass"
    assert clock.pending == 0
    assert tree.request.abandoned.agent_ids == set()
    (finished,) = tree.of(ToolCallFinished)
    assert (finished.result, finished.is_error) == ("cancelled", True)
    assert tree.statuses() == {"root": "completed", "1": "cancelled"}


async def test_thread_that_does_not_see_its_cancel_is_left_behind_after_two_seconds() -> None:
    clock, go_on = ManualClock(), threading.Event()
    provider = by_agent({"root": [spawn("A"), "ok"], "A": order("look")})
    body = on_thread(lambda context: str(go_on.wait(DEADLINE_S)))
    tree = make_tree(provider, tools=[Tool(body)], clock=clock)
    running = tree.start()
    await tree.saw(ToolCallStarted)
    await everyone_waits()
    tree.cancel("1")
    await everyone_waits()
    clock.advance(THREAD_PATIENCE_S - 0.1)
    await everyone_waits()
    assert tree.of(ToolCallFinished) == []
    clock.advance(0.1)
    await running

    assert tree.statuses() == {"root": "completed", "1": "cancelled"}
    assert tree.request.abandoned.agent_ids == {tree.id_of("1")}
    await let_end(tree, go_on)


async def test_second_cancel_from_outside_does_not_wait_for_a_thread() -> None:
    clock, go_on = ManualClock(), threading.Event()
    body = on_thread(lambda context: str(go_on.wait(DEADLINE_S)))
    tree = make_tree(looking(), tools=[Tool(body)], clock=clock)
    executing = asyncio.create_task(
        tree.orchestrator.execute(
            tree.provider, tree.context, "x", tree.request, tree.bus, tools=tree.tools
        )
    )
    await tree.saw(ToolCallStarted)
    await everyone_waits()
    others = asyncio.all_tasks() - {asyncio.current_task(), executing}
    tree.cancel("root")
    await everyone_waits()
    for task in others:  # as the end of the runtime does it
        task.cancel()
    with pytest.raises(BaseException, match="not needed"):
        await executing

    assert clock.now() == 0
    assert clock.pending == 0
    assert tree.request.abandoned.agent_ids == {tree.id_of("root")}
    await let_end(tree, go_on)


async def test_tool_that_answers_its_cancel_with_an_error_is_cancelled_all_the_same() -> None:
    async def body(_: Mapping[str, Any], context: ToolContext) -> str:
        try:
            await Hold()()
        except asyncio.CancelledError:
            raise ValueError("in the way out") from None
        return "never"

    provider = by_agent({"root": [spawn("A"), "ok"], "A": [order("look"), "never asked"]})
    tree = make_tree(provider, tools=[Tool(body)])
    running = tree.start()
    await tree.saw(ToolCallStarted)
    await everyone_waits()
    tree.cancel("1")
    await running

    assert tree.statuses() == {"root": "completed", "1": "cancelled"}
