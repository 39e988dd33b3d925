"""The arguments of one tool call, received in pieces, metered and limited in size."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from agentnb.core.budget import size_in_bytes
from agentnb.core.types import CompletionRequest, ToolInputDelta
from agentnb.providers.json_values import GrowingText, as_text, tool_input
from agentnb.providers.limits import MOST_IN_ARGUMENTS, TooLarge

METERED_AT_ONCE = 1_024
"""Characters that are metered at once: as many as a slice of the budget has."""
_MARKS = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)
"""Characters that open or close a string, list or object, and escapes."""

_NOTHING = ("null", '""', "[]")
_MOST_REPEATED = 100
"""Times that arguments may come."""


class CallArguments(GrowingText):
    """The arguments of one call.

    Each piece is scanned once and the whole is parsed once, however many pieces there are.
    """

    __slots__ = (
        "_depth",
        "_has_closed",
        "_has_more",
        "_is_escaped",
        "_is_in_string",
        "_is_read",
        "_size",
        "_unmetered",
        "_unmetered_size",
        "_value",
        "is_blank",
    )

    def __init__(self) -> None:
        super().__init__()
        self.is_blank = True
        self._size = 0
        self._unmetered: list[str] = []
        """Pieces that are not metered yet."""
        self._unmetered_size = 0
        self._depth = 0
        """Number of open lists and objects."""
        self._is_in_string = self._is_escaped = False
        self._has_closed = False
        """Whether the first object or list is closed."""
        self._has_more = False
        """Whether anything but blanks follows it."""
        self._value: Mapping[str, Any] | None = None
        self._is_read = False

    def keep(self, piece: str) -> str:
        """Add a piece; returns the part of it that can be shown already.

        Raises:
            TooLarge: The arguments exceed `MOST_IN_ARGUMENTS`.
        """
        self._size += size_in_bytes(piece)
        if self._size > MOST_IN_ARGUMENTS:
            raise TooLarge("arguments of a tool call", MOST_IN_ARGUMENTS)
        is_blank = not piece.strip()
        self.is_blank = self.is_blank and is_blank
        self._unmetered.append(piece)
        self._unmetered_size += len(piece)
        if self._has_closed:
            self._has_more = self._has_more or not is_blank
        elif piece:
            self._follow(piece)
        return super().keep(piece)

    def _follow(self, piece: str) -> None:
        """Count open brackets: until the first object closes, the arguments are not whole."""
        start, self._is_escaped = int(self._is_escaped), False
        for mark in _MARKS.finditer(piece, start):
            sign = mark[0]
            if sign[0] == "\\":
                self._is_escaped = len(sign) == 1
            elif sign == '"':
                self._is_in_string = not self._is_in_string
            elif not self._is_in_string:
                self._depth += 1 if sign in "{[" else -1
                if self._depth <= 0:
                    self._has_closed = True
                    self._has_more = bool(piece[mark.end() :].strip())
                    return

    @property
    def value(self) -> Mapping[str, Any] | None:
        """The tool's arguments; `None` while they are not a whole JSON object."""
        if not self._has_closed or self._has_more:
            return None
        if not self._is_read:
            self._value, self._is_read = tool_input(str(self)), True
        return self._value

    def whole(self, *, takes_any: bool = True) -> Mapping[str, Any] | None:
        """The tool's arguments when no more will come; `None` if they are not one JSON object.

        Some servers send them twice, or `{}` before them; for a tool without parameters some send
        another empty value.

        Args:
            takes_any: Whether the tool has parameters.
        """
        if self.value is not None:
            return self.value
        text = str(self).strip()
        if not takes_any and text in _NOTHING:
            return {}
        if text.startswith('"'):  # JSON in JSON, as vLLM passes on what some models write
            return tool_input(_said_in(text))
        return tool_input(_repeated(text)) if self._has_more else None

    def metered(self) -> tuple[ToolInputDelta, ...]:
        """Pieces due for metering: none of a short call before it is whole."""
        if self._unmetered_size < METERED_AT_ONCE:
            return ()
        text = as_text("".join(self._unmetered))
        self._unmetered.clear()
        self._unmetered_size = 0
        return (ToolInputDelta(text),)


def _said_in(text: str) -> str:
    """The text that is written as a JSON string; empty for none."""
    try:
        said = json.loads(text)
    except ValueError:
        return ""
    return said if isinstance(said, str) else ""


def _repeated(text: str) -> str:
    """The object that a text repeats, empty ones left out; empty if it holds several, or more."""
    decoder, at, found = json.JSONDecoder(), 0, dict[str, Any]()
    for _ in range(_MOST_REPEATED):
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return ""
        if value != {}:
            found[json.dumps(value, sort_keys=True)] = text[at:end]
        at = end + len(text[end:]) - len(text[end:].lstrip())
        if at == len(text):
            return next(iter(found.values()), "{}") if len(found) <= 1 else ""
    return ""


def without_parameters(request: CompletionRequest) -> frozenset[str]:
    """The names of the offered tools that have no parameters."""
    return frozenset(t.name for t in request.tools if not t.input_schema.get("properties"))
