"""Replies that are odd and whole: they have to be heard as if they were not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.faults.catalogue import BAD_TEXT
from tests.faults.wire import (
    CLOSE,
    OPEN,
    PING,
    START,
    STOP,
    delta,
    ending,
    escaped,
    event,
    half_of,
    on_the_wire,
    whole,
)
from tests.loopback import Act, Reply


@dataclass(frozen=True, slots=True)
class Oddity:
    """A reply that is odd and whole."""

    name: str
    reply: Callable[[str], Reply]
    heard: Callable[[str], str] = str
    """What is heard of the text."""
    is_cut: bool = False
    """The answer is marked as one that had more to say."""
    breaks_connection: bool = False


def _stream(*between: Any, after: Any = ()) -> Callable[[str], Reply]:
    """The whole text, with these in the middle of it and those behind the end mark."""

    def reply(text: str) -> Reply:
        half, rest = half_of(text), text[len(half_of(text)) :]
        content = (OPEN, delta(half), *between, delta(rest), CLOSE)
        return Reply(events=(START, *content, *ending(), *after))

    return reply


def _in_tiny_chunks(text: str) -> Reply:
    """Every byte in a chunk of its own: each character of more than one byte is cut."""
    said = on_the_wire(delta(text))
    pieces = [said[at : at + 1] for at in range(len(said))]
    return Reply(events=(START, OPEN, *pieces, CLOSE, *ending()))


def _cut_in_an_emoji(text: str) -> Reply:
    said = on_the_wire(delta(text))
    at = said.index("\N{SLIGHTLY SMILING FACE}".encode()) + 2
    return Reply(events=(START, OPEN, said[:at], said[at:], CLOSE, *ending()))


def _in_two_lines(text: str) -> Reply:
    first, second = on_the_wire(delta(text)).split(b'"index"', 1)
    return Reply(events=(START, OPEN, first + b'\ndata: "index"' + second, CLOSE, *ending()))


def with_usage(first: Any, last: Any) -> Callable[[str], Reply]:
    def reply(text: str) -> Reply:
        start = event("message_start", message={"usage": first})
        return Reply(events=(start, OPEN, delta(text), CLOSE, *ending(usage=last)))

    return reply


def _ends(reason: str | None) -> Callable[[str], Reply]:
    return lambda text: Reply(
        events=(
            START,
            OPEN,
            delta(text),
            CLOSE,
            event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 10}),
            STOP,
        )
    )


LONE = "\ud83d"
NAN = float("nan")

ODDITIES = [
    Oddity("gzip", lambda text: whole(text, is_gzipped=True)),
    Oddity("CRLF", lambda text: whole(text, line_end="\r\n")),
    Oddity("CR", lambda text: whole(text, line_end="\r")),
    Oddity("comments", _stream(b": keep alive\n\n", b":\n", b": data: {\n")),
    Oddity("pings", _stream(PING, PING)),
    Oddity("unknown event", _stream(event("new_event", x=1))),
    Oddity("unknown fields", _stream(b"id: 7\nretry: 1\nnew: x\ndatabase: x\n\n")),
    Oddity(
        "unknown delta",
        _stream(event("content_block_delta", index=0, delta={"type": "new_delta", "text": 5})),
    ),
    Oddity(
        "unknown part",
        _stream(
            event("content_block_start", index=1, content_block={"type": "new_block"}),
            event("content_block_stop", index=1),
        ),
    ),
    Oddity("empty delta", _stream(delta(""))),
    Oddity("emoji cut over two chunks", _cut_in_an_emoji),
    Oddity("every byte in a chunk of its own", _in_tiny_chunks),
    Oddity("data in two lines", _in_two_lines),
    Oddity(
        "lone surrogate",
        lambda text: Reply(
            events=(START, OPEN, delta(text), escaped(delta(LONE)), CLOSE, *ending())
        ),
        heard=lambda text: text + "\N{REPLACEMENT CHARACTER}",
    ),
    Oddity("body left open", _stream(after=(Act.STALL,)), breaks_connection=True),
    Oddity("garbage behind the end", _stream(after=(BAD_TEXT,))),
    Oddity("hung up behind the end", _stream(after=(Act.HANG_UP,)), breaks_connection=True),
    Oddity("`max_tokens`", _ends("max_tokens"), is_cut=True),
    Oddity("full context window", _ends("model_context_window_exceeded"), is_cut=True),
    Oddity("stop reason that nobody knows", _ends("tired")),
    Oddity("no stop reason", _ends(None)),
]

COUNTS: list[tuple[object, object, int | None, int | None]] = [
    ({"input_tokens": 100, "output_tokens": 1}, {"output_tokens": 7}, 100, 7),
    ({"input_tokens": 100, "output_tokens": 1}, {"input_tokens": 120, "output_tokens": 7}, 120, 7),
    ({"input_tokens": 100, "output_tokens": 1}, {}, 100, None),
    ({"input_tokens": 100}, {"output_tokens": None}, 100, None),
    ({"output_tokens": 1}, {"output_tokens": 7}, None, 7),
    (None, {"output_tokens": 7}, None, 7),
    (None, {}, None, None),
    ("many", [5], None, None),
    ({"input_tokens": None, "output_tokens": None}, {"output_tokens": None}, None, None),
    ({"input_tokens": -100, "output_tokens": -1}, {"output_tokens": -7}, None, None),
    ({"input_tokens": "100", "output_tokens": True}, {"output_tokens": 7.5}, None, None),
    ({"input_tokens": NAN, "output_tokens": NAN}, {"output_tokens": NAN}, None, None),
    ({"input_tokens": 10**8 + 1, "output_tokens": 1}, {"output_tokens": 10**12}, None, None),
]
"""Usage at a reply's begin and at its end, and what counts: input and output, `None` where it
has to be estimated."""
