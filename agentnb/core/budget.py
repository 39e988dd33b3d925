"""The token budget of a run: reserved before it is spent.

A reservation counts against the total until it is settled, so parallel calls cannot reserve the
same tokens. Used plus reserved tokens exceed the total only by what a provider counted beyond an
estimate.

Streamed output is counted piece by piece and booked a little later: far from the warning line
nothing depends on the order. Near it, every piece is booked as it arrives. `tokens_used` is exact
at any time.

A budget may stand below another, and that one below a third: a chain. What is reserved or spent in
a budget is reserved and spent in each above it, at once: all budgets that are connected have one
lock.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agentnb.core.text import literal
from agentnb.core.types import (
    MOST,
    BudgetStatus,
    CompletionRequest,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
)

BYTES_PER_TOKEN = 4
OUTPUT_SLICE = 256
"""Output tokens that a call reserves ahead of what has streamed.

Far from the warning line and the total, it may stream as many before they are booked.
"""


def estimate_tokens(text: str) -> int:
    """Tokens of `text` by its size: four bytes to a token, rounded up."""
    return tokens_in(size_in_bytes(text))


def size_in_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def tokens_in(size: int) -> int:
    """Tokens of `size` bytes of text."""
    return -(-size // BYTES_PER_TOKEN)


def estimate_input_tokens(request: CompletionRequest) -> int:
    """Tokens of a request's whole input by its size."""
    return estimate_tokens(request.system) + sum(map(_tokens_of, _parts_of(request)))


def _parts_of(request: CompletionRequest) -> tuple[Message | ToolSpec, ...]:
    return (*request.messages, *request.tools)


def _tokens_of(part: Message | ToolSpec) -> int:
    if isinstance(part, ToolSpec):
        return estimate_tokens(part.name + part.description + as_json(part.input_schema))
    tokens = 0
    for block in part.content:
        match block:
            case TextBlock(text) | ThinkingBlock(text) | ToolResultBlock(text=text):
                tokens += estimate_tokens(text)
            case ToolUseBlock(name=name, input=arguments):
                tokens += estimate_tokens(name + as_json(arguments))
    return tokens


_encode = json.JSONEncoder(default=str).encode  # `json.dumps` would create one each time


def as_json(value: Mapping[str, Any]) -> str:
    """`value` as JSON, as a provider would send it; only its size is used."""
    return _encode(dict(value))


class InputEstimate:
    """`estimate_input_tokens` for the requests of one conversation, measuring each message once.

    Each turn sends all earlier messages again. They are cached by identity, and kept, so that no
    other object gets the same id.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Message | ToolSpec, int]] = {}

    def of(self, request: CompletionRequest) -> int:
        """Tokens of the next request's whole input by its size."""
        if len(request.messages) < _MESSAGES_OF_A_LONG_CONVERSATION:
            return estimate_input_tokens(request)  # not worth a cache, and true for most agents
        tokens, known = estimate_tokens(request.system), self._known
        for part in _parts_of(request):
            found = known.get(id(part))
            if found is None:
                found = known[id(part)] = part, _tokens_of(part)
            tokens += found[1]
        return tokens


_MESSAGES_OF_A_LONG_CONVERSATION = 4


WARN_AT = 0.8
"""Fraction of a total at which a warning is due."""


def total_with_line_above(used: int) -> int:
    """The least total whose warning line is above the tokens that are used."""
    total = math.ceil((used + 1) / WARN_AT)
    return total if math.floor(WARN_AT * total) > used else total + 1  # a float is not exact


class Shortage(NamedTuple):
    """A budget of a chain that has no room for a call."""

    budget: RequestBudget
    free: int
    """Tokens that the call could get of it now."""
    may_pass: bool
    """Whether calls are open in it, which may settle for less than they hold."""


class RequestBudget:
    """A total of tokens that all agents of one run draw on. Thread-safe.

    Args:
        total: Tokens, at least 0.
        warn_at: Fraction of the total at which a warning is due, above 0 and at most 1.
        below: The budget that this one stands below: everything counts in it, too.
        used: Tokens that were spent before, which the budgets above it have counted.
        name: What it is called in a run below it that it ends.

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self,
        total: int,
        *,
        warn_at: float = WARN_AT,
        below: RequestBudget | None = None,
        used: int = 0,
        name: str = "the budget of the run that assigned the task",
    ) -> None:
        self._total = _checked(total, "A budget's total")
        self.total_set_by = "code"
        """Who set the total: see `RequestContext.answer_budget`."""
        if not 0 < warn_at <= 1:
            raise ValueError(f"`warn_at` must be above 0 and at most 1, not {literal(warn_at)}.")
        self._warn_at = warn_at
        self.name = name
        self.above: tuple[RequestBudget, ...] = () if below is None else (below, *below.above)
        """The budgets that it stands below, nearest first."""
        self._used = _checked(used, "`used`")
        self._used_below = 0
        self._unshown = 0
        """Tokens that its run, which is done again, has yet to spend again."""
        self._reserved = 0
        self._calls = 0
        """Number of open reservations, those of budgets below included."""
        self._armed = self._used < self._warning_line() or used == 0
        self._ahead: dict[Reservation, None] = {}
        """Reservations that may have streamed more than is booked."""
        self.crossings = 0
        """Number of times the warning line was crossed."""
        self._lock: threading.Lock = threading.Lock() if below is None else below._lock
        self._on_new_total: Callable[[], None] | None = None
        self._keeps: Callable[[], int] | None = None
        self._watching: dict[RequestBudget, Callable[[], None]] = {}
        """By budget, this one or one below it: what its run is to be called with."""

    def __repr__(self) -> str:
        return f"RequestBudget(used {self._used:,} of {self._total:,} tokens)"

    @property
    def total(self) -> int:
        return self._total

    @property
    def tokens_used(self) -> int:
        """Tokens spent, estimates of open calls and budgets below included."""
        with self._lock:
            return self._tokens_used

    @property
    def _tokens_used(self) -> int:
        streamed = sum(reservation.unbooked for reservation in self._ahead)
        return self._used + streamed - self._unshown

    @property
    def tokens_used_below(self) -> int:
        """Those of the tokens spent that were spent in the budgets below."""
        with self._lock:
            return self._tokens_used_below

    @property
    def _tokens_used_below(self) -> int:
        streamed = [each.unbooked for each in self._ahead if each._budget is not self]
        return self._used_below + sum(streamed)

    @property
    def tokens_used_by_run(self) -> int:
        """Those of the tokens spent that were not spent in the budgets below."""
        with self._lock:
            return self._tokens_used - self._tokens_used_below

    @property
    def reserved(self) -> int:
        """Tokens that open calls hold beyond what they have spent."""
        return self.tokens_committed - self.tokens_used

    @property
    def tokens_committed(self) -> int:
        """Tokens spent or reserved."""
        with self._lock:
            return self._used + self._reserved

    @property
    def remaining(self) -> int:
        """Tokens not spent, at least 0; some of them may be reserved. The least of the chain."""
        with self._lock:
            return max(0, min(each._total - each._tokens_used for each in (self, *self.above)))

    @property
    def available(self) -> int:
        """Tokens that a reservation could get, at least 0."""
        return max(0, self.free())

    def free(self, *, leave: int = 0) -> int:
        """Tokens that a reservation could get; negative where a budget of the chain is overdrawn.

        Args:
            leave: Tokens that must stay free in this budget.
        """
        with self._lock:
            free = self._free(leave)
            for each in self.above:
                free = min(free, each._free(each.kept))
            return free

    def _free(self, leave: int) -> int:
        return self._total - self._used - self._reserved - leave

    @property
    def kept(self) -> int:
        """Tokens that its run keeps for the root's synthesis: budgets below leave them."""
        keeps = self._keeps
        return 0 if keeps is None else keeps()

    def keep(self, tokens: Callable[[], int] | None) -> None:
        """Have `tokens()` as `kept`; `None` when the run is over.

        Args:
            tokens: Called under the budget's lock.
        """
        self._keeps = tokens
        if tokens is None:
            self._tell_others()

    @property
    def percentage(self) -> float:
        """How much of the total is spent; 100.0 for a total of 0."""
        return 100.0 * self.tokens_used / self._total if self._total else 100.0

    @property
    def is_warning_due(self) -> bool:
        """Whether the warning is armed: the line was not crossed yet, or not since it was armed."""
        return self._armed

    def warning_line(self, total: int) -> int:
        """Tokens at which a warning is due for a total."""
        return math.floor(self._warn_at * total)

    def spent_before(self, spent: int) -> None:
        """Begin with what the budget's own run had spent before its process died.

        It counts from now on, here alone: the budgets above have counted it, and so may this one,
        with what was spent below it. `tokens_used` shows it as it is spent again.

        Args:
            spent: Tokens of the run's own finished calls.
        """
        with self._lock:
            self._used = max(self._used, _checked(spent, "`spent`"))
            self._used_below = self._used - spent
            self._unshown = spent
            self._armed = self._used < self._warning_line()

    def spend_again(self, n: int) -> None:
        """Show `n` tokens that were spent before."""
        with self._lock:
            self._unshown = max(0, self._unshown - n)

    def leave_unspent(self) -> None:
        """What the run has not spent again by now was for work that is given up."""
        with self._lock:
            self._used -= self._unshown
            self._unshown = 0
            self._armed = self._used < self._warning_line()

    def disarm(self) -> None:
        """Warn no more for this total: the line was crossed before the process died."""
        self._armed = False

    def add_tokens(self, n: int) -> BudgetStatus:
        """Spend `n` tokens that were not reserved."""
        _checked(n, "`n`")
        with self._lock:
            return self._spend_in_chain(n)

    def reserve(self, n: int, *, leave: int = 0) -> Reservation | None:
        """Hold `n` tokens until they are settled.

        Args:
            n: Tokens, at least 0.
            leave: Tokens that must stay free.

        Returns:
            The reservation; `None` if it does not fit now, here or in a budget above.
        """
        _checked(n, "`n`")
        with self._lock:
            if not self._fits(n, leave):
                return None
            self._reserved += n
            self._calls += 1
            for each in self.above:
                each._reserved += n
                each._calls += 1
        return Reservation(self, n)

    def _fits(self, n: int, leave: int) -> bool:
        if n > self._total - self._used - self._reserved - leave:
            return False
        for each in self.above:
            if n > each._free(each.kept):
                return False
        return True

    def shortage(self, n: int, *, leave: int = 0) -> Shortage | None:
        """The budget of the chain that has no room for `n` tokens; `None` if they fit.

        Of several, one in which no call is open comes first: waiting does not help there.
        """
        with self._lock:
            found = [
                Shortage(each, free, may_pass=each._calls > 0)
                for each in (self, *self.above)
                if n > (free := each._free(leave if each is self else each.kept))
            ]
        return min(found, key=lambda each: each.may_pass, default=None)

    def set_total(self, n: int, *, by: str = "code") -> None:
        """Set a new total, also while calls are open.

        A higher total arms the warning again if the used tokens are below the new warning line. A
        total at or below the used tokens exhausts the budget at once.
        """
        _checked(n, "A budget's total")
        with self._lock:
            self._book_all()
            raised = n > self._total
            self._total, self.total_set_by = n, by
            if raised and self._used < self._warning_line():
                self._armed = True
        if (callback := self._on_new_total) is not None:
            callback()
        self._tell_others()

    def catch_up(self, used: int, *, total: int | None = None) -> None:
        """Count what another process has spent in this budget, while nothing is open in it here.

        Args:
            used: Tokens spent by all processes; fewer than are counted here change nothing.
            total: The total that it has by now; it stays as it is when left out.
        """
        with self._lock:
            self._used = max(self._used, _checked(used, "`used`"))
        if total is not None and total != self._total:
            self.set_total(total)

    def when_total_set(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` after each `set_total`, in the same thread; `None` removes it."""
        self._on_new_total = callback

    def when_others_change(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` when another run changed what this budget has; `None` removes it.

        That is: a call of another run, in this budget or one above, was settled or released; the
        run of a budget above is over and keeps nothing any more; the total of one above was set.
        It is called in the thread of that change.
        """
        with self._lock:
            for each in (self, *self.above):
                if callback is None:
                    each._watching.pop(self, None)
                else:
                    each._watching[self] = callback

    def _tell_others(self) -> None:
        """Tell the runs of the other budgets that a call of this one gave tokens back."""
        if not self.above and len(self._watching) == 1 and self in self._watching:
            return  # nobody but its own run, as for most: no lock for each call
        with self._lock:
            told = [
                callback
                for each in (self, *self.above)
                for watching, callback in each._watching.items()
                if watching is not self
            ]
        for callback in told:
            callback()

    def book_all(self) -> None:
        """Book all streamed output. The next piece of each call is then booked at once."""
        with self._lock:
            self._book_all()

    def _book_all(self) -> None:
        for reservation in tuple(self._ahead):
            reservation._book_ahead()

    def _is_line_near(self, ahead: int) -> bool:
        """Whether `ahead` calls that stream unbooked could cross the next line unnoticed."""
        line = self._warning_line() if self._armed else self._total
        return self._used + OUTPUT_SLICE * ahead >= line

    def _may_stream_ahead(self) -> bool:
        """Whether one more call may stream unbooked, in each budget of the chain."""
        if self._is_line_near(len(self._ahead) + 1):
            return False
        for each in self.above:
            if each._is_line_near(len(each._ahead) + 1):
                return False
        return True

    def _warning_line(self) -> int:
        return self.warning_line(self._total)

    def _spend_in_chain(self, n: int) -> BudgetStatus:
        """Spend `n` here and in each budget above. The status is this one's."""
        status = self._spend(n)
        for each in self.above:
            each._used_below += n
            each._spend(n)
        return status

    def _spend(self, n: int) -> BudgetStatus:
        """Add `n` to the used tokens (negative for an estimate that was too high)."""
        self._used = max(0, self._used + n)
        if self._ahead and self._is_line_near(len(self._ahead)):
            self._book_all()
        crossed = self._armed and self._used >= self._warning_line()
        if crossed:
            self._armed = False
            self.crossings += 1
        if self._used >= self._total:
            return BudgetStatus.EXHAUSTED
        return BudgetStatus.WARNING if crossed else BudgetStatus.OK


class Reservation:
    """Tokens held for one call. Closed by `settle` or `release`; closing again does nothing."""

    __slots__ = ("_booked", "_budget", "_held", "_metered", "_open", "free_until", "streamed")

    def __init__(self, budget: RequestBudget, held: int) -> None:
        self._budget = budget
        self._held = held
        self._metered = 0
        self._open = True
        self._booked = 0
        self.streamed = 0
        """Bytes of output so far. The lease adds to it, and calls `book` above `free_until`."""
        self.free_until = 0
        """Bytes of output that may arrive unbooked."""

    @property
    def unbooked(self) -> int:
        """Tokens that have streamed and are not booked."""
        return tokens_in(self.streamed) - self._booked

    def book(self, *, limit: int) -> BudgetStatus:
        """Spend what has streamed, and let the next output stream unbooked if no line is near.

        Args:
            limit: Total output tokens up to which output may stay unbooked.
        """
        budget = self._budget
        with budget._lock:
            if not self._open:
                return BudgetStatus.OK
            self._leave_ahead()
            status = budget._spend_in_chain(self._take_unbooked())
            # Not beyond what is held: the tokens beyond may be another call's.
            ahead = min(OUTPUT_SLICE, self._held, limit - self._booked)
            if ahead > 0 and budget._may_stream_ahead():
                budget._ahead[self] = None
                for each in budget.above:
                    each._ahead[self] = None
                self.free_until = BYTES_PER_TOKEN * (self._booked + ahead)
            return status

    def _leave_ahead(self) -> bool:
        """Be no longer one of those that stream unbooked. Returns whether it was one."""
        was_ahead = self._budget._ahead.pop(self, self) is None
        if was_ahead:
            for each in self._budget.above:
                del each._ahead[self]
        return was_ahead

    def _book_ahead(self) -> None:
        """Book what has streamed ahead, if anything may have: too little to cross a line."""
        if self._leave_ahead():
            tokens, budget = self._take_unbooked(), self._budget
            budget._used += tokens
            for each in budget.above:
                each._used += tokens
                each._used_below += tokens

    def _take_unbooked(self) -> int:
        # First, so that a piece that arrives meanwhile in another thread is either counted here or
        # booked there.
        self.free_until = 0
        tokens = self.unbooked
        self._booked += tokens
        self._take_from_held(tokens)
        return tokens

    def _take_from_held(self, n: int) -> None:
        self._metered += n
        self._hold(-min(n, self._held))

    def _hold(self, n: int) -> None:
        """Hold `n` more tokens, fewer if negative, in each budget of the chain."""
        self._held += n
        self._budget._reserved += n
        for each in self._budget.above:
            each._reserved += n

    @property
    def held(self) -> int:
        """Tokens reserved and not spent yet."""
        return max(0, self._held - self.unbooked)

    @property
    def metered(self) -> int:
        """Tokens spent so far, estimated."""
        return self._metered + self.unbooked

    def extend(self, n: int, *, leave: int = 0) -> bool:
        """Hold `n` more tokens. Returns false, and changes nothing, if they do not fit."""
        _checked(n, "`n`")
        budget = self._budget
        with budget._lock:
            if not (self._open and budget._fits(n, leave)):
                return False
            self._hold(n)
            return True

    def extend_by_what_fits(self, n: int) -> None:
        """Hold up to `n` more tokens, as many as fit: the provider has spent them already."""
        budget = self._budget
        with budget._lock:
            # Spent already, so what the runs above keep does not count.
            room = min(each._free(0) for each in (budget, *budget.above))
            if self._open:
                self._hold(min(n, max(0, room)))

    def meter(self, n: int) -> BudgetStatus:
        """Spend `n` of the held tokens while the call is open."""
        with self._budget._lock:
            if not self._open:
                return BudgetStatus.OK
            self._book_ahead()
            self._take_from_held(n)
            return self._budget._spend_in_chain(n)

    def settle(self, actual: int) -> BudgetStatus:
        """Spend the tokens that the call really used, in place of what was held and metered."""
        _checked(actual, "`actual`")
        budget = self._budget
        with budget._lock:
            if not self._open:
                return BudgetStatus.OK
            self._book_ahead()
            self._close()
            status = budget._spend_in_chain(actual - self._metered)
        budget._tell_others()
        return status

    def release(self) -> None:
        """Give back the held tokens; metered ones stay spent."""
        with self._budget._lock:
            if not self._open:
                return
            self._book_ahead()
            self._close()
        self._budget._tell_others()

    def _close(self) -> None:
        self._open = False
        self._hold(-self._held)
        self._budget._calls -= 1
        for each in self._budget.above:
            each._calls -= 1


def _checked(n: int, name: str) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise ValueError(f"{name} must be a whole number of tokens, at least 0, not {literal(n)}.")
    if n > MOST:  # not quoted: it may have more digits than Python converts
        raise ValueError(f"{name} must be at most {float(MOST):g} tokens.")
    return n
