"""Estimated cost of a run: list prices times the tokens that the provider counted.

Prices come from `genai-prices`, which is loaded when a cost is first needed and makes no network
calls; a person's own prices override them. A call without a known price is unpriced, not 0: every
sum that contains it says so.
"""

from __future__ import annotations

import math
import re
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from importlib import import_module

from agentnb.core.shown import Shown, listed
from agentnb.core.text import (
    LONGEST_IN_ERROR,
    LONGEST_LINE,
    literal,
    quoted,
    visible,
    visible_lines,
)
from agentnb.core.types import Usage

_MILLION = 1_000_000
_UNKNOWN = "no price is known"
_OPEN = "a call is still open"
_MOST_USD = 1e9
"""Per million tokens: a higher price is a mistake."""


@dataclass(frozen=True, slots=True)
class Price:
    """Price of a model, in US dollars per million tokens.

    Raises:
        ValueError: An amount is not a number, or below 0.
    """

    input: float
    """Input that was neither written to nor read from a cache."""
    output: float
    cache_read: float | None = None
    """Defaults to `input`; so does the next one."""
    cache_write: float | None = None

    def __post_init__(self) -> None:
        for name in (f.name for f in fields(self)):
            amount = getattr(self, name)
            if amount is None and name.startswith("cache_"):
                continue
            is_number = isinstance(amount, int | float | Decimal) and not isinstance(amount, bool)
            if not (is_number and math.isfinite(amount) and 0 <= amount <= _MOST_USD):
                raise ValueError(
                    "A price is a number of US dollars for a million tokens, not "
                    f"{literal(amount)}."
                )

    def of(self, usage: Usage) -> Decimal:
        """Price of some tokens, in US dollars."""
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        parts = [
            (self.input, usage.input_tokens),
            (self.output, usage.output_tokens),
            (read, usage.cache_read_tokens),
            (write, usage.cache_creation_tokens),
        ]
        return sum((Decimal(str(p)) * tokens for p, tokens in parts), Decimal()) / _MILLION


@dataclass(frozen=True, slots=True)
class Unpriced:
    """Tokens without a price."""

    model: str
    tokens: int
    reason: str


@dataclass(frozen=True, slots=True, repr=False)
class Cost(Shown):
    """Estimated cost by list prices. Prints as a line that says it is an estimate."""

    usd: float | None
    """US dollars; `None` if some tokens have no price, so that a partial sum is not added up."""
    at_least_usd: float
    """US dollars for the tokens that have a price."""
    unpriced: tuple[Unpriced, ...] = ()
    """The tokens without a price, by model."""
    by_agent: Mapping[str, Cost] = field(default_factory=dict)
    """Cost of each agent's own calls, without its sub-agents', by path in path order."""
    by_model: Mapping[str, Cost] = field(default_factory=dict)
    """By `provider/model`."""

    def __str__(self) -> str:
        return visible_lines(self._in_words(), LONGEST_LINE)

    def _in_words(self) -> str:
        if not self.unpriced:
            return f"about {dollars(self.at_least_usd)} (estimate)"
        if not self.at_least_usd:
            reasons = dict.fromkeys(unpriced.reason for unpriced in self.unpriced)
            models = listed(visible(unpriced.model, 80) for unpriced in self.unpriced)
            tokens = sum(unpriced.tokens for unpriced in self.unpriced)
            return f"unpriced: {'; '.join(reasons)} for {models} ({tokens:,} tokens)"
        rest = listed(map(_left_out, self.unpriced))
        return f"at least {dollars(self.at_least_usd)} (estimate; unpriced: {rest})"

    def __repr__(self) -> str:
        return f"Cost({quoted(str(self), limit=180)})"

    @property
    def amount(self) -> str:
        """The shortest form: `$0.0123`, and what is unpriced."""
        known = dollars(self.at_least_usd)
        if not self.unpriced:
            return known
        reasons = dict.fromkeys(visible(each.reason, LONGEST_IN_ERROR) for each in self.unpriced)
        tokens = sum(unpriced.tokens for unpriced in self.unpriced)
        why = "; ".join(reasons) + (f" ({tokens:,} tokens)" if tokens else "")
        return f"{known} + unpriced: {why}" if self.at_least_usd else f"unpriced: {why}"


@dataclass(frozen=True, slots=True)
class Call:
    """What pricing needs to know of a model call."""

    path: str
    model: str
    """`provider/model`."""
    usage: Usage | None
    """`None` while the call is open."""
    at: datetime | None
    """When the call was made, since prices change; `None` means now."""


# -- whose prices ---------------------------------------------------------------------------------


def set_prices(prices: Mapping[str, Price]) -> None:
    """Use these prices before those of genai-prices, for all runs, loaded ones included.

    Replaces the prices that were set before; an empty mapping removes them.

    Args:
        prices: By `provider/model`, the key of `run.usage.by_model`.

    Raises:
        ValueError: A key is not a model name, or a value not a `Price`.
    """
    if not isinstance(prices, Mapping):
        raise ValueError(f"`prices` must map `provider/model` to a Price, not {literal(prices)}.")
    for model, price in prices.items():
        if not isinstance(model, str) or not model.strip() or not isinstance(price, Price):
            raise ValueError(
                f"`prices` must be a Price for each `provider/model`, not {literal(price)} for "
                f"{literal(model)}."
            )
    global _own
    _own = {_spelled(model): price for model, price in prices.items()}


_own: Mapping[str, Price] = {}
"""Replaced, never changed in place: any thread may read it."""


def _spelled(model: str) -> str:
    """Normalise a model name: `provider:model` becomes `provider/model`."""
    return re.sub("[/:]", "/", model.strip(), count=1)


def _usd(call: Call) -> Decimal | str:
    """A call's cost in US dollars, or the reason why it has none."""
    if call.usage is None:
        return _OPEN
    own = _own.get(_spelled(call.model))
    if own is not None:
        return own.of(call.usage)
    try:
        return _by_genai_prices(call.model, call.usage, call.at)
    except LookupError:
        return _UNKNOWN
    except Exception as error:  # a missing price must not stop a person from viewing a run
        return f"genai-prices failed ({visible(str(error), 100)})"


def begin_to_load(model: str) -> None:
    """Load the prices in the background if the model may have one and they are not loaded yet.

    It takes a quarter of a second, which a run's loop must not wait for.
    """
    own = _spelled(model)
    if own not in _own and "/" in own and "genai_prices" not in sys.modules:
        threading.Thread(target=_load, daemon=True).start()


def _load() -> None:
    with suppress(Exception):  # who asks for a price is told
        import_module("genai_prices")


def list_price(model: str, input_tokens: int, output_tokens: int) -> Decimal | None:
    """The price in US dollars of a call to `provider/model`; `None` if none is known."""
    usd = _usd(Call("", model, Usage(input_tokens, output_tokens), None))
    return usd if isinstance(usd, Decimal) else None


@lru_cache(maxsize=2**16)
def _by_genai_prices(model: str, usage: Usage, at: datetime | None) -> Decimal:
    provider, slash, name = _spelled(model).partition("/")
    if not slash:
        raise LookupError("by the name alone it would guess a provider")
    import genai_prices  # heavy: loaded only when a cost is needed

    counted = genai_prices.Usage(
        # All input, cache reads and writes included.
        input_tokens=usage.total_tokens - usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_creation_tokens,
        output_tokens=usage.output_tokens,
    )
    return genai_prices.calc_price(
        counted, name, provider_id=provider, genai_request_timestamp=at
    ).total_price


# -- adding up ------------------------------------------------------------------------------------


def cost_of(calls: Iterable[Call], *, paths: Sequence[str]) -> Cost:
    """Cost of a run's calls.

    Args:
        calls: The calls to count; an open one is unpriced.
        paths: The paths of all agents, in path order.
    """
    all_, by_agent, by_model = _Sum(), {path: _Sum() for path in paths}, dict[str, _Sum]()
    for call in calls:
        usd = _usd(call)
        all_.add(call, usd)
        by_agent.setdefault(call.path, _Sum()).add(call, usd)
        by_model.setdefault(call.model, _Sum()).add(call, usd)
    return all_.cost(
        by_agent={path: part.cost() for path, part in by_agent.items()},
        by_model={model: part.cost() for model, part in by_model.items()},
    )


def costs_with_below(
    calls: Iterable[Call], parents: Mapping[str, str | None]
) -> dict[str, tuple[Cost, Cost]]:
    """Cost of each agent's own calls, and of its subtree's, by path.

    Args:
        calls: All finished and open calls.
        parents: The parent's path by path, parents before their children. Calls and parents of
            other paths are ignored.
    """
    own = {path: _Sum() for path in parents}
    for call in calls:
        if (part := own.get(call.path)) is not None:
            part.add(call, _usd(call))
    whole: dict[str, _Sum] = {}
    for path in reversed([*parents]):  # children before their parent
        whole.setdefault(path, _Sum()).add_all(own[path])
        parent = parents[path]
        if parent in own:
            whole.setdefault(str(parent), _Sum()).add_all(whole[path])
    return {path: (own[path].cost(), whole[path].cost()) for path in parents}


class _Sum:
    """A sum of amounts, and the tokens without a price."""

    def __init__(self) -> None:
        self._known = Decimal()
        self._unknown: dict[tuple[str, str], int] = {}
        """Tokens, by model and reason."""

    def add(self, call: Call, usd: Decimal | str) -> None:
        if isinstance(usd, Decimal):
            self._known += usd
        else:
            tokens = call.usage.total_tokens if call.usage is not None else 0
            self._leave_out((call.model, usd), tokens)

    def add_all(self, other: _Sum) -> None:
        """Add another sum."""
        self._known += other._known
        for key, tokens in other._unknown.items():
            self._leave_out(key, tokens)

    def _leave_out(self, key: tuple[str, str], tokens: int) -> None:
        self._unknown[key] = self._unknown.get(key, 0) + tokens

    def cost(
        self,
        by_agent: Mapping[str, Cost] | None = None,
        by_model: Mapping[str, Cost] | None = None,
    ) -> Cost:
        left_out = self._unknown.items()
        unpriced = tuple(Unpriced(model, tokens, why) for (model, why), tokens in left_out)
        amount = float(self._known)
        return Cost(None if unpriced else amount, amount, unpriced, by_agent or {}, by_model or {})


def _left_out(unpriced: Unpriced) -> str:
    if unpriced.reason == _OPEN:
        return f"what is still open of {visible(unpriced.model, 80)}"
    return f"{unpriced.tokens:,} tokens of {visible(unpriced.model, 80)}"


def dollars(amount: float) -> str:
    """Format an amount with its significant digits, such as `$0.0123`."""
    if amount >= 1:
        return f"${amount:,.2f}"
    if amount >= 0.001 or not amount:
        return f"${amount:.4f}"
    return f"${max(amount, 0.000001):.6f}"
