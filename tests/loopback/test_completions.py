"""The loopback server's chat completions, called without the SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.loopback import LoopbackServer, Reply, ToolCall, output_tokens
from tests.loopback.completions import prompt_tokens
from tests.loopback.test_server import connection, post

PATH = "/v1/chat/completions"
USER = {"role": "user", "content": "Say hello"}
CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "seen"}


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 100, "stream": True, "messages": [USER], **fields}


def answer(server: LoopbackServer, request: dict[str, Any]) -> list[Any]:
    """The data of a whole stream; the end mark is a string."""
    with connection(server) as client:
        events = post(client, request, path=PATH).read().decode().split("\n\n")
    assert events.pop() == ""
    lines = [event.removeprefix("data: ") for event in events]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def refusal(server: LoopbackServer, request: dict[str, Any], **how: Any) -> tuple[int, str, str]:
    with connection(server) as client:
        response = post(client, request, path=PATH, **how)
        error = json.loads(response.read())["error"]
    return response.status, error["code"], error["message"]


def test_stream_has_the_chunks_of_openai_in_their_order() -> None:
    reply = Reply(text="Hello.", thinking="Hm.", tool_uses=[("look", {"at": 1}), ToolCall("b")])
    with LoopbackServer({"": reply}) as server:
        *chunks, end = answer(server, body())

    assert end == "[DONE]"
    (choices,) = zip(*(chunk["choices"] for chunk in chunks), strict=True)
    name = {"name": "look", "arguments": ""}
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"reasoning_content": "Hm."},
        {"content": "Hello."},
        {
            "tool_calls": [{"index": 0, "id": "call_0_0", "type": "function", "function": name}],
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"at":1}'}}]},
        {
            "tool_calls": [
                {
                    "index": 1,
                    "id": "call_0_1",
                    "type": "function",
                    "function": {"name": "b", "arguments": ""},
                }
            ]
        },
        {"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]},
        {},
    ]
    assert [choice["finish_reason"] for choice in choices] == [None] * 7 + ["tool_calls"]


def test_usage_comes_last_and_only_where_it_was_asked_for() -> None:
    with LoopbackServer({"": "x" * 40}) as server:
        without = answer(server, body())
        asked = body(stream_options={"include_usage": True})
        counted = answer(server, asked)[-2]

    assert not any("usage" in chunk for chunk in without if chunk != "[DONE]")
    assert counted["choices"] == []
    assert counted["usage"]["prompt_tokens"] == prompt_tokens(asked)
    assert counted["usage"]["completion_tokens"] == output_tokens("x" * 40) == 10


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
def test_text_beyond_the_limit_is_cut_by_whatever_name_it_has(limit: str) -> None:
    request = body(**{"max_tokens": 3})
    request[limit] = request.pop("max_tokens")
    with LoopbackServer({"": Reply(text="é" * 100, tool_uses=[("look", {})])}) as server:
        *chunks, _ = answer(server, request)

    said = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert said == "é" * 6
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert not any("tool_calls" in chunk["choices"][0]["delta"] for chunk in chunks)


def test_rules_look_at_the_results_of_tools_too() -> None:
    with LoopbackServer({"seen": "Yes.", "hello": "No."}) as server:
        *chunks, _ = answer(server, body(messages=[USER, CALLED, RESULT]))

    assert chunks[1]["choices"][0]["delta"] == {"content": "Yes."}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model": ""}, "model"),
        ({"stream": False}, "only streams"),
        ({"max_completion_tokens": 5}, "'max_completion_tokens' is not supported"),
        ({"max_tokens": 0}, "Invalid 'max_tokens'"),
        ({"system": "x"}, "'system'"),
        ({"messages": []}, "'messages'"),
        ({"messages": [{"role": "user", "content": ""}]}, "expected a string"),
        ({"messages": [{"role": "user", "content": [{}]}]}, "Invalid type"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "role"),
        ({"messages": [USER, {"role": "system", "content": "x"}]}, "must be first"),
        ({"messages": [USER, CALLED]}, "did not have response messages"),
        ({"messages": [USER, CALLED, USER]}, "did not have response messages"),
        ({"messages": [USER, RESULT]}, "no 'tool_calls' precede"),
        ({"messages": [USER, CALLED, RESULT, RESULT]}, "no 'tool_calls' precede"),
        ({"tools": []}, "too short"),
        ({"tools": [{"name": "look"}]}, "tools.type"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "function.name"),
    ],
)
def test_what_openai_refuses_is_refused(fields: dict[str, Any], words: str) -> None:
    with LoopbackServer({"": "Hello."}) as server:
        status, _, message = refusal(server, body(**fields))

    assert status == 400
    assert words in message


def test_key_counts_only_where_there_are_keys() -> None:
    with LoopbackServer({"": "Hello."}, keys=["good"]) as server:
        refused = refusal(server, body(), headers={"authorization": "Bearer bad"})
        missing = refusal(server, body(), headers={})

    assert refused == missing == (401, "invalid_api_key", "Incorrect API key provided")
