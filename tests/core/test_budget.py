"""A pot is never promised twice, and says once that it runs low."""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from agentnb.core.budget import RequestBudget, Reservation, estimate_input_tokens, estimate_tokens
from agentnb.core.types import (
    BudgetStatus,
    CompletionRequest,
    Message,
    OpaqueBlock,
    Role,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    user_message,
)
from tests.support import examples

OK, WARNING, EXHAUSTED = BudgetStatus.OK, BudgetStatus.WARNING, BudgetStatus.EXHAUSTED


def _reserved(budget: RequestBudget, n: int) -> Reservation:
    held = budget.reserve(n)
    assert held is not None
    return held


# -- the lines ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "warn_at", "line"), [(10, 0.8, 8), (9, 0.8, 7), (11, 0.8, 8), (7, 0.5, 3), (5, 1, 5)]
)
def test_warning_line_is_the_part_of_the_total_rounded_down(
    total: int, warn_at: float, line: int
) -> None:
    budget = RequestBudget(total, warn_at=warn_at)

    assert budget.add_tokens(line - 1) is OK
    assert budget.add_tokens(1) is (EXHAUSTED if line == total else WARNING)


def test_warning_comes_once_per_crossing() -> None:
    budget = RequestBudget(100)

    assert [budget.add_tokens(n) for n in (79, 1, 5, 0, 14)] == [OK, WARNING, OK, OK, OK]


def test_jump_over_both_lines_is_exhaustion_and_no_warning_follows() -> None:
    budget = RequestBudget(100)

    assert budget.add_tokens(150) is EXHAUSTED
    assert budget.add_tokens(0) is EXHAUSTED
    assert budget.crossings == 1


def test_exhaustion_is_reached_at_the_total_not_beyond_it() -> None:
    budget = RequestBudget(100)
    budget.add_tokens(80)

    assert budget.add_tokens(19) is OK
    assert budget.add_tokens(1) is EXHAUSTED


def test_raise_arms_the_warning_again_for_the_new_line() -> None:
    budget = RequestBudget(100)
    budget.add_tokens(85)
    budget.set_total(200)

    assert [budget.add_tokens(n) for n in (74, 1, 1)] == [OK, WARNING, OK]


def test_raise_that_leaves_the_use_above_the_new_line_is_no_new_crossing() -> None:
    budget = RequestBudget(100)
    budget.add_tokens(90)
    budget.set_total(105)

    assert budget.add_tokens(1) is OK


def test_raise_after_exhaustion_gives_both_lines_back() -> None:
    budget = RequestBudget(10)
    assert budget.add_tokens(10) is EXHAUSTED
    budget.set_total(100)

    assert [budget.add_tokens(n) for n in (5, 65, 20)] == [OK, WARNING, EXHAUSTED]


def test_lowered_total_warns_at_the_next_token_when_its_line_is_passed() -> None:
    budget = RequestBudget(1000)
    budget.add_tokens(90)
    budget.set_total(100)

    assert [budget.add_tokens(1), budget.add_tokens(1)] == [WARNING, OK]


def test_total_at_or_below_what_is_used_is_exhausted_at_once() -> None:
    budget = RequestBudget(100)
    budget.add_tokens(50)
    budget.set_total(50)

    assert budget.remaining == 0
    assert budget.reserve(1) is None
    assert budget.add_tokens(0) is EXHAUSTED


def test_total_of_zero_is_used_up_from_the_start() -> None:
    budget = RequestBudget(0)

    assert (budget.percentage, budget.remaining, budget.tokens_used) == (100.0, 0, 0)
    assert budget.add_tokens(0) is EXHAUSTED
    assert budget.reserve(1) is None


def test_percentage_passes_a_hundred_when_more_was_used_than_there_was() -> None:
    budget = RequestBudget(200)
    budget.add_tokens(50)
    assert budget.percentage == 25.0
    budget.add_tokens(250)
    assert (budget.percentage, budget.remaining) == (150.0, 0)


# -- reservations ------------------------------------------------------------------------------


def test_what_is_reserved_counts_against_the_total_but_is_not_spent() -> None:
    budget = RequestBudget(100)
    _reserved(budget, 60)

    assert (budget.tokens_used, budget.reserved) == (0, 60)
    assert (budget.remaining, budget.available) == (100, 40)
    assert budget.reserve(41) is None
    assert budget.reserve(40) is not None


def test_reservation_leaves_free_what_it_is_told_to_leave() -> None:
    budget = RequestBudget(100)

    assert budget.reserve(91, leave=10) is None
    held = budget.reserve(80, leave=10)
    assert held is not None
    assert not held.extend(11, leave=10)
    assert held.extend(10, leave=10)


def test_extension_that_does_not_fit_changes_nothing() -> None:
    budget = RequestBudget(100)
    held = _reserved(budget, 60)

    assert not held.extend(41)
    assert (held.held, budget.reserved) == (60, 60)
    assert held.extend(40)
    assert (held.held, budget.reserved) == (100, 100)


def test_metered_tokens_move_from_held_to_used() -> None:
    budget = RequestBudget(100)
    held = _reserved(budget, 60)

    held.meter(25)

    assert (held.held, held.metered) == (35, 25)
    assert (budget.tokens_used, budget.reserved, budget.available) == (25, 35, 40)


def test_settling_puts_the_real_count_in_the_place_of_the_estimate() -> None:
    budget = RequestBudget(100)
    held = _reserved(budget, 60)
    held.meter(50)

    held.settle(30)

    assert (budget.tokens_used, budget.reserved) == (30, 0)


def test_more_than_was_held_is_counted_all_the_same() -> None:
    budget = RequestBudget(100)
    held = _reserved(budget, 10)

    assert held.meter(90) is WARNING
    assert (held.held, budget.reserved, budget.tokens_used) == (0, 0, 90)
    assert held.settle(120) is EXHAUSTED
    assert budget.tokens_used == 120


def test_release_gives_back_what_is_held_and_keeps_what_was_metered() -> None:
    budget = RequestBudget(100)
    held = _reserved(budget, 60)
    held.meter(20)

    held.release()

    assert (budget.tokens_used, budget.reserved) == (20, 0)


@pytest.mark.parametrize("first", ["settle", "release"])
def test_closed_reservation_does_nothing_any_more(first: str) -> None:
    budget = RequestBudget(100)
    held = _reserved(budget, 60)
    if first == "settle":
        held.settle(30)
    else:
        held.release()
    before = (budget.tokens_used, budget.reserved)

    held.settle(99)
    held.meter(99)
    held.release()

    assert not held.extend(1)
    assert (budget.tokens_used, budget.reserved) == before


def test_settling_reports_the_line_that_it_crossed() -> None:
    budget = RequestBudget(100)
    assert _reserved(budget, 50).settle(80) is WARNING
    assert _reserved(budget, 10).settle(25) is EXHAUSTED


def test_new_total_is_told_to_whoever_asked_to_know() -> None:
    budget = RequestBudget(100)
    told: list[int] = []
    budget.when_total_set(lambda: told.append(budget.total))

    budget.set_total(70)

    assert told == [70]


# -- arguments ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [-1, 1.5, True, "10", None])
def test_count_that_is_no_number_of_tokens_is_refused_and_named(bad: Any) -> None:
    budget = RequestBudget(100)
    held = _reserved(budget, 10)
    calls = (RequestBudget, budget.add_tokens, budget.reserve, budget.set_total)

    for call in (*calls, held.extend, held.settle):
        with pytest.raises(ValueError, match=r"must be a whole number of tokens, at least 0"):
            call(bad)

    assert (budget.total, budget.tokens_used, budget.reserved) == (100, 0, 10)


@pytest.mark.parametrize("bad", [0, -0.1, 1.01, 80, math.nan])
def test_warning_line_outside_the_total_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="`warn_at` must be above 0 and at most 1"):
        RequestBudget(100, warn_at=bad)


# -- books -------------------------------------------------------------------------------------


def test_many_threads_never_promise_the_same_tokens_twice() -> None:
    budget = RequestBudget(1000)
    start = threading.Barrier(8)

    def draw() -> int:
        start.wait()
        spent = 0
        for _ in range(200):
            held = budget.reserve(3)
            if held is None:
                continue
            held.extend(2)
            held.meter(1)
            if held.held % 2:
                held.release()
                spent += 1
            else:
                held.settle(2)
                spent += 2
        return spent

    with ThreadPoolExecutor(8) as pool:
        spent = sum(task.result() for task in [pool.submit(draw) for _ in range(8)])

    assert budget.reserved == 0
    assert budget.tokens_used == spent <= 1000


def test_one_of_many_threads_gets_the_warning() -> None:
    budget = RequestBudget(1000)
    start = threading.Barrier(8)

    def spend() -> list[BudgetStatus]:
        start.wait()
        return [budget.add_tokens(1) for _ in range(120)]

    with ThreadPoolExecutor(8) as pool:
        drawn = [task.result() for task in [pool.submit(spend) for _ in range(8)]]

    assert budget.tokens_used == 960
    assert [status for one in drawn for status in one].count(WARNING) == 1


class Books(RuleBasedStateMachine):
    """A pot beside a plain model of it."""

    open_calls = Bundle("open_calls")

    def __init__(self) -> None:
        super().__init__()
        self.budget = RequestBudget(500)
        self.used = 0
        self.held: dict[int, int] = {}
        self.metered: dict[int, int] = {}
        self.beyond = 0
        """Tokens that were counted beyond what was held, or fell out of a lowered total."""

    def _free(self) -> int:
        return self.budget.total - self.used - sum(self.held.values())

    @rule(target=open_calls, n=st.integers(0, 300))
    def reserve(self, n: int) -> Reservation | None:
        held = self.budget.reserve(n)
        assert (held is not None) == (n <= self._free())
        if held is not None:
            self.held[id(held)], self.metered[id(held)] = n, 0
        return held

    @rule(call=open_calls, n=st.integers(0, 200))
    def extend(self, call: Reservation | None, n: int) -> None:
        if call is None:
            return
        fits = id(call) in self.held and n <= self._free()
        assert call.extend(n) == fits
        if fits:
            self.held[id(call)] += n

    @rule(call=open_calls, n=st.integers(0, 200))
    def meter(self, call: Reservation | None, n: int) -> None:
        if call is None:
            return
        call.meter(n)
        if id(call) in self.held:
            from_held = min(n, self.held[id(call)])
            self.held[id(call)] -= from_held
            self.metered[id(call)] += n
            self.used += n
            self.beyond += n - from_held

    @rule(call=open_calls, actual=st.integers(0, 400))
    def settle(self, call: Reservation | None, actual: int) -> None:
        if call is None:
            return
        call.settle(actual)
        if id(call) in self.held:
            held, metered = self.held.pop(id(call)), self.metered.pop(id(call))
            self.used += actual - metered
            self.beyond += max(0, actual - metered - held)

    @rule(call=open_calls)
    def release(self, call: Reservation | None) -> None:
        if call is not None:
            call.release()
            self.held.pop(id(call), None)
            self.metered.pop(id(call), None)

    @rule(total=st.integers(0, 1000))
    def set_total(self, total: int) -> None:
        self.beyond += max(0, self.budget.total - total)
        self.budget.set_total(total)

    @invariant()
    def books_agree(self) -> None:
        assert self.budget.tokens_used == self.used
        assert self.budget.reserved == sum(self.held.values())
        assert self.budget.available == max(0, self._free())

    @invariant()
    def total_is_passed_only_by_what_nobody_could_know(self) -> None:
        assert self.budget.tokens_used + self.budget.reserved <= self.budget.total + self.beyond


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=examples(30), stateful_step_count=30)


@given(
    total=st.integers(1, 200),
    warn_at=st.floats(0.01, 1.0),
    spends=st.lists(st.integers(0, 40), max_size=20),
)
def test_any_way_of_spending_warns_at_most_once_and_at_the_line(
    total: int, warn_at: float, spends: list[int]
) -> None:
    budget = RequestBudget(total, warn_at=warn_at)
    line = math.floor(warn_at * total)

    statuses = [budget.add_tokens(n) for n in spends]

    assert statuses.count(WARNING) <= 1
    for index, status in enumerate(statuses):
        used = sum(spends[: index + 1])
        is_first_past = used >= line and WARNING not in statuses[:index]
        jumped = EXHAUSTED in statuses[:index]
        expected = EXHAUSTED if used >= total else WARNING if is_first_past and not jumped else OK
        assert status is expected


# -- estimates ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2)])
def test_four_bytes_are_a_token_rounded_up(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_bytes_count_and_not_characters_also_for_text_that_cannot_be_encoded() -> None:
    assert estimate_tokens("あ" * 4) == 3
    assert estimate_tokens("\ud800" * 4) == 1


def test_whole_input_counts_system_messages_and_tools() -> None:
    blocks = (
        TextBlock("a" * 8),
        ThinkingBlock("b" * 12),
        ToolUseBlock("id", "name", {"k": object()}),
        ToolResultBlock("id", "c" * 16),
        OpaqueBlock("p", {"kept": "e" * 200}),
    )
    empty = CompletionRequest("m", "", ())
    full = CompletionRequest(
        "m",
        "s" * 40,
        (user_message("u" * 20), Message(Role.ASSISTANT, blocks)),
        tools=(ToolSpec("read", "d" * 100, {"type": "object"}),),
    )

    assert estimate_input_tokens(empty) == 0
    assert estimate_input_tokens(full) > 10 + 5 + 2 + 3 + 4 + 25 + 50
