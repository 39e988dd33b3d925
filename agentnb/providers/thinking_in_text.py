"""Thinking that a server leaves in its model's text: `<think>…</think>` before the answer.

Servers without a parser for reasoning send it so. It is told apart at the beginning of a reply
only: a tag further on is text. Some templates open the thinking themselves, so that a reply holds
the end tag alone. What came before it was shown as text by then, so that reply counts as broken,
and the model's next replies are held back until their end tag.
"""

from __future__ import annotations

import re

_PAIRS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|channel|>analysis<|message|>": "<|end|><|start|>assistant<|channel|>final<|message|>",
}
"""As the parsers of vLLM and SGLang know them; of the last, the model is gpt-oss."""
_ENDS = tuple(_PAIRS.values())
_OPENED_BY_TEMPLATES = {end: begin for begin, end in _PAIRS.items() if end != _ENDS[-1]}
_LONE_END = re.compile(
    rf"(?<![ \t`'\"])[ \t]*(?P<tag>{'|'.join(map(re.escape, _OPENED_BY_TEMPLATES))})"
    r"(?![`'\".,;:!?)]|[ \t]+\S)"
)
"""Not a tag that is quoted, or that stands among the words of a sentence."""
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
        """Whether the reply is taken for thinking, and no tag was seen yet."""
        self._ends: tuple[str, ...] = ()
        """The tags that may end the thinking; none outside of it."""
        self._left = ""
        """What is not decided: it may be a part of a tag."""
        self._whole = ""
        """Of a reply that began within the thinking: if no end comes, it is the answer."""
        self._follows = False
        """Whether thinking has ended: blanks before the answer are left out."""

    def feed(self, text: str) -> list[Piece]:
        """The pieces that are decided now."""
        self.has_begun = True
        self._left += text
        if self._is_open:
            self._whole += text
        return self._think() if self._ends else self._begin()

    def end(self, *, is_cut: bool) -> list[Piece]:
        """The rest, when the reply has ended.

        Args:
            is_cut: The reply ended at the limit of tokens: its end tag may be missing.
        """
        left, self._left = self._left, ""
        if self._is_open and not is_cut:
            self.was_no_thinking = True
            return _piece(False, self._whole)
        if self._follows and not self._ends:
            left = left.lstrip()
        return _piece(bool(self._ends) or self._is_open, left)

    def _begin(self) -> list[Piece]:
        """At the beginning, and again after thinking: some templates open a second block."""
        begun = self._left.lstrip()
        for begin, end in _PAIRS.items():
            if begun.startswith(begin):
                self._left, self._ends, self._is_open = begun[len(begin) :], (end,), False
                return self._think()
        if any(begin.startswith(begun) for begin in _PAIRS):
            return []
        if self._is_open:
            self._ends = _ENDS
            return self._think()
        if self._follows:
            self._left = begun
        self.is_text = True
        text, self._left = self._left, ""
        return _piece(False, text)

    def _think(self) -> list[Piece]:
        found = [(at, end) for end in self._ends if (at := self._left.find(end)) >= 0]
        if found:
            at, end = min(found)
            thought, self._left = self._left[:at], self._left[at + len(end) :]
            self._follows, self._is_open, self._ends = True, False, ()
            return [*_piece(True, thought), *self._begin()]
        keep = _possible_tag(self._left, self._ends)
        thought, self._left = self._left[: len(self._left) - keep], self._left[-keep:] * bool(keep)
        return _piece(True, thought)


def has_lone_end(text: str) -> bool:
    """Whether a text that began as an answer holds the end of thinking that it does not begin.

    The first end tag decides: not in code, and with no opening tag before it.
    """
    if (found := _LONE_END.search(text)) is None:
        return False
    begin = _OPENED_BY_TEMPLATES[found["tag"]]
    return begin not in text[: found.start()] and text.count("```", 0, found.start()) % 2 == 0


def _piece(is_thinking: bool, text: str) -> list[Piece]:
    return [(is_thinking, text)] if text else []


def _possible_tag(text: str, tags: tuple[str, ...]) -> int:
    """How many characters at the end may be the beginning of a tag."""
    for length in range(min(_LONGEST_END - 1, len(text)), 0, -1):
        if any(tag.startswith(text[-length:]) for tag in tags):
            return length
    return 0
