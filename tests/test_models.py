"""The models of a session: named models, pools of the settings file, profiles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentnb.default_session
from agentnb.core.errors import MissingExtra, ServerFailed, UnknownModel
from agentnb.core.events import ProviderFailover, ToolCallFinished
from agentnb.core.prompt import DEFAULT_INSTRUCTIONS
from agentnb.core.protocols import FallbackModel, Provider
from agentnb.core.types import ToolUse
from agentnb.default_session import configure, get_session
from agentnb.errors import ConfigError, UnknownPool, UnknownProfile
from agentnb.models import Origin
from agentnb.providers.fallback import FallbackProvider
from agentnb.providers.registry import register_provider
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.session import Session
from agentnb.settings import DEFAULT_MODEL
from tests.support import DEADLINE_S, by_agent, events_of, spawn

SETTINGS = """\
tools:
  spawn:
    profiles:
      reviewer:
        system_prompt: Be strict.
        system_prompt_file: reviewer.md
        pool: best
      plain:
        description: It says nothing to its agents.
llm:
  default_pool: fast
  pools:
    fast: [anthropic/claude-haiku-4-5, demo]
    best: [first/a, second/b]
    one: [demo]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with settings, whose pools need the tests' own providers."""
    (tmp_path / "agentnb.yaml").write_text(SETTINGS)
    (tmp_path / "reviewer.md").write_text("Look twice.")
    (tmp_path / "AGENTS.md").write_text("The house rules.")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(agentnb.default_session, "_default", None)
    return tmp_path


def providers(*, first: Any = "by the first", second: Any = "by the second") -> FallbackProvider:
    """Both providers of the pool `best`."""
    return FallbackProvider(
        [
            FallbackModel(ScriptedProvider(lambda request: first, name="first"), "first/x"),
            FallbackModel(ScriptedProvider(lambda request: second, name="second"), "second/x"),
        ]
    )


# -- defaults -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("project")
def test_session_that_names_no_model_takes_the_default_pool() -> None:
    session = Session(config=_without("best"))

    assert session.model == ("anthropic/claude-haiku-4-5", "demo")
    assert session.model_origin is Origin.DEFAULT_POOL


@pytest.mark.usefixtures("project")
def test_model_said_in_code_goes_before_the_default_pool_even_if_it_is_the_default_one() -> None:
    config = _without("best")
    as_the_default = str(bytes(DEFAULT_MODEL, "ascii"), "ascii")

    assert Session(as_the_default, config=config).model == as_the_default
    assert Session("demo", config=config).model == "demo"
    assert Session("demo", config=config).model_origin is Origin.CODE
    mine = ScriptedProvider([], name="mine")
    assert Session(provider=mine, config=config).model == "mine"
    assert Session(config=False).model == DEFAULT_MODEL
    assert Session(config=False).model_origin is Origin.DEFAULT


def _without(pool: str) -> Path:
    """Settings whose models all have built-in providers."""
    kept = [line for line in SETTINGS.splitlines() if pool not in line]
    file = Path("known.yaml")
    file.write_text("\n".join(kept))
    return file


# -- pools --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("project")
def test_first_model_of_a_pool_that_works_answers() -> None:
    session = Session(provider=providers(first=ServerFailed("out of order", retryable=False)))

    run = session.spawn("a task", model="pool:best")

    assert run.result(DEADLINE_S).output == "by the second"
    (moved,) = events_of(run.events, ProviderFailover)
    assert (moved.from_provider, moved.to_provider) == ("first/a", "second/b")
    assert session.run_sync("a task", model="pool:one").agent_tree.model == "demo"


@pytest.mark.usefixtures("project")
def test_model_of_a_pool_without_a_key_is_passed_over() -> None:
    run = Session("pool:fast", config=_without("best")).spawn("a task", max_depth=0)

    assert run.result(DEADLINE_S).output.startswith("(demo)")
    (moved,) = events_of(run.events, ProviderFailover)
    assert "ANTHROPIC_API_KEY" in moved.error


@pytest.mark.usefixtures("project")
def test_pool_can_be_part_of_a_chain() -> None:
    session = Session(["demo", "pool:best"], provider=providers())

    assert session.model == ("demo", "first/a", "second/b")


@pytest.mark.usefixtures("project")
def test_unknown_pool_is_refused_by_session_and_run() -> None:
    session = Session(provider=providers())

    with pytest.raises(UnknownPool, match=r"'slow' \(known: 'fast', 'best', 'one'\)"):
        session.spawn("a task", model="pool:slow")
    with pytest.raises(UnknownPool, match="'slow'"):
        Session("pool:slow", provider=providers())


@pytest.mark.usefixtures("project")
def test_pool_with_a_provider_that_the_session_does_not_have_is_an_error_with_its_line() -> None:
    with pytest.raises(ConfigError) as raised:
        Session()

    assert [mistake.place for mistake in raised.value.mistakes] == [
        "line 14, `llm.pools.best[0]`",
        "line 14, `llm.pools.best[1]`",
    ]
    assert "No provider answers to the model 'first/a'" in str(raised.value)
    with pytest.raises(UnknownModel):
        Session("first/a", config=False)
    assert Session(provider=providers()).config.source == "agentnb.yaml"


# -- the root, by a profile ---------------------------------------------------------------------


@pytest.mark.usefixtures("project")
def test_profile_gives_the_root_its_pool_and_its_texts_and_its_sub_agents_nothing() -> None:
    asked = []

    def answer(request: Any) -> str:
        asked.append(request)
        is_first = len(asked) == 1
        return spawn("look") if is_first else "done"

    own = FallbackProvider(
        [FallbackModel(ScriptedProvider(answer, name=n), n) for n in ("first", "second")]
    )

    Session(provider=own).spawn("a task", profile="reviewer").result(DEADLINE_S)

    root, child, _ = asked
    assert root.model == "a"
    assert (
        "<instructions>\nAGENTS.md:\n\nThe house rules.\n\nLook twice.\n\nBe strict.\n"
        "</instructions>"
    ) in root.system
    assert DEFAULT_INSTRUCTIONS not in root.system
    for words in ("The house rules.", "Look twice.", "Be strict."):
        assert words not in child.system


def test_profile_that_says_nothing_leaves_the_root_as_it_is(project: Path) -> None:
    (project / "AGENTS.md").unlink()
    own = providers()
    session = Session(provider=own)

    session.spawn("a task", profile="plain").result(DEADLINE_S)
    session.spawn("a task").result(DEADLINE_S)

    by_profile, without = own.links[0].provider.requests  # type: ignore[attr-defined]
    assert by_profile == without
    assert DEFAULT_INSTRUCTIONS in by_profile.system


@pytest.mark.usefixtures("project")
def test_model_of_a_run_goes_before_the_pool_of_its_profile() -> None:
    run = Session(provider=providers()).spawn("a task", profile="reviewer", model="second/c")

    assert run.result(DEADLINE_S).agent_tree.model == "second/c"


@pytest.mark.usefixtures("project")
def test_unknown_profile_is_refused_and_no_run_begins() -> None:
    session = Session(provider=providers())

    with pytest.raises(UnknownProfile, match=r"'writer' \(known: 'reviewer', 'plain'\)"):
        session.spawn("a task", profile="writer")
    assert session.newest_run is None


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("profile", [["reviewer"], {"reviewer": 1}, 5])
def test_profile_that_is_no_name_is_refused_with_the_known_ones(profile: Any) -> None:
    with pytest.raises(
        ValueError,
        match=r"^`profile` must be the name of one profile \(known: 'reviewer', 'plain'\)",
    ):
        Session(provider=providers()).spawn("a task", profile=profile)


# -- providers that are not installed -------------------------------------------------------------


@pytest.fixture
def nothing_installed(own_registry: None) -> None:
    """No SDK can be imported; the demo needs none."""

    def missing(name: str) -> Callable[..., Provider]:
        def make(**settings: str) -> Provider:
            raise MissingExtra(f"The SDK of {name}", extra=name)

        return make

    for name in ("anthropic", "openai"):
        register_provider(name, missing(name), replace=True)


@pytest.mark.usefixtures("nothing_installed")
def test_model_of_a_chain_whose_sdk_is_not_installed_is_passed_over() -> None:
    run = Session(["openai/a", "demo"], config=False).spawn("a task")

    assert run.result(DEADLINE_S).agent_tree.model == "demo"
    assert events_of(run.events, ProviderFailover) == []


@pytest.mark.usefixtures("nothing_installed")
def test_chain_of_which_no_sdk_is_installed_is_refused_with_what_the_first_needs() -> None:
    with pytest.raises(MissingExtra, match=r"pip install 'agentnb\[openai\]'"):
        Session(["openai/a", "anthropic/b"], config=False)


OPENAI_ALONE = """\
tools: {spawn: {profiles: {local: {pool: own}, plain: {}}}}
llm: {pools: {own: [openai/a, openai/b]}}
"""


@pytest.mark.usefixtures("nothing_installed")
def test_pool_of_a_profile_is_looked_at_when_the_profile_is_used(project: Path) -> None:
    (project / "agentnb.yaml").write_text(OPENAI_ALONE)
    local, plain = (
        ToolUse(name, "spawn", {"task": name, "profile": name}) for name in ("local", "plain")
    )
    wait = ToolUse("w", "spawn_await", {"job_ids": "*"})
    both, then = Reply(tool_uses=(local, plain)), Reply(tool_uses=(wait,))
    provider = by_agent({"root": [both, then, "Without it."]})
    run = Session(provider=provider, delegation="tools").spawn("a task")

    assert run.result(DEADLINE_S).output == "Without it."
    refused, started, _ = events_of(run.events, ToolCallFinished)
    assert (refused.is_error, started.is_error) == (True, False)
    assert refused.result == (
        "The profile 'local' cannot be used: The SDK of openai is not installed: install it with "
        "`pip install 'agentnb[openai]'`."
    )


# -- the session of the magics --------------------------------------------------------------------


def test_configure_reads_the_settings_again(project: Path) -> None:
    configure(provider=providers())
    (project / "agentnb.yaml").write_text("llm: {pools: {mine: [demo]}, default_pool: mine}")

    assert get_session().config.default_pool == "fast"
    assert configure().config.default_pool == "mine"
    assert configure(model="pool:mine").model == "demo"


def test_settings_that_are_wrong_can_be_left_out_and_put_right(project: Path) -> None:
    (project / "agentnb.yaml").write_text("nonsense: 1")
    with pytest.raises(ConfigError):
        get_session()
    with pytest.raises(ConfigError):
        configure(budget=1000)

    assert configure(config=False, model="demo", budget=1000).budget == 1000

    (project / "agentnb.yaml").write_text("llm: {}")
    assert configure(config=None).config.source == "agentnb.yaml"
    assert get_session().budget == 1000
