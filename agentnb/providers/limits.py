"""Limits on what a server may send, and the error for exceeding them.

Sizes count after decompression. Exceeding a limit is the server's error: it costs its agent one
more attempt, never the process.
"""

from __future__ import annotations

MOST_IN_EVENT = 4 * 2**20
"""Most bytes of one event of a stream: as values, JSON may take thirty times its size."""
MOST_IN_REPLY = 64 * 2**20
"""Most bytes of one stream: twice the longest answers, at 250 bytes per token."""
MOST_IN_ERROR = 2**20
"""Most bytes that are read of an error's body."""
MOST_IN_ARGUMENTS = 2**20
"""Most bytes of one tool call's arguments: twice the longest answers of a model."""
MOST_PARTS = 1_000
"""Most parts of one reply: texts, thinking, tool calls."""
MOST_IN_NAME = 1_000
"""Most characters of a tool's name."""
MOST_IN_ID = 100_000
"""Most characters of a call's id: gateways to Gemini write the signature of a thought into it."""

CUT = "agentnb.cut"
"""Key in a response's extensions for a clause that says what of its body was not read."""


class BadReply(ValueError):
    """The server sent something that is not a reply. The message says what, as a noun phrase."""


class TooLarge(BadReply):
    """The server sent more than a limit allows.

    Args:
        what: The limited thing, such as `an event`.
        most: The limit.
        unit: The limit's unit.
    """

    def __init__(self, what: str, most: int, unit: str = "bytes") -> None:
        super().__init__(f"{what} of more than {most:,} {unit}, which is the most that is read")
