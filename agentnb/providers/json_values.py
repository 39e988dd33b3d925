"""Reads JSON from servers: values, text cut within a character, token counts.

The results can be sent back: they hold no lone surrogates and no impossible counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentnb.core.arguments import BadArguments, read_arguments
from agentnb.core.budget import size_in_bytes
from agentnb.core.text import sendable
from agentnb.providers.limits import MOST_IN_ID, MOST_IN_NAME, BadReply, TooLarge

_MOST_TOKENS = 100_000_000
"""A hundred times what the largest models read or write in one call. A larger count is a bug of
the server, and would end the run at once."""

WRONG_SHAPE = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors raised by reading data of the wrong shape."""


def without_surrogates(value: Any) -> Any:
    """The JSON value with lone surrogates replaced: they cannot be sent."""
    if isinstance(value, str):
        return as_text(value)
    if isinstance(value, Mapping):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_surrogates(item) for item in value]
    return value


as_text = sendable


def as_name(value: str) -> str:
    """Check a tool's name.

    Raises:
        TooLarge: It is longer than `MOST_IN_NAME`.
    """
    return _not_longer(value, "a name of a tool", MOST_IN_NAME)


def as_id(value: str) -> str:
    """Check the id of a call.

    Raises:
        TooLarge: It is longer than `MOST_IN_ID`.
    """
    return _not_longer(value, "an id of a tool call", MOST_IN_ID)


def _not_longer(value: str, what: str, most: int) -> str:
    if len(value) > most:
        raise TooLarge(what, most, "characters")
    return as_text(value)


class GrowingText:
    """A text received in pieces."""

    __slots__ = ("_half", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._half = ""
        """The first half of a surrogate pair: the next piece may bring the second."""

    def __str__(self) -> str:
        return "".join(self._pieces)

    @property
    def size(self) -> int:
        """Size in bytes."""
        return size_in_bytes(str(self))

    @property
    def pieces(self) -> int:
        """How many there are."""
        return len(self._pieces)

    def joined(self, begin: int, end: int | None = None) -> str:
        """The text of these pieces."""
        return "".join(self._pieces[begin:end])

    def keep(self, piece: str) -> str:
        """Add a piece; returns the part of it that can be shown already."""
        if piece.isascii() and not self._half:
            self._pieces.append(piece)
            return piece
        # Some servers cut text between UTF-16 units, in the middle of an emoji.
        piece, self._half = self._half + piece, ""
        if "\ud800" <= piece[-1:] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]
        self._pieces.append(as_text(piece))
        return self._pieces[-1]

    def end(self) -> str:
        """The rest of a character whose second half never came."""
        if not self._half:
            return ""
        self._pieces.append(as_text(self._half))
        self._half = ""
        return self._pieces[-1]


def _quick_json(data: str) -> Any:
    """Pydantic's decoder, four times as fast as Python's: imported when the first event comes."""
    global _quick_json
    from pydantic_core import from_json as _quick_json

    return _quick_json(data)


def json_object(data: str) -> dict[str, Any] | None:
    """The JSON object in an event's data; `None` for JSON of another type.

    Raises:
        BadReply: `data` is not JSON.
    """
    try:
        value = _quick_json(data)
    except ValueError:
        try:  # Python's accepts half of an emoji, the quick one does not
            value = json.loads(data)
        except (ValueError, RecursionError):
            raise BadReply("an event that is not JSON") from None
    return value if isinstance(value, dict) else None


def tool_input(text: str) -> Mapping[str, Any] | None:
    """Parse a tool call's arguments; `None` if they are malformed."""
    try:
        cleaned: dict[str, Any] = without_surrogates(read_arguments(text))
    except BadArguments:
        return None
    return cleaned


def known_counts(raw: object, names: Mapping[str, str]) -> dict[str, int]:
    """The valid token counts of a usage object, under our names.

    Args:
        raw: The usage as the server sent it.
        names: The server's name of a field to ours.
    """
    if not isinstance(raw, Mapping):
        return {}
    counts = {ours: raw.get(theirs) for theirs, ours in names.items()}
    return {
        ours: count
        for ours, count in counts.items()
        if type(count) is int and 0 <= count <= _MOST_TOKENS
    }
