"""A model that answers from a script: for tests, lessons and classrooms without a key.

It is a real provider: it streams, counts tokens by size, obeys `max_tokens`, and can be cut,
slowed or made to fail. It records its requests. When its script runs out, its error names the
request without a reply.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from agentnb.core.budget import (
    BYTES_PER_TOKEN,
    estimate_input_tokens,
    estimate_tokens,
    size_in_bytes,
)
from agentnb.core.errors import LlmError
from agentnb.core.media import MEDIA_TYPES
from agentnb.core.shown import counted
from agentnb.core.text import literal, one_line
from agentnb.core.types import (
    Block,
    CompletionRequest,
    Message,
    Role,
    Stopped,
    StreamEvent,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUse,
    ToolUseBlock,
    Usage,
)

_RESULTS = re.compile(r"<result .*?</result>", re.DOTALL)
_CHUNK = re.compile(r"\s*\S+(?:\s+\S+){0,2}\s*|\s+")
"""About three words: enough pieces to see it stream, few enough to read the events."""


class ScriptExhausted(LlmError):
    """The script has no reply for a request."""

    permanent = True


@dataclass(frozen=True, slots=True)
class Reply:
    """One scripted answer.

    Args:
        text: The streamed text.
        tool_uses: Tool calls after the text.
        usage: The reported usage; by default estimated from the size.
        error: Raised after the text, in place of the reply's end.
        thinking: Streamed before the text.
        stop_reason: By default `end_turn`, or `tool_use` with tool calls.
        pause: Awaited after the first piece of text (before anything, when there is no text):
            a test holds the stream with it.
    """

    text: str = ""
    tool_uses: tuple[ToolUse, ...] = ()
    usage: Usage | None = None
    error: LlmError | None = None
    thinking: str = ""
    stop_reason: str | None = None
    pause: Callable[[], Awaitable[object]] | None = None


AnyReply: TypeAlias = str | Reply | LlmError
Rule: TypeAlias = AnyReply | Sequence[AnyReply]
Script: TypeAlias = (
    Sequence[AnyReply]
    | Mapping[str, Rule]
    | Callable[[CompletionRequest], AnyReply | Awaitable[AnyReply]]
)


class ScriptedProvider:
    """Answers from a script, offline, and always the same.

    Args:
        replies: One of three. A sequence: the n-th request gets the n-th reply, in the order in
            which requests arrive. A mapping: the key that occurs in the request's last user
            message gives the reply (of several such keys the first in the message, with other
            agents' results searched last; the empty key matches if no other does; the replies of a
            list serve once each, a single reply serves every time). A callable: takes the
            `CompletionRequest`, returns the reply, may be async.
        pace_s: Seconds between two pieces of text.

    A reply is a `str`, a `Reply`, or an `LlmError`, which is raised in place of an answer.
    """

    def __init__(self, replies: Script, *, name: str = "scripted", pace_s: float = 0.0) -> None:
        if isinstance(replies, str):
            raise ValueError(
                "`replies` must be a sequence, a mapping or a callable: "
                "for one reply write [reply]."
            )
        self.name = name
        self.requests: list[CompletionRequest] = []
        """All requests, in order of arrival."""
        self._pace_s = pace_s
        self._script = replies
        self._used: dict[str | None, int] = {}

    def __repr__(self) -> str:
        return f"ScriptedProvider({len(self.requests)} requests so far)"

    def supports_media(self, model: str, media_type: str) -> bool:
        """True: a script accepts any media."""
        return media_type in MEDIA_TYPES

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        """Answer one request from the script."""
        self.requests.append(request)
        reply = self._reply_for(request)
        if inspect.isawaitable(reply):
            reply = await reply
        if isinstance(reply, LlmError):
            raise copy.copy(reply)  # a copy: one error in a script may be raised many times
        if isinstance(reply, str):
            reply = Reply(reply)
        if not isinstance(reply, Reply):
            raise TypeError(f"a reply must be a str, a Reply or an LlmError, not {literal(reply)}")
        text = _within(reply.text, request.max_tokens)
        input_tokens = estimate_input_tokens(request)
        yield reply.usage or Usage(input_tokens, 0)
        if reply.thinking:
            yield ThinkingDelta(reply.thinking)
        if reply.pause is not None and not text:
            await reply.pause()
        pause = reply.pause
        for number, piece in enumerate(_pieces(text)):
            if number and self._pace_s:
                await asyncio.sleep(self._pace_s)
            yield TextDelta(piece)
            if pause is not None:
                await pause()
                pause = None
        if reply.error is not None:
            raise copy.copy(reply.error)
        for event in _end_of(reply, text, input_tokens):
            yield event

    def _reply_for(self, request: CompletionRequest) -> AnyReply | Awaitable[AnyReply]:
        script = self._script
        if isinstance(script, Mapping):
            key = _key_for(request.last_user_text, list(script))
            if key is None:
                raise self._one_too_many(request, f"none of the keys {list(script)} matches")
            rule = script[key]
            if isinstance(rule, str | Reply | LlmError):
                return rule
            return self._next(rule, key, request)
        if isinstance(script, Sequence):
            return self._next(script, None, request)
        return script(request)

    def _next(
        self, replies: Sequence[AnyReply], key: str | None, request: CompletionRequest
    ) -> AnyReply:
        used = self._used.get(key, 0)
        if used >= len(replies):
            where = "the script has" if key is None else f"its key {literal(key)} has"
            used_up = ", all used" if replies else ""
            why = f"{where} {counted(len(replies), 'reply')}{used_up}"
            raise self._one_too_many(request, why, is_used_up=bool(replies))
        self._used[key] = used + 1
        return replies[used]

    def _one_too_many(
        self, request: CompletionRequest, why: str, *, is_used_up: bool = False
    ) -> ScriptExhausted:
        again = "; to run a cell again, first make a new script" if is_used_up else ""
        return ScriptExhausted(
            f"Request {len(self.requests)} has no scripted reply: {why}. Add one for its last user "
            f"message, {one_line(request.last_user_text, limit=120)!r}{again}."
        )


def _key_for(message: str, keys: Sequence[str]) -> str | None:
    """The key that occurs first in the message; of two at one place, the longer one.

    Results of other agents are searched last: they often hold words of those agents' tasks.
    The empty key matches if no other does.
    """
    own_words = _RESULTS.sub("", message.rpartition("</previous_result>")[2])
    for part in (own_words, message):
        found = [(part.index(key), -len(key), key) for key in keys if key and key in part]
        if found:
            return min(found)[2]
    return "" if "" in keys else None


@lru_cache(maxsize=64)  # a script says the same again and again
def _pieces(text: str) -> tuple[str, ...]:
    return tuple(_CHUNK.findall(text))


def _within(text: str, max_tokens: int) -> str:
    """`text` cut to what `max_tokens` allow, at a character's boundary."""
    if size_in_bytes(text) <= max_tokens * BYTES_PER_TOKEN:
        return text
    encoded = text.encode("utf-8", "replace")
    return encoded[: max_tokens * BYTES_PER_TOKEN].decode("utf-8", "ignore")


def _end_of(reply: Reply, text: str, input_tokens: int) -> list[StreamEvent]:
    """Tool calls, the final count and the end mark."""
    was_cut = len(text) < len(reply.text)
    tool_uses = () if was_cut else reply.tool_uses
    output = estimate_tokens(reply.thinking + text) + sum(
        estimate_tokens(use.name + str(dict(use.input))) for use in tool_uses
    )
    reason = reply.stop_reason or ("tool_use" if tool_uses else "end_turn")
    content: list[Block] = [ThinkingBlock(reply.thinking)] if reply.thinking else []
    content += [TextBlock(text)] if text else []
    content += [ToolUseBlock(use.id, use.name, use.input) for use in tool_uses]
    return [
        *tool_uses,
        reply.usage or Usage(input_tokens, output),
        Stopped("max_tokens" if was_cut else reason, Message(Role.ASSISTANT, tuple(content))),
    ]
