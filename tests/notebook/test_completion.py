"""Tab completion of our magics, by direct calls of the function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentnb import Reply, ScriptedProvider, Session, register_provider, tool
from agentnb.config import config_of
from agentnb.core.types import ToolUse
from agentnb.modes import MODES
from agentnb.notebook.completion import complete
from agentnb.notebook.magics import AGENTNB_VERBS, CELL_OPTIONS, SPAWN_VERBS
from tests.support import DEADLINE_S, Hold, spawn, until

SETTINGS = """\
tools: {spawn: {profiles: {reviewer: {}, writer: {}, broken: {tols: []}}}}
llm: {pools: {fast: [demo], careful: [anthropic/a]}}
"""


def look_up(river: str) -> str:
    """A function of a module, as a notebook imports it."""
    return river


def of_notebook(a: int) -> int:
    return a


of_notebook.__module__ = "__main__"
NOTEBOOK = {
    "look_up": look_up,
    "of_notebook": of_notebook,
    "deep": tool(look_up, name="other"),
    "number": 5,
    "_hidden": of_notebook,
}


@pytest.fixture
def session(tmp_path: Path) -> Session:
    (tmp_path / "agentnb.yaml").write_text(SETTINGS)
    return Session(
        provider=ScriptedProvider(lambda request: "Done."), config=tmp_path, tools=[look_up]
    )


def offered(text: str, session: Session | None = None) -> list[str]:
    """The completions offered for the last line, from the start of the word."""
    found = complete(text, session, NOTEBOOK, lambda: session.config if session else None)
    if found is None:
        return []
    fragment, matches = found
    assert text.endswith(fragment)
    assert all(match.startswith(fragment) for match in matches)
    return list(matches)


@pytest.mark.parametrize("at", ["%%spawn ", "%%spawn\t", "%%time\n%%spawn ", "\n%%spawn "])
def test_options_are_those_of_the_table_that_are_not_there_yet(at: str) -> None:
    assert offered(at) == list(CELL_OPTIONS)
    assert offered(f"{at}--m") == ["--model", "--max-depth", "--max-agents"]
    assert offered(f"{at}--model demo --m") == ["--max-depth", "--max-agents"]
    assert offered(f"{at}--bg --model=demo -o x -") == [
        each for each in CELL_OPTIONS if each not in ("--bg", "--model", "-o")
    ]


def test_models_are_those_of_session_pools_runs_and_providers(session: Session) -> None:
    session.run_sync("Hello", model="scripted/used")

    names = offered("%%spawn --model ", session)

    assert names[:4] == ["scripted", "demo", "pool:fast", "pool:careful"]
    assert {"scripted/used", "anthropic/", "openai/"} <= set(names)
    assert offered("%%spawn --quiet --model pool:f", session) == ["pool:fast"]
    assert offered("%%spawn --model=de", session) == ["demo"]
    assert offered("%%spawn --model anthropic/c") == ["anthropic/claude-sonnet-5-5"]


@pytest.mark.usefixtures("own_registry")
def test_models_of_a_registered_provider_are_offered_like_the_built_in_ones() -> None:
    register_provider("offered", lambda: ScriptedProvider([]))
    register_provider("offer", lambda: ScriptedProvider([]), needs_model=False)

    assert offered("%%spawn --model off") == ["offer", "offered/"]


def test_profiles_are_those_that_can_be_used(session: Session) -> None:
    assert offered("%%spawn --profile ", session) == ["reviewer", "writer"]
    assert offered("%%spawn --profile w", session) == ["writer"]
    assert offered("%%spawn --profile ") == []


def test_tools_are_functions_and_tools_by_name_each_once_in_a_list(session: Session) -> None:
    names = offered("%%spawn --tools ", session)

    assert names == ["of_notebook", "deep", "look_up", "workspace", "memory", "tasks"]
    assert offered("%%spawn --tools look_up,", session) == [
        "of_notebook",
        "deep",
        "workspace",
        "memory",
        "tasks",
    ]
    assert offered("%%spawn --tools deep,look_up,wo", session) == ["workspace"]
    assert offered("%%spawn --tools=deep,lo", session) == ["look_up"]


def test_line_magics_have_their_words(session: Session) -> None:
    assert offered("%spawn ") == [*SPAWN_VERBS, "--run"]
    assert offered("x = 1\n  said = %spawn c") == ["cancel"]
    assert offered("%spawn status ") == []
    assert offered("%agentnb ") == list(AGENTNB_VERBS)
    assert offered("%agentnb c") == ["config"]
    assert offered("%agentnb mode ") == [*MODES]
    assert offered("%agentnb mode rep") == ["replay"]


async def test_paths_are_those_of_the_newest_run_or_the_one_that_is_named_alive_ones_first() -> (
    None
):
    hold = Hold()
    answers: dict[str, Any] = {
        "Plan": spawn("first", "other"),
        "first": "Done.",
        "other": Reply("Not yet.", pause=hold),
        "<sub_agent_results>": "Done.",
    }
    session = Session(provider=ScriptedProvider(answers), config=False)
    run = session.spawn("Plan")
    hold.wait()
    await until(lambda: run.tree is not None and run.tree.children[0].status.is_terminal)

    assert offered("%spawn cancel ", session) == ["root", "2", "1"]
    assert offered("%spawn cancel 1", session) == ["1"]
    assert offered("%spawn cancel 1 ", session) == []
    assert offered("%spawn tell ", session) == ["root", "2", "1"]
    assert offered("%spawn --run ", session) == [run.id]
    assert offered(f"%spawn --run {run.id} cancel ", session) == ["root", "2", "1"]
    assert offered("%spawn --run nowhere cancel ", session) == []
    hold.release()
    run.result(DEADLINE_S)
    newer = session.spawn("first")
    newer.result(DEADLINE_S)
    assert offered("%spawn cancel --run ", session) == [newer.id, run.id]


async def test_open_questions_and_their_answers_are_offered() -> None:
    call = ToolUse("u", "act", {})
    script = ScriptedProvider([Reply(tool_uses=(call,)), "Done."])

    def act() -> str:
        return ""

    session = Session(provider=script, tools=[tool(act, approval=True)])
    run = session.spawn("Act.")
    await until(lambda: run.questions)

    assert offered("%spawn answer ", session) == ["q1"]
    assert offered("%spawn answer q1 ", session) == ["approve", "deny"]
    assert offered(f"%spawn --run {run.id} answer q1 d", session) == ["deny"]
    run.answer("q1", "deny")
    run.result(DEADLINE_S)
    assert offered("%spawn answer ", session) == []


@pytest.mark.parametrize(
    "text",
    [
        "%%spawn",
        "%%spawned ",
        "%%spawn --model demo\n%spawn ",
        "%%spawn\nA task with --m",
        "x = 1\n%%spawn ",
        " %%spawn ",
        "%%spawn --budget ",
        "%%spawn -o ",
        "%%spawn --nonsense=",
        "%%spawn --model {{na",
        "%%spawn words ",
        "spawn ",
        "5 % spawn ",
        "%time ",
        "",
    ],
)
def test_elsewhere_nothing_is_offered(text: str, session: Session) -> None:
    assert offered(text, session) == []


@given(
    st.lists(
        st.sampled_from(
            ["%%spawn", "%spawn", "%agentnb", " ", "\n", "--model", "--tools", "=", ",", "cancel",
             "--run", "-", "\t", "{{", "'", '"', "pool:", "\x00", "\u2028"]
        )
        | st.text(max_size=3)
    ).map("".join)
)  # fmt: skip
def test_any_text_is_completed_or_left_alone(text: str) -> None:
    session = Session("demo", config=False)

    offered(text, session)


def test_settings_are_not_looked_for_where_they_are_not_needed() -> None:
    def never() -> None:
        raise AssertionError

    for text in ("%%spawn ", "%%spawn --tools ", "%spawn cancel ", "%agentnb ", "x = "):
        complete(text, None, NOTEBOOK, never)
    with pytest.raises(AssertionError):
        complete("%%spawn --model ", None, NOTEBOOK, never)


def test_settings_of_the_working_directory_are_known_before_there_is_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agentnb.yaml").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)

    found = complete("%%spawn --profile ", None, NOTEBOOK, lambda: config_of(None))

    assert found == ("", ("reviewer", "writer"))
