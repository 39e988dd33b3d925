"""The token budget of a run: reserved before it is spent.

A reservation counts against the total until it is settled, so parallel calls cannot reserve the
same tokens. Used plus reserved tokens exceed the total only by what a provider counted beyond an
estimate.

Streamed output is counted piece by piece and booked a little later: far from the warning line
nothing depends on the order. Near it, every piece is booked as it arrives. `tokens_used` is exact
at any time.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

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


class RequestBudget:
    """A total of tokens that all agents of one run draw on. Thread-safe.

    Args:
        total: Tokens, at least 0.
        warn_at: Fraction of the total at which a warning is due, above 0 and at most 1.

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(self, total: int, *, warn_at: float = 0.8) -> None:
        self._total = _checked(total, "A budget's total")
        self.total_set_by = "code"
        """Who set the total: see `RequestContext.answer_budget`."""
        if not 0 < warn_at <= 1:
            raise ValueError(f"`warn_at` must be above 0 and at most 1, not {literal(warn_at)}.")
        self._warn_at = warn_at
        self._used = 0
        self._reserved = 0
        self._armed = True
        self._ahead: dict[Reservation, None] = {}
        """Reservations that may have streamed more than is booked."""
        self.crossings = 0
        """Number of times the warning line was crossed."""
        self._lock = threading.Lock()
        self._on_new_total: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"RequestBudget(used {self._used:,} of {self._total:,} tokens)"

    @property
    def total(self) -> int:
        return self._total

    @property
    def tokens_used(self) -> int:
        """Tokens spent, estimates of open calls included."""
        with self._lock:
            return self._used + sum(reservation.unbooked for reservation in self._ahead)

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
        """Tokens not spent, at least 0; some of them may be reserved."""
        return max(0, self._total - self.tokens_used)

    @property
    def available(self) -> int:
        """Tokens neither spent nor reserved, at least 0."""
        return max(0, self._total - self._used - self._reserved)

    @property
    def percentage(self) -> float:
        """How much of the total is spent; 100.0 for a total of 0."""
        return 100.0 * self.tokens_used / self._total if self._total else 100.0

    @property
    def is_warning_due(self) -> bool:
        """Whether the warning is armed: the line was not crossed yet, or not since it was armed."""
        return self._armed

    def add_tokens(self, n: int) -> BudgetStatus:
        """Spend `n` tokens that were not reserved."""
        _checked(n, "`n`")
        with self._lock:
            return self._spend(n)

    def reserve(self, n: int, *, leave: int = 0) -> Reservation | None:
        """Hold `n` tokens until they are settled.

        Args:
            n: Tokens, at least 0.
            leave: Tokens that must stay free.

        Returns:
            The reservation; `None` if it does not fit now.
        """
        _checked(n, "`n`")
        with self._lock:
            if self._used + self._reserved + n + leave > self._total:
                return None
            self._reserved += n
        return Reservation(self, n)

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

    def when_total_set(self, callback: Callable[[], None] | None) -> None:
        """Call `callback` after each `set_total`, in the same thread; `None` removes it."""
        self._on_new_total = callback

    def book_all(self) -> None:
        """Book all streamed output. The next piece of each call is then booked at once."""
        with self._lock:
            self._book_all()

    def _book_all(self) -> None:
        for reservation in self._ahead:
            self._used += reservation._take_unbooked()
        self._ahead.clear()

    def _is_line_near(self, ahead: int) -> bool:
        """Whether `ahead` calls that stream unbooked could cross the next line unnoticed."""
        line = self._warning_line() if self._armed else self._total
        return self._used + OUTPUT_SLICE * ahead >= line

    def _warning_line(self) -> int:
        return math.floor(self._warn_at * self._total)

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
            budget._ahead.pop(self, None)
            status = budget._spend(self._take_unbooked())
            # Not beyond what is held: the tokens beyond may be another call's.
            ahead = min(OUTPUT_SLICE, self._held, limit - self._booked)
            if ahead > 0 and not budget._is_line_near(len(budget._ahead) + 1):
                budget._ahead[self] = None
                self.free_until = BYTES_PER_TOKEN * (self._booked + ahead)
            return status

    def _take_unbooked(self) -> int:
        tokens = self.unbooked
        self._booked += tokens
        self.free_until = 0
        self._take_from_held(tokens)
        return tokens

    def _take_from_held(self, n: int) -> None:
        from_held = min(n, self._held)
        self._held -= from_held
        self._budget._reserved -= from_held
        self._metered += n

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
            fits = budget._used + budget._reserved + n + leave <= budget._total
            if not (fits and self._open):
                return False
            budget._reserved += n
            self._held += n
            return True

    def extend_by_what_fits(self, n: int) -> None:
        """Hold up to `n` more tokens, as many as fit: the provider has spent them already."""
        budget = self._budget
        with budget._lock:
            more = min(n, max(0, budget._total - budget._used - budget._reserved))
            if self._open:
                budget._reserved += more
                self._held += more

    def meter(self, n: int) -> BudgetStatus:
        """Spend `n` of the held tokens while the call is open."""
        budget = self._budget
        with budget._lock:
            if not self._open:
                return BudgetStatus.OK
            self._book()
            self._take_from_held(n)
            return budget._spend(n)

    def settle(self, actual: int) -> BudgetStatus:
        """Spend the tokens that the call really used, in place of what was held and metered."""
        _checked(actual, "`actual`")
        budget = self._budget
        with budget._lock:
            if not self._open:
                return BudgetStatus.OK
            self._book()
            self._close()
            return budget._spend(actual - self._metered)

    def release(self) -> None:
        """Give back the held tokens; metered ones stay spent."""
        with self._budget._lock:
            if self._open:
                self._book()
                self._close()

    def _book(self) -> None:
        if self._budget._ahead.pop(self, self) is None:
            self._budget._used += self._take_unbooked()

    def _close(self) -> None:
        self._open = False
        self._budget._reserved -= self._held
        self._held = 0


def _checked(n: int, name: str) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise ValueError(f"{name} must be a whole number of tokens, at least 0, not {literal(n)}.")
    if n > MOST:  # not quoted: it may have more digits than Python converts
        raise ValueError(f"{name} must be at most {float(MOST):g} tokens.")
    return n
