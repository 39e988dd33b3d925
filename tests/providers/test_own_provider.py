"""A person's own provider, registered by name, is one like the built-in ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb import Session, register_provider
from agentnb.core.errors import LlmError, MissingExtra, ServerFailed, UnknownModel
from agentnb.core.events import AgentSpawned, ProviderFailover, ToolCallFinished
from agentnb.core.types import CompletionRequest, Stopped, StreamEvent, TextDelta, assistant_message
from agentnb.errors import ConfigError
from agentnb.providers.anthropic import AnthropicProvider
from tests.support import DEADLINE_S, by_agent, events_of, spawn

pytestmark = pytest.mark.usefixtures("own_registry")


class LabProvider:
    """As a person writes one, on nothing but the page `docs/providers.md`."""

    name = "lab"

    def __init__(self, answer: Callable[[str], str] = "Lab: {}".format) -> None:
        self.answer = answer
        self.models: list[str] = []

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        self.models.append(request.model)
        text = self.answer(request.last_user_text)
        yield TextDelta(text)
        yield Stopped("end_turn", assistant_message(text))


def delegates_once(said: str) -> str:
    """The root asks for two sub-agents, and then answers from their results."""
    if said == "the task":
        return spawn("one", "two")
    return f"Lab: {said}" if len(said) < 10 else "All of it."


def out_of_order(said: str) -> str:
    raise ServerFailed("The lab is dark.", retryable=False)


# -- wherever a model is named ------------------------------------------------------------------


def test_tree_of_agents_is_answered_by_a_registered_provider() -> None:
    made = list[LabProvider]()

    def lab() -> LabProvider:
        made.append(LabProvider(delegates_once))
        return made[-1]

    register_provider("lab", lab)

    result = Session(model="lab/model-x", config=False).run_sync("the task")
    again = Session(model="lab:model-y", config=False).run_sync("Hello", max_depth=0)

    assert result.output == "All of it."
    assert [child.response for child in result.sub_agent_results] == ["Lab: one", "Lab: two"]
    assert {node.model for node in result.agent_tree.walk()} == {"lab/model-x"}
    assert again.agent_tree.model == "lab/model-y"
    (provider,) = made
    assert provider.models == [*["model-x"] * 4, "model-y"], "it is made once, for all sessions"


def test_run_may_name_a_registered_provider_beside_the_one_of_its_session() -> None:
    register_provider("lab", LabProvider)
    session = Session(model="demo", config=False)

    assert session.run_sync("Hello", model="lab/x", max_depth=0).output == "Lab: Hello"


def test_chain_falls_back_from_and_to_a_registered_provider() -> None:
    register_provider("dark", lambda: LabProvider(out_of_order))
    register_provider("lab", LabProvider)

    run = Session(model=["dark/a", "lab/b", "demo"], config=False).spawn("Hello", max_depth=0)

    assert run.result(DEADLINE_S).output == "Lab: Hello"
    (moved,) = events_of(run.events, ProviderFailover)
    assert (moved.from_provider, moved.to_provider) == ("dark/a", "lab/b")


def test_model_of_a_chain_whose_factory_misses_an_extra_is_passed_over() -> None:
    def missing() -> LabProvider:
        raise MissingExtra("The SDK of the lab", extra="lab")

    register_provider("dark", missing)
    register_provider("lab", LabProvider)

    run = Session(model=["dark/a", "lab/b"], config=False).spawn("Hello", max_depth=0)

    assert run.result(DEADLINE_S).output == "Lab: Hello"
    assert events_of(run.events, ProviderFailover) == []


def test_pools_and_profiles_of_the_settings_file_may_name_it(tmp_path: Path) -> None:
    (tmp_path / "agentnb.yaml").write_text(
        "tools: {spawn: {profiles: {careful: {pool: own}}}}\n"
        "llm: {pools: {own: [lab/model-x]}, default_pool: own}\n"
    )
    with pytest.raises(ConfigError, match="No provider answers to the model 'lab/model-x'"):
        Session(config=tmp_path)
    register_provider("lab", LabProvider)

    assert Session(config=tmp_path).run_sync("Hello", max_depth=0).agent_tree.model == "lab/model-x"

    asked = agentnb.ToolUse("c", "spawn", {"task": "look", "profile": "careful"})
    wait = agentnb.ToolUse("w", "spawn_await", {"job_ids": "*"})
    root = by_agent({"root": [*(agentnb.Reply(tool_uses=(use,)) for use in (asked, wait)), "Done"]})
    run = Session(provider=root, config=tmp_path, delegation="tools").spawn("a task")

    assert run.result(DEADLINE_S).output == "Done"
    (child,) = [spawned for spawned in events_of(run.events, AgentSpawned) if spawned.parent_id]
    assert child.model == "lab/model-x"
    assert "Lab: look" in str(events_of(run.events, ToolCallFinished)[-1].result)


# -- what is wrong with a registration ----------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["a/b", "a:b", "", " ", "with space", "pool", "new", "é", "x" * 65, 3]
)
def test_name_that_no_model_could_begin_with_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match=r"^A provider cannot have the name .*letters, .*\.$"):
        register_provider(name, LabProvider)


@pytest.mark.parametrize("factory", [LabProvider(), None, "lab"])
def test_what_cannot_be_called_is_no_factory(factory: Any) -> None:
    with pytest.raises(ValueError, match=r"^`factory` must be the provider's class, or a function"):
        register_provider("lab", factory)

    with pytest.raises(UnknownModel):
        Session(model="lab/x", config=False)


@pytest.mark.parametrize("taken", ["anthropic", "openai", "demo", "lab"])
def test_name_that_is_taken_is_refused_and_stays_with_who_has_it(taken: str) -> None:
    register_provider("lab", LabProvider)

    with pytest.raises(ValueError, match=rf"^There is a provider '{taken}' already\. Use another"):
        register_provider(taken, lambda: LabProvider(out_of_order))

    assert Session(model="lab/x", config=False).run_sync("Hi", max_depth=0).output == "Lab: Hi"


def test_another_provider_may_take_a_name_on_purpose_from_the_next_run_on() -> None:
    register_provider("lab", LabProvider)
    session = Session(model="lab/x", config=False)
    assert session.run_sync("Hi", max_depth=0).output == "Lab: Hi"

    register_provider("lab", lambda: LabProvider("New: {}".format), replace=True)
    register_provider("anthropic", LabProvider, replace=True)

    assert session.run_sync("Hi", max_depth=0).output == "New: Hi"
    assert session.run_sync("Hi", model="anthropic/a", max_depth=0).output == "Lab: Hi"


@pytest.mark.parametrize("made", [None, LabProvider, object(), AnthropicProvider.stream])
def test_factory_that_makes_something_else_is_reported_where_its_model_is_named(made: Any) -> None:
    register_provider("lab", lambda: made)

    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"^The factory of the provider 'lab' returned .* not a prov"
        ):
            Session(model="lab/x", config=False)


@pytest.mark.parametrize("given", [LabProvider, object(), "lab/x"])
def test_session_takes_a_provider_and_not_its_class(given: Any) -> None:
    with pytest.raises(ValueError, match="`provider` must be a provider"):
        Session(provider=given, config=False)


def test_what_a_factory_raises_is_raised_where_its_model_is_named() -> None:
    def lab() -> LabProvider:
        raise LlmError("The lab has no room.")

    register_provider("lab", lab)

    with pytest.raises(LlmError, match=r"^The lab has no room\.$"):
        Session(model="lab/x", config=False)


def test_model_of_a_registered_provider_needs_a_name_unless_it_was_said() -> None:
    register_provider("lab", LabProvider)
    register_provider("solo", LabProvider, needs_model=False)

    with pytest.raises(UnknownModel) as caught:
        Session(model="lab", config=False)

    assert caught.value.known == ("anthropic", "demo", "lab", "openai", "solo")
    assert Session(model="solo", config=False).run_sync("Hi", max_depth=0).output == "Lab: Hi"
