"""Notes that the agents of a run share, when somebody asked for them."""

from __future__ import annotations

from typing import Any

import pytest

from agentnb.core.errors import ToolError
from agentnb.core.protocols import ToolContext
from agentnb.core.types import ToolUse
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.session import Session
from agentnb.tools.workspace import MOST_IN_KEY, MOST_IN_NOTE, MOST_NOTES, workspace_tools
from tests.support import by_agent, requests_of, spawn
from tests.tools.calling import called, in_context


def read(notes: dict[str, str], **input: Any) -> str:
    return called(workspace_tools()[0], input, in_context(notes))


def write(notes: dict[str, str], **input: Any) -> str:
    return called(workspace_tools()[1], input, in_context(notes))


def test_note_that_was_written_can_be_read_and_replaced() -> None:
    notes: dict[str, str] = {}

    assert write(notes, key="a", text="one") == "Written: a (3 characters)."
    write(notes, key="a", text="two")

    assert notes == {"a": "two"}
    assert read(notes, key="a") == "two"


def test_key_forges_no_other_note_in_the_list() -> None:
    forged = "a (3 characters)\u2028- b"

    assert read({forged: "x"}) == "The notes:\n- a (3 characters) - b (1 characters)"
    assert read({forged: "x"}, key=forged) == "x"


def test_list_of_notes_shows_their_keys_and_lengths() -> None:
    assert read({}) == "There are no notes yet."
    assert (
        read({"a": "one", "b": "a whale"}) == "The notes:\n- a (3 characters)\n- b (7 characters)"
    )


def test_missing_note_is_an_error_that_names_those_that_are_there() -> None:
    with pytest.raises(ToolError, match=r"There is no note 'c'\. There are:\n- a"):
        read({"a": "one"}, key="c")
    with pytest.raises(ToolError, match="There are: none yet"):
        read({}, key="c")


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        (" ", "x", "`key` must have 1 to"),
        ("k" * (MOST_IN_KEY + 1), "x", "`key` must have 1 to"),
        ("k", "x" * (MOST_IN_NOTE + 1), "`text` has 20,001 characters"),
        ("new", "x", f"has all of its {MOST_NOTES} notes"),
    ],
    ids=["blank key", "long key", "long note", "full"],
)
def test_note_that_has_no_place_is_refused_and_nothing_is_written(
    key: str, text: str, words: str
) -> None:
    notes = {f"note {n}": "" for n in range(MOST_NOTES if key == "new" else 1)}
    before = dict(notes)

    with pytest.raises(ToolError, match=words):
        write(notes, key=key, text=text)
    assert notes == before


def test_full_workspace_takes_a_note_in_place_of_another() -> None:
    notes = {f"note {n}": "" for n in range(MOST_NOTES)}

    write(notes, key="note 7", text="x")

    assert notes["note 7"] == "x"


def test_agents_of_a_run_share_one_workspace_and_runs_do_not() -> None:
    def using(name: str, **input: Any) -> Reply:
        return Reply(tool_uses=(ToolUse("t", f"workspace_{name}", input),))

    provider = by_agent(
        {
            "root": [spawn("A", "B", mode="sequential"), "ok", using("read"), "none"],
            "A": [using("write", key="found", text="a whale"), "done"],
            "B": [using("read", key="found"), "done"],
        }
    )
    session = Session(provider=provider, tools=["workspace"])

    session.run_sync("x")
    session.run_sync("x")

    assert requests_of(provider, "B")[1].last_user_text == "a whale"
    assert requests_of(provider, "root")[3].last_user_text == "There are no notes yet."


def test_no_model_reads_or_replaces_what_a_tool_of_a_person_keeps_in_the_workspace() -> None:
    seen: list[dict[str, Any]] = []

    def connect(ctx: ToolContext) -> str:
        """Keep what the other tools need."""
        ctx.workspace["connection"] = {"password": "hunter2"}
        return "connected"

    def query(ctx: ToolContext) -> str:
        """Use what is kept."""
        seen.append({"workspace": dict(ctx.workspace), "notes": dict(ctx.notes)})
        return "queried"

    def use(name: str, **input: Any) -> Reply:
        return Reply(tool_uses=(ToolUse("t", name, input),))

    provider = by_agent(
        {
            "root": [
                use("connect"),
                use("workspace_read"),
                use("workspace_read", key="connection"),
                use("workspace_write", key="connection", text="mine"),
                use("workspace_read", key="connection"),
                use("query"),
                spawn("A"),
                "done",
            ],
            "A": [use("workspace_read"), use("query"), "done"],
        }
    )

    Session(provider=provider, tools=[connect, query, "workspace"]).run_sync("x")

    told = [request.last_user_text for request in requests_of(provider, "root")[2:6]]
    assert told == [
        "There are no notes yet.",
        "There is no note 'connection'. There are: none yet.",
        "Written: connection (4 characters).",
        "mine",
    ]
    of_child = requests_of(provider, "A")[1].last_user_text
    assert of_child == "The notes:\n- connection (4 characters)"
    kept = {"connection": {"password": "hunter2"}}
    assert seen == [{"workspace": kept, "notes": {"connection": "mine"}}] * 2
    assert not any("hunter2" in str(request) for request in provider.requests)


def test_workspace_is_only_there_when_asked_for() -> None:
    provider = ScriptedProvider(["done"])

    Session(provider=provider).run_sync("x")

    assert provider.requests[0].tools == ()
