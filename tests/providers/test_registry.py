"""A model's name leads to its provider, in either way of writing it."""

from __future__ import annotations

import asyncio
import sys

import pytest

from agentnb.core.errors import MissingExtra, UnknownModel
from agentnb.core.protocols import Provider
from agentnb.providers.anthropic import AnthropicProvider
from agentnb.providers.demo import DemoProvider
from agentnb.providers.openai import OpenAIProvider
from agentnb.providers.registry import Registry, known_providers, register_provider, split_model
from agentnb.providers.scripted import ScriptedProvider


@pytest.mark.parametrize(
    ("model", "provider", "name"),
    [
        ("anthropic/claude-sonnet-5-5", "anthropic", "claude-sonnet-5-5"),
        ("anthropic:claude-sonnet-5-5", "anthropic", "claude-sonnet-5-5"),
        ("  anthropic/claude  ", "anthropic", "claude"),
        ("anthropic/some/thing:new", "anthropic", "some/thing:new"),
        ("anthropic:some/thing", "anthropic", "some/thing"),
        ("anthropic/no-such-model", "anthropic", "no-such-model"),
        ("openai/llama3.2:1b", "openai", "llama3.2:1b"),
        ("openai:hf.co/some/model:Q4_K_M", "openai", "hf.co/some/model:Q4_K_M"),
        ("demo", "demo", ""),
        ("demo/slow", "demo", "slow"),
    ],
)
def test_name_is_split_at_its_first_mark(model: str, provider: str, name: str) -> None:
    assert split_model(model) == (provider, name)


@pytest.mark.parametrize(
    "model",
    ["", " ", "gpt", "openai", "openai/", "gpt/openai", "claude-sonnet-5-5", "anthropic",
     "anthropic/", "anthropic: ", "/claude", ":claude", "Anthropic/claude", "demos"],
)  # fmt: skip
def test_name_without_a_known_provider_or_without_a_model_says_what_is_known(model: str) -> None:
    with pytest.raises(UnknownModel) as caught:
        split_model(model)

    assert caught.value.name == model
    assert caught.value.known == known_providers()
    assert repr(model) in str(caught.value)
    assert "anthropic, demo, openai" in str(caught.value)


def test_provider_that_holds_connections_is_made_once() -> None:
    registry = Registry()

    assert registry.resolve("anthropic/a")[0] is registry.resolve("anthropic/b")[0]


def test_openai_is_for_any_server_of_chat_completions() -> None:
    provider, name = Registry().resolve("openai/llama3.2:1b")

    assert isinstance(provider, OpenAIProvider)
    assert name == "openai/llama3.2:1b"


def test_extra_that_is_missing_is_reported_when_its_model_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)

    with pytest.raises(MissingExtra, match=r"pip install 'agentnb\[openai\]'"):
        Registry().resolve("openai/llama3.2")


@pytest.mark.usefixtures("own_registry")
def test_provider_that_two_threads_ask_for_at_once_is_one() -> None:
    registry, made = Registry(), list[Provider]()

    def make() -> Provider:
        made.append(provider := ScriptedProvider([]))
        if len(made) == 1:
            assert registry.resolve("lab/a")[0] is made[1]  # as another thread would
        return provider

    register_provider("lab", make)

    assert registry.resolve("lab/a")[0] is made[1]
    assert registry.resolve("lab/b")[0] is made[1]
    assert len(made) == 2


def test_name_is_written_with_a_slash() -> None:
    provider, name = Registry().resolve("demo")
    _, with_model = Registry().resolve("demo:slow")

    assert isinstance(provider, DemoProvider)
    assert (name, with_model) == ("demo", "demo/slow")


def test_each_registry_has_providers_of_its_own() -> None:
    one, other = (Registry().resolve("anthropic/a")[0] for _ in range(2))

    assert one is not other


async def test_registry_closes_what_it_made_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[object] = []

    async def close(provider: AnthropicProvider) -> None:
        closed.append(provider)

    monkeypatch.setattr(AnthropicProvider, "aclose", close)
    registry = Registry()
    provider, _ = registry.resolve("anthropic/a")
    registry.resolve("demo")

    await registry.aclose()
    await Registry().aclose()

    assert closed == [provider]


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("error", [OSError, asyncio.CancelledError, SystemExit])
async def test_provider_that_fails_to_close_does_not_keep_the_others_open(
    error: type[BaseException],
) -> None:
    closed: list[str] = []

    class Closes(DemoProvider):
        async def aclose(self) -> None:
            closed.append("closes")

    class Fails(DemoProvider):
        async def aclose(self) -> None:
            closed.append("fails")
            raise error

    register_provider("fails", Fails)
    register_provider("closes", Closes)
    registry = Registry()
    registry.resolve("fails/a")
    registry.resolve("closes/a")

    await registry.aclose()

    assert closed == ["fails", "closes"]
