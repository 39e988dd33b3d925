"""A chain as a session makes it, and as a provider for whoever knows nothing of chains."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from agentnb import Session
from agentnb.core.errors import LlmError, ModelNotFound, Overloaded, StreamBroken, UnknownModel
from agentnb.core.events import AgentWaiting, ModelCallStarted, ProviderFailover
from agentnb.core.protocols import FallbackModel
from agentnb.core.types import (
    AgentStatus,
    CompletionRequest,
    Stopped,
    StreamEvent,
    TextDelta,
    user_message,
)
from agentnb.providers.fallback import FallbackProvider
from agentnb.providers.scripted import AnyReply, Reply, ScriptedProvider
from agentnb.run import Run
from tests import loopback
from tests.loopback import LoopbackServer
from tests.support import DEADLINE_S, Hold, events_of

HELLO = CompletionRequest("m", "", (user_message("Say hello"),))


def answering(replies: dict[str, AnyReply]) -> ScriptedProvider:
    """One provider for several models."""
    return ScriptedProvider(lambda request: replies[request.model])


# -- a session ----------------------------------------------------------------------------------


def test_session_takes_a_list_of_models_and_the_next_one_answers() -> None:
    provider = answering({"a": ModelNotFound("There is no a.", status_code=404), "b": "hello"})
    session = Session(model=["scripted/a", "scripted/b"], provider=provider)

    run = session.spawn("Say hello")

    assert run.result(DEADLINE_S).output == "hello"
    [moved] = events_of(run.events, ProviderFailover)
    assert (moved.from_provider, moved.to_provider) == ("scripted/a", "scripted/b")
    assert run.tree is not None
    assert run.tree.model == "scripted/b"
    assert run.notes == {"root": ["switched to scripted/b: There is no a."]}
    assert run.usage.by_model["scripted/b"].total_tokens > 0


def test_run_takes_a_chain_of_its_own() -> None:
    provider = answering({"a": ModelNotFound("There is no a.", status_code=404), "b": "hello"})
    session = Session(model="scripted/a", provider=provider)

    run = session.spawn("Say hello", model=["scripted/a", "scripted/b"])

    assert run.result(DEADLINE_S).output == "hello"


async def test_chain_shares_the_gate_of_a_model_with_those_who_use_it_alone() -> None:
    hold = Hold()
    provider = ScriptedProvider([Reply("a", pause=hold), "b"])
    alone = Session(model="scripted/a", provider=provider, max_concurrency=1).spawn("one")
    await hold.until_reached()
    models = ["scripted/a", "scripted/b"]
    chain = Session(model=models, provider=provider, max_concurrency=1).spawn("two")

    async for entry in chain.stream():
        if isinstance(entry.event, AgentWaiting):
            assert entry.event.reason == "one of 1 slots for calls to scripted/a"
            break
    assert len(provider.requests) == 1

    hold.release()
    await alone
    await chain


@pytest.mark.parametrize("model", ["scripted/z", ["scripted/z", "demo"]])
def test_model_that_a_run_names_is_asked_of_a_sessions_chain(model: str | list[str]) -> None:
    provider = answering({"a": "from a", "z": "from z"})
    session = Session(provider=FallbackProvider([FallbackModel(provider, "scripted/a")]))

    assert session.spawn("Say hello").result(DEADLINE_S).output == "from a"
    assert session.spawn("Say hello", model=model).result(DEADLINE_S).output == "from z"


def test_chain_of_one_model_is_that_model() -> None:
    session = Session(model=["demo"])

    assert repr(session) == "Session(model='demo', budget=500000, max_depth=3)"


def test_session_with_a_chain_shows_it() -> None:
    session = Session(model=["anthropic/a", "demo"])

    assert repr(session) == ("Session(model=('anthropic/a', 'demo'), budget=500000, max_depth=3)")


@pytest.mark.parametrize("model", [[], ["demo", 3], ["demo", "nobody/x"], 7])
def test_chain_that_cannot_be_is_refused_at_once(model: object) -> None:
    with pytest.raises((ValueError, UnknownModel), match=r"`model`|nobody"):
        Session(model=model)  # type: ignore[arg-type]  # that is the point


# -- over the wire ------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    def script(body: dict[str, object]) -> loopback.Reply | str:
        if body["model"] == "a":
            message = "Too many requests for a"
            return loopback.Reply(status=429, message=message, headers={"retry-after": "120"})
        return "Hello from b."

    with LoopbackServer(script) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "not-a-real-key")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        yield server


def run_over(server: LoopbackServer) -> Run:
    run = Session(model=["anthropic/a", "anthropic/b"]).spawn("Say hello")
    assert run.result(DEADLINE_S).status is AgentStatus.COMPLETED
    return run


def test_two_models_of_the_api_are_a_chain(server: LoopbackServer) -> None:
    run = run_over(server)

    assert run.result().output == "Hello from b."
    assert [request.body["model"] for request in server.requests] == ["a", "b"]
    [moved] = events_of(run.events, ProviderFailover)
    assert "Too many requests for a" in moved.error
    assert "120 s" in moved.error
    started = events_of(run.events, ModelCallStarted)
    assert [call.request.model for call in started] == ["a", "b"]
    assert events_of(run.events, AgentWaiting) == []


# -- without an engine that knows chains --------------------------------------------------------


def chain_of(*providers: ScriptedProvider) -> FallbackProvider:
    return FallbackProvider(
        [FallbackModel(p, f"scripted/{name}") for p, name in zip(providers, "ab", strict=True)]
    )


async def read(provider: FallbackProvider) -> list[StreamEvent]:
    return [event async for event in provider.stream(HELLO)]


async def test_chain_is_a_provider_of_its_own() -> None:
    first, second = ScriptedProvider([Overloaded("busy")]), ScriptedProvider(["hello"])

    said = await read(chain_of(first, second))

    assert "".join(event.text for event in said if isinstance(event, TextDelta)) == "hello"
    assert [request.model for request in second.requests] == ["b"]


async def test_chain_as_a_provider_does_not_move_on_after_the_first_text() -> None:
    second = ScriptedProvider(["never asked"])

    with pytest.raises(StreamBroken):
        await read(chain_of(ScriptedProvider([Reply("half", error=StreamBroken("cut"))]), second))

    assert second.requests == []


async def test_chain_as_a_provider_moves_on_from_a_reply_without_a_word_and_an_end() -> None:
    class Silent:
        name = "silent"

        async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
            yield TextDelta("")

    chain = FallbackProvider(
        [FallbackModel(Silent(), "x/a"), FallbackModel(ScriptedProvider(["hello"]), "x/b")]
    )

    said = await read(chain)

    assert "".join(event.text for event in said if isinstance(event, TextDelta)) == "hello"


async def test_chain_as_a_provider_moves_on_from_a_refusal_without_a_word() -> None:
    declines = ScriptedProvider([Reply(stop_reason="refusal")] * 3)

    said = await read(chain_of(declines, ScriptedProvider(["hello"])))
    last = (await read(chain_of(declines, declines)))[-1]

    assert "".join(event.text for event in said if isinstance(event, TextDelta)) == "hello"
    assert [each.reason for each in said if isinstance(each, Stopped)] == ["end_turn"]
    assert isinstance(last, Stopped)
    assert last.reason == "refusal", "no model is left"


async def test_chain_as_a_provider_raises_what_the_last_model_raised() -> None:
    last = ScriptedProvider([LlmError("the last word")])

    with pytest.raises(LlmError, match="the last word"):
        await read(chain_of(ScriptedProvider([Overloaded("busy")]), last))


def test_chain_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one model"):
        FallbackProvider([])
