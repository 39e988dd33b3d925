"""The page on the store agrees with the schema, and its questions can be asked."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb import Reply, ScriptedProvider, Session
from agentnb.core.durable import AgentKind
from agentnb.core.types import Role, ToolUse
from agentnb.store import queue, threads
from agentnb.store.schema import migrate
from agentnb.store.store import store_at
from tests.pages import code_of
from tests.support import DEADLINE_S, by_agent, spawn

PAGE = (Path(__file__).parent.parent.parent / "docs" / "store.md").read_text(encoding="utf-8")
QUESTIONS = code_of("docs/store.md", "sql")


@agentnb.tool
def measure(what: str) -> str:
    """Measure it."""
    return f"{what} is 3 m long"


@agentnb.tool
def fail(what: str) -> str:
    """Fail."""
    raise ValueError(what)


def _provider() -> ScriptedProvider:
    calls = tuple(ToolUse(name, name, {"what": "it"}) for name in ("measure", "fail"))
    return by_agent(
        {
            "root": [spawn("one", "two"), "All of it."],
            "one": [Reply("I measure.", tool_uses=calls), "One is long."],
        }
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a named run of three agents and an older one without a name."""
    path = tmp_path_factory.mktemp("docs") / "x.db"
    for task, name in (("Old.", None), ("New.", "the new one")):
        session = Session(
            provider=_provider(), tools=[measure, fail], config=False, store=path, budget=10**6
        )
        session.spawn(task, name=name).result(DEADLINE_S)
    store_at(path).transactions().do(_have_an_agent)
    return path


def _have_an_agent(db: sqlite3.Connection) -> None:
    """A session with an agent that has answered, is to do a task, and remembers something."""
    after = 2.0**33  # the newest session
    threads.open_session(db, "nb_1", now=after)
    threads.new_thread(db, "nb_1.1", "nb_1", now=after + 1, parent_id="nb_1")
    threads.add_metadata(
        db, "nb_1.1", name="looker", provider="p", model="m", kind=AgentKind.PERSISTENT, now=2.0
    )
    (run_id,) = db.execute("SELECT run_id FROM runs WHERE name <> ''").fetchone()
    threads.add_message(db, "nb_1.1", Role.USER, "Look.", now=3.0, run_id=run_id)
    threads.add_message(db, "nb_1.1", Role.ASSISTANT, "I looked.", now=4.0, run_id=run_id)
    queue.enqueue(db, "nb_1.1", "Look again.", process=1, now=5.0)
    add_task = (
        "INSERT INTO tasks (session_id, id, title, prompt, status, priority, assigned_to, "
        "created_at, updated_at) VALUES ('nb_1', ?, 'Look', '', ?, 'low', 'nb_1.1', 0, 0)"
    )
    db.execute(add_task, ("t1", "completed"))
    db.execute(add_task, ("t2", "blocked"))
    db.execute("INSERT INTO task_notes (task, text, created_at) VALUES (2, 'why', 0)")
    db.execute(
        "INSERT INTO memories (text, source_agent_id, run_id, created_at) "
        "VALUES ('The sea is deep.', 'nb_1.1', 'r', 0)"
    )


@pytest.fixture
def asked(store: Path) -> Iterator[list[list[dict[str, Any]]]]:
    """The answers to the page's questions, as rows by column."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        yield [[dict(row) for row in db.execute(question)] for question in QUESTIONS]


def test_every_question_of_the_page_is_answered(asked: list[list[dict[str, Any]]]) -> None:
    runs, usage, answers, calls, tools, sizes, found, said, tasks, memories = asked

    assert [(row["run"], row["status"], row["agents"]) for row in runs] == [
        ("the new one", "completed", 3),
        ("Old.", "completed", 3),
    ]
    (used,) = usage
    assert used["input"] > used["output"] > 0
    assert [(row["path"], row["status"], row["answer"]) for row in answers][-1] == (
        "root",
        "completed",
        "All of it.",
    )
    assert {row["path"]: row["answer"] for row in answers} == {
        "1": "One is long.",
        "2": "done: two",
        "root": "All of it.",
    }
    assert len(calls) == 10
    assert {row["begins"] for row in calls} >= {"I measure.", "One is long."}
    assert [(row["name"], row["calls"], row["errors"]) for row in sorted(tools, key=str)] == [
        ("fail", 2, 2),
        ("measure", 2, 0),
    ]
    assert {row["run"] for row in sizes} == {"the new one", "Old."}
    assert all(row["characters"] > 1_000 for row in sizes)
    assert [(row["id"], row["thread"], row["said"], row["queued"]) for row in found] == [
        ("nb_1.1", "looker", 2, 1),
        ("nb_1", "", 0, 0),
    ]
    assert [(row["content"], row["status"]) for row in said] == [
        ("Look.", "completed"),
        ("I looked.", "completed"),
        ("Look again.", None),
    ]
    assert [(row["id"], row["agent"], row["note"]) for row in tasks] == [("t2", "looker", "why")]
    assert [row["text"] for row in memories] == ["The sea is deep."]


def test_page_lists_every_table_of_the_schema() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db)
        made = {
            name
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if not name.startswith(("sqlite_", "memories_text_"))
        }

    part = PAGE[PAGE.index("## Tables") : PAGE.index("## Query it")]
    assert set(re.findall(r"^\| `(\w+)` \|", part, flags=re.MULTILINE)) == made


def test_page_lists_every_file_that_a_kernel_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENTNB_STORE")
    session = Session(provider=ScriptedProvider(["Yes."]), config=False)
    session.spawn("Do it.").result(DEADLINE_S)

    made = {path.name for path in (tmp_path / ".agentnb").iterdir()}
    part = PAGE[PAGE.index("## The files") : PAGE.index("## What is kept when")]
    assert {"agentnb.db", "agentnb.db-wal"} <= made
    assert made - set(re.findall(r"`([\w.-]+)`", part)) == set()
