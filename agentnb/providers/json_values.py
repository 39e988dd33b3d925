"""JSON as it comes over any wire: values, text that may be cut in half, counts of tokens.

What passed through here can be sent back: no lone surrogate is in it, and no count that a model
cannot have made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from agentnb.core.arguments import BadArguments, read_arguments
from agentnb.core.budget import size_in_bytes
from agentnb.core.text import sendable
from agentnb.providers.limits import MOST_IN_NAME, BadReply, TooLarge

_MOST_TOKENS = 100_000_000
"""A hundred times what the largest models take or give in one call: above it a count is a bug
of somebody's, and counting it would end the run at once."""

WRONG_SHAPE = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What is raised by reading data of the wrong shape."""


def without_surrogates(value: Any) -> Any:
    """The JSON value with what is no text replaced, since it cannot be sent."""
    if isinstance(value, str):
        return as_text(value)
    if isinstance(value, Mapping):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_surrogates(item) for item in value]
    return value


as_text = sendable


def as_name(value: str) -> str:
    """A tool's name, or the id of a call.

    Raises:
        TooLarge: It is longer than any.
    """
    if len(value) > MOST_IN_NAME:
        raise TooLarge("a name or id of a tool call", MOST_IN_NAME, "characters")
    return as_text(value)


class GrowingText:
    """A text that comes in pieces."""

    __slots__ = ("_half", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._half = ""
        """The first half of a character whose second half may come with the next piece."""

    def __str__(self) -> str:
        return "".join(self._pieces)

    @property
    def size(self) -> int:
        """In bytes."""
        return size_in_bytes(str(self))

    def keep(self, piece: str) -> str:
        """Add a piece; returns what of it can be shown by now."""
        if piece.isascii() and not self._half:
            self._pieces.append(piece)
            return piece
        # Some servers cut text by the units of UTF-16, in the middle of an emoji.
        piece, self._half = self._half + piece, ""
        if "\ud800" <= piece[-1:] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]
        self._pieces.append(as_text(piece))
        return self._pieces[-1]

    def end(self) -> str:
        """What is left of a character that stayed without its second half."""
        if not self._half:
            return ""
        self._pieces.append(as_text(self._half))
        self._half = ""
        return self._pieces[-1]


@cache
def _quick_json() -> Callable[[str], Any]:
    """Pydantic's decoder, which takes a quarter of the time of Python's."""
    from pydantic_core import from_json

    return from_json


def json_object(data: str) -> dict[str, Any] | None:
    """The object that stands in an event's data; `None` for JSON of another kind.

    Raises:
        BadReply: It is no JSON.
    """
    try:
        value = _quick_json()(data)
    except ValueError:
        try:  # what the quick one refuses need not be wrong: half of an emoji is not
            value = json.loads(data)
        except (ValueError, RecursionError):
            raise BadReply("an event that is no JSON") from None
    return value if isinstance(value, dict) else None


def tool_input(text: str) -> Mapping[str, Any] | None:
    """The arguments of a tool call; `None` where they are none that can be kept and sent back."""
    try:
        cleaned: dict[str, Any] = without_surrogates(read_arguments(text))
    except BadArguments:
        return None
    return cleaned


def known_counts(raw: object, names: Mapping[str, str]) -> dict[str, int]:
    """The fields that are counts, under our names. One that is nonsense says nothing.

    Args:
        raw: What came as the usage.
        names: From the other side's name of a field to ours.
    """
    if not isinstance(raw, Mapping):
        return {}
    counts = {ours: raw.get(theirs) for theirs, ours in names.items()}
    return {
        ours: count
        for ours, count in counts.items()
        if type(count) is int and 0 <= count <= _MOST_TOKENS
    }
