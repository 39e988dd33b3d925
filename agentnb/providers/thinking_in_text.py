"""Thinking that a server leaves in its model's text: `<think>…</think>` before the answer.

Servers without a parser for reasoning send it so. It is told apart here, after the reader of either
dialect, and at the beginning of a reply only: a tag further on is text.

Some templates open the thinking themselves, so that a reply holds the end tag alone. What came
before it was shown as text by then, so such a reply counts as broken, and the model's next replies
are held back until their end tag. That is for the first replies of a model: one that has answered
without the tag means it as text. Such a tag counts only where it stands alone, for a marked model
too: an answer may name it, as thinking may. So where a server writes `thought</think>answer` on one
line, the thinking stays in the answer: that loses nothing, and a cut would lose what came before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
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
    "<THINK>": "</THINK>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<seed:think>": "</seed:think>",
    "<longcat_think>": "</longcat_think>",
    "<|channel>thought": "<channel|>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|channel|>analysis<|message|>": "<|end|><|start|>assistant<|channel|>final<|message|>",
}
"""As the parsers of vLLM and SGLang know them; of the last, the model is gpt-oss."""
_FINAL = "<|channel|>final<|message|>"
"""Begins an answer of gpt-oss that comes without thinking: it is no part of it."""
_WORDS = ("<thinking>", "<thought>")
"""These may also be what a person asked for: a reply that is nothing else is the answer."""
_BEGINS, _ENDS = tuple(_PAIRS), tuple(_PAIRS.values())
_OPENED_BY_TEMPLATES = {end: begin for begin, end in _PAIRS.items() if end != _ENDS[-1]}
_ANY_END = "|".join(map(re.escape, _OPENED_BY_TEMPLATES))
_END = re.compile(rf"(?<![`'\"])(?:{_ANY_END})(?=\s*\S)")
"""With a text behind it, which may be the answer."""
_LONE_END = re.compile(
    rf"^[ \t]*({_ANY_END})[ \t]*\r?$|({_ANY_END})[ \t]*\r?\n[ \t]*\r?\n", re.MULTILINE
)
"""On a line of its own, or before a blank line: else it is a part of what is said."""
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})(.*)$", re.MULTILINE)
_MARKER = re.compile(r"[ \t]*(?:>|[-*+#|]|\d+[.)])[ \t>*+#|-]*")
"""What Markdown writes before an entry, a heading, a quotation or a cell."""
_JSON = re.compile(
    r'\s*(?:([{\[])|([}\]])|"(?:[^"\\]++|\\.)*+"?|[:,]|-?\d[\d.eE+-]*|true|false|null)', re.DOTALL
)
"""One sign or value of JSON; a string may end with the text."""
_BLANK = re.compile(r"[\s\ufeff\u200b\u2060]*")
"""With what cannot be seen: some servers write a byte order mark first."""
_FIRST = frozenset(tag[0] for tag in _BEGINS) | {*"\ufeff\u200b\u2060"}
"""Characters that a tag, or what precedes one, begins with."""
_MOST_QUOTED = 50
"""End tags of one reply that are looked at."""
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
        self._is_plain = False
        """Whether the text began with no tag: it was passed on without a look at the rest."""
        self.is_done = server.is_vendors
        """Whether all that comes is passed on as it is."""
        self._thought: list[str] = []
        self._size = 0
        """Characters of the text that are no answer: thinking, its tags and blanks."""

    def told_apart(self, events: Sequence[StreamEvent]) -> Iterable[StreamEvent]:
        """The events, with the thinking in the text as thinking."""
        if self._split is not None and len(events) == 1 and type(event := events[0]) is TextDelta:
            if self._split.is_within(event.text):
                self._size += len(event.text)
                self._thought.append(event.text)
                return (ThinkingDelta(event.text),)
        return self._told_apart(events) if events else ()

    def _told_apart(self, events: Sequence[StreamEvent]) -> Iterator[StreamEvent]:
        for event in events:
            if self.is_done:
                yield event
            elif type(event) is TextDelta:
                if self._split is None:
                    if self._begins_plainly(event.text):
                        self._is_plain = self.is_done = True
                        yield event
                        continue
                    self._split = _Split(self._request, self._server)
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
        if self._split is None and not self._is_plain:
            return stopped
        if self._split is not None and self._size:
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
        if any(end in text for end in _ENDS):
            if (self._split or _Split(self._request, server)).has_end(text):
                server.thinks_in_text.add(model)
                raise BadReply("thinking in the text, without its beginning")
        elif text.strip() and stopped.reason not in _CUT:
            server.thinks_in_text.discard(model)
            server.answers_at_once.add(model)
        return stopped

    def _begins_plainly(self, text: str) -> bool:
        """Whether a reply's first piece of text tells that it is no thinking: nearly all do."""
        begin = text.lstrip()[:1]
        is_tag = not begin or begin in _FIRST
        return not is_tag and self._request.model not in self._server.thinks_in_text

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
        self._is_typed = request.output_schema is not None
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
        self._lines: list[str] = []
        """Of it, the last whole line and what has come of the next."""
        self._looks = 0
        """How often all was; where a reply is full of quoted tags, the rest waits for its end."""

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
        if self._is_held:
            return self._hold(text)
        if not (self._left or self._end or text.strip()):
            self._blanks.append(text)
            return []
        self._left += text
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
        begun = _BLANK.sub("", self._left, count=1)
        tag = next((tag for tag in _BEGINS if begun.startswith(tag)), "")
        if tag and self._may_open(tag):
            self._held = self._held or [*self._blanks, self._left]
            self._is_words = tag in _WORDS and (self._is_words or not self._follows)
            self.begin, self._end, self._left = tag, _PAIRS[tag], begun[len(tag) :]
            self._may_hold = False
            return self._think()
        if not tag and any(tag.startswith(begun) for tag in (*_BEGINS, _FINAL)):
            if not begun:
                self._blanks, self._left = [*self._blanks, self._left], ""
            return []
        if begun.startswith(_FINAL) and not _stands_in(self._request, _FINAL):
            self._follows, self._blanks, self._left = True, [], begun.removeprefix(_FINAL)
            return self._begin()
        if self._may_hold and not self._follows:
            self._is_held = True
            text, self._left = self._left, ""
            return self._hold(text)
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

    def _hold(self, text: str) -> list[Piece]:
        """Wait for the end tag of thinking that the template has opened; a typed answer's end."""
        self._lines.append(text)
        if self._is_typed or "\n" not in text or self._looks == _MOST_QUOTED:
            return []
        # What follows a tag decides about it, so only whole lines are looked at.
        lines = "".join(self._lines)
        end = lines.rfind("\n") + 1
        self._lines = [lines[lines.rfind("\n", 0, end - 1) + 1 :]]
        if _LONE_END.search(lines, 0, end) is None:
            return []
        whole = "".join(self._held)
        self._held, self._looks = [whole], self._looks + 1
        found = self._first_end(whole[: whole.rfind("\n") + 1])
        if found is None:
            return []
        at, tag = found
        self._left, self._held, self._blanks = whole[at + len(tag) :], [], []
        self._is_held = self._may_hold = False
        self._follows = True
        return [*_piece(True, whole[:at]), *self._begin()]

    def _end_of_held(self, *, is_cut: bool) -> list[Piece]:
        whole = "".join(self._held)
        found = self._first_end(whole)
        if found is None and self._is_typed:
            found = _end_before_json(whole, self.spoken_of)
        if found is not None:
            at, tag = found
            return [*_piece(True, whole[:at]), *_piece(False, whole[at + len(tag) :].lstrip())]
        # A tag within a line may have ended the thinking: the answer's part is not left out.
        is_thinking = is_cut and _END.search(whole) is None
        self.was_no_thinking = not is_thinking
        return _piece(is_thinking, whole)

    def has_end(self, text: str) -> bool:
        """Whether a text holds the end of thinking that it does not begin, and no tag before it."""
        if (found := self._first_end(text)) is None:
            return False
        before, tag = text[: found[0]], found[1]
        return tag not in before and _OPENED_BY_TEMPLATES[tag] not in before

    def _first_end(self, text: str) -> tuple[int, str] | None:
        """The first end tag that counts, and where it is.

        It stands alone, the request does not speak of it, and it is not in code or JSON, nor the
        end of what the text itself has begun.
        """
        fence, last = "", 0
        json_end = _end_of_json(text)
        for found in islice(_LONE_END.finditer(text), _MOST_QUOTED):
            group = found.lastindex or 0
            tag, at = found[group], found.start(group)
            fence, last = _open_fence(text, fence, last, at), at
            is_quoted = bool(fence) or at < json_end or _is_code(text[:at])
            if is_quoted or tag in self.spoken_of or _is_begun(text[:at], tag):
                continue
            # A typed answer may hold the tag as text.
            if not (self._is_typed and _is_json(text, at)):
                return at, tag
        return None


def _end_before_json(text: str, spoken_of: frozenset[str]) -> tuple[int, str] | None:
    """The first end tag with nothing but JSON behind it: the tag is not within that."""
    for found in islice(_END.finditer(text), _MOST_QUOTED):
        rest = text[found.end() :].lstrip()
        if found[0] not in spoken_of and rest.startswith(("{", "[")) and _is_json(rest, 1):
            return found.start(), found[0]
    return None


def _open_fence(text: str, fence: str, begin: int, end: int) -> str:
    """The sign of the code block that is open at the end of a part; empty for none."""
    for found in _FENCE.finditer(text, begin, end):
        sign, behind = found.groups()
        if not fence:
            fence = sign
        elif sign.startswith(fence) and not behind.strip():
            fence = ""
    return fence


def _end_of_json(text: str) -> int:
    """Where the JSON that a text begins with is closed, or is JSON no longer."""
    depth = at = 0
    while token := _JSON.match(text, at):
        depth += bool(token[1]) - bool(token[2])
        if depth < 1:
            break
        at = token.end()
    return at


def _is_code(before: str) -> bool:
    """Whether what follows a text is in quotes, or alone in an entry or a line of indented code."""
    line = before.rpartition("\n")[2].expandtabs(4)
    is_alone = line.isspace() and len(line) >= 4
    is_quoted = before.endswith(("`", "'", '"')) and line.count(line[-1]) % 2 == 1
    return is_quoted or is_alone or _MARKER.fullmatch(line) is not None


def _is_begun(before: str, tag: str) -> bool:
    """Whether a line of a text begins what the tag ends; within a line it is only spoken of."""
    at = before.rfind(_OPENED_BY_TEMPLATES[tag])
    return at > before.rfind(tag) and not before[before.rfind("\n", 0, at) + 1 : at].strip()


def _stands_in(request: CompletionRequest, tag: str) -> bool:
    """Whether a text of the request holds a tag of thinking, or its end."""
    tags = tag, _PAIRS.get(tag, tag)
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
        json.loads(text[begin:end], strict=False)  # as the reader of typed answers does
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
