"""Work in transactions: in a file through its one writer, and in memory."""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import textwrap
import threading
import warnings
import weakref
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agentnb.store import database
from agentnb.store.database import open_to_write
from agentnb.store.journal import SqliteJournal
from agentnb.store.store import store_at
from agentnb.store.transactions import MemoryTransactions, Transactions
from agentnb.store.trouble import StoreTrouble
from agentnb.store.writer import Writer
from tests.forks import printed_by
from tests.store.fake_runs import FakeRun
from tests.support import DEADLINE_S


def add(db: sqlite3.Connection, name: str = "t") -> str:
    """Add a thread."""
    db.execute("INSERT INTO threads (id, session_id, created_at) VALUES (?, ?, 0)", (name, name))
    return name


def names(db: sqlite3.Connection) -> list[str]:
    return [name for (name,) in db.execute("SELECT id FROM threads ORDER BY rowid")]


def names_in(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        return names(db)


@pytest.fixture(params=["file", "memory"])
def transactions(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Transactions]:
    if request.param == "memory":
        yield MemoryTransactions()
        return
    store = store_at(tmp_path / "x.db")
    yield store.transactions()
    store.close()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    writer = Writer(tmp_path / "x.db")
    yield writer
    writer.close()


# -- what all transactions do -------------------------------------------------------------------


async def test_work_gives_its_value_and_is_there_for_the_next(transactions: Transactions) -> None:
    assert transactions.do(add) == "t"
    assert await transactions.done(lambda db: add(db, "u")) == "u"
    assert transactions.do(names) == await transactions.done(names) == ["t", "u"]


@pytest.mark.parametrize("error", [KeyError("mine"), SystemExit(3), asyncio.CancelledError()])
async def test_error_of_the_work_undoes_it_and_is_raised_where_it_is_awaited(
    transactions: Transactions, error: BaseException
) -> None:
    def work(db: sqlite3.Connection) -> None:
        add(db)
        raise error

    with pytest.raises(type(error)) as raised:
        transactions.do(work)
    assert raised.value is error
    with pytest.raises(type(error)):
        await transactions.done(work)
    assert transactions.do(names) == []


WRONG = {
    "twice": ("INSERT INTO threads SELECT * FROM threads", sqlite3.IntegrityError),
    "no such session": (
        "INSERT INTO threads (id, session_id, created_at) VALUES ('u', 'v', 0)",
        sqlite3.IntegrityError,
    ),
    "against a check": ("UPDATE threads SET next_child = 0", sqlite3.IntegrityError),
    "no such table": ("SELECT * FROM nothing", sqlite3.OperationalError),
    "no SQL": ("HELLO", sqlite3.OperationalError),
    "a value too few": ("SELECT ?", sqlite3.ProgrammingError),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_statement_is_its_callers_and_stops_nobody_else(
    transactions: Transactions, name: str
) -> None:
    statement, error = WRONG[name]
    transactions.do(add)

    def work(db: sqlite3.Connection) -> None:
        add(db, "undone")
        db.execute(statement)

    with pytest.raises(error):
        transactions.do(work)
    assert transactions.do(names) == ["t"]
    assert transactions.do(lambda db: add(db, "later")) == "later"


def test_process_is_a_row_before_anything_refers_to_it(transactions: Transactions) -> None:
    process = transactions.process
    found = transactions.do(lambda db: db.execute("SELECT id, pid FROM processes").fetchall())
    assert found == [(process, os.getpid())]
    assert transactions.is_alive(process)
    assert not transactions.is_alive(process + 1)


def test_half_a_character_is_replaced(transactions: Transactions) -> None:
    transactions.do(lambda db: add(db, "half \ud83d, whole \ud83d\ude00"))
    assert transactions.do(names) == ["half \ufffd, whole \U0001f600"]


def test_watch_sees_every_change_and_reads_it(transactions: Transactions) -> None:
    watch = transactions.watch()
    before = watch.changes()

    transactions.do(add)

    assert watch.changes() != before
    seen = watch.changes()
    assert watch.read(names) == ["t"]
    assert watch.changes() == seen
    watch.close()


def test_watch_sees_a_change_of_another_process(tmp_path: Path) -> None:
    store = store_at(tmp_path / "x.db")
    watch = store.transactions().watch()
    before = watch.changes()

    printed_by(
        f"""
        from pathlib import Path
        from agentnb.store.store import store_at
        from tests.store.test_transactions import add
        store_at(Path({str(tmp_path / "x.db")!r})).transactions().do(add)
        """
    )

    assert watch.changes() != before
    assert watch.read(names) == ["t"]
    watch.close()
    store.close()


def test_threads_may_do_work_at_the_same_time(transactions: Transactions) -> None:
    def work(name: str) -> None:
        for number in range(20):
            transactions.do(lambda db, name=f"{name}{number}": add(db, name))  # type: ignore[misc]

    started = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(DEADLINE_S)
    found = transactions.do(names)
    assert sorted(found) == sorted(f"{name}{number}" for name in "abcd" for number in range(20))
    assert [name for name in found if name[0] == "a"] == [f"a{number}" for number in range(20)]


# -- in memory ----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["last reference", "cycle"])
def test_dropped_transactions_close_their_connection(way: str) -> None:
    transactions = MemoryTransactions()
    if way == "cycle":
        transactions.itself = transactions  # type: ignore[attr-defined]
        transactions._db.owner = transactions  # type: ignore[attr-defined]
    dropped = weakref.ref(transactions)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # from Python 3.13 on, one that is left open warns
        del transactions
        gc.collect()
    assert dropped() is None


def test_connection_stays_open_for_those_who_still_use_it() -> None:
    transactions = MemoryTransactions()
    watch, db = transactions.watch(), transactions._db
    del transactions
    gc.collect()
    assert watch.read(add) == "t"
    del watch
    gc.collect()
    assert names(db) == ["t"]


# -- the file's ----------------------------------------------------------------------------------


async def test_work_sees_what_a_run_handed_over_before_it(writer: Writer) -> None:
    run = FakeRun(SqliteJournal(writer))
    run.begin()
    run.spawn("1", "task")
    run.hand()  # and no commit

    def work(db: sqlite3.Connection) -> int:
        (count,) = db.execute("SELECT count(*) FROM events").fetchone()
        return int(count)

    assert await writer.done(work) == len(run.rows)


async def test_rows_of_runs_are_written_without_the_foreign_keys_that_work_has(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def has_keys(db: sqlite3.Connection) -> bool:
        return bool(db.execute("PRAGMA foreign_keys").fetchone()[0])

    run, seen = FakeRun(SqliteJournal(writer)), list[bool]()
    run.begin()
    write = writer._write_rows

    def look_and_write(db: sqlite3.Connection, *rest: Any) -> None:
        seen.append(has_keys(db))
        write(db, *rest)

    monkeypatch.setattr(writer, "_write_rows", look_and_write)
    assert writer.do(has_keys)
    await run.commit()
    assert seen
    assert not any(seen)


async def test_cancelled_wait_leaves_the_work_done_and_no_complaint(
    writer: Writer, tmp_path: Path
) -> None:
    writer.open()
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    with _held(tmp_path / "x.db"):
        waiting = [asyncio.create_task(writer.done(work)) for work in (add, _fails)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert all(task.cancelled() for task in waiting)
    assert await writer.done(names) == ["t"]
    assert complaints == []


def _fails(db: sqlite3.Connection) -> str:
    raise KeyError("nobody hears of it")


class _held:
    """Another connection holds the file."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, *error: object) -> None:
        self._db.execute("COMMIT")
        self._db.close()


async def test_work_on_a_busy_file_waits_and_is_done_once(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.0)
    writer.open()
    tries, enough, check = list[None](), threading.Event(), writer._check_file

    def checked() -> None:
        tries.append(None)
        if len(tries) > 5:
            enough.set()
        check()

    monkeypatch.setattr(writer, "_check_file", checked)
    with _held(tmp_path / "x.db"):
        waiting = asyncio.create_task(writer.done(add))
        assert await asyncio.to_thread(enough.wait, DEADLINE_S)
        assert not waiting.done()
    assert await waiting == "t"
    assert writer.do(names) == ["t"]
    assert writer.trouble is None


async def test_work_that_finds_the_file_busy_is_done_again(writer: Writer) -> None:
    tries: list[None] = []

    def work(db: sqlite3.Connection) -> str:
        name = add(db)
        tries.append(None)
        if len(tries) < 3:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error
        return name

    assert await writer.done(work) == "t"
    assert (len(tries), writer.do(names)) == (3, ["t"])


def _limited(path: Path, **options: str) -> sqlite3.Connection:
    db = open_to_write(path, **options)
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages + 2}")
    return db


def _read_only(path: Path, **options: str) -> sqlite3.Connection:
    db = open_to_write(path, **options)
    db.execute("PRAGMA query_only = ON")
    return db


async def test_work_for_which_the_disk_has_no_room_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentnb.store.writer.open_to_write", _limited)
    writer = Writer(tmp_path / "x.db")
    writer.do(add)

    def large(db: sqlite3.Connection) -> None:
        add(db, "undone")
        db.execute("UPDATE threads SET title = ?", ("x" * 100_000,))

    with pytest.raises(StoreTrouble, match="the disk is full; make room"):
        await writer.done(large)
    with pytest.raises(StoreTrouble, match="the disk is full; make room"):
        writer.do(names)
    assert writer.trouble is not None
    writer.close()
    assert names_in(tmp_path / "x.db") == ["t"]


async def test_work_on_a_file_that_cannot_be_written_is_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentnb.store.writer.open_to_write", _read_only)
    writer = Writer(tmp_path / "x.db")
    with pytest.raises(StoreTrouble, match="cannot be written to"):
        await writer.done(add)
    writer.close()
    assert names_in(tmp_path / "x.db") == []


@pytest.mark.parametrize("content", [None, b"no database " * 1_000])
def test_work_on_a_file_that_was_deleted_or_is_none_is_trouble(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "x.db"
    writer = Writer(path)
    if content is None:
        writer.do(add)
        for each in tmp_path.iterdir():
            each.unlink()
    else:
        path.write_bytes(content)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(StoreTrouble) as one:
        writer.do(add)
    with pytest.raises(StoreTrouble) as other:
        asyncio.run(writer.done(add))
    assert str(one.value) == str(other.value)
    assert one.value is not other.value, "each caller has an error of its own"
    writer.close()
    assert sorted(tmp_path.iterdir()) == before


async def test_closed_writer_refuses_work(writer: Writer) -> None:
    writer.do(add)
    writer.close()
    with pytest.raises(StoreTrouble, match="this process has closed it"):
        writer.do(names)
    with pytest.raises(StoreTrouble, match="this process has closed it"):
        await writer.done(names)


def test_store_that_was_closed_opens_again_for_the_next_work(tmp_path: Path) -> None:
    store = store_at(tmp_path / "x.db")
    transactions = store.transactions()
    first = transactions.process
    transactions.do(add)
    store.close()
    assert transactions.do(names) == ["t"]
    assert transactions.process != first
    assert not transactions.is_alive(first)
    store.close()


async def test_the_first_work_does_not_hold_up_its_loop_while_the_file_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_open = threading.Event()

    def late(path: Path, **options: str) -> sqlite3.Connection:
        assert may_open.wait(DEADLINE_S)
        return open_to_write(path, **options)

    monkeypatch.setattr("agentnb.store.writer.open_to_write", late)
    writer = Writer(tmp_path / "x.db")
    waiting = asyncio.create_task(writer.done(add))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # would never come back
    may_open.set()
    assert await waiting == "t"
    writer.close()


# -- in processes of their own --------------------------------------------------------------------

_PREFACE = """
import asyncio, atexit, os, sqlite3, sys, threading, warnings
from pathlib import Path
from agentnb.store import writer as writers
from agentnb.store.trouble import StoreTrouble
from tests.store.test_transactions import add, names
writer = writers.Writer(Path({path!r}))
"""


def _in_process(path: Path, code: str) -> str:
    return printed_by(_PREFACE.format(path=str(path)) + textwrap.dedent(code))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_process_is_refused_at_once(tmp_path: Path) -> None:
    said = _in_process(
        tmp_path / "x.db",
        """
        warnings.simplefilter("ignore", DeprecationWarning)
        writer.do(add)
        child = os.fork()
        if child == 0:
            for wait in (writer.do, lambda work: asyncio.run(writer.done(work))):
                try:
                    wait(add)
                except StoreTrouble as error:
                    print(error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(writer.do(names))
        writer.close()
        """,
    )
    *refused, last = said.splitlines()
    assert len(refused) == 2
    assert all("belongs to the process that forked this one" in line for line in refused)
    assert last == "['t']"


def test_end_of_the_interpreter_does_not_wait_for_work_that_waits(tmp_path: Path) -> None:
    said = _in_process(
        tmp_path / "x.db",
        """
        writers._LAST_WAIT_S = 0.1
        other = sqlite3.connect(writer.path, isolation_level=None)
        warnings.simplefilter("ignore", ResourceWarning)  # a close at exit would let it do the work
        writer.open()
        other.execute("BEGIN IMMEDIATE")
        threading.Thread(target=writer.do, args=(add,), daemon=True).start()
        while not writer._queue and writer._is_idle:
            pass
        print("the end")
        """,
    )
    assert said == "the end\n"
    assert names_in(tmp_path / "x.db") == []


def test_end_of_the_interpreter_does_the_work_that_was_queued(tmp_path: Path) -> None:
    _in_process(
        tmp_path / "x.db",
        """
        async def main():
            asyncio.create_task(writer.done(add))
            await asyncio.sleep(0)
        asyncio.run(main())
        """,
    )
    assert names_in(tmp_path / "x.db") == ["t"]


def test_two_processes_do_their_work_on_one_file(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "x.db")
    writer.do(add)
    said = _in_process(
        tmp_path / "x.db", 'print(writer.do(lambda db: [*names(db), add(db, "u")]))\nwriter.close()'
    )
    assert said == "['t', 'u']\n"
    assert writer.do(names) == ["t", "u"]
    writer.close()
