"""A call holds its share before it goes out, waits its turn, and is told when the pot ends."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from agentnb.core._budget.lease import Lease
from agentnb.core._budget.meter import BudgetExceeded, Meter, synthesis_reserve
from agentnb.core.budget import OUTPUT_SLICE, RequestBudget
from agentnb.core.bus import EventBus
from agentnb.core.errors import NoOpenQuestion
from agentnb.core.events import (
    AgentCompleted,
    AgentSpawned,
    BudgetChanged,
    BudgetExhausted,
    BudgetPaused,
    BudgetResumed,
    BudgetUpdate,
    BudgetWarning,
    Event,
)
from agentnb.core.threads import run_in_thread
from agentnb.core.types import CompletionRequest, Usage
from tests.core.clock import ManualClock, everyone_waits

T = TypeVar("T", bound=Event)

ROOT = "nb_20260101_aaaaaa"


class Pot:
    """A meter with all that it stands on, and short words for what tests do with it."""

    def __init__(self, total: int, **options: Any) -> None:
        self.clock = ManualClock()
        self.budget = RequestBudget(total)
        self.bus = EventBus("run", clock=self.clock)
        self.meter = Meter(self.budget, self.bus, self.clock, **options)

    def try_call(self, input_tokens: int = 0, *, max_tokens: int = 256, **how: Any) -> Lease | None:
        request = CompletionRequest("m", "", (), max_tokens=max_tokens)
        return self.meter.lease(request, input_tokens=input_tokens, **how)

    def call(self, input_tokens: int = 0, *, max_tokens: int = 256, **how: Any) -> Lease:
        lease = self.try_call(input_tokens, max_tokens=max_tokens, **how)
        assert lease is not None
        return lease

    async def call_in_turn(self, input_tokens: int, called: list[int] | None = None) -> Lease:
        """As `AgentServices` does it: try, wait for room, try again."""
        while (lease := self.try_call(input_tokens)) is None:
            await self.meter.wait_for_room(input_tokens + OUTPUT_SLICE)
        if called is not None:
            called.append(input_tokens)
        return lease

    def told(self, kind: type[T]) -> list[T]:
        return [e.event for e in self.bus.entries if isinstance(e.event, kind)]


@asynccontextmanager
async def pot_of(total: int, **options: Any) -> AsyncIterator[Pot]:
    pot = Pot(total, **options)
    async with pot.meter:
        yield pot


def grow(lease: Lease, tokens: int) -> None:
    lease.output_grew("x" * 4 * tokens)


def used(tokens: int) -> Usage:
    return Usage(output_tokens=tokens)


# -- what is left for the synthesis ------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "kept"),
    [(0, 0), (3, 0), (400, 100), (2047, 511), (2048, 512), (10_240, 512), (100_000, 5_000)],
)
def test_a_twentieth_but_512_at_least_and_a_quarter_at_most_is_kept_for_the_synthesis(
    total: int, kept: int
) -> None:
    assert synthesis_reserve(total) == kept


async def test_only_the_root_s_synthesis_may_use_what_is_kept_for_it() -> None:
    async with pot_of(2048) as pot:
        assert pot.call(1536 - 256).request.max_tokens == 256
        assert pot.try_call(0) is None
        assert pot.call(0, max_tokens=900, for_root_synthesis=True).request.max_tokens == 512


async def test_streaming_answer_never_eats_what_is_kept_for_the_synthesis() -> None:
    async with pot_of(2048) as pot:
        lease = pot.call(0, max_tokens=5000)
        assert lease.request.max_tokens == 1536

        grow(lease, 1536)
        assert lease.halted is None
        assert pot.budget.available == 512

        grow(lease, 1)
        assert lease.halted is not None


async def test_part_that_is_kept_follows_the_total_while_calls_are_open() -> None:
    async with pot_of(100_000) as pot:
        lease = pot.call(0, max_tokens=100_000)

        pot.budget.set_total(4096)
        await everyone_waits()
        grow(lease, 4096 - 512)

        assert lease.halted is None


async def test_root_that_delegates_has_its_need_kept_and_a_third_of_what_was_left_at_most() -> None:
    need = 900
    async with pot_of(10_000) as pot:
        pot.call(0, max_tokens=4000).settle(used(4000), is_complete=True)
        assert pot.meter.kept == 512

        pot.meter.root_delegates(lambda: need)
        pot.meter.root_delegates(lambda: 1)  # it delegates once more: what it needs is asked anew
        assert pot.meter.kept == 900
        need = 1900
        assert pot.meter.kept == 1900
        need = 5000
        assert pot.meter.kept == 2000

        pot.call(0, max_tokens=1000).settle(used(1000), is_complete=True)
        assert pot.meter.kept == 2000
        pot.budget.set_total(100_000)
        assert pot.meter.kept == 5000
        pot.budget.set_total(5500)
        assert pot.meter.kept == 500
        pot.budget.set_total(0)
        assert pot.meter.kept == 0


async def test_exhaustion_below_the_line_is_warned_of_before_it_and_the_line_not_again() -> None:
    async with pot_of(1000) as pot:
        with pytest.raises(BudgetExceeded):
            pot.try_call(2000)
        pot.call(0, for_root_synthesis=True, max_tokens=1000).settle(used(900), is_complete=True)

        [warning] = pot.told(BudgetWarning)
        assert warning.tokens_used == 0
        kinds = [type(entry.event) for entry in pot.bus.entries]
        assert kinds.index(BudgetWarning) < kinds.index(BudgetExhausted)

        pot.budget.set_total(10_000)
        await everyone_waits()
        pot.call(0).settle(used(7500), is_complete=True)
        assert [w.budget_total for w in pot.told(BudgetWarning)] == [1000, 10_000]


async def test_exhaustion_of_a_raised_total_is_not_warned_of_below_its_line() -> None:
    async with pot_of(1000) as pot:
        _cross(pot)
        pot.budget.set_total(1001)
        await everyone_waits()
        with pytest.raises(BudgetExceeded):
            pot.try_call(2000)

        assert [w.budget_total for w in pot.told(BudgetWarning)] == [1000]


async def test_exhaustion_of_a_raised_total_is_warned_of_before_its_line_is_crossed() -> None:
    async with pot_of(1000) as pot:
        _cross(pot)
        pot.budget.set_total(2000)
        await everyone_waits()
        with pytest.raises(BudgetExceeded):
            pot.try_call(5000)
        pot.call(0, for_root_synthesis=True, max_tokens=1000).settle(used(1000), is_complete=True)

        assert [w.budget_total for w in pot.told(BudgetWarning)] == [1000, 2000]
        last = [type(entry.event) for entry in pot.bus.entries][::-1]
        assert last.index(BudgetExhausted) < last.index(BudgetWarning)


# -- leases ------------------------------------------------------------------------------------


async def test_call_holds_its_input_and_a_first_slice_of_output() -> None:
    async with pot_of(10_000) as pot:
        pot.call(1000, max_tokens=8192)
        assert pot.budget.reserved == 1000 + OUTPUT_SLICE
        pot.call(0, max_tokens=100)
        assert pot.budget.reserved == 1000 + OUTPUT_SLICE + 100
        assert pot.budget.tokens_used == 0


async def test_call_that_may_hide_output_holds_all_that_it_may_use() -> None:
    async with pot_of(10_000) as pot:
        pot.call(1000, max_tokens=8192, hidden_output=True)
        assert pot.budget.reserved == 1000 + 8192


async def test_call_that_may_hide_output_holds_no_more_than_there_is() -> None:
    async with pot_of(4048) as pot:
        lease = pot.call(1000, max_tokens=8192, hidden_output=True)
        assert lease.request.max_tokens == 4048 - 512 - 1000
        assert pot.budget.reserved == 4048 - 512


async def test_max_tokens_is_the_agents_own_or_what_is_left_in_the_pot() -> None:
    async with pot_of(10_000) as pot:
        own = pot.call(1000, max_tokens=4000)
        assert (own.request.max_tokens, own.limited_by) == (4000, None)

        left = 10_000 - 512 - (1000 + 256) - 1000
        cut = pot.call(1000, max_tokens=8192)
        assert (cut.request.max_tokens, cut.limited_by) == (left, "the budget")


async def test_input_is_spent_when_the_reply_begins_and_only_once() -> None:
    async with pot_of(10_000) as pot:
        lease = pot.call(1000)
        assert pot.budget.tokens_used == 0

        lease.reply_started()
        lease.reply_started()

        assert (pot.budget.tokens_used, pot.budget.reserved) == (1000, 256)


async def test_input_that_counts_more_than_the_estimate_is_held_from_the_start_of_the_reply() -> (
    None
):
    async with pot_of(10_000) as pot:
        lease = pot.call(1000)
        lease.reply_started()

        lease.input_counted(Usage(2500, 1, cache_creation_tokens=500, cache_read_tokens=1000))
        lease.input_counted(Usage(2500, 1, cache_creation_tokens=500, cache_read_tokens=1000))
        assert (pot.budget.tokens_used, pot.budget.reserved) == (1000, 256 + 2100)

        grow(lease, 256)
        grow(lease, 1)
        assert (pot.budget.tokens_used, pot.budget.reserved) == (1257, 255 + 2100)

        lease.settle(Usage(2500, 257), is_complete=True)
        assert (pot.budget.tokens_used, pot.budget.reserved) == (2757, 0)


async def test_input_that_counts_more_than_there_is_holds_all_there_is_and_no_more() -> None:
    async with pot_of(10_000) as pot:
        lease = pot.call(1000)
        lease.reply_started()

        lease.input_counted(Usage(50_000))

        assert pot.budget.available == 0
        assert pot.budget.tokens_used + pot.budget.reserved == 10_000


async def test_input_that_counts_less_than_the_estimate_is_given_back_at_the_end() -> None:
    async with pot_of(10_000) as pot:
        lease = pot.call(1000)
        lease.reply_started()

        lease.input_counted(Usage(0))
        lease.input_counted(Usage(10))
        assert (pot.budget.tokens_used, pot.budget.reserved) == (1000, 256)

        lease.settle(Usage(10), is_complete=True)
        assert (pot.budget.tokens_used, pot.budget.reserved) == (10, 0)


async def test_what_came_beyond_what_was_held_is_told_as_the_estimates_error() -> None:
    async with pot_of(1000) as pot:
        first, second = pot.call(0, max_tokens=500), pot.call(0, max_tokens=500)
        first.reply_started()
        grow(second, 300)
        grow(first, 400)
        assert first.halted is not None

        _, estimate_error = first.settle(None, is_complete=False)

        assert estimate_error == 400 - 256


async def test_output_is_metered_as_it_streams_and_held_slice_by_slice() -> None:
    async with pot_of(10_000) as pot:
        lease = pot.call(0, max_tokens=8192)

        grow(lease, 256)
        assert (pot.budget.tokens_used, pot.budget.reserved) == (256, 0)
        grow(lease, 1)
        assert (pot.budget.tokens_used, pot.budget.reserved) == (257, 255)
        grow(lease, 600)
        assert (pot.budget.tokens_used, pot.budget.reserved) == (857, 1024 - 857)


async def test_text_in_many_small_pieces_is_metered_as_the_same_text_in_one() -> None:
    async with pot_of(10_000) as pot:
        lease = pot.call(0)

        for letter in "a hundred letters, one by one; " * 4:
            lease.output_grew(letter)

        assert pot.budget.tokens_used == 31


async def test_answer_that_fits_its_own_share_is_not_stopped_for_want_of_a_whole_slice() -> None:
    async with pot_of(400) as pot:
        lease = pot.call(0, max_tokens=8192)
        assert lease.request.max_tokens == 300

        grow(lease, 300)
        assert lease.halted is None
        assert (pot.budget.tokens_used, pot.budget.reserved) == (300, 0)

        grow(lease, 1)
        assert lease.halted is not None


async def test_call_is_halted_when_the_pot_carries_no_further_slice() -> None:
    async with pot_of(1000) as pot:
        first, second = pot.call(0, max_tokens=500), pot.call(0, max_tokens=500)
        halts: list[str | None] = []
        first.when_halted(lambda: halts.append(first.halted))

        grow(second, 300)
        grow(first, 256)
        assert halts == []
        grow(first, 1)
        grow(first, 1)

        assert halts == ["the budget was used up in the middle of the answer"]
        assert second.halted is None
        # What came was made, and counts.
        assert pot.budget.tokens_used == 300 + 258
        assert len(pot.told(BudgetExhausted)) == 1


async def test_settled_call_counts_as_the_provider_counted_it() -> None:
    async with pot_of(10_000) as pot:
        lease = pot.call(1000, max_tokens=500)
        lease.reply_started()
        grow(lease, 100)
        usage = Usage(700, 90, cache_creation_tokens=50, cache_read_tokens=301)

        counted, estimate_error = lease.settle(usage, is_complete=True)

        assert counted == usage
        assert pot.budget.tokens_used == 700 + 90 + 50 + 31
        assert pot.budget.reserved == 0
        assert estimate_error == 871 - 1100


async def test_call_without_a_count_is_settled_on_the_estimate() -> None:
    async with pot_of(10_000) as pot:
        lease = pot.call(1000)
        lease.reply_started()
        grow(lease, 40)

        assert lease.settle(None, is_complete=False) == (Usage(1000, 40), 0)
        assert pot.budget.tokens_used == 1040


async def test_call_that_got_no_reply_costs_nothing() -> None:
    async with pot_of(10_000) as pot:
        assert pot.call(1000).settle(None, is_complete=False) == (Usage(), 0)
        assert (pot.budget.tokens_used, pot.budget.reserved) == (0, 0)


async def test_count_of_a_reply_that_was_left_early_is_mended_by_the_estimate() -> None:
    async with pot_of(10_000) as pot:
        lease = pot.call(1000)
        lease.reply_started()
        grow(lease, 40)

        counted, _ = lease.settle(Usage(900, 1, cache_read_tokens=10), is_complete=False)

        assert counted == Usage(900, 40, cache_read_tokens=10)
        assert pot.budget.tokens_used == 941


# -- waiting for room --------------------------------------------------------------------------


async def test_pot_is_empty_only_when_no_call_is_open_that_could_make_room() -> None:
    async with pot_of(1000) as pot:
        lease = pot.call(400)
        assert pot.try_call(400) is None
        assert pot.told(BudgetExhausted) == []
        lease.reply_started()
        lease.settle(Usage(400, 100), is_complete=True)

        with pytest.raises(
            BudgetExceeded, match=r"needs about 656 tokens and 250 of 1,000 are left"
        ):
            pot.try_call(400)
        assert len(pot.told(BudgetExhausted)) == 1


async def test_waiting_calls_are_let_in_by_a_settle_first_come_first_served() -> None:
    async with pot_of(10_000) as pot:
        first, second = pot.call(4000), pot.call(4400)
        called: list[int] = []
        waiting = [asyncio.create_task(pot.call_in_turn(n, called)) for n in (3000, 2500, 700, 600)]
        await everyone_waits()
        assert called == []

        first.settle(used(0), is_complete=True)
        await everyone_waits()
        # 2500 does not fit beside 3000, and nobody behind it goes first.
        assert called == [3000]

        second.settle(used(0), is_complete=True)
        await everyone_waits()
        assert called == [3000, 2500, 700, 600]
        assert all(task.done() for task in waiting)


async def test_waiting_call_is_let_in_when_the_total_is_raised() -> None:
    async with pot_of(1000) as pot:
        pot.call(400)
        waiting = asyncio.create_task(pot.call_in_turn(400))
        await everyone_waits()
        assert not waiting.done()

        await run_in_thread(lambda: pot.budget.set_total(4000))
        await everyone_waits()

        assert waiting.done()


async def test_waiting_calls_end_when_the_run_is_stopped() -> None:
    async with pot_of(1000, policy="stop") as pot:
        lease = pot.call(400)
        waiting = asyncio.create_task(pot.call_in_turn(400))
        await everyone_waits()

        lease.reply_started()
        lease.settle(Usage(400, 400), is_complete=True)

        with pytest.raises(BudgetExceeded, match="set to stop at the budget's warning line"):
            await waiting


async def test_call_that_never_fits_is_told_so_when_the_last_open_one_settles() -> None:
    async with pot_of(1000) as pot:
        lease = pot.call(400)
        waiting = asyncio.create_task(pot.call_in_turn(700))
        await everyone_waits()
        lease.settle(used(0), is_complete=True)

        with pytest.raises(BudgetExceeded):
            await waiting


async def test_cancelled_waiter_does_not_keep_the_others_waiting() -> None:
    async with pot_of(1000) as pot:
        lease = pot.call(400)
        called: list[int] = []
        gone = asyncio.create_task(pot.call_in_turn(450, called))
        stays = asyncio.create_task(pot.call_in_turn(300, called))
        await everyone_waits()
        gone.cancel()
        await everyone_waits()
        lease.settle(used(0), is_complete=True)

        await stays
        assert called == [300]


async def test_nobody_waits_for_room_where_nothing_is_open() -> None:
    async with pot_of(1000) as pot:
        await asyncio.wait_for(pot.meter.wait_for_room(10_000), timeout=None)
        assert pot.told(BudgetExhausted) == []


# -- the end of the pot ------------------------------------------------------------------------


def _spawn(pot: Pot, agent_id: str, *, done: bool) -> None:
    pot.bus.publish(AgentSpawned(agent_id=agent_id, parent_id=None, task_description="t", depth=0))
    if done:
        pot.bus.publish(
            AgentCompleted(
                agent_id=agent_id, result_summary="", text="", tokens_used=0, duration_ms=0
            )
        )


async def test_exhaustion_is_told_once_with_who_was_done_and_who_was_not() -> None:
    async with pot_of(1000) as pot:
        _spawn(pot, ROOT, done=False)
        _spawn(pot, f"{ROOT}.1", done=True)
        _spawn(pot, f"{ROOT}.2", done=False)
        for _ in range(3):
            with pytest.raises(BudgetExceeded):
                pot.try_call(2000)

        assert pot.told(BudgetExhausted) == [
            BudgetExhausted(
                tokens_used=0,
                budget_total=1000,
                percentage=0.0,
                completed_agents=(f"{ROOT}.1",),
                incomplete_agents=(ROOT, f"{ROOT}.2"),
            )
        ]
        assert pot.meter.is_exhausted
        assert pot.meter.was_exhausted


async def test_raised_total_lets_the_run_go_on_but_what_was_missed_stays_known() -> None:
    async with pot_of(1000) as pot:
        with pytest.raises(BudgetExceeded):
            pot.try_call(2000)
        pot.budget.set_total(9000)
        await everyone_waits()

        assert not pot.meter.is_exhausted
        assert pot.meter.was_exhausted
        pot.call(2000)


async def test_root_s_synthesis_that_is_halted_is_no_exhaustion_of_its_own() -> None:
    async with pot_of(400) as pot:
        lease = pot.call(0, max_tokens=1000, for_root_synthesis=True)
        grow(lease, 401)

        assert lease.halted is not None
        assert pot.told(BudgetExhausted) == []


async def test_total_set_at_or_below_what_is_used_halts_all_open_calls() -> None:
    async with pot_of(10_000) as pot:
        leases = [pot.call(0, max_tokens=500), pot.call(0, for_root_synthesis=True)]
        grow(leases[0], 200)
        pot.budget.set_total(200)
        await everyone_waits()

        why = "the total was set to 200 tokens, which were already used"
        assert [lease.halted for lease in leases] == [why, why]
        assert len(pot.told(BudgetExhausted)) == 1


async def test_total_lowered_above_what_is_used_lets_open_calls_go_on() -> None:
    async with pot_of(10_000) as pot:
        lease = pot.call(0, max_tokens=500)
        grow(lease, 200)
        pot.budget.set_total(1000)
        await everyone_waits()
        grow(lease, 56)

        assert lease.halted is None


# -- what is told ------------------------------------------------------------------------------


async def test_updates_come_at_most_ten_times_a_second_and_the_last_one_always() -> None:
    async with pot_of(10_000) as pot:
        lease = pot.call(0, max_tokens=5000)
        for _ in range(100):
            pot.clock.advance(0.01)
            grow(lease, 1)

        moved = [e for e in pot.bus.entries if isinstance(e.event, BudgetUpdate)]
        gaps = [later.at_s - one.at_s for one, later in itertools.pairwise(moved)]
        assert 9 <= len(moved) <= 11
        assert min(gaps) >= 0.1 - 1e-9
        lease.settle(used(777), is_complete=True)

    last = pot.told(BudgetUpdate)[-1]
    assert (last.tokens_used, last.budget_total, last.percentage) == (777, 10_000, 7.77)
    assert isinstance(pot.bus.entries[-1].event, BudgetUpdate)


async def test_new_total_is_told_at_once_with_what_it_was_before() -> None:
    async with pot_of(1000) as pot:
        lease = pot.call(0)
        grow(lease, 10)
        told = len(pot.told(BudgetUpdate))
        pot.budget.set_total(2000)
        await everyone_waits()

        changed = BudgetChanged(budget_total=2000, previous_total=1000, tokens_used=10, by="code")
        assert pot.told(BudgetChanged) == [changed]
        assert [u.budget_total for u in pot.told(BudgetUpdate)[told:]] == [2000]


async def test_total_set_to_what_it_was_is_no_news() -> None:
    async with pot_of(1000) as pot:
        pot.budget.set_total(1000)
        await everyone_waits()
        assert pot.told(BudgetChanged) == []


async def test_total_set_after_the_run_is_nobody_s_news() -> None:
    async with pot_of(1000) as pot:
        pass
    pot.budget.set_total(5)
    await everyone_waits()
    assert pot.told(BudgetChanged) == []


async def test_warning_is_told_once_per_crossing() -> None:
    async with pot_of(1000) as pot:
        lease = pot.call(0, for_root_synthesis=True, max_tokens=1000)
        grow(lease, 799)
        assert pot.told(BudgetWarning) == []
        grow(lease, 1)
        grow(lease, 50)
        warning = BudgetWarning(tokens_used=800, budget_total=1000, percentage=80.0)
        assert pot.told(BudgetWarning) == [warning]

        pot.budget.set_total(2000)
        await everyone_waits()
        lease.settle(used(1600), is_complete=True)
        assert [w.tokens_used for w in pot.told(BudgetWarning)] == [800, 1600]


# -- the question ------------------------------------------------------------------------------


def _cross(pot: Pot) -> None:
    """Bring a pot of 1000 to its warning line."""
    pot.call(0).settle(used(800), is_complete=True)


async def test_new_calls_are_held_while_the_question_is_open() -> None:
    async with pot_of(1000, is_attended=lambda: True) as pot:
        _cross(pot)
        resumed = asyncio.create_task(pot.meter.wait_while_paused())
        await everyone_waits()

        assert pot.try_call(0, max_tokens=10) is None
        pot.call(0, max_tokens=10, for_root_synthesis=True)
        assert not resumed.done()
        paused = BudgetPaused(tokens_used=800, budget_total=1000, percentage=80.0, wait_s=600.0)
        assert pot.told(BudgetPaused) == [paused]

        pot.meter.answer("continue")
        await resumed

        assert not pot.meter.is_paused
        pot.call(0, max_tokens=10, for_root_synthesis=True)
        assert [r.reason for r in pot.told(BudgetResumed)] == ["continue"]


async def test_answer_to_stop_ends_open_calls_and_new_ones_but_not_the_synthesis() -> None:
    async with pot_of(1000, is_attended=lambda: True) as pot:
        open_call = pot.call(0, max_tokens=20)
        _cross(pot)
        await everyone_waits()
        pot.meter.answer("stop")
        await everyone_waits()

        assert open_call.halted == "the answer to the budget's question was to stop"
        with pytest.raises(BudgetExceeded, match="was to stop"):
            pot.try_call(0, max_tokens=1)
        pot.call(0, max_tokens=1, for_root_synthesis=True)


async def test_raised_total_answers_the_question() -> None:
    async with pot_of(1000, is_attended=lambda: True) as pot:
        _cross(pot)
        pot.budget.set_total(5000)
        await everyone_waits()

        assert not pot.meter.is_paused
        assert [r.reason for r in pot.told(BudgetResumed)] == ["raised"]
        pot.call(0)


async def test_lowered_total_that_is_used_up_ends_the_question() -> None:
    async with pot_of(1000, is_attended=lambda: True) as pot:
        _cross(pot)
        pot.budget.set_total(800)
        await everyone_waits()

        assert not pot.meter.is_paused
        with pytest.raises(BudgetExceeded):
            pot.try_call(0)


async def test_question_without_an_answer_stops_the_run_in_its_time() -> None:
    async with pot_of(1000, is_attended=lambda: True) as pot:
        _cross(pot)
        await everyone_waits()
        pot.clock.advance(599.9)
        await everyone_waits()
        assert pot.meter.is_paused

        pot.clock.advance(0.1)
        await everyone_waits()

        assert [r.reason for r in pot.told(BudgetResumed)] == ["timeout"]
        with pytest.raises(BudgetExceeded, match="nobody answered the budget's question in time"):
            pot.try_call(0)


@pytest.mark.parametrize(
    "options", [{}, {"policy": "continue", "is_attended": lambda: True}], ids=["nobody", "continue"]
)
async def test_run_goes_on_past_its_warning_where_nobody_is_to_be_asked(
    options: dict[str, Any],
) -> None:
    async with pot_of(1000, **options) as pot:
        _cross(pot)
        assert not pot.meter.is_paused
        assert len(pot.told(BudgetWarning)) == 1
        assert pot.told(BudgetPaused) == []


async def test_policy_to_stop_asks_nobody() -> None:
    async with pot_of(1000, policy="stop", is_attended=lambda: True) as pot:
        open_call = pot.call(0, max_tokens=20)
        _cross(pot)

        assert open_call.halted == "the run was set to stop at the budget's warning line"
        assert pot.told(BudgetPaused) == []
        assert pot.meter.is_exhausted


async def _async_gate(warning: BudgetWarning) -> str:
    return "continue" if warning.tokens_used == 800 else "stop"


def _gate_that_makes_one(warning: BudgetWarning) -> Any:
    return _async_gate(warning)


def _broken_gate(warning: BudgetWarning) -> str:
    raise LookupError("no phone")


@pytest.mark.parametrize(
    ("gate", "reason", "goes_on"),
    [
        (lambda warning: "continue", "continue", True),
        (lambda warning: "stop", "stop", False),
        (_async_gate, "continue", True),
        (_gate_that_makes_one, "continue", True),
        (_broken_gate, "stop: the budget gate raised LookupError: no phone", False),
        (
            lambda warning: "maybe",
            "stop: the budget gate answered 'maybe', not 'continue' or 'stop'",
            False,
        ),
        (
            lambda warning: None,
            "stop: the budget gate answered None, not 'continue' or 'stop'",
            False,
        ),
    ],
)
async def test_gate_is_asked_in_a_person_s_place_and_a_broken_one_stops(
    gate: Callable[[BudgetWarning], Any], reason: str, goes_on: bool
) -> None:
    async with pot_of(1000, gate=gate) as pot:
        _cross(pot)
        assert pot.meter.is_paused
        await pot.meter.wait_while_paused()

        assert [r.reason for r in pot.told(BudgetResumed)] == [reason]
        assert pot.meter.is_exhausted is not goes_on


async def test_answer_counts_only_where_something_is_asked() -> None:
    async with pot_of(1000, is_attended=lambda: True) as pot:
        with pytest.raises(NoOpenQuestion):
            pot.meter.answer("continue")
        _cross(pot)
        with pytest.raises(ValueError, match="'continue' or 'stop', not 'yes'"):
            pot.meter.answer("yes")
        pot.meter.answer("continue")
        with pytest.raises(NoOpenQuestion):
            pot.meter.answer("stop")


async def test_question_has_its_end_when_all_tasks_are_cancelled_from_outside() -> None:
    pot = Pot(1000, gate=lambda warning: asyncio.Event().wait())
    async with pot.meter:
        before = asyncio.all_tasks()
        _cross(pot)
        await everyone_waits()
        for task in asyncio.all_tasks() - before:
            task.cancel()
        await everyone_waits()

    assert [r.reason for r in pot.told(BudgetResumed)] == ["ended"]


async def test_question_that_is_open_at_the_end_of_the_run_leaves_nothing_running() -> None:
    before = asyncio.all_tasks()
    pot = Pot(1000, gate=lambda warning: asyncio.Event().wait())
    async with pot.meter:
        _cross(pot)
        await everyone_waits()

    assert asyncio.all_tasks() == before
    assert pot.clock.pending == 0
    assert [r.reason for r in pot.told(BudgetResumed)] == ["ended"]
