"""Server-sent events: from the bytes of a stream to the data of its events.

Plain values in and out, with no generator that waits for the network: an asynchronous one that
is left in the middle is closed by a task of the event loop's own, which outlives the call.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

_QUOTED_BYTES = 2_000


class BadReply(ValueError):
    """What came is no reply. The text says in plain words what it is instead."""


class EventLines:
    """Finds the data of the events in the bytes of a stream. Names and ids are passed over.

    Args:
        encoding: The stream's `content-encoding`.

    Source: "Server-sent events", HTML Living Standard, section 9.2.6.
    """

    def __init__(self, encoding: str = "") -> None:
        self.begun = b""
        """The first bytes that came, for an error to quote."""
        self._encoding = encoding.strip().lower()
        self._unzip = zlib.decompressobj(16 + zlib.MAX_WBITS)
        self._pieces: list[bytes] = []
        """Of a line whose end has not come."""
        self._ends_with_cr = False
        self._data: list[str] = []

    def feed(self, content: bytes) -> Iterator[str]:
        """The data of the events that these bytes complete.

        Raises:
            BadReply: The bytes are no such stream.
        """
        content = self._plain(content)
        if len(self.begun) < _QUOTED_BYTES:
            if not self.begun:
                content = content.removeprefix(b"\xef\xbb\xbf")  # a text may begin with this mark
            self.begun += content[:_QUOTED_BYTES]
        if self._pieces or self._data or self._ends_with_cr or b"\r" in content:
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
            if piece.endswith((b"\n", b"\r")):
                line = b"".join(self._pieces).rstrip(b"\r\n")
                self._pieces.clear()
                yield from self._take(line)

    def _plain(self, content: bytes) -> bytes:
        if self._encoding in ("", "identity"):
            return content
        if self._encoding != "gzip":
            raise BadReply(f"the compression {self._encoding!r}, which was not asked for")
        try:
            return self._unzip.decompress(content)
        except zlib.error:
            raise BadReply("bytes that are not compressed as they should be") from None

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
