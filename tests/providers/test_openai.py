"""The provider for chat completions: through the real SDK, to a server of ours."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from agentnb.core.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    InvalidRequest,
    LlmError,
    MissingExtra,
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
    user_message,
)
from agentnb.providers.openai import OpenAIProvider
from tests.loopback import LoopbackServer, Reply, ToolCall
from tests.loopback.completions import DONE, chunk, prompt_tokens, usage_of

KEY = "sk-proj-not-a-real-key"
MASK = "[secret OPENAI_API_KEY]"
HELLO = CompletionRequest(model="m", system="", messages=(user_message("Say hello"),))
OLLAMA_NOT_FOUND = b'{"error":{"message":"model \\"m\\" not found, try pulling it first"}}'


@pytest.fixture
async def provider() -> AsyncIterator[OpenAIProvider]:
    async with contextlib.aclosing(OpenAIProvider()) as provider:
        yield provider


@contextlib.contextmanager
def serving(
    monkeypatch: pytest.MonkeyPatch, reply: Any = "Hello.", *, keys: Sequence[str] | None = None
) -> Iterator[LoopbackServer]:
    """A server that gives this reply, or this script's, to everything."""
    script = reply if callable(reply) or isinstance(reply, dict) else {"": reply}
    with LoopbackServer(script, keys=keys) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        yield server


async def events_of(
    provider: OpenAIProvider, request: CompletionRequest = HELLO
) -> list[StreamEvent]:
    async with contextlib.aclosing(provider.stream(request)) as stream:
        return [event async for event in stream]


async def failure_of(
    provider: OpenAIProvider, request: CompletionRequest = HELLO
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


def stopped(events: list[StreamEvent]) -> Stopped:
    assert isinstance(events[-1], Stopped)
    return events[-1]


# -- what comes back -----------------------------------------------------------------------


async def test_reply_becomes_our_events_and_a_message_to_send_back(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = Reply(
        thinking="Let me see.",
        text="Hello there.",
        tool_uses=[("look", {"at": ["é", 1, None]}), ToolCall("wait", id="w")],
        chunk=6,
    )
    with serving(monkeypatch, reply) as server:
        events = await events_of(provider)

    look, wait = ToolUse("call_0_0", "look", {"at": ["é", 1, None]}), ToolUse("w", "wait", {})
    written = "Let me see.Hello there." + '{"at":["é",1,null]}' + "{}"
    assert events == [
        ThinkingDelta("Let me"),
        ThinkingDelta(" see."),
        TextDelta("Hello "),
        TextDelta("there."),
        Usage(prompt_tokens(server.requests[0].body), len(written.encode()) // 4),
        look,
        wait,
        Stopped(
            "tool_use",
            Message(
                Role.ASSISTANT,
                (
                    ThinkingBlock(
                        "Let me see.",
                        extra={f"openai {server.url}/v1": {"reasoning_content": None}},
                    ),
                    TextBlock("Hello there."),
                    ToolUseBlock(look.id, look.name, look.input),
                    ToolUseBlock(wait.id, wait.name, wait.input),
                ),
            ),
        ),
    ]


@pytest.mark.parametrize(
    ("pieces", "called"),
    [
        ([("look", '{"at":1}'), ("look", '{"at":1}')], [("look", {"at": 1})] * 2),
        ([("look", ""), ("look", "")], [("look", {})] * 2),
        ([("lo", None), ("ok", None), (None, '{"at":'), (None, "1}")], [("look", {"at": 1})]),
        ([("look", '{"at":'), ("look", "1}")], [("look", {"at": 1})]),
    ],
)
async def test_calls_that_all_have_the_index_0_and_no_id_are_distinguished(
    provider: OpenAIProvider,
    monkeypatch: pytest.MonkeyPatch,
    pieces: list[tuple[str | None, str | None]],
    called: list[tuple[str, Any]],
) -> None:
    deltas = (
        {"tool_calls": [{"index": 0, "function": {"name": name, "arguments": arguments}}]}
        for name, arguments in pieces
    )
    steps = (*map(chunk, deltas), chunk({}, finish_reason="tool_calls"), DONE)
    with serving(monkeypatch, Reply(events=steps)):
        events = await events_of(provider)

    uses = [event for event in events if isinstance(event, ToolUse)]
    assert [(use.name, use.input) for use in uses] == called
    assert len({use.id for use in uses}) == len(called)


@pytest.mark.parametrize(
    ("finish", "told"),
    [
        ("stop", "end_turn"),
        ("STOP", "end_turn"),
        ("eos_token", "end_turn"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
    ],
)
async def test_finish_reason_is_given_in_our_words(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch, finish: str, told: str
) -> None:
    with serving(monkeypatch, Reply(text="Hm.", stop_reason=finish)):
        assert stopped(await events_of(provider)).reason == told


@pytest.mark.parametrize("finish", ["stop", "content_filter", None])
async def test_refusal_in_a_field_of_its_own_is_heard_and_is_a_refusal(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch, finish: str | None
) -> None:
    end = chunk({}, finish_reason=finish)
    steps = (chunk({"refusal": "I will"}), chunk({"refusal": " not."}), end, DONE)
    with serving(monkeypatch, Reply(events=steps)):
        events = await events_of(provider)

    assert events[:2] == [TextDelta("I will"), TextDelta(" not.")]
    assert stopped(events).reason == "refusal"


async def test_nothing_after_the_end_mark_is_read_or_waited_for(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = (chunk({"content": "Hi"}), DONE, ("", "not json"), threading.Event())
    with serving(monkeypatch, Reply(events=steps)) as server:
        events = await events_of(provider)
        await asyncio.to_thread(server.wait_closed)

    assert stopped(events).message.text == "Hi"


async def test_server_that_keeps_its_end_mark_to_itself_is_hung_up_on_when_its_answer_is_whole(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentnb.providers.reply._USAGE_S", 0.0)
    steps = (chunk({"content": "Hi"}), chunk({}, finish_reason="stop"), threading.Event())
    with serving(monkeypatch, Reply(events=steps)) as server:
        events = await events_of(provider)
        await asyncio.to_thread(server.wait_closed)

    assert stopped(events) == Stopped("end_turn", Message(Role.ASSISTANT, (TextBlock("Hi"),)))


async def test_calls_one_after_the_other_share_a_connection(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(monkeypatch) as server:
        for _ in range(3):
            await events_of(provider)

    assert [request.connection for request in server.requests] == [0, 0, 0]


# -- what is sent ---------------------------------------------------------------------------


async def sent(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch, request: CompletionRequest
) -> dict[str, Any]:
    """The body of a request as it arrived, after the API accepted it."""
    with serving(monkeypatch) as server:
        await events_of(provider, request)
    body: dict[str, Any] = server.requests[0].body
    return body


async def test_request_goes_out_as_it_was_asked(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = {"type": "object", "properties": {"at": {"type": "string"}}}
    request = CompletionRequest(
        model="llama3.2:1b",
        system="Be kind.",
        messages=(user_message("Say hello"),),
        tools=(ToolSpec("look", "Looks at something.", schema),),
        max_tokens=77,
        extra={"temperature": 0.5},
    )

    assert await sent(provider, monkeypatch, request) == {
        "model": "llama3.2:1b",
        "max_tokens": 77,
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Say hello"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "look",
                    "description": "Looks at something.",
                    "parameters": schema,
                },
            }
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
    }


async def test_results_are_messages_of_their_own_between_the_calls_and_what_is_asked_next(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Message(
        Role.ASSISTANT,
        (
            ThinkingBlock("Hm.", "signed"),
            TextBlock("Let me "),
            TextBlock("look."),
            ToolUseBlock("t1", "look", MappingProxyType({"at": "é"})),
            ToolUseBlock("t2", "look", {}),
        ),
    )
    results = (
        TextBlock("And?"),
        ToolResultBlock("t1", "seen"),
        ToolResultBlock("t2", " ", is_error=True),
    )
    request = CompletionRequest("m", " \n", (*HELLO.messages, said, Message(Role.USER, results)))

    body = await sent(provider, monkeypatch, request)

    assert "tools" not in body
    assert body["messages"] == [
        {"role": "user", "content": "Say hello"},
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [
                {
                    "id": "t1",
                    "type": "function",
                    "function": {"name": "look", "arguments": '{"at": "é"}'},
                },
                {"id": "t2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "t1", "content": "seen"},
        {"role": "tool", "tool_call_id": "t2", "content": "Error: (no output)"},
        {"role": "user", "content": "And?"},
    ]


@pytest.mark.parametrize(
    ("content", "param"),
    [
        ((), {"content": "(no output)"}),
        ((TextBlock(" \n"), ThinkingBlock("Hm.")), {"content": "(no output)"}),
        (
            (ToolUseBlock("t", "look", {}),),
            {
                "content": None,
                "tool_calls": [
                    {"id": "t", "type": "function", "function": {"name": "look", "arguments": "{}"}}
                ],
            },
        ),
    ],
)
async def test_assistant_message_without_words_is_one_that_servers_take(
    provider: OpenAIProvider,
    monkeypatch: pytest.MonkeyPatch,
    content: tuple[Block, ...],
    param: dict[str, Any],
) -> None:
    results = tuple(ToolResultBlock(b.id, "x") for b in content if isinstance(b, ToolUseBlock))
    then = Message(Role.USER, (*results, TextBlock("And?")))
    messages = (*HELLO.messages, Message(Role.ASSISTANT, content), then)

    body = await sent(provider, monkeypatch, CompletionRequest("m", "", messages))

    assert body["messages"][1] == {"role": "assistant", **param}


LONE, MENDED = "a\ud83db", "a\ufffdb"


async def test_lone_surrogate_is_replaced_wherever_it_would_be_sent(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Message(Role.ASSISTANT, (TextBlock(LONE), ToolUseBlock("t", "look", {LONE: [LONE]})))
    request = CompletionRequest(
        model="m",
        system=LONE,
        messages=(user_message(LONE), said, Message(Role.USER, (ToolResultBlock("t", LONE),))),
        tools=(ToolSpec("look", LONE, {"title": LONE}),),
        extra={"user": LONE},
    )

    content = json.dumps(await sent(provider, monkeypatch, request), ensure_ascii=False)

    assert content.count(MENDED) == 9
    assert "\ud83d" not in content


# -- what a server does not take ------------------------------------------------------------------


def refusing(field: str, words: str, *, status: int = 400) -> Any:
    """A script that answers unless a request holds this field, and then says so."""

    def script(body: dict[str, Any]) -> Reply:
        return Reply(status=status, message=words) if field in body else Reply(text="Hello.")

    return script


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "unrecognized field: stream_options"),
        (422, "body.stream_options: Extra inputs are not permitted"),
        (400, "'include_usage' is not allowed"),
    ],
)
async def test_server_that_knows_no_stream_options_is_asked_without_them_from_then_on(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch, status: int, words: str
) -> None:
    with serving(monkeypatch, refusing("stream_options", words, status=status)) as server:
        first = await events_of(provider)
        await events_of(provider)

    assert first == [
        TextDelta("Hello."),
        Stopped("end_turn", Message(Role.ASSISTANT, (TextBlock("Hello."),))),
    ]
    assert ["stream_options" in r.body for r in server.requests] == [True, False, False]


async def test_what_one_server_does_not_take_is_still_sent_to_another(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(monkeypatch, refusing("stream_options", "unknown field: stream_options")):
        await events_of(provider)
    with serving(monkeypatch) as other:
        await events_of(provider)

    assert "stream_options" in other.requests[0].body


async def test_what_one_model_does_not_take_is_still_sent_to_another_of_the_same_server(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(body: dict[str, Any]) -> Reply:
        has_place = body["model"] != "gemma" or body["messages"][0]["role"] == "user"
        no_place = Reply(status=400, message="System role not supported")
        return Reply(text="Hello.") if has_place else no_place

    with serving(monkeypatch, script) as server:
        for model in ("gemma", "llama", "gemma"):
            await events_of(provider, CompletionRequest(model, "Be kind.", HELLO.messages))

    assert [(r.body["model"], r.body["messages"][0]["role"]) for r in server.requests] == [
        ("gemma", "system"),
        ("gemma", "user"),
        ("llama", "system"),
        ("gemma", "user"),
    ]


async def test_model_that_wants_the_limit_under_its_new_name_gets_it(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
        "'max_completion_tokens' instead."
    )
    with serving(monkeypatch, refusing("max_tokens", words)) as server:
        await events_of(provider)
        await events_of(provider)

    assert "max_tokens" in server.requests[0].body
    assert [r.body.get("max_completion_tokens") for r in server.requests[1:]] == [8192, 8192]


@pytest.mark.parametrize(
    ("status", "words", "is_learnt"),
    [
        (400, "System role not supported", True),
        (500, "Jinja Exception: System role is not supported", False),
    ],
)
async def test_model_without_a_place_for_a_system_prompt_is_told_it_before_what_it_is_asked(
    provider: OpenAIProvider,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    words: str,
    is_learnt: bool,
) -> None:
    def script(body: dict[str, Any]) -> Reply:
        is_taken = body["messages"][0]["role"] == "user"
        return Reply(text="Hello.") if is_taken else Reply(status=status, message=words)

    request = CompletionRequest("m", "Be kind.", HELLO.messages)
    with serving(monkeypatch, script) as server:
        await events_of(provider, request)
        await events_of(provider, request)

    told = [{"role": "user", "content": "Be kind.\n\nSay hello"}]
    bodies = [request.body["messages"] for request in server.requests]
    assert bodies[1 :: 1 if is_learnt else 2] == [told, told]
    assert len(bodies) == (3 if is_learnt else 4)


async def test_server_that_takes_neither_name_is_asked_once_by_each_and_its_words_are_reported(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = Reply(status=400, message="Unknown max_tokens, unknown max_completion_tokens")
    with serving(monkeypatch, refusal) as server:
        error, _ = await failure_of(provider)

    assert type(error) is InvalidRequest
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("'max_tokens' or 'max_completion_tokens' is too large: 8192", "`max_output_tokens`"),
        ("This model's maximum context length is 4096 tokens", "`max_output_tokens`"),
        ("registry.ollama.ai/library/gemma:2b does not support tools", "that can call tools"),
        ('"auto" tool choice requires --enable-auto-tool-choice to be set', "start the server"),
        ("tools param requires --jinja flag", "start the server"),
        ("no images here", "change what it asks for"),
    ],
)
@pytest.mark.parametrize("status", [400, 500])
async def test_refusal_that_is_known_says_what_to_do_and_is_not_tried_again(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch, status: int, words: str, advice: str
) -> None:
    if status == 500 and "images" in words:
        advice = "Try again in a while"
    with serving(monkeypatch, Reply(status=status, message=words)) as server:
        error, _ = await failure_of(provider)

    assert type(error) is (ServerFailed if "Try again" in advice else InvalidRequest)
    assert error.permanent is ("Try again" not in advice)
    assert advice in str(error)
    assert words in str(error)
    assert len(server.requests) == 1


# -- errors before a reply ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, InvalidRequest, False),
        (401, AuthenticationFailed, False),
        (403, AuthenticationFailed, False),
        (404, ModelNotFound, False),
        (408, ServerFailed, True),
        (409, ServerFailed, True),
        (422, InvalidRequest, False),
        (429, RateLimited, True),
        (500, ServerFailed, True),
        (503, ServerFailed, True),
        (529, Overloaded, True),
    ],
)
async def test_status_decides_the_kind_of_error_and_the_sdk_does_not_try_again(
    provider: OpenAIProvider,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    kind: type[LlmError],
    retryable: bool,
) -> None:
    with serving(monkeypatch, Reply(status=status, message="no luck")) as server:
        error, events = await failure_of(provider)

    assert type(error) is kind
    assert (error.status_code, error.retryable) == (status, retryable)
    assert f"answered {status} (" in str(error)
    assert "no luck. " in str(error)
    assert events == []
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (OLLAMA_NOT_FOUND, ': model "m" not found, try pulling it first. Check the model'),
        (b'{"error": "model is missing"}', ": model is missing. Check"),
        (b'{"object":"error","message":"no m","code":404}', ": no m. Check"),
        (b"404 page not found", ": 404 page not found. Check"),
        (b'{"detail": "Not Found"}', ": Not Found. Check"),
        (b'{"detail":[{"loc":["body","n"],"msg":"not permitted"}]}', ": body.n: not permitted."),
        (
            b'{"error":{"issues":[{"path":["m", 0],"message":"Not that"}]}}',
            ": m.0: Not that. Check",
        ),
        (
            b'{"object":"error","message":{"detail":[{"loc":["body","n"],"msg":"not permitted"}]}}',
            ": n: not permitted. Check",
        ),
        (b'{"message":[{"loc":["body","n"],"msg":"not permitted"}]}', ": n: not permitted. Check"),
        (b'{"error": {"message": 5, "code": [1]}}', " ([1]) without saying why. Check"),
    ],
)
async def test_body_of_an_error_is_given_in_its_own_words_whatever_the_server(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch, body: bytes, told: str
) -> None:
    with serving(monkeypatch, Reply(status=404, body=body)):
        error, _ = await failure_of(provider)

    assert type(error) is ModelNotFound
    assert f" answered 404{told}" in str(error)
    assert "`ollama pull`" in str(error)
    assert "usually with `/v1`" in str(error)


def leave_codes_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do with an error's code what the SDK did before it made a text of it, as 3.0.0 does."""
    import openai

    make = openai.APIError.__init__

    def make_as_before(self: openai.APIError, *args: Any, body: object, **fields: Any) -> None:
        make(self, *args, body=body, **fields)
        self.code = body.get("code") if isinstance(body, dict) else None

    monkeypatch.setattr(openai.APIError, "__init__", make_as_before)


@pytest.mark.parametrize("is_old", [False, True], ids=["this SDK", "an older SDK"])
@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"error": {"code": 400, "message": "no luck", "type": "invalid"}}, " (invalid)"),
        ({"error": {"code": "400", "message": "no luck", "type": "invalid"}}, " (invalid)"),
        ({"error": {"code": "too_long", "message": "no luck", "type": "x"}}, " (too_long)"),
        ({"error": {"code": None, "message": "no luck", "type": "invalid"}}, " (invalid)"),
        ({"error": {"code": 0, "message": "no luck", "type": None}}, ""),
        ({"error": {"code": 400.5, "message": "no luck"}}, " (400.5)"),
        ({"error": {"code": [1], "message": "no luck"}}, " ([1])"),
        ({"object": "error", "message": "no luck", "type": "Bad", "code": 400}, " (Bad)"),
        ({"object": "error", "message": "no luck", "code": 40001}, ""),
    ],
)
async def test_code_of_an_error_may_be_a_number_with_every_sdk(
    provider: OpenAIProvider,
    monkeypatch: pytest.MonkeyPatch,
    body: dict[str, Any],
    named: str,
    is_old: bool,
) -> None:
    if is_old:
        leave_codes_as_they_come(monkeypatch)
    with serving(monkeypatch, Reply(status=400, body=json.dumps(body).encode())):
        error, _ = await failure_of(provider)

    assert type(error) is InvalidRequest
    assert f" answered 400{named}: no luck. The same request would be refused" in str(error)


@pytest.mark.parametrize(
    "url", ["nonsense", "localhost:11434/v1", "ftp://127.0.0.1", "http://[::1"]
)
async def test_base_url_that_is_none_is_not_tried_again(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", url)

    error, _ = await failure_of(provider)

    assert type(error) is ConnectionFailed
    assert not error.retryable
    assert "Set `OPENAI_BASE_URL` to one that begins with" in str(error)


async def test_server_that_cannot_stream_is_distinguished_from_one_that_broke(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(monkeypatch, Reply(body=b'{"choices": []}')):
        error, _ = await failure_of(provider)

    assert type(error) is StreamBroken
    assert not error.retryable
    assert "answered with application/json instead of a stream of events" in str(error)


async def test_extra_that_is_no_json_is_an_invalid_request(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(monkeypatch) as server:
        request = CompletionRequest("m", "", HELLO.messages, extra={"x": object()})
        error, _ = await failure_of(provider, request)

    assert type(error) is InvalidRequest
    assert "Check its `extra`" in str(error)
    assert server.requests == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 429, "type": "TooManyRequests"}, RateLimited),
        ({"code": 400, "type": "of a new kind"}, InvalidRequest),
        ({"code": "400", "type": "of a new kind"}, InvalidRequest),
        ({"code": "²", "type": "of a new kind"}, ServerFailed),
        ({"code": "rate_limit_exceeded", "type": "tokens"}, RateLimited),
        ({"code": "insufficient_quota", "type": "insufficient_quota"}, NoCredit),
        ({"code": None, "type": "exceeded_current_quota_error"}, NoCredit),
        ({"code": "1113", "type": None, "message": "余额不足或无可用资源包,请充值。"}, NoCredit),
        ({"code": 429, "type": None, "message": "您的账户已欠费,请充值后重试。"}, NoCredit),
        ({"code": 429, "type": None, "message": "Your credit balance is too low"}, NoCredit),
        ({"code": 400, "type": None, "message": "Bad text: insufficient balance"}, InvalidRequest),
        ({"code": "1113", "type": None, "message": "Your account is in arrears"}, NoCredit),
        (
            {
                "code": 429,
                "type": None,
                "message": "Your team t has either used all available credits or reached its "
                "monthly spending limit. To continue, please purchase more credits",
            },
            NoCredit,
        ),
        ({"code": 403, "type": None, "message": "Access denied due to overdue account"}, NoCredit),
        (
            {"code": 403, "type": None, "message": "Your new team doesn't have any credits yet"},
            NoCredit,
        ),
        (
            {
                "code": 429,
                "type": None,
                "message": "Your account is in good standing, but too fast",
            },
            RateLimited,
        ),
        (
            {
                "code": 400,
                "type": None,
                "message": "Invalid user message={'content': 'my account is in arrears'}",
            },
            InvalidRequest,
        ),
        (
            {"code": 403, "type": None, "message": "Your key may not use this model"},
            AuthenticationFailed,
        ),
        (
            {
                "code": 400,
                "type": "Arrearage",
                "message": "Access denied, please make sure your account is in good standing",
            },
            NoCredit,
        ),
        ({"code": 402, "type": None, "message": "It needs fewer max_tokens"}, NoCredit),
        ({"code": None, "type": "NotFoundError"}, ModelNotFound),
        ({"code": 7, "type": "of a new kind"}, ServerFailed),
    ],
)
async def test_error_within_a_reply_is_mapped_by_its_code_or_its_type_as_its_status_was_200(
    provider: OpenAIProvider,
    monkeypatch: pytest.MonkeyPatch,
    error: dict[str, Any],
    kind: type[LlmError],
) -> None:
    steps = (chunk({"content": "Hel"}), ("", {"error": {"message": "no luck", **error}}))
    with serving(monkeypatch, Reply(events=steps)):
        raised, events = await failure_of(provider)

    assert type(raised) is kind
    named, why = error["type"] and f" ({error['type']})", error.get("message", "no luck")
    assert f"broke off its reply{named or ''}: {why}. " in str(raised)
    assert events == [TextDelta("Hel")]


# -- keys and base URLs ---------------------------------------------------------------------------


async def test_key_and_base_url_come_from_the_sdks_environment_variables(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_ORG_ID", "org")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Team: blue")
    with serving(monkeypatch, keys=[KEY]) as server:
        await events_of(provider)

    headers = server.requests[0].headers
    assert headers["authorization"] == f"Bearer {KEY}"
    assert (headers["openai-organization"], headers["x-team"]) == ("org", "blue")


async def test_key_among_the_headers_for_all_calls_is_the_one_that_is_sent(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"Authorization: Bearer {KEY}")
    with serving(monkeypatch, keys=[KEY]):
        assert stopped(await events_of(provider)).message.text == "Hello."


async def test_arguments_go_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    with LoopbackServer({"": "Hello."}, keys=[KEY]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
        given = OpenAIProvider(base_url=f"{server.url}/v1/", api_key=KEY)
        async with contextlib.aclosing(given) as provider:
            assert stopped(await events_of(provider)).message.text == "Hello."


async def test_errors_name_what_was_given_where_it_was_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with LoopbackServer({"": "Hello."}, keys=["right"]) as server:
        given = OpenAIProvider(base_url=f"{server.url}/v1", api_key="a-wrong-key")
        async with contextlib.aclosing(given) as provider:
            error, _ = await failure_of(provider)

    assert type(error) is AuthenticationFailed
    assert "Set the `api_key` that you gave to a key that is valid there" in str(error)
    assert "check the `base_url` that you gave" in str(error)


async def test_server_of_ones_own_needs_no_key(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(monkeypatch) as server:
        await provider.check_key()
        assert server.requests == []
        assert stopped(await events_of(provider)).message.text == "Hello."


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OPENAI_API_KEY", KEY), ("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer x")],
)
async def test_check_of_the_key_is_content_with_all_that_a_call_would_send(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    with pytest.raises(MissingKey):
        await provider.check_key()
    monkeypatch.setenv(variable, value)
    await provider.check_key()


@pytest.mark.parametrize("url", [None, "", " ", "https://api.openai.com/v1"])
async def test_missing_key_for_openai_says_in_one_sentence_what_needs_none(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch, url: str | None
) -> None:
    if url is not None:
        monkeypatch.setenv("OPENAI_BASE_URL", url)

    error, _ = await failure_of(provider)
    with pytest.raises(MissingKey) as checked:
        await provider.check_key()

    assert type(error) is MissingKey
    assert str(checked.value) == str(error)
    assert "set the environment variable `OPENAI_API_KEY`" in str(error)
    assert "`OPENAI_BASE_URL`, for example `http://localhost:11434/v1`" in str(error)
    assert '`--model demo` (`model="demo"`), which needs neither.' in str(error)


async def test_openai_itself_is_asked_by_the_limits_new_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    async def post(self: Any, path: str, *, body: dict[str, Any], **_: Any) -> None:
        asked.append(body)
        raise OSError("no network here")

    async with contextlib.aclosing(OpenAIProvider(api_key=KEY)) as provider:
        await provider.ready()
        monkeypatch.setattr("openai.AsyncOpenAI.post", post)
        with pytest.raises(OSError, match="no network here"):
            await events_of(provider)

    assert asked[0]["max_completion_tokens"] == 8192
    assert "max_tokens" not in asked[0]


async def test_key_that_is_set_after_an_error_counts_at_the_next_call(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing, _ = await failure_of(provider)
    with serving(monkeypatch, keys=["a-good-key"]):
        monkeypatch.setenv("OPENAI_API_KEY", "a-bad-key")
        refused, _ = await failure_of(provider)
        monkeypatch.setenv("OPENAI_API_KEY", "a-good-key")
        answer = stopped(await events_of(provider))

    assert type(missing) is MissingKey
    assert type(refused) is AuthenticationFailed
    assert "(invalid_api_key): Incorrect API key provided. Set `OPENAI_API_KEY`" in str(refused)
    assert answer.message.text == "Hello."


@pytest.mark.parametrize("key", [f"{KEY}\nmore", "schl\udcfcssel"])
async def test_key_that_cannot_be_sent_is_reported_without_showing_it(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with serving(monkeypatch):
        error, _ = await failure_of(provider)

    assert type(error) is AuthenticationFailed
    assert "cannot be sent. Set `OPENAI_API_KEY` again" in str(error)
    assert KEY not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__


@pytest.mark.parametrize(
    ("key", "said", "told"),
    [
        (KEY, f"the key {KEY} is not known", f"the key {MASK} is not known"),
        ("a-key-of-another-make", "the key a-key-of-another-make is bad", f"the key {MASK} is bad"),
        ("mine-of-old", "the key sk-proj-of-somebody-else is bad", "the key … is bad"),
        # A word that a server wants to see is no secret, and stands in its sentences.
        ("ollama", "try `ollama list`", "try `ollama list`"),
    ],
)
async def test_key_that_the_server_repeats_is_not_in_the_message(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch, key: str, said: str, told: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with serving(monkeypatch, Reply(status=401, message=said)):
        error, _ = await failure_of(provider)

    assert told in str(error)


def test_missing_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)

    with pytest.raises(MissingExtra, match=r"pip install 'agentnb\[openai\]'"):
        OpenAIProvider()


# -- loops, tasks and processes ------------------------------------------------------------------


async def test_cancelled_call_closes_its_connection(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
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


async def test_stream_that_is_left_early_closes_its_connection(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(monkeypatch, Reply(text="Hello.", chunk=3, hold=threading.Event())) as server:
        async with contextlib.aclosing(provider.stream(HELLO)) as stream:
            await anext(stream)
        await asyncio.to_thread(server.wait_closed)
        await asyncio.to_thread(server.wait_disconnected)


def test_each_loop_has_a_client_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = OpenAIProvider()
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


def test_sdk_is_not_imported_with_the_module_but_by_the_first_call_on_another_thread() -> None:
    probe = """
import asyncio, builtins, sys, threading
from agentnb.core.types import CompletionRequest, user_message
from agentnb.providers.openai import OpenAIProvider

provider = OpenAIProvider()
assert not {"openai", "httpx2", "pydantic"} & set(sys.modules)

importers = set()
original = builtins.__import__

def watched(name, *args, **kwargs):
    if name == "openai" and "openai" not in sys.modules:
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


def test_it_is_a_provider_that_shows_no_key() -> None:
    provider: Provider = OpenAIProvider(base_url=f"http://me:{KEY}@127.0.0.1:1/v1", api_key=KEY)

    assert provider.name == "openai"
    assert repr(provider) == "OpenAIProvider(base_url='http://…@127.0.0.1:1/v1')"
    assert repr(OpenAIProvider()) == "OpenAIProvider(base_url=None)"


async def test_usage_is_heard_from_any_server_that_counts(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = (
        chunk({"content": "Hi"}, usage=usage_of(9, 1)),
        chunk({"content": " there"}, usage=usage_of(9, 2)),
        chunk({}, finish_reason="stop", usage=usage_of(9, 3, cached=4)),
    )
    with serving(monkeypatch, Reply(events=steps)):
        events = await events_of(provider)

    assert [event for event in events if isinstance(event, Usage)] == [
        Usage(9, 1),
        Usage(5, 3, cache_read_tokens=4),
    ]


async def test_field_that_a_server_sends_and_refuses_is_left_out_from_then_on(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(body: dict[str, Any]) -> Reply:
        if "mark_of_ours" in json.dumps(body):
            return Reply(status=400, message="messages.1.mark_of_ours: Extra inputs not permitted")
        said = chunk({"content": "Hi", "mark_of_ours": 1})
        return Reply(events=(said, chunk({}, finish_reason="stop"), DONE))

    with LoopbackServer(script) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        message = stopped(await events_of(provider)).message
        again = replace(HELLO, messages=(*HELLO.messages, message, user_message("And?")))
        for _ in range(2):
            assert stopped(await events_of(provider, again)).reason == "end_turn"

        marked = ["mark_of_ours" in json.dumps(each.body) for each in server.requests]
        assert marked == [False, True, False, False]


async def test_fields_of_another_api_are_not_sent(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = ToolUseBlock("t", "look", {}, {"anthropic": {"caller": {"type": "direct"}}})
    said = Message(Role.ASSISTANT, (OpaqueBlock("anthropic", {"type": "compaction"}), call))
    results = Message(Role.USER, (ToolResultBlock("t", "seen"),))
    with serving(monkeypatch, Reply(text="Hi")) as server:
        await events_of(provider, replace(HELLO, messages=(*HELLO.messages, said, results)))

    body = json.dumps(server.requests[0].body)
    assert "caller" not in body
    assert "compaction" not in body


async def test_bad_call_that_its_server_reports_may_be_tried_again(
    provider: OpenAIProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {"message": "Failed to call a function. Please adjust your prompt."}
    error = {**words, "code": "tool_use_failed", "failed_generation": "<function=look>"}
    body = json.dumps({"error": error}).encode()
    with serving(monkeypatch, Reply(status=400, body=body)):
        failure, _ = await failure_of(provider)

    assert type(failure) is ServerFailed
    assert failure.retryable
    assert "Failed to call a function" in str(failure)
