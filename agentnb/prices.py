"""What a run costs, as an estimate: list prices times the tokens that the provider counted.

The prices are those of `genai-prices`, which is loaded when a cost is first asked for and never
asks the network; a person's own prices go before them. A call of an unknown model has no amount,
which is not the same as an amount of 0: it is told apart in every sum that it belongs to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from decimal import Decimal
from functools import lru_cache

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
"""For a million tokens: what is above it was not meant."""


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs, in US dollars for a million tokens.

    Raises:
        ValueError: An amount is no number, or below 0.
    """

    input: float
    """Input that was neither written to nor read from a cache."""
    output: float
    cache_read: float | None = None
    """As `input` when left out; so is the next one."""
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
        """US dollars for so many tokens."""
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
    """An estimate of what was spent, by list prices. Prints as a line that says so."""

    usd: float | None
    """US dollars; `None` when there are tokens without a price, so that nobody adds it up."""
    at_least_usd: float
    """US dollars for the tokens that have a price."""
    unpriced: tuple[Unpriced, ...] = ()
    """The others, by model."""
    by_agent: Mapping[str, Cost] = field(default_factory=dict)
    """By path, in path order: each agent's own calls, those of its sub-agents not included."""
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
        """As short as it can be told: `$0.0123`, and what is unpriced."""
        known = dollars(self.at_least_usd)
        if not self.unpriced:
            return known
        told = dict.fromkeys(visible(each.reason, LONGEST_IN_ERROR) for each in self.unpriced)
        tokens = sum(unpriced.tokens for unpriced in self.unpriced)
        why = "; ".join(told) + (f" ({tokens:,} tokens)" if tokens else "")
        return f"{known} + unpriced: {why}" if self.at_least_usd else f"unpriced: {why}"


@dataclass(frozen=True, slots=True)
class Call:
    """A model call, as far as its price goes."""

    path: str
    model: str
    """`provider/model`."""
    usage: Usage | None
    """`None` while it is open."""
    at: datetime | None
    """When it was made, since prices change; `None`, now."""


# -- whose prices ---------------------------------------------------------------------------------


def set_prices(prices: Mapping[str, Price]) -> None:
    """Use these prices before those of genai-prices, for all runs, loaded ones included.

    They replace what was set before; an empty mapping takes all back.

    Args:
        prices: By `provider/model`, as `run.usage.by_model` has it.

    Raises:
        ValueError: A key is no model, or a value no `Price`.
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
"""Never changed, only replaced: it is read from any thread."""


def _spelled(model: str) -> str:
    """`provider:model` is read, too."""
    return re.sub("[/:]", "/", model.strip(), count=1)


def _usd(call: Call) -> Decimal | str:
    """What a call cost, or why nobody knows."""
    if call.usage is None:
        return _OPEN
    own = _own.get(_spelled(call.model))
    if own is not None:
        return own.of(call.usage)
    try:
        return _by_genai_prices(call.model, call.usage, call.at)
    except LookupError:
        return _UNKNOWN
    except Exception as error:  # a look at a run must not fail for want of a price
        return f"genai-prices failed ({visible(str(error), 100)})"


@lru_cache(maxsize=2**16)
def _by_genai_prices(model: str, usage: Usage, at: datetime | None) -> Decimal:
    provider, slash, name = _spelled(model).partition("/")
    if not slash:
        raise LookupError("by the name alone it would guess a provider")
    import genai_prices  # heavy: only for those who ask for a cost

    counted = genai_prices.Usage(
        # All input, what was read from and written to the cache included.
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
    """The cost of a run's calls.

    Args:
        calls: All that have ended.
        paths: Those of all agents, in path order.
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
    """By path: what an agent's own calls cost, and together with those of all below it.

    Args:
        calls: All that have ended, and all that are open.
        parents: By path, the path of the parent, a parent before its children. Calls and parents
            that are not among them are passed over.
    """
    own = {path: _Sum() for path in parents}
    for call in calls:
        if (part := own.get(call.path)) is not None:
            part.add(call, _usd(call))
    whole: dict[str, _Sum] = {}
    for path in reversed([*parents]):  # each after all below it
        whole.setdefault(path, _Sum()).take(own[path])
        parent = parents[path]
        if parent in own:
            whole.setdefault(str(parent), _Sum()).take(whole[path])
    return {path: (own[path].cost(), whole[path].cost()) for path in parents}


class _Sum:
    """Amounts, and the tokens that have none."""

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

    def take(self, other: _Sum) -> None:
        """Add all that another has."""
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
    """`$0.0123`: with as many digits as say something."""
    if amount >= 1:
        return f"${amount:,.2f}"
    if amount >= 0.001 or not amount:
        return f"${amount:.4f}"
    return f"${max(amount, 0.000001):.6f}"
