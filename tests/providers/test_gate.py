"""So many calls to one model at once, and all of its calls slowed when one was told to slow."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from agentnb.providers.gate import ConcurrencyGate
from tests.core.clock import ManualClock, everyone_waits


class Caller:
    """A call that waits for its slot, holds it until told to end, and keeps what it was told."""

    def __init__(self, gate: ConcurrencyGate, model: str = "m") -> None:
        self.waits: list[tuple[str, float | None]] = []
        self.is_in = False
        self.may_end = asyncio.Event()
        self.task = asyncio.create_task(self._call(gate, model))

    async def _call(self, gate: ConcurrencyGate, model: str) -> None:
        async with gate.acquire(model, on_wait=lambda why, s: self.waits.append((why, s))):
            self.is_in = True
            try:
                await self.may_end.wait()
            finally:
                self.is_in = False


async def callers(gate: ConcurrencyGate, count: int, model: str = "m") -> list[Caller]:
    made = [Caller(gate, model) for _ in range(count)]
    await everyone_waits()
    return made


async def end(all_of_them: list[Caller]) -> None:
    for caller in all_of_them:
        caller.may_end.set()
    await asyncio.gather(*[caller.task for caller in all_of_them])


async def test_so_many_calls_are_open_at_once_and_the_next_one_says_what_it_waits_for() -> None:
    calls = await callers(ConcurrencyGate(2, clock=ManualClock()), 4)

    assert [call.is_in for call in calls] == [True, True, False, False]
    assert calls[0].waits == calls[1].waits == []
    assert calls[2].waits == calls[3].waits == [("one of 2 slots for calls to m", None)]

    calls[1].may_end.set()
    await everyone_waits()
    assert [call.is_in for call in calls] == [True, False, True, False]
    await end(calls)


async def test_models_do_not_wait_for_each_other() -> None:
    gate = ConcurrencyGate(1, clock=ManualClock())
    calls = await callers(gate, 1, "a") + await callers(gate, 1, "b")

    assert [call.is_in for call in calls] == [True, True]
    await end(calls)


async def test_call_that_fails_gives_its_slot_back() -> None:
    gate = ConcurrencyGate(1, clock=ManualClock())
    with pytest.raises(LookupError):
        async with gate.acquire("m", on_wait=lambda *_: None):
            raise LookupError

    (call,) = await callers(gate, 1)
    assert call.is_in
    await end([call])


@pytest.mark.parametrize("held", [True, False])
async def test_cancelled_call_gives_its_place_back_whether_it_was_in_or_waited(held: bool) -> None:
    first, second, third = await callers(ConcurrencyGate(1, clock=ManualClock()), 3)
    gone = first if held else second
    gone.task.cancel()
    await everyone_waits()

    if not held:
        first.may_end.set()
        await everyone_waits()
    assert (second if held else third).is_in
    await end([call for call in (first, second, third) if call is not gone])


async def test_throttle_keeps_every_new_call_of_that_model_waiting_and_no_other() -> None:
    clock = ManualClock()
    gate = ConcurrencyGate(clock=clock)
    gate.throttle("m", 7.0)
    slowed, other = await callers(gate, 3), await callers(gate, 1, "other")

    assert other[0].is_in
    assert [call.is_in for call in slowed] == [False] * 3
    assert [call.waits for call in slowed] == [[("the provider's rate limit", 7.0)]] * 3

    clock.advance(6.9)
    await everyone_waits()
    assert not any(call.is_in for call in slowed)
    clock.advance(0.1)
    await everyone_waits()
    assert all(call.is_in for call in slowed)
    assert [len(call.waits) for call in slowed] == [1] * 3
    await end([*slowed, *other])


async def test_calls_that_are_open_are_not_held_back() -> None:
    gate = ConcurrencyGate(1, clock=ManualClock())
    calls = await callers(gate, 1)
    gate.throttle("m", 7.0)
    await everyone_waits()

    assert calls[0].is_in
    await end(calls)


async def test_call_that_waits_out_a_limit_holds_no_slot() -> None:
    clock = ManualClock()
    gate = ConcurrencyGate(1, clock=clock)
    gate.throttle("m", 5.0)
    waiting = await callers(gate, 1)
    waiting[0].task.cancel()
    clock.advance(5.0)
    await everyone_waits()

    (call,) = await callers(gate, 1)
    assert call.is_in
    assert call.waits == []
    assert clock.pending == 0
    await end([call])


async def test_call_that_queued_for_a_slot_waits_out_a_limit_that_came_meanwhile() -> None:
    clock = ManualClock()
    gate = ConcurrencyGate(1, clock=clock)
    first, second = await callers(gate, 2)
    gate.throttle("m", 5.0)
    await end([first])
    await everyone_waits()

    assert second.waits == [
        ("one of 1 slots for calls to m", None),
        ("the provider's rate limit", 5.0),
    ]
    clock.advance(4.9)
    await everyone_waits()
    assert [second.is_in] == [False]
    clock.advance(0.1)
    await everyone_waits()
    assert second.is_in
    await end([second])


async def test_longest_limit_counts_and_a_longer_one_that_comes_meanwhile_is_reported() -> None:
    clock = ManualClock()
    gate = ConcurrencyGate(1, clock=clock)
    gate.throttle("m", 5.0)
    gate.throttle("m", 2.0)
    (call,) = await callers(gate, 1)
    clock.advance(4.0)
    gate.throttle("m", 10.0)
    clock.advance(1.0)
    await everyone_waits()

    assert [call.is_in] == [False]
    assert [seconds for _, seconds in call.waits] == [5.0, 9.0]
    clock.advance(9.0)
    await everyone_waits()
    assert call.is_in
    await end([call])


async def test_never_more_than_so_many_are_open_whatever_comes_and_goes() -> None:
    gate = ConcurrencyGate(3, clock=ManualClock())
    most = open_now = 0

    async def call() -> None:
        nonlocal most, open_now
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(gate.acquire("m", on_wait=lambda *_: None))
            open_now += 1
            most = max(most, open_now)
            await asyncio.sleep(0)
            open_now -= 1

    await asyncio.gather(*[call() for _ in range(50)])

    assert (most, open_now) == (3, 0)


def test_limit_of_thirty_two_holds_unless_said_otherwise() -> None:
    assert ConcurrencyGate().max_concurrency == 32


@pytest.mark.parametrize("wrong", [0, -1])
def test_gate_that_lets_nothing_through_is_refused(wrong: int) -> None:
    with pytest.raises(
        ValueError, match=f"`max_concurrency` must be a whole number, at least 1, not {wrong}"
    ):
        ConcurrencyGate(wrong)


# -- entering without a wait ---------------------------------------------------------------------


async def test_free_slot_is_entered_at_once_and_given_back_like_any_other() -> None:
    clock, waits = ManualClock(), list[str]()
    gate = ConcurrencyGate(1, clock=clock)
    slot: Any = gate.acquire("m", on_wait=lambda why, _: waits.append(why))
    other: Any = gate.acquire("m", on_wait=lambda why, _: waits.append(why))

    assert slot.enter_now()
    assert not other.enter_now()
    await slot.__aexit__(None, None, None)
    assert other.enter_now()
    gate.throttle("m", 5)
    await other.__aexit__(None, None, None)
    assert not slot.enter_now(), "the provider asked to wait"
    clock.advance(5)
    assert slot.enter_now()
    assert waits == []


async def test_newcomer_does_not_enter_before_those_who_queue() -> None:
    gate = ConcurrencyGate(1, clock=ManualClock())
    first, second = await callers(gate, 2)
    first.may_end.set()
    await first.task  # its slot is on its way to the second

    newcomer: Any = gate.acquire("m", on_wait=lambda why, s: None)
    assert not newcomer.enter_now()
    await end([second])
