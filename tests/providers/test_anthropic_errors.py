"""What a person reads when the API, or what stands in its place, does not do its part."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from agentnb.core.errors import ConnectionFailed, LlmError, RateLimited, ServerFailed, StreamBroken
from agentnb.core.types import CompletionRequest, StreamEvent, ToolUse, Usage, user_message
from agentnb.providers.anthropic import HINTS, AnthropicProvider
from agentnb.providers.error_mapping import ErrorMapping
from tests.faults.wire import (
    CLOSE,
    MESSAGES,
    OPEN,
    PING,
    START,
    STOP,
    delta,
    ending,
    error_event,
    event,
)
from tests.loopback import LoopbackServer, Reply, Step

KEY = "sk-ant-api03-not-a-real-key"
HELLO = CompletionRequest("m", "", (user_message("Say hello"),))


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AnthropicProvider]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    async with contextlib.aclosing(AnthropicProvider()) as provider:
        yield provider


async def outcome(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, reply: Reply
) -> tuple[list[StreamEvent], LlmError | None, str]:
    """What came of one call, its error, and that in words, with the server as `HOST`."""
    events: list[StreamEvent] = []
    with LoopbackServer({"": reply}) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        try:
            async with contextlib.aclosing(provider.stream(HELLO)) as stream:
                async for piece in stream:
                    events.append(piece)
        except LlmError as error:
            return events, error, str(error).replace(urlsplit(server.url).netloc, "HOST")
    return events, None, ""


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", " without saying why"),
        (b"null", " without saying why"),
        (b'["oops"]', " without saying why"),
        (b'{"x": 1}', " without saying why"),
        (b'{"type": "error", "error": {"type": "api_error"}}', " (api_error) without saying why"),
        (b'{"type": "error", "error": {"message": 5}}', " without saying why"),
        (b'{"type": "error", "error": {"type": ["x"], "message": "oops"}}', " (['x']): oops"),
        (b'"oops"', ": oops"),
        (b"oops, and no JSON", ": oops, and no JSON"),
        (b'{"error": "oops"}', ": oops"),
        (b'[{"error": {"code": 400, "message": "oops"}}]', ": oops"),
        (b'[{"message": "oops"}]', ": oops"),
        (b'{"message": "oops."}', ": oops"),
        (b'{"detail": "oops"}', ": oops"),
        (
            b'{"type": "error", "error": {"type": "api_er',
            ': {"type": "error", "error": {"type": "api_er',
        ),
        (b"\xff\xfe", ": \ufffd\ufffd"),
        (b"x" * 100_000, ": " + "x" * 299 + "\u2026"),
    ],
)
async def test_body_of_an_error_is_given_in_its_own_words_whatever_the_server(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, body: bytes, told: str
) -> None:
    reply = Reply(status=500, body=body)

    _, error, words = await outcome(provider, monkeypatch, reply)

    assert type(error) is ServerFailed
    assert words == f"HOST answered 500{told}. Try again in a while."


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry-after-ms": "nan", "retry-after": "7"}, 7.0),
        ({"retry-after-ms": "inf", "retry-after": "7"}, 7.0),
        ({"retry-after": "1e400"}, None),
        ({"retry-after": "Fri, 31 Dec 999999 23:59:59 GMT"}, None),
        ({"retry-after": "Fri, 99 Xyz 2026 99:99:99 GMT"}, None),
    ],
)
async def test_wait_that_makes_no_sense_is_passed_over(
    provider: AnthropicProvider,
    monkeypatch: pytest.MonkeyPatch,
    headers: dict[str, str],
    wait_s: float | None,
) -> None:
    _, error, _ = await outcome(provider, monkeypatch, Reply(status=429, headers=headers))

    assert type(error) is RateLimited
    assert error.retry_after_s == wait_s


async def test_key_in_a_web_page_is_not_shown(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key-of-another-make")
    page = b"<html>No a-key-of-another-make here</html>"
    reply = Reply(status=403, body=page, headers={"content-type": "text/html"})

    _, error, words = await outcome(provider, monkeypatch, reply)

    assert error is not None
    assert "a web page (No [secret ANTHROPIC_API_KEY] here)" in words


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("words", ": words. Try again in a while."),
        ({"message": "words"}, ": words. Try again in a while."),
        ({"type": "api_error"}, " (api_error) without saying why. Try again in a while."),
        (None, " without saying why. Try again in a while."),
        (5, " without saying why. Try again in a while."),
    ],
)
async def test_error_event_of_an_odd_shape_is_an_error_event(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, error: Any, told: str
) -> None:
    reply = Reply(events=(START, event("error", error=error)))

    _, raised, words = await outcome(provider, monkeypatch, reply)

    assert type(raised) is ServerFailed
    assert words == f"HOST broke off its reply{told}"


TOOL = event(
    "content_block_start",
    index=0,
    content_block={"type": "tool_use", "id": "t", "name": "look", "input": {"at": 1}},
)


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ((STOP,), "the end of a reply that had not begun"),
        ((START, START), "a second beginning within the reply"),
        ((START, OPEN, OPEN), "the same part of the reply twice"),
        ((START, CLOSE), "more of a part that had not begun, or had ended"),
        ((START, delta("x")), "more of a part that had not begun, or had ended"),
        ((START, TOOL, CLOSE, CLOSE), "more of a part that had not begun, or had ended"),
        ((START, event("content_block_start", index=[])), "an event of the wrong shape"),
        ((START, event("message_delta", delta=None)), "an event of the wrong shape"),
    ],
)
async def test_event_that_cannot_come_where_it_came_is_named_and_quoted(
    provider: AnthropicProvider,
    monkeypatch: pytest.MonkeyPatch,
    steps: tuple[Step, ...],
    told: str,
) -> None:
    reply = Reply(events=(*steps, PING, *ending()))

    events, error, words = await outcome(provider, monkeypatch, reply)

    assert type(error) is StreamBroken
    assert error.retryable
    assert words.startswith(f'HOST sent an unreadable reply: {told} ({{"type":"')
    assert words.endswith("). Try again.")
    assert sum(isinstance(piece, ToolUse) for piece in events) == (TOOL in steps)


async def test_compression_that_was_not_asked_for_is_named(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = MESSAGES.whole("Hello.", headers={"content-encoding": "zstd"})

    _, error, words = await outcome(provider, monkeypatch, reply)

    assert type(error) is StreamBroken
    assert words == (
        "HOST sent an unreadable reply: the compression 'zstd', which was not asked for. Try again."
    )


@pytest.mark.parametrize(("count", "known"), [(10**8, 10**8), (10**8 + 1, 1)])
async def test_count_beyond_what_any_model_can_make_is_none(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, count: int, known: int
) -> None:
    reply = Reply(events=(START, *ending(usage={"output_tokens": count})))

    events, _, _ = await outcome(provider, monkeypatch, reply)

    assert [piece for piece in events if isinstance(piece, Usage)][-1] == Usage(100, known)


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        (
            httpx2.ConnectError(
                "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local "
                "issuer certificate (_ssl.c:1006)"
            ),
            "HOST could not be reached: certificate verify failed: unable to get local issuer "
            "certificate. Check the network, and `ANTHROPIC_BASE_URL` if it is set.",
        ),
        (
            httpx2.ConnectError("[Errno -2] Name or service not known"),
            "HOST could not be reached: Name or service not known. Check the network, and "
            "`ANTHROPIC_BASE_URL` if it is set.",
        ),
        (
            httpx2.ConnectTimeout(""),
            "HOST could not be reached. Check the network, and `ANTHROPIC_BASE_URL` if it is set.",
        ),
        (
            httpx2.ReadTimeout(""),
            "HOST did not answer: nothing came for 600 s. Try again in a while.",
        ),
        (
            httpx2.WriteError(""),
            "HOST closed the connection before it answered. Try again in a while, and check the "
            "network.",
        ),
    ],
)
def test_connection_that_fails_is_reported_without_pythons_noise(
    cause: httpx2.HTTPError, told: str
) -> None:
    error = ErrorMapping("HOST", 600.0, HINTS).unanswered(cause)

    assert type(error) is ConnectionFailed
    assert str(error) == told


@pytest.mark.parametrize(
    "reply",
    [
        Reply(events=(START, OPEN, delta("Hel"), ("ping", "{"), b"x" * 10, PING)),
        Reply(events=(START, OPEN, delta("Hel"), b"data: \xff\n\n", PING)),
        Reply(events=(START, error_event("api_error", "no luck"), PING)),
        Reply(events=(START, PING), headers={"content-encoding": "gzip"}),
        Reply(events=(START, OPEN, delta("Hel"), CLOSE, *ending(), PING, b"data: {\n\n")),
    ],
)
@pytest.mark.parametrize("leaves_early", [False, True])
async def test_call_leaves_no_task_behind_however_it_ends(
    provider: AnthropicProvider, monkeypatch: pytest.MonkeyPatch, reply: Reply, leaves_early: bool
) -> None:
    others = asyncio.all_tasks()
    with LoopbackServer({"": reply}) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        with contextlib.suppress(LlmError):
            async with contextlib.aclosing(provider.stream(HELLO)) as stream:
                async for _ in stream:
                    if leaves_early:
                        break
        for _ in range(10):  # what is dropped now is closed by a task in one of the next rounds
            assert asyncio.all_tasks() == others
            await asyncio.sleep(0)
