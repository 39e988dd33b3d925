"""The arguments of one tool call, as they come: in pieces, metered, and not without end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentnb.core.budget import size_in_bytes
from agentnb.core.types import ToolInputDelta
from agentnb.providers.json_values import GrowingText, as_text, tool_input
from agentnb.providers.limits import MOST_IN_ARGUMENTS, TooLarge

METERED_AT_ONCE = 1_024
"""Characters that the budget hears of at once: as many as a slice of it has."""
_MARKS = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)
"""What says where an object has its end, and what is escaped."""


class CallArguments(GrowingText):
    """The arguments of one call.

    However many pieces there are, each is looked at once, and the whole is read once.
    """

    __slots__ = (
        "_depth",
        "_has_closed",
        "_has_more",
        "_is_escaped",
        "_is_in_string",
        "_is_read",
        "_size",
        "_untold",
        "_untold_size",
        "_value",
        "is_blank",
    )

    def __init__(self) -> None:
        super().__init__()
        self.is_blank = True
        self._size = 0
        self._untold: list[str] = []
        """Pieces that the budget has not heard of."""
        self._untold_size = 0
        self._depth = 0
        """Lists and objects that are open."""
        self._is_in_string = self._is_escaped = False
        self._has_closed = False
        """The first object, or list, has its end."""
        self._has_more = False
        """More than blanks came behind it."""
        self._value: Mapping[str, Any] | None = None
        self._is_read = False

    def keep(self, piece: str) -> str:
        """Add a piece; returns what of it can be shown by now.

        Raises:
            TooLarge: There is more than any call has.
        """
        self._size += size_in_bytes(piece)
        if self._size > MOST_IN_ARGUMENTS:
            raise TooLarge("arguments of a tool call", MOST_IN_ARGUMENTS)
        is_blank = not piece.strip()
        self.is_blank = self.is_blank and is_blank
        self._untold.append(piece)
        self._untold_size += len(piece)
        if self._has_closed:
            self._has_more = self._has_more or not is_blank
        elif piece:
            self._follow(piece)
        return super().keep(piece)

    def _follow(self, piece: str) -> None:
        """Count what is open: before the first object has its end they cannot be whole."""
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
        """What is to be handed to the tool; `None` while it is not a whole JSON object."""
        if not self._has_closed or self._has_more:
            return None
        if not self._is_read:
            self._value, self._is_read = tool_input(str(self)), True
        return self._value

    def metered(self) -> tuple[ToolInputDelta, ...]:
        """What the budget has to hear by now: of a short call nothing, before it is whole."""
        if self._untold_size < METERED_AT_ONCE:
            return ()
        text = as_text("".join(self._untold))
        self._untold.clear()
        self._untold_size = 0
        return (ToolInputDelta(text),)
