"""The two doors between chat completions, as many servers speak them, and the core.

`body_of` writes a request, `ReplyReader` reads the chunks of a reply. OpenAI's own form is what is
sent. What comes is taken from servers that leave out half of it: a reply counts as complete when
its finish reason or `[DONE]` was seen, and a tool call that was cut is never reported. One that is
whole and yet no JSON object is: its model is told so, and may call again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentnb.core.budget import estimate_input_tokens, tokens_in
from agentnb.core.text import short_reason
from agentnb.core.types import (
    CompletionRequest,
    Message,
    Role,
    Stopped,
    StreamEvent,
    TextBlock,
    TextDelta,
    ThinkingDelta,
    ToolResultBlock,
    ToolUse,
    ToolUseBlock,
    Usage,
)
from agentnb.providers.json_values import (
    WRONG_SHAPE,
    GrowingText,
    json_object,
    known_counts,
    without_surrogates,
)
from agentnb.providers.limits import BadReply
from agentnb.providers.openai_calls import ToolCalls
from agentnb.providers.reply import BrokeOff

_NOTHING_SAID = "(no output)"
"""Stands for a message without words: many servers take no empty one."""


# -- the door out: a request as the server wants it ---------------------------------------------

_UNKNOWN_FIELD = re.compile(
    r"(?i)un(supported|recogni[sz]ed|known|expected)|extra|not (supported|permitted|allowed)"
)
_NO_SYSTEM = re.compile(r"(?i)system (role|message|prompt)s? (is |are )?not supported")


@dataclass(frozen=True, slots=True)
class Way:
    """How one server wants to be asked, as far as servers differ."""

    limit: str = "max_tokens"
    """The name of the limit: OpenAI has a new one, and most others know the old one only."""
    asks_usage: bool = True
    """Whether `stream_options` may be sent, without which OpenAI counts nothing in a stream."""
    has_system: bool = True
    """Whether there is a system prompt: the templates of some models have no place for one."""

    def after(self, complaint: str) -> Way:
        """The way to ask a server that refused a request with these words; the same, mostly."""
        if self.asks_usage and ("stream_options" in complaint or "include_usage" in complaint):
            return replace(self, asks_usage=False)
        if self.has_system and _NO_SYSTEM.search(complaint):
            return replace(self, has_system=False)
        other = "max_tokens" if self.limit != "max_tokens" else "max_completion_tokens"
        # One that is only too large is not to be sent again under another name.
        if "max_completion_tokens" in complaint and _UNKNOWN_FIELD.search(complaint):
            return replace(self, limit=other)
        return self


def body_of(request: CompletionRequest, way: Way) -> dict[str, Any]:
    """Write a request as the server wants it."""
    messages: list[dict[str, Any]] = []
    for message in request.messages:
        is_said = message.role == Role.ASSISTANT
        messages += [_assistant_param(message)] if is_said else _user_params(message)
    if request.system.strip():
        if way.has_system or not messages or messages[0]["role"] != "user":
            messages.insert(0, {"role": "system", "content": request.system})
        else:
            messages[0]["content"] = f"{request.system}\n\n{messages[0]['content']}"
    body: dict[str, Any] = {
        "model": request.model,
        way.limit: request.max_tokens,
        "messages": messages,
        "stream": True,
    }
    if way.asks_usage:
        body["stream_options"] = {"include_usage": True}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.input_schema,
                },
            }
            for tool in request.tools
        ]
    cleaned: dict[str, Any] = without_surrogates(body)
    return cleaned


def _assistant_param(message: Message) -> dict[str, Any]:
    """What a model said. Its thinking is not sent back: no field for it is common to servers."""
    calls = [
        {
            "id": block.id,
            "type": "function",
            "function": {
                "name": block.name,
                "arguments": json.dumps(without_surrogates(block.input), ensure_ascii=False),
            },
        }
        for block in message.content
        if isinstance(block, ToolUseBlock)
    ]
    text = message.text if message.text.strip() else None
    if not calls:
        return {"role": "assistant", "content": text or _NOTHING_SAID}
    return {"role": "assistant", "content": text, "tool_calls": calls}


def _user_params(message: Message) -> list[dict[str, Any]]:
    """Each result is a message of its own, and all come before the text: calls are answered first.

    That a tool failed can only be said in words.
    """
    params = [
        {"role": "tool", "tool_call_id": block.tool_use_id, "content": _result_text(block)}
        for block in message.content
        if isinstance(block, ToolResultBlock)
    ]
    if message.text.strip() or not params:
        params.append({"role": "user", "content": message.text or _NOTHING_SAID})
    return params


def _result_text(result: ToolResultBlock) -> str:
    text = result.text if result.text.strip() else _NOTHING_SAID
    return f"Error: {text}" if result.is_error and not text.startswith("Error") else text


# -- the door in: a reply, chunk by chunk ---------------------------------------------------------

_DONE: Mapping[str, Any] = {}
"""Stands for the mark `[DONE]`, which is no JSON."""


def event_in(data: str) -> Mapping[str, Any]:
    """The chunk that stands in the data of an event.

    Raises:
        BadReply: There is none.
        BrokeOff: It says that nothing more will come.
    """
    if data.startswith("[DONE]"):
        return _DONE
    chunk = json_object(data)
    if chunk is None:
        raise BadReply("an event that is no object")
    if error := chunk.get("error"):
        raise BrokeOff(error)
    if chunk.get("object") == "error":  # how older versions of vLLM say it
        raise BrokeOff(chunk)
    return chunk


_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_CUT = ("max_tokens", "refusal")
"""Stop reasons after which the last tool call may be a fragment."""


class ReplyReader:
    """Reads the chunks of a reply into our events.

    Args:
        request: What was asked: its size stands in for an input that nobody counted, and no tool
            call gets an id that is in it.
    """

    def __init__(self, request: CompletionRequest) -> None:
        self.is_complete = self.is_whole = False
        self._request = request
        self._has_begun = self._has_refused = False
        self._reason: str | None = None
        self._text, self._thinking = GrowingText(), GrowingText()
        self._calls = ToolCalls(request)
        self._called: tuple[ToolUseBlock, ...] = ()
        self._usage: dict[str, int] = {}
        self._told: Usage | None = None

    def read(self, data: Mapping[str, Any]) -> Iterable[StreamEvent]:
        """What one chunk means; what it holds besides means nothing.

        Raises:
            BadReply: It has the wrong shape, or cannot come where it came.
        """
        try:
            return self._read(data)
        except BadReply:
            raise
        except WRONG_SHAPE:
            raise BadReply("an event of the wrong shape") from None

    def _read(self, data: Mapping[str, Any]) -> Iterable[StreamEvent]:
        if data is _DONE:
            if not self._has_begun:
                raise BadReply("the end of a reply that had not begun")
            self.is_complete = self.is_whole = True
            return ()
        events: list[StreamEvent] = []
        if (usage := data.get("usage")) is not None:
            events += self._count(usage)
        # The chunk that only counts has no choice in it, and some say so by null.
        for choice in data.get("choices") or ():
            if not choice.get("index"):  # others were not asked for
                self._has_begun = True
                events += self._grow(choice.get("delta") or {})
                if reason := choice.get("finish_reason"):
                    self.is_whole = True
                    if not self._has_refused:  # a refusal ends with `stop`, as an answer does
                        self._reason = short_reason(reason)
        return events

    def _grow(self, delta: Mapping[str, Any]) -> Iterator[StreamEvent]:
        # Under the one name or the other, or under both for clients of either kind.
        if thinking := delta.get("reasoning_content") or delta.get("reasoning"):
            yield ThinkingDelta(self._thinking.keep(thinking))
        if text := delta.get("content"):
            yield TextDelta(self._text.keep(text))
        if refusal := delta.get("refusal"):
            self._reason, self._has_refused = "content_filter", True
            yield TextDelta(self._text.keep(refusal))
        if calls := delta.get("tool_calls"):
            for piece in calls:
                yield from self._calls.grow(piece)
        elif function := delta.get("function_call"):  # the old form: one call, without index and id
            yield from self._calls.grow({"function": function})

    def finish(self) -> Iterator[StreamEvent]:
        """What is left to tell when nothing more comes: tool calls have no end of their own."""
        if not self.is_whole:
            return
        if left := self._thinking.end():
            yield ThinkingDelta(left)
        if left := self._text.end():
            yield TextDelta(left)
        self._called = self._calls.whole(is_cut=self._our_reason in _CUT)
        for call in self._called:
            yield ToolUse(call.id, call.name, call.input)
        if self._usage and (last := self._total(is_final=True)) != self._told:
            yield last

    def stopped(self) -> Stopped | None:
        """The end of the turn; `None` when neither a finish reason nor `[DONE]` came."""
        if not self.is_whole:
            return None
        text = str(self._text)
        blocks = (*((TextBlock(text),) if text else ()), *self._called)
        return Stopped(self._our_reason, Message(Role.ASSISTANT, blocks))

    @property
    def _our_reason(self) -> str:
        """Some servers say `stop`, or nothing, beside tool calls."""
        reason = _REASONS.get(self._reason or "stop", self._reason or "")
        return reason if reason in _CUT or not self._calls else "tool_use"

    # -- usage --------------------------------------------------------------------------------

    def _count(self, raw: object) -> Iterator[Usage]:
        """Servers that count in each chunk are heard at the first and at the end of the reply."""
        if counts := known_counts(raw, _USAGE_FIELDS):
            self._usage |= counts
            details = raw.get("prompt_tokens_details") if isinstance(raw, Mapping) else None
            self._usage |= known_counts(details, {"cached_tokens": "cached"})
        if self._usage and self._told is None:
            self._told = self._total(is_final=False)
            yield self._told

    def _total(self, *, is_final: bool) -> Usage:
        """The count so far. Where 0 cannot be true, nothing was counted, and the size stands in."""
        prompt = self._usage.get("prompt", 0) or estimate_input_tokens(self._request)
        cached = self._usage.get("cached", 0)
        if cached > prompt:
            cached = 0
        output = self._usage.get("completion", 0)
        if is_final and not output:
            output = tokens_in(self._text.size + self._thinking.size + self._calls.size)
        return Usage(prompt - cached, output, cache_read_tokens=cached)


_USAGE_FIELDS = {"prompt_tokens": "prompt", "completion_tokens": "completion"}
"""The output holds what was reasoned, the input what was read from a cache."""
