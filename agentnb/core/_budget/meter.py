"""Leases of one run's budget: the one place where its tokens are spent.

A call gets a lease: its input and a first slice of output, reserved. While the reply streams, the
lease meters it and extends itself slice by slice; at its end the provider's own count settles it.
Part of the total is reserved for the root's synthesis, so a run that exhausts its budget still
ends with an answer; that call does not wait for the budget's question either.

A call (`agentnb.core._call.services`) asks with `Meter.lease`, which has three answers:

- a `Lease`: the call may be made;
- `None`: not now. Either the budget's question is open (`wait_while_paused`), or open calls may
  settle for less than they hold (`wait_for_room`). Then it asks again;
- `BudgetExceeded`: never. A limit ended the run's work, or no open call could make room.

Calls that wait for room are in one queue, first come first served. `_wake_queue` wakes those that
fit, or all of them if waiting cannot help. It runs after every change that matters: a lease
settled, a new total, an answer, a limit, a waiting call that gave up.

Calls that wait for the gate or for a retry are in a `Wait`; `_halt` ends those together with open
leases.

A budget may be below others (`RequestBudget.above`), which other runs use, too. A call then needs
room in each of them. It waits only if every budget that lacks room has open calls, and it cannot
use what the runs above reserve for their own synthesis. Only the run's own budget has a warning
line here.

All methods belong to the run's loop. `RequestBudget.set_total` and changes by other runs of the
chain may come from any thread; they arrive here through `call_soon_threadsafe`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from agentnb.core._budget.before import ToldBefore
from agentnb.core._budget.lease import Lease, input_amount
from agentnb.core._budget.pause import BudgetPause
from agentnb.core.budget import OUTPUT_SLICE, RequestBudget, Reservation, Shortage
from agentnb.core.clock import Clock, TimeLimit, TimerHandle
from agentnb.core.events import (
    AgentCompleted,
    AgentSpawned,
    BudgetChanged,
    BudgetExhausted,
    BudgetUpdate,
    BudgetWarning,
    LimitReached,
)
from agentnb.core.limits import Refusal, RunLimits
from agentnb.core.money import TOKENS, Amount, Rate, share_in_words
from agentnb.core.protocols import BudgetGate
from agentnb.core.questions import Questions
from agentnb.core.synthesis import TOKENS_OF_ANSWER
from agentnb.core.types import BudgetStatus, CompletionRequest, Usage, path_key

if TYPE_CHECKING:
    from agentnb.core._past.whole import BudgetAct
    from agentnb.core.bus import EventBus

_QUESTION = "the budget's question"
"""The reason for pausing the run's time limit, as `RunLimits.pause` takes it."""
UPDATE_EVERY_S = 0.1
"""Minimum seconds between two `BudgetUpdate`s, except after a new total and at the run's end."""


def least_amount(
    request: CompletionRequest,
    input_tokens: int,
    rate: Rate | None = None,
    *,
    cache_prefix: int = 0,
) -> int | Amount:
    """The least that a call must reserve: its input and the first slice of its output."""
    writes = may_write_cache(request, cache_prefix)
    held = input_amount(rate, input_tokens, may_write_cache=writes)
    output = min(request.max_tokens, OUTPUT_SLICE)
    return _with_output(held, output, None if rate is None else rate.at(input_tokens))


def _with_output(held: int | Amount, output: int, rate: Rate | None) -> int | Amount:
    if isinstance(held, Amount) and rate is not None:
        return Amount(held.tokens + output, held.micros + rate.of_output(output))
    return int(held) + output  # type: ignore[arg-type]


def may_write_cache(request: CompletionRequest, cache_prefix: int) -> bool:
    """Whether a provider may set a cache breakpoint: input may then cost as much as a write."""
    return cache_prefix > 0 or len(request.messages) > 1


def synthesis_reserve(total: int, least: int = TOKENS_OF_ANSWER) -> int:
    """How much is reserved for the root's synthesis until the root delegates.

    Args:
        total: The budget's total, in its unit.
        least: The minimum, in the same unit: 512 tokens, or the price of 512 output tokens.

    Returns:
        5 % of the total, but at least `least` and at most a quarter of the total.
    """
    return min(max(total // 20, least), total // 4)


class KeepsOrders(Protocol):
    """What the meter needs of the run's recorder."""

    def order(self, kind: str, by: str, value: Any, path: str = "") -> None: ...

    def asked(self) -> None: ...

    def warned(self, decision: str, why: str | None, *, answer: str, by: str) -> None: ...

    def of_run_again(self, kind: str, value: Any) -> None: ...


class BudgetExceeded(Exception):
    """A call cannot be made, now or later. The message says why."""

    link = 0
    """Index in its chain of the model that was to be asked."""


class Waiting(NamedTuple):
    """A call that waits for room."""

    amount: int | Amount
    for_root_synthesis: bool
    turn: asyncio.Future[None]
    """Set to wake the call."""


class Meter:
    """Issues leases on one budget, and asks whether to continue when it runs low.

    Args:
        budget: The budget.
        bus: Where the budget's events are published.
        clock: The run's clock.
        policy: What happens at the warning line without a gate: `ask` (holds new calls if a person
            can answer), `continue` or `stop`.
        gate: Asked instead of a person.
        is_attended: Returns whether a person can answer.
        questions: The run's questions; the meter closes them at its end. By default a new queue.
        root_id: The root agent's id.
        limits: The run's other limits; none by default.
        recorder: Records orders and decisions; `None` for no records.
        rate: Prices of the root's tokens; `None` if no budget of the chain counts money.
    """

    def __init__(
        self,
        budget: RequestBudget,
        bus: EventBus,
        clock: Clock,
        *,
        policy: str = "ask",
        gate: BudgetGate | None = None,
        is_attended: Callable[[], bool] = lambda: False,
        questions: Questions | None = None,
        root_id: str = "",
        limits: RunLimits | None = None,
        recorder: KeepsOrders | None = None,
        rate: Rate | None = None,
    ) -> None:
        self.budget = budget
        self._rate = rate
        self._recorder = recorder
        self._limits = limits or RunLimits()
        self._bus = bus
        self._clock = clock
        self._policy = policy
        self._has_gate = gate is not None
        self._is_attended = is_attended
        self._known_total = budget.total
        self._known_above = self._totals_above
        self._stopped: str | None = None
        self._exhausted_reported = False
        self._is_exhausted = False
        self._ended_by = "the budget ended"
        self._questions = questions or Questions(bus, clock, root_id=root_id, recorder=recorder)
        self._pause = BudgetPause(
            bus, self._questions, root_id=root_id, gate=gate, on_answer=self._answered
        )
        self._queue: list[Waiting] = []
        # Dicts as ordered sets: a run that is repeated halts its calls in the same order.
        self._open: dict[Lease, None] = {}
        self._waits: dict[Wait, None] = {}
        self._tools: dict[TimeLimit, None] = {}
        self._updated_at_s = float("-inf")
        self._update_timer: TimerHandle | None = None
        self._seen_crossings = budget.crossings
        self._has_warned = False
        self._warned_early_at = -1
        """The total for which exhaustion published a warning below the warning line; -1: none."""
        self._synthesis_need: Callable[[], int] | None = None
        """Returns the tokens of the root's synthesis; set when the root delegates."""
        self._used_before_delegation = 0
        self._others_changed = False
        """Whether `_on_change_of_others` is scheduled."""
        self._used_below = budget.tokens_used_below
        self._is_closed = False
        self._is_spent_again = False
        """Whether the tokens of recorded calls were counted at the start."""
        self._new_total: int | None = None
        self._before: ToldBefore | None = None
        """Publishes the recorded budget events, while the run repeats its record."""

    # -- a run that repeats its record --------------------------------------------------------

    def follow(
        self,
        acts: Sequence[BudgetAct],
        total: int,
        used_s: float,
        spent: int | None,
        *,
        new_total: int | None = None,
    ) -> None:
        """Publish the recorded budget events until `go_on`. Call it before the run begins.

        Args:
            acts: The recorded questions, decisions and totals. The last total counts from now on.
            total: The total at the run's start.
            used_s: Seconds of its time limit that the run has used.
            spent: What its finished calls have spent, in the budget's unit; `None` to count them
                one by one as they are repeated.
            new_total: The total from `go_on` on; by default the last recorded one.
        """
        budget = self.budget
        self._new_total = new_total
        if spent is not None:
            budget.spent_before(spent)
            self._used_below = budget.tokens_used_below
        self._is_spent_again = spent is not None
        # Only the last total: runs below may be using this budget meanwhile.
        for act in [each for each in acts if each.kind == "budget"][-1:]:
            budget.set_total(act.value, by=act.by)
        self._known_total = budget.total
        self._before = ToldBefore(
            acts, total, budget, self._bus, self._recorder, self._questions.timeout_s
        )
        self._limits.follow(used_s)

    def go_on(self, *, tells_the_rest: bool = True) -> None:
        """The record is repeated: from now on warn, ask and stop as usual.

        Args:
            tells_the_rest: Whether to publish the recorded events that are left; if not, they are
                dropped.
        """
        before = self._before
        if before is None:
            return
        if tells_the_rest:
            before.tell_the_rest()
        self._before = None
        budget = self.budget
        self._seen_crossings = budget.crossings
        self._has_warned, self._stopped = before.has_warned, before.stopped
        self._limits.go_on()
        if before.has_crossed:
            budget.disarm()
        if self._new_total is not None:  # before any warning: it may not be due by this total
            budget.set_total(self._new_total)
        if not before.has_crossed:
            self._warned_early_at = before.total if before.is_warned else -1
            if not budget.is_warning_due:  # the lost calls, just counted, crossed the line
                self._warn(can_go_on=budget.tokens_used < budget.total)
        if before.is_asked:
            self._limits.pause(_QUESTION)
            self._pause.ask(self._warning(), is_told=True)
        self._on_new_total()

    async def __aenter__(self) -> Meter:
        loop = asyncio.get_running_loop()

        def new_total() -> None:
            with suppress(RuntimeError):  # the run's loop is closed: the run is over
                loop.call_soon_threadsafe(self._on_new_total)

        def others_changed() -> None:
            if not self._others_changed:  # else the scheduled call sees this change, too
                self._others_changed = True
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._on_change_of_others)

        self.budget.when_total_set(new_total)
        self.budget.when_others_change(others_changed)
        self.budget.keep(lambda: self.kept)
        self._limits.begin(self._clock, self._on_limit)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.go_on()
        self._is_closed = True  # a scheduled `_on_new_total` may still run: it does nothing then
        self._limits.end()
        self.budget.when_total_set(None)
        self.budget.when_others_change(None)
        self.budget.keep(None)
        self._synthesis_need = None  # it refers to the root, and so to the whole record
        try:
            self._pause.close()
            await self._questions.aclose()
        finally:  # also when cancelled: a pending update must not come after the run's end
            self._update(force=True)

    # -- leases ---------------------------------------------------------------------------

    @property
    def is_exhausted(self) -> bool:
        """Whether the run's work cannot continue: a limit was reached and has not been raised."""
        return self._is_exhausted or self._stop_reason() is not None

    @property
    def was_exhausted(self) -> bool:
        """Whether this run was exhausted at any time."""
        return self._exhausted_reported

    @property
    def ended_by(self) -> str:
        """Which limit ended an exhausted run's work, in words."""
        reached = self._limits.may_call()
        return reached.reason if reached is not None else self._ended_by

    def _stop_reason(self, *, for_root_synthesis: bool = False) -> str | None:
        """Why no call may be made, even with room in the budget; `None` if calls may be made."""
        if for_root_synthesis:
            return None
        reached = self._limits.may_call()
        return reached.reason if reached is not None else self._stopped

    @property
    def is_paused(self) -> bool:
        return self._pause.is_open

    def holds(self, *, for_root_synthesis: bool) -> bool:
        """Whether a call has to wait for the answer to the budget's question."""
        return self.is_paused and not for_root_synthesis

    def root_delegates(self, need: Callable[[], int]) -> None:
        """Reserve what the root's synthesis needs at least. Only the first call has an effect.

        Args:
            need: Returns the tokens that it needs. Called repeatedly, since the root's conversation
                and its tasks may grow.
        """
        if self._synthesis_need is None:
            self._synthesis_need = need
            self._used_before_delegation = self.budget.tokens_used

    @property
    def kept(self) -> int:
        """Reserve for the root's synthesis, in the budget's unit.

        Once the root has delegated: the least that the synthesis needs, but at most a third of what
        the current total had left at that point. The budget calls this under its lock, so it reads
        only what needs no lock.
        """
        total, need = self.budget.total, self._synthesis_need
        if need is None:
            return synthesis_reserve(total, self._in_unit(0, TOKENS_OF_ANSWER))
        # At most a third: a root with a long conversation must not leave its sub-agents nothing.
        left_then = max(0, total - self._used_before_delegation)
        tokens = need()
        output = min(tokens, TOKENS_OF_ANSWER)
        return min(self._in_unit(tokens - output, output), left_then // 3)

    def _in_unit(self, input_tokens: int, output_tokens: int) -> int:
        """Tokens of the root's model, converted to this budget's unit."""
        if self.budget.unit == TOKENS or (rate := self._rate) is None:
            return input_tokens + output_tokens
        return rate.of_input(input_tokens, may_write_cache=True) + rate.of_output(output_tokens)

    def room(self) -> int:
        """Input tokens for which the root's synthesis has room now, before any output."""
        if self._rate is None:
            return self.budget.available
        as_input = replace(self._rate, output=max(self._rate.input, self._rate.cache_write))
        return max(0, self.budget.output_room(Amount(0, 0), as_input))

    def has_room(self, input_tokens: int, output_tokens: int) -> bool:
        """Whether the root's synthesis now has room for this much input and output."""
        if (rate := self._rate) is None:
            return input_tokens + output_tokens <= self.budget.available
        held = input_amount(rate, input_tokens, may_write_cache=True)
        assert isinstance(held, Amount)
        return output_tokens <= self.budget.output_room(held, rate.at(input_tokens))

    def _shortage(self, amount: int | Amount, *, for_root_synthesis: bool) -> Shortage | None:
        """Which budget has no room for a call now; `None` if all have room."""
        leave = self.must_leave(for_root_synthesis=for_root_synthesis)
        return self.budget.shortage(amount, leave=leave)

    def lease(
        self,
        request: CompletionRequest,
        *,
        input_tokens: int,
        cache_prefix: int = 0,
        hidden_output: bool = False,
        for_root_synthesis: bool = False,
        rate: Rate | None = None,
    ) -> Lease | None:
        """Try to reserve budget for a call.

        Args:
            request: The request; the lease may lower its `max_tokens`.
            input_tokens: The size of its input.
            cache_prefix: Leading characters of its system prompt worth a cache breakpoint.
            hidden_output: Whether the model may produce output that does not stream, like
                thinking: then all of `max_tokens` is reserved.
            for_root_synthesis: Whether the call is the root's synthesis, which may use the reserve.
            rate: Prices of its tokens; required if a budget of the chain counts money.

        Returns:
            The lease; `None` if the call must wait for an answer or for other calls to settle.

        Raises:
            BudgetExceeded: The call can never be made. See the module's docstring.
        """
        if self.holds(for_root_synthesis=for_root_synthesis):
            return None
        leave = self.must_leave(for_root_synthesis=for_root_synthesis)
        if why := self._stop_reason(for_root_synthesis=for_root_synthesis):
            raise self._exceeded(why, for_root_synthesis)
        # The reply may be as long as the budget allows (`max_tokens`), but a call is only worth
        # making if one slice of output fits. A reply that streams reserves one slice now and the
        # rest while it streams.
        writes = may_write_cache(request, cache_prefix)
        input_ = input_amount(rate, input_tokens, may_write_cache=writes)
        at = None if rate is None else rate.at(input_tokens)
        if at is None or not isinstance(input_, Amount):
            room = self.budget.free(leave=leave) - input_tokens
        else:
            room = self.budget.output_room(input_, at, leave=leave)
        max_tokens = min(request.max_tokens, room)
        wanted = request.max_tokens if hidden_output else min(OUTPUT_SLICE, request.max_tokens)
        output = min(wanted, max_tokens)
        enough = max_tokens >= min(wanted, OUTPUT_SLICE)
        held = self._reserve(_with_output(input_, output, at), leave, at) if enough else None
        if held is not None:
            limited_by: str | None = None
            if max_tokens < request.max_tokens:
                rest = request.max_tokens - output
                more = rest if at is None else Amount(rest, at.of_output(rest))
                limited_by = self.full_budget(more, for_root_synthesis=for_root_synthesis)
            if limited_by or cache_prefix != request.cache_prefix:
                request = request.limited(max_tokens=max_tokens, cache_prefix=cache_prefix)
            lease = Lease(
                self,
                held,
                request,
                input_tokens=input_tokens,
                output_tokens=output,
                limited_by=limited_by,
                for_root_synthesis=for_root_synthesis,
                rate=rate,
                may_write_cache=writes,
            )
            self._open[lease] = None
            return lease
        needed = least_amount(request, input_tokens, rate, cache_prefix=cache_prefix)
        short = self._shortage(needed, for_root_synthesis=for_root_synthesis)
        if short is None or short.may_pass:  # `None`: another thread settled a call just now
            return None
        raise self._exceeded(
            _why_no_room(needed, short, leave if short.budget is self.budget else 0),
            for_root_synthesis,
            short,
        )

    def _reserve(self, amount: int | Amount, leave: int, rate: Rate | None) -> Reservation | None:
        if rate is None:
            return self.budget.reserve(amount, leave=leave)
        return self.budget.reserve(amount, leave=leave, rate=rate)

    def must_leave(self, *, for_root_synthesis: bool) -> int:
        """See `agentnb.core._budget.lease.Ledger`."""
        return 0 if for_root_synthesis else self.kept

    async def wait_for_room(
        self, amount: int | Amount, *, for_root_synthesis: bool = False
    ) -> None:
        """Wait until a call may fit, or until waiting cannot help. Then ask for a lease again.

        Args:
            amount: `least_amount` of the call.
            for_root_synthesis: As in `lease`.
        """
        if not self.has_to_wait(amount, for_root_synthesis=for_root_synthesis):
            return
        call = Waiting(amount, for_root_synthesis, asyncio.get_running_loop().create_future())
        self._queue.append(call)
        try:
            await call.turn
        finally:
            if call in self._queue:
                # Cancelled while it waited: smaller calls behind it may fit now.
                self._queue.remove(call)
                self._wake_queue()

    def has_to_wait(self, amount: int | Amount, *, for_root_synthesis: bool) -> bool:
        """Whether a call has no room now, but open calls may make some."""
        if self._stop_reason(for_root_synthesis=for_root_synthesis) is not None:
            return False
        short = self._shortage(amount, for_root_synthesis=for_root_synthesis)
        return short is not None and short.may_pass

    def wait(self, *, for_root_synthesis: bool) -> Wait:
        """An `async with` around a wait for anything but room: the gate, or the next retry.

        Raises:
            BudgetExceeded: The run was stopped, before the wait or during it.
        """
        if why := self._stop_reason(for_root_synthesis=for_root_synthesis):
            raise self._exceeded(why, for_root_synthesis)
        # With open calls it is worth waiting: they may settle for less than was metered.
        short = self.budget.shortage(Amount(1, 1))
        if short is not None and not short.may_pass:
            is_are = "are" if short.budget.unit == TOKENS else "is"
            why = f"all of {short.budget.in_words(short.budget.total)} {is_are} used"
            raise self._exceeded(why, for_root_synthesis, short)
        return Wait(self._waits, self._exceeded, TimeLimit(self._clock), for_root_synthesis)

    @contextmanager
    def ending_with_run(self, limit: TimeLimit) -> Iterator[None]:
        """Within the block, `limit` expires when a limit of the run stops all calls and tools."""
        self._tools[limit] = None
        try:
            yield
        finally:
            del self._tools[limit]

    @property
    def stopped_by(self) -> str | None:
        """Which limit has stopped all calls and tools, in words; `None` if none has."""
        reached = self._limits.may_call()
        return reached.reason if reached is not None and reached.stops_open_calls else None

    async def wait_while_paused(self) -> None:
        await self._pause.wait_until_closed()

    def does_not_call(self) -> None:
        """A call that was woken does not use its room after all: wake others."""
        self._wake_queue()

    def _wake_queue(self) -> None:
        """Wake the calls at the head of the queue that fit.

        The first that does not fit blocks those behind it: otherwise small calls could overtake a
        large one for ever. All are woken if waiting cannot help: no open call could settle, or the
        run was stopped. Each then asks for a lease, which decides.
        """
        taken: int | Amount = 0  # what the calls woken so far need
        while self._queue:
            call = self._queue[0]
            together = _together(call.amount, taken)
            if self.has_to_wait(together, for_root_synthesis=call.for_root_synthesis):
                return
            del self._queue[0]
            taken = together
            if not call.turn.done():
                call.turn.set_result(None)

    # -- changes of the budget ------------------------------------------------------------

    def lease_settled(self, lease: Lease, status: BudgetStatus) -> None:
        """See `agentnb.core._budget.lease.Ledger`."""
        self._open.pop(lease, None)
        self.usage_changed(status)
        self._wake_queue()

    def spend_recorded(
        self, usage: Usage, path: str, number: int, rate: Rate | None = None
    ) -> None:
        """See `agentnb.core._call.recorded.Books`."""
        spent = usage.budget_tokens if rate is None else rate.amount(usage)
        if self._is_spent_again:
            self.budget.spend_again(spent)
        else:
            self.budget.add_tokens(spent)
        if self._before is not None:
            self._before.call_ended(path, number)
        self._update(force=False)

    def usage_changed(self, status: BudgetStatus) -> None:
        """See `agentnb.core._budget.lease.Ledger`."""
        # Compare counts: `status` is only EXHAUSTED if the warning line and the total were crossed.
        if self.budget.crossings > self._seen_crossings and self._before is None:
            self._seen_crossings = self.budget.crossings
            self._warn(can_go_on=status is not BudgetStatus.EXHAUSTED)
        self._update(force=False)

    def _update(self, *, force: bool) -> None:
        """Publish a `BudgetUpdate`: now if forced, else `UPDATE_EVERY_S` after the last one."""
        wait_s = self._updated_at_s + UPDATE_EVERY_S - self._clock.now()
        if wait_s > 0 and not force:
            if self._update_timer is None:
                self._update_timer = self._clock.call_later(wait_s, self._update_now)
            return
        self._update_now()

    def _update_now(self) -> None:
        if self._update_timer is not None:
            self._update_timer.cancel()
            self._update_timer = None
        self._updated_at_s = self._clock.now()
        self.budget.book_all()  # the next output is then booked at once and triggers an update
        now = self._warning()
        self._bus.publish(
            BudgetUpdate(
                tokens_used=now.tokens_used,
                budget_total=now.budget_total,
                percentage=now.percentage,
                unit=now.unit,
            )
        )

    def _exceeded(
        self, why: str, for_root_synthesis: bool, short: Shortage | None = None
    ) -> BudgetExceeded:
        """Mark the run as exhausted, and return the error.

        `why` is the reason if the run's own budget is short; a budget above is named instead.
        """
        self._is_exhausted = True
        if not for_root_synthesis:
            self.report_exhausted()
        self._ended_by = f"{self._name_of(short)} ended"
        if short is not None and short.budget is not self.budget:
            why = f"{short.budget.name} is used up"
        return BudgetExceeded(why)

    def _name_of(self, short: Shortage | None) -> str:
        return "the budget" if short is None or short.budget is self.budget else short.budget.name

    def full_budget(self, amount: int | Amount, *, for_root_synthesis: bool) -> str:
        """See `agentnb.core._budget.lease.Ledger`."""
        return self._name_of(self._shortage(amount, for_root_synthesis=for_root_synthesis))

    def report_exhausted(self) -> None:
        """Publish, once per run, that work other than the root's synthesis could not continue.

        Publishes a warning first, unless one was published for this total.
        """
        # A reply ends at the `max_tokens` that its lease allowed, even if the total has been raised
        # since. Then there is room for other calls, and the run is not exhausted.
        slice_ = _with_output(0, OUTPUT_SLICE, None)
        if (rate := self._rate) is not None:
            slice_ = _with_output(Amount(0, 0), OUTPUT_SLICE, rate)
        short = self.budget.shortage(slice_, leave=self.kept)
        if short is not None:
            self._is_exhausted = True
            self._ended_by = f"{self._name_of(short)} ended"
        self._report_once()

    def exhausted_before(self, ended_by: str, *, for_root_synthesis: bool = False) -> None:
        """See `agentnb.core._call.recorded.Books`."""
        self._limits.reached_before(ended_by)
        self._is_exhausted = True
        self._ended_by = ended_by
        if not for_root_synthesis:
            self._report_once()

    def _report_once(self) -> None:
        if self._exhausted_reported:
            return
        self._exhausted_reported = True
        # A large call can fail below the warning line. Readers always get a warning first, and it
        # is not repeated when the line is crossed later (`_warned_early_at`).
        if self._before is not None:
            self._before.warn_once()
        elif self.budget.is_warning_due or not self._has_warned:
            self._warned_early_at = self.budget.total
            self._publish_warning()
        done, open_ = self._agents()
        now = self._warning()
        self._bus.publish(
            BudgetExhausted(
                tokens_used=now.tokens_used,
                budget_total=now.budget_total,
                percentage=now.percentage,
                unit=now.unit,
                completed_agents=done,
                incomplete_agents=open_,
            )
        )

    def _agents(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The ids of all agents so far: the completed ones, and the others."""
        completed: dict[str, bool] = {}
        for _, event in self._bus.lifecycle_rows:
            if isinstance(event, AgentSpawned):
                completed[event.agent_id] = False
            elif isinstance(event, AgentCompleted):
                completed[event.agent_id] = True
        in_order = sorted(completed, key=path_key)
        done = tuple(each for each in in_order if completed[each])
        return done, tuple(each for each in in_order if not completed[each])

    def _on_limit(self, refusal: Refusal) -> None:
        """A limit other than the budget ends the run's work; only the root's synthesis may run."""
        done, open_ = self._agents()
        self._bus.publish(
            LimitReached(
                limit=refusal.limit,
                value=refusal.value or 0,
                completed_agents=done,
                incomplete_agents=open_,
            )
        )
        self._exhausted_reported = True  # `LimitReached` replaces `BudgetExhausted`
        # Waiting calls end, except the root's synthesis. Open calls and tools end at the time
        # limit; after too many failures they may finish.
        self._halt(refusal.reason, open_calls=refusal.stops_open_calls)
        for tool in list(self._tools) if refusal.stops_open_calls else ():
            tool.expire()
        self._pause.settle("ended", "limit")  # no answer could admit calls now
        self._wake_queue()

    def _on_new_total(self) -> None:
        """Apply a new total.

        A higher total undoes a stop and answers an open question with yes. A total at or below what
        is used ends everything, the root's synthesis included. Any other lower total only counts
        from now on.
        """
        if self._before is not None:
            return  # a person set it while the run repeats its record: `go_on` applies it
        budget = self.budget
        previous, self._known_total = self._known_total, budget.total
        if previous == budget.total or self._is_closed:
            return
        self._bus.publish(
            BudgetChanged(
                budget_total=budget.total,
                previous_total=previous,
                tokens_used=budget.tokens_used,
                by=budget.total_set_by,
                unit=budget.unit,
            )
        )
        if self._recorder is not None:
            self._recorder.order("budget", budget.total_set_by, budget.total)
        self._update(force=True)
        self._warned_early_at = min(self._warned_early_at, budget.total)
        if budget.total > previous:
            self._is_exhausted = False
            self._stopped = None
            self._pause.settle("raised", budget.total_set_by)
        elif budget.tokens_used >= budget.total:
            self._halt(
                f"the total was set to {budget.in_words(budget.total)}, "
                f"which {_were(budget)} already used",
                also_synthesis=True,
            )
            self._pause.settle("lowered", budget.total_set_by)
        self._wake_queue()

    @property
    def _totals_above(self) -> tuple[int, ...]:
        return tuple([each.total for each in self.budget.above])

    def _on_change_of_others(self) -> None:
        """Another run released part of this budget or one above, or a total above was set."""
        self._others_changed = False
        if self._is_closed:
            return
        budget, used_below = self.budget, self.budget.tokens_used_below
        if used_below != self._used_below:
            self._used_below = used_below
            is_used_up = budget.tokens_used >= budget.total
            self.usage_changed(BudgetStatus.EXHAUSTED if is_used_up else BudgetStatus.OK)
        previous, self._known_above = self._known_above, self._totals_above
        for each, before in zip(budget.above, previous, strict=True):
            if each.total > before:
                self._is_exhausted = False
            elif each.total < before and each.tokens_used >= each.total:
                self._halt(
                    f"the total of {each.name} was set to {each.in_words(each.total)}, "
                    f"which {_were(each)} already used",
                    also_synthesis=True,
                )
        self._wake_queue()

    def _halt(self, why: str, *, also_synthesis: bool = False, open_calls: bool = True) -> None:
        """Halt every `Wait`, and with `open_calls` every open call; its text so far is kept.

        Calls that wait for room or for an answer are not halted: they ask for a lease again.
        """
        calls: list[Lease | Wait] = [*(self._open if open_calls else ()), *self._waits]
        for call in calls:
            if also_synthesis or not call.for_root_synthesis:
                call.halt(why)

    # -- the warning and its question -----------------------------------------------------

    def _warn(self, *, can_go_on: bool) -> None:
        """Publish a warning, and follow the policy: stop, ask, or continue."""
        warning = self._warning()
        if self.budget.total > self._warned_early_at:  # else `report_exhausted` published it
            self._publish_warning()
        self._warned_early_at = -1
        if not can_go_on:
            return  # the total was crossed, too: nothing is left to ask about
        if not self._has_gate and self._policy == "stop":
            why = "the run was set to stop at the budget's warning line"
            self._decided("stop", why)
            self._stop(why)
        elif self.is_exhausted:
            return  # only the root's synthesis is left, and it does not wait for an answer
        elif self._has_gate or (self._policy == "ask" and self._is_attended()):
            self._limits.pause(_QUESTION)
            if self._recorder is not None and not self.is_paused:
                self._recorder.asked()
            self._pause.ask(warning)
        else:
            self._decided("continue", None)

    def _publish_warning(self) -> None:
        self._has_warned = True
        self._bus.publish(self._warning())

    def _warning(self) -> BudgetWarning:
        if self._before is not None:
            return self._before.warning()
        budget = self.budget
        return BudgetWarning(
            tokens_used=budget.tokens_used,
            budget_total=budget.total,
            percentage=budget.percentage,
            unit=budget.unit,
        )

    def answer(self, answer: str, by: str = "code") -> None:
        """A person's answer to the open question. See `BudgetPause.answer`."""
        self._pause.answer(answer, by)

    def _decided(self, decision: str, why: str | None, *, answer: str = "", by: str = "") -> None:
        """Record what the run does after a warning."""
        if self._recorder is not None:
            self._recorder.warned(decision, why, answer=answer, by=by)

    def _answered(self, answer: str, why_stop: str | None, by: str) -> None:
        decision = "continue" if why_stop is None else "stop"
        self._decided(decision, why_stop, answer=answer, by=by)
        self._limits.resume(_QUESTION)
        if why_stop is not None:
            self._stop(why_stop)
        self._wake_queue()

    def _stop(self, why: str) -> None:
        """End the run's work, except the root's synthesis, until the total is raised."""
        self._stopped = why
        self._halt(why)
        self._wake_queue()


def _were(budget: RequestBudget) -> str:
    return "were" if budget.unit == TOKENS else "was"


def _together(one: int | Amount, other: int | Amount) -> int | Amount:
    """The sum of two amounts of one kind; 0 stands for nothing in either kind."""
    if isinstance(one, Amount):
        more = other if isinstance(other, Amount) else Amount(0, 0)
        return Amount(one.tokens + more.tokens, one.micros + more.micros)
    return one + int(other)  # type: ignore[arg-type]


def _why_no_room(needed: int | Amount, short: Shortage, leave: int) -> str:
    """Why a call can never be made, with the figures of the budget that lacks room."""
    budget, free = short.budget, max(0, short.free)
    if budget.unit == TOKENS:
        tokens = needed.tokens if isinstance(needed, Amount) else needed
        why = f"the call needs about {tokens:,} tokens and {free:,} of {budget.total:,} are left"
        kept = f"{leave:,} that are"
    else:
        micros = needed.micros if isinstance(needed, Amount) else needed
        left = share_in_words(free, budget.total, budget.unit)
        why = f"the call needs about {budget.in_words(micros)} and {left} is left"
        kept = f"{budget.in_words(leave)} that is"
    return f"{why} beside the {kept} kept for the synthesis" if leave else why


class Wait:
    """A call's wait for the gate or for a retry, which the meter can end with `BudgetExceeded`."""

    def __init__(
        self,
        open_waits: dict[Wait, None],
        exceeded: Callable[[str, bool], BudgetExceeded],
        limit: TimeLimit,
        for_root_synthesis: bool,
    ) -> None:
        self.for_root_synthesis = for_root_synthesis
        self._halted: str | None = None
        self._open_waits = open_waits
        self._exceeded = exceeded
        self._limit = limit

    async def __aenter__(self) -> None:
        self._open_waits[self] = None
        self._limit.__enter__()

    async def __aexit__(self, *raised: Any) -> None:
        del self._open_waits[self]
        try:
            self._limit.__exit__(*raised)
        except TimeoutError:  # this limit's: one that the block raised passes through `__exit__`
            raise self._exceeded(self._halted or "", self.for_root_synthesis) from None

    def halt(self, why: str) -> None:
        """End the wait. The first reason stays."""
        if self._halted is None:
            self._halted = why
            self._limit.expire()
