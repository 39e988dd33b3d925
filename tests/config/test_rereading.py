"""A change of a settings file holds for the next run, and not for a run that has begun."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentnb import Reply, ScriptedProvider, Session, ToolUse
from agentnb.config import load_config
from agentnb.config.project_file import WatchedFile
from agentnb.core.types import CompletionRequest
from agentnb.errors import ConfigError, UnknownProfile
from tests.support import DEADLINE_S, Hold

PROFILE = "tools: {spawn: {profiles: {a: {system_prompt: %s}}}}"
OWN_POOL = "llm: {default_pool: own, pools: {own: [demo]}}"


@pytest.fixture
def provider() -> ScriptedProvider:
    return ScriptedProvider(lambda request: "Well said.")


def told(session: Session, provider: ScriptedProvider) -> str:
    """The instructions of the profile `a` for the root of the next run."""
    session.run_sync("Hello", profile="a", max_depth=0)
    system = provider.requests[-1].system
    return system.partition("<instructions>")[2].partition("</instructions>")[0].strip()


def test_file_that_is_written_changed_and_deleted_is_seen_by_the_next_run(
    project: Path, provider: ScriptedProvider
) -> None:
    file, session = project / "agentnb.yaml", Session(provider=provider)
    with pytest.raises(UnknownProfile):
        session.spawn("Hello", profile="a")

    for word in ("first", "other"):  # of the same size, and within one tick of the clock
        file.write_text(PROFILE % word)
        assert told(session, provider) == word

    file.unlink()
    with pytest.raises(UnknownProfile):
        session.spawn("Hello", profile="a")
    session.run_sync("Hello")


def test_file_that_a_profile_names_is_seen_too_also_one_that_was_missing(
    project: Path, provider: ScriptedProvider
) -> None:
    (project / "agentnb.yaml").write_text(
        "tools: {spawn: {profiles: {a: {system_prompt_file: a.md}}}}"
    )
    session = Session(provider=provider)
    with pytest.raises(ConfigError, match=r"There is no file 'a\.md'"):
        session.spawn("Hello", profile="a")

    for word in ("first", "other"):
        (project / "a.md").write_text(word)
        assert told(session, provider) == word


def test_all_that_the_file_says_is_seen_models_and_delegation(project: Path) -> None:
    session = Session()
    (project / "agentnb.yaml").write_text(f"{OWN_POOL}\ntools: {{spawn: {{enabled: true}}}}")

    session.reread_settings()

    assert (session.model, session.delegation) == ("demo", "both")
    assert session.spawn("Hello").result(DEADLINE_S).agent_tree.model == "demo"


@pytest.mark.parametrize(
    "broken", ["tools: {", "nonsense: 1", "llm: {default_pool: none}", "llm: {pools: {a: [x/y]}}"]
)
def test_file_that_became_broken_is_told_by_the_next_run_and_mending_it_is_enough(
    project: Path, provider: ScriptedProvider, broken: str
) -> None:
    file = project / "agentnb.yaml"
    file.write_text(PROFILE % "first")
    session = Session(provider=provider)
    file.write_text(broken)

    for _ in range(2):
        with pytest.raises(ConfigError, match=r"^agentnb\.yaml, line 1"):
            session.spawn("Hello")
    assert session.newest_run is None
    file.write_text(PROFILE % "first")

    assert told(session, provider) == "first"


def test_run_that_goes_on_keeps_what_it_began_with(project: Path) -> None:
    (project / "agentnb.yaml").write_text(PROFILE % "first")
    hold = Hold()

    def answer(request: CompletionRequest) -> Any:
        if request.messages[-1].text == "Hello":
            return Reply(tool_uses=_spawned("a"), pause=hold)
        return "Done."

    provider = ScriptedProvider(answer)
    session = Session(provider=provider, delegation="tools")
    run = session.spawn("Hello")
    hold.wait()
    (project / "agentnb.yaml").write_text(PROFILE % "never-told")
    session.reread_settings()
    hold.release()

    run.result(DEADLINE_S)
    systems = [request.system for request in provider.requests]
    assert ["<system_prompt>\nfirst\n" in system for system in systems].count(True) == 1
    assert not any("never-told" in system for system in systems)


def _spawned(profile: str) -> tuple[ToolUse, ...]:
    return (ToolUse("1", "spawn", {"task": "part", "profile": profile}),)


def test_path_is_read_again_wherever_the_kernel_is_by_then_and_has_to_be_there(
    project: Path, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "own.yaml").write_text(PROFILE % "first")
    session = Session(provider=provider, config="own.yaml")
    monkeypatch.chdir(os.sep)

    (project / "own.yaml").write_text(PROFILE % "other")
    assert told(session, provider) == "other"

    (project / "own.yaml").unlink()
    with pytest.raises(ConfigError, match=r"^own\.yaml: There is no such file"):
        session.spawn("Hello")


@pytest.mark.parametrize("config", [load_config, lambda path: False], ids=["loaded", "none"])
def test_what_was_loaded_and_none_stay(
    project: Path, provider: ScriptedProvider, config: Callable[[Path], Any]
) -> None:
    (project / "agentnb.yaml").write_text("llm: {}")
    session = Session(provider=provider, config=config(project))

    (project / "agentnb.yaml").write_text(PROFILE % "first")

    with pytest.raises(UnknownProfile):
        session.spawn("Hello", profile="a")


def test_file_that_did_not_change_is_not_read_again(project: Path) -> None:
    file = project / "agentnb.yaml"
    file.write_text(OWN_POOL)
    found = file.stat()
    stamp = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
    watched = WatchedFile(file, file.read_text, stamp, said="what is not read would not tell")

    assert not watched.has_changed()
    file.write_text("llm: {}")
    assert watched.has_changed()


def test_session_whose_file_did_not_change_keeps_what_it_read(project: Path) -> None:
    (project / "agentnb.yaml").write_text(OWN_POOL)
    session = Session()
    before = session.config

    session.reread_settings()
    assert session.config is before
    (project / "agentnb.yaml").write_text(OWN_POOL)  # written again, and the same
    session.reread_settings()
    assert session.config is before
