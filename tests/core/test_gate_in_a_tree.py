"""A tree at its gate: slowed together, told with seconds, and no slot held by one who waits."""

from __future__ import annotations

from typing import Any

from agentnb.core.errors import Overloaded, RateLimited
from agentnb.core.events import AgentCompleted, AgentWaiting, ModelCallStarted
from agentnb.core.types import Usage
from agentnb.providers.gate import ConcurrencyGate
from agentnb.providers.scripted import Reply
from tests.core.clock import ManualClock, everyone_waits
from tests.support import Hold, Tree, by_agent, make_tree, spawn


def gated(replies: dict[str, Any], slots: int, **limits: Any) -> tuple[Tree, ManualClock]:
    clock = ManualClock()
    gate = ConcurrencyGate(slots, clock=clock)
    return make_tree(by_agent(replies), clock=clock, gate=gate, **limits), clock


async def test_limit_for_one_slows_its_siblings_and_each_says_for_how_long() -> None:
    tree, clock = gated(
        {
            "root": [spawn("A", "B", "C"), "together"],
            "A": [RateLimited("slow down", retry_after_s=40), "A at last"],
        },
        slots=1,
    )
    run = tree.start()
    await everyone_waits()

    waits = {path: tree.of(AgentWaiting, path)[-1] for path in ("1", "2")}
    assert (waits["1"].wait_s, waits["1"].attempt) == (40, 2)
    assert waits["1"].reason == "to try again after: slow down"
    assert (waits["2"].wait_s, waits["2"].reason) == (40, "the provider's rate limit")
    assert tree.of(ModelCallStarted, "2") == tree.of(ModelCallStarted, "3") == []

    clock.advance(39)
    await everyone_waits()
    assert tree.of(ModelCallStarted, "2") == []
    clock.advance(1)
    await run

    assert set(tree.statuses().values()) == {"completed"}


async def test_agent_that_waits_to_try_again_leaves_its_slot_to_others() -> None:
    tree, clock = gated(
        {
            "root": [spawn("A", "B", "C"), "together"],
            "A": [Overloaded("busy", retry_after_s=50), "A at last"],
        },
        slots=1,
    )
    run = tree.start()
    await tree.saw(AgentCompleted, "2")
    await tree.saw(AgentCompleted, "3")

    assert tree.of(AgentCompleted, "1") == []
    clock.advance(50)
    await run
    assert set(tree.statuses().values()) == {"completed"}


async def test_agent_that_waits_for_room_leaves_its_slot_to_others() -> None:
    hold = Hold()
    long = "B has more to read. " * 400
    tree, _ = gated(
        {
            "root": [spawn("A", long, "C"), "together"],
            # They count as next to nothing once they are settled.
            "A": Reply("a short answer", pause=hold, usage=Usage(10, 10)),
            long.strip(): "B is done",
            "C": Reply("C is done", usage=Usage(10, 10)),
        },
        slots=2,
        budget=9_250,
        max_depth=1,
    )
    run = tree.start()
    await tree.saw(AgentCompleted, "3")

    waiting = tree.of(AgentWaiting, "2")[-1]
    assert waiting.reason == "room in the budget, until other calls settle"
    assert tree.of(AgentCompleted, "1") == []
    hold.release()
    await run
    assert {tree.statuses()[path] for path in ("1", "2", "3")} == {"completed"}


async def test_wait_for_a_slot_is_told_once_and_ends_with_the_slot() -> None:
    hold = Hold()
    tree, _ = gated(
        {"root": [spawn("A", "B"), "together"], "A": Reply("A takes its time", pause=hold)}, slots=1
    )
    run = tree.start()
    await hold.until_reached()
    await everyone_waits()

    [waiting] = tree.of(AgentWaiting, "2")
    assert waiting.reason == "one of 1 slots for calls to scripted"
    hold.release()
    await run
    assert set(tree.statuses().values()) == {"completed"}
