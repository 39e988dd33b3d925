"""Replies that are odd and whole: they have to be heard as if they were not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.faults.catalogue import BAD_TEXT
from tests.faults.wire import (
    CLOSE,
    OPEN,
    START,
    STOP,
    Wire,
    delta,
    ending,
    escaped,
    event,
    half_of,
    on_the_wire,
)
from tests.loopback import Act, Event, Reply
from tests.loopback.completions import DONE, chunk, usage_of


@dataclass(frozen=True, slots=True)
class Oddity:
    """A reply that is odd and whole."""

    name: str
    reply: Callable[[Wire, str], Reply]
    heard: Callable[[str], str] = str
    """What is heard of the text."""
    is_cut: bool = False
    """The answer is marked as one that had more to say."""
    breaks_connection: bool = False
    only: str | None = None
    """The one dialect in which it can be, by its name."""


def _stream(*between: Any, after: Any = (), ping: bool = False) -> Callable[[Wire, str], Reply]:
    """The whole text, with these in the middle of it and those behind the end mark."""

    def reply(wire: Wire, text: str) -> Reply:
        half, rest = half_of(text), text[len(half_of(text)) :]
        middle = (wire.ping, wire.ping) if ping else between
        content = (*wire.text(half), *middle, wire.more(rest), *wire.close)
        return Reply(events=(*wire.start, *content, *wire.end, *after))

    return reply


def _in_tiny_chunks(wire: Wire, text: str) -> Reply:
    """Every byte in a chunk of its own: each character of more than one byte is cut."""
    said = on_the_wire(wire.more(text))
    pieces = [said[at : at + 1] for at in range(len(said))]
    return Reply(events=(*wire.start, *wire.text("")[:-1], *pieces, *wire.close, *wire.end))


def _cut_in_an_emoji(wire: Wire, text: str) -> Reply:
    said = on_the_wire(wire.more(text))
    at = said.index("\N{SLIGHTLY SMILING FACE}".encode()) + 2
    content = (*wire.text("")[:-1], said[:at], said[at:], *wire.close)
    return Reply(events=(*wire.start, *content, *wire.end))


def _in_two_lines(wire: Wire, text: str) -> Reply:
    first, second = on_the_wire(wire.more(text)).split(b'"index"', 1)
    line = first + b'\ndata: "index"' + second
    return Reply(events=(*wire.start, *wire.text("")[:-1], line, *wire.close, *wire.end))


def with_usage(first: Any, last: Any) -> Callable[[Wire, str], Reply]:
    def reply(_: Wire, text: str) -> Reply:
        start = event("message_start", message={"usage": first})
        return Reply(events=(start, OPEN, delta(text), CLOSE, *ending(usage=last)))

    return reply


def _ends(reason: Any) -> Callable[[Wire, str], Reply]:
    return lambda _, text: Reply(
        events=(
            START,
            OPEN,
            delta(text),
            CLOSE,
            event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 10}),
            STOP,
        )
    )


def _chunks(*events: Event | None) -> Callable[[Wire, str], Reply]:
    """Chunks of a completion as they are, with the text where there is `None`."""
    return lambda wire, said: Reply(events=[each or wire.more(said) for each in events])


def _finish(reason: Any) -> Event:
    return chunk({}, finish_reason=reason)


LONE = "\ud83d"


NAN = float("nan")

ODDITIES = [
    Oddity("gzip", lambda wire, text: wire.whole(text, is_gzipped=True)),
    Oddity("CRLF", lambda wire, text: wire.whole(text, line_end="\r\n")),
    Oddity("CR", lambda wire, text: wire.whole(text, line_end="\r")),
    Oddity("comments", _stream(b": keep alive\n\n", b":\n", b": data: {\n")),
    Oddity("pings", _stream(ping=True)),
    Oddity("unknown event", _stream(event("new_event", x=1))),
    Oddity("unknown fields", _stream(b"id: 7\nretry: 1\nnew: x\ndatabase: x\n\n")),
    Oddity(
        "unknown delta",
        _stream(event("content_block_delta", index=0, delta={"type": "new_delta", "text": 5})),
        only="messages",
    ),
    Oddity(
        "unknown part",
        _stream(
            event("content_block_start", index=1, content_block={"type": "new_block"}),
            event("content_block_stop", index=1),
        ),
        only="messages",
    ),
    Oddity("empty delta", _stream(delta("")), only="messages"),
    Oddity("emoji cut over two chunks", _cut_in_an_emoji),
    Oddity("every byte in a chunk of its own", _in_tiny_chunks),
    Oddity("data in two lines", _in_two_lines),
    Oddity(
        "lone surrogate",
        lambda wire, text: Reply(
            events=(
                *wire.start,
                *wire.text(text),
                escaped(wire.more(LONE)),
                *wire.close,
                *wire.end,
            )
        ),
        heard=lambda text: text + "\N{REPLACEMENT CHARACTER}",
    ),
    Oddity("body left open", _stream(after=(Act.STALL,)), breaks_connection=True),
    Oddity("garbage behind the end", _stream(after=(BAD_TEXT,))),
    Oddity("hung up behind the end", _stream(after=(Act.HANG_UP,)), breaks_connection=True),
    Oddity("`max_tokens`", _ends("max_tokens"), is_cut=True, only="messages"),
    Oddity(
        "full context window",
        _ends("model_context_window_exceeded"),
        is_cut=True,
        only="messages",
    ),
    *(
        Oddity(name, _chunks(*events), is_cut=name == "`length`", only="completions")
        for name, events in {
            "`length`": (None, _finish("length"), DONE),
            "finish reason in capitals": (None, _finish("STOP"), DONE),
            "message in place of a delta": (
                chunk({"role": "assistant"}),
                None,
                ("", {"choices": [{"index": 0, "message": {}, "finish_reason": "stop"}]}),
                DONE,
            ),
            "finish reason of no characters before the last": (
                chunk({"role": "assistant"}, finish_reason=""),
                None,
                _finish("stop"),
                DONE,
            ),
            "no `[DONE]`": (None, _finish("stop")),
            "finish reason beside the text": (chunk({}), None, _finish("stop"), DONE),
            "no role, and nulls": (
                ("", {"choices": [{"delta": {"content": None, "tool_calls": None}}]}),
                None,
                ("", {"choices": None, "usage": None, "error": None}),
                ("", {"choices": [{"delta": None, "finish_reason": "stop"}]}),
            ),
            "usage beside the finish reason": (
                None,
                chunk({}, finish_reason="stop", usage=usage_of(9, 9)),
                DONE,
            ),
            "another choice": (
                None,
                ("", {"choices": [{"index": 1, "delta": {"content": "no"}}]}),
                _finish("stop"),
            ),
        }.items()
    ),
    Oddity(
        "hung up between the finish reason and `[DONE]`",
        lambda wire, text: Reply(events=(wire.more(text), _finish("stop"), Act.HANG_UP)),
        breaks_connection=True,
        only="completions",
    ),
]


def oddities_of(wire: Wire) -> list[Oddity]:
    """All that can be odd in a dialect."""
    return [oddity for oddity in ODDITIES if oddity.only in (None, wire.name)]


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
