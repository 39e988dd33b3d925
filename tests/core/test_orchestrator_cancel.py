"""Cancelled means that nothing of it runs any more, and that the others go on.

`tests.support` checks after each run that no task is left, that every agent has one terminal
event, and that no parent's came before its children's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from agentnb.core.errors import RateLimited, RunCancelled
from agentnb.core.events import (
    AgentCancelled,
    AgentCompleted,
    AgentSpawned,
    AgentWaiting,
    ModelCallFinished,
    RunFinished,
    ToolCallStarted,
)
from agentnb.core.protocols import ToolContext
from agentnb.core.types import (
    AgentStatus,
    CompletionRequest,
    StreamEvent,
    TextDelta,
    ToolSpec,
    ToolUse,
)
from agentnb.providers.gate import ConcurrencyGate
from agentnb.providers.scripted import Reply, ScriptedProvider
from tests.core.clock import ManualClock
from tests.support import (
    NAMES,
    PATHS,
    Hold,
    by_agent,
    chain,
    make_tree,
    path_of,
    requests_of,
    spawn,
)


async def test_child_cancelled_in_its_stream_keeps_its_text_and_its_siblings_go_on() -> None:
    a, b = Hold(), Hold()
    provider = by_agent(
        {
            "root": [spawn("A", "B"), "without A"],
            "A": Reply("this far I came and no further", pause=a),
            "B": Reply("B said", pause=b),
        }
    )
    tree = make_tree(provider)
    run = tree.start()
    await a.until_reached()
    await b.until_reached()

    tree.cancel("1", "took too long")
    event = await tree.saw(AgentCancelled, "1")
    assert tree.of(AgentCompleted) == []
    b.release()
    await run

    assert event.reason == "took too long"
    assert tree.error is None
    assert tree.statuses() == {"root": "completed", "1": "cancelled", "2": "completed"}
    cancelled, completed = tree.result.sub_agent_results
    assert (cancelled.response, cancelled.error) == ("this far I", "took too long")
    assert completed.response == "B said"
    results = requests_of(provider, "root")[1].last_user_text
    assert '<result task="A" status="cancelled">\n    this far I' in results
    assert tree.result.final_response == "without A"
    assert [r.task for r in tree.result.incomplete] == ["A"]


async def test_child_cancelled_before_it_said_anything_is_told_to_its_parent_by_the_reason() -> (
    None
):
    hold = Hold()
    provider = by_agent({"root": [spawn("A"), "ok"], "A": Reply(pause=hold)})
    tree = make_tree(provider)
    run = tree.start()
    await hold.until_reached()

    tree.cancel("1", "not wanted")
    await run

    results = requests_of(provider, "root")[1].last_user_text
    assert '<result task="A" status="cancelled">\n    Error: not wanted\n' in results
    assert "run was cancelled" not in results


@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_agent_is_cancelled_at_any_depth_and_its_parent_brings_the_rest_together(
    depth: int,
) -> None:
    hold = Hold()
    provider = chain(depth, Reply("so far as I know", pause=hold))
    tree = make_tree(provider)
    run = tree.start()
    await hold.until_reached()

    tree.cancel(PATHS[depth])
    await run

    expected = dict.fromkeys(PATHS[:depth], "completed") | {PATHS[depth]: "cancelled"}
    assert tree.statuses() == expected
    parent = requests_of(provider, NAMES[depth - 1])[-1]
    assert 'status="cancelled"' in parent.last_user_text


async def test_inner_parent_is_cancelled_with_its_whole_subtree_and_nothing_else() -> None:
    leaf, other = Hold(), Hold()
    provider = by_agent(
        {
            "root": [spawn("P", "Q"), "ok"],
            "P": spawn("P1", "P2", before="I split it."),
            "P1": "done early",
            "P2": spawn("P21"),
            "P21": Reply("half of this", pause=leaf),
            "Q": Reply("Q said", pause=other),
        }
    )
    tree = make_tree(provider)
    run = tree.start()
    await leaf.until_reached()
    await other.until_reached()

    tree.cancel("1")
    await tree.saw(AgentCancelled, "1")
    other.release()
    await run

    assert tree.statuses() == {
        "root": "completed",
        "1": "cancelled",
        "1.1": "completed",
        "1.2": "cancelled",
        "1.2.1": "cancelled",
        "2": "completed",
    }
    order = [path_of(event.agent_id) for event in tree.of(AgentCancelled)]
    assert order == ["1.2.1", "1.2", "1"]
    assert len(requests_of(provider, "P")) == 1, "no synthesis of what was cancelled"
    left = tree.result.sub_agent_results[0].response
    assert left.startswith("I split it."), "its own words,"
    assert "done early" in left, "and what its children had come to"


async def test_cancelled_task_of_a_sequence_does_not_keep_the_next_one_from_running() -> None:
    hold = Hold()
    provider = by_agent(
        {"root": [spawn("A", "B", mode="sequential"), "ok"], "A": Reply("half of it", pause=hold)}
    )
    tree = make_tree(provider)
    run = tree.start()
    await hold.until_reached()

    tree.cancel("1")
    await run

    assert tree.statuses() == {"root": "completed", "1": "cancelled", "2": "completed"}
    assert "half of it" in requests_of(provider, "B")[0].last_user_text


async def test_cancelled_parent_of_a_sequence_starts_no_further_task() -> None:
    hold = Hold()
    provider = by_agent(
        {
            "root": [spawn("P"), "ok"],
            "P": spawn("A", "B", mode="sequential"),
            "A": Reply("half of it", pause=hold),
        }
    )
    tree = make_tree(provider)
    run = tree.start()
    await hold.until_reached()

    tree.cancel("1")
    await run

    assert [e.task_description for e in tree.of(AgentSpawned)] == ["the task", "P", "A"]
    assert [(r.task, str(r.status)) for r in tree.result.incomplete] == [
        ("P", "cancelled"),
        ("A", "cancelled"),
        ("B", "skipped"),
    ]


async def test_cancelled_root_raises_with_what_was_reached_and_makes_no_synthesis() -> None:
    hold = Hold()
    provider = by_agent(
        {
            "root": spawn("A", "B", before="I split it."),
            "A": "A is done",
            "B": Reply("half of B", pause=hold),
        }
    )
    tree = make_tree(provider)
    run = tree.start()
    await tree.saw(AgentCompleted, "1")
    await hold.until_reached()

    tree.cancel("root", "enough")
    await run

    assert isinstance(tree.error, RunCancelled)
    assert tree.error.reason == "enough"
    assert tree.statuses() == {"root": "cancelled", "1": "completed", "2": "cancelled"}
    assert len(requests_of(provider, "root")) == 1
    result = tree.result
    assert result.status is AgentStatus.CANCELLED
    assert result.pre_spawn_text == "I split it."
    assert [r.response for r in result.sub_agent_results] == ["A is done", "half of B"]
    assert "A is done" in result.final_response
    (finished,) = tree.of(RunFinished)
    assert finished.status is AgentStatus.CANCELLED
    assert "enough" in str(finished.error)


async def test_run_cancelled_before_its_start_still_has_one_terminal_event_and_no_call() -> None:
    provider = ScriptedProvider([])
    tree = make_tree(provider)

    tree.request.cancellation.cancel(None, "changed my mind")
    await tree.run()

    assert provider.requests == []
    assert isinstance(tree.error, RunCancelled)
    assert [e.reason for e in tree.of(AgentCancelled)] == ["changed my mind"]


async def test_child_cancelled_before_its_first_step_has_its_terminal_event_and_no_call() -> None:
    provider = by_agent({"root": [spawn("A", "B"), "ok"]})
    tree = make_tree(provider)
    publish = tree.bus.publish

    def cancel_when_spawned(event: Any) -> Any:
        entry = publish(event)
        if isinstance(event, AgentSpawned) and event.task_description == "A":
            tree.cancel("1")
        return entry

    tree.bus.publish = cancel_when_spawned  # type: ignore[method-assign]
    await tree.run()

    assert tree.statuses() == {"root": "completed", "1": "cancelled", "2": "completed"}
    assert requests_of(provider, "A") == []


async def test_children_of_a_parent_that_was_cancelled_meanwhile_make_no_call() -> None:
    provider = by_agent({"root": [spawn("P"), "ok"], "P": spawn("A", "B")})
    tree = make_tree(provider)
    publish = tree.bus.publish

    def cancel_when_planned(event: Any) -> Any:
        entry = publish(event)
        if isinstance(event, ModelCallFinished) and path_of(event.agent_id) == "1":
            tree.cancel("1")
        return entry

    tree.bus.publish = cancel_when_planned  # type: ignore[method-assign]
    await tree.run()

    assert requests_of(provider, "A") == requests_of(provider, "B") == []
    assert tree.statuses() == {
        "root": "completed",
        "1": "cancelled",
        "1.1": "cancelled",
        "1.2": "cancelled",
    }


async def test_second_cancel_does_nothing() -> None:
    hold = Hold()
    tree = make_tree(ScriptedProvider([Reply("half of it", pause=hold)]))
    run = tree.start()
    await hold.until_reached()

    first = tree.request.cancellation.cancel(None, "first")
    second = tree.request.cancellation.cancel(None, "second")
    await run

    assert [scope.agent_id for scope in first] == [tree.id_of("root")]
    assert second == []
    assert [e.reason for e in tree.of(AgentCancelled)] == ["first"]
    assert tree.request.cancellation.cancel(None, "third") == []


async def test_cancelled_call_is_closed_counted_and_told_as_cancelled() -> None:
    hold = Hold()
    tree = make_tree(ScriptedProvider([Reply("half of it", pause=hold)]))
    run = tree.start()
    await hold.until_reached()

    tree.cancel("root")
    await run

    (call,) = tree.of(ModelCallFinished)
    assert call.error == "cancelled"
    assert call.stop_reason is None
    assert call.usage.input_tokens > 0
    assert call.usage.output_tokens > 0
    assert tree.request.budget.tokens_used == call.usage.budget_tokens
    assert tree.request.budget.reserved == 0


class _Silent:
    """Says nothing, and takes its time to hang up."""

    name = "silent"

    def __init__(self) -> None:
        self.began, self.let_go, self.closed = asyncio.Event(), asyncio.Event(), False

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        self.began.set()
        try:
            await asyncio.Event().wait()
            yield TextDelta("never")
        finally:
            await self.let_go.wait()
            self.closed = True


async def test_terminal_event_comes_only_when_the_agent_has_really_stopped() -> None:
    provider = _Silent()
    tree = make_tree(provider)
    run = tree.start()
    await provider.began.wait()

    tree.cancel("root")
    for _ in range(10):
        await asyncio.sleep(0)
    assert tree.of(AgentCancelled) == []
    provider.let_go.set()
    await run

    assert provider.closed
    assert len(tree.of(AgentCancelled)) == 1


async def test_cancel_interrupts_a_retry_wait() -> None:
    tree = make_tree(
        ScriptedProvider([RateLimited("slow down", retry_after_s=50)]),
        clock=ManualClock(),
    )
    run = tree.start()
    await tree.saw(AgentWaiting)

    tree.cancel("root")
    await run

    assert tree.statuses() == {"root": "cancelled"}


async def test_cancel_interrupts_a_wait_for_a_slot() -> None:
    hold = Hold()
    provider = by_agent({"root": [spawn("A", "B"), "ok"], "A": Reply("half of it", pause=hold)})
    tree = make_tree(provider, gate=ConcurrencyGate(1))
    run = tree.start()
    await tree.saw(AgentWaiting, "2")

    tree.cancel("2")
    await tree.saw(AgentCancelled, "2")
    hold.release()
    await run

    assert tree.statuses() == {"root": "completed", "1": "completed", "2": "cancelled"}
    assert requests_of(provider, "B") == []


async def test_cancel_interrupts_a_wait_for_room_in_the_budget() -> None:
    hold = Hold()
    provider = by_agent({"root": [spawn("A", "B"), "ok"], "A": Reply("half of it", pause=hold)})
    probe = await make_tree(by_agent({"root": [spawn("A", "B"), "ok"]}), max_depth=1).run()
    planned = probe.of(ModelCallFinished)[0].usage.total_tokens
    tree = make_tree(provider, budget=planned + 512 + 500, max_depth=1)
    run = tree.start()
    await tree.saw(AgentWaiting, "2")

    tree.cancel("2")
    await tree.saw(AgentCancelled, "2")
    hold.release()
    await run

    assert tree.statuses() == {"root": "completed", "1": "completed", "2": "cancelled"}


async def test_cancel_reaches_a_tool_of_the_runs_own_loop() -> None:
    class Slow:
        spec = ToolSpec("slow", "Takes long.", {"type": "object"})
        was_cancelled = False

        async def call(self, input: Mapping[str, Any], context: ToolContext) -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.was_cancelled = True
                raise
            return "never"

    tool = Slow()
    order = Reply("I use it.", tool_uses=(ToolUse("t1", "slow", {}),))
    tree = make_tree(ScriptedProvider([order]), tools=[tool])
    run = tree.start()
    await tree.saw(ToolCallStarted)

    tree.cancel("root")
    await run

    assert tool.was_cancelled
    assert tree.statuses() == {"root": "cancelled"}


async def test_cancel_in_the_synthesis_keeps_what_it_had_said() -> None:
    hold = Hold()
    provider = by_agent({"root": [spawn("A"), Reply("bringing it all together", pause=hold)]})
    tree = make_tree(provider)
    run = tree.start()
    await hold.until_reached()

    tree.cancel("root")
    await run

    assert "bringing it all" in tree.result.final_response
    assert "done: A" in tree.result.final_response
    assert tree.statuses() == {"root": "cancelled", "1": "completed"}


async def test_half_a_block_does_not_show_in_what_a_cancelled_agent_said() -> None:
    hold = Hold()

    async def stream(request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        yield TextDelta('My plan. <spawn_agents mode="par')
        await hold()

    provider = ScriptedProvider([])
    provider.stream = stream  # type: ignore[method-assign]
    tree = make_tree(provider)
    run = tree.start()
    await hold.until_reached()

    tree.cancel("root")
    await run

    assert tree.of(AgentCancelled)[0].text == "My plan."


async def test_run_whose_task_is_cancelled_from_outside_stops_its_whole_tree() -> None:
    hold = Hold()
    provider = by_agent({"root": [spawn("A")], "A": Reply("half of it", pause=hold)})
    tree = make_tree(provider)
    run = asyncio.create_task(
        tree.orchestrator.execute(tree.provider, tree.context, "the task", tree.request, tree.bus)
    )
    await hold.until_reached()

    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert [path_of(e.agent_id) for e in tree.of(AgentCancelled)] == ["1", "root"]
    assert isinstance(tree.events[-1], RunFinished)
    assert asyncio.all_tasks() == {asyncio.current_task()}
