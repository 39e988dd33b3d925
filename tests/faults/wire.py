"""The pieces that a faulty reply is put together from, in each dialect of the wire.

A fault is written once: for the pieces it names, each dialect has its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentnb.providers.anthropic import AnthropicProvider
from agentnb.providers.openai import OpenAIProvider
from tests.loopback import Event, Reply, Step
from tests.loopback.completions import DONE, chunk, usage_of
from tests.loopback.said import encoded

ApiProvider = AnthropicProvider | OpenAIProvider

START: Event = (
    "message_start",
    {
        "type": "message_start",
        "message": {
            "id": "msg",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [],
            "usage": {"input_tokens": 100, "output_tokens": 1},
        },
    },
)
PING: Event = ("ping", {"type": "ping"})
OPEN: Event = (
    "content_block_start",
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
)
CLOSE: Event = ("content_block_stop", {"type": "content_block_stop", "index": 0})
STOP: Event = ("message_stop", {"type": "message_stop"})


def event(kind: str, **fields: Any) -> Event:
    return kind, {"type": kind, **fields}


def delta(text: str, *, index: int = 0) -> Event:
    grown = {"type": "text_delta", "text": text}
    return event("content_block_delta", index=index, delta=grown)


def ending(reason: Any = "end_turn", usage: Any = None) -> tuple[Event, Event]:
    counted = {"output_tokens": 10} if usage is None else usage
    changed = {"stop_reason": reason, "stop_sequence": None}
    return event("message_delta", delta=changed, usage=counted), STOP


def error_event(kind: str, message: str) -> Event:
    return event("error", error={"type": kind, "message": message})


def half_of(text: str) -> str:
    """What a reply that breaks in the middle of `text` has shown of it."""
    return text[: len(text) // 2]


def on_the_wire(event: Event) -> bytes:
    """The event as bytes, non-ASCII characters as they are."""
    return encoded(event)


def escaped(event: Event) -> Event:
    """The event in ASCII, since JSON can hold what UTF-8 cannot."""
    name, data = event
    return name, json.dumps(data)


@dataclass(frozen=True, kw_only=True, eq=False)
class Wire:
    """One dialect: its pieces, its provider, and what a person sets for it."""

    name: str
    provider: Callable[..., ApiProvider]
    variables: Mapping[str, str]
    """The environment without which nothing is called, but for the base URL."""
    url_variable: str
    url_path: str
    """What stands behind the host in the base URL."""
    unreachable: str
    unknown_model: str
    kinds: Mapping[int, str]
    """By status, the word for an error that is told beside it."""

    start: tuple[Step, ...]
    ping: Event
    text: Callable[[str], tuple[Step, ...]]
    """A part of the reply that is this text so far, and may go on."""
    more: Callable[[str], Event]
    called: Callable[[str], tuple[Step, ...]]
    """A tool call whose arguments are this text so far, and may go on."""
    close: tuple[Step, ...]
    """The end of that part."""
    end: tuple[Step, ...]
    """The end of a whole reply."""
    ended_by: Callable[[Any], tuple[Step, ...]]
    """The end of a reply with this reason."""
    almost_end: tuple[Step, ...]
    """All of that but the end mark."""
    error: Callable[[str, str], Event]
    wordless_error: Event
    wrong_shape: Event
    stop: Event
    """The end mark alone."""
    stop_quoted: str
    unlike: Mapping[str, str] = field(default_factory=dict)
    """Words that are others than for the first dialect."""

    @property
    def key_variable(self) -> str:
        return next(iter(self.variables))

    def whole(self, text: str, **how: Any) -> Reply:
        return Reply(events=(*self.start, *self.text(text), *self.close, *self.end), **how)

    def before_text(self, *steps: Step) -> Reply:
        """A reply that began, and then this."""
        return Reply(events=(*self.start, *steps))

    def within_text(self, text: str, *steps: Step) -> Reply:
        """A reply that got as far as half of its text, and then this."""
        return Reply(events=(*self.start, *self.text(half_of(text)), *steps))

    def in_words(self, says: str, host: str) -> str:
        """A sentence of the catalogue, as this dialect's server makes a person read it."""
        for name, words in {
            "{host}": host,
            "{url}": f"`{self.url_variable}`",
            "{key}": f"`{self.key_variable}`",
            "{unreachable}": self.unreachable,
            "{unknown_model}": self.unknown_model,
            "{stop}": self.stop_quoted,
            **{f"{{kind {status}}}": kind for status, kind in self.kinds.items()},
            **self.unlike,
        }.items():
            says = says.replace(name, words)
        return says


MESSAGES = Wire(
    name="messages",
    provider=AnthropicProvider,
    variables={"ANTHROPIC_API_KEY": "sk-ant-api03-not-a-real-key"},
    url_variable="ANTHROPIC_BASE_URL",
    url_path="",
    unreachable="Check the network, and `ANTHROPIC_BASE_URL` if it is set.",
    unknown_model="Check the model's name, and `ANTHROPIC_BASE_URL` if it is set.",
    kinds={
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        500: "api_error",
        529: "overloaded_error",
    },
    start=(START,),
    ping=PING,
    text=lambda text: (OPEN, delta(text)),
    more=delta,
    called=lambda arguments: (
        event(
            "content_block_start",
            index=0,
            content_block={"type": "tool_use", "id": "t0", "name": "look", "input": {}},
        ),
        event(
            "content_block_delta",
            index=0,
            delta={"type": "input_json_delta", "partial_json": arguments},
        ),
    ),
    close=(CLOSE,),
    end=ending(),
    ended_by=ending,
    almost_end=ending()[:1],
    error=error_event,
    wordless_error=event("error"),
    wrong_shape=event("content_block_delta", index=0, delta={"type": "text_delta", "text": 5}),
    stop=STOP,
    stop_quoted='{"type":"message_stop"}',
    unlike={"{quoted}": '{"type":"content_block_delta","index":0,"delta":{"type":"te…'},
)
COMPLETIONS = Wire(
    name="completions",
    provider=OpenAIProvider,
    variables={"OPENAI_API_KEY": "sk-proj-not-a-real-key"},
    url_variable="OPENAI_BASE_URL",
    url_path="/v1",
    unreachable=(
        "Check the network, that the server runs (for Ollama: `ollama serve`), and "
        "`OPENAI_BASE_URL` if it is set."
    ),
    unknown_model=(
        "Check the model's name (Ollama lists its own by `ollama list` and fetches others by "
        "`ollama pull`), and that `OPENAI_BASE_URL` ends as the server expects, usually with `/v1`."
    ),
    kinds={
        400: "invalid_request_error",
        401: "invalid_api_key",
        403: "unsupported_country_region_territory",
        404: "model_not_found",
        413: "request_too_large",
        429: "rate_limit_exceeded",
        500: "server_error",
        529: "overloaded_error",
    },
    start=(chunk({"role": "assistant", "content": ""}),),
    ping=chunk(None),
    text=lambda text: (chunk({"content": text}),),
    more=lambda text: chunk({"content": text}),
    called=lambda arguments: (
        chunk(
            {
                "tool_calls": [
                    {"index": 0, "id": "t0", "function": {"name": "look", "arguments": arguments}}
                ]
            }
        ),
    ),
    close=(),
    end=(chunk({}, finish_reason="stop"), chunk(None, usage=usage_of(100, 10)), DONE),
    ended_by=lambda reason: (chunk({}, finish_reason=reason), DONE),
    almost_end=(chunk({}),),
    error=lambda kind, message: ("", {"error": {"type": kind, "message": message}}),
    wordless_error=("", {"error": {"code": None}}),
    wrong_shape=("", {"choices": [{"index": 0, "delta": {"content": 5}}]}),
    stop=DONE,
    stop_quoted="[DONE]",
    unlike={
        "{quoted}": '{"choices":[{"index":0,"delta":{"content":5}}]}',
        "declined to answer:": "declined to answer (content_filter):",
    },
)
WIRES = (MESSAGES, COMPLETIONS)
