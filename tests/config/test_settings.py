"""Settings are defined once: every way to set one accepts and refuses the same values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb import Session, configure
from agentnb.config import Config, load_config
from agentnb.core.events import RunStarted
from agentnb.core.types import AgentStatus
from agentnb.errors import ConfigError, UntrustedSettings
from agentnb.notebook.magics import CELL_OPTIONS, AgentMagics
from agentnb.notebook.settings import settings_text
from agentnb.providers.scripted import ScriptedProvider
from agentnb.settings import DEFAULT_BUDGET, SETTINGS, Settings, Wrong
from agentnb.trust import trust
from tests.support import DEADLINE_S, by_agent, events_of, requests_of, spawn

FIELDS = {each.name: each for each in fields(Settings)}
OF_A_RUN = [name for name, setting in SETTINGS.items() if setting.option]


@pytest.fixture(autouse=True)
def nothing_trusted_and_no_session(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    monkeypatch.setattr("agentnb.default_session._default", None)


def written(*lines: str) -> None:
    """An agentnb.yaml in the working directory, with these lines in its `session`."""
    text = "session:\n" + "".join(f"  {line}\n" for line in lines)
    Path("agentnb.yaml").write_text(text)


def session_of(**settings: Any) -> Session:
    return Session(provider=ScriptedProvider(lambda request: "Done."), **settings)


# -- one definition -------------------------------------------------------------------------------


def test_signature_of_a_session_is_that_of_the_settings() -> None:
    def of(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
        parameters = signature(function).parameters.values()
        return [(each.name, each.default, each.annotation) for each in parameters]

    assert of(Session) == of(Settings)
    assert list(SETTINGS) == [name for name, *_ in of(Session)]


OF_THE_CALL = ("profile", "thread", "output", "give", "code", "name", "tags")
"""What a run is started with beside its settings."""


@pytest.mark.parametrize("method", [Session.spawn, Session.spawn_all])
def test_settings_that_a_run_may_have_of_its_own_are_parameters_and_options(
    method: Callable[..., Any],
) -> None:
    parameters = signature(method).parameters.values()
    taken = {
        each.name: (each.annotation, each.default)
        for each in parameters
        if each.kind is Parameter.KEYWORD_ONLY and each.name not in OF_THE_CALL
    }

    types = {name: FIELDS[name].type.removesuffix(" | None") for name in OF_A_RUN}
    assert taken == {name: (f"{kind} | None", None) for name, kind in types.items()}
    assert {"model", "budget", "max_depth", "tools", "max_agents"} <= set(OF_A_RUN)
    options = {option.name for option in CELL_OPTIONS.values()}
    assert options >= set(OF_A_RUN)
    assert not (options - set(OF_A_RUN)) & SETTINGS.keys()


def test_every_setting_is_told_where_a_session_is_looked_up() -> None:
    told = " ".join((Session.__doc__ or "").split())

    for name, setting in SETTINGS.items():
        assert f" {name}: {' '.join(setting.about.split())}" in told
    assert " Raises: ValueError: " in told


# -- wrong values, by every way that there is -----------------------------------------------------


@dataclass(frozen=True)
class Mistake:
    """A value that a setting refuses."""

    name: str
    value: Any
    right: str
    written: str = ""
    """The same in a file; empty where there is no such."""
    typed: str = ""
    """The same behind a magic; empty where there is no such."""

    def __str__(self) -> str:
        return f"{self.name}={self.written or type(self.value).__name__}"


TOKENS = "a whole number of tokens, at least 1"
LEVELS = "a whole number of levels, at least 0"
AGENTS = "a whole number of agents, at least 0"
SECONDS = "a number of seconds above 0"
WARNING = "'ask', 'continue' or 'stop', or a callable that answers one of the last two"
CASSETTE = "the path of a file, or None for the notebook's own"
STORE = "'auto', the path of a file or a folder, or None (memory only)"
MISTAKES = [
    Mistake("budget", -1, TOKENS, "-1", "-1"),
    Mistake("budget", "many", TOKENS, "many", "many"),
    Mistake("budget", "50000", TOKENS, "'50000'"),
    Mistake(
        "budget",
        1.5,
        f'{TOKENS}, or dollars as in "$4" (a float may mean either: write dollars as text)',
    ),
    Mistake("budget", "1.5", TOKENS, typed="1.5"),
    Mistake("budget", True, TOKENS, "true"),
    Mistake("budget", None, TOKENS),
    Mistake("budget", 10**25, "at most 1e+24", str(10**25), str(10**25)),
    Mistake("budget", "x" * 5_000, TOKENS, "x" * 5_000, "x" * 5_000),
    Mistake("max_depth", -1, LEVELS, "-1", "-1"),
    Mistake("max_depth", "deep", LEVELS, "deep", "deep"),
    Mistake("max_agents", -1, AGENTS, "-1", "-1"),
    Mistake("max_agents", "many", AGENTS, "many", "many"),
    Mistake("max_concurrency", 0, "a whole number of calls, at least 1", "0"),
    Mistake("max_output_tokens", 0, TOKENS, "0"),
    Mistake("max_time_s", 0, SECONDS, "0"),
    Mistake("max_time_s", "long", SECONDS, "long"),
    Mistake("max_time_s", True, SECONDS, "true"),
    Mistake("max_time_s", float("nan"), SECONDS),
    Mistake("stop_after_failures", 0, "a whole number of sub-agents, at least 1", "0"),
    Mistake("stop_after_failures", 1.5, "a whole number of sub-agents, at least 1"),
    Mistake("max_turns", 0, "a whole number of turns, at least 1", "0"),
    Mistake("max_turns", True, "a whole number of turns, at least 1", "yes"),
    Mistake("call_timeout_s", 0, SECONDS, "0"),
    Mistake("call_timeout_s", "long", SECONDS, "long"),
    Mistake("call_timeout_s", True, SECONDS, "true"),
    Mistake("pause_timeout_s", float("nan"), SECONDS),
    Mistake("pause_timeout_s", -1, SECONDS, "-1"),
    Mistake("nested_spawn", "no way", "True or False", "no way"),
    Mistake("delegation", "blocks", "'block', 'tools' or 'both'", "blocks"),
    Mistake("delegation", ["tools"], "'block', 'tools' or 'both'", "[tools]"),
    Mistake("sub_agent_memory", "some", "'inherit' or 'fresh'", "some"),
    Mistake("on_budget_warning", "perhaps", WARNING, "perhaps"),
    Mistake("soul", None, "a string"),
    Mistake("user", 5, "a string"),
    Mistake("memories", "likes tea", "a list of strings"),
    Mistake("memories", [1], "a list of strings"),
    Mistake("tools", "look", "a list of functions, tools or names"),
    Mistake("tools", 5, "a list of functions, tools or names"),
    Mistake("model", 5, "`provider/model`, `pool:NAME`, or a list of them"),
    Mistake("model", ["demo", 5], "`provider/model`, `pool:NAME`, or a list of them"),
    Mistake("provider", "demo", "a provider (`model` is for names)"),
    Mistake("store", 5, STORE),
    Mistake("store", True, STORE),
    Mistake("store", " ", STORE),
    Mistake("store", "two\nlines.db", STORE),
    Mistake("mode", "sometimes", "'live', 'record', 'auto' or 'replay'"),
    Mistake("cassette", 5, CASSETTE),
    Mistake("cassette", "two\nlines.jsonl", CASSETTE),
    Mistake("replay_speed", -1, "a number, at least 0"),
    Mistake("replay_speed", "fast", "a number, at least 0"),
]


def told_in_one_line(act: Callable[[], object]) -> str:
    """The error as a person sees it in a notebook."""
    with pytest.raises((ValueError, agentnb.AgentnbError)) as raised:
        act()
    (line,) = vars(raised.value)["_render_traceback_"]()
    assert "\n" not in line
    assert len(line) < 500
    assert line == f"{type(raised.value).__name__}: {raised.value}"
    return str(line)


def ways_in_code(mistake: Mistake) -> Iterator[Callable[[], object]]:
    said = {mistake.name: mistake.value}
    yield lambda: Session(**{"provider": ScriptedProvider([]), **said})
    yield lambda: configure(**said)
    if mistake.name in OF_A_RUN and mistake.value is not None:
        session = session_of()
        yield lambda: session.spawn("x", **said)
        yield lambda: session.spawn_all(["x"], **said)
        yield lambda: session.run_sync("x", **said)


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_wrong_value_in_code_is_one_line_that_names_it_and_what_is_right(mistake: Mistake) -> None:
    shown = repr(mistake.value)
    for act in ways_in_code(mistake):
        line = told_in_one_line(act)
        if len(shown) < 100:
            expected = f"ValueError: `{mistake.name}` must be {mistake.right}, not {shown}."
            assert line == expected
        else:
            assert line.startswith(f"ValueError: `{mistake.name}` must be {mistake.right}, not 'x")
            assert line.endswith("x…'.")
    assert agentnb.default_session.session_at_hand() is None


@pytest.mark.parametrize("mistake", [each for each in MISTAKES if each.written], ids=str)
def test_wrong_value_in_a_file_is_told_with_its_line(mistake: Mistake) -> None:
    session = session_of()
    written("# so that it is line 3", f"{mistake.name}: {mistake.written}")

    for act in (load_config, session_of, configure, lambda: session.spawn("x")):
        line = told_in_one_line(act)
        start = f"ConfigError: agentnb.yaml, line 3, `session.{mistake.name}`: This must be "
        assert line.startswith(f"{start}{mistake.right}, not ")
        if len(mistake.written) < 100:
            assert line.endswith(f", not {mistake.value!r}.")
    assert session.newest_run is None


@pytest.mark.parametrize("mistake", [each for each in MISTAKES if each.typed], ids=str)
def test_wrong_value_behind_a_magic_is_told_by_its_option(mistake: Mistake) -> None:
    option = f"--{mistake.name.replace('_', '-')}"
    magics: Any = AgentMagics(None)

    for typed in (f"{option} {mistake.typed}", f"{option}={mistake.typed}"):
        line = told_in_one_line(lambda typed=typed: magics.spawn(typed, "Hello"))  # type: ignore[misc]
        assert line.startswith(f"NotebookError: '{option}' must be {mistake.right}, not '")


def test_all_that_is_wrong_in_a_file_is_told_at_once_and_what_code_must_say() -> None:
    written("budget: -1", "soul: Be kind.", "model: demo", "budgte: 5", "max_turns: few")

    with pytest.raises(ConfigError) as raised:
        load_config()

    code = "A file cannot set this. Set it in code: `Session({}=…)`."
    assert [(each.key, each.line, each.what) for each in raised.value.mistakes] == [
        ("session.budget", 2, f"This must be {TOKENS}, not -1."),
        ("session.soul", 3, code.format("soul")),
        ("session.model", 4, code.format("model")),
        ("session.budgte", 5, "There is no such key here. Did you mean `budget`?"),
        ("session.max_turns", 6, "This must be a whole number of turns, at least 1, not 'few'."),
    ]


def test_setting_that_does_not_exist_is_one_line_too() -> None:
    with pytest.raises(TypeError) as raised:
        Session(bugdet=1)  # type: ignore[call-arg]

    (line,) = vars(raised.value)["_render_traceback_"]()
    said = "There is no setting 'bugdet': did you mean `budget` (known: model, budget, "
    assert line.startswith(f"TypeError: {said}")
    assert told_in_one_line(lambda: configure(bugdet=1)).startswith(f"ValueError: {said}")


@pytest.mark.parametrize("name", ["spawn", "spawn_all", "map"])
def test_argument_that_does_not_exist_is_one_line_too(name: str) -> None:
    method = getattr(session_of(), name)

    with pytest.raises(TypeError) as raised:
        method("x", budegt=1)

    (line,) = vars(raised.value)["_render_traceback_"]()
    assert line.startswith("TypeError: There is no argument 'budegt': did you mean `budget` (")
    assert all(each in line for each in signature(method).parameters)


# -- who goes before whom -------------------------------------------------------------------------


def test_run_goes_before_code_code_before_the_file_and_the_file_before_the_default() -> None:
    written("budget: 1_000", "max_depth: 1", "max_agents: 7", "call_timeout_s: 2.5")

    session = session_of(max_depth=3, max_agents=1000)  # the defaults, but said
    run = session.spawn("x", max_agents=5)
    run.result(DEADLINE_S)

    started = events_of(run.events, RunStarted)[0]
    assert (started.budget_total, started.max_depth) == (1_000, 3)
    assert (session.budget, session.max_depth) == (1_000, 3)
    assert (session.settings.max_agents, session.settings.call_timeout_s) == (1000, 2.5)
    assert session.settings.max_turns == 50
    shown = settings_text(session).splitlines()
    assert "  budget               1,000 (session.budget)" in shown
    assert "  max_depth            3 (set in code)" in shown
    assert "  max_turns            50 (the default)" in shown


def test_settings_of_a_file_reach_the_agents() -> None:
    written("max_agents: 1", "sub_agent_memory: fresh", "max_output_tokens: 77")
    provider = by_agent({"root": [spawn("A", "B"), "ok"]})

    run = Session(provider=provider, memories=["what was"]).spawn("x")

    assert [str(each.status) for each in run.result(DEADLINE_S).sub_agent_results] == [
        "completed",
        "skipped",
    ]
    assert "what was" in provider.requests[0].system
    assert "what was" not in requests_of(provider, "A")[0].system
    assert {request.max_tokens for request in provider.requests} == {77}


def test_file_that_changes_changes_the_next_run_and_without_it_the_defaults_hold() -> None:
    written("budget: 1_000", "max_depth: 0")
    session = session_of()

    written("budget: 2_000")
    second = session.spawn("x")
    Path("agentnb.yaml").unlink()
    third = session.spawn("x")

    assert (second.budget.total, third.budget.total) == (2_000, DEFAULT_BUDGET)
    assert (session.budget, session.max_depth) == (DEFAULT_BUDGET, 3)
    for run in (second, third):
        run.result(DEADLINE_S)


def test_depth_that_a_file_says_holds_for_a_fan_out() -> None:
    session = session_of()
    written("max_depth: 0")

    with pytest.raises(ValueError, match=r"^`spawn_all` starts sub-agents.* not 0: "):
        session.spawn_all(["x"])
    assert session.spawn_all(["x"], max_depth=1).result(DEADLINE_S).output == "Done."


def test_configure_keeps_what_was_said_and_not_what_a_file_said() -> None:
    written("max_depth: 1", "max_turns: 9")
    configure(provider=ScriptedProvider([]), max_depth=3)
    Path("agentnb.yaml").unlink()

    session = configure(budget=5)

    assert (session.budget, session.max_depth, session.settings.max_turns) == (5, 3, 50)


def test_configure_keeps_the_named_file_also_after_a_change_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written("max_depth: 1")
    configure(provider=ScriptedProvider([]), config="agentnb.yaml")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    session = configure(budget=5)

    assert (session.budget, session.max_depth) == (5, 1)


@pytest.mark.parametrize(
    ("said", "kind", "origin"),
    [
        ("tools: {spawn: {enabled: true}}", "both", "tools.spawn.enabled"),
        ("tools: {spawn: {enabled: false}}", "block", "tools.spawn.enabled"),
        ("session: {delegation: tools}", "tools", "session.delegation"),
        (
            "tools: {spawn: {enabled: true}}\nsession: {delegation: tools}",
            "tools",
            "session.delegation",
        ),
        ("session: {delegation: }", "block", "the default"),
    ],
)
def test_delegation_of_a_file_and_where_it_comes_from(said: str, kind: str, origin: str) -> None:
    Path("agentnb.yaml").write_text(said)

    session = session_of()

    assert session.delegation == kind
    (line,) = (line for line in settings_text(session).splitlines() if "  delegation" in line)
    assert line.endswith(f" ({origin})")
    assert session_of(delegation="block").delegation == "block"


def test_list_that_a_person_changes_later_changes_no_setting() -> None:
    memories = ["first"]
    session = session_of(memories=memories)

    memories.append("second")

    assert session.settings.memories == ("first",)


def test_rows_that_can_be_gone_through_once_are_kept_whole() -> None:
    provider = ScriptedProvider(lambda request: "Done.")

    def look() -> str:
        """Look."""
        return ""

    session = Session(
        (model for model in ["scripted/a"]),  # type: ignore[arg-type]
        provider=provider,
        memories=(each for each in ["what was"]),  # type: ignore[arg-type]
        tools=(each for each in [look]),  # type: ignore[arg-type]
    )
    session.run_sync("x")
    written("max_depth: 2")  # which has the settings made anew
    session.run_sync("x", tools=(each for each in ["look", "workspace"]))
    session.run_sync("x")

    asked = [(request.model, "what was" in request.system) for request in provider.requests]
    assert asked == [("a", True)] * 3
    assert [[spec.name for spec in request.tools] for request in provider.requests] == [
        ["look"],
        ["look", "workspace_read", "workspace_write"],
        ["look"],
    ]


# -- a stranger's file spends nothing more --------------------------------------------------------

COSTLY = [f"budget: {DEFAULT_BUDGET + 1}", "on_budget_warning: continue"]


@pytest.mark.parametrize("line", COSTLY)
def test_file_lets_no_run_spend_more_before_it_is_trusted(line: str) -> None:
    name = line.partition(":")[0]
    written("max_depth: 1", line)
    session = session_of()
    before = settings_text(session)

    with pytest.raises(UntrustedSettings) as raised:
        session.spawn("x")
    assert session.newest_run is None
    assert str(raised.value).startswith(
        "agentnb.yaml is not trusted, so nothing was sent: by its settings, a run may spend more "
        "(`session."
    )
    assert ". If you want that, allow it by `%agentnb trust`, " in str(raised.value)
    assert f"(session.{name}; not trusted: no run starts before `%agentnb trust`)" in before

    told = trust(session.config)

    assert told.startswith(f"agentnb.yaml is trusted: a run may spend more (`session.{name}: ")
    assert session.run_sync("x").output == "Done."
    assert f"(session.{name})" in settings_text(session)
    written("max_depth: 2", line)
    with pytest.raises(UntrustedSettings):
        session.spawn("x")


@pytest.mark.parametrize("line", COSTLY)
def test_what_code_says_in_its_place_needs_no_trust(line: str) -> None:
    written(line)
    mine: dict[str, Any] = {"budget": 10_000_000, "on_budget_warning": "continue"}
    name = line.partition(":")[0]

    assert session_of(**{name: mine[name]}).run_sync("x").output == "Done."
    if name == "budget":
        assert session_of().run_sync("x", budget=10_000_000).output == "Done."
    made = Config(Path.cwd(), session={name: mine[name]})  # by code, without a file
    assert session_of(config=made).run_sync("x").output == "Done."


def test_file_that_allows_less_needs_no_trust() -> None:
    written(
        f"budget: {DEFAULT_BUDGET}", "on_budget_warning: stop", "max_agents: 10", "max_turns: 5"
    )

    assert session_of().run_sync("x").output == "Done."
    assert trust(load_config()).endswith("Nothing was saved.")


def test_budget_of_nothing_is_an_answer_in_code_and_a_slip_of_the_hand_behind_an_option() -> None:
    assert Session("demo", budget=0).run_sync("Hello").status is AgentStatus.EXHAUSTED
    with pytest.raises(Wrong, match="at least 1"):
        SETTINGS["budget"].check.read("0")
