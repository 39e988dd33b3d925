"""Files of each schema so far are read, and written on: one stored sample of each.

A sample is the SQL of a file (`sqlite3 FILE .dump` says the same) beside the document of its run.
`python -m tests.store.test_samples` writes the sample of today's schema, once, when it is new.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agentnb.core.context import AgentContext
from agentnb.core.types import AgentConfig
from agentnb.record import record_of
from agentnb.store.journal import SqliteJournal
from agentnb.store.schema import APPLICATION_ID, VERSION
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
    assert document(record.to_json()) == document((DATA / f"schema_{schema}.json").read_text())


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


def _write_sample(folder: Path) -> None:
    path = folder / "sample.db"
    writer = Writer(path)
    writer.open()
    tree = _scene(writer)
    asyncio.run(tree.run())
    writer.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE runs SET name = 'a sample', started_at = 1763856000.0")
        db.execute("UPDATE processes SET host = 'host', pid = 1, started_at = 1763856000.0")
        db.commit()
        dump = "\n".join(db.iterdump())
    (DATA / f"schema_{VERSION}.sql").write_text(dump + "\n", "utf-8")
    stored = store_at(path).load(tree.request.run_id)
    record = record_of(stored.head.run_id, stored.head.task, stored.rows, stored.whole_tool_calls)
    record.to_json(DATA / f"schema_{VERSION}.json")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as made:
        _write_sample(Path(made))
