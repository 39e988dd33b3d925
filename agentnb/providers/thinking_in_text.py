"""Thinking that a server leaves in its model's text: `<think>…</think>` before the answer.

Servers without a parser for reasoning send it so. It is told apart at the beginning of a reply
only: a tag further on is text. Some templates open the thinking themselves, so that a reply holds
the end tag alone. What came before it was shown as text by then, so that reply counts as broken,
and the model's next replies are held back until their end tag.
"""

from __future__ import annotations

import re

IN_TEXT = "content"
"""`ThinkingBlock.sent_as` of such thinking. Templates leave it out of later turns, and so do we."""

_PAIRS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "[THINK]": "[/THINK]",
}
_ENDS = tuple(_PAIRS.values())
_LONE_END = re.compile(r"\n[ \t]*(?:</think(?:ing)?>|\[/THINK\])[ \t]*\n")
_LONGEST_END = max(map(len, _ENDS))

Piece = tuple[bool, str]
"""Whether it is thinking, and the piece."""


class ThinkingInText:
    """Splits a reply's text while it arrives.

    Args:
        is_open: Whether the reply begins within the thinking, as this model's replies do.
    """

    def __init__(self, *, is_open: bool = False) -> None:
        self.is_text = False
        """Whether the beginning is decided and the answer goes on: all that comes is text."""
        self.has_begun = False
        self.was_no_thinking = False
        """Whether what was taken for thinking turned out, at the end, to be the answer."""
        self._is_open = is_open
        self._ends: tuple[str, ...] = _ENDS if is_open else ()
        """The tags that may end the thinking; none before it has begun."""
        self._left = ""
        """What is not decided: it may be a part of a tag."""
        self._whole = ""
        """Of a reply that began within the thinking: if no end comes, it is the answer."""
        self._follows = False
        """Whether the thinking has just ended: blanks before the answer are left out."""

    def feed(self, text: str) -> list[Piece]:
        """The pieces that are decided now."""
        self.has_begun = True
        self._left += text
        if self._is_open:
            self._whole += text
        if self._follows:
            return self._answer()
        if self._ends:
            return self._think()
        begun = self._left.lstrip()
        for begin, end in _PAIRS.items():
            if begun.startswith(begin):
                self._left, self._ends = begun[len(begin) :], (end,)
                return self._think()
        if any(begin.startswith(begun) for begin in _PAIRS):
            return []
        return self._all_as_text()

    def end(self) -> list[Piece]:
        """The rest, when the reply has ended."""
        if self._is_open and not (self._follows or self.is_text):
            self.was_no_thinking = True
            return _piece(False, self._whole)
        is_thinking = bool(self._ends) and not self._follows
        left, self._left = self._left, ""
        return [(is_thinking, left)] if left and not self._follows else []

    def _think(self) -> list[Piece]:
        found = [(at, end) for end in self._ends if (at := self._left.find(end)) >= 0]
        if found:
            at, end = min(found)
            thought, self._left = self._left[:at], self._left[at + len(end) :]
            self._follows = True
            return [*_piece(True, thought), *self._answer()]
        keep = _possible_tag(self._left, self._ends)
        thought, self._left = self._left[: len(self._left) - keep], self._left[-keep:] * bool(keep)
        return _piece(True, thought)

    def _answer(self) -> list[Piece]:
        self._left = self._left.lstrip()
        if not self._left:
            return []
        self._follows = False
        return self._all_as_text()

    def _all_as_text(self) -> list[Piece]:
        self.is_text = True
        text, self._left = self._left, ""
        return _piece(False, text)


def has_lone_end(text: str) -> bool:
    """Whether a text that began as an answer holds the end of thinking, outside code."""
    found = _LONE_END.search(text)
    return found is not None and text.count("```", 0, found.start()) % 2 == 0


def _piece(is_thinking: bool, text: str) -> list[Piece]:
    return [(is_thinking, text)] if text else []


def _possible_tag(text: str, tags: tuple[str, ...]) -> int:
    """How many characters at the end may be the beginning of a tag."""
    for length in range(min(_LONGEST_END - 1, len(text)), 0, -1):
        if any(tag.startswith(text[-length:]) for tag in tags):
            return length
    return 0
