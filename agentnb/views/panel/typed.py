"""A number of tokens as a person types it: what it means, or why that cannot be told.

Points and commas part thousands in one country and decimals in the other. The panel itself writes
`200,000`, and tokens are whole: so most of what people type has one meaning, and what has two is
never guessed.
"""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal

from agentnb.core.text import literal
from agentnb.views.panel.limits import LARGEST

_UNIT = re.compile(r"\s*tok(en)?s?$", re.IGNORECASE)
_GROUPED = re.compile(r"\d{1,3}(?:([ _'\u2019,])\d{3})(?:\1\d{3})*")
_POINTS = re.compile(r"\d{1,3}(?:\.\d{3}){2,}")
_ONE_POINT = re.compile(r"[1-9]\d{0,2}\.\d{3}")
_SCIENTIFIC = re.compile(r"(\d+(?:\.\d+)?)(?:[eE]\+?(\d{1,2})|\s*([kKmM]))?")
_COMMA = re.compile(r"\d+,\d+(?:[eE]\+?\d+|\s*[kKmM])?")
_LONGEST = 60
_SUFFIXES = {"k": 3, "m": 6}


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
