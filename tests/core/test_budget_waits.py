"""A call that waits for something else than room ends with the pot, and does not sit it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from agentnb.core.errors import Overloaded
from agentnb.core.events import AgentExhausted, AgentWaiting, BudgetExhausted
from agentnb.core.types import Usage
from agentnb.providers.gate import ConcurrencyGate
from agentnb.providers.scripted import Reply
from tests.core.clock import ManualClock, everyone_waits
from tests.support import Hold, Tree, by_agent, make_tree, run_tree, spawn

BUSY = Overloaded("busy", retry_after_s=50)


def waiting_to_retry() -> tuple[Tree, Hold]:
    """`A` streams, `B` waits before another attempt."""
    hold = Hold()
    replies: dict[str, Any] = {
        "root": [spawn("A", "B"), "together"],
        "A": Reply("what A says", pause=hold),
        "B": [BUSY, "never asked"],
    }
    return make_tree(by_agent(replies), clock=ManualClock(), budget=100_000), hold


def waiting_out_a_limit() -> tuple[Tree, Hold]:
    """`A` streams, and meanwhile its model was told to slow down: `B` is held back at the gate."""
    clock, hold = ManualClock(), Hold()
    gate = ConcurrencyGate(8, clock=clock)

    async def slowed_down() -> None:
        gate.throttle("scripted", 50)
        await hold()

    replies: dict[str, Any] = {
        "root": [spawn("A", "B"), "together"],
        "A": Reply("what A says", pause=slowed_down),
        "B": "never asked",
    }
    return make_tree(by_agent(replies), clock=clock, gate=gate, budget=100_000), hold


def waiting_for_a_slot() -> tuple[Tree, Hold]:
    """`A` has the only slot."""
    clock, hold = ManualClock(), Hold()
    replies: dict[str, Any] = {
        "root": [spawn("A", "B"), "together"],
        "A": Reply("what A says", pause=hold),
        "B": "never asked",
    }
    gate = ConcurrencyGate(1, clock=clock)
    return make_tree(by_agent(replies), clock=clock, gate=gate, budget=100_000), hold


WAITS = [
    pytest.param(waiting_to_retry, "to try again after: busy", id="to retry"),
    pytest.param(waiting_out_a_limit, "the provider's rate limit", id="a limit"),
    pytest.param(waiting_for_a_slot, "one of 1 slots for calls to scripted", id="a slot"),
]
"""A tree in which agent 2 waits, and the reason that it gives."""


@pytest.mark.parametrize(("waits", "reason"), WAITS)
async def test_total_set_to_nothing_ends_every_wait_at_once(
    waits: Callable[[], tuple[Tree, Hold]], reason: str
) -> None:
    tree, hold = waits()
    run = tree.start()
    await hold.until_reached()
    assert (await tree.saw(AgentWaiting, "2")).reason == reason

    tree.request.budget.set_total(0)
    await run  # though nobody let the time pass

    assert tree.statuses() == {"root": "exhausted", "1": "exhausted", "2": "exhausted"}
    [told] = tree.of(AgentExhausted, "2")
    assert told.reason.startswith("the total was set to 0 tokens")
    assert len(tree.of(BudgetExhausted)) == 1
    assert "what A says" in tree.result.final_response


@pytest.mark.parametrize(("waits", "reason"), WAITS)
async def test_cancel_ends_every_wait_at_once_and_its_sibling_goes_on(
    waits: Callable[[], tuple[Tree, Hold]], reason: str
) -> None:
    tree, hold = waits()
    run = tree.start()
    await hold.until_reached()
    assert (await tree.saw(AgentWaiting, "2")).reason == reason

    tree.cancel("2")
    await everyone_waits()
    hold.release()
    if waits is waiting_out_a_limit:  # the synthesis is held back, too
        await everyone_waits()
        clock = tree.request.clock
        assert isinstance(clock, ManualClock)
        clock.advance(50)
    await run

    assert tree.statuses() == {"root": "completed", "1": "completed", "2": "cancelled"}


async def test_stop_at_the_warning_ends_a_wait_and_leaves_the_synthesis_its_own() -> None:
    tree, hold = waiting_to_retry()
    tree.request.on_budget_warning = "stop"
    replies: dict[str, Any] = {
        "root": [spawn("A", "B"), BUSY, "what there is"],
        "A": Reply("what A says", pause=hold, usage=Usage(85_000, 0)),
        "B": [BUSY, "never asked"],
    }
    tree.provider = by_agent(replies)
    run = tree.start()
    await hold.until_reached()
    await tree.saw(AgentWaiting, "2")

    hold.release()
    waiting = await tree.saw(AgentWaiting, "root")
    assert waiting.wait_s == 50
    clock = tree.request.clock
    assert isinstance(clock, ManualClock)
    clock.advance(50)
    await run

    assert tree.statuses() == {"root": "exhausted", "1": "completed", "2": "exhausted"}
    assert tree.result.final_response == "what there is"


async def test_call_that_comes_after_the_end_does_not_wait_out_a_limit() -> None:
    clock, hold = ManualClock(), Hold()
    gate = ConcurrencyGate(8, clock=clock)
    replies: dict[str, Any] = {
        "root": [spawn("one"), "never asked"],
        "one": [spawn("A"), "never asked"],
        "A": Reply("what A says", pause=hold),
    }
    tree = make_tree(by_agent(replies), clock=clock, gate=gate)
    run = tree.start()
    await hold.until_reached()
    gate.throttle("scripted", 3600)

    tree.request.budget.set_total(1)
    await run

    assert tree.statuses() == {"root": "exhausted", "1": "exhausted", "1.1": "exhausted"}
    assert tree.of(AgentExhausted, "1")[0].reason == "all of 1 tokens are used"


async def test_raised_total_does_not_cut_a_wait_short() -> None:
    tree, hold = waiting_to_retry()
    run = tree.start()
    await hold.until_reached()
    await tree.saw(AgentWaiting, "2")

    tree.request.budget.set_total(200_000)
    hold.release()
    await everyone_waits()
    assert not run.done()
    clock = tree.request.clock
    assert isinstance(clock, ManualClock)
    clock.advance(50)
    await run

    assert tree.statuses() == {"root": "completed", "1": "completed", "2": "completed"}


class LateGate:
    """Somebody's own gate, with a time limit of its own."""

    def acquire(self, model: str, *, on_wait: Any) -> NoReturn:
        raise TimeoutError("the gate did not open")

    def throttle(self, model: str, seconds: float) -> None:
        raise AssertionError


async def test_gates_own_timeout_is_not_taken_for_the_end_of_the_pot() -> None:
    tree = await run_tree(by_agent({"root": "hello"}), gate=LateGate())

    assert "TimeoutError" in str(tree.error)
    assert "the gate did not open" in str(tree.error)
    assert tree.of(BudgetExhausted) == []
