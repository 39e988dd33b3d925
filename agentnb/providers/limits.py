"""How much of anything a server may send, and what is said of more.

All of it is counted after decompression. What passes a limit is an error of that server: it costs
its agent one further attempt, never a process.
"""

from __future__ import annotations

MOST_IN_EVENT = 4 * 2**20
"""Bytes of one event of a stream: JSON of this size may take thirty times as much as values."""
MOST_IN_REPLY = 64 * 2**20
"""Bytes of one stream: twice what the longest answers take, at 250 bytes for each token."""
MOST_IN_ERROR = 2**20
"""Bytes of the body of an error that are read."""
MOST_IN_ARGUMENTS = 2**20
"""Bytes of one tool call's arguments: twice what the longest answers of a model are."""
MOST_PARTS = 1_000
"""Parts of one reply: texts, thinking, tool calls."""
MOST_IN_NAME = 1_000
"""Characters of a tool's name, and of a call's id."""

CUT = "agentnb.cut"
"""The name among a response's extensions of what was not read of its body: a part of a sentence."""


class BadReply(ValueError):
    """What came is no reply. The text says in plain words what it is instead."""


class TooLarge(BadReply):
    """What came is more than anybody can mean.

    Args:
        what: What has the limit, as `an event`.
        most: How much it may have.
        unit: Of what.
    """

    def __init__(self, what: str, most: int, unit: str = "bytes") -> None:
        super().__init__(f"{what} of more than {most:,} {unit}, which is the most that is read")
