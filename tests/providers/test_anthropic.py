"""The provider for the real API: through the real SDK, over real sockets, to a server of ours."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from agentnb.core.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    InvalidRequest,
    LlmError,
    MissingKey,
    ModelNotFound,
    NoCredit,
    Overloaded,
    RateLimited,
    ServerFailed,
    StreamBroken,
)
from agentnb.core.protocols import Provider
from agentnb.core.types import (
    FINAL_ANSWER,
    MALFORMED_INPUT,
    Block,
    CompletionRequest,
    Message,
    OpaqueBlock,
    Role,
    Stopped,
    StreamEvent,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolResultBlock,
    ToolSpec,
    ToolUse,
    ToolUseBlock,
    Usage,
    assistant_message,
    user_message,
)
from agentnb.providers.anthropic import AnthropicProvider
from agentnb.providers.anthropic_wire import body_of
from agentnb.providers.client_pool import settings_of
from agentnb.providers.ends import MAY_BE_CUT
from agentnb.providers.servers import Server
from tests.loopback import Event, LoopbackServer, Reply, Step, ToolCall, input_tokens, signature_of

KEY = "sk-ant-api03-not-a-real-key"
HELLO = CompletionRequest(model="m", system="", messages=(user_message("Say hello"),))


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AnthropicProvider]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    provider = AnthropicProvider()
    yield provider
    await provider.aclose()


@contextlib.contextmanager
def serving(
    monkeypatch: pytest.MonkeyPatch, reply: Any = "Hello.", *, keys: Sequence[str] | None = None
) -> Iterator[LoopbackServer]:
    """A server that gives this reply, or this script's, to everything."""
    script = reply if callable(reply) or isinstance(reply, dict) else {"": reply}
    with LoopbackServer(script, keys=keys) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        yield server


@contextlib.asynccontextmanager
async def silent_server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[asyncio.Event]:
    """Takes one request, sets the event, answers nothing; ends once the client hung up."""
    asked, left = asyncio.Event(), asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.read(1):
            asked.set()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        left.set()

    listening = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    monkeypatch.setenv("ANTHROPIC_BASE_URL", f"http://127.0.0.1:{port}")
    async with listening:
        yield asked
        await left.wait()


async def events_of(
    provider: AnthropicProvider, request: CompletionRequest = HELLO
) -> list[StreamEvent]:
    async with contextlib.aclosing(provider.stream(request)) as stream:
        return [event async for event in stream]


async def failure_of(
    provider: AnthropicProvider, request: CompletionRequest = HELLO
) -> tuple[LlmError, list[StreamEvent]]:
    """The error that a call ends with, and what came before it."""
    events: list[StreamEvent] = []
    try:
        async with contextlib.aclosing(provider.stream(request)) as stream:
            async for event in stream:
                events.append(event)
    except LlmError as error:
        return error, events
    pytest.fail(f"the call did not fail: {events}")


def raw(*events: Mapping[str, Any] | str | threading.Event) -> Reply:
    """A reply of exactly these events."""
    steps: list[Step] = []
    for data in events:
        match data:
            case str():
                steps.append(("message", data))
            case threading.Event():
                steps.append(data)
            case _:
                steps.append((data["type"], data))
    return Reply(events=steps)


def start(usage: Any = None) -> dict[str, Any]:
    return {"type": "message_start", "message": {"usage": usage}}


def block(index: int, content: Mapping[str, Any], *deltas: Mapping[str, Any]) -> list[Any]:
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text(index: int, *pieces: str) -> list[Any]:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return block(index, {"type": "text", "text": ""}, *deltas)


def tool(index: int, partial: str) -> list[Any]:
    delta = {"type": "input_json_delta", "partial_json": partial}
    content = {"type": "tool_use", "id": f"t{index}", "name": "look", "input": {}}
    return block(index, content, delta)


def end(reason: str | None = "end_turn", usage: Any = None) -> list[Any]:
    delta = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}
    return [delta, {"type": "message_stop"}]


def stopped(events: list[StreamEvent]) -> Stopped:
    assert isinstance(events[-1], Stopped)
    return events[-1]


def from_(server: LoopbackServer) -> dict[str, Any]:
    """`extra` of thinking that came from a server."""
    return {f"anthropic {server.url}": {"type": None}}


# -- what comes back -----------------------------------------------------------------------


async def test_reply_becomes_our_events_and_a_message_to_send_back(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = Reply(
        thinking="Let me see.",
        text="Hello there.",
        tool_uses=[("look", {"at": ["é", 1, None]}), ToolCall("wait", id="w")],
        chunk=6,
    )
    with serving(monkeypatch, reply) as server:
        events = await events_of(provider)

    look = ToolUse("toolu_0_0", "look", {"at": ["é", 1, None]})
    wait = ToolUse("w", "wait", {})
    size = input_tokens(server.requests[0].body)
    written = "Let me see.Hello there." + '{"at":["é",1,null]}'
    total = Usage(size, len(written.encode()) // 4)
    message = Message(
        Role.ASSISTANT,
        (
            ThinkingBlock("Let me see.", signature_of("Let me see."), extra=from_(server)),
            TextBlock("Hello there."),
            ToolUseBlock(look.id, look.name, look.input),
            ToolUseBlock(wait.id, wait.name, wait.input),
        ),
    )
    assert events == [
        Usage(size, 1),
        ThinkingDelta("Let me"),
        ThinkingDelta(" see."),
        TextDelta("Hello "),
        TextDelta("there."),
        look,
        wait,
        total,
        Stopped("tool_use", message),
    ]


async def test_message_of_a_reply_is_taken_back_by_the_api(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Reply(thinking="Hm.", text="Let me look.", tool_uses=[ToolCall("look", id="t1")])
    with serving(monkeypatch, {"Say hello": first, "seen": "Hello."}):
        asked = stopped(await events_of(provider)).message
        seen = Message(Role.USER, (ToolResultBlock("t1", "seen"),))
        again = CompletionRequest("m", "", (*HELLO.messages, asked, seen))
        answer = stopped(await events_of(provider, again))

    assert answer == Stopped("end_turn", Message(Role.ASSISTANT, (TextBlock("Hello."),)))


async def test_redacted_thinking_goes_back_as_it_came(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    redacted = {"type": "redacted_thinking", "data": "c2VjcmV0"}
    replies = [raw(start(), *block(0, redacted), *text(1, "Hello."), *end()), Reply(text="Bye.")]
    with serving(monkeypatch, {"": replies}) as server:
        message = stopped(await events_of(provider)).message
        again = CompletionRequest("m", "", (*HELLO.messages, message, user_message("And?")))
        await events_of(provider, again)

    assert message.content == (
        ThinkingBlock("", redacted_data="c2VjcmV0", extra=from_(server)),
        TextBlock("Hello."),
    )
    assert server.requests[1].body["messages"][1]["content"][0] == redacted


async def test_what_a_block_holds_from_its_start_is_not_lost(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    call = {"type": "tool_use", "id": "t", "name": "look", "input": {"at": 1}}
    full = {"type": "text", "text": "Hel"}
    delta = {"type": "text_delta", "text": "lo."}
    reply = raw(
        start(), *block(0, thinking), *block(1, full, delta), *block(2, call), *end("tool_use")
    )
    with serving(monkeypatch, reply) as server:
        events = await events_of(provider)

    assert events[:-1] == [
        ThinkingDelta("Hm."),
        TextDelta("Hel"),
        TextDelta("lo."),
        ToolUse("t", "look", {"at": 1}),
    ]
    assert stopped(events).message.content == (
        ThinkingBlock("Hm.", "s", extra=from_(server)),
        TextBlock("Hello."),
        ToolUseBlock("t", "look", {"at": 1}),
    )


async def test_blocks_and_fields_that_are_not_known_go_back_as_they_came(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    query = {"type": "input_json_delta", "partial_json": '{"query": "x"}'}
    hits = [{"type": "web_search_result", "encrypted_content": each} for each in ("En", "Em")]
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": hits}
    said = {"type": "text", "text": "Hi", "citations": None}
    quotes: list[dict[str, Any]]
    quotes = [{"type": "char_location", "cited_text": each} for each in "xyx"]
    quotes += [{"type": "passage", "index": 0, "text": each} for each in "xyx"]
    cited = [{"type": "citations_delta", "citation": quote} for quote in quotes]
    folded = {"type": "compaction", "content": "so "}
    more = {"type": "compaction_delta", "content": "far"}
    call = {"type": "tool_use", "id": "t", "name": "look", "input": {"a": 1}, "caller": {"b": 2}}
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s", "depth": 1}
    signed = [{"type": "signature_delta", "signature": each} for each in (None, "s", None, "")]
    signed += [{"type": "signature_delta"}, {"type": "thinking_delta", "thinking": None}]
    at_end = {"type": "thinking_delta", "signature": "t"}  # of Bifrost
    sealed = {"type": "redacted_thinking", "data": "c2VjcmV0", "seal": {"by": "x"}}
    blocks: list[tuple[dict[str, Any], ...]] = [
        (search, query),
        (found,),
        (said, *cited),
        (folded, more),
        ({**thought, "signature": None}, *signed),
        ({**thought, "signature": ""}, at_end),
        (sealed,),
        (call,),
    ]
    events = [each for at, parts in enumerate(blocks) for each in block(at, *parts)]
    with serving(monkeypatch, raw(start(), *events, *end("tool_use"))) as server:
        message = stopped(await events_of(provider)).message

    results = Message(Role.USER, (ToolResultBlock("t", "seen"),))
    request = CompletionRequest("m", "", (*HELLO.messages, message, results))
    assert body_of(request)["messages"][1]["content"] == [
        {"type": "text", "text": "Hi"},
        {"type": "tool_use", "id": "t", "name": "look", "input": {"a": 1}},
    ]
    home = Server(f"anthropic {server.url}")
    assert body_of(request, server=home)["messages"][1]["content"] == [
        {**search, "input": {"query": "x"}},
        found,
        {"type": "text", "text": "Hi", "citations": quotes},
        {"type": "compaction", "content": "so far"},
        thought,
        {**thought, "signature": "t"},
        sealed,
        call,
    ]


async def test_tool_call_is_one_whatever_end_its_server_names(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(monkeypatch, raw(start(), *tool(0, "{}"), *end("end_turn"))):
        assert stopped(await events_of(provider)).reason == "tool_use"


async def test_events_and_blocks_that_are_not_known_are_passed_over(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = {"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta", "x": 1}}
    odd = block(0, {"type": "new_block"}, {"type": "text_delta", "text": "unheard"})
    reply = raw(start(), {"type": "new_event"}, *odd[:1], new, odd[2], *text(1, "Hello."), *end())
    with serving(monkeypatch, reply):
        events = await events_of(provider)

    assert events[:-1] == [TextDelta("Hello.")]
    assert stopped(events).message.text == "Hello."


@pytest.mark.parametrize(
    ("reason", "told"),
    [("refusal", "refusal"), ("pause_turn", "pause_turn"), (None, "end_turn")],
)
async def test_stop_reason_is_the_apis_own_word(
    provider: AnthropicProvider,
    monkeypatch: pytest.MonkeyPatch,
    reason: str | None,
    told: str,
) -> None:
    with serving(monkeypatch, raw(start(), *text(0, "Hm."), *end(reason))):
        assert stopped(await events_of(provider)).reason == told


async def test_reply_without_a_word_is_a_message_without_blocks(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(monkeypatch, raw(start(), *text(0), *end())):
        assert await events_of(provider) == [Stopped("end_turn", Message(Role.ASSISTANT, ()))]


async def test_nothing_after_the_end_mark_is_read_or_waited_for(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = threading.Event()
    reply = raw(start(), *text(0, "Hello."), *end(), "not json", never)
    with serving(monkeypatch, reply) as server:
        events = await events_of(provider)
        await asyncio.to_thread(server.wait_closed)

    assert stopped(events).message.text == "Hello."
    assert not any(isinstance(event, TextDelta) for event in events[1:])


async def test_calls_one_after_the_other_share_a_connection(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(monkeypatch) as server:
        for _ in range(3):
            await events_of(provider)

    assert [request.connection for request in server.requests] == [0, 0, 0]


# -- tool calls that were cut ------------------------------------------------------------------


async def test_tool_call_cut_by_max_tokens_is_neither_reported_nor_sent_back(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [("look", {"at": "a"}), ("look", {"at": "b" * 100})]
    with serving(monkeypatch, Reply(text="Hm.", tool_uses=calls)):
        request = CompletionRequest("m", "", HELLO.messages, max_tokens=10)
        events = await events_of(provider, request)

    whole = ToolUseBlock("toolu_0_0", "look", {"at": "a"})
    assert [e.id for e in events if isinstance(e, ToolUse)] == ["toolu_0_0"]
    assert stopped(events) == Stopped(
        "max_tokens", Message(Role.ASSISTANT, (TextBlock("Hm."), whole))
    )


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal"])
async def test_tool_call_cut_before_its_first_argument_is_not_one_without_arguments(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    with serving(monkeypatch, raw(start(), *tool(0, ""), *end(reason))):
        events = await events_of(provider)

    assert events == [Stopped(reason, Message(Role.ASSISTANT, ()))]


async def test_tool_call_without_arguments_counts_once_something_follows_it(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = [*tool(0, ""), *tool(1, '{"at'), *end("max_tokens")]
    with serving(monkeypatch, raw(start(), *cut)):
        events = await events_of(provider)

    assert events[:-1] == [ToolUse("t0", "look", {})]
    assert stopped(events).message.content == (ToolUseBlock("t0", "look", {}),)


async def test_tool_call_without_arguments_counts_when_no_stop_reason_came(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(monkeypatch, raw(start(), *tool(0, ""), {"type": "message_stop"})):
        events = await events_of(provider)

    message = Message(Role.ASSISTANT, (ToolUseBlock("t0", "look", {}),))
    assert events == [ToolUse("t0", "look", {}), Stopped("tool_use", message, MAY_BE_CUT)]


@pytest.mark.parametrize("partial", ['{"at', "[1]", '"at"', "null", '{"at": NaN}'])
@pytest.mark.parametrize("stop", [end("tool_use"), [*tool(1, '{"at": 1}'), *end("tool_use")]])
async def test_tool_call_that_was_not_cut_and_is_no_object_is_reported_with_what_was_written(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, partial: str, stop: list[Any]
) -> None:
    with serving(monkeypatch, raw(start(), *tool(0, partial), *stop)):
        events = await events_of(provider)

    written = {MALFORMED_INPUT: partial}
    assert events[0] == ToolUse("t0", "look", written)
    assert stopped(events).reason == "tool_use"
    assert stopped(events).message.content[0] == ToolUseBlock("t0", "look", written)


async def test_tool_call_whose_input_stands_in_its_beginning_and_is_no_object_is_reported(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = block(0, {"type": "tool_use", "id": "t0", "name": "look", "input": [1]})
    with serving(monkeypatch, raw(start(), *call, *end("tool_use"))):
        events = await events_of(provider)

    assert events[0] == ToolUse("t0", "look", {MALFORMED_INPUT: "[1]"})


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal"])
async def test_tool_call_that_was_cut_within_its_input_is_not_reported(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    with serving(monkeypatch, raw(start(), *tool(0, '{"at'), *end(reason))):
        events = await events_of(provider)

    assert events == [Stopped(reason, Message(Role.ASSISTANT, ()))]


async def test_tool_call_that_does_not_end_breaks_a_reply_that_does(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(monkeypatch, raw(start(), *tool(0, '{"at": 1}')[:-1], *end("tool_use"))):
        error, events = await failure_of(provider)

    assert type(error) is StreamBroken
    assert "a tool call without an end. Try again." in str(error)
    assert events == []


# -- usage --------------------------------------------------------------------------------------


async def test_usage_of_the_end_replaces_that_of_the_start_field_by_field(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = {
        "input_tokens": 100,
        "output_tokens": 1,
        "cache_creation_input_tokens": 20,
        "cache_read_input_tokens": 30,
    }
    last = {"output_tokens": 7, "cache_read_input_tokens": 31, "input_tokens": None}
    with serving(monkeypatch, raw(start(first), *text(0, "Hi"), *end(usage=last))):
        events = await events_of(provider)

    assert events[0] == Usage(100, 1, cache_creation_tokens=20, cache_read_tokens=30)
    assert events[-2] == Usage(100, 7, cache_creation_tokens=20, cache_read_tokens=31)


@pytest.mark.parametrize("nonsense", [None, -1, "12", 3.5, True, [], {"n": 1}])
async def test_count_that_is_none_says_nothing(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, nonsense: Any
) -> None:
    first = {"input_tokens": 100, "output_tokens": nonsense}
    last = {"input_tokens": nonsense, "output_tokens": 7, "cache_read_input_tokens": nonsense}
    with serving(monkeypatch, raw(start(first), *text(0, "Hi"), *end(usage=last))):
        events = await events_of(provider)

    assert [e for e in events if isinstance(e, Usage)] == [Usage(100, 0), Usage(100, 7)]


@pytest.mark.parametrize("nonsense", [None, {}, "many", 5, {"input_tokens": None}])
async def test_usage_without_a_single_count_is_not_reported(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, nonsense: Any
) -> None:
    reply = raw(start(nonsense), *text(0, "Hi"), *end(usage=nonsense))
    with serving(monkeypatch, reply):
        assert not any(isinstance(event, Usage) for event in await events_of(provider))


# -- what is sent -----------------------------------------------------------------------------


async def sent(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, request: CompletionRequest
) -> dict[str, Any]:
    """The body of a request as it arrived, after the API accepted it."""
    with serving(monkeypatch) as server:
        await events_of(provider, request)
    body: dict[str, Any] = server.requests[0].body
    return body


async def test_request_goes_out_as_it_was_asked(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = {"type": "object", "properties": {"at": {"type": "string"}}}
    request = CompletionRequest(
        model="claude-x",
        system="Be kind.",
        messages=(user_message("Say hello"),),
        tools=(ToolSpec("look", "Looks at something.", schema),),
        max_tokens=77,
        extra={"temperature": 0.5, "metadata": {"user_id": "u"}},
    )

    assert await sent(provider, monkeypatch, request) == {
        "model": "claude-x",
        "max_tokens": 77,
        "system": "Be kind.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Say hello"}]}],
        "tools": [{"name": "look", "description": "Looks at something.", "input_schema": schema}],
        "stream": True,
        "temperature": 0.5,
        "metadata": {"user_id": "u"},
    }


async def test_every_kind_of_block_goes_out_in_the_apis_form(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Message(
        Role.ASSISTANT,
        (
            ThinkingBlock("Hm.", signature_of("Hm.")),
            ThinkingBlock("", redacted_data="c2VjcmV0"),
            TextBlock("Let me look."),
            ToolUseBlock("t1", "look", {"at": 1}),
            ToolUseBlock("t2", "look", {}),
        ),
    )
    results = (ToolResultBlock("t1", "seen"), ToolResultBlock("t2", "", is_error=True))
    request = CompletionRequest(
        "m", "", (*HELLO.messages, said, Message(Role.USER, (*results, TextBlock("And?"))))
    )

    body = await sent(provider, monkeypatch, request)

    assert "system" not in body
    assert "tools" not in body
    assert body["messages"][1] == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": signature_of("Hm.")},
            {"type": "redacted_thinking", "data": "c2VjcmV0"},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}},
            {"type": "tool_use", "id": "t2", "name": "look", "input": {}},
        ],
    }
    assert body["messages"][2]["content"][:2] == [
        {"type": "tool_result", "tool_use_id": "t1", "content": "seen"},
        {"type": "tool_result", "tool_use_id": "t2", "is_error": True},
    ]


@pytest.mark.parametrize(
    "content",
    [(), (TextBlock(""), TextBlock(" \n")), (ThinkingBlock("Hm.", signature_of("Hm.")),)],
)
async def test_assistant_message_without_words_says_that_there_was_no_output(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, content: tuple[Block, ...]
) -> None:
    messages = (*HELLO.messages, Message(Role.ASSISTANT, content), user_message("And?"))

    body = await sent(provider, monkeypatch, CompletionRequest("m", "", messages))

    assert body["messages"][1]["content"][-1] == {"type": "text", "text": "(no output)"}


async def test_thinking_without_a_signature_goes_back_until_the_api_refuses_it(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(monkeypatch, Reply(text="Yes.")) as server:
        thought = ThinkingBlock("Hm.", extra=from_(server))
        said = Message(Role.ASSISTANT, (thought, TextBlock("Hello.")))
        request = CompletionRequest("m", "", (*HELLO.messages, said, user_message("And?")))
        for _ in range(2):
            assert stopped(await events_of(provider, request)).reason == "end_turn"

        text = {"type": "text", "text": "Hello."}
        first, *others = [each.body["messages"][1]["content"] for each in server.requests]
        assert first == [{"type": "thinking", "thinking": "Hm."}, text]
        assert others == [[text], [text]]


async def test_system_of_white_space_is_left_out(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = await sent(provider, monkeypatch, CompletionRequest("m", " \n", HELLO.messages))

    assert "system" not in body


# -- lone surrogates ----------------------------------------------------------------------------

LONE = "a\ud83db"
MENDED = "a\ufffdb"


async def test_lone_surrogate_is_replaced_wherever_it_would_be_sent(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Message(Role.ASSISTANT, (TextBlock(LONE), ToolUseBlock("t", "look", {LONE: [LONE]})))
    request = CompletionRequest(
        model="m",
        system=LONE,
        messages=(user_message(LONE), said, Message(Role.USER, (ToolResultBlock("t", LONE),))),
        tools=(ToolSpec("look", LONE, {"title": LONE}),),
        extra={"metadata": {"user_id": LONE}},
    )

    content = json.dumps(await sent(provider, monkeypatch, request), ensure_ascii=False)

    assert content.count(MENDED) == 9
    assert "\ud83d" not in content


async def test_lone_surrogate_is_replaced_wherever_it_arrives(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    escaped = json.dumps(LONE)
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    thought = {"type": "thinking_delta", "thinking": LONE}
    arguments = f"{{{escaped}: [{escaped}]}}"
    reply = [start(), *block(0, thinking, thought), *text(1, LONE), *tool(2, arguments), *end()]
    # Escaped, as JSON can hold what UTF-8 cannot.
    wire: list[Event] = [(data["type"], json.dumps(data)) for data in reply]
    with serving(monkeypatch, Reply(events=wire)) as server:
        events = await events_of(provider)

    arrived = {MENDED: [MENDED]}
    assert events[:-1] == [
        ThinkingDelta(MENDED),
        TextDelta(MENDED),
        ToolUse("t2", "look", arrived),
    ]
    assert stopped(events).message.content == (
        ThinkingBlock(MENDED, extra=from_(server)),
        TextBlock(MENDED),
        ToolUseBlock("t2", "look", arrived),
    )


async def test_two_halves_of_a_pair_become_the_character_they_stand_for(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = CompletionRequest("m", "", (user_message("\ud83d" + "\ude00"),))

    body = await sent(provider, monkeypatch, request)

    assert body["messages"][0]["content"][0]["text"] == "\N{GRINNING FACE}"


# -- caching -------------------------------------------------------------------------------------

MARK = {"type": "ephemeral"}


def marked(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The content blocks of the conversation that hold a breakpoint."""
    blocks = [part for message in body["messages"] for part in message["content"]]
    return [part for part in blocks if "cache_control" in part]


async def test_shared_prefix_that_is_long_enough_ends_with_a_breakpoint(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = CompletionRequest("m", "s" * 4096 + "own", HELLO.messages, cache_prefix=4096)

    body = await sent(provider, monkeypatch, request)

    assert body["system"] == [
        {"type": "text", "text": "s" * 4096, "cache_control": MARK},
        {"type": "text", "text": "own"},
    ]
    assert marked(body) == []


async def test_prefix_that_is_all_of_the_system_prompt_is_one_block(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = CompletionRequest("m", "é" * 2048, HELLO.messages, cache_prefix=2048)

    body = await sent(provider, monkeypatch, request)

    assert body["system"] == [{"type": "text", "text": "é" * 2048, "cache_control": MARK}]


@pytest.mark.parametrize("cache_prefix", [0, 4095])
async def test_prefix_below_the_models_minimum_gets_no_breakpoint(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, cache_prefix: int
) -> None:
    system = "s" * 5000
    request = CompletionRequest("m", system, HELLO.messages, cache_prefix=cache_prefix)

    assert (await sent(provider, monkeypatch, request))["system"] == system


async def test_conversation_ends_with_a_breakpoint_from_the_second_turn_on(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Message(Role.ASSISTANT, (TextBlock("Look."), ToolUseBlock("t", "look", {})))
    results = Message(Role.USER, (ToolResultBlock("t", "seen"), TextBlock("And?")))
    second = CompletionRequest("m", "", (*HELLO.messages, said, results))

    assert marked(await sent(provider, monkeypatch, HELLO)) == []
    assert marked(await sent(provider, monkeypatch, second)) == [
        {"type": "text", "text": "And?", "cache_control": MARK}
    ]


async def test_breakpoint_never_stands_on_a_thinking_block(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    thought = ThinkingBlock("Hm.", signature_of("Hm."))
    said = Message(Role.ASSISTANT, (TextBlock("So:"), thought))
    with serving(monkeypatch) as server:
        # The API refuses a message that ends so; what counts is where the breakpoint stands.
        await failure_of(provider, CompletionRequest("m", "", (*HELLO.messages, said)))
        body = server.requests[0].body

    assert marked(body) == [{"type": "text", "text": "So:", "cache_control": MARK}]


# -- errors before a reply ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, InvalidRequest, False),
        (401, AuthenticationFailed, False),
        (402, NoCredit, False),
        (403, AuthenticationFailed, False),
        (404, ModelNotFound, False),
        (408, ServerFailed, True),
        (409, ServerFailed, True),
        (413, InvalidRequest, False),
        (418, InvalidRequest, False),
        (429, RateLimited, True),
        (500, ServerFailed, True),
        (503, ServerFailed, True),
        (504, ServerFailed, True),
        (529, Overloaded, True),
    ],
)
async def test_status_decides_the_kind_of_error(
    provider: AnthropicProvider,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    kind: type[LlmError],
    retryable: bool,
) -> None:
    with serving(monkeypatch, Reply(status=status, message="no luck")) as server:
        error, events = await failure_of(provider)

    assert type(error) is kind
    assert (error.status_code, error.retryable) == (status, retryable)
    assert error.permanent is not retryable
    assert "no luck. " in str(error)
    assert f"answered {status} (" in str(error)
    assert events == []
    assert len(server.requests) == 1  # the SDK does not try again: that is done above


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"retry-after": "7"}, 7, 7),
        ({"retry-after": "0.5"}, 0.5, 0.5),
        ({"retry-after-ms": "1500"}, 1.5, 1.5),
        ({"retry-after": "7", "retry-after-ms": "1500"}, 1.5, 1.5),
        ({"retry-after": "7", "retry-after-ms": "soon"}, 7, 7),
        ({"retry-after": "-3"}, 0, 0),
        ({"retry-after": "Sat, 01 Jan 2000 00:00:00 GMT"}, 0, 0),
        ({"retry-after": "Fri, 31 Dec 2199 00:00:00 GMT"}, 10**9, 10**10),
    ],
)
async def test_wait_that_the_api_asks_for_is_handed_on(
    provider: AnthropicProvider,
    monkeypatch: pytest.MonkeyPatch,
    headers: dict[str, str],
    least: float,
    most: float,
) -> None:
    with serving(monkeypatch, Reply(status=429, headers=headers)):
        error, _ = await failure_of(provider)

    assert error.retry_after_s is not None
    assert least <= error.retry_after_s <= most


@pytest.mark.parametrize("value", ["", "soon", "nan", "inf"])
async def test_wait_that_cannot_be_read_is_none(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    with serving(monkeypatch, Reply(status=529, headers={"retry-after": value})):
        error, _ = await failure_of(provider)

    assert error.retry_after_s is None


async def test_error_page_of_a_proxy_is_reported_on_one_short_line(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = "<html>\n<h1>Bad gateway</h1>\n" + "<p>filler</p>\n" * 500
    reply = Reply(status=502, message=page, headers={"content-type": "text/html"})
    with serving(monkeypatch, reply):
        error, _ = await failure_of(provider)

    assert type(error) is ServerFailed
    assert "a web page (Bad gateway filler" in str(error)
    assert "<" not in str(error)
    assert len(str(error)) < 300


async def test_server_that_is_not_there_is_a_failed_connection_that_names_it(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LoopbackServer({}) as server:
        gone = server.url
    monkeypatch.setenv("ANTHROPIC_BASE_URL", gone.replace("//", f"//user:{KEY}@"))

    error, _ = await failure_of(provider)

    assert type(error) is ConnectionFailed
    assert error.retryable
    assert str(error).startswith(
        f"{gone.removeprefix('http://')} could not be reached: Connection refused. "
    )
    assert "Check the network, and `ANTHROPIC_BASE_URL`" in str(error)
    assert KEY not in str(error)


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1", "http://[::1"])
async def test_base_url_that_is_none_is_not_tried_again(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", url)

    error, _ = await failure_of(provider)

    assert type(error) is ConnectionFailed
    assert not error.retryable
    assert "Set `ANTHROPIC_BASE_URL`" in str(error)


@pytest.mark.parametrize("host", ["a..b", "127.0.0.1:99999"])
async def test_address_that_no_server_can_have_is_not_taken_for_a_bad_key(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    async def look_up(name: str, *_: object, **__: object) -> None:
        name.encode("idna")  # as the system's own look-up does first

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", f"http://{host}/")

    error, _ = await failure_of(provider)

    assert type(error) is ConnectionFailed
    assert f"{host} could not be reached: " in str(error)
    assert "`ANTHROPIC_BASE_URL`" in str(error)


async def test_silence_before_the_reply_is_a_failed_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    provider = AnthropicProvider(timeout_s=0.1)
    async with contextlib.aclosing(provider), silent_server(monkeypatch):
        error, _ = await failure_of(provider)

    assert type(error) is ConnectionFailed
    assert "did not answer: nothing came for 0.1 s. Try again" in str(error)


@pytest.mark.parametrize("value", [object(), float("nan")])
async def test_extra_that_is_no_json_is_an_invalid_request(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, value: object
) -> None:
    with serving(monkeypatch) as server:
        request = CompletionRequest("m", "", HELLO.messages, extra={"x": value})
        error, _ = await failure_of(provider, request)

    assert type(error) is InvalidRequest
    assert "Check its `extra`" in str(error)
    assert server.requests == []


# -- errors within a reply ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error_type", "kind"),
    [
        ("overloaded_error", Overloaded),
        ("rate_limit_error", RateLimited),
        ("api_error", ServerFailed),
        ("timeout_error", ServerFailed),
        ("something_new", ServerFailed),
        ("invalid_request_error", InvalidRequest),
        ("request_too_large", InvalidRequest),
        ("authentication_error", AuthenticationFailed),
        ("permission_error", AuthenticationFailed),
        ("not_found_error", ModelNotFound),
    ],
)
async def test_error_event_is_mapped_by_its_type_as_its_status_was_200(
    provider: AnthropicProvider,
    monkeypatch: pytest.MonkeyPatch,
    error_type: str,
    kind: type[LlmError],
) -> None:
    event = {"type": "error", "error": {"type": error_type, "message": "no luck"}}
    with serving(monkeypatch, raw(start({"input_tokens": 5}), *text(0, "Hel"), event)):
        error, events = await failure_of(provider)

    assert type(error) is kind
    assert f"broke off its reply ({error_type}): no luck. " in str(error)
    assert events == [Usage(5), TextDelta("Hel")]
    assert error.status_code is None


async def test_stream_that_ends_without_its_end_mark_is_broken(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(monkeypatch, raw(start(), *text(0, "Hel"), end()[0])):
        error, events = await failure_of(provider)

    assert type(error) is StreamBroken
    assert error.retryable
    assert "without the end mark" in str(error)
    assert events == [TextDelta("Hel")]


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        "[]",
        "null",
        "{}",
        '{"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta"}}',
        '{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 5}}',
        '{"type": "content_block_start", "index": 0}',
        '{"type": "message_start", "message": null}',
        '{"type": "message_delta"}',
        "[" * 100_000,
    ],
)
async def test_data_of_the_wrong_shape_breaks_the_stream_and_nothing_else(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    script = {"Say hello": raw(start(), *text(0, "Hel"), bad, *end()), "again": "Hello."}
    with serving(monkeypatch, script):
        error, events = await failure_of(provider)
        again = CompletionRequest("m", "", (user_message("again"),))
        answer = stopped(await events_of(provider, again))

    assert type(error) is StreamBroken
    assert "sent an unreadable reply" in str(error)
    assert len(str(error)) < 500
    assert events == [TextDelta("Hel")]
    assert answer.message.text == "Hello."


async def test_broken_stream_is_hung_up_on_though_its_error_is_kept(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(monkeypatch, raw(start(), "not json", threading.Event())) as server:
        kept, _ = await failure_of(provider)
        await asyncio.to_thread(server.wait_closed)
        await asyncio.to_thread(server.wait_disconnected)

    assert type(kept) is StreamBroken


async def test_connection_lost_within_a_reply_is_a_broken_stream(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as server:
        reply = Reply(text="Hello.", chunk=3, hold=threading.Event())
        server.enter_context(serving(monkeypatch, reply))
        async with contextlib.aclosing(provider.stream(HELLO)) as stream:
            begun = [await anext(stream), await anext(stream)]
            await asyncio.to_thread(server.close)
            with pytest.raises(
                StreamBroken, match="closed the connection within its reply"
            ) as caught:
                await anext(stream)

    assert begun[1] == TextDelta("Hel")
    assert caught.value.retryable


async def test_silence_within_a_reply_is_a_broken_stream_that_names_its_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    provider = AnthropicProvider(timeout_s=2.0)
    with serving(monkeypatch, raw(start(), *text(0, "Hel"), threading.Event())) as server:
        async with contextlib.aclosing(provider):
            error, _ = await failure_of(provider)
            await asyncio.to_thread(server.wait_closed)

    assert type(error) is StreamBroken
    assert "nothing came for 2 s" in str(error)


async def test_answer_that_is_no_stream_points_to_the_base_url(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Reply(events=[("html", "<html>")], headers={"content-type": "text/html"})
    with serving(monkeypatch, page):
        error, _ = await failure_of(provider)

    assert type(error) is StreamBroken
    assert not error.retryable
    assert "answered with text/html" in str(error)
    assert "Check `ANTHROPIC_BASE_URL`" in str(error)


# -- keys -----------------------------------------------------------------------------------------


async def test_key_and_base_url_come_from_the_sdks_environment_variables(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(monkeypatch, keys=[KEY]) as server:
        await events_of(provider)
        monkeypatch.delenv("ANTHROPIC_API_KEY")
        monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", KEY)
        monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Team: blue")
        await events_of(provider)

    assert "x-team" not in server.requests[0].headers
    assert server.requests[1].headers["authorization"] == f"Bearer {KEY}"
    assert server.requests[1].headers["x-team"] == "blue"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ANTHROPIC_API_KEY", KEY),
        ("ANTHROPIC_AUTH_TOKEN", "token"),
        ("ANTHROPIC_CUSTOM_HEADERS", "X-Api-Key: x"),
        ("ANTHROPIC_CUSTOM_HEADERS", "Authorization: Bearer x"),
    ],
)
async def test_check_of_the_key_is_content_with_all_that_a_call_would_send(
    provider: AnthropicProvider,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    variable: str,
    value: str,
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_CONFIG_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("empty")))
    with pytest.raises(MissingKey):
        await provider.check_key()
    monkeypatch.setenv(variable, value)
    with serving(monkeypatch) as server:
        if variable != "ANTHROPIC_API_KEY":
            monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
        await provider.check_key()
        assert server.requests == []
        assert stopped(await events_of(provider)).message.text == "Hello."


@pytest.mark.parametrize("with_config_dir", [True, False])
async def test_missing_key_says_in_one_sentence_what_to_set_and_what_needs_none(
    provider: AnthropicProvider,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    with_config_dir: bool,
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    # With the variable, the SDK expects a profile there; without it, in the user's home.
    empty = str(tmp_path_factory.mktemp("empty"))
    monkeypatch.setenv("HOME", empty)
    monkeypatch.delenv("ANTHROPIC_CONFIG_DIR", raising=False)
    if with_config_dir:
        monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", empty)
    with serving(monkeypatch) as server:
        error, _ = await failure_of(provider)
        with pytest.raises(MissingKey) as checked:
            await provider.check_key()

    assert type(error) is MissingKey
    assert str(checked.value) == str(error)
    assert error.permanent
    assert str(error).startswith("There is no key for the Anthropic API")
    assert str(error).endswith(
        ": set the environment variable `ANTHROPIC_API_KEY`, or use `--model demo` "
        '(`model="demo"`), which needs none.'
    )
    assert server.requests == []


async def test_key_that_is_set_after_an_error_counts_at_the_next_call(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(monkeypatch, keys=["good"]):
        monkeypatch.delenv("ANTHROPIC_API_KEY")
        missing, _ = await failure_of(provider)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "bad")
        refused, _ = await failure_of(provider)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "good")
        answer = stopped(await events_of(provider))

    assert type(missing) is MissingKey
    assert type(refused) is AuthenticationFailed
    assert "invalid x-api-key. Set `ANTHROPIC_API_KEY`" in str(refused)
    assert answer.message.text == "Hello."


async def test_client_whose_credentials_were_refused_is_closed_when_its_last_call_ends(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = threading.Event()
    script = {
        "hold": Reply(text="Hello.", chunk=3, hold=hold),
        "refuse": Reply(status=401),
    }
    with serving(monkeypatch, script) as server:
        held = CompletionRequest("m", "", (user_message("hold"),))
        async with contextlib.aclosing(provider.stream(held)) as stream:
            begun = [await anext(stream), await anext(stream)]
            await failure_of(provider, CompletionRequest("m", "", (user_message("refuse"),)))
            hold.set()
            rest = [event async for event in stream]
        await asyncio.to_thread(server.wait_disconnected)

    assert begun[1] == TextDelta("Hel")
    assert stopped(rest).message.text == "Hello."


async def test_call_that_is_cancelled_while_it_closes_old_clients_loses_none(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def close_at_the_second_call() -> None:
        if not is_closing.is_set():
            is_closing.set()
            await asyncio.Event().wait()
        await close()

    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    await provider.ready()
    is_closing = asyncio.Event()
    async with contextlib.AsyncExitStack() as calls:
        old = []
        for number in range(2):
            monkeypatch.setenv("ANTHROPIC_BASE_URL", f"http://127.0.0.1:{number}")
            old.append(
                await calls.enter_async_context(
                    provider._clients.borrowed(settings_of("ANTHROPIC_"))
                )
            )
    close = old[0].sdk.close
    monkeypatch.setattr(old[0].sdk, "close", close_at_the_second_call)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:2")
    call = asyncio.ensure_future(anext(provider.stream(HELLO)))
    await is_closing.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    await provider.aclose()
    assert [client.sdk.is_closed() for client in old] == [True, True]


@pytest.mark.parametrize("key", [f"{KEY}\n", f"{KEY}\nmore", "schl\udcfcssel"])
async def test_key_that_cannot_be_sent_is_reported_without_showing_it(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    with serving(monkeypatch):
        error, _ = await failure_of(provider)

    assert type(error) is AuthenticationFailed
    assert "cannot be sent" in str(error)
    assert KEY not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__


@pytest.mark.parametrize("key", [KEY, "a-key-of-another-make"])
async def test_key_that_the_server_repeats_is_not_in_the_message(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    with serving(monkeypatch, Reply(status=401, message=f"the key {key} is not known")):
        error, _ = await failure_of(provider)

    assert "the key [secret ANTHROPIC_API_KEY] is not known" in str(error)
    assert key not in str(error)


# -- loops, tasks and processes ------------------------------------------------------------------


async def test_cancelled_call_closes_its_connection(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = asyncio.Event()

    async def listen() -> None:
        async for event in provider.stream(HELLO):
            if isinstance(event, TextDelta):
                began.set()

    with serving(monkeypatch, Reply(text="Hello.", chunk=3, hold=threading.Event())) as server:
        listening = asyncio.create_task(listen())
        await began.wait()
        listening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listening
        await asyncio.to_thread(server.wait_closed)
        await asyncio.to_thread(server.wait_disconnected)


async def test_call_that_is_cancelled_before_the_api_answers_closes_its_connection(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with silent_server(monkeypatch) as asked:
        calling = asyncio.create_task(events_of(provider))
        await asked.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling


async def test_stream_that_is_left_early_closes_its_connection(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(monkeypatch, Reply(text="Hello.", chunk=3, hold=threading.Event())) as server:
        async with contextlib.aclosing(provider.stream(HELLO)) as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    break
        await asyncio.to_thread(server.wait_closed)
        await asyncio.to_thread(server.wait_disconnected)


async def test_as_many_calls_as_were_asked_for_are_open_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 150  # more than a connection pool holds by default
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    provider, hold = AnthropicProvider(), threading.Event()
    with serving(monkeypatch, Reply(text="Hello.", hold=hold)) as server:
        async with contextlib.aclosing(provider), asyncio.TaskGroup() as group:
            calls = [group.create_task(events_of(provider)) for _ in range(count)]
            await asyncio.to_thread(server.wait_streaming, count)
            hold.set()
        await asyncio.to_thread(server.wait_disconnected)

    assert {stopped(call.result()).message.text for call in calls} == {"Hello."}


def test_each_loop_has_a_client_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    provider = AnthropicProvider()
    both_began = threading.Barrier(2)
    answers: list[str] = []

    async def call_twice() -> None:
        async with contextlib.aclosing(provider):
            async for event in provider.stream(HELLO):
                if isinstance(event, TextDelta):
                    await asyncio.to_thread(both_began.wait, 60)
            answers.append(stopped(await events_of(provider)).message.text)

    with serving(monkeypatch) as server:
        threads = [threading.Thread(target=asyncio.run, args=[call_twice()]) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        server.wait_disconnected()

    assert answers == ["Hello.", "Hello."]
    assert len({request.connection for request in server.requests}) == 2


async def test_closed_provider_can_be_used_again(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(monkeypatch) as server:
        await events_of(provider)
        await provider.aclose()
        await asyncio.to_thread(server.wait_disconnected)
        await events_of(provider)

    assert [request.connection for request in server.requests] == [0, 1]


def test_sdk_is_not_imported_with_the_module_but_by_the_first_call_on_another_thread() -> None:
    probe = """
import asyncio, builtins, sys, threading
from agentnb.core.types import CompletionRequest, user_message
from agentnb.providers.anthropic import AnthropicProvider

provider = AnthropicProvider()
assert not {"anthropic", "httpx2", "pydantic"} & set(sys.modules)

importers = set()
original = builtins.__import__

def watched(name, *args, **kwargs):
    if name == "anthropic" and "anthropic" not in sys.modules:
        importers.add(threading.current_thread())
    return original(name, *args, **kwargs)

builtins.__import__ = watched

async def call():
    try:
        async for _ in provider.stream(CompletionRequest("m", "", (user_message("Hi"),))):
            pass
    except Exception as error:
        return type(error).__name__

async def main():
    errors = await asyncio.gather(call(), call())
    await provider.aclose()
    return errors

print(*asyncio.run(main()))
(importer,) = importers
assert importer is not threading.main_thread() and importer.daemon
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", probe], capture_output=True, text=True, check=False
    )

    assert done.stderr == ""
    assert done.stdout.split() == ["MissingKey", "MissingKey"]


def test_it_is_a_provider() -> None:
    provider: Provider = AnthropicProvider()

    assert provider.name == "anthropic"


# -- refusals that teach --------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}
TYPED = CompletionRequest(
    "m", "", HELLO.messages, (ToolSpec(FINAL_ANSWER, "", SCHEMA),), output_schema=SCHEMA
)


@pytest.mark.parametrize(
    "complaint",
    [
        'tool_choice: type "tool" and "any" are not supported for this model',
        "Thinking may not be enabled when tool_choice forces tool use.",
        "Thinking mode does not support this tool_choice",
    ],
)
async def test_tool_that_may_not_be_forced_is_offered_and_that_is_remembered(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, complaint: str
) -> None:
    def script(body: dict[str, Any]) -> Reply:
        if "tool_choice" in body:
            return Reply(status=400, message=complaint)
        return Reply(tool_uses=[(FINAL_ANSWER, {"value": "x"})])

    with LoopbackServer(script) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        for _ in range(2):
            events = await events_of(provider, TYPED)
            assert [e.input for e in events if isinstance(e, ToolUse)] == [{"value": "x"}]

        assert ["tool_choice" in each.body for each in server.requests] == [True, False, False]
        assert all(each.body["tools"] for each in server.requests)


async def test_forced_tool_that_a_person_asked_for_is_never_dropped(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = Reply(status=400, message="tool_choice is not supported for this model")
    own = {"tool_choice": {"type": "any"}}
    request = CompletionRequest("m", "", HELLO.messages, TYPED.tools, extra=own)
    with LoopbackServer(lambda _: refusal) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        with pytest.raises(InvalidRequest):
            await events_of(provider, request)

        assert len(server.requests) == 1


async def test_thinking_that_the_api_refuses_is_left_out_from_then_on(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    complaint = (
        "messages.1.content.0: Invalid signature in thinking block. The block is bound to a "
        "different conversation"
    )

    def script(body: dict[str, Any]) -> Reply:
        is_sent = "a thought of old" in json.dumps(body["messages"])
        return Reply(status=400, message=complaint) if is_sent else Reply(text="Yes.")

    thought = ThinkingBlock("a thought of old", signature_of("a thought of old"))
    new = ThinkingBlock("a new thought", signature_of("a new thought"))
    said = Message(Role.ASSISTANT, (thought, TextBlock("Hello.")))
    later = Message(Role.ASSISTANT, (new, TextBlock("Yes.")))
    asked = (*HELLO.messages, said, user_message("And?"))
    with LoopbackServer(script) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        for messages in (asked, (*asked, later, user_message("Well?"))):
            assert stopped(
                await events_of(provider, CompletionRequest("m", "", messages))
            ).message == assistant_message("Yes.")

        bodies = [json.dumps(each.body) for each in server.requests]
        assert ["a thought of old" in each for each in bodies] == [True, False, False]
        assert "a new thought" in bodies[2], "what was made since then is bound to what is sent"


async def test_note_on_refused_thinking_stands_beside_an_answer_and_not_in_a_refusal(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [Reply(text="I cannot", stop_reason="SPII"), Reply(text="Yes.")]

    def script(body: dict[str, Any]) -> Reply:
        if "a thought" in json.dumps(body["messages"]):
            return Reply(status=400, message="Invalid signature in thinking block")
        return answers.pop(0)

    with LoopbackServer(script) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        ends = []
        for number in range(2):  # two conversations: each is refused its thinking once
            thought = ThinkingBlock("a thought", signature_of("a thought"))
            said = Message(Role.ASSISTANT, (thought, TextBlock(f"Hello {number}.")))
            messages = (user_message(f"Hi {number}"), said, user_message("And?"))
            request = CompletionRequest("m", "", messages)
            ends.append(stopped(await events_of(provider, request)))

    declined, answered = ends
    assert declined.note.startswith("The model declined to answer (SPII): I cannot.")
    assert "left out from now on" in answered.note


@pytest.mark.parametrize(
    "content", [(), (ThinkingBlock("Hm.", extra={"anthropic http://other": {"type": None}}),)]
)
async def test_complaint_about_thinking_that_was_not_sent_is_not_tried_again(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, content: tuple[Block, ...]
) -> None:
    refusal = Reply(status=400, message="Invalid signature in thinking block")
    said = Message(Role.ASSISTANT, (*content, TextBlock("Hello.")))
    request = CompletionRequest("m", "", (*HELLO.messages, said, user_message("And?")))
    with LoopbackServer(lambda _: refusal) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        with pytest.raises(InvalidRequest):
            await events_of(provider, request)

        assert len(server.requests) == 1


async def test_api_that_complains_of_thinking_for_ever_is_asked_twice(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentnb.providers.forms._MOST_MARKS", 0)
    refusal = Reply(status=400, message="Invalid signature in thinking block")
    said = Message(Role.ASSISTANT, (ThinkingBlock("Hm.", "for ever"), TextBlock("Hello.")))
    request = CompletionRequest("m", "", (*HELLO.messages, said, user_message("And?")))
    with LoopbackServer(lambda _: refusal) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        with pytest.raises(InvalidRequest):
            await events_of(provider, request)

        assert len(server.requests) == 2


async def test_fields_of_another_api_are_not_sent(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"openai": {"extra_content": {"google": "x"}}}
    call = ToolUseBlock("t", "look", {}, fields)
    thought = ThinkingBlock("Hm.", extra={"openai": {"reasoning_content": None}})
    signed = ThinkingBlock("Hm.", "s", extra={"anthropic http://other.example": {"type": None}})
    opaque = OpaqueBlock("openai", {"x": 1})
    said = Message(Role.ASSISTANT, (thought, signed, opaque, TextBlock("Hi", fields), call))
    results = Message(Role.USER, (ToolResultBlock("t", "seen"),))
    request = CompletionRequest(
        "m", "", (*HELLO.messages, said, results), (ToolSpec("look", "", {"type": "object"}),)
    )

    assert (await sent(provider, monkeypatch, request))["messages"][1]["content"] == [
        {"type": "text", "text": "Hi"},
        {"type": "tool_use", "id": "t", "name": "look", "input": {}},
    ]


async def test_unknown_block_without_end_is_left_out(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = {"type": "new_delta", "content": "x" * 1_000_000}
    endless = block(0, {"type": "new_block", "content": ""}, *[piece] * 6)
    with serving(monkeypatch, raw(start(), *endless, *text(1, "Hi"), *end())):
        reply = stopped(await events_of(provider))

    assert reply.message == assistant_message("Hi")
    assert reply.note.startswith("Left out of the reply")
    assert ": 'content'." in reply.note


async def test_block_that_a_server_sends_and_refuses_is_left_out_from_then_on(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(body: dict[str, Any]) -> Reply:
        if "mark_of_ours" in json.dumps(body):
            words = "messages.1.content.0: the block mark_of_ours is not supported"
            return Reply(status=400, message=words)
        return raw(start(), *block(0, {"type": "mark_of_ours"}), *text(1, "Hi"), *end())

    with serving(monkeypatch, script) as server:
        message = stopped(await events_of(provider)).message
        again = CompletionRequest("m", "", (*HELLO.messages, message, user_message("And?")))
        for _ in range(2):
            assert stopped(await events_of(provider, again)).reason == "end_turn"

        marked = ["mark_of_ours" in json.dumps(each.body) for each in server.requests]
        assert marked == [False, True, False, False]


HERE: dict[str, Any] = {"here": {"type": None}}
THERE: dict[str, Any] = {"there": {"type": None}}


@pytest.mark.parametrize(
    ("thoughts", "sent"),
    [
        ([ThinkingBlock("one", extra=HERE), ThinkingBlock("two", extra=THERE)], ["one"]),
        ([ThinkingBlock("one", extra=HERE), ThinkingBlock("two")], ["one"]),
        ([ThinkingBlock("one", extra=HERE), ThinkingBlock("", extra=HERE)], ["one"]),
        ([ThinkingBlock("one", "s", extra=HERE), ThinkingBlock("two", extra=HERE)], ["one"]),
        ([ThinkingBlock("two", extra=HERE), ThinkingBlock("", "", "sealed", HERE)], [None]),
    ],
    ids=["another server's", "nobody's", "without words", "beside signed", "beside redacted"],
)
def test_thinking_without_a_signature_goes_back_only_to_the_server_that_sent_it(
    thoughts: list[Block], sent: list[str | None]
) -> None:
    said = Message(Role.ASSISTANT, (*thoughts, TextBlock("Hello.")))
    request = CompletionRequest("m", "", (*HELLO.messages, said, user_message("And?")))

    *first, _ = body_of(request, server=Server("here"))["messages"][1]["content"]

    assert [each.get("thinking") for each in first] == sent


@pytest.mark.parametrize("signs", [True, False])
async def test_thinking_without_a_signature_goes_back_to_a_server_that_never_signed(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, signs: bool
) -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s" if signs else ""}
    first = raw(start(), *block(0, thinking), *text(1, "Hello."), *end())
    unsigned = raw(start(), *block(0, {**thinking, "signature": ""}), *text(1, "Hello."), *end())
    with serving(monkeypatch, {"": [first, unsigned, Reply(text="Bye.")]}) as server:
        await events_of(provider)
        said = stopped(await events_of(provider)).message
        again = CompletionRequest("m", "", (*HELLO.messages, said, user_message("And?")))
        await events_of(provider, again)

    assert ("Hm." in json.dumps(server.requests[2].body)) is not signs


@pytest.mark.parametrize(
    ("name", "pieces", "heard"),
    [
        ("look", ["{}", '{"at": 1}'], {"at": 1}),
        ("look", ['{"at": 1}', '{"at": 1}'], {"at": 1}),
        ("look", ["null"], {MALFORMED_INPUT: "null"}),
        ("wait", ["null"], {}),
    ],
)
async def test_arguments_are_heard_as_servers_send_them(
    provider: AnthropicProvider,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    pieces: list[str],
    heard: dict[str, Any],
) -> None:
    given = [{"type": "input_json_delta", "partial_json": each} for each in pieces]
    call = {"type": "tool_use", "id": "t", "name": name, "input": {}}
    tools = (
        ToolSpec("look", "", {"type": "object", "properties": {"at": {"type": "integer"}}}),
        ToolSpec("wait", "", {"type": "object"}),
    )
    with serving(monkeypatch, raw(start(), *block(0, call, *given), *end("tool_use"))):
        events = await events_of(provider, replace(HELLO, tools=tools))

    assert [e for e in events if isinstance(e, ToolUse)] == [ToolUse("t", name, heard)]
