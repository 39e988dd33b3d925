"""The loopback server, called without the SDK: what it sends, counts, refuses and records."""

from __future__ import annotations

import contextlib
import gc
import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.loopback import (
    LoopbackServer,
    Reply,
    ToolCall,
    input_tokens,
    output_tokens,
    signature_of,
)

HEADERS = {"x-api-key": "a key", "anthropic-version": "2023-06-01"}
ANY = {"": "Hello."}


def body(**fields: Any) -> dict[str, Any]:
    asked = [{"role": "user", "content": "Say hello"}]
    return {"model": "m", "max_tokens": 100, "stream": True, "messages": asked, **fields}


@contextlib.contextmanager
def connection(server: LoopbackServer) -> Iterator[http.client.HTTPConnection]:
    client = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    try:
        yield client
    finally:
        client.close()


def post(
    client: http.client.HTTPConnection,
    request: Mapping[str, Any],
    *,
    headers: Mapping[str, str] = HEADERS,
    path: str = "/v1/messages",
) -> http.client.HTTPResponse:
    client.request("POST", path, json.dumps(request), dict(headers))
    return client.getresponse()


def events(response: http.client.HTTPResponse) -> list[tuple[str, dict[str, Any]]]:
    """The events of a whole stream, as names and data."""
    blocks = [block.split("\n") for block in response.read().decode().split("\n\n") if block]
    return [(name[len("event: ") :], json.loads(data[len("data: ") :])) for name, data in blocks]


def answer(server: LoopbackServer, request: Mapping[str, Any]) -> list[dict[str, Any]]:
    with connection(server) as client:
        return [data for _, data in events(post(client, request))]


def refusal(server: LoopbackServer, request: Mapping[str, Any], **how: Any) -> tuple[int, str, str]:
    with connection(server) as client:
        response = post(client, request, **how)
        error = json.loads(response.read())["error"]
    return response.status, error["type"], error["message"]


def text_of(stream: list[dict[str, Any]]) -> str:
    deltas = [data["delta"] for data in stream if data["type"] == "content_block_delta"]
    return "".join(delta.get("text", "") for delta in deltas)


# -- what it sends ------------------------------------------------------------------------


def test_stream_has_the_events_of_the_api_in_their_order() -> None:
    reply = Reply(
        text="Hello.", thinking="Hm.", tool_uses=[("look", {"at": "me"}), ToolCall("wait", id="t")]
    )
    with LoopbackServer({"": reply}) as server, connection(server) as client:
        response = post(client, body())
        stream = events(response)

    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert [name for name, _ in stream] == [data["type"] for _, data in stream]
    assert [name for name, _ in stream] == [
        "message_start",
        "ping",
        *(
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
        ),
        *("content_block_start", "content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_stop"),
        "message_delta",
        "message_stop",
    ]
    starts = [data for name, data in stream if name == "content_block_start"]
    assert [start["index"] for start in starts] == [0, 1, 2, 3]
    assert [start["content_block"]["type"] for start in starts] == [
        "thinking",
        "text",
        "tool_use",
        "tool_use",
    ]
    assert starts[2]["content_block"]["id"] == "toolu_0_0"
    assert starts[3]["content_block"]["id"] == "t"
    assert stream[4][1]["delta"] == {
        "type": "signature_delta",
        "signature": signature_of("Hm."),
    }
    assert stream[-2][1]["delta"]["stop_reason"] == "tool_use"


def test_text_comes_in_pieces_of_the_length_that_was_asked_for() -> None:
    with LoopbackServer({"": Reply(text="abcdefgh", chunk=3)}) as server:
        stream = answer(server, body())

    deltas = [data["delta"] for data in stream if data["type"] == "content_block_delta"]
    assert [delta["text"] for delta in deltas] == ["abc", "def", "gh"]


def test_usage_counts_the_bytes_that_came_and_went() -> None:
    request = body(system="Be kind.", tools=[{"name": "look", "input_schema": {}}])
    counted = [request["system"], request["messages"], request["tools"]]
    with LoopbackServer({"": "x" * 40}) as server:
        stream = answer(server, request)

    size = len(json.dumps(counted, separators=(",", ":")))
    assert stream[0]["message"]["usage"]["input_tokens"] == size // 4 == input_tokens(request)
    assert stream[-2]["usage"] == {"output_tokens": 10}
    assert output_tokens("é" * 6) == 3


def test_text_beyond_max_tokens_is_cut_and_the_stop_reason_says_so() -> None:
    with LoopbackServer({"": Reply(text="é" * 100, tool_uses=[("look", {})])}) as server:
        stream = answer(server, body(max_tokens=3))

    assert text_of(stream) == "é" * 6
    assert stream[-2]["delta"]["stop_reason"] == "max_tokens"
    assert stream[-2]["usage"] == {"output_tokens": 3}
    assert not any(data.get("content_block", {}).get("type") == "tool_use" for data in stream)


def test_tool_input_beyond_max_tokens_is_cut_in_the_middle() -> None:
    with LoopbackServer({"": Reply(tool_uses=[("look", {"at": "x" * 100})])}) as server:
        stream = answer(server, body(max_tokens=2))

    deltas = [data["delta"] for data in stream if data["type"] == "content_block_delta"]
    assert [delta["partial_json"] for delta in deltas] == ['{"at":"x']
    assert stream[-2]["delta"]["stop_reason"] == "max_tokens"


def test_events_of_the_script_replace_the_whole_stream() -> None:
    raw = Reply(events=[("odd", "not json"), ("ping", {"type": "ping"})])
    with LoopbackServer({"": raw}) as server, connection(server) as client:
        content = post(client, body()).read()

    assert content == b'event: odd\ndata: not json\n\nevent: ping\ndata: {"type":"ping"}\n\n'


def test_scripted_error_comes_with_its_status_type_headers_and_words() -> None:
    reply = Reply(status=529, message="Overloaded", headers={"retry-after": "7"})
    with LoopbackServer({"": reply}) as server, connection(server) as client:
        response = post(client, body())
        content = json.loads(response.read())

    assert response.status == 529
    assert response.headers["retry-after"] == "7"
    assert content == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "Overloaded"},
    }


# -- scripts --------------------------------------------------------------------------------


def test_rules_answer_by_the_last_user_message_one_reply_after_the_other() -> None:
    turns = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "second"},
        {"role": "user", "content": [{"type": "text", "text": "third"}]},
    ]
    rules: dict[str, Any] = {"first": "never", "third": ["once", Reply(text="twice")]}
    with LoopbackServer(rules) as server:
        said = [text_of(answer(server, body(messages=turns))) for _ in range(2)]
        spent = refusal(server, body(messages=turns))
        unknown = refusal(server, body())

    assert said == ["once", "twice"]
    assert spent == (400, "invalid_request_error", "The script has no reply left for 'third'")
    assert unknown == (400, "invalid_request_error", "The script has no rule for 'Say hello'")


def test_callable_gets_the_body_and_what_it_raises_reaches_the_client() -> None:
    with LoopbackServer(lambda request: str(request["wish"])) as server:
        granted = answer(server, body(wish="granted"))
        status, _, message = refusal(server, body())

    assert text_of(granted) == "granted"
    assert status == 400
    assert "KeyError('wish')" in message


# -- what it refuses --------------------------------------------------------------------------

TOOL_USE = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "seen"}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": signature_of("Hm.")}
MARK = {"cache_control": {"type": "ephemeral"}}


def said(*turns: Any) -> dict[str, Any]:
    """Alternating turns of user and assistant, after a first question."""
    roles = ["user", "assistant"] * len(turns)
    contents = ["Say hello", *turns]
    return {"messages": [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model": None}, "model"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"stream": False}, "stream"),
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "assistant", "content": "Hi"}]}, "first message"),
        ({"messages": [{"role": "robot", "content": "Hi"}]}, "role"),
        ({"messages": [{"role": "user", "content": ""}]}, "non-empty content"),
        (said([{"type": "text", "text": ""}]), "must be non-empty"),
        (said([{"type": "text", "text": " \n"}]), "non-whitespace"),
        ({"system": [{"type": "text", "text": ""}]}, "system: text content blocks"),
        (said([TOOL_USE], "No."), "without `tool_result` blocks immediately after: t1"),
        (said([TOOL_USE]), "without `tool_result` blocks immediately after: t1"),
        (said([{**TOOL_USE, "id": "look:0"}]), "tool_use.id: String should match pattern"),
        (said("Hi", [RESULT]), "unexpected `tool_use_id`"),
        (said([TOOL_USE], [RESULT, RESULT]), "more than one `tool_result`"),
        (said([{**THOUGHT, "signature": "forged"}, TOOL_USE], [RESULT]), "Invalid `signature`"),
        (said([{**THOUGHT, **MARK}, TOOL_USE], [RESULT]), "cache_control"),
        (said([THOUGHT], "Go on"), "final block"),
        ({"tools": [{"name": "two words", "input_schema": {}}]}, "tools.0.name"),
        ({"tools": [{"name": "a", "input_schema": {}}] * 2}, "unique"),
        ({"system": [{"type": "text", "text": "x", **MARK}] * 5}, "Found 5"),
        ({"system": "\ud83d"}, "not valid JSON"),
    ],
)
def test_request_that_the_api_would_refuse_is_refused(fields: dict[str, Any], words: str) -> None:
    with LoopbackServer(ANY) as server:
        status, kind, message = refusal(server, body(**fields))

    assert (status, kind) == (400, "invalid_request_error")
    assert words in message


def test_request_that_uses_everything_is_accepted() -> None:
    turns = said([THOUGHT, {"type": "text", "text": "Let me see."}, TOOL_USE], [{**RESULT, **MARK}])
    system = [{"type": "text", "text": "Be kind.", **MARK}, {"type": "text", "text": "Be brief."}]
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    with LoopbackServer({"seen": "Hello."}) as server:
        stream = answer(server, body(**turns, system=system, tools=tools))

    assert text_of(stream) == "Hello."


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({}, "x-api-key header is required"),
        ({"authorization": "Bearer "}, "x-api-key header is required"),
        ({"x-api-key": "stolen"}, "invalid x-api-key"),
        ({"authorization": "Bearer stolen"}, "invalid x-api-key"),
    ],
)
def test_request_without_a_key_that_is_taken_is_a_401(headers: dict[str, str], words: str) -> None:
    with LoopbackServer(ANY, keys=["mine"]) as server:
        refused = refusal(server, body(), headers={**HEADERS, "x-api-key": "", **headers})

    assert refused == (401, "authentication_error", words)


@pytest.mark.parametrize("name", ["x-api-key", "authorization"])
def test_key_is_taken_from_either_header(name: str) -> None:
    value = {"x-api-key": "mine", "authorization": "Bearer mine"}[name]
    headers = {"anthropic-version": "2023-06-01", name: value}
    with LoopbackServer(ANY, keys=["mine"]) as server, connection(server) as client:
        response = post(client, body(), headers=headers)
        response.read()

    assert response.status == 200


def test_unknown_path_is_a_404_and_the_connection_lives_on() -> None:
    with LoopbackServer(ANY) as server, connection(server) as client:
        lost = post(client, body(), path="/v2/messages")
        lost.read()
        found = post(client, body())
        found.read()

    assert (lost.status, found.status) == (404, 200)
    assert [request.connection for request in server.requests] == [0, 0]


# -- what it records and what a test can wait for ------------------------------------------------


def test_requests_are_recorded_in_order_with_lower_case_headers_and_parsed_body() -> None:
    with LoopbackServer(ANY) as server:
        answer(server, body(model="one"))
        answer(server, body(model="two"))

    assert [(r.number, r.connection, r.body["model"]) for r in server.requests] == [
        (0, 0, "one"),
        (1, 1, "two"),
    ]
    assert server.requests[0].headers["x-api-key"] == "a key"
    assert (server.requests[0].method, server.requests[0].path) == ("POST", "/v1/messages")


def test_held_stream_has_sent_its_first_text_and_ends_when_it_is_let_go() -> None:
    hold = threading.Event()
    with (
        LoopbackServer({"": Reply(text="abcdef", chunk=3, hold=hold)}) as server,
        connection(server) as one,
        connection(server) as two,
    ):
        held = [post(client, body()) for client in (one, two)]
        server.wait_streaming(2)
        began = [read_until(response, b'"abc"') for response in held]
        streaming = server.streaming
        hold.set()
        ends = [response.read() for response in held]

    assert streaming == 2
    assert all(b'"def"' not in content for content in began)
    assert all(b'"def"' in content and b"message_stop" in content for content in ends)
    assert server.closed == []


def read_until(response: http.client.HTTPResponse, part: bytes) -> bytes:
    content = b""
    while part not in content:
        content += response.readline()
    return content


def test_stream_of_which_only_one_was_let_go_leaves_the_other_held() -> None:
    holds = {"one": threading.Event(), "two": threading.Event()}

    def script(request: dict[str, Any]) -> Reply:
        return Reply(text="abcdef", chunk=3, hold=holds[request["model"]])

    with LoopbackServer(script) as server:
        with connection(server) as one, connection(server) as two:
            first, second = post(one, body(model="one")), post(two, body(model="two"))
            holds["one"].set()
            assert b"message_stop" in first.read()
            read_until(second, b'"abc"')
        server.wait_closed(1)

        assert [request.body["model"] for request in server.closed] == ["two"]


def test_client_that_hangs_up_on_a_held_stream_is_seen() -> None:
    hold = threading.Event()
    with LoopbackServer({"": Reply(text="abcdef", hold=hold)}) as server:
        with connection(server) as client:
            read_until(post(client, body(model="left")), b'"abcdef"')
        server.wait_closed(1)
        server.wait_disconnected()

        assert [request.body["model"] for request in server.closed] == ["left"]
        assert server.streaming == 0
        assert server.open_connections == 0


def test_leaving_the_server_lets_go_of_what_is_held_and_cuts_it() -> None:
    hold = threading.Event()
    with LoopbackServer({"": Reply(text="abcdef", hold=hold)}) as server:
        client = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)
        held = post(client, body())
        server.wait_streaming(1)

    with contextlib.closing(client), pytest.raises((http.client.HTTPException, ConnectionError)):
        held.read()
    assert hold.is_set()


def test_bytes_that_are_no_request_end_the_connection_and_nothing_else() -> None:
    with LoopbackServer(ANY) as server:
        host, port = urlsplit(server.url).hostname, urlsplit(server.url).port
        with socket.create_connection((host, port), timeout=60) as client:
            client.sendall(b"nonsense\r\n\r\n")
            assert client.recv(100) == b""
        assert text_of(answer(server, body())) == "Hello."
        assert len(server.requests) == 1


def test_client_that_connects_and_says_nothing_is_let_go_at_the_end() -> None:
    for _ in range(20):
        with LoopbackServer(ANY) as server:
            host, port = urlsplit(server.url).hostname, urlsplit(server.url).port
            client = socket.create_connection((host, port), timeout=60)
        with client, contextlib.suppress(ConnectionError):
            assert client.recv(100) == b""
    gc.collect()  # a connection that was left open would be reported now
