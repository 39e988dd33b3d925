"""A person pauses a run or a branch: nothing new of it begins, and what is open runs to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from agentnb.core._call.services import WAITS_FOR_ROOM
from agentnb.core.errors import AgentEnded, RunCancelled
from agentnb.core.events import (
    AgentCompleted,
    AgentSpawned,
    AgentWaiting,
    BudgetPaused,
    BudgetResumed,
    Event,
    LimitReached,
    ModelCallFinished,
    ModelCallStarted,
    RunPaused,
    RunResumed,
    RunStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from agentnb.core.pauses import PAUSED
from agentnb.core.protocols import ToolContext
from agentnb.core.tree import TreeFold
from agentnb.core.types import AgentStatus, Usage
from agentnb.providers.scripted import Reply
from tests.core.clock import ManualClock, everyone_waits
from tests.core.pausing import check_pauses
from tests.core.random_trees import WatchedGate
from tests.core.tool_bodies import Tool, order
from tests.support import Hold, Tree, by_agent, make_tree, spawn


def pause(tree: Tree, path: str | None = None) -> None:
    tree.request.pauses.pause(None if path is None else tree.id_of(path), "code")


def resume(tree: Tree, path: str | None = None) -> None:
    tree.request.pauses.resume(None if path is None else tree.id_of(path), "code")


def paused(tree: Tree) -> list[str]:
    """Where a pause stands."""
    return list(tree.request.pauses.paused)


def began(tree: Tree) -> list[Event]:
    return [*tree.of(ModelCallStarted), *tree.of(ToolCallStarted)]


def waits(tree: Tree) -> list[str]:
    """Paths of the agents that are shown as paused now."""
    agents = TreeFold(tree.entries).in_path_order()
    return [each.path for each in agents if each.waiting_for == PAUSED]


def pair(**more: Any) -> tuple[Tree, Hold]:
    """Two agents: the first in mid-stream before a second turn, the second in a branch of its own.

    Returns the tree, and what holds the first one's call.
    """
    hold = Hold()
    tree = make_tree(
        by_agent(
            {
                "root": [spawn("A", "B"), "together"],
                "A": [Reply(spawn("A1"), pause=hold), "A is done"],
                "B": [Reply(spawn("B1"), pause=more.pop("also", None)), "B is done"],
            }
        ),
        **more,
    )
    return tree, hold


async def test_paused_run_begins_nothing_and_what_is_open_runs_to_its_end() -> None:
    tree, hold = pair()
    run = tree.start()
    await hold.until_reached()
    pause(tree)
    before = len(began(tree))
    await everyone_waits()
    assert tree.of(ModelCallFinished, "1") == []
    hold.release()
    await everyone_waits()

    assert tree.of(ModelCallFinished, "1")  # it was open
    assert tree.of(AgentSpawned, "1.1")  # told, but it does nothing
    assert len(began(tree)) == before
    assert set(waits(tree)) >= {"1.1"}
    assert paused(tree) == ["root"]

    resume(tree)
    await run
    check_pauses(tree.entries)
    assert tree.result.final_response == "together"
    assert set(tree.statuses().values()) == {"completed"}
    assert [(each.agent_id, each.by) for each in tree.of(RunPaused)] == [(None, "code")]
    assert [(each.agent_id, each.by) for each in tree.of(RunResumed)] == [(None, "code")]


async def test_paused_branch_waits_and_its_siblings_go_on() -> None:
    tree, hold = pair()
    run = tree.start()
    await hold.until_reached()
    pause(tree, "1")
    hold.release()
    await tree.saw(AgentCompleted, "2")
    await everyone_waits()

    assert tree.of(ModelCallStarted, "1.1") == []
    assert waits(tree) == ["1.1"]  # its parent waits for it, as always
    resume(tree, "1")
    await run
    check_pauses(tree.entries)
    assert [each.agent_id for each in tree.of(RunPaused)] == [tree.id_of("1")]
    assert tree.result.final_response == "together"


async def test_pause_at_the_root_holds_the_synthesis_too() -> None:
    hold = Hold()
    tree = make_tree(by_agent({"root": [spawn("A"), "together"], "A": Reply("a", pause=hold)}))
    run = tree.start()
    await hold.until_reached()
    pause(tree)
    hold.release()
    await tree.saw(AgentCompleted, "1")
    await everyone_waits()

    assert len(tree.of(ModelCallStarted, "root")) == 1
    assert waits(tree) == ["root"]
    resume(tree)
    assert (await run).result.final_response == "together"


async def test_tools_of_a_reply_wait_and_then_run_in_its_order() -> None:
    hold, ran = Hold(), list[str]()

    async def body(input: Mapping[str, Any], context: ToolContext) -> str:
        ran.append(context.path)
        return "seen"

    asks = order("look", "look")
    tree = make_tree(
        by_agent({"root": [Reply(asks.text, tool_uses=asks.tool_uses, pause=hold), "Seen."]}),
        tools=[Tool(body)],
    )
    run = tree.start()
    await hold.until_reached()
    pause(tree)
    hold.release()
    await everyone_waits()

    assert tree.of(ToolCallStarted) == [] == ran
    assert [each.reason for each in tree.of(AgentWaiting)] == [PAUSED]  # once, for both
    assert waits(tree) == ["root"]
    resume(tree)
    await run
    assert [each.tool_use_id for each in tree.of(ToolCallStarted)] == ["t1", "t2"]
    assert waits(tree) == []


async def test_open_tool_runs_to_its_end_and_is_told_so() -> None:
    at_work, may_end = asyncio.Event(), asyncio.Event()

    async def body(input: Mapping[str, Any], context: ToolContext) -> str:
        at_work.set()
        await may_end.wait()
        return "seen"

    tree = make_tree(by_agent({"root": [order("look"), "Seen."]}), tools=[Tool(body)])
    run = tree.start()
    await at_work.wait()
    pause(tree)
    may_end.set()
    await tree.saw(ToolCallFinished)
    await everyone_waits()

    assert len(tree.of(ModelCallStarted)) == 1
    resume(tree)
    assert (await run).result.final_response == "Seen."


async def test_hundred_agents_wake_through_the_gate() -> None:
    """A pause that begins while they wait at the gate: each is looked at again behind it."""
    clock = ManualClock()
    gate, hold = WatchedGate(3, clock), Hold()
    names = [f"agent {n}" for n in range(100)]
    tree = make_tree(
        by_agent(
            {
                "root": [spawn(*names), "together"],
                **{name: Reply("one of the first", pause=hold) for name in names[:3]},
            }
        ),
        gate=gate,
        clock=clock,
    )
    run = tree.start()
    await hold.until_reached()
    await everyone_waits()
    pause(tree)
    hold.release()
    for _ in names:  # each has its turn at the gate
        await everyone_waits()
    assert len(tree.of(ModelCallStarted)) == 1 + 3
    assert len(waits(tree)) == 97
    assert gate.inside.total() == 0

    resume(tree)
    await run
    check_pauses(tree.entries)
    assert gate.most_inside == 3
    assert set(tree.statuses().values()) == {"completed"}


async def test_call_that_waits_for_room_in_a_paused_branch_leaves_the_room_to_others() -> None:
    hold, also = Hold(), Hold()
    one, other = (f"{name} has more to read. " * 300 for name in "XY")
    small = Usage(10, 10)
    tree = make_tree(
        by_agent(
            {
                "root": [Reply(spawn("A", "B", one, other), usage=small), "together"],
                "A": Reply("a short answer", pause=hold, usage=small),
                "B": Reply("a short answer", pause=also, usage=small),
                one.strip(): Reply("X is done", usage=small),
                other.strip(): Reply("Y is done", usage=small),
            }
        ),
        budget=5_050,  # beside A and B for none of them, beside B for one at a time
        max_depth=1,
    )
    run = tree.start()
    await also.until_reached()
    await everyone_waits()
    assert [tree.of(AgentWaiting, path)[-1].reason for path in ("3", "4")] == [WAITS_FOR_ROOM] * 2
    pause(tree, "3")
    hold.release()
    await everyone_waits()
    assert len(tree.of(AgentCompleted, "4")) == 1
    assert waits(tree) == ["3"]
    also.release()
    resume(tree)
    await run
    check_pauses(tree.entries)


# -- several pauses --------------------------------------------------------------------------------


async def test_pause_in_a_pause_holds_until_each_that_is_above_has_ended() -> None:
    tree, hold = pair()
    run = tree.start()
    await hold.until_reached()
    for path in ("1", None, "1", None):  # twice: that changes nothing and tells nothing
        pause(tree, path)
    assert [each.agent_id for each in tree.of(RunPaused)] == [tree.id_of("1"), None]
    hold.release()
    await everyone_waits()

    resume(tree, "2")  # nothing stands there
    resume(tree, "1")
    await everyone_waits()
    assert tree.of(ModelCallStarted, "1.1") == []
    assert paused(tree) == ["root"]
    pause(tree, "1.1")
    resume(tree, "1")  # and below
    assert paused(tree) == ["root"]
    pause(tree, "1.1")
    resume(tree)  # all of them
    assert paused(tree) == []
    await run
    check_pauses(tree.entries)
    assert len(tree.of(RunPaused)) == len(tree.of(RunResumed)) == 4


async def test_pause_before_the_run_has_begun_counts_and_is_told_behind_its_start() -> None:
    tree = make_tree(by_agent({"root": "done"}))
    pause(tree)
    assert paused(tree) == ["root"]
    run = tree.start()
    await everyone_waits()

    assert began(tree) == []
    assert [type(event) for event in tree.events[:2]] == [RunStarted, RunPaused]
    resume(tree)
    assert (await run).result.final_response == "done"


async def test_ended_agent_and_ended_run_are_neither_paused_nor_resumed() -> None:
    tree, hold = pair()
    run = tree.start()
    await hold.until_reached()
    await tree.saw(AgentCompleted, "2")
    for act in (pause, resume):
        with pytest.raises(AgentEnded) as raised:
            act(tree, "2")
        assert raised.value.path == "2"
    hold.release()
    await run
    for act in (pause, resume):
        with pytest.raises(AgentEnded) as raised:
            act(tree)
        assert raised.value.path == "root"


async def test_pause_ends_untold_with_its_agent() -> None:
    tree, hold = pair()
    run = tree.start()
    await hold.until_reached()
    pause(tree, "1")
    tree.cancel("1")
    await run
    assert paused(tree) == []
    assert tree.of(RunResumed) == []
    assert tree.statuses()["1"] == "cancelled"
    check_pauses(tree.entries)


# -- cancels, limits -------------------------------------------------------------------------------


async def test_cancel_ends_what_is_held_at_once() -> None:
    tree, hold = pair()
    run = tree.start()
    await hold.until_reached()
    pause(tree)
    hold.release()
    await everyone_waits()
    tree.cancel("1.1")
    await everyone_waits()
    ended = {node.path: node.status for node in TreeFold(tree.entries).root().walk()}  # type: ignore[union-attr]
    assert ended["1.1"] is AgentStatus.CANCELLED
    tree.request.cancellation.cancel(None, "enough")
    await run
    assert isinstance(tree.error, RunCancelled)
    check_pauses(tree.entries)


async def test_total_below_what_is_used_ends_a_paused_run() -> None:
    tree, hold = pair()
    run = tree.start()
    await hold.until_reached()
    pause(tree)
    hold.release()
    await everyone_waits()
    tree.request.budget.set_total(1)
    await run
    assert tree.result.status is AgentStatus.EXHAUSTED
    check_pauses(tree.entries)


async def test_budget_that_ends_in_a_pause_ends_what_is_held_and_the_synthesis_waits() -> None:
    """The question is asked while the run is paused, and nobody wants to go on."""
    hold = Hold()
    tree = make_tree(
        by_agent(
            {
                "root": [spawn("A", "B"), "what there is"],
                "A": [Reply(spawn("A1"), usage=Usage(85_000, 0), pause=hold), "a"],
            }
        ),
        budget=100_000,
        is_attended=lambda: True,
    )
    run = tree.start()
    await hold.until_reached()
    await everyone_waits()
    pause(tree)
    hold.release()
    await tree.saw(BudgetPaused)
    await everyone_waits()
    tree.request.answer_budget("stop")
    await everyone_waits()
    assert waits(tree) == ["root"]
    resume(tree)
    await run
    assert tree.result.final_response == "what there is"
    assert tree.statuses()["1.1"] == "exhausted"
    check_pauses(tree.entries)


def timed(**more: Any) -> tuple[Tree, Hold, ManualClock]:
    clock = ManualClock()
    tree, hold = pair(clock=clock, max_time_s=60, **more)
    return tree, hold, clock


async def test_time_stands_still_while_the_run_is_paused() -> None:
    tree, hold, clock = timed()
    run = tree.start()
    await hold.until_reached()
    clock.advance(59)
    pause(tree)
    clock.advance(500)
    resume(tree)
    clock.advance(0.5)
    await everyone_waits()
    assert tree.of(LimitReached) == []
    clock.advance(0.5)
    await run
    assert len(tree.of(LimitReached)) == 1


@pytest.mark.parametrize("first", ["the pause", "the question"])
async def test_time_stands_still_until_pause_and_question_have_both_ended(first: str) -> None:
    hold, clock = Hold(), ManualClock()
    tree = make_tree(
        by_agent(
            {
                "root": [spawn("A"), "what there is"],
                "A": [Reply(spawn("A1"), usage=Usage(85_000, 0)), "a"],
                "A1": Reply("a1", pause=hold),
            }
        ),
        budget=100_000,
        is_attended=lambda: True,
        clock=clock,
        max_time_s=60,
        pause_timeout_s=10_000,
    )
    run = tree.start()
    await tree.saw(BudgetPaused)
    pause(tree)
    clock.advance(500)
    ends: list[Callable[[], None]] = [
        lambda: resume(tree),
        lambda: tree.request.answer_budget("continue"),
    ]
    for end in ends if first == "the pause" else reversed(ends):
        clock.advance(500)
        await everyone_waits()
        end()
    assert len(tree.of(BudgetResumed)) == len(tree.of(RunResumed)) == 1
    await hold.until_reached()
    clock.advance(59)
    await everyone_waits()
    assert tree.of(LimitReached) == []
    clock.advance(1)
    await run
    assert len(tree.of(LimitReached)) == 1


async def test_time_goes_on_while_a_branch_is_paused_and_reaches_what_is_held() -> None:
    asks, hold = order("look"), Hold()
    clock = ManualClock()

    async def body(input: Mapping[str, Any], context: ToolContext) -> str:
        raise AssertionError("it may not run")

    tree = make_tree(
        by_agent(
            {
                "root": [spawn("A", "B"), "what there is"],
                "A": [Reply(asks.text, tool_uses=asks.tool_uses, pause=hold), "a"],
                "B": [Reply(spawn("B1")), "b"],
            }
        ),
        tools=[Tool(body)],
        clock=clock,
        max_time_s=60,
    )
    run = tree.start()
    await hold.until_reached()
    pause(tree, "1")
    hold.release()
    await everyone_waits()
    assert waits(tree) == ["1"]
    clock.advance(60)
    await run
    assert tree.statuses()["1"] == "exhausted"
    assert [each.is_error for each in tree.of(ToolCallFinished, "1")] == [True]
    assert len(tree.of(ModelCallStarted, "1")) == 1
