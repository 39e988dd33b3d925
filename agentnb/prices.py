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
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from importlib import import_module
from typing import Any

from agentnb.core.money import KINDS, Rate, rate_of
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
        ValueError: An amount is not a number, or is below 0.
    """

    input: float
    """Input that was neither written to nor read from a cache."""
    output: float
    cache_read: float | None = None
    """Defaults to `input`, as does the next one."""
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

    @property
    def rate(self) -> Rate:
        """The same, in the units of a budget in dollars."""
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        return rate_of(dict(zip(KINDS, (self.input, self.output, read, write), strict=True)))

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
    """Estimated cost by list prices. Its `repr` is one line that says it is an estimate."""

    usd: float | None
    """US dollars; `None` if some tokens have no price, so that no one adds up a partial sum."""
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
        """The shortest form: `$0.0123`, and what has no price."""
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
    """Prefer these prices to those of genai-prices, for all runs, loaded ones included.

    Replaces the prices set before; an empty mapping removes them.

    Args:
        prices: By `provider/model`, the key of `run.usage.by_model`.

    Raises:
        ValueError: A key is not a model name, or a value is not a `Price`.
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


NO_PRICES: Mapping[str, Price] = {}


def prices_of_file(prices: Mapping[str, Mapping[str, Decimal]]) -> Mapping[str, Price]:
    """The `prices` of a settings file, which stand below `set_prices` and above genai-prices."""
    return {_spelled(model): Price(**each) for model, each in prices.items()}  # type: ignore[arg-type]


def _own_price(model: str, of_file: Mapping[str, Price]) -> Price | None:
    name = _spelled(model)
    return _own.get(name) or of_file.get(name)


def _usd(call: Call, of_file: Mapping[str, Price] = NO_PRICES) -> Decimal | str:
    """A call's cost in US dollars, or the reason why it has none."""
    if call.usage is None:
        return _OPEN
    own = _own_price(call.model, of_file)
    if own is not None:
        return own.of(call.usage)
    try:
        usd = _by_genai_prices(call.model, call.usage, call.at)
        return _UNKNOWN if usd is None else usd
    except Exception as error:  # a missing price must not stop a person from viewing a run
        return f"genai-prices failed ({visible(str(error), 100)})"


def begin_to_load(model: str, of_file: Mapping[str, Price] = NO_PRICES) -> None:
    """Load the prices in the background if the model may have one and they are not loaded yet.

    It takes a quarter of a second, which a run's loop must not wait for.
    """
    own = _spelled(model)
    known = own in _own or own in of_file
    if not known and "/" in own and "genai_prices" not in sys.modules:
        threading.Thread(target=_load, daemon=True).start()


def _load() -> None:
    with suppress(Exception):  # who asks for a price is told
        import_module("genai_prices")


def list_price(
    model: str, input_tokens: int, output_tokens: int, *, of_file: Mapping[str, Price] = NO_PRICES
) -> Decimal | None:
    """The price in US dollars of a call to `provider/model`; `None` if none is known."""
    usd = _usd(Call("", model, Usage(input_tokens, output_tokens), None), of_file)
    return usd if isinstance(usd, Decimal) else None


def list_price_of(
    model: str, usage: Usage, *, of_file: Mapping[str, Price] = NO_PRICES
) -> Decimal | None:
    """The price in US dollars of some tokens of `provider/model`; `None` if none is known."""
    usd = _usd(Call("", model, usage, None), of_file)
    return usd if isinstance(usd, Decimal) else None


def rate_for(model: str, of_file: Mapping[str, Price] = NO_PRICES) -> Rate | None:
    """What a model's tokens cost now, for a budget of money; `None` if no price is known.

    Args:
        model: As `provider/model`.
        of_file: The prices of the settings file.
    """
    own = _own_price(model, of_file)
    if own is not None:
        return own.rate
    try:
        return _rate_by_genai_prices(model)
    except Exception:  # no such model, or a price that is no plain number: the run is refused
        return None


def makes_cheaper(model: str, of_file: Mapping[str, Price]) -> bool:
    """Whether a settings file may let a budget of money spend more on a model than it says.

    So it is if a price of the file is below the one known, or of a model of a known provider whose
    price is not known; never where the person's own price holds.
    """
    name = _spelled(model)
    if name in _own or name not in of_file:
        return False
    said = of_file[name].rate
    try:
        known = _rate_by_genai_prices(name)
    except LookupError:
        known = None
    except Exception:  # who asks for the rate is told
        return True
    if known is None:
        return _is_known_provider(name.partition("/")[0])
    rates = (known, *(rate for _, rate in known.dearer))
    return any(getattr(said, kind) < getattr(each, kind) for each in rates for kind in KINDS)


def _is_known_provider(provider: str) -> bool:
    from genai_prices import data_snapshot

    try:
        data_snapshot.get_snapshot().find_provider(None, provider, None)
    except LookupError:
        return False
    return True


def _rate_by_genai_prices(model: str) -> Rate | None:
    provider, slash, name = _spelled(model).partition("/")
    if not slash:
        return None
    from genai_prices import data_snapshot  # heavy: loaded only when a price is needed

    _, info = data_snapshot.get_snapshot().find_provider_model(name, None, provider, None)
    prices = info.get_prices(datetime.now(UTC))
    if prices.input_mtok is None or prices.output_mtok is None:
        return None
    read = prices.cache_read_mtok or prices.input_mtok
    write = prices.cache_write_mtok or prices.input_mtok
    kinds = dict(zip(KINDS, (prices.input_mtok, prices.output_mtok, read, write), strict=True))
    starts = {tier.start for each in kinds.values() for tier in getattr(each, "tiers", ())}
    plain: dict[str, Any] = {name: _from(each, 0) for name, each in kinds.items()}
    plain["dearer"] = [
        (start, {name: _from(each, start + 1) for name, each in kinds.items()})
        for start in sorted(starts)
    ]
    return rate_of(plain)


def _from(price: Any, tokens: int) -> Any:
    """A price, which may have tiers, with so much input."""
    found = getattr(price, "base", price)
    for tier in getattr(price, "tiers", ()):
        if tokens > tier.start:
            found = tier.price
    return found


@lru_cache(maxsize=2**16)
def _by_genai_prices(model: str, usage: Usage, at: datetime | None) -> Decimal | None:
    """The price of a call; `None` if its model is unknown there."""
    provider, slash, name = _spelled(model).partition("/")
    # By the name alone it would guess a provider.
    if not slash or not _is_priced(provider, name, at):
        return None
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


@lru_cache(maxsize=4096)
def _is_priced(provider: str, name: str, at: datetime | None) -> bool:
    """Whether genai-prices knows a model. It looks long for one that it does not know."""
    from genai_prices import data_snapshot

    try:
        data_snapshot.get_snapshot().find_provider_model(name, None, provider, None)
    except LookupError:
        return False
    return True


# -- adding up ------------------------------------------------------------------------------------


def cost_of(
    calls: Iterable[Call], *, paths: Sequence[str], of_file: Mapping[str, Price] = NO_PRICES
) -> Cost:
    """Cost of a run's calls.

    Args:
        calls: The calls to count; an open one is unpriced.
        paths: The paths of all agents, in path order.
        of_file: The prices of the settings file.
    """
    all_, by_agent, by_model = _Sum(), {path: _Sum() for path in paths}, dict[str, _Sum]()
    for call in calls:
        usd = _usd(call, of_file)
        all_.add(call, usd)
        by_agent.setdefault(call.path, _Sum()).add(call, usd)
        by_model.setdefault(call.model, _Sum()).add(call, usd)
    return all_.cost(
        by_agent={path: part.cost() for path, part in by_agent.items()},
        by_model={model: part.cost() for model, part in by_model.items()},
    )


class CostSoFar:
    """Cost of calls that end one after the other, for those who ask again and again.

    It keeps only sums: after a change of prices it is out of date (`is_current`).
    """

    def __init__(self, of_file: Mapping[str, Price] = NO_PRICES) -> None:
        self._prices, self._of_file = _own, of_file
        self._all = _Sum()
        self._by_agent: dict[str, _Sum] = {}

    @property
    def is_current(self) -> bool:
        """Whether the prices are still those by which it was added up."""
        return self._prices is _own

    @property
    def by_agent(self) -> Mapping[str, object]:
        """The cost of each agent's own calls, by path, in words by `str`."""
        return self._by_agent

    def add(self, call: Call) -> None:
        """Add a call."""
        usd = _usd(call, self._of_file)
        self._all.add(call, usd)
        own = self._by_agent.get(call.path)
        if own is None:
            own = self._by_agent[call.path] = _Sum()
        own.add(call, usd)

    def times(self, factor: float) -> str:
        """So many times the sum, such as `$0.68`; empty if some tokens have no price."""
        usd = self._all.cost().usd
        return "" if usd is None else dollars(usd * factor)

    def __str__(self) -> str:
        return str(self._all)


def costs_with_below(
    calls: Iterable[Call],
    parents: Mapping[str, str | None],
    of_file: Mapping[str, Price] = NO_PRICES,
) -> dict[str, tuple[Cost, Cost]]:
    """Cost of each agent's own calls, and of its subtree's, by path.

    Args:
        calls: All finished and open calls.
        parents: The parent's path by path, parents before their children. Calls and parents of
            other paths are ignored.
        of_file: The prices of the settings file.
    """
    own = {path: _Sum() for path in parents}
    for call in calls:
        if (part := own.get(call.path)) is not None:
            part.add(call, _usd(call, of_file))
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

    def __str__(self) -> str:
        return str(self.cost())

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
        left_out = [*self._unknown.items()]  # at once: another thread may be adding
        unpriced = tuple(Unpriced(model, tokens, why) for (model, why), tokens in left_out)
        amount = float(self._known)
        return Cost(None if unpriced else amount, amount, unpriced, by_agent or {}, by_model or {})


def _left_out(unpriced: Unpriced) -> str:
    if unpriced.reason == _OPEN:
        return f"open calls of {visible(unpriced.model, 80)}"
    return f"{unpriced.tokens:,} tokens of {visible(unpriced.model, 80)}"


def dollars(amount: float) -> str:
    """Format an amount with its significant digits, such as `$0.0123`."""
    if amount >= 1:
        return f"${amount:,.2f}"
    if amount >= 0.001 or not amount:
        return f"${amount:.4f}"
    return f"${max(amount, 0.000001):.6f}"
