"""The Messages API as plain values: what it accepts, and the events of its answers.

It is as strict as the real API where that is cheap, so that it refuses what the real one would.
Usage is counted from the bytes that came and went, four to a token, so that a test can count them
again.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from tests.loopback.said import (
    BYTES_PER_TOKEN,
    Dialect,
    Event,
    Refusal,
    Reply,
    Step,
    ToolCall,
    as_json,
    is_base64,
    need,
    output_tokens,
)

_MAX_BREAKPOINTS = 4
_PLAIN = "^[a-zA-Z0-9_-]+$"
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}

# -- counting ---------------------------------------------------------------------------


def input_tokens(body: Mapping[str, Any]) -> int:
    """The tokens that a request is charged for: only system prompt, messages and tools."""
    counted = [body.get(name) for name in ("system", "messages", "tools")]
    return len(as_json(counted).encode()) // BYTES_PER_TOKEN


def signature_of(thinking: str) -> str:
    """The signature that a thinking block needs in a later request."""
    return hashlib.sha256(thinking.encode()).hexdigest()


# -- what is accepted -------------------------------------------------------------------


def check_headers(headers: Mapping[str, str], keys: frozenset[str] | None) -> None:
    """Accept any key, or only those in `keys`."""
    bearer = re.fullmatch(r"(?i:bearer) +(\S+)", headers.get("authorization", ""))
    key = headers.get("x-api-key") or (bearer and bearer[1])
    if not key:
        raise Refusal(401, "x-api-key header is required")
    if keys is not None and key not in keys:
        raise Refusal(401, "invalid x-api-key")
    need("anthropic-version" in headers, "anthropic-version: header is required")


def check_body(body: Mapping[str, Any]) -> None:
    """Raise `Refusal` where the API refuses a request."""
    need(isinstance(body.get("model"), str) and body["model"], "model: Field required")
    limit = body.get("max_tokens")
    need(type(limit) is int and limit >= 1, "max_tokens: must be an integer of at least 1")
    need(body.get("stream") is True, "stream: this server only streams")
    system = body.get("system", "")
    need(isinstance(system, str | list), "system: Input should be a string or a list")
    if isinstance(system, list):
        _check_texts(system, "system")
    _check_tools(body.get("tools", []))
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refusal(400, "messages: at least one message is required")
    _check_messages(messages)
    breakpoints = as_json(body).count('"cache_control":{')
    need(
        breakpoints <= _MAX_BREAKPOINTS,
        f"A maximum of 4 blocks with cache_control may be provided. Found {breakpoints}.",
    )


def _check_texts(blocks: Sequence[Any], where: str) -> None:
    for block in blocks:
        need(isinstance(block, dict) and "type" in block, f"{where}: Input should be a block")
        if block["type"] == "text":
            text = block.get("text")
            need(isinstance(text, str) and text, f"{where}: text content blocks must be non-empty")
            need(text.strip(), f"{where}: text content blocks must contain non-whitespace text")
        if block["type"] in ("image", "document"):
            _check_source(block["type"], block.get("source"), where)


def _check_source(kind: str, source: Any, where: str) -> None:
    need(isinstance(source, dict), f"{where}.{kind}.source: Field required")
    need(source.get("type") == "base64", f"{where}.{kind}.source: this server takes base64")
    known = "image/(png|jpeg|gif|webp)" if kind == "image" else "application/pdf"
    is_known = re.fullmatch(known, str(source.get("media_type")))
    need(is_known, f"{where}.{kind}.source.media_type: Input should be {known}")
    need(is_base64(source.get("data")), f"{where}.{kind}.source.data: not base64")


def _check_tools(tools: Any) -> None:
    need(isinstance(tools, list), "tools: Input should be a list")
    names = []
    for index, tool in enumerate(tools):
        where = f"tools.{index}"
        need(isinstance(tool, dict), f"{where}: Input should be an object")
        name = tool.get("name")
        need(isinstance(name, str) and _TOOL_NAME.fullmatch(name), f"{where}.name: not a name")
        if "type" not in tool:  # the API's own tools have no schema
            need(isinstance(tool.get("input_schema"), dict), f"{where}.input_schema: required")
        names.append(name)
    need(len(set(names)) == len(names), "tools: Tool names must be unique.")


def _check_messages(messages: Sequence[Any]) -> None:
    asked: set[str] = set()
    for index, message in enumerate(messages):
        where = f"messages.{index}"
        need(isinstance(message, dict), f"{where}: Input should be an object")
        role = message.get("role")
        need(role in ("user", "assistant"), f"{where}: role must be `user` or `assistant`")
        need(index or role == "user", f"{where}: the first message must have the role `user`")
        blocks = _blocks(message, where)
        _check_texts(blocks, where)
        _check_answers(blocks, asked, where)
        if role == "assistant":
            _check_thinking(blocks, where)
            asked = {block["id"] for block in blocks if block["type"] == "tool_use"}
            for name in asked:
                is_plain = re.search(_PLAIN, name)
                need(is_plain, f"{where}.tool_use.id: String should match pattern '{_PLAIN}'")
        else:
            asked = set()
    need(not asked, _unanswered("messages", asked))


def _blocks(message: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    content = message.get("content")
    need(isinstance(content, str | list), f"{where}.content: Field required")
    need(content, f"{where}: all messages must have non-empty content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def _check_answers(blocks: Sequence[Mapping[str, Any]], asked: set[str], where: str) -> None:
    answered = [block.get("tool_use_id") for block in blocks if block["type"] == "tool_result"]
    before = [block["type"] for block in blocks[: len(answered)]]
    need(set(before) <= {"tool_result"}, _unanswered(where, asked))  # tool results come first
    missing = asked.difference(name for name in answered if name is not None)
    need(not missing, _unanswered(where, missing))
    for name in answered:
        need(name in asked, f"{where}: unexpected `tool_use_id` found in `tool_result`: {name}")
    need(len(set(answered)) == len(answered), f"{where}: more than one `tool_result` for an id")


def _unanswered(where: str, ids: set[str]) -> str:
    return (
        f"{where}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(sorted(ids))}. Each `tool_use` block must have a corresponding "
        "`tool_result` block in the next message."
    )


def _check_thinking(blocks: Sequence[Mapping[str, Any]], where: str) -> None:
    for block in blocks:
        if block["type"] not in ("thinking", "redacted_thinking"):
            continue
        need("cache_control" not in block, f"{where}: cache_control cannot be set on thinking")
        signature = None if block["type"] == "redacted_thinking" else block.get("signature")
        if block["type"] == "thinking":
            expected = signature_of(str(block.get("thinking")))
            need(signature == expected, f"{where}: Invalid `signature` in `thinking` block")
    last = blocks[-1]["type"]
    need(last not in ("thinking", "redacted_thinking"), f"{where}: the final block is thinking")


# -- what is answered -------------------------------------------------------------------


def error_body(status: int, error_type: str | None, message: str) -> dict[str, Any]:
    kind = error_type or _ERROR_TYPES.get(status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def steps(reply: Reply, body: Mapping[str, Any], *, number: int) -> Iterator[Step]:
    """The stream that answers `body`, the server's request of this `number`."""
    if reply.events is not None:
        yield from reply.events
        return
    usage = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
    message = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": input_tokens(body), **usage, **reply.usage},
    }
    yield "message_start", {"type": "message_start", "message": message}
    if reply.begun is not None:
        reply.begun()
    yield "ping", {"type": "ping"}
    pen = _Pen(body["max_tokens"], reply.chunk)
    yield from _content(reply, pen, number=number)
    stopped = {"stop_reason": reply.stop_reason or _reason(reply, pen), "stop_sequence": None}
    total = {"output_tokens": pen.tokens_written}
    yield "message_delta", {"type": "message_delta", "delta": stopped, "usage": total}
    yield "message_stop", {"type": "message_stop"}


def _reason(reply: Reply, pen: _Pen) -> str:
    if pen.is_cut:
        return "max_tokens"
    return "tool_use" if reply.tool_uses else "end_turn"


def _content(reply: Reply, pen: _Pen, *, number: int) -> Iterator[Step]:
    held = reply.hold
    start: dict[str, Any]
    if reply.thinking is not None and not pen.is_cut:
        start = {"type": "thinking", "thinking": "", "signature": ""}
        said = yield from pen.block(start, "thinking", reply.thinking)
        yield pen.delta({"type": "signature_delta", "signature": signature_of(said)})
        yield pen.stop()
    if reply.text and not pen.is_cut:
        yield from pen.block({"type": "text", "text": ""}, "text", reply.text, hold=held)
        yield pen.stop()
        held = None
    if held is not None:
        yield held
    for index, call in enumerate(reply.tool_uses):
        if pen.is_cut:
            return
        tool = call if isinstance(call, ToolCall) else ToolCall(*call)
        name = tool.id or f"toolu_{number}_{index}"
        start = {"type": "tool_use", "id": name, "name": tool.name, "input": {}}
        yield from pen.block(start, "partial_json", as_json(tool.input) if tool.input else "")
        yield pen.stop()


class _Pen:
    """Writes content blocks, at most `max_tokens` in all."""

    _DELTAS: Mapping[str, str] = {
        "text": "text_delta",
        "thinking": "thinking_delta",
        "partial_json": "input_json_delta",
    }

    def __init__(self, max_tokens: int, chunk: int) -> None:
        self._left = max_tokens * BYTES_PER_TOKEN
        self._chunk = chunk
        self._written = ""
        self._index = -1
        self.is_cut = False

    @property
    def tokens_written(self) -> int:
        return output_tokens(self._written)

    def block(
        self, start: Mapping[str, Any], kind: str, text: str, *, hold: threading.Event | None = None
    ) -> Generator[Step, None, str]:
        """One block without its stop event; returns the part of `text` that was written."""
        self._index += 1
        event = {"type": "content_block_start", "index": self._index, "content_block": start}
        yield "content_block_start", event
        written = self._take(text)
        for at in range(0, len(written), self._chunk):
            yield self.delta({"type": self._DELTAS[kind], kind: written[at : at + self._chunk]})
            if hold is not None and at == 0:
                yield hold
        return written

    def delta(self, delta: Mapping[str, Any]) -> Event:
        event = {"type": "content_block_delta", "index": self._index, "delta": delta}
        return "content_block_delta", event

    def stop(self) -> Event:
        return "content_block_stop", {"type": "content_block_stop", "index": self._index}

    def _take(self, text: str) -> str:
        content = text.encode()
        self.is_cut = len(content) > self._left
        written = content[: self._left].decode(errors="ignore")
        self._left -= len(written.encode())
        self._written += written
        return written


DIALECT = Dialect("/v1/messages", check_headers, check_body, steps, error_body)
