"""A store's file: made, opened, updated, or refused and left as it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from agentnb.store.database import _connect, open_to_read, open_to_watch, open_to_write
from agentnb.store.schema import APPLICATION_ID, MIGRATIONS, VERSION, migrate, version_of
from agentnb.store.transactions import MemoryTransactions
from agentnb.store.trouble import StoreTrouble


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _store(path: Path) -> None:
    open_to_write(path).close()


def _newer(path: Path) -> None:
    _store(path)
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    db.close()


def _foreign(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY)")
    db.close()


def _foreign_by_number(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA application_id = 7")
    db.close()


def _text(path: Path) -> None:
    path.write_text("A letter, and no database at all.\n" * 400)


def _cut(path: Path) -> None:
    _store(path)
    path.write_bytes(path.read_bytes()[: 3 * 4096 + 100])


def _garbled(path: Path) -> None:
    _store(path)
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\xff" * (4096 - 100)
    path.write_bytes(content)


def _without_a_table(path: Path) -> None:
    _store(path)
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE events")
    db.close()


REFUSED = {
    "newer": (_newer, "a newer agentnb wrote it .* update agentnb"),
    "foreign": (_foreign, "another program's database"),
    "foreign by its number": (_foreign_by_number, "another program's database"),
    "no database": (_text, "it is not a database"),
    "cut": (_cut, "it is damaged"),
    "garbled": (_garbled, "it is damaged"),
    "without a table": (_without_a_table, "it is damaged"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_is_refused_stays_as_it_is_byte_for_byte(tmp_path: Path, name: str) -> None:
    make, words = REFUSED[name]
    path = tmp_path / "x.db"
    make(path)
    before = _contents(tmp_path)
    with pytest.raises(StoreTrouble, match=words) as caught:
        open_to_write(path)
    assert str(caught.value).count("\n") == 0
    assert str(path) in str(caught.value)
    assert _contents(tmp_path) == before


@pytest.mark.parametrize("name", ["newer", "foreign", "no database"])
def test_a_reader_refuses_the_same_files(tmp_path: Path, name: str) -> None:
    make, words = REFUSED[name]
    path = tmp_path / "x.db"
    make(path)
    before = _contents(tmp_path)
    with pytest.raises(StoreTrouble, match=words):
        open_to_read(path)
    assert _contents(tmp_path) == before


def test_a_new_file_has_the_schema_and_says_whose_it_is(tmp_path: Path) -> None:
    db = open_to_write(tmp_path / "x.db")
    assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("PRAGMA synchronous").fetchone() == (1,)
    assert db.execute("PRAGMA foreign_keys").fetchone() == (1,)
    db.close()
    assert [path.name for path in tmp_path.iterdir()] == ["x.db"]


def test_a_file_that_several_machines_share_has_no_wal(tmp_path: Path) -> None:
    db = open_to_write(tmp_path / "x.db", journal_mode="DELETE")
    assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert db.execute("PRAGMA synchronous").fetchone() == (2,)
    db.close()


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "x.db").touch()
    open_to_write(tmp_path / "x.db").close()
    open_to_read(tmp_path / "x.db").close()


def test_deleting_a_run_deletes_all_of_it(tmp_path: Path) -> None:
    db = open_to_write(tmp_path / "x.db")
    db.execute(
        "INSERT INTO runs (id, run_id, thread_id, session_id, name, tags, task, model,"
        " budget_total, max_depth, settings, started_at, version)"
        " VALUES (1, 'r', 't', 's', '', '[]', '', '', 1, 1, '{}', 0, '')"
    )
    found = db.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' "
        "AND sql LIKE '%REFERENCES runs (id) ON DELETE CASCADE%'"
    )
    tables = [name for (name,) in found]
    assert len(tables) == 7
    for table in tables:
        columns = db.execute(f"PRAGMA table_info({table})").fetchall()
        values = ["1" if name == "run" else "'1'" for _, name, *_ in columns]
        db.execute(f"INSERT INTO {table} VALUES ({', '.join(values)})")
    db.execute("DELETE FROM runs")
    for table in tables:
        assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
    db.close()


def test_reading_beside_a_writer_sees_what_it_committed(tmp_path: Path) -> None:
    writing = open_to_write(tmp_path / "x.db")
    writing.execute("INSERT INTO processes (host, pid, started_at) VALUES ('h', 1, 2)")
    reading = open_to_read(tmp_path / "x.db")
    assert reading.execute("SELECT host FROM processes").fetchall() == [("h",)]
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reading.execute("DELETE FROM processes")
    reading.close()
    writing.close()


def _as_folder(path: Path) -> None:
    path.mkdir()


def _in_no_folder(path: Path) -> None:
    path.parent.rmdir()


@pytest.mark.parametrize("make", [_as_folder, _in_no_folder])
def test_a_place_where_no_file_can_be_is_one_sentence(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    make(folder / "x.db")
    with pytest.raises(StoreTrouble, match=r"cannot be used: .*; .*store=None"):
        open_to_write(folder / "x.db")


def test_a_reader_of_no_file_makes_none(tmp_path: Path) -> None:
    with pytest.raises(StoreTrouble, match="no such file"):
        open_to_read(tmp_path / "x.db")
    assert not list(tmp_path.iterdir())


def test_file_that_cannot_be_watched_is_closed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(b"no database " * 100)
    opened: list[sqlite3.Connection] = []

    def connect(path: Path, mode: str) -> sqlite3.Connection:
        opened.append(_connect(path, mode))
        return opened[-1]

    monkeypatch.setattr("agentnb.store.database._connect", connect)
    with pytest.raises(StoreTrouble):
        open_to_watch(path)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")


def test_a_file_that_another_process_makes_meanwhile_is_seen_before_or_after(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.db"
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    looking = sqlite3.connect(path, isolation_level=None)

    def make(statement: str) -> None:
        if "user_version" in statement and version_of(db) == 0:
            migrate(db)

    looking.set_trace_callback(make)
    assert version_of(looking) == 0
    assert version_of(looking) == VERSION
    looking.close()
    db.close()


def test_a_file_that_changes_while_it_is_looked_at_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.db"
    _store(path)
    looks = []

    def look(path: Path) -> None:
        looks.append(path)
        if len(looks) < 4:
            path.touch()
            raise sqlite3.DatabaseError("half of it is written")

    monkeypatch.setattr("agentnb.store.database._look", look)
    monkeypatch.setattr("agentnb.store.database._LOOK_PAUSE_S", 0.0)
    states = iter(range(100))
    monkeypatch.setattr("agentnb.store.database._state", lambda path: (next(states),))
    open_to_write(path).close()
    assert len(looks) == 4


def test_sqlite_without_full_text_search_is_one_sentence_and_leaves_the_file_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "agentnb.store.schema.MIGRATIONS",
        (MIGRATIONS[0], tuple(each.replace("fts5", "no_such_module") for each in MIGRATIONS[1])),
    )
    with pytest.raises(StoreTrouble, match=r"full-text search \(FTS5\); use a Python") as caught:
        open_to_write(tmp_path / "x.db")
    assert str(caught.value).count("\n") == 0
    with sqlite3.connect(tmp_path / "x.db") as db:
        assert db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    db.close()


def test_threads_in_memory_need_no_full_text_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentnb.store.schema._has_search", lambda db: False)

    def tables(db: sqlite3.Connection) -> set[str]:
        return {name for (name,) in db.execute("SELECT name FROM sqlite_master")}

    made = MemoryTransactions().do(tables)
    assert {"threads", "tasks", "memories"} <= made
    assert not any("memories_" in name for name in made)
