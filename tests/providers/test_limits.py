"""What comes from a wire has a greatest size, and nothing of it is looked at again and again."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import sys
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agentnb.core.errors import (
    ConnectionFailed,
    InvalidRequest,
    LlmError,
    RateLimited,
    ServerFailed,
    StreamBroken,
)
from agentnb.core.protocols import ToolContext
from agentnb.core.types import (
    CompletionRequest,
    Stopped,
    StreamEvent,
    TextDelta,
    ToolInputDelta,
    ToolSpec,
    ToolUse,
    Usage,
    user_message,
)
from agentnb.providers.anthropic import HINTS
from agentnb.providers.anthropic_wire import ReplyReader, event_in
from agentnb.providers.body import BODY
from agentnb.providers.call_arguments import METERED_AT_ONCE, CallArguments
from agentnb.providers.error_mapping import ErrorMapping
from agentnb.providers.json_values import tool_input
from agentnb.providers.limits import BadReply, TooLarge
from agentnb.providers.openai_calls import ToolCalls
from agentnb.providers.reply import ReplyStream
from agentnb.providers.servers import Server
from agentnb.providers.sse import EventLines
from agentnb.providers.thinking_in_text import ThinkingFilter
from agentnb.providers.unpacking import Unpacking
from agentnb.record import load_run
from agentnb.runtime import get_runtime
from agentnb.session import Session
from tests.faults.stage import opened
from tests.faults.wire import MESSAGES, WIRES, ApiProvider, Wire, ending, event, on_the_wire
from tests.loopback import Act, Drip, Event, LoopbackServer, Reply, Step
from tests.loopback.completions import DONE, chunk
from tests.support import DEADLINE_S, make_tree

both = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
HELLO = CompletionRequest("m", "", (user_message("Hello"),))
MAPPING = ErrorMapping("HOST", 1.0, HINTS)


@pytest.fixture
async def provider(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiProvider]:
    async with opened(wire, monkeypatch) as provider:
        yield provider


async def answer(
    wire: Wire, provider: ApiProvider, monkeypatch: pytest.MonkeyPatch, *replies: Reply
) -> tuple[list[StreamEvent], LlmError | None]:
    """What comes of the last of so many calls that are answered by these replies."""
    asked = iter(replies)
    with LoopbackServer(lambda _: next(asked)) as server:
        monkeypatch.setenv(wire.url_variable, server.url + wire.url_path)
        for _ in replies:
            events: list[StreamEvent] = []
            error = None
            try:
                async with contextlib.aclosing(provider.stream(HELLO)) as stream:
                    async for piece in stream:
                        events.append(piece)
            except LlmError as failure:
                error = failure
        return events, error


# -- linear in what comes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "piece", ["<", "<a ", "<a>", "< >", "<a <", "sk-", "sk-ant", " <", "\\", " "]
)
def test_words_of_a_server_are_read_once_whatever_they_are(piece: str) -> None:
    # By the square of its length it would take 10 min.
    said = MAPPING.words("<" + piece * (1_000_000 // len(piece)))

    assert said.startswith("a web page (")
    assert len(said) < 150


def test_secret_is_masked_in_words_that_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "lemon-and-lime")

    assert "lemon" not in MAPPING.words("<" * 60 + "lemon-and-lime" * 9_000)


def test_arguments_that_come_in_many_pieces_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(text: str) -> Mapping[str, Any] | None:
        read.append(text)
        return tool_input(text)

    monkeypatch.setattr("agentnb.providers.call_arguments.tool_input", counted)
    calls = ToolCalls(HELLO, "")
    pieces = ['{"at": "', *['}]{\\"'] * 20_000, '"', "}", *[" "] * 1_000]
    for piece in pieces:  # the name with each, as some servers have it
        calls.grow({"index": 0, "id": "c0", "function": {"name": "look", "arguments": piece}})

    (call,) = calls.whole(is_cut=False)

    assert call.input == {"at": '}]{"' * 20_000}
    assert len(read) == 1


@pytest.mark.parametrize(
    "text",
    [
        *('{"a": "}"}', '{"a": "\\\\"}', '{"a": "\\""}', '{"a": [{}, "{"]} \n'),
        *('{"a": "é\\\\\\"}"}', '{"a": "\\u007b"}', "{}", '{"a": 1}x', "{}{}", "{} {", "{x}"),
        *("[1]", "5", '"{}"', '{"a": 1', "}", '{"a": 1e999}', ""),
    ],
)
def test_arguments_are_what_all_of_them_say_however_they_are_cut(text: str) -> None:
    for cut in range(len(text) + 1):
        arguments = CallArguments()
        for piece in (text[:cut], "", text[cut:]):
            arguments.keep(piece)
        assert arguments.value == tool_input(text)


# -- what is beyond a limit -----------------------------------------------------------------------


def test_bytes_are_unpacked_up_to_the_limit_and_those_behind_the_end_are_dropped() -> None:
    packed = gzip.compress(b"x" * 300_000)
    assert b"".join(Unpacking("gzip", most=300_000, what="it").pieces(packed)) == b"x" * 300_000

    for encoding, content in (("gzip", packed), ("", b"x" * 300_000)):
        pieces = Unpacking(encoding, most=1_000, what="a thing").pieces(content)
        assert next(pieces) == b"x" * 1_000
        with pytest.raises(TooLarge) as caught:
            next(pieces)
        assert str(caught.value) == (
            "a thing of more than 1,000 bytes, which is the most that is read"
        )

    ended = Unpacking("gzip", most=1_000, what="it")
    assert b"".join(ended.pieces(gzip.compress(b"whole") + b"x" * 100)) == b"whole"
    assert list(ended.pieces(b"x" * 100)) == []


def test_compressed_bytes_that_hold_nothing_have_an_end() -> None:
    unpacking = Unpacking("gzip", most=1_000, what="it")
    head, no_bytes = gzip.compress(b"")[:10], b"\x00\x00\x00\xff\xff"
    assert list(unpacking.pieces(head + no_bytes)) == [b""]
    with pytest.raises(TooLarge):
        _ = [list(unpacking.pieces(no_bytes)) for _ in range(1_000)]


MOST = 100_000


@pytest.mark.parametrize(
    "content",
    [
        b"data: " + b"x" * (MOST + 1) + b"\n\n",
        b"data: x\n" * (MOST // 8 + 1),
        b"data:\n" * (MOST // 6 + 1),
        b"x" * (MOST + 1),
        b"data: x\n\n: " + b"x" * (MOST + 1) + b"\n\n",
    ],
    ids=["one line", "many lines", "empty lines", "no line", "one comment"],
)
@pytest.mark.parametrize("size", [3_000, 10**9], ids=["in pieces", "at once"])
def test_event_has_a_greatest_size(
    content: bytes, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tens of times less than it is: that one is shown on the wire, below.
    monkeypatch.setattr("agentnb.providers.sse.MOST_IN_EVENT", MOST)
    lines = EventLines()
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    with pytest.raises(TooLarge, match="an event of more than 100,000 bytes"):
        _ = [list(lines.feed(piece)) for piece in pieces]


def test_comments_are_no_part_of_an_event_however_many_they_are() -> None:
    lines = EventLines()
    for _ in range(6):
        assert list(lines.feed((b": " + b"x" * 1_000 + b"\n") * 1_000)) == []

    assert list(lines.feed(b"data: at last\n\n")) == ["at last"]


def test_reply_has_a_greatest_number_of_calls_and_a_name_a_greatest_length() -> None:
    calls = ToolCalls(HELLO, "")
    many = [{"index": 10**9 * n, "id": f"{n}", "function": {"name": "look"}} for n in range(2_000)]
    with pytest.raises(TooLarge, match="a reply of more than 1,000 tool calls"):
        _ = [calls.grow(piece) for piece in many]
    calls = ToolCalls(HELLO, "")
    with pytest.raises(BadReply, match="a name of a tool of more than 1,000 char"):
        calls.grow({"index": 0, "id": "a", "function": {"name": "x" * 2_000}})


FIRST_MEGABYTE = "only the first 1,048,576 bytes of it were read"
LATER = "Try again in a while."


def _error(body: bytes, *, status: int = 500, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, body=body, headers={"content-type": "text/plain", **named})


def _head(status: str, *lines: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode()


def _chunked(content: bytes) -> bytes:
    return f"{len(content):x}\r\n".encode() + content + b"\r\n"


def _deep(levels: int) -> bytes:
    return b'{"error": {"type": %s, "code": %s, "message": %s}}' % (
        *(b"[" * levels + b"]" * levels,) * 2,
        b"[]",
    )


ERRORS: dict[str, tuple[Callable[[], Reply], type[LlmError], str]] = {
    "long": (
        lambda: _error(b"x" * 2_000_000),
        ServerFailed,
        f"HOST answered 500: {'x' * 299}… ({FIRST_MEGABYTE}). {LATER}",
    ),
    "long, of another status": (
        lambda: _error(b"x" * 2_000_000, status=429, retry_after="9"),
        RateLimited,
        f"HOST answered 429: {'x' * 299}… ({FIRST_MEGABYTE}). Run fewer agents at a time.",
    ),
    "long JSON": (
        lambda: _error(b'{"error": {"message": "' + b"y" * 2_000_000 + b'"}}'),
        ServerFailed,
        f'HOST answered 500: {{"error": {{"message": "{"y" * 276}… ({FIRST_MEGABYTE}). {LATER}',
    ),
    "gzip of 30 MB": (
        lambda: _error(gzip.compress(b"x" * 30_000_000, 1), content_encoding="gzip"),
        ServerFailed,
        f"HOST answered 500: {'x' * 299}… ({FIRST_MEGABYTE}). {LATER}",
    ),
    "gzip": (
        lambda: _error(
            gzip.compress(b'{"error": {"message": "No"}}'),
            content_encoding="gzip",
            content_type="application/json",
        ),
        ServerFailed,
        f"HOST answered 500: No. {LATER}",
    ),
    **{
        f"in {encoding}": (
            partial(_error, packed, content_encoding=encoding),
            ServerFailed,
            f"HOST answered 500 without saying why (it cannot be read: the compression "
            f"'{encoding}', which was not asked for). {LATER}",
        )
        for encoding, packed in {
            "deflate": zlib.compress(b"x" * 1_000_000),
            "br": b"oops",
            "zstd": b"oops",
            "gzip, gzip": gzip.compress(gzip.compress(b"x" * 1_000_000)),
        }.items()
    },
    "no gzip": (
        lambda: _error(b"oops", content_encoding="gzip"),
        ServerFailed,
        "HOST answered 500 without saying why (it cannot be read: wrongly compressed bytes). "
        f"{LATER}",
    ),
    # A codec of Python's as the charset would unpack it, or take the square of its length.
    **{
        f"charset {charset}": (
            partial(_error, b"oops", content_type=f"text/plain; charset={charset}"),
            ServerFailed,
            f"HOST answered 500: oops. {LATER}",
        )
        for charset in ("zlib", "bz2", "punycode", "idna", "utf-7", "hex")
    },
    "chunks without end": (
        lambda: Reply(
            before=(
                _head("500 Oops", "content-type: text/plain", "transfer-encoding: chunked"),
                *(_chunked(b"x" * 65_536),) * 100,
                Act.HANG_UP,
            )
        ),
        ServerFailed,
        f"HOST answered 500: {'x' * 299}… ({FIRST_MEGABYTE}). {LATER}",
    ),
    "length that is not reached": (
        lambda: Reply(
            before=(_head("500 Oops", f"content-length: {10**15}"), b"oops", Act.HANG_UP)
        ),
        ConnectionFailed,
        "HOST closed the connection before it answered. Try again in a while, and check the "
        "network.",
    ),
    "words of a megabyte in each place": (
        lambda: _error(
            json.dumps(
                {"error": dict.fromkeys(("type", "code", "message"), "z" * 300_000)}
            ).encode(),
            status=400,
            content_type="application/json",
        ),
        InvalidRequest,
        f"HOST answered 400 ({'z' * 299}…): {'z' * 299}…. The same request would be refused "
        "again: change what it asks for.",
    ),
}


@both
@pytest.mark.parametrize(("reply", "kind", "says"), ERRORS.values(), ids=ERRORS)
async def test_error_is_quoted_by_its_beginning_however_long_or_packed(
    wire: Wire,
    provider: ApiProvider,
    monkeypatch: pytest.MonkeyPatch,
    reply: Callable[[], Reply],
    kind: type[LlmError],
    says: str,
) -> None:
    _, error = await answer(wire, provider, monkeypatch, reply())

    assert type(error) is kind
    host = str(error).partition(" ")[0]
    assert str(error).replace(host, "HOST") == says


@both
async def test_error_may_be_as_deep_as_it_likes(
    wire: Wire, provider: ApiProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Near the depth at which Python gives up, what it can read it cannot always write.
    for reply in [
        *(_error(_deep(levels), status=400) for levels in (*range(850, 1_000, 7), 100_000)),
        *(
            Reply(events=(*wire.start, b"data: " + body.replace(b"{", head, 1) + b"\n\n"))
            for levels in (100, *range(850, 1_000, 7), 100_000)
            for body, head in [(_deep(levels), b'{"type": "error", ')]
        ),
    ]:
        _, error = await answer(wire, provider, monkeypatch, reply)

        assert type(error) in (InvalidRequest, ServerFailed, StreamBroken)
        assert len(str(error)) < 1_000
        assert "RecursionError" not in str(error)


def test_words_that_are_too_deep_to_be_written_are_reported_as_that() -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]

    for error in (deep, {"type": deep, "code": deep, "message": "Too deep"}):
        told = MAPPING.broke_off(error)

        assert type(told) is ServerFailed
        assert len(str(told)) < 1_000


def _endless(wire: Wire, step: Step, times: int) -> Reply:
    return Reply(events=(*wire.start, *(step,) * times, Act.HANG_UP))


def _part(index: int) -> Event:
    block = {"type": "tool_use", "id": f"t{index}", "name": "look", "input": {}}
    return event("content_block_start", index=index, content_block=block)


def _piece(index: int) -> Event:
    call = {"index": index, "id": f"t{index}", "function": {"name": "look", "arguments": "{"}}
    return chunk({"tool_calls": [call]})


def _named(wire: Wire, **fields: Any) -> Reply:
    """A whole call of a tool whose id or name is this."""
    steps = list(wire.called("{}"))
    if wire is MESSAGES:
        kind, data = steps[0]  # type: ignore[misc]
        steps[0] = kind, {**data, "content_block": {**data["content_block"], **fields}}  # type: ignore
        end: tuple[Step, ...] = (event("content_block_stop", index=0), *ending("tool_use"))
    else:
        call = {"index": 0, "id": fields.get("id", "t0")}
        function = {"name": fields.get("name", "look"), "arguments": "{}"}
        steps = [chunk({"tool_calls": [{**call, "function": function}]})]
        end = (chunk({}, finish_reason="tool_calls"), DONE)
    return Reply(events=(*wire.start, *steps, *end))


def _long(event: Event) -> Event:
    kind, data = event
    assert not isinstance(data, str)
    return kind, {**data, "pad": "x" * 100_000}


LONG_COMMENT = b": " + b"x" * 100_000 + b"\n\n"
REPLIES: dict[str, tuple[Callable[[Wire], Reply], str]] = {
    "line": (
        lambda wire: _endless(wire, b"x" * 65_536, 100),
        "an event of more than 4,194,304 bytes",
    ),
    "comments": (
        lambda wire: _endless(wire, LONG_COMMENT * 10, 80),
        "a reply of more than 67,108,864 bytes",
    ),
    "pings": (
        lambda wire: _endless(wire, on_the_wire(_long(wire.ping)) * 10, 80),
        "a reply of more than 67,108,864 bytes",
    ),
    "gzip of comments": (
        lambda _: Reply(
            body=gzip.compress(LONG_COMMENT * 700, 1),
            headers={"content-encoding": "gzip", "content-type": "text/event-stream"},
        ),
        "a reply of more than 67,108,864 bytes",
    ),
    "arguments": (
        lambda wire: Reply(
            events=(
                *wire.start,
                wire.called('{"at": "')[0],
                *(wire.called("x" * 10_000)[-1],) * 120,
                Act.HANG_UP,
            )
        ),
        "arguments of a tool call of more than 1,048,576 bytes",
    ),
    "parts": (
        lambda wire: Reply(
            events=(
                *wire.start,
                *((_part if wire is MESSAGES else _piece)(10**9 * n) for n in range(1_100)),
                Act.HANG_UP,
            )
        ),
        "a reply of more than 1,000 ",
    ),
    "name": (
        lambda wire: _named(wire, name="x" * 2_000_000),
        "a name of a tool of more than 1,000 characters",
    ),
    "id": (
        lambda wire: _named(wire, id="x" * 2_000_000),
        "an id of a tool call of more than 100,000 characters",
    ),
}


@both
@pytest.mark.parametrize(("reply", "told"), REPLIES.values(), ids=REPLIES)
async def test_reply_beyond_a_limit_is_one_sentence_that_says_it(
    wire: Wire,
    provider: ApiProvider,
    monkeypatch: pytest.MonkeyPatch,
    reply: Callable[[Wire], Reply],
    told: str,
) -> None:
    events, error = await answer(wire, provider, monkeypatch, reply(wire))

    assert type(error) is StreamBroken
    assert not error.retryable
    assert f" sent {told}" in str(error)
    assert str(error).endswith(
        ", which is the most that is read. Ask for less, use another model, or check "
        f"`{wire.url_variable}`."
    )
    assert not any(isinstance(each, ToolUse | Stopped) for each in events)


ODD_ANSWERS: dict[str, bytes] = {
    "one without end": _head("200 OK", "x-more: " + "y" * 200_000),
    "many": _head("200 OK", *["x-more: y"] * 100_000),
    "status without end": _head("200 " + "y" * 200_000),
    "length of many digits": _head("500 Oops", "content-length: " + "9" * 60_000),
    "length below 0": _head("500 Oops", "content-length: -1"),
    "trailers without end": (
        _head("500 Oops", "transfer-encoding: chunked") + b"0\r\n" + b"x-more: y\r\n" * 100_000
    ),
    "chunk size without end": (
        _head("500 Oops", "transfer-encoding: chunked") + b"0" * 200_000 + b"\r\n"
    ),
    "other statuses first": _head("103 Early Hints") * 10_000,
    "more than its length": _head("500 Oops", "content-length: 4") + b"oops" + b"x" * 10**6,
}


@both
@pytest.mark.parametrize("sent", ODD_ANSWERS.values(), ids=ODD_ANSWERS)
async def test_answer_that_is_no_http_or_has_no_end_is_one_sentence(
    wire: Wire, provider: ApiProvider, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    _, error = await answer(
        wire, provider, monkeypatch, Reply(before=(sent + b"\r\n", Act.HANG_UP))
    )

    assert isinstance(error, LlmError)
    assert len(str(error)) < 500


@pytest.mark.parametrize("wire", [MESSAGES], ids=lambda wire: wire.name)
async def test_limits_are_the_same_without_aiohttp(
    wire: Wire, provider: ApiProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "agentnb.providers.aio_transport", None)  # nor through a proxy
    for case in ("long", "gzip of 30 MB", "no gzip", "chunks without end", "charset zlib"):
        reply, kind, says = ERRORS[case]
        _, error = await answer(wire, provider, monkeypatch, reply())

        assert type(error) is kind
        assert says.partition(" ")[2] in str(error)
    for odd, told in (REPLIES["line"], REPLIES["gzip of comments"]):
        _, error = await answer(wire, provider, monkeypatch, odd(wire))

        assert f" sent {told}" in str(error)
    for case in ("one without end", "chunk size without end", "other statuses first"):
        reply_to_all = Reply(before=(ODD_ANSWERS[case] + b"\r\n", Act.HANG_UP))
        _, error = await answer(wire, provider, monkeypatch, reply_to_all)

        assert isinstance(error, LlmError)
        assert len(str(error)) < 500


@both
async def test_what_a_server_sets_as_a_cookie_is_not_kept_and_not_sent(
    wire: Wire, provider: ApiProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = wire.whole("Hello.", headers={"set-cookie": f"c={'x' * 4_000}; Path=/"})
    with LoopbackServer(lambda _: reply) as server:
        monkeypatch.setenv(wire.url_variable, server.url + wire.url_path)
        for _ in range(2):
            async with contextlib.aclosing(provider.stream(HELLO)) as stream:
                assert [piece async for piece in stream]

    assert ["cookie" in request.headers for request in server.requests] == [False, False]


BOMBS: dict[str, Callable[[], Reply]] = {
    "error": lambda: _error(gzip.compress(b"x" * 60_000_000, 1), content_encoding="gzip"),
    "line": lambda: Reply(
        body=gzip.compress(b"x" * 60_000_000, 1),
        headers={"content-encoding": "gzip", "content-type": "text/event-stream"},
    ),
    "lines": lambda: Reply(
        body=gzip.compress((b"data: " + b"[" * 40_000 + b"\n") * 1_500, 1),
        headers={"content-encoding": "gzip", "content-type": "text/event-stream"},
    ),
    "web page": lambda: Reply(
        body=gzip.compress(b"<p>" * 20_000_000, 1),
        headers={"content-encoding": "gzip", "content-type": "text/html"},
    ),
}


async def test_loop_has_its_turn_while_few_bytes_become_many() -> None:
    packed = gzip.compress(LONG_COMMENT * 100)
    sent = iter([packed])

    class Whole:
        has_ended = True

        async def read(self) -> bytes:
            return next(sent, b"")

        async def aclose(self) -> None:
            pass

    response = httpx2.Response(
        200, headers={"content-encoding": "gzip"}, extensions={BODY: Whole()}
    )
    split = ThinkingFilter(HELLO, Server())
    reply = ReplyStream(response, ReplyReader(HELLO), event_in, MAPPING, split)
    turns: list[int] = []
    pieces = [await reply.read()]
    while pieces[-1]:
        asyncio.get_running_loop().call_soon(turns.append, 1)
        pieces.append(await reply.read())

    assert b"".join(pieces) == packed
    assert max(map(len, pieces)) <= 256
    assert len(turns) >= len(pieces) - 3


@both
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
async def test_what_unpacks_to_60_mb_takes_less_than_20(
    wire: Wire,
    provider: ApiProvider,
    monkeypatch: pytest.MonkeyPatch,
    bomb: Callable[[], Reply],
) -> None:
    reply = bomb()  # the server is this process, too, and what it sends is small
    await answer(wire, provider, monkeypatch, Reply(status=500))  # all is imported
    tracemalloc.start()
    try:
        _, error = await answer(wire, provider, monkeypatch, reply)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert error is not None
    assert peak_bytes < 20_000_000


# -- arguments ------------------------------------------------------------------------------------


def called(wire: Wire, arguments: str) -> Reply:
    """A reply that is one whole call of the tool `look`."""
    if wire is MESSAGES:
        stop = event("content_block_stop", index=0)
        end: tuple[Step, ...] = (stop, *ending("tool_use"))
    else:
        end = (chunk({}, finish_reason="tool_calls"), DONE)
    return Reply(events=(*wire.start, *wire.called(arguments), *end))


class Look:
    spec = ToolSpec("look", "Looks.", {"type": "object"})
    timeout_s: float | None = None

    def __init__(self) -> None:
        self.seen: list[Mapping[str, Any]] = []

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> str:
        self.seen.append(arguments)
        return "seen"


NO_NUMBER = "a number that is not finite or has more than 600 digits: "
NOT_TAKEN = {
    "infinity": ('{"from": 1, "at": 1e999}', f"The argument 'at' is, or holds, {NO_NUMBER}"),
    "within": ('{"at": [{"x": -1e999}]}', f"The argument 'at' is, or holds, {NO_NUMBER}"),
    "NaN": ('{"at": NaN}', f"The argument 'at' is, or holds, {NO_NUMBER}"),
    "Infinity": ('{"at": -Infinity}', f"The argument 'at' is, or holds, {NO_NUMBER}"),
    "1,000 digits": (f'{{"at": {"9" * 1_000}}}', f"The argument 'at' is, or holds, {NO_NUMBER}"),
    "10,000 digits": (f'{{"at": {"9" * 10_000}}}', f"The arguments of the call hold {NO_NUMBER}"),
    "deep": (
        '{"at": ' + "[" * 300 + "]" * 300 + "}",
        "The arguments of the call hold too many lists or objects in one another: ",
    ),
    "very deep": (
        '{"at": ' + '{"x": ' * 100_000 + "1" + "}" * 100_000 + "}",
        "The arguments of the call hold too many lists or objects in one another: ",
    ),
    "a list": ("[1, 2]", "The arguments of the call are no JSON object: "),
    "many brackets": ("[" * 200_000, "The arguments of the call "),
}


@both
async def test_arguments_that_cannot_be_taken_are_reported_to_their_model_which_goes_on(
    wire: Wire, provider: ApiProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = ""

    def script(body: dict[str, Any]) -> Reply:
        if "Call it again" not in json.dumps(body["messages"]):
            return called(wire, NOT_TAKEN[case][0])
        return Reply(text="Without it, then.")

    tool = Look()
    with LoopbackServer(script) as server:
        monkeypatch.setenv(wire.url_variable, server.url + wire.url_path)
        for case, (_, words) in NOT_TAKEN.items():
            tree = await make_tree(provider, tools=[tool]).run("the task")

            assert tree.error is None, case
            assert tree.result.final_response == "Without it, then.", case
            messages = server.requests[-1].body["messages"]
            (told,) = [m for m in messages if "Call it again" in str(m)]
            assert words in str(told["content"]).replace("\\'", "'"), case
    assert tool.seen == []
    assert len(server.requests) == 2 * len(NOT_TAKEN)


@both
async def test_arguments_are_metered_while_they_come(
    wire: Wire, provider: ApiProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, more = wire.called('{"at": "')[0], wire.called("x" * 500)[-1]
    assert isinstance(more, tuple)
    drip = on_the_wire(more)
    with LoopbackServer(lambda _: Reply(events=(*wire.start, first, Drip(drip)))) as server:
        monkeypatch.setenv(wire.url_variable, server.url + wire.url_path)
        tree = await make_tree(provider, budget=5_000).run("the task")

    assert tree.statuses() == {"root": "exhausted"}
    assert tree.request.budget.tokens_used <= 5_000 + METERED_AT_ONCE


def test_short_call_is_metered_whole_and_a_long_one_ahead_once() -> None:
    arguments = CallArguments()
    told = []
    for _ in range(3):
        arguments.keep("x" * (METERED_AT_ONCE // 2))
        told.append(arguments.metered())
    assert told == [(), (ToolInputDelta("x" * METERED_AT_ONCE),), ()]


# -- counts, ids and reasons ----------------------------------------------------------------------

ODD_COUNTS = [-1, 7.5, "100", 1e300, 10**12, 10**300, True, [], {}, float("nan"), float("inf")]


@both
async def test_count_that_is_none_is_estimated(
    wire: Wire, provider: ApiProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for odd in ODD_COUNTS:
        if wire is MESSAGES:
            usage = {"input_tokens": odd, "output_tokens": odd, "cache_read_input_tokens": odd}
            start = event("message_start", message={"usage": usage})
            reply = Reply(events=(start, *wire.text("Hello."), *wire.close, *ending(usage=usage)))
        else:
            usage = {
                "prompt_tokens": odd,
                "completion_tokens": odd,
                "prompt_tokens_details": {"cached_tokens": odd},
            }
            end = (chunk({}, finish_reason="stop"), chunk(None, usage=usage), DONE)
            reply = Reply(events=(*wire.start, *wire.text("Hello."), *end))

        events, error = await answer(wire, provider, monkeypatch, reply)

        assert error is None, odd
        assert [each for each in events if isinstance(each, Usage)] == [], odd
        assert isinstance(events[-1], Stopped)


@both
async def test_unknown_stop_reason_breaks_the_reply_and_is_told_in_short_words(
    wire: Wire, provider: ApiProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd: list[Any] = [5, True, 1e300, ["x"], {"x": None}, "x" * 1_000_000, "tired\n", "error"]
    for reason in odd:
        end = ending(reason) if wire is MESSAGES else (chunk({}, finish_reason=reason), DONE)
        reply = Reply(events=(*wire.start, *wire.text("Hello."), *wire.close, *end))
        events, error = await answer(wire, provider, monkeypatch, reply)

        assert TextDelta("Hello.") in events
        assert isinstance(error, StreamBroken)
        assert error.retryable
        assert len(str(error)) < 400


@both
async def test_id_or_name_that_is_no_text_ends_the_reply_or_is_read_as_one(
    wire: Wire, provider: ApiProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for field in ("id", "name"):
        for odd in (5, True, 1.5, ["x"], {"x": "y"}):
            reply = _named(wire, **{field: odd})
            events, error = await answer(wire, provider, monkeypatch, reply)

            if error is None:  # some servers count their calls
                (use,) = [each for each in events if isinstance(each, ToolUse)]
                assert (field, use.id, wire.name) == ("id", str(odd), "completions")
            else:
                assert "an event of the wrong shape" in str(error), (field, odd)


@both
def test_record_of_a_run_whose_stop_reason_is_no_text_can_be_written_and_read(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    odd: Any = {"why": ["tired"]}
    if wire is MESSAGES:
        end: tuple[Step, ...] = ending(odd)
    else:
        end = (chunk({}, finish_reason=odd), DONE)
    reply = Reply(events=(*wire.start, *wire.text("Whole."), *wire.close, *end))
    for name, value in wire.variables.items():
        monkeypatch.setenv(name, value)
    provider = wire.provider()
    with LoopbackServer(lambda _: reply) as server:
        monkeypatch.setenv(wire.url_variable, server.url + wire.url_path)
        run = Session(f"{provider.name}/m", provider=provider).spawn("the task")
        with contextlib.suppress(LlmError):
            run.result(DEADLINE_S)
        get_runtime().submit(provider.aclose()).result(DEADLINE_S)

    run.to_json(tmp_path / "run.json")
    loaded = load_run(tmp_path / "run.json")

    assert run.agent("root").text == loaded.agent("root").text == "Whole."
    assert loaded.events == run.events
    assert loaded.to_json() == run.to_json()
