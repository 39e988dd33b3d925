"""One call's share of the budget, from its reservation to its settlement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from agentnb.core.budget import OUTPUT_SLICE, Reservation, size_in_bytes, tokens_in
from agentnb.core.money import Amount, Rate
from agentnb.core.types import BudgetStatus, CompletionRequest, Usage

if TYPE_CHECKING:
    from agentnb.core.protocols import Provider


def input_amount(rate: Rate | None, tokens: int, *, may_write_cache: bool) -> int | Amount:
    """What to reserve for a call's input: tokens, and their price if a budget counts money."""
    if rate is None:
        return tokens
    return Amount(tokens, rate.at(tokens).of_input(tokens, may_write_cache=may_write_cache))


def _beyond(counted: int | Amount, known: int | Amount) -> int | Amount:
    """By how much `counted` exceeds `known`; 0 if it does not."""
    if isinstance(counted, Amount) and isinstance(known, Amount):
        more = [max(0, a - b) for a, b in zip(counted, known, strict=True)]
        return Amount(*more) if any(more) else 0
    return max(0, int(counted) - int(known))  # type: ignore[arg-type]


def _larger(counted: int | Amount, known: int | Amount) -> int | Amount:
    if isinstance(counted, Amount) and isinstance(known, Amount):
        return Amount(*map(max, counted, known))
    return counted


class Ledger(Protocol):
    """Callbacks to the meter that issued the lease."""

    def usage_changed(self, status: BudgetStatus) -> None:
        """The number of used tokens changed."""
        ...

    def lease_settled(self, lease: Lease, status: BudgetStatus) -> None:
        """The lease is settled: the budget may have room for other calls."""
        ...

    def must_leave(self, *, for_root_synthesis: bool) -> int:
        """How much a call must leave free in the budget, in the budget's unit."""
        ...

    def full_budget(self, amount: int | Amount, *, for_root_synthesis: bool) -> str:
        """Name of the budget, this run's or one above it, that has no room for `amount`."""
        ...

    def report_exhausted(self) -> None:
        """A call other than the root's synthesis was halted."""
        ...


class Lease:
    """One call's share of the budget. See `agentnb.core.protocols.CallLease`."""

    took_ms: int | None = None

    def __init__(
        self,
        ledger: Ledger,
        reservation: Reservation,
        request: CompletionRequest,
        *,
        input_tokens: int,
        output_tokens: int,
        limited_by: str | None,
        for_root_synthesis: bool,
        rate: Rate | None = None,
        may_write_cache: bool = False,
    ) -> None:
        self._rate = rate
        """What the call's tokens cost; `None` if no budget counts money."""
        self._input_amount = input_amount(rate, input_tokens, may_write_cache=may_write_cache)
        self.limited_by = limited_by
        self.request = request
        self.for_root_synthesis = for_root_synthesis
        self.halted: str | None = None
        self._on_halt: Callable[[], None] | None = None
        self._ledger = ledger
        self._reservation = reservation
        self._input = input_tokens
        self._held_output = output_tokens
        self._known_input = self._input_amount
        self._replied = False

    def answered_by(self, provider: Provider) -> Provider:
        """See `agentnb.core.protocols.CallLease`."""
        return provider

    def when_halted(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the call is halted."""
        self._on_halt = callback

    def reply_started(self) -> None:
        """Count the input as spent."""
        if not self._replied:
            self._replied = True
            self._ledger.usage_changed(self._reservation.meter(self._input_amount))

    def input_counted(self, usage: Usage) -> None:
        """Take the provider's count of the input, and reserve what exceeds the estimate."""
        tokens = usage.budget_tokens - usage.output_tokens
        if self._rate is None:
            counted: int | Amount = tokens
        else:
            counted = Amount(tokens, self._rate.of(replace(usage, output_tokens=0)))
        more = _beyond(counted, self._known_input)
        if more:
            self._reservation.extend_by_what_fits(more)
            self._known_input = _larger(counted, self._known_input)

    def output_grew(self, text: str) -> None:
        """Meter `text`; halts the call when the budget has no room for the next slice."""
        held = self._reservation
        # In bytes of the whole text: rounded up to tokens one by one, short pieces would count up
        # to fourfold.
        held.streamed += len(text) if text.isascii() else size_in_bytes(text)
        if held.streamed > held.free_until:
            self._book()

    def _book(self) -> None:
        full = self._hold(self._output)
        self._ledger.usage_changed(self._reservation.book(limit=self._held_output))
        if full is not None:
            self.halt(f"{full} was used up in the middle of the answer")

    def _hold(self, output: int) -> str | None:
        """Reserve slices up to `output` tokens.

        Returns:
            The name of the budget that has no room for them; `None` if they are reserved.
        """
        is_last = self.for_root_synthesis
        if output <= self._held_output:
            return None
        rate = None if self._rate is None else self._rate.at(self._input)
        while output > self._held_output:
            # The last slice is cut to what `max_tokens` leaves: there may be no room for a whole
            # one.
            rest = self.request.max_tokens - self._held_output
            more = min(OUTPUT_SLICE, rest) if rest > 0 else OUTPUT_SLICE
            leave = self._ledger.must_leave(for_root_synthesis=is_last)
            amount = more if rate is None else Amount(more, rate.of_output(more))
            if not self._reservation.extend(amount, leave=leave):
                return self._ledger.full_budget(amount, for_root_synthesis=is_last)
            self._held_output += more
        return None

    @property
    def _output(self) -> int:
        """Tokens of output so far, estimated from the size of the text."""
        return tokens_in(self._reservation.streamed)

    def halt(self, why: str) -> None:
        """End the call now; the text so far is kept."""
        if self.halted is None:
            self.halted = why
            if not self.for_root_synthesis:
                self._ledger.report_exhausted()
            if self._on_halt is not None:
                self._on_halt()

    def settle(self, usage: Usage | None, *, is_complete: bool) -> tuple[Usage, int]:
        """Settle the call. See `agentnb.core.protocols.CallLease.settle`.

        Three cases: the provider counted (its numbers), it counted nothing (the estimate; 0 if no
        reply began), or it counted before a reply that was cut off (its numbers, and the estimate
        of the output that came after them).
        """
        if usage is None:
            usage = Usage(self._input, self._output) if self._replied else Usage()
        elif not is_complete and usage.output_tokens < self._output:
            usage += Usage(output_tokens=self._output - usage.output_tokens)
        spent = usage.budget_tokens if self._rate is None else self._rate.amount(usage)
        self._ledger.lease_settled(self, self._reservation.settle(spent))
        return usage, usage.budget_tokens - self._foreseen

    @property
    def _foreseen(self) -> int:
        """Tokens that the call was expected to use by now, and reserved."""
        return (self._input if self._replied else 0) + min(self._output, self._held_output)
