"""Bytes as they were before they were compressed: never many at once, and not without end."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from agentnb.providers.limits import BadReply, TooLarge

_PIECE = 2**16
"""The most that is unpacked at once."""


class Unpacking:
    """Unpacks a body, or takes it as it is, and counts it.

    Args:
        encoding: Its `content-encoding`.
        most: How many bytes it may have, packed and unpacked.
        what: What it is, for the error: as `a reply`.
    """

    def __init__(self, encoding: str, *, most: int, what: str) -> None:
        self._encoding = encoding.strip().lower()
        self.is_packed = self._encoding not in ("", "identity")
        """Whether few bytes may become many."""
        self._unzip = zlib.decompressobj(16 + zlib.MAX_WBITS)
        self._most, self._what = most, what
        self._left = self._packed_left = most

    def pieces(self, content: bytes) -> Iterator[bytes]:
        """What the next bytes hold, up to the limit.

        Raises:
            TooLarge: All of it together is more than it may have.
            BadReply: It is not compressed, or in a way that nobody asked for.
        """
        if not self.is_packed:
            yield from self._within(content)
            return
        if self._encoding != "gzip":
            encoding = self._encoding[:40]
            raise BadReply(f"the compression {encoding!r}, which was not asked for")
        self._packed_left -= len(content)
        if self._packed_left < 0:  # it may unpack to nothing, without end
            raise TooLarge(self._what, self._most)
        while not self._unzip.eof:  # what stands behind the end would be collected
            try:
                piece = self._unzip.decompress(content, _PIECE)
            except zlib.error:
                raise BadReply("bytes that are not compressed as they should be") from None
            yield from self._within(piece)
            content = self._unzip.unconsumed_tail
            if not content and len(piece) < _PIECE:
                return

    def _within(self, piece: bytes) -> Iterator[bytes]:
        room = max(self._left, 0)
        yield piece[:room]
        self._left -= len(piece)
        if self._left < 0:
            raise TooLarge(self._what, self._most)
