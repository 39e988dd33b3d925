"""Budget numbers: a control's range, the teacher's ceiling, and parsing what a user types.

Points and commas separate thousands in one country and decimals in another. The panel writes
`200,000`, and tokens are whole numbers, so most input is unambiguous; ambiguous input is refused.
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
"""A shorter slider would be of no use."""
_PRESSES = 200
"""Presses of an arrow key from one end of the slider to the other."""
_NEAR_THE_END = 0.75
# Leading digits of round numbers, in tenths. The end stays about twice the total; steps make every
# value that the keys reach round.
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
    """Parse the teacher's ceiling: a whole number of tokens, such as `200_000`.

    Args:
        text: The value of `AGENTNB_BUDGET_CEILING`; `None` or blank for no ceiling.

    Raises:
        NotebookError: It is not a whole number, at least 1.
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
    """The ceiling in the environment, if any.

    Raises:
        NotebookError: `AGENTNB_BUDGET_CEILING` is not a number of tokens.
    """
    return ceiling_of(os.environ.get(CEILING_VARIABLE))


def highest_total(total: int, ceiling: int | None) -> int:
    """The largest total that a user may set.

    A total above the ceiling, set by code, is shown as it is: it can be lowered, but not raised
    above the ceiling again.
    """
    return max(total, LARGEST if ceiling is None else min(ceiling, LARGEST))


def allowed_total(wanted: int, *, used: int, highest: int) -> int:
    """The allowed total nearest to `wanted`: from `used` to `highest`."""
    return min(max(wanted, used, 0), highest)


def slider_end(total: int, *, end: int = 0, ceiling: int | None = None) -> int:
    """The slider's end: a round number of about twice the total, or the ceiling.

    It grows when the total comes near, and never shrinks: else the handle would jump under the
    user's hand at every change.

    Args:
        total: The total to show.
        end: The slider's present end; 0 for a new one.
        ceiling: The teacher's ceiling.
    """
    is_roomy = 0 < end and total <= end * _NEAR_THE_END
    twice = _rounded_up(min(2 * total, LARGEST), _ENDS)
    wanted = end if is_roomy else max(twice, total, _SMALLEST_END)
    return min(wanted, highest_total(total, ceiling))


def slider_step(end: int) -> int:
    """The step of an arrow key: a round number, about a 200th of the range."""
    return _rounded_up(end // _PRESSES, _STEPS)


def _rounded_up(number: int, beginnings: Sequence[int]) -> int:
    """Round up to a number, at least 1, with one of the beginnings and then zeros."""
    size = int(10 ** (len(str(number)) - 1))
    rounds = (size * beginning // 10 for beginning in beginnings)
    return next(rounded for rounded in rounds if rounded >= number)


class UnclearNumber(ValueError):
    """A text is not a number of tokens, or is ambiguous; the message says which."""


def tokens_of(typed: str) -> int:
    """Parse `200000`, `200,000`, `200 000`, `2e5`, `1.5e5`, `200k` or `1.234.567`.

    Args:
        typed: The user's text; surrounding spaces and the word `tokens` are ignored.

    Returns:
        A number of tokens, from 0 to `LARGEST`.

    Raises:
        UnclearNumber: The text is ambiguous (`200.000`), not a whole number, or larger than a
            browser holds exactly.
    """
    text = _UNIT.sub("", unicodedata.normalize("NFKC", typed).strip())
    if len(text) > _LONGEST:
        raise UnclearNumber("This is too long for a number of tokens: type 200000, 200,000 or 2e5.")
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
            raise UnclearNumber(f"{literal(text)} is not a whole number of tokens: round it.")
        return _bounded(int(exact), text)
    if _COMMA.fullmatch(text):
        raise UnclearNumber(
            f"{literal(text)} is unclear: commas separate thousands here, as in 200,000. Type "
            "a point for a fraction, as in 1.5e5."
        )
    raise UnclearNumber(f"{literal(text)} is not a number of tokens: type 200000, 200,000 or 2e5.")


def _bounded(number: int, text: str) -> int:
    if number > LARGEST:
        raise UnclearNumber(f"{literal(text)} is more than the {LARGEST:,} tokens that can be set.")
    return number
