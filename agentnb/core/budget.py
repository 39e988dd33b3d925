"""The budget of a run, in tokens or in money: reserved before it is spent.

A reservation counts against the total until it is settled, so parallel calls cannot reserve the
same tokens. Used plus reserved tokens exceed the total only by what a provider counted beyond an
estimate.

Streamed output is counted piece by piece and booked a little later: far from the warning line
nothing depends on the order. Near it, every piece is booked as it arrives. `tokens_used` is exact
at any time.

A budget may be below another one, and that one below a third: a chain. What is reserved or spent in
a budget is reserved and spent in each budget above it at the same time: all connected budgets share
one lock. A chain may mix budgets of tokens and of money: a call then holds both, as an `Amount`,
and each budget takes its own part. A plain number is in the unit of the budget that gets it.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agentnb.core.media import media_tokens
from agentnb.core.money import TOKENS, UNITS, USD, Amount, Rate, in_words, share_in_words
from agentnb.core.text import literal
from agentnb.core.types import (
    MOST,
    BudgetStatus,
    CompletionRequest,
    MediaBlock,
    Message,
    OpaqueBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
)

BYTES_PER_TOKEN = 4
OUTPUT_SLICE = 256
"""Output tokens that a call reserves ahead of what has streamed.

Far from the warning line and the total, a call may also stream this many before they are booked.
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
        return _tokens_of_tool(part)
    tokens = 0
    for block in part.content:
        match block:
            case TextBlock(text) | ThinkingBlock(text) | ToolResultBlock(text=text):
                tokens += estimate_tokens(text)
            case ToolUseBlock(name=name, input=arguments):
                tokens += estimate_tokens(name + as_json(arguments))
            case MediaBlock():
                tokens += media_tokens(block)
            case OpaqueBlock(data=data):
                tokens += estimate_tokens(as_json(data))
    return tokens


_known_tools: dict[int, tuple[ToolSpec, int]] = {}
"""By identity, since all agents of a table share them. Each is kept, so that no other object gets
its id."""
_MOST_TOOLS = 64


def _tokens_of_tool(tool: ToolSpec) -> int:
    known = _known_tools.get(id(tool))
    if known is None:
        size = estimate_tokens(tool.name + tool.description + as_json(tool.input_schema))
        if len(_known_tools) >= _MOST_TOOLS:
            _known_tools.clear()
        known = _known_tools[id(tool)] = tool, size
    return known[1]


_encode = json.JSONEncoder(default=str).encode  # `json.dumps` would create one each time


def as_json(value: Mapping[str, Any]) -> str:
    """`value` as JSON text. Values that JSON does not have are written as text."""
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
            return estimate_input_tokens(request)  # most agents: not worth a cache
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
    """How much of it a call could get now, in the budget's unit."""
    may_pass: bool
    """Whether it has open calls, which may settle for less than they hold."""


class RequestBudget:
    """A total of tokens or of money that all agents of one run draw on. Thread-safe.

    All amounts are in its unit: tokens, or whole micro-dollars.

    Args:
        total: At least 0.
        warn_at: Fraction of the total at which a warning is due, above 0 and at most 1.
        below: The budget above this one, in which everything counts, too.
        used: What was spent before and is counted in the budgets above already.
        name: Its name in the messages of a run below that it ends.
        unit: `tokens`, or `usd` for micro-dollars.

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
        unit: str = TOKENS,
    ) -> None:
        if unit not in UNITS:
            raise ValueError(f"`unit` must be 'tokens' or 'usd', not {literal(unit)}.")
        self.unit = unit
        self._total = self._checked(total, "A budget's total")
        self.total_set_by = "code"
        """Who set the total: see `RequestContext.answer_budget`."""
        if not 0 < warn_at <= 1:
            raise ValueError(f"`warn_at` must be above 0 and at most 1, not {literal(warn_at)}.")
        self._warn_at = warn_at
        self.name = name
        self.above: tuple[RequestBudget, ...] = () if below is None else (below, *below.above)
        """The budgets above it, nearest first."""
        self.units = frozenset(each.unit for each in (self, *self.above))
        """The units of all budgets of the chain."""
        self._is_mixed = len(self.units) > 1
        self._place = UNITS.index(unit)
        """Index of its part in an `Amount`."""
        self._slice = OUTPUT_SLICE if unit == TOKENS else 0
        """Most that one call may stream before it is booked, in its unit."""
        self._used = self._checked(used, "`used`")
        self._used_below = 0
        self._unshown = 0
        """What its run, while it repeats its record, has yet to spend again."""
        self._reserved = 0
        self._calls = 0
        """Number of open reservations, including those of budgets below."""
        self._armed = self._used < self._warning_line() or used == 0
        self._ahead: dict[Reservation, _Part] = {}
        """Reservations that may have streamed more than is booked."""
        self.crossings = 0
        """Number of times the warning line was crossed."""
        self._lock: threading.Lock = threading.Lock() if below is None else below._lock
        self._on_new_total: Callable[[], None] | None = None
        self._keeps: Callable[[], int] | None = None
        self._watching: dict[RequestBudget, Callable[[], None]] = {}
        """By budget, this one or one below it: the callback of its run."""

    def __repr__(self) -> str:
        return f"RequestBudget(used {share_in_words(self._used, self._total, self.unit)})"

    def in_words(self, amount: int) -> str:
        """An amount in its unit, for a person to read: `80,000 tokens`, `$4.00`."""
        return in_words(amount, self.unit)

    def _checked(self, n: int, name: str) -> int:
        return _checked(n, name, self.unit)

    def _taken(self, n: int | Amount, name: str) -> int | Amount:
        """`n` as this chain counts it: a plain number if all units are equal, else an `Amount`."""
        if isinstance(n, Amount):
            return n if self._is_mixed else n[self._place]
        self._checked(n, name)
        if not self._is_mixed:
            return n
        return Amount(n, 0) if self.unit == TOKENS else Amount(0, n)

    def _part_of(self, n: int | Amount) -> int:
        return n[self._place] if isinstance(n, Amount) else n

    @property
    def total(self) -> int:
        return self._total

    @property
    def tokens_used(self) -> int:
        """What is spent, including estimates of open calls, and budgets below."""
        with self._lock:
            return self._tokens_used

    @property
    def _tokens_used(self) -> int:
        streamed = sum(each.unbooked_in(part) for each, part in self._ahead.items())
        return self._used + streamed - self._unshown

    @property
    def tokens_used_below(self) -> int:
        """The part of `tokens_used` that was spent in the budgets below."""
        with self._lock:
            return self._tokens_used_below

    @property
    def _tokens_used_below(self) -> int:
        return self._used_below + sum(
            each.unbooked_in(part) for each, part in self._ahead.items() if each._budget is not self
        )

    @property
    def tokens_used_by_run(self) -> int:
        """The part of `tokens_used` that was not spent in the budgets below."""
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
        """What is not spent, at least 0; some of it may be reserved.

        The minimum over the budgets of the chain that have this unit.
        """
        with self._lock:
            chain = [each for each in (self, *self.above) if each.unit == self.unit]
            return max(0, min(each._total - each._tokens_used for each in chain))

    @property
    def available(self) -> int:
        """Tokens that a reservation could get, at least 0."""
        return max(0, self.free())

    def free(self, *, leave: int = 0) -> int:
        """What a reservation could get; negative if a budget of the chain is overdrawn.

        Budgets of the chain in another unit are left out: see `output_room`.

        Args:
            leave: What must stay free in this budget.
        """
        with self._lock:
            free = self._free(leave)
            for each in self.above:
                if each.unit == self.unit:
                    free = min(free, each._free(each.kept))
            return free

    def output_room(self, input_: Amount, rate: Rate, *, leave: int = 0) -> int:
        """Output tokens that a call could reserve besides its input; may be negative.

        Args:
            input_: The call's input.
            rate: Prices of the call's tokens.
            leave: What must stay free in this budget.
        """
        with self._lock:
            rooms = []
            for each in (self, *self.above):
                left = each._free(leave if each is self else each.kept) - input_[each._place]
                rooms.append(left if each.unit == TOKENS else rate.output_in(left))
            return min(rooms)

    def _free(self, leave: int) -> int:
        return self._total - self._used - self._reserved - leave

    @property
    def kept(self) -> int:
        """What its run reserves for the root's synthesis: calls of budgets below must leave it."""
        keeps = self._keeps
        return 0 if keeps is None else keeps()

    def keep(self, tokens: Callable[[], int] | None) -> None:
        """Make `kept` return `tokens()`; `None` when the run is over.

        Args:
            tokens: Returns the reserve in the budget's unit. Called under the budget's lock.
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
        """The amount at which a warning is due for a total, in the budget's unit."""
        return math.floor(self._warn_at * total)

    def spent_before(self, spent: int) -> None:
        """Start with what the budget's own run had spent before its process died.

        It counts from now on, and only here: the budgets above have counted it already. So may this
        one, together with what was spent below it. `tokens_used` shows it step by step, as
        `spend_again` is called.

        Args:
            spent: What the run's own finished calls have spent.
        """
        with self._lock:
            self._used = max(self._used, self._checked(spent, "`spent`"))
            self._used_below = self._used - spent
            self._unshown = spent
            self._armed = self._used < self._warning_line()

    def spend_again(self, n: int | Amount) -> None:
        """Show `n` of what was spent before in `tokens_used`."""
        with self._lock:
            self._unshown = max(0, self._unshown - self._part_of(n))

    def leave_unspent(self) -> None:
        """Drop what the run has not spent again by now: it was for work that is given up."""
        with self._lock:
            self._used -= self._unshown
            self._unshown = 0
            self._armed = self._used < self._warning_line()

    def disarm(self) -> None:
        """Do not warn again for this total: the line was crossed before the process died."""
        self._armed = False

    def add_tokens(self, n: int | Amount) -> BudgetStatus:
        """Spend what was not reserved: tokens, or micro-dollars in a budget of money."""
        n = self._taken(n, "`n`")
        with self._lock:
            for each in self.above:
                each._spend_below(each._part_of(n))
            return self._spend(self._part_of(n))

    def reserve(
        self, n: int | Amount, *, leave: int = 0, rate: Rate | None = None
    ) -> Reservation | None:
        """Hold `n` until it is settled.

        Args:
            n: At least 0.
            leave: What must stay free in this budget.
            rate: Prices of the call's streamed output, for budgets of money.

        Returns:
            The reservation; `None` if it does not fit now, here or in a budget above.
        """
        n = self._taken(n, "`n`")
        with self._lock:
            if not self._fits(n, leave):
                return None
            reservation = Reservation(self, n, rate)
            reservation._begin()
        return reservation

    def _fits(self, n: int | Amount, leave: int) -> bool:
        if self._part_of(n) > self._total - self._used - self._reserved - leave:
            return False
        for each in self.above:
            if each._part_of(n) > each._free(each.kept):
                return False
        return True

    def _open_call(self, n: int, rate: Rate | None) -> None:
        self._reserved += n
        self._calls += 1
        if rate is not None and self.unit == USD:
            self._slice = max(self._slice, rate.of_output(OUTPUT_SLICE))

    def shortage(self, n: int | Amount, *, leave: int = 0) -> Shortage | None:
        """The budget of the chain that has no room for `n`; `None` if it fits.

        Of several, one in which no call is open comes first: waiting does not help there.
        """
        n = self._taken(n, "`n`")
        with self._lock:
            found = [
                Shortage(each, free, may_pass=each._calls > 0)
                for each in (self, *self.above)
                if each._part_of(n) > (free := each._free(leave if each is self else each.kept))
            ]
        return min(found, key=lambda each: each.may_pass, default=None)

    def set_total(self, n: int, *, by: str = "code") -> None:
        """Set a new total, also while calls are open.

        A higher total arms the warning again if the used tokens are below the new warning line. A
        total at or below the used tokens exhausts the budget at once.
        """
        self._checked(n, "A budget's total")
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
        """Count what other processes have spent in this budget, while no call is open in it here.

        Args:
            used: Spent by all processes; a lower number than is counted here changes nothing.
            total: The new total; `None` to leave it unchanged.
        """
        with self._lock:
            self._used = max(self._used, self._checked(used, "`used`"))
        if total is not None and total != self._total:
            self.set_total(total)

    def when_total_set(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` after each `set_total`, in the same thread; `None` removes it."""
        self._on_new_total = callback

    def when_others_change(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` when another run changed the room in this budget; `None` removes it.

        These changes are: a call of another run, in this budget or one above, was settled or
        released; the run of a budget above ended and reserves nothing more; the total of a budget
        above was set. The callback runs in the thread of the change.
        """
        with self._lock:
            for each in (self, *self.above):
                if callback is None:
                    each._watching.pop(self, None)
                else:
                    each._watching[self] = callback

    def _tell_others(self) -> None:
        """Notify the runs of the other budgets that this one may have released some room."""
        if not self.above and len(self._watching) == 1 and self in self._watching:
            return  # only its own run, as usual: no lock for each call
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
        """Whether `ahead` calls that stream unbooked could cross the next line without notice."""
        line = self._warning_line() if self._armed else self._total
        return self._used + self._slice * ahead >= line

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

    def _spend_below(self, n: int) -> None:
        """Count `n` that a call of a budget below has spent."""
        self._used_below += n
        self._spend(n)

    def _spend(self, n: int) -> BudgetStatus:
        """Add `n` to what is used; negative if an estimate was too high."""
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


class _Part:
    """What one call holds in all budgets of its chain that have one unit."""

    __slots__ = ("budgets", "held", "metered", "rate")

    def __init__(self, budgets: tuple[RequestBudget, ...], held: int, rate: Rate | None) -> None:
        self.budgets = budgets
        self.held = held
        self.metered = 0
        self.rate = rate
        """`None` if the unit is tokens."""

    def of_output(self, tokens: int) -> int:
        return tokens if self.rate is None else self.rate.of_output(tokens)

    @property
    def output_held(self) -> int:
        """Output tokens that `held` covers at least."""
        return self.held if self.rate is None else self.rate.output_in(self.held)

    def hold(self, n: int) -> None:
        """Hold `n` more in each budget; less if `n` is negative."""
        self.held += n
        for each in self.budgets:
            each._reserved += n

    def spend(self, n: int, own: RequestBudget) -> BudgetStatus | None:
        """Spend `n` in each budget. The status is that of the call's own budget."""
        status = None
        for each in self.budgets:
            if each is own:
                status = each._spend(n)
            else:
                each._spend_below(n)
        return status


def _parts_of_call(budget: RequestBudget, n: int | Amount, rate: Rate | None) -> tuple[_Part, ...]:
    """A call's parts; the one in its own budget's unit comes first."""
    if not isinstance(n, Amount):  # all budgets have one unit, as in nearly all chains
        budgets = (budget, *budget.above) if budget.above else (budget,)
        return (_Part(budgets, n, None if budget.unit == TOKENS else rate),)
    chain = (budget, *budget.above)
    return tuple(
        _Part(
            tuple([each for each in chain if each.unit == unit]),
            n[UNITS.index(unit)],
            None if unit == TOKENS else rate,
        )
        for unit in sorted(UNITS, key=lambda unit: unit != budget.unit)
    )


class Reservation:
    """What one call holds. Closed by `settle` or `release`; closing again does nothing."""

    __slots__ = ("_booked", "_budget", "_open", "_parts", "free_until", "streamed")

    def __init__(self, budget: RequestBudget, n: int | Amount, rate: Rate | None = None) -> None:
        self._budget = budget
        self._parts = _parts_of_call(budget, n, rate)
        self._open = True
        self._booked = 0
        """Output tokens booked so far."""
        self.streamed = 0
        """Bytes of output so far. The lease adds to it, and calls `book` above `free_until`."""
        self.free_until = 0
        """Bytes of output that may arrive unbooked."""

    def _begin(self) -> None:
        """Hold the call's amounts in all budgets."""
        for part in self._parts:
            for each in part.budgets:
                each._open_call(part.held, part.rate)

    def unbooked_in(self, part: _Part) -> int:
        """What has streamed and is not booked, in a part's unit."""
        if part.rate is None:
            return tokens_in(self.streamed) - self._booked
        return part.of_output(tokens_in(self.streamed)) - part.of_output(self._booked)

    @property
    def unbooked(self) -> int:
        """What has streamed and is not booked."""
        return self.unbooked_in(self._parts[0])

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
            status = self._spend(self._take_unbooked())
            # Not beyond what is held: the rest may belong to another call.
            ahead = min(OUTPUT_SLICE, limit - self._booked)
            for part in self._parts:
                ahead = min(ahead, part.output_held)
            if ahead > 0 and budget._may_stream_ahead():
                for part in self._parts:
                    for each in part.budgets:
                        each._ahead[self] = part
                self.free_until = BYTES_PER_TOKEN * (self._booked + ahead)
            return status

    def _spend(self, amounts: Sequence[int]) -> BudgetStatus:
        """Spend an amount for each part. The status is that of the call's own budget."""
        status = BudgetStatus.OK
        for part, n in zip(self._parts, amounts, strict=True):
            status = part.spend(n, self._budget) or status
        return status

    def _leave_ahead(self) -> bool:
        """Stop streaming unbooked. Returns whether it did stream unbooked."""
        if self not in self._budget._ahead:
            return False
        for part in self._parts:
            for each in part.budgets:
                del each._ahead[self]
        return True

    def _book_ahead(self) -> None:
        """Book what has streamed unbooked, if it may stream so: too little to cross a line."""
        if self._leave_ahead():
            budget = self._budget
            for part, n in zip(self._parts, self._take_unbooked(), strict=True):
                for each in part.budgets:
                    each._used += n
                    if each is not budget:
                        each._used_below += n

    def _take_unbooked(self) -> list[int]:
        """Take what has streamed from what is held. Returns it, in each part's unit."""
        # First, so that a piece that arrives meanwhile in another thread is either counted here or
        # booked there.
        self.free_until = 0
        tokens = tokens_in(self.streamed)
        taken = [part.of_output(tokens) - part.of_output(self._booked) for part in self._parts]
        self._booked = tokens
        self._take_from_held(*taken)
        return taken

    def _take_from_held(self, *amounts: int) -> None:
        for part, n in zip(self._parts, amounts, strict=True):
            part.metered += n
            part.hold(-min(n, part.held))

    def _split(self, n: int | Amount) -> tuple[int, ...]:
        """An amount for each part."""
        n = self._budget._taken(n, "`n`")
        if not isinstance(n, Amount):
            return (n,)
        return tuple([part.budgets[0]._part_of(n) for part in self._parts])

    @property
    def _held(self) -> int:
        return self._parts[0].held

    @property
    def held(self) -> int:
        """What is reserved and not spent yet."""
        return max(0, self._held - self.unbooked)

    @property
    def metered(self) -> int:
        """What is spent so far, estimated."""
        return self._parts[0].metered + self.unbooked

    def extend(self, n: int | Amount, *, leave: int = 0) -> bool:
        """Hold `n` more. Returns false, and changes nothing, if it does not fit."""
        amounts, budget = self._split(n), self._budget
        with budget._lock:
            if not (self._open and budget._fits(budget._taken(n, "`n`"), leave)):
                return False
            for part, more in zip(self._parts, amounts, strict=True):
                part.hold(more)
            return True

    def extend_by_what_fits(self, n: int | Amount) -> None:
        """Hold up to `n` more, as far as it fits: the provider has spent it already."""
        amounts = self._split(n)
        with self._budget._lock:
            if not self._open:
                return
            for part, more in zip(self._parts, amounts, strict=True):
                # It is spent already, so the reserves of the runs above do not matter.
                room = min([each._free(0) for each in part.budgets])
                part.hold(min(more, max(0, room)))

    def meter(self, n: int | Amount) -> BudgetStatus:
        """Spend `n` of what is held while the call is open."""
        amounts = self._split(n)
        with self._budget._lock:
            if not self._open:
                return BudgetStatus.OK
            self._book_ahead()
            self._take_from_held(*amounts)
            return self._spend(amounts)

    def settle(self, actual: int | Amount) -> BudgetStatus:
        """Spend what the call really used, in place of what was held and metered."""
        amounts, budget = self._split(actual), self._budget
        with budget._lock:
            if not self._open:
                return BudgetStatus.OK
            self._book_ahead()
            self._close()
            status = self._spend(
                [n - part.metered for part, n in zip(self._parts, amounts, strict=True)]
            )
        budget._tell_others()
        return status

    def release(self) -> None:
        """Release what is held; what was metered stays spent."""
        with self._budget._lock:
            if not self._open:
                return
            self._book_ahead()
            self._close()
        self._budget._tell_others()

    def _close(self) -> None:
        self._open = False
        for part in self._parts:
            part.hold(-part.held)
            for each in part.budgets:
                each._calls -= 1


def _checked(n: int, name: str, unit: str) -> int:
    words = "tokens" if unit == TOKENS else "micro-dollars"
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise ValueError(f"{name} must be a whole number of {words}, at least 0, not {literal(n)}.")
    if n > MOST:  # not quoted: it may have more digits than Python converts
        raise ValueError(f"{name} must be at most {float(MOST):g} {words}.")
    return n
