"""Files of each schema so far are read, and written on: one stored sample of each.

A sample is the SQL of a file (`sqlite3 FILE .dump` says the same) beside the document of its run.
`python -m tests.store.test_samples` writes the sample of today's schema, once, when it is new.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from agentnb.core.context import AgentContext
from agentnb.core.durable import AgentKind
from agentnb.core.types import AgentConfig, Role
from agentnb.record import load_run, record_of
from agentnb.store import queue, threads
from agentnb.store.database import open_to_write
from agentnb.store.journal import SqliteJournal
from agentnb.store.schema import APPLICATION_ID, MIGRATIONS, VERSION
from agentnb.store.store import store_at
from agentnb.store.writer import Writer
from tests.core.clock import ManualClock
from tests.core.tool_bodies import Tool, order
from tests.support import Tree, by_agent, make_tree, run_tree, spawn

DATA = Path(__file__).parent / "data"
SCHEMAS = range(1, VERSION + 1)


def a_file_of(schema: int, folder: Path) -> Path:
    """The sample of a schema as a file."""
    path = folder / f"schema_{schema}.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript((DATA / f"schema_{schema}.sql").read_text("utf-8"))
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {schema}")
    return path


def document(text: str) -> dict[str, Any]:
    """A saved run, but for the version of agentnb that saved it."""
    return {name: value for name, value in json.loads(text).items() if name != "agentnb"}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_file_of_every_schema_is_read_as_it_was_written(schema: int, tmp_path: Path) -> None:
    store = store_at(a_file_of(schema, tmp_path))

    (info,) = store.runs()
    stored = store.load(info.id)
    record = record_of(stored.head.run_id, stored.head.task, stored.rows, stored.whole_tool_calls)

    assert (str(info.status), info.agents, info.name) == ("completed", 4, "a sample")
    # Its document, read by this version: a field that came later has its default in both.
    written = load_run(DATA / f"schema_{schema}.json")
    assert document(record.to_json()) == document(written.to_json())


@pytest.mark.parametrize("schema", SCHEMAS)
def test_head_of_every_schema_has_what_was_known_then(schema: int, tmp_path: Path) -> None:
    store = store_at(a_file_of(schema, tmp_path))
    (info,) = store.runs()
    head = store.load(info.id).head

    assert (head.first_child, head.version) == (0, ""), "nobody gave them"


@pytest.mark.parametrize("schema", SCHEMAS)
async def test_file_of_every_schema_gets_further_runs(schema: int, tmp_path: Path) -> None:
    path = a_file_of(schema, tmp_path)
    writer = Writer(path)
    writer.open()
    try:
        tree = await run_tree(by_agent({"root": "ok"}), journal=SqliteJournal(writer))
    finally:
        writer.close()

    assert writer.trouble is None
    assert {info.id for info in store_at(path).runs()} >= {tree.request.run_id}
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_migrations_of_a_schema_are_those_that_made_its_sample(schema: int, tmp_path: Path) -> None:
    """A migration that was released must not change."""
    with closing(sqlite3.connect(":memory:")) as made:
        for statement in chain(*MIGRATIONS[:schema]):
            made.execute(statement)
        with closing(sqlite3.connect(a_file_of(schema, tmp_path))) as sample:
            assert _schema_of(sample) == _schema_of(made)


def _schema_of(db: sqlite3.Connection) -> dict[str, str]:
    return dict(db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))


def test_file_from_before_threads_gets_none_for_its_runs(tmp_path: Path) -> None:
    path = a_file_of(1, tmp_path)
    with closing(open_to_write(path)) as db:
        for table in ("threads", "messages", "tasks", "queue", "memories"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
        assert db.execute("SELECT count(*) FROM runs").fetchone() == (1,)


@pytest.mark.parametrize("schema", SCHEMAS[1:])
def test_file_since_threads_keeps_them(schema: int, tmp_path: Path) -> None:
    with closing(open_to_write(a_file_of(schema, tmp_path))) as db:
        assert {row.id for row in threads.list_threads(db, SESSION)} == {SESSION, AGENT}
        (agent,) = threads.list_agents(db, SESSION)
        assert (agent.thread_id, agent.created_for_task) == (AGENT, "t1")
        contents = [message.content for message in threads.messages_of(db, AGENT)]
        assert contents == ["said before", "said now"]
        (waiting,) = queue.queued_of(db, 1)
        assert (waiting.content, waiting.settings) == ("said now", {"budget": 5})
        found = db.execute(
            "SELECT m.text FROM memories_text JOIN memories m ON m.id = memories_text.rowid "
            "WHERE memories_text MATCH 'deep'"
        )
        assert found.fetchall() == [("the sea is deep",)]


# -- the sample of today's schema ------------------------------------------------------------------


def _scene(writer: Writer) -> Tree:
    async def look(*_: object) -> str:
        return "seen far away. " * 200

    provider = by_agent(
        {
            "root": [spawn("P", "Q", before="Two parts."), "all of it: ü, 二, \u200b"],
            "P": [order("look", where="at sea"), spawn("P1"), "both of P"],
            "P1": "P1 is done",
            "Q": "Q is done",
        }
    )
    return make_tree(
        provider,
        clock=ManualClock(sleeps_end=True),
        tools=[Tool(look)],
        journal=SqliteJournal(writer),
        context=AgentContext(agent_config=AgentConfig(model="scripted/any")),
        run_id="01a2066d6b1e75d7a4afade572a643b9",
        thread_id="nb_20261123_sample",
    )


NOW = 1763856000.0
SESSION = "nb_20261123_sessio"
AGENT = f"{SESSION}.1"


def _have_an_agent(db: sqlite3.Connection) -> None:
    """A session with a persistent agent, a task, two messages, one of them queued, and a memory."""
    threads.open_session(db, SESSION, now=NOW)
    threads.new_thread(db, AGENT, SESSION, now=NOW, parent_id=SESSION)
    db.execute(
        "INSERT INTO tasks (session_id, id, title, prompt, status, priority, assigned_to, "
        "created_at, updated_at) VALUES (?, 't1', 'Look', 'Look at it.', 'in_progress', 'high', "
        "?, ?, ?)",
        (SESSION, AGENT, NOW, NOW),
    )
    db.execute("INSERT INTO task_notes (task, text, created_at) VALUES (1, 'a note', ?)", (NOW,))
    threads.add_metadata(
        db,
        AGENT,
        name="any",
        provider="scripted",
        model="any",
        kind=AgentKind.PERSISTENT,
        now=NOW,
        created_for_task=1,
        parent_thread_id=SESSION,
    )
    threads.add_message(db, AGENT, Role.USER, "said before", now=NOW)
    queue.enqueue(db, AGENT, "said now", process=1, now=NOW, settings={"budget": 5})
    db.execute(
        "INSERT INTO memories (text, source_agent_id, run_id, created_at) "
        "VALUES ('the sea is deep', ?, 'r', ?)",
        (AGENT, NOW),
    )


def _dumped(db: sqlite3.Connection) -> Iterator[str]:
    """The SQL of a file. The tables of a search are made by one statement, and filled anew."""
    (search,) = db.execute("SELECT sql FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL%'")
    for statement in db.iterdump():
        if "CREATE VIRTUAL TABLE" in statement:
            yield f"{search[0]};"
        elif statement == "COMMIT;":
            yield "INSERT INTO memories_text (memories_text) VALUES ('rebuild');"
            yield statement
        elif not statement.startswith(_OF_SEARCH):
            yield statement


_OF_SEARCH = (
    "CREATE TABLE 'memories_text_",
    'INSERT INTO "memories_text',
    "PRAGMA writable_schema",
)


def _write_sample(folder: Path) -> None:
    path = folder / "sample.db"
    writer = Writer(path)
    writer.open()
    tree = _scene(writer)
    asyncio.run(tree.run())
    writer.do(_have_an_agent)
    writer.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE runs SET name = 'a sample', started_at = 1763856000.0")
        db.execute("UPDATE processes SET host = 'host', pid = 1, started_at = 1763856000.0")
        db.commit()
        dump = "\n".join(_dumped(db))
    (DATA / f"schema_{VERSION}.sql").write_text(dump + "\n", "utf-8")
    stored = store_at(path).load(tree.request.run_id)
    record = record_of(stored.head.run_id, stored.head.task, stored.rows, stored.whole_tool_calls)
    record.to_json(DATA / f"schema_{VERSION}.json")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as made:
        _write_sample(Path(made))
