"""Lines within a limit: what does not fit is left out whole, and known to be."""

from __future__ import annotations

from collections.abc import Callable

from agentnb.core.quotation import behind_marks
from agentnb.core.text import visible_text


def in_bytes(text: str) -> int:
    """The length of a text in UTF-8."""
    return len(text.encode("utf-8", "replace"))


class Room:
    """Collects lines up to a limit.

    Args:
        most: The limit, with the line ends.
        measure: The size of a text; its bytes in UTF-8 when left out.
    """

    def __init__(self, most: int, measure: Callable[[str], int] = in_bytes) -> None:
        self.left = most
        self.lines: list[str] = []
        self._measure = measure

    def add(self, line: str, *, leave: int = 0) -> bool:
        """Add a line if it fits, and `leave` would still be left."""
        size = self._measure(line) + 1
        if size > self.left - leave:
            return False
        self.left -= size
        self.lines.append(line)
        return True

    def __str__(self) -> str:
        return "\n".join(self.lines)


def beginning(text: str, most: int, *, chars: int, quoted: bool = False) -> tuple[str, int]:
    """The beginning of a text, made visible, and how many of its characters that is.

    Args:
        text: Any text; only its beginning is read.
        most: Bytes (`quoted`), or else characters, that there is room for.
        chars: Most characters to show.
        quoted: Each line behind a quote mark, so that none can be taken for one of ours.
    """
    taken = min(chars, len(text))
    while taken:
        shown = visible_text(text[:taken])
        if quoted:
            shown = behind_marks(shown)
        size = in_bytes(shown) if quoted else len(shown)
        if size <= most:
            return shown, taken
        taken = min(taken - 1, taken * most // size)
    return "", 0
