"""A block has its time, can be ended before it, and leaves no timer behind."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from agentnb.core.clock import TimeLimit
from tests.core.clock import ManualClock, everyone_waits


async def in_time(clock: ManualClock, seconds: float) -> None:
    with TimeLimit(clock, seconds):
        await asyncio.Event().wait()


async def test_each_block_is_ended_when_its_own_time_is_over() -> None:
    clock = ManualClock()
    first = asyncio.create_task(in_time(clock, 10))
    await everyone_waits()
    clock.advance(4)
    second = asyncio.create_task(in_time(clock, 10))
    await everyone_waits()

    seen = []
    for seconds in (5.5, 0.5, 3.5, 0.5):
        clock.advance(seconds)
        await everyone_waits()
        seen.append((first.done(), second.done()))

    assert seen == [(False, False), (True, False), (True, False), (True, True)]
    for each in (first, second):
        assert isinstance(each.exception(), TimeoutError)
    assert clock.pending == 0


async def test_block_that_ends_in_time_leaves_no_timer() -> None:
    clock = ManualClock()
    for error in (None, KeyError("k")):
        with suppress(KeyError):
            with TimeLimit(clock, 10) as limit:
                assert clock.pending == 1
                if error:
                    raise error
        assert clock.pending == 0
        assert not limit.has_expired


async def test_time_counts_from_start_where_none_is_given_before() -> None:
    clock = ManualClock()
    with suppress(TimeoutError):
        with TimeLimit(clock) as limit:
            clock.advance(1_000)
            await everyone_waits()
            limit.start(5)
            clock.advance(4)
            await everyone_waits()
            clock.advance(1)
            await asyncio.Event().wait()
    assert limit.has_expired
    assert clock.now() == 1_005
    assert clock.pending == 0


async def test_block_can_be_ended_from_outside_at_once() -> None:
    clock = ManualClock()
    limit = TimeLimit(clock)

    async def work() -> None:
        with limit:
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await everyone_waits()
    limit.expire()
    limit.expire()
    await everyone_waits()

    assert isinstance(task.exception(), TimeoutError)
    assert task.cancelling() == 0
    limit.expire()  # too late to reach anything


async def test_block_that_is_disarmed_is_ended_by_its_time_alone() -> None:
    clock, seen = ManualClock(), []
    with suppress(TimeoutError):
        with TimeLimit(clock, 10) as limit:
            limit.expire()
            limit.disarm()
            limit.expire()
            await everyone_waits()
            seen.append(limit.has_expired)
            clock.advance(10)
            await asyncio.Event().wait()
    seen.append(limit.has_expired)
    assert seen == [False, True]


async def test_timeout_of_the_block_itself_is_told_apart() -> None:
    with pytest.raises(TimeoutError, match="the socket's"):
        with TimeLimit(ManualClock(), 10) as limit:
            raise TimeoutError("the socket's")
    assert not limit.has_expired


async def test_cancellation_from_elsewhere_is_none_of_its_own() -> None:
    clock = ManualClock()
    task = asyncio.create_task(in_time(clock, 10))
    await everyone_waits()
    task.cancel()
    await everyone_waits()

    assert task.cancelled()
    assert clock.pending == 0


async def test_block_that_is_left_is_not_cancelled_by_an_end_on_its_way() -> None:
    with TimeLimit(ManualClock()) as limit:
        limit.expire()
    await everyone_waits()

    assert not limit.has_expired


async def test_cancellation_from_elsewhere_wins_over_the_time() -> None:
    clock = ManualClock()
    task = asyncio.create_task(in_time(clock, 10))
    await everyone_waits()
    clock.advance(10)
    task.cancel()
    await everyone_waits()

    assert task.cancelled()
