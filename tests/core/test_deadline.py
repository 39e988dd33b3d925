"""One timer for the calls of a run, and each call has its own time all the same."""

from __future__ import annotations

from agentnb.core.deadline import Deadlines
from tests.core.clock import ManualClock


def test_each_call_is_ended_when_its_own_time_is_over() -> None:
    clock, ended = ManualClock(), list[str]()
    deadlines = Deadlines(clock, 10)
    deadlines.start(lambda: ended.append("first"))
    clock.advance(4)
    deadlines.start(lambda: ended.append("second"))

    told = []
    for seconds in (5.5, 0.5, 3.5, 0.5, 20):
        clock.advance(seconds)
        told.append(list(ended))

    assert told == [[], ["first"], ["first"], ["first", "second"], ["first", "second"]]


def test_call_that_ended_in_time_is_left_alone_and_the_next_one_is_not() -> None:
    clock, ended = ManualClock(), list[str]()
    deadlines = Deadlines(clock, 10)
    first = deadlines.start(lambda: ended.append("first"))
    clock.advance(1)
    deadlines.start(lambda: ended.append("second"))
    first.cancel()
    first.cancel()

    clock.advance(9.5)
    assert ended == []
    clock.advance(0.5)
    assert ended == ["second"]


def test_many_calls_take_one_timer_and_a_run_that_has_ended_takes_none() -> None:
    clock, ended = ManualClock(), list[int]()
    deadlines = Deadlines(clock, 10)
    for number in range(100):
        deadlines.start(lambda number=number: ended.append(number))  # type: ignore[misc]
    assert clock.pending == 1

    deadlines.close()

    assert clock.pending == 0
    clock.advance(100)
    assert ended == []


def test_call_that_starts_while_others_are_ended_has_its_whole_time() -> None:
    clock, ended = ManualClock(), list[str]()
    deadlines = Deadlines(clock, 10)

    def end_first() -> None:
        ended.append("first")
        deadlines.start(lambda: ended.append("second"))

    deadlines.start(end_first)
    clock.advance(10)
    assert ended == ["first"]
    clock.advance(9.9)
    assert ended == ["first"]
    clock.advance(0.1)
    assert ended == ["first", "second"]
    assert clock.pending == 0
