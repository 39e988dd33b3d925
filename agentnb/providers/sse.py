"""Server-sent events: from the bytes of a stream to the data of its events.

Plain values in and out, with no generator that waits for the network: an asynchronous one that
is left in the middle is closed by a task of the event loop's own, which outlives the call.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentnb.providers.limits import MOST_IN_EVENT, MOST_IN_REPLY, BadReply, TooLarge
from agentnb.providers.unpacking import Unpacking

_QUOTED_BYTES = 2_000


class EventLines:
    """Finds the data of the events in the bytes of a stream. Names and ids are passed over.

    Args:
        encoding: The stream's `content-encoding`.

    Source: "Server-sent events", HTML Living Standard, section 9.2.6.
    """

    def __init__(self, encoding: str = "") -> None:
        self.begun = b""
        """The first bytes that came, for an error to quote."""
        self._unpacking = Unpacking(encoding, most=MOST_IN_REPLY, what="a reply")
        self.is_packed = self._unpacking.is_packed
        """Whether few bytes may become many."""
        self._room = MOST_IN_REPLY
        """Bytes that may still come, where they are not packed."""
        self._pieces: list[bytes] = []
        """Of a line whose end has not come."""
        self._ends_with_cr = False
        self._data: list[str] = []
        self._held = 0
        """Bytes of both: of the event whose end has not come."""

    def feed(self, content: bytes) -> Iterator[str]:
        """The data of the events that these bytes complete.

        Raises:
            BadReply: The bytes are no such stream.
            TooLarge: An event, or the whole stream, is longer than any can be.
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
                content = content.removeprefix(b"\xef\xbb\xbf")  # a text may begin with this mark
            self.begun += content[:_QUOTED_BYTES]
        is_long = len(content) > MOST_IN_EVENT
        if self._pieces or self._data or self._ends_with_cr or is_long or b"\r" in content:
            yield from self._in_lines(content)
            return
        # Whole events, of their data alone or with a name before it: nearly all that ever comes.
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
        """The same for bytes of any form, line by line."""
        for piece in content.splitlines(keepends=True):
            if self._ends_with_cr and piece == b"\n":
                self._ends_with_cr = False  # the other half of an end that was cut in two
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
        raise BadReply("bytes that are no text") from None
