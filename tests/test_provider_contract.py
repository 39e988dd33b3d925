"""agentnb's providers keep a provider's promises, and the contract finds those that do not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from agentnb.core.errors import RateLimited
from agentnb.core.protocols import Provider
from agentnb.core.types import (
    CompletionRequest,
    Message,
    Role,
    Stopped,
    StreamEvent,
    TextBlock,
    TextDelta,
    ToolUse,
    Usage,
)
from agentnb.providers.anthropic import AnthropicProvider
from agentnb.providers.demo import DemoProvider
from agentnb.providers.openai import OpenAIProvider
from agentnb.testing import Check, ProviderFactory, Reply, ScriptedProvider, provider_contract
from tests import loopback
from tests.loopback import completions, messages
from tests.loopback.said import Dialect


def over_wire(
    make: Callable[[], Provider], dialect: Dialect, replies: Sequence[Reply]
) -> tuple[Callable[[], Provider], loopback.Script]:
    """A provider, and the script of its server."""
    left = list(replies)

    def answer(body: dict[str, Any]) -> loopback.Reply:
        reply = left.pop(0)
        if reply.error is not None and not reply.text:
            status = 429 if isinstance(reply.error, RateLimited) else 400
            return loopback.Reply(status=status, message=str(reply.error))
        calls = [(use.name, use.input) for use in reply.tool_uses]
        said = loopback.Reply(text=reply.text, tool_uses=calls, stop_reason=reply.stop_reason)
        if reply.error is None:
            return said
        steps = [*dialect.steps(said, body, number=0)]
        return loopback.Reply(events=[*steps[: len(steps) // 2], loopback.Act.HANG_UP])

    return make, answer


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ProviderFactory]]:
    """Returns, by a provider's name, a factory of providers that call a server on this machine."""
    opened: list[loopback.LoopbackServer] = []
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-planted-0123456789")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted-0123456789")

    def serving(script: loopback.Script) -> str:
        server = loopback.LoopbackServer(script)
        opened.append(server)
        return server.__enter__().url

    def anthropic(replies: Sequence[Reply]) -> Provider:
        make, script = over_wire(AnthropicProvider, messages.DIALECT, replies)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", serving(script))
        return make()

    def openai(replies: Sequence[Reply]) -> Provider:
        make, script = over_wire(OpenAIProvider, completions.DIALECT, replies)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{serving(script)}/v1")
        return make()

    factories: dict[str, ProviderFactory] = {
        "scripted": ScriptedProvider,
        "anthropic": anthropic,
        "openai": openai,
    }
    yield factories.__getitem__
    for server in opened:
        server.__exit__(None, None, None)


NAMES = ("scripted", "anthropic", "openai")
PROMISES = [str(check) for check in provider_contract(ScriptedProvider)]


def check_of(promise: str, factory: ProviderFactory) -> Check:
    """The only check with these words in its name."""
    (found,) = [check for check in provider_contract(factory) if promise in check.name]
    return found


@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("name", NAMES)
async def test_provider_keeps_its_promise(
    name: str, promise: str, servers: Callable[[str], ProviderFactory]
) -> None:
    await check_of(promise, servers(name))()


@pytest.mark.parametrize("check", provider_contract(lambda: DemoProvider(pace_s=0)), ids=str)
async def test_provider_whose_answers_cannot_be_chosen_keeps_what_any_answer_allows(
    check: Check,
) -> None:
    await check()


def test_factory_without_an_argument_gets_the_checks_that_any_answer_allows() -> None:
    names = [str(check) for check in provider_contract(lambda: ScriptedProvider(["hello"]))]

    assert names == [name for name in PROMISES if name in names]
    assert 0 < len(names) < len(PROMISES)
    assert [name for name in names if "tool" in name or "failure" in name] == []


# -- providers with one bug each ------------------------------------------------------------------


class Wrapped:
    """A scripted provider whose stream a subclass can change."""

    name = "wrapped"

    def __init__(self, replies: Sequence[Reply]) -> None:
        self.scripted = ScriptedProvider(replies)

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        async for event in self.scripted.stream(request):
            for each in self.changed(event):
                yield each

    def changed(self, event: StreamEvent) -> Sequence[StreamEvent]:
        return [event]


class HasNoName(Wrapped):
    name = ""


class NeverStops(Wrapped):
    def changed(self, event: StreamEvent) -> Sequence[StreamEvent]:
        return [] if isinstance(event, Stopped) else [event]


class StopsTwice(Wrapped):
    def changed(self, event: StreamEvent) -> Sequence[StreamEvent]:
        return [event, event] if isinstance(event, Stopped) else [event]


class CountsAfterTheEnd(Wrapped):
    def changed(self, event: StreamEvent) -> Sequence[StreamEvent]:
        return [event, Usage(1, 1)] if isinstance(event, Stopped) else [event]


class SendsBackLess(Wrapped):
    """Strips the text of the message."""

    def changed(self, event: StreamEvent) -> Sequence[StreamEvent]:
        if isinstance(event, Stopped):
            short = Message(Role.ASSISTANT, (TextBlock(event.message.text[:5]),))
            return [replace(event, message=short)]
        return [event]


class CountsEachPiece(Wrapped):
    """Reports the tokens since the last count."""

    def changed(self, event: StreamEvent) -> Sequence[StreamEvent]:
        return [Usage(5, 5), Usage(0, 5)] if isinstance(event, Usage) else [event]


class ChangesTheRequest(Wrapped):
    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        request.extra["stream"] = True  # type: ignore[index]
        async for event in super().stream(request):
            yield event


class HasOnePen(Wrapped):
    """Collects the text in the provider, not in the call."""

    said = ""

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        self.said = ""
        async for event in super().stream(request):
            await asyncio.sleep(0)
            if isinstance(event, TextDelta):
                self.said += event.text
            elif isinstance(event, Stopped):
                event = replace(event, message=Message(Role.ASSISTANT, (TextBlock(self.said),)))
            yield event


class TakesOneCall(Wrapped):
    """Stays busy if its stream is not read to the end."""

    is_busy = False

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        if self.is_busy:
            raise RuntimeError("busy")
        self.is_busy = True
        async for event in super().stream(request):
            yield event
        self.is_busy = False


class SwallowsCancellation(Wrapped):
    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        with suppress(asyncio.CancelledError):
            async for event in super().stream(request):
                yield event


class ClosesForGood(Wrapped):
    is_closed = False

    async def aclose(self) -> None:
        self.is_closed = True

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        if self.is_closed:
            raise RuntimeError("Cannot send a request, as the client has been closed.")
        async for event in super().stream(request):
            yield event


class FoldsWhiteSpace(Wrapped):
    def changed(self, event: StreamEvent) -> Sequence[StreamEvent]:
        if isinstance(event, TextDelta):
            return [TextDelta(event.text.replace("\n", " "))]
        return [event]


class KnowsOneReason(Wrapped):
    def changed(self, event: StreamEvent) -> Sequence[StreamEvent]:
        return [replace(event, reason="end_turn")] if isinstance(event, Stopped) else [event]


class LosesTools(Wrapped):
    def changed(self, event: StreamEvent) -> Sequence[StreamEvent]:
        return [] if isinstance(event, ToolUse) else [event]


class GivesTextAsInput(Wrapped):
    def changed(self, event: StreamEvent) -> Sequence[StreamEvent]:
        if isinstance(event, ToolUse):
            made: Mapping[str, Any] = {"arguments": str(event.input)}
            return [replace(event, input=made)]
        return [event]


class ForgetsTheConversation(Wrapped):
    """Answers only the first message."""

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        if len(request.messages) > 1:
            raise TypeError("messages: only one is taken")
        async for event in super().stream(request):
            yield event


class RaisesItsOwn(Wrapped):
    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        try:
            async for event in super().stream(request):
                yield event
        except Exception as error:
            raise ConnectionError(str(error)) from error


class RetriesAnything(Wrapped):
    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        try:
            async for event in super().stream(request):
                yield event
        except Exception as error:
            error.retryable = True  # type: ignore[attr-defined]
            raise


class RetriesNothing(Wrapped):
    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        try:
            async for event in super().stream(request):
                yield event
        except Exception as error:
            error.retryable = False  # type: ignore[attr-defined]
            raise


class EndsWhatBroke(Wrapped):
    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        try:
            async for event in super().stream(request):
                yield event
        except Exception:
            yield Stopped("end_turn", Message(Role.ASSISTANT, ()))


BUGS: Mapping[type[Wrapped], str] = {
    HasNoName: "a name and a stream",
    NeverStops: "one `Stopped`",
    StopsTwice: "one `Stopped`",
    CountsAfterTheEnd: "one `Stopped`",
    SendsBackLess: "pieces of text",
    CountsEachPiece: "only grow",
    ChangesTheRequest: "not changed",
    HasOnePen: "same time",
    TakesOneCall: "left early",
    SwallowsCancellation: "cancelled call",
    ClosesForGood: "closed again",
    FoldsWhiteSpace: "text arrives unchanged",
    KnowsOneReason: "why a turn ended",
    LosesTools: "tool call comes whole",
    GivesTextAsInput: "tool call comes whole",
    ForgetsTheConversation: "results of its tools",
    RaisesItsOwn: "a temporary failure",
    RetriesAnything: "a permanent failure",
    RetriesNothing: "a temporary failure",
    EndsWhatBroke: "breaks off",
}


def test_wrapped_provider_is_in_itself_without_a_bug() -> None:
    for check in provider_contract(Wrapped):
        asyncio.run(check())


@pytest.mark.parametrize("kind", BUGS, ids=lambda kind: kind.__name__)
async def test_contract_finds_the_bug(kind: type[Wrapped]) -> None:
    check = check_of(BUGS[kind], kind)

    with pytest.raises(AssertionError, match=f"^{check.name[:20]}"):
        await check()


def test_every_promise_is_broken_by_a_bug() -> None:
    assert [p for p in PROMISES if not any(words in p for words in BUGS.values())] == []
