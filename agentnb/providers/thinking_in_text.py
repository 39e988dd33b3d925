"""Thinking that a server leaves in its model's text: `<think>…</think>` before the answer.

Servers without a parser for reasoning send it so. It is told apart here, after the reader of either
dialect, and at the beginning of a reply only: a tag further on is text.

Some templates open the thinking themselves, so that a reply holds the end tag alone. What came
before it was shown as text by then, so such a reply counts as broken, and the model's next replies
are held back until their end tag. That is for the first replies of a model: one that has answered
without the tag means it as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import islice

from agentnb.core.tool_results import calls_in
from agentnb.core.types import (
    Block,
    CompletionRequest,
    Message,
    Stopped,
    StreamEvent,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolResultBlock,
    ToolUse,
    ToolUseBlock,
)
from agentnb.providers.ends import MAY_BE_CUT
from agentnb.providers.limits import BadReply
from agentnb.providers.servers import Server

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
_WORDS = ("<thinking>", "<thought>")
"""These may also be what a person asked for: a reply that is nothing else is the answer."""
_BEGINS, _ENDS = tuple(_PAIRS), tuple(_PAIRS.values())
_OPENED_BY_TEMPLATES = {end: begin for begin, end in _PAIRS.items() if end != _ENDS[-1]}
_ANY_END = "|".join(map(re.escape, _OPENED_BY_TEMPLATES))
_END = re.compile("|".join(map(re.escape, _ENDS)))
_LONE_END = re.compile(
    rf"^[ \t]*(?P<line>{_ANY_END})[ \t]*\r?$|(?P<tag>{_ANY_END})[ \t]*\r?\n[ \t]*\r?\n",
    re.MULTILINE,
)
"""On a line of its own, or before a blank line: else it is a part of what is said."""
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_MOST_QUOTED = 50
"""End tags of one reply that are looked at."""
_LONGEST_END = max(map(len, _ENDS))
_CUT = ("max_tokens", "model_context_window_exceeded")
_NO_END = "The thinking in its text had no end."

Piece = tuple[bool, str]
"""Whether it is thinking, and the piece."""


class ThinkingFilter:
    """Tells thinking in the text from the answer, in the events of one reply.

    Args:
        request: What was asked: a tag that stands in it is text in the reply.
        server: What its replies have shown. This one adds to it.
    """

    def __init__(self, request: CompletionRequest, server: Server) -> None:
        self._request, self._server = request, server
        self._split: _Split | None = None
        self.is_done = server.is_vendors
        """Whether all that comes is passed on as it is."""
        self._thought: list[str] = []
        self._size = 0
        """Characters of the text that are no answer: thinking, its tags and blanks."""

    def told_apart(self, events: Iterable[StreamEvent]) -> Iterator[StreamEvent]:
        """The events, with the thinking in the text as thinking."""
        for event in events:
            if self.is_done:
                yield event
            elif type(event) is TextDelta:
                if self._split is None:
                    self._split = _Split(self._request, self._server)
                elif self._split.is_within(event.text):
                    self._size += len(event.text)
                    self._thought.append(event.text)
                    yield ThinkingDelta(event.text)
                    continue
                self._size += len(event.text)
                yield from self._pieces(self._split.feed(event.text))
                self.is_done = self._split.is_text
            elif type(event) is ThinkingDelta and self._split is None:
                self.is_done = True  # the server separates it
                yield event
            else:
                if isinstance(event, ToolUse):
                    yield from self._rest(is_cut=False)
                yield event

    def end(self, reason: str) -> Iterator[StreamEvent]:
        """What was held back, when the reply has ended for a reason."""
        yield from self._rest(is_cut=reason in _CUT)

    def stopped(self, stopped: Stopped) -> Stopped:
        """The end, with the thinking in a block of its own.

        Thinking that never ended took all that the reply could have, whatever its server says.

        Raises:
            BadReply: The text held an end of thinking whose beginning the template has written, or
                thinking without an end, in a reply without one.
        """
        model, server = self._request.model, self._server
        if self._split is None:
            return stopped
        if self._size:
            if self._split.begin:
                server.tags_thinking.add((model, self._split.begin))
            message = self._parted(stopped.message)
            if self._split.is_open and not (message.text.strip() or calls_in(message)):
                if MAY_BE_CUT in stopped.note:
                    raise BadReply("an end without a reason")
                return replace(stopped, message=message, reason="max_tokens", note=_NO_END)
            return replace(stopped, message=message)
        if model in server.answers_at_once:
            return stopped
        text = stopped.message.text
        if _has_end(text, self._split.spoken_of):
            server.thinks_in_text.add(model)
            raise BadReply("thinking in the text, without its beginning")
        if text.strip() and stopped.reason not in _CUT and not any(map(text.count, _ENDS)):
            server.thinks_in_text.discard(model)
            server.answers_at_once.add(model)
        return stopped

    def _pieces(self, pieces: Iterable[Piece]) -> Iterator[StreamEvent]:
        for is_thinking, piece in pieces:
            if is_thinking:
                self._thought.append(piece)
                yield ThinkingDelta(piece)
            else:
                self._size -= len(piece)
                yield TextDelta(piece)

    def _rest(self, *, is_cut: bool) -> Iterator[StreamEvent]:
        if self._split is None or self.is_done:
            return
        yield from self._pieces(self._split.end(is_cut=is_cut))
        if self._split.was_no_thinking:
            self._thought = []
        self.is_done = True

    def _parted(self, message: Message) -> Message:
        """The message with the thinking before its text."""
        blocks: list[Block] = []
        size, thought = self._size, "".join(self._thought)
        for block in message.content:
            if not isinstance(block, TextBlock):
                blocks.append(block)
                continue
            if thought:
                blocks.append(ThinkingBlock(thought))
                thought = ""
            if rest := block.text[size:]:
                blocks.append(replace(block, text=rest))
            size = max(0, size - len(block.text))
        return replace(message, content=tuple(blocks))


class _Split:
    """Splits a reply's text while it arrives."""

    def __init__(self, request: CompletionRequest, server: Server) -> None:
        self._request, self._server = request, server
        self.is_text = False
        """Whether the beginning is decided and the answer goes on: all that comes is text."""
        self.was_no_thinking = False
        """Whether what was taken for thinking turned out, at the end, to be the answer."""
        self.begin = ""
        """The tag that began the thinking."""
        self._is_words = False
        """Whether it is one of `_WORDS`, and the only one."""
        self._end = ""
        """The tag that ends the thinking; none outside of it."""
        self._left = ""
        """What is not decided: it may be a part of a tag."""
        self._blanks: list[str] = []
        """Before the first word."""
        self._follows = False
        """Whether thinking has ended: blanks before the answer are left out."""
        self._may_hold = request.model in server.thinks_in_text and not (
            self.spoken_of.issuperset(_OPENED_BY_TEMPLATES)
        )
        """Whether a reply that begins with no tag is taken for thinking."""
        self._is_held = False
        self._held: list[str] = []
        """The whole reply, while it may be thinking and may be the answer."""

    @property
    def is_open(self) -> bool:
        """Whether thinking has begun and not ended."""
        return bool(self._end)

    @cached_property
    def spoken_of(self) -> frozenset[str]:
        """The end tags that are text: the request holds them, or their beginnings."""
        return frozenset(end for begin, end in _PAIRS.items() if _stands_in(self._request, begin))

    def is_within(self, text: str) -> bool:
        """Whether a piece is of thinking and holds no beginning of its end: nearly all are."""
        end = self._end
        return bool(end) and not self._left and not self._is_words and end[0] not in text

    def feed(self, text: str) -> list[Piece]:
        """The pieces that are decided now."""
        if self._may_hold or self._is_words:
            self._held.append(text)
        if not (self._left or self._end or self._is_held or text.strip()):
            self._blanks.append(text)
            return []
        self._left += text
        if self._is_held:
            return self._hold()
        return self._think() if self._end else self._begin()

    def end(self, *, is_cut: bool) -> list[Piece]:
        """The rest, when the reply has ended.

        Args:
            is_cut: The reply ended at the limit of tokens: its end tag may be missing.
        """
        if self._is_held or (self._may_hold and not self.begin and not self._follows):
            return self._end_of_held(is_cut=is_cut)
        if self._end:
            return _piece(True, self._left)
        if self._follows and self._is_words and not is_cut:
            self.was_no_thinking = True
            return _piece(False, "".join(self._held))
        text = self._left.lstrip() if self._follows else "".join(self._blanks) + self._left
        return _piece(False, text)

    def _begin(self) -> list[Piece]:
        """At the beginning, and again after thinking: some templates open a second block."""
        begun = self._left.lstrip()
        tag = next((tag for tag in _BEGINS if begun.startswith(tag)), "")
        if tag and self._may_open(tag):
            self._held = self._held or [*self._blanks, self._left]
            self._is_words = tag in _WORDS and not self._follows
            self.begin, self._end, self._left = tag, _PAIRS[tag], begun[len(tag) :]
            self._may_hold = False
            return self._think()
        if not tag and any(tag.startswith(begun) for tag in _BEGINS):
            if not begun:
                self._blanks, self._left = [*self._blanks, self._left], ""
            return []
        if self._may_hold and not self._follows:
            self._is_held = True
            return self._hold()
        self.is_text = True
        text = begun if self._follows else "".join(self._blanks) + self._left
        self._left, self._blanks, self._held = "", [], []
        return _piece(False, text)

    def _may_open(self, tag: str) -> bool:
        """Whether a tag begins thinking, not an answer about such tags."""
        if not _stands_in(self._request, tag):
            return True
        return not self._follows and (self._request.model, tag) in self._server.tags_thinking

    def _think(self) -> list[Piece]:
        end = self._end
        if (at := self._left.find(end)) >= 0:
            thought, self._left = self._left[:at], self._left[at + len(end) :]
            self._follows, self._end, self._blanks = True, "", []
            return [*_piece(True, thought), *self._begin()]
        keep = _possible_tag(self._left, end)
        thought, self._left = self._left[: len(self._left) - keep], self._left[-keep:] * bool(keep)
        return _piece(True, thought)

    def _hold(self) -> list[Piece]:
        """Wait for the end tag of thinking that the template has opened; a typed answer's end."""
        is_there = self._request.output_schema is None and _END.search(self._left) is not None
        whole = "".join(self._held) if is_there else ""
        if not is_there or (found := _first_end(whole, self.spoken_of)) is None:
            self._left = self._left[1 - _LONGEST_END :]
            return []
        at, end = found
        after = whole[at + len(end) :]
        self._left, self._held, self._is_held, self._may_hold = after, [], False, False
        self._follows, self._blanks = True, []
        return [*_piece(True, whole[: len(whole) - len(after) - len(end)]), *self._begin()]

    def _end_of_held(self, *, is_cut: bool) -> list[Piece]:
        whole = "".join(self._held)
        found = _first_end(whole, self.spoken_of)
        # A typed answer may hold the tag as text.
        is_typed = self._request.output_schema is not None
        if found is not None and not (is_typed and _is_json(whole, found[0])):
            at, end = found
            return [*_piece(True, whole[:at]), *_piece(False, whole[at + len(end) :].lstrip())]
        self.was_no_thinking = not is_cut
        return _piece(is_cut, whole)


def _has_end(text: str, spoken_of: frozenset[str]) -> bool:
    """Whether a text holds the end of thinking that it does not begin; the first tag decides.

    Not in code, in JSON, or after an opening tag.
    """
    for found in _LONE_END.finditer(text):
        tag: str = found["line"] or found["tag"]
        if tag not in spoken_of:
            before = text[: text.index(tag, found.start())]
            is_first = tag not in before and _OPENED_BY_TEMPLATES[tag] not in before
            return is_first and not (_is_quoted(before) or _is_indented(before))
    return False


def _is_quoted(before: str) -> bool:
    """Whether what follows a text stands in code or JSON."""
    is_code = len(_FENCE.findall(before)) % 2 == 1 or before.endswith(("`", "'", '"'))
    return is_code or before.lstrip().startswith(("{", "["))


def _is_indented(before: str) -> bool:
    """Whether what follows stands alone on a line of indented code."""
    line = before.rpartition("\n")[2].expandtabs(4)
    return line.isspace() and len(line) >= 4


def _first_end(text: str, spoken_of: frozenset[str]) -> tuple[int, str] | None:
    """The first end tag that is not quoted or spoken of, and where it is."""
    for found in islice(_END.finditer(text), _MOST_QUOTED):
        if found[0] not in spoken_of and not _is_quoted(text[: found.start()]):
            return found.start(), found[0]
    return None


def _stands_in(request: CompletionRequest, tag: str) -> bool:
    """Whether a text of the request holds a tag of thinking, or its end."""
    tags = tag, _PAIRS[tag]
    texts = [request.system] + [
        block.text
        for message in request.messages
        for block in message.content
        if isinstance(block, TextBlock | ToolResultBlock)
    ]
    texts += [tool.description for tool in request.tools]
    texts += [
        str(block.input)
        for message in request.messages
        for block in message.content
        if isinstance(block, ToolUseBlock)
    ]
    return any(tag in text for text in texts for tag in tags)


def _is_json(text: str, at: int) -> bool:
    """Whether a place of a text is within an object or a list of JSON."""
    begin = min((found for sign in "{[" if (found := text.find(sign)) >= 0), default=at)
    end = max(text.rfind("}"), text.rfind("]")) + 1
    try:
        json.loads(text[begin:end])
    except (ValueError, RecursionError):
        return False
    return begin < at < end


def _piece(is_thinking: bool, text: str) -> list[Piece]:
    return [(is_thinking, text)] if text else []


def _possible_tag(text: str, tag: str) -> int:
    """How many characters at the end may be the beginning of the tag."""
    at = text.find(tag[0], max(0, len(text) - len(tag) + 1))
    while at >= 0:
        if tag.startswith(text[at:]):
            return len(text) - at
        at = text.find(tag[0], at + 1)
    return 0
