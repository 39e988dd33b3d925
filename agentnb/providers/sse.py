"""Parses server-sent events: from a stream's bytes to the data of its events.

Synchronous on purpose: the event loop closes an unfinished async generator in a task of its own,
which runs on after the call.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentnb.providers.limits import MOST_IN_EVENT, MOST_IN_REPLY, BadReply, TooLarge
from agentnb.providers.unpacking import Unpacking

_QUOTED_BYTES = 2_000


class EventLines:
    """Extracts the data of events from a stream's bytes. Names and ids are ignored.

    Args:
        encoding: The stream's `content-encoding`.

    Source: "Server-sent events", HTML Living Standard, section 9.2.6.
    """

    def __init__(self, encoding: str = "") -> None:
        self.begun = b""
        """The stream's first bytes, for an error to quote."""
        self._unpacking = Unpacking(encoding, most=MOST_IN_REPLY, what="a reply")
        self.is_packed = self._unpacking.is_packed
        """Whether the bytes are compressed."""
        self._room = MOST_IN_REPLY
        """Bytes left until the limit, for a stream that is not compressed."""
        self._pieces: list[bytes] = []
        """Pieces of an unfinished line."""
        self._ends_with_cr = False
        self._data: list[str] = []
        self._held = 0
        """Bytes held of an unfinished event: its lines and `_pieces`."""

    def feed(self, content: bytes) -> Iterator[str]:
        """The data of the events that these bytes complete.

        Raises:
            BadReply: The bytes are not an event stream.
            TooLarge: An event or the whole stream exceeds its limit.
        """
        if self.is_packed:
            return (
                data for piece in self._unpacking.pieces(content) for data in self._events_in(piece)
            )
        self._room -= len(content)
        if self._room < 0:
            raise TooLarge("a reply", MOST_IN_REPLY)
        return self._events_in(content)

    def _events_in(self, content: bytes) -> Iterator[str]:
        if len(self.begun) < _QUOTED_BYTES:
            if not self.begun:
                content = content.removeprefix(b"\xef\xbb\xbf")  # byte order mark
            self.begun += content[:_QUOTED_BYTES]
        is_long = len(content) > MOST_IN_EVENT
        if self._pieces or self._data or self._ends_with_cr or is_long or b"\r" in content:
            yield from self._in_lines(content)
            return
        # Fast path: whole events of one `data` line, with or without a name before it.
        whole, _, rest = content.rpartition(b"\n\n")
        for event in whole.split(b"\n\n"):
            name, _, data = event.partition(b"data: ")
            has_name = name.startswith(b"event:") and name.find(b"\n") == len(name) - 1
            if data and b"\n" not in data and (has_name or not name):
                yield _decoded(data)
            else:
                yield from self._in_lines(event + b"\n\n")
        if rest:
            yield from self._in_lines(rest)

    def _in_lines(self, content: bytes) -> Iterator[str]:
        """Slow path, line by line: for bytes of any form."""
        for piece in content.splitlines(keepends=True):
            if self._ends_with_cr and piece == b"\n":
                self._ends_with_cr = False  # the second half of a line end that was cut in two
                continue
            self._ends_with_cr = piece.endswith(b"\r")
            self._pieces.append(piece)
            self._held += len(piece)
            if self._held > MOST_IN_EVENT:
                raise TooLarge("an event", MOST_IN_EVENT)
            if piece.endswith((b"\n", b"\r")):
                line = b"".join(self._pieces).rstrip(b"\r\n")
                self._pieces.clear()
                yield from self._take(line)
                if not self._data:  # comments, names and ids are not held
                    self._held = 0

    def _take(self, line: bytes) -> Iterator[str]:
        if not line:
            data, self._data = "\n".join(self._data), []
            if data:
                yield data
        elif line.startswith(b"data"):
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(_decoded(value.removeprefix(b" ")))


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise BadReply("bytes that are not text") from None
