"""Keeps the beginning and the end of a stream of bytes, and counts the rest."""

from __future__ import annotations


class HeadAndTail:
    """At most `most` bytes of a stream: half from its beginning, half from its end."""

    def __init__(self, most: int) -> None:
        self._half = most // 2
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self._head, self._tail, self.total = bytearray(), bytearray(), 0

    def add(self, some: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total += len(some)
        room = self._half - len(self._head)
        if room > 0:
            self._head += some[:room]
            some = some[room:]
        self._tail += some[-self._half :]
        del self._tail[: -self._half]

    def text(self) -> str:
        """What is kept, with a line for what is not."""
        left_out = self.total - len(self._head) - len(self._tail)
        if left_out <= 0:
            return bytes(self._head + self._tail).decode(errors="replace")
        head, tail = self._head.decode(errors="ignore"), self._tail.decode(errors="ignore")
        return f"{head}\n… {left_out:,} bytes left out …\n{tail}"
