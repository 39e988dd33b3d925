"""The pieces that a faulty reply is put together from."""

from __future__ import annotations

import json
from typing import Any

from tests.loopback import Event, Reply, Step
from tests.loopback.messages import encoded

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


def ending(reason: str = "end_turn", usage: Any = None) -> tuple[Event, Event]:
    counted = {"output_tokens": 10} if usage is None else usage
    changed = {"stop_reason": reason, "stop_sequence": None}
    return event("message_delta", delta=changed, usage=counted), STOP


def error_event(kind: str, message: str) -> Event:
    return event("error", error={"type": kind, "message": message})


def half_of(text: str) -> str:
    """What a reply that breaks in the middle of `text` has shown of it."""
    return text[: len(text) // 2]


def whole(text: str, **how: Any) -> Reply:
    return Reply(events=(START, OPEN, delta(text), CLOSE, *ending()), **how)


def before_text(*steps: Step) -> Reply:
    """A reply that began, and then this."""
    return Reply(events=(START, *steps))


def within_text(text: str, *steps: Step) -> Reply:
    """A reply that got as far as half of its text, and then this."""
    return Reply(events=(START, OPEN, delta(half_of(text)), *steps))


def on_the_wire(event: Event) -> bytes:
    """The event as bytes, non-ASCII characters as they are."""
    return encoded(event)


def escaped(event: Event) -> Event:
    """The event in ASCII, since JSON can hold what UTF-8 cannot."""
    name, data = event
    return name, json.dumps(data)
