"""Chat completions as plain values: what OpenAI's API accepts, and the chunks of its answers.

A script can imitate smaller servers, which differ, by `Reply.events`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ERROR_TYPES = {429: "tokens", 529: "overloaded_error"}
_ERROR_CODES = {
    401: "invalid_api_key",
    403: "unsupported_country_region_territory",
    404: "model_not_found",
    413: "request_too_large",
    429: "rate_limit_exceeded",
}
_FINISH = {
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
}
DONE: Event = ("", "[DONE]")


def prompt_tokens(body: Mapping[str, Any]) -> int:
    """The tokens that a request is charged for: only messages and tools."""
    counted = [body.get(name) for name in ("messages", "tools")]
    return len(as_json(counted).encode()) // BYTES_PER_TOKEN


# -- what is accepted -------------------------------------------------------------------

THINKS = "magistral"
"""Begins the names of models whose API takes back thinking in the content, as Mistral's does."""


def check_headers(headers: Mapping[str, str], keys: frozenset[str] | None) -> None:
    """Accept any key, or only those in `keys`."""
    bearer = re.fullmatch(r"(?i:bearer) +(\S+)", headers.get("authorization", ""))
    if keys is not None and (bearer is None or bearer[1] not in keys):
        raise Refusal(401, "Incorrect API key provided")


def check_body(body: Mapping[str, Any]) -> None:
    """Raise `Refusal` where the API refuses a request."""
    need(isinstance(body.get("model"), str) and body["model"], "you must provide a model parameter")
    limits = [body[n] for n in ("max_tokens", "max_completion_tokens") if n in body]
    need(len(limits) < 2, "Setting 'max_tokens' and 'max_completion_tokens' is not supported")
    need(all(type(n) is int and n >= 1 for n in limits), "Invalid 'max_tokens': expected >= 1")
    need(body.get("stream") is True, "this server only streams")
    need("system" not in body, "Unknown parameter: 'system'")
    _check_tools(body.get("tools", [None]))
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refusal(400, "Invalid 'messages': empty array")
    _check_messages(messages, thinks=str(body["model"]).startswith(THINKS))


def _check_tools(tools: Sequence[Any]) -> None:
    need(tools, "[] is too short - 'tools'")
    for tool in tools:
        if tool is not None:
            need(tool.get("type") == "function", "Invalid value for 'tools.type'")
            function = tool["function"]
            need(_TOOL_NAME.fullmatch(function.get("name", "")), "Invalid 'tools.function.name'")
            need(isinstance(function.get("parameters"), dict), "Invalid 'function.parameters'")


def _check_messages(messages: Sequence[Mapping[str, Any]], *, thinks: bool) -> None:
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        role, content, where = message.get("role"), message.get("content"), f"messages[{index}]"
        known = ("system", "user", "assistant", "tool")
        need(role in known, f"Invalid value: '{where}.role'")
        need(role != "system" or index == 0, f"{where}: system message must be first")
        calls = message.get("tool_calls", [])
        if role == "user" and isinstance(content, list):
            _check_parts(content, f"{where}.content")
        elif role == "assistant" and isinstance(content, list) and thinks:
            _check_thoughts(content, f"{where}.content")
        else:
            wrong = f"Invalid type for '{where}.content': expected a string, but got"
            need(content is None or isinstance(content, str), f"{wrong} an array instead.")
        need(content or calls, f"Invalid type for '{where}.content': expected a string, got null")
        if role == "tool":
            answered = message.get("tool_call_id")
            need(answered in open_calls, f"{where}: no 'tool_calls' precede this 'tool' message")
            open_calls.remove(str(answered))
            continue
        need(not open_calls, f"{where}: 'tool_call_id's did not have response messages")
        open_calls = [call["id"] for call in calls]
        need(len(set(open_calls)) == len(open_calls), f"{where}: duplicate 'tool_call_id'")
        for call in calls:
            need(call["type"] == "function", f"{where}: Invalid tool call")
            need(
                isinstance(call["function"]["arguments"], str), f"{where}: arguments are no string"
            )
    need(not open_calls, "'tool_call_id's did not have response messages")


def _check_thoughts(parts: Sequence[Mapping[str, Any]], where: str) -> None:
    for part in parts:
        match part:
            case {"type": "text", "text": str()}:
                continue
            case {"type": "thinking", "thinking": [{"type": "text", "text": str()}, *_]}:
                continue
        raise Refusal(400, f"Unknown content type in '{where}': {part.get('type')}")


def _check_parts(parts: Sequence[Mapping[str, Any]], where: str) -> None:
    need(parts, f"Invalid '{where}': empty array")
    for part in parts:
        match part:
            case {"type": "text", "text": str(text)}:
                need(text, f"Invalid '{where}': empty text")
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                image = re.match(r"data:image/(png|jpeg|gif|webp);base64,", url)
                need(image, f"Invalid '{where}': unsupported image")
                need(is_base64(url.partition(",")[2]), f"Invalid '{where}': invalid base64")
            case {"type": "file", "file": {"filename": str(), "file_data": str(data)}}:
                is_pdf = data.startswith("data:application/pdf;base64,")
                need(is_pdf, f"Invalid '{where}': unsupported file type")
                need(is_base64(data.partition(",")[2]), f"Invalid '{where}': invalid base64")
            case _:
                raise Refusal(400, f"Invalid type for '{where}': unknown part")


# -- what is answered -------------------------------------------------------------------


def error_body(status: int, error_type: str | None, message: str) -> dict[str, Any]:
    kind = _ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    error = {"message": message, "type": error_type or kind, "param": None, "code": None}
    if error_type is None:
        error["code"] = _ERROR_CODES.get(status)
    return {"error": error}


def chunk(delta: Mapping[str, Any] | None, **fields: Any) -> Event:
    """One chunk with one choice; without a `delta`, with none."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
    reason = fields.pop("finish_reason", None)
    choices = [] if delta is None else [{**choice, "finish_reason": reason}]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return "", {**head, "choices": choices, **fields}


def steps(reply: Reply, body: Mapping[str, Any], *, number: int) -> Iterator[Step]:
    """The stream that answers `body`, the server's request of this `number`."""
    if reply.events is not None:
        yield from reply.events
        return
    limit = body.get("max_completion_tokens", body.get("max_tokens", 10**6)) * BYTES_PER_TOKEN
    yield chunk({"role": "assistant", "content": "", "refusal": None})
    written, is_cut = "", False

    def cut(text: str) -> str:
        nonlocal written, is_cut
        room = limit - len(written.encode())
        is_cut = is_cut or len(text.encode()) > room
        text = text.encode()[:room].decode(errors="ignore")
        written += text
        return text

    for piece in _pieces(cut(reply.thinking or ""), reply.chunk):
        yield chunk({"reasoning_content": piece})
    held = reply.hold
    for piece in _pieces(cut(reply.text), reply.chunk):
        yield chunk({"content": piece})
        if held is not None:
            yield held
            held = None
    if held is not None:
        yield held
    for index, use in enumerate(reply.tool_uses):
        if is_cut:
            break
        call = use if isinstance(use, ToolCall) else ToolCall(*use)
        name = {"name": call.name, "arguments": ""}
        head = {"index": index, "id": call.id or f"call_{number}_{index}", "type": "function"}
        yield chunk({"tool_calls": [{**head, "function": name}]})
        for piece in _pieces(cut(as_json(call.input)), reply.chunk):
            more = {"index": index, "function": {"arguments": piece}}
            yield chunk({"tool_calls": [more]})
    reason = "tool_use" if reply.tool_uses else "end_turn"
    reason = reply.stop_reason or ("max_tokens" if is_cut else reason)
    yield chunk({}, finish_reason=_FINISH.get(reason, reason))
    if (body.get("stream_options") or {}).get("include_usage"):
        yield chunk(None, usage=usage_of(prompt_tokens(body), output_tokens(written)))
    yield DONE


def usage_of(prompt: int, completion: int, *, cached: int = 0) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


DIALECT = Dialect("/v1/chat/completions", check_headers, check_body, steps, error_body)
