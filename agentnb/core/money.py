"""Amounts of a budget, which counts tokens or whole micro-dollars; and what a token costs.

Prices are in millionths of a micro-dollar per token. So every list price in dollars per million
tokens with up to six places is a whole number, and each call is rounded up once, to a whole
micro-dollar.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Any, NamedTuple

from agentnb.core.text import literal
from agentnb.core.types import Usage

TOKENS = "tokens"
USD = "usd"
UNITS = (TOKENS, USD)
MICROS = 1_000_000
"""Micro-dollars in a dollar; also price units in a micro-dollar."""


class Amount(NamedTuple):
    """What a call holds or has spent: in tokens and in money, for budgets of both units."""

    tokens: int
    micros: int
    """Whole micro-dollars."""


@dataclass(frozen=True, slots=True)
class Rate:
    """List prices of a model's tokens, in millionths of a micro-dollar per token."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    dearer: tuple[tuple[int, Rate], ...] = ()
    """Pairs of a number of input tokens and the prices of a whole call with more input, rising."""

    def at(self, input_tokens: int) -> Rate:
        """The prices of a call with this much input, cached input included."""
        found = self
        for start, rate in self.dearer:
            if input_tokens > start:
                found = rate
        return found

    def of_input(self, tokens: int, *, may_write_cache: bool = False) -> int:
        """Micro-dollars of input, at the highest price that may apply."""
        price = max(self.input, self.cache_write) if may_write_cache else self.input
        return -(-price * tokens // MICROS)

    def input_for(self, micros: int) -> int:
        """Tokens of input that so many micro-dollars pay; 0 if input costs nothing."""
        return micros * MICROS // self.input if self.input else 0

    def of_output(self, tokens: int) -> int:
        """Micro-dollars of output."""
        return -(-self.output * tokens // MICROS)

    def output_in(self, micros: int) -> int:
        """Most output tokens for an amount in micro-dollars; negative if the amount is."""
        if not self.output:
            return 2**53 if micros >= 0 else -1
        return micros * MICROS // self.output

    def of(self, usage: Usage) -> int:
        """Micro-dollars of a call, by the provider's own count."""
        rate = self.at(usage.total_tokens - usage.output_tokens) if self.dearer else self
        parts = (
            rate.input * usage.input_tokens
            + rate.output * usage.output_tokens
            + rate.cache_read * usage.cache_read_tokens
            + rate.cache_write * usage.cache_creation_tokens
        )
        return -(-parts // MICROS)

    def amount(self, usage: Usage) -> Amount:
        """What a call has spent in both units."""
        return Amount(usage.budget_tokens, self.of(usage))

    def as_plain(self) -> dict[str, Any]:
        """As JSON values, as stored with a run: dollars per million tokens, as texts."""
        plain: dict[str, Any] = {name: str(Decimal(getattr(self, name)) / MICROS) for name in KINDS}
        if self.dearer:
            plain["dearer"] = [[start, rate.as_plain()] for start, rate in self.dearer]
        return plain


KINDS = ("input", "output", "cache_read", "cache_write")


def rate_of(prices: Mapping[str, Any]) -> Rate:
    """The inverse of `Rate.as_plain`; also takes `Decimal`s. Rounds up beyond six places.

    Args:
        prices: US dollars per million tokens, by each of `KINDS`.
    """
    dearer = tuple((int(start), rate_of(rate)) for start, rate in prices.get("dearer", ()))
    read, write, *cached = (_whole(prices[name]) for name in KINDS)
    return Rate(read, write, cached[0], cached[1], dearer)


def _whole(dollars: object) -> int:
    exact = Decimal(str(dollars)) * MICROS
    return int(exact.to_integral_value(rounding=ROUND_CEILING))


# -- words ----------------------------------------------------------------------------------------


def in_words(amount: int, unit: str) -> str:
    """An amount for a person to read: `80,000 tokens`, `$4.00`, `$0.0123`."""
    if unit != USD:
        return f"{amount:,} tokens"
    if amount < 0:
        return f"-{in_words(-amount, unit)}"
    if amount >= MICROS:
        return f"${Decimal(amount) / MICROS:,.2f}"
    places = 4 if amount >= 1000 else 6
    text = f"{Decimal(amount) / MICROS:.{places}f}"
    return f"${text[:4]}{text[4:].rstrip('0')}"


def share_in_words(used: int, total: int, unit: str) -> str:
    """How much is used of a total: `1,200 of 80,000 tokens`, `$3.20 of $4.00`."""
    if unit != USD:
        return f"{used:,} of {total:,} tokens"
    return f"{in_words(used, unit)} of {in_words(total, unit)}"


def money_text(micros: int) -> str:
    """An exact amount of money, which `micros_in` reads: `$4`, `$0.50`, `$0.000012`."""
    whole, rest = divmod(micros, MICROS)
    if not rest:
        return f"${whole}"
    places = f"{rest:06}".rstrip("0").ljust(2, "0")
    return f"${whole}.{places}"


# -- reading --------------------------------------------------------------------------------------


class NotMoney(ValueError):
    """Text or a number that is not an amount of dollars. The message is a sentence."""


LEAST_MICROS = 100
MOST_DOLLARS = 1_000_000
_WRITTEN = re.compile(
    r"\$\s*([0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)|([0-9][0-9_,]*(?:\.[0-9]+)?)\s*USD"
)
_CURRENCY = re.compile(r"[€£¥₹₩₽]|\b(?:EUR|GBP|JPY|CHF|CNY|INR)\b")


def looks_like_money(text: str) -> bool:
    """Whether text is meant as an amount of money, in whatever form."""
    return "$" in text or "usd" in text.lower() or _CURRENCY.search(text.upper()) is not None


def micros_in(given: str | Decimal) -> int:
    """Read an amount of money: `$4`, `$0.50`, `4 USD`, or a `Decimal` of dollars.

    Returns:
        Whole micro-dollars, above 0.

    Raises:
        NotMoney: It is not such an amount.
    """
    if isinstance(given, Decimal):
        dollars, shown = given, f"Decimal({str(given)!r})"
        if not given.is_finite():
            raise NotMoney(f'{shown} is not an amount: write `"$4"`.')
    else:
        text, shown = given.strip(), literal(given, 40)
        if _CURRENCY.search(text.upper()):
            raise NotMoney(
                f'{shown} is not in dollars, as list prices are: write `"$4"`, since an exchange '
                "rate is not known."
            )
        found = _WRITTEN.fullmatch(text)
        if found is None:
            above = " above 0" if "-" in text else ""
            raise NotMoney(f'{shown} is not an amount{above}: write `"$4"` or `"$0.50"`.')
        dollars = Decimal((found[1] or found[2]).replace(",", "").replace("_", ""))
    micros = dollars * MICROS
    if micros <= 0:
        raise NotMoney(f'{shown} is not an amount above 0: write `"$4"`.')
    if micros < LEAST_MICROS:
        least = money_text(LEAST_MICROS)
        raise NotMoney(f'{shown} is too little for any call: give at least "{least}".')
    if dollars > MOST_DOLLARS:
        raise NotMoney(f'{shown} is too much: give at most "${MOST_DOLLARS:,}".')
    if micros != micros.to_integral_value():
        raise NotMoney(f"{shown} is finer than a millionth of a dollar: round it.")
    return int(micros)


def amount_in(total: object, unit: str) -> Any:
    """A new total in a budget's unit: micro-dollars for a budget of money, else unchanged.

    Raises:
        NotMoney: `total` is not an amount in that unit.
    """
    is_money = isinstance(total, Decimal) or (isinstance(total, str) and looks_like_money(total))
    if unit == TOKENS and is_money:
        raise NotMoney(
            f"The budget of this run counts tokens, not {literal(str(total), 40)}: give a number "
            "of tokens."
        )
    if unit == TOKENS:
        return total
    if isinstance(total, str | Decimal):
        return micros_in(total)
    raise NotMoney(
        f"The budget of this run counts dollars, not {literal(total, 40)}: give an amount as in "
        '`"$4"`.'
    )
