"""All that can go wrong: answers that are errors, wires that break, replies that are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agentnb.core.errors import (
    CallTimedOut,
    ConnectionFailed,
    InvalidRequest,
    NoCredit,
    Overloaded,
    Refused,
    ServerFailed,
    StreamBroken,
)
from tests.faults.answers import ANSWERS, CHANGE, LATER, WEB_PAGE
from tests.faults.fault import AGENT, CALL_TIMEOUT_S, NOBODY, TRANSPORT, Fault
from tests.faults.wire import Wire, delta, on_the_wire
from tests.loopback import Act, Cut, Drip, Reply
from tests.loopback.completions import DONE, chunk

# -- a wire that breaks ---------------------------------------------------------------------------

HUNG_UP_BEFORE = (
    "{host} closed the connection before it answered. Try again in a while, and check the network."
)
HUNG_UP = "{host} closed the connection within its reply. Try again."
LOST = "{host} was lost within its reply: the connection broke. Try again."
NO_HTTP = "{host} answered with something that is not HTTP. Check {url}."
NO_END = "{host} ended its reply without the end mark. Try again."
TIMED_OUT = (
    f"The model's turn did not end within {CALL_TIMEOUT_S:g} s: give it more time "
    "by a larger `call_timeout_s`."
)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


def _unanswered(name: str, says: str, *steps: Any) -> Fault:
    return Fault(
        name=name,
        reply=lambda _wire, _text: Reply(before=steps),
        calls=TRANSPORT,
        kind=ConnectionFailed,
        says=says,
    )


def _early(name: str, says: str, reply: Callable[[Wire], Reply], **fields: Any) -> Fault:
    """A reply that breaks before any text of it was shown: the transport's to try again."""
    expected = {"calls": TRANSPORT, "kind": StreamBroken, **fields}
    return Fault(name=name, reply=lambda wire, _: reply(wire), says=says, **expected)


def _late(name: str, says: str, reply: Callable[[Wire, str], Reply], **fields: Any) -> Fault:
    """A reply that breaks after half of its text was shown: the agent's to try again."""
    expected = {"calls": AGENT, "kind": StreamBroken, "shows_text": True, **fields}
    return Fault(name=name, reply=reply, says=says, **expected)


def _ended_by(reason: Any) -> Callable[[Wire, str], Reply]:
    return lambda wire, text: wire.within_text(text, *wire.close, *wire.ended_by(reason))


def _without_end(name: str, reply: Callable[[Wire, str], Reply], **fields: Any) -> Fault:
    """A turn that only its deadline ends: the agent's to try again, text shown or not."""
    return Fault(
        name=name,
        reply=reply,
        calls=AGENT,
        kind=CallTimedOut,
        says=TIMED_OUT,
        ends_by="deadline",
        **fields,
    )


BROKEN = [
    _unanswered("reset before the headers", HUNG_UP_BEFORE, Act.RESET),
    _unanswered("end before the headers", HUNG_UP_BEFORE, Act.HANG_UP),
    _unanswered("end within the headers", HUNG_UP_BEFORE, HEAD, Act.HANG_UP),
    _unanswered(
        "error that is cut",
        HUNG_UP_BEFORE,
        b"HTTP/1.1 500 Oops\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{",
        Act.HANG_UP,
    ),
    _unanswered(
        "no HTTP",
        NO_HTTP,
        b"SSH-2.0\r\n\r\n",
        Act.HANG_UP,
    ),
    _unanswered(
        "headers without end",
        NO_HTTP,
        HEAD + b"x-more: %s\r\n" % (b"y" * 200_000),
        Act.HANG_UP,
    ),
    _early(
        "reset after the headers",
        LOST,
        lambda _: Reply(events=(Act.STALL, Act.RESET)),
        ends_by="let_go",
    ),
    _early("end after the headers", HUNG_UP, lambda _: Reply(events=(Act.HANG_UP,))),
    _early("end within a chunk", HUNG_UP, lambda wire: wire.before_text(Cut(b"event: content_bl"))),
    _early("empty stream", NO_END, lambda _: Reply(events=()), breaks_connection=False),
    _early(
        "pings and then the end",
        NO_END,
        lambda wire: wire.before_text(wire.ping, wire.ping),
        breaks_connection=False,
    ),
    _early(
        "half an event",
        NO_END,
        lambda wire: wire.before_text(b'event: content_block_delta\ndata: {"type": "content_blo'),
        breaks_connection=False,
    ),
    _late(
        "reset within the text",
        LOST,
        lambda wire, text: wire.within_text(text, Act.STALL, Act.RESET),
        ends_by="let_go",
    ),
    _late("end within the text", HUNG_UP, lambda wire, text: wire.within_text(text, Act.HANG_UP)),
    _late(
        "end within a chunk of text",
        HUNG_UP,
        lambda wire, text: wire.within_text(text, Cut(b"event")),
    ),
    _late(
        "end without the end mark",
        NO_END,
        lambda wire, text: wire.within_text(text, *wire.close, *wire.almost_end),
        breaks_connection=False,
    ),
    _late(
        "half an event within the text",
        NO_END,
        lambda wire, text: wire.within_text(text, b"event: content_block_delta\ndata: {"),
        breaks_connection=False,
    ),
    _without_end("stall before the headers", lambda _wire, _text: Reply(before=(Act.STALL,))),
    _without_end("stall after the headers", lambda _wire, _text: Reply(events=(Act.STALL,))),
    _without_end(
        "stall within the text",
        lambda wire, text: wire.within_text(text, Act.STALL),
        shows_text=True,
    ),
    _without_end(
        "drip of headers", lambda _wire, _text: Reply(before=(HEAD + b"x-more: ", Drip(b"y")))
    ),
    _without_end("drip of pings", lambda wire, _: wire.before_text(Drip(on_the_wire(wire.ping)))),
    _without_end("drip within an event", lambda wire, _: wire.before_text(b"data: {", Drip(b" "))),
    _without_end(
        "drip of text",
        lambda wire, text: wire.within_text(text, Drip(on_the_wire(wire.more(".")))),
        shows_text=True,
    ),
]

# -- a reply that is none -------------------------------------------------------------------------

UNREADABLE = "{host} sent an unreadable reply: "
HALF_JSON = '{"type": "content_block_delta", "index": 0, "delta": '
BAD_TEXT = b'event: ping\ndata: {"type": "p\xff\xfe"}\n\n'
OUT_OF_ORDER = "more of a part that had not begun, or had ended "
QUOTED_DELTA = '({"type":"content_block_delta","index":%d,"delta":{"type":"te…). Try again.'
ELSEWHERE = "{host} answered with %s instead of a stream of events%s. Check {url}."

REPLIES = [
    _early(
        "bad JSON",
        UNREADABLE + "an event that is not JSON ({ nonsense). Try again.",
        lambda wire: wire.before_text(("ping", "{ nonsense")),
    ),
    _early(
        "bad UTF-8",
        UNREADABLE + "bytes that are not text. Try again.",
        lambda wire: wire.before_text(BAD_TEXT),
    ),
    _early(
        "no gzip",
        UNREADABLE + "wrongly compressed bytes. Try again.",
        lambda wire: Reply(events=wire.start, headers={"content-encoding": "gzip"}),
    ),
    _early(
        "delta of a part that has not begun",
        UNREADABLE + OUT_OF_ORDER + QUOTED_DELTA % 0,
        lambda wire: wire.before_text(delta("Hel")),
        only="messages",
    ),
    _early(
        "end before the beginning",
        UNREADABLE + "the end of a reply that had not begun ({stop}). Try again.",
        lambda wire: Reply(events=(wire.stop,)),
    ),
    _late(
        "bad JSON within the text",
        UNREADABLE
        + 'an event that is not JSON ({"type": "content_block_delta", "index": 0, "delta":). Try '
        "again.",
        lambda wire, text: wire.within_text(text, ("content_block_delta", HALF_JSON)),
    ),
    _late(
        "bad UTF-8 within the text",
        UNREADABLE + "bytes that are not text. Try again.",
        lambda wire, text: wire.within_text(text, BAD_TEXT),
    ),
    _late(
        "delta of a part that has ended",
        UNREADABLE + OUT_OF_ORDER + QUOTED_DELTA % 0,
        lambda wire, text: wire.within_text(text, *wire.close, delta("more")),
        only="messages",
    ),
    _late(
        "second beginning",
        UNREADABLE
        + 'a second beginning within the reply ({"type":"message_start","message":{"id":"msg",'
        '"type":"messa…). Try again.',
        lambda wire, text: wire.within_text(text, *wire.start),
        only="messages",
    ),
    _late(
        "number for text",
        UNREADABLE + "an event of the wrong shape ({quoted}). Try again.",
        lambda wire, text: wire.within_text(text, wire.wrong_shape),
    ),
    *(
        _late(
            name,
            UNREADABLE + f"the unknown stop reason {told}. Try again.",
            _ended_by(reason),
            breaks_connection=False,
            only=only,
        )
        for only, noun in {"messages": "stop", "completions": "finish"}.items()
        for name, reason, told in (
            (f"{noun} reason that nobody knows", "tired", "'tired'"),
            (f"{noun} reason that says broken off", "error", "'error'"),
            (f"{noun} reason that is a number", 5, "'5'"),
            (f"{noun} reason that is an object", {"x": ["y"]}, "\"{'x': ['y']}\""),
        )
    ),
    _late(
        "no finish reason from a server that sends one",
        UNREADABLE + "an end without a reason. Try again.",
        lambda wire, text: wire.within_text(text, DONE),
        breaks_connection=False,
        only="completions",
    ),
    _late(
        "no stop reason from a server that sends one",
        UNREADABLE + "an end without a reason. Try again.",
        _ended_by(None),
        breaks_connection=False,
        only="messages",
    ),
    _early(
        "error event at once",
        "{host} broke off its reply (overloaded_error): Overloaded. Try again in a while, or use "
        "another model.",
        lambda wire: Reply(events=(wire.error("overloaded_error", "Overloaded"),)),
        kind=Overloaded,
    ),
    _early(
        "error event that is final",
        f"{{host}} broke off its reply (invalid_request_error): Too many images. {CHANGE}",
        lambda wire: wire.before_text(wire.error("invalid_request_error", "Too many images")),
        kind=InvalidRequest,
        calls=NOBODY,
    ),
    _early(
        "error event without a word",
        f"{{host}} broke off its reply without saying why. {LATER}",
        lambda wire: wire.before_text(wire.wordless_error),
        kind=ServerFailed,
    ),
    _late(
        "error event within the text",
        f"{{host}} broke off its reply (api_error): Internal server error. {LATER}",
        lambda wire, text: wire.within_text(text, wire.error("api_error", "Internal server error")),
        kind=ServerFailed,
    ),
    _early(
        "web page",
        ELSEWHERE
        % ("text/html; charset=utf-8", ": a web page (Sign in), which is not an answer of the API"),
        lambda _: Reply(body=b"<html><h1>Sign in</h1></html>", headers=WEB_PAGE),
        calls=AGENT,
    ),
    _early(
        "204",
        ELSEWHERE % ("no content type", ""),
        lambda _: Reply(
            before=(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n", Act.HANG_UP)
        ),
        calls=AGENT,
    ),
    _late(
        "refusal",
        "The model declined to answer: I will not. Rephrase the task, or use another model.",
        lambda _wire, _text: Reply(text="I will not.", stop_reason="refusal"),
        kind=Refused,
        calls=NOBODY,
        shows_text=False,
    ),
]

# -- more than anybody can mean --------------------------------------------------------------------

TOO_LONG = (
    "{host} sent %s, which is the most that is read. Ask for less, use another model, or check "
    "{url}."
)

MUCH = [
    Fault(
        name="error that is 200 kB of `<`",
        reply=lambda _wire, _text: Reply(status=500, body=b"<" * 200_000),
        calls=TRANSPORT,
        kind=ServerFailed,
        says=(
            f"{{host}} answered 500: a web page ({'<' * 79}…), which is not an answer of the API. "
            f"{LATER}"
        ),
        breaks_connection=False,
    ),
    _early(
        "line without end",
        TOO_LONG % "an event of more than 4,194,304 bytes",
        lambda wire: wire.before_text(b"data: " + b"x" * 5_000_000, Act.HANG_UP),
        calls=AGENT,
    ),
    _early(
        "arguments without end",
        TOO_LONG % "arguments of a tool call of more than 1,048,576 bytes",
        lambda wire: wire.before_text(*wire.called("x" * 1_100_000), Act.HANG_UP),
        calls=AGENT,
    ),
]
"""What is beyond a limit: the sentence says it. None of them stalls: nobody would wait for that
stall, and the next one would be taken for it. There are more in `providers/test_limits.py`."""

CREDIT = "Add credit to the account, or use another model."
OWN = [
    Fault(
        name="429 without credit",
        reply=lambda _wire, _text: Reply(
            status=429,
            body=b'{"error": {"message": "You exceeded your current quota.", "type": '
            b'"insufficient_quota", "param": null, "code": "insufficient_quota"}}',
        ),
        says="{host} answered 429 (insufficient_quota): You exceeded your current quota. " + CREDIT,
        kind=NoCredit,
        calls=NOBODY,
        breaks_connection=False,
        only="completions",
    ),
    Fault(
        name="402 that names the limit",
        reply=lambda _wire, _text: Reply(
            status=402,
            body=b'{"error": {"message": "This request requires more credits, or fewer '
            b'max_tokens.", "code": 402}}',
        ),
        says="{host} answered 402: This request requires more credits, or fewer max_tokens. "
        + CREDIT,
        kind=NoCredit,
        calls=NOBODY,
        breaks_connection=False,
        only="completions",
    ),
    Fault(
        name="429 without a balance",
        reply=lambda _wire, _text: Reply(
            status=429,
            body=b'{"error": {"message": "Insufficient balance. Recharge.", "code": "1113"}}',
        ),
        says="{host} answered 429: Insufficient balance. Recharge. " + CREDIT,
        kind=NoCredit,
        calls=NOBODY,
        breaks_connection=False,
        only="completions",
    ),
    Fault(
        name="400 without credit",
        reply=lambda _wire, _text: Reply(
            status=400,
            body=b'{"type": "error", "error": {"type": "invalid_request_error", "message": '
            b'"Your credit balance is too low to access the Anthropic API."}}',
        ),
        says="{host} answered 400 (invalid_request_error): Your credit balance is too low to "
        "access the Anthropic API. " + CREDIT,
        kind=NoCredit,
        calls=NOBODY,
        breaks_connection=False,
        only="messages",
    ),
    _early(
        "error of llama.cpp within a reply",
        f"{{host}} broke off its reply (unavailable_error): Loading model. {LATER}",
        lambda wire: wire.before_text(
            ("", {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}})
        ),
        kind=ServerFailed,
        only="completions",
    ),
    _early(
        "error of vLLM within a reply",
        f"{{host}} broke off its reply (BadRequestError): Too many images. {CHANGE}",
        lambda wire: wire.before_text(
            (
                "",
                {"object": "error", "message": "Too many images", "type": "BadRequestError"},
            )
        ),
        kind=InvalidRequest,
        calls=NOBODY,
        only="completions",
    ),
    _late(
        "tool call without a name",
        UNREADABLE + "a tool call without a name. Try again.",
        lambda wire, text: wire.within_text(
            text, chunk({"tool_calls": [{"index": 0, "id": "c", "function": {}}]}), *wire.end
        ),
        only="completions",
    ),
]
"""What can go wrong in one dialect only, besides."""

FAULTS = [
    *ANSWERS,
    *BROKEN,
    *MUCH,
    *(replace(fault, breaks_connection=False) for fault in (*REPLIES, *OWN)),
]
"""The HTTP around a reply that is none is whole: its connection may take another request."""


def faults_of(wire: Wire) -> list[Fault]:
    """All that can go wrong in a dialect."""
    return [fault for fault in FAULTS if fault.only in (None, wire.name)]
