"""A budget in numbers: how far a control goes, what a teacher has set, and what a person types.

Points and commas part thousands in one country and decimals in the other. The panel itself writes
`200,000`, and tokens are whole: so most of what people type has one meaning, and what has two is
never guessed.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Sequence
from decimal import Decimal

from agentnb.core.text import literal
from agentnb.errors import NotebookError

CEILING_VARIABLE = "AGENTNB_BUDGET_CEILING"
LARGEST = 2**53 - 1
"""The largest whole number that a browser holds exactly."""

_SMALLEST_END = 1_000
"""A slider of a few tokens could not be moved to anything of use."""
_PRESSES = 200
"""How many presses of an arrow key lead from one end of the slider to the other."""
_NEAR_THE_END = 0.75
# The beginnings of round numbers, in tenths. An end is to stay about twice the total; a step is to
# make every value that the keys reach a round one.
_ENDS = (10, 15, 20, 25, 30, 40, 50, 60, 80, 100)
_STEPS = (10, 20, 50, 100)

_UNIT = re.compile(r"\s*tok(en)?s?$", re.IGNORECASE)
_GROUPED = re.compile(r"\d{1,3}(?:([ _'\u2019,])\d{3})(?:\1\d{3})*")
_POINTS = re.compile(r"\d{1,3}(?:\.\d{3}){2,}")
_ONE_POINT = re.compile(r"[1-9]\d{0,2}\.\d{3}")
_SCIENTIFIC = re.compile(r"(\d+(?:\.\d+)?)(?:[eE]\+?(\d{1,2})|\s*([kKmM]))?")
_COMMA = re.compile(r"\d+,\d+(?:[eE]\+?\d+|\s*[kKmM])?")
_LONGEST = 60
_SUFFIXES = {"k": 3, "m": 6}


def ceiling_of(text: str | None) -> int | None:
    """The ceiling that a teacher set: a whole number of tokens, such as `200_000`.

    Args:
        text: What `AGENTNB_BUDGET_CEILING` holds; `None` or blank for no ceiling.

    Raises:
        NotebookError: It holds something else.
    """
    if text is None or not text.strip():
        return None
    try:
        ceiling = int(text)
    except ValueError:
        ceiling = 0
    if ceiling < 1:
        raise NotebookError(
            f"The environment variable {CEILING_VARIABLE} is {literal(text[:80])}: set it to a "
            "whole number of tokens, at least 1, such as 200_000, or remove it."
        )
    return ceiling


def ceiling() -> int | None:
    """The ceiling that a teacher set, if any.

    Raises:
        NotebookError: `AGENTNB_BUDGET_CEILING` holds no number of tokens.
    """
    return ceiling_of(os.environ.get(CEILING_VARIABLE))


def highest_total(total: int, ceiling: int | None) -> int:
    """Up to where a person may set the total.

    A total above the ceiling, which some code has set, is shown as it is: it can be lowered, and
    once it is below the ceiling it cannot be raised above it again.
    """
    return max(total, LARGEST if ceiling is None else min(ceiling, LARGEST))


def allowed_total(wanted: int, *, used: int, highest: int) -> int:
    """The total nearest to the one that is wanted: not below what is used, nor above the end."""
    return min(max(wanted, used, 0), highest)


def slider_end(total: int, *, end: int = 0, ceiling: int | None = None) -> int:
    """Where the slider ends: at a round number of about twice the total, or at the ceiling.

    It moves when the total comes near to it, and never back: else the handle would jump away
    under a person's hand at every change.

    Args:
        total: The total to show.
        end: Where the slider ended until now; 0 for a new one.
        ceiling: What a teacher allows.
    """
    is_roomy = 0 < end and total <= end * _NEAR_THE_END
    twice = _rounded_up(min(2 * total, LARGEST), _ENDS)
    wanted = end if is_roomy else max(twice, total, _SMALLEST_END)
    return min(wanted, highest_total(total, ceiling))


def slider_step(end: int) -> int:
    """What one press of an arrow key moves: a round number, about a 200th of the whole."""
    return _rounded_up(end // _PRESSES, _STEPS)


def _rounded_up(number: int, beginnings: Sequence[int]) -> int:
    """The next number, at least 1, that has one of the beginnings, and zeros behind it."""
    size = int(10 ** (len(str(number)) - 1))
    rounds = (size * beginning // 10 for beginning in beginnings)
    return next(rounded for rounded in rounds if rounded >= number)


class UnclearNumber(ValueError):
    """Raised when a text is no number of tokens, or could be two; its words say which."""


def tokens_of(typed: str) -> int:
    """A number of tokens: `200000`, `200,000`, `200 000`, `2e5`, `1.5e5`, `200k`, `1.234.567`.

    Args:
        typed: What a person typed; spaces around it and the word `tokens` are passed over.

    Returns:
        From 0 to `LARGEST`.

    Raises:
        UnclearNumber: It can be read in two ways (`200.000`), is no whole number or none at all, or
            is larger than a browser holds exactly.
    """
    text = _UNIT.sub("", unicodedata.normalize("NFKC", typed).strip())
    if len(text) > _LONGEST:
        raise UnclearNumber("This is too long for a number of tokens.")
    if _ONE_POINT.fullmatch(text) and text.endswith(".000"):
        small = text.partition(".")[0]
        raise UnclearNumber(
            f"{literal(text)} can be read as {small} or as {small},000 tokens: type {small} or "
            f"{small}000."
        )
    if _GROUPED.fullmatch(text) or _POINTS.fullmatch(text) or _ONE_POINT.fullmatch(text):
        return _bounded(int(re.sub(r"\D", "", text)), text)
    if found := _SCIENTIFIC.fullmatch(text):
        number, power, suffix = found.groups()
        size = int(power or 0) + _SUFFIXES.get((suffix or "").lower(), 0)
        exact = Decimal(number).scaleb(size)
        if exact != exact.to_integral_value():
            raise UnclearNumber(f"{literal(text)} is no whole number of tokens.")
        return _bounded(int(exact), text)
    if _COMMA.fullmatch(text):
        raise UnclearNumber(
            f"{literal(text)} is unclear: a comma parts thousands here, as in 200,000. For a "
            "fraction type a point, as in 1.5e5."
        )
    raise UnclearNumber(f"{literal(text)} is no number of tokens: type 200000, 200,000 or 2e5.")


def _bounded(number: int, text: str) -> int:
    if number > LARGEST:
        raise UnclearNumber(f"{literal(text)} is more than the {LARGEST:,} tokens that can be set.")
    return number
