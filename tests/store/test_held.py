"""A run that is recovered: its old record stands whole until the new one stands whole."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agentnb.core.errors import CannotRecover
from agentnb.core.events import rows_of
from agentnb.core.records import OrderRecord, ToolCallRecord, VerdictRecord
from agentnb.core.types import AgentStatus
from agentnb.store.held import HeldJournal
from agentnb.store.reader import load
from agentnb.store.store import Store
from agentnb.testing.memory_journal import MemoryJournal
from tests.forks import run_program
from tests.store.fake_runs import FakeRun, words

RUN = "run-1"
TABLES = ("contents", "events", "model_calls", "tool_calls", "orders", "verdicts", "ends")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "x.db")
    yield made
    assert made.trouble is None
    made.close()


def tool_call(result: str) -> ToolCallRecord:
    return ToolCallRecord("nb_1", "id", "look", {"at": "sea"}, result, path="root", number=1)


async def died(store: Store, agents: int = 2) -> FakeRun:
    """A run that was killed: the first half of what it would have told."""
    run = FakeRun(store.journal())
    run.begin()
    run.spawn("root", run.task)
    run.journal.keep(tool_call("an old result"))
    run.journal.keep(OrderRecord("budget", "panel", "root", 0, 0.5, 5))
    run.journal.keep(VerdictRecord("root", 1, "warned", "continue"))
    for number in range(1, agents + 1):
        await run.agent(str(number), deltas=["an old ", f"text {number}"])
    store.close()
    return run


async def told_again(run: FakeRun, agents: int = 3) -> None:
    run.begin()
    run.spawn("root", run.task)
    run.journal.keep(tool_call("a new result"))
    run.journal.keep(VerdictRecord("root", 1, "warned", "stop"))
    for number in range(1, agents + 1):
        await run.agent(str(number), deltas=["a new ", f"text {number}"])


def recovered(store: Store, journal: HeldJournal) -> FakeRun:
    run = FakeRun(journal)
    run.head = dataclasses.replace(
        run.head, budget_total=7, name="another", tags=(), started_at=1.0, settings={"budget": 7}
    )
    return run


def of_run(path: Path) -> dict[str, list[Any]]:
    """All rows of the one run of a file, but who holds it."""
    with closing(sqlite3.connect(path)) as db:
        found = {table: sorted(db.execute(f"SELECT * FROM {table}"), key=repr) for table in TABLES}
        db.row_factory = sqlite3.Row
        rows = [dict(row) for row in db.execute("SELECT * FROM runs")]
    for row in rows:
        del row["process"]
    return {**found, "runs": rows}


def statuses(path: Path) -> list[str]:
    return [str(info.status) for info in Store(path).runs()]


# -- the swap -------------------------------------------------------------------------------------


async def test_old_record_stands_until_the_run_lets_go(store: Store) -> None:
    await died(store)
    before = of_run(store.path)
    store.claim(RUN)
    journal = HeldJournal(store.journal())
    run = recovered(store, journal)

    await told_again(run)
    store.open().flush()
    assert of_run(store.path) == before
    assert [info.status for info in store.runs()] == ["running"]
    assert [call.text for call in journal.load(RUN).calls] == ["an old text 1", "an old text 2"]

    await journal.let_go()
    kept = load(store.path, RUN)
    assert kept.rows == run.rows[:-1], "all that was handed over"
    assert [call.text for call in kept.journal.calls] == [f"a new text {n}" for n in (1, 2, 3)]
    assert [call.result for call in kept.journal.tool_calls] == ["a new result"]
    assert kept.journal.orders == ()
    assert [verdict.value for verdict in kept.journal.verdicts] == ["stop"]
    assert len(kept.journal.ends) == 3


async def test_run_goes_on_in_its_journal_after_the_swap(store: Store) -> None:
    await died(store)
    store.claim(RUN)
    journal = HeldJournal(store.journal())
    run = recovered(store, journal)
    await told_again(run, agents=1)
    await journal.let_go()

    await run.agent("2", deltas=list(words(5)))
    await journal.let_go()  # does nothing more
    assert load(store.path, RUN).rows == run.rows[:-1]
    await run.end()
    assert load(store.path, RUN).rows == run.rows
    assert [info.status for info in store.runs()] == ["completed"]


async def test_row_of_the_run_keeps_what_a_list_tells_it_by(store: Store) -> None:
    old = await died(store)
    (before,) = of_run(store.path)["runs"]
    store.claim(RUN)
    journal = HeldJournal(store.journal())
    await told_again(recovered(store, journal))
    await journal.let_go()

    (after,) = of_run(store.path)["runs"]
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"budget_total", "settings"}
    kept = load(store.path, RUN).journal.head
    assert (kept.name, kept.tags, kept.started_at) == (
        old.head.name,
        old.head.tags,
        old.head.started_at,
    )
    assert (kept.budget_total, kept.settings) == (7, {"budget": 7})


async def test_exhausted_run_that_goes_on_has_no_end_any_more(store: Store) -> None:
    run = FakeRun(store.journal())
    run.begin()
    await run.end(AgentStatus.EXHAUSTED)
    store.claim(RUN, may_be_exhausted=True)
    assert statuses(store.path) == ["exhausted"], "until it begins again"
    journal = HeldJournal(store.journal())
    await told_again(recovered(store, journal))
    await journal.let_go()

    (row,) = of_run(store.path)["runs"]
    ends = ("status", "error", "agents", "tokens_used", "usage", "duration_ms")
    assert [row[name] for name in ends] == [None] * 6


async def test_other_runs_are_left_alone(store: Store) -> None:
    other = FakeRun(store.journal(), run_id="other")
    other.begin()
    await other.agent("1", deltas=["text"])
    await died(store)
    store.claim(RUN)
    journal = HeldJournal(store.journal())
    await told_again(recovered(store, journal))
    await journal.let_go()
    assert load(store.path, "other").rows == other.rows[:-1]


async def test_run_that_is_not_claimed_is_not_replaced(store: Store) -> None:
    await died(store)
    before = of_run(store.path)
    journal = HeldJournal(store.journal())
    await told_again(recovered(store, journal))
    with pytest.raises(CannotRecover, match="'run-1' cannot be recovered: it was deleted"):
        await journal.let_go()
    assert of_run(store.path) == before


async def test_what_was_held_is_given_up_at_the_end(store: Store) -> None:
    await died(store)
    before = of_run(store.path)
    store.claim(RUN)
    journal = HeldJournal(store.journal())
    await told_again(recovered(store, journal))
    journal.close()
    assert of_run(store.path) == before


async def test_journal_in_memory_is_replaced_in_the_same_way() -> None:
    memory = MemoryJournal()
    run = FakeRun(memory)
    run.begin()
    await run.agent("1", deltas=["old"])
    journal = HeldJournal(memory)
    again = FakeRun(journal)
    await told_again(again)
    assert [call.text for call in memory.load(RUN).calls] == ["old"]
    await journal.let_go()
    kept = memory.load(RUN)
    assert rows_of(kept.entries) == again.rows[:-1]
    assert len(kept.calls) == 3


async def test_nothing_is_copied_while_it_is_held() -> None:
    journal = HeldJournal(MemoryJournal())
    journal.begin(FakeRun(journal).head)
    things = [tool_call("result"), [1, 2, 3]]
    journal.intend(things[0])  # type: ignore[arg-type]
    journal.published(things[1])  # type: ignore[arg-type]
    assert journal._held is not None
    assert all(one is other for one, other in zip(journal._held, things, strict=True))


async def test_a_thousand_agents_of_fifty_pieces_are_replaced(store: Store) -> None:
    await died(store)
    store.claim(RUN)
    journal = HeldJournal(store.journal())
    run = recovered(store, journal)
    run.begin()
    pieces = list(words(50))
    for number in range(1, 1001):
        await run.agent(str(number), deltas=pieces)
    await journal.let_go()
    kept = load(store.path, RUN)
    assert kept.rows == run.rows[:-1]
    assert len(kept.journal.ends) == 1000


# -- kills ----------------------------------------------------------------------------------------

KILLED = """
import asyncio, os, shutil, signal, sys
from pathlib import Path
from agentnb.store import writer
from agentnb.store.held import HeldJournal
from agentnb.store.store import Store
from tests.store import test_held

folder, folder_of_all = Path(sys.argv[1]), Path(sys.argv[2])
counted = None

def counting(path, **options):
    db = open_to_write(path, **options)
    db.execute("PRAGMA cache_size = 1")  # pages are written before the commit
    db.set_trace_callback(count)
    return db

def count(statement):
    global counted
    if counted is not None:
        counted -= 1
        if counted < 0:
            os.kill(os.getpid(), signal.SIGKILL)

open_to_write, writer.open_to_write = writer.open_to_write, counting

async def recover(path, statements):
    global counted
    store = Store(path)
    store.claim(test_held.RUN)
    journal = HeldJournal(store.journal())
    await test_held.told_again(test_held.recovered(store, journal))
    counted = statements
    await journal.let_go()
    os.kill(os.getpid(), signal.SIGKILL)

statements = 0
while True:
    copy = folder_of_all / f"{statements:04}"
    shutil.copytree(folder, copy)
    child = os.fork()
    if not child:
        try:
            asyncio.run(recover(copy / "x.db", statements))
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    store = Store(copy / "x.db")
    if len(store.load(test_held.RUN).rows) == int(sys.argv[3]):
        break
    statements += 1
"""


def test_kill_at_any_statement_of_the_swap_leaves_the_old_record_or_the_new(
    tmp_path: Path,
) -> None:
    folder, killed = tmp_path / "old", tmp_path / "killed"
    folder.mkdir()
    killed.mkdir()
    store = Store(folder / "x.db")
    asyncio.run(died(store))
    old = of_run(store.path)
    whole = asyncio.run(_replaced(tmp_path))
    rows = len(Store(whole).load(RUN).rows)
    done = run_program(KILLED, folder, killed, rows)
    assert (done.returncode, done.stderr) == (0, "")

    copies = sorted(killed.iterdir())
    assert len(copies) > 20, "there are that many statements"
    new = of_run(copies[-1] / "x.db")
    assert [call[1:3] for call in new["model_calls"]] == [(str(n), 1) for n in (1, 2, 3)]
    for copy in copies:
        path = copy / "x.db"
        assert of_run(path) in (old, new), copy.name
        assert statuses(path) == ["interrupted"]
    # The last but one was killed before the commit. Each can be recovered by the next process.
    for copy in (copies[0], copies[-2], copies[-1]):
        again = Store(copy / "x.db")
        assert again.claim(RUN) == RUN
        again.close()


async def _replaced(folder: Path) -> Path:
    """A store whose run was replaced."""
    store = Store(folder / "whole.db")
    await died(store)
    store.claim(RUN)
    journal = HeldJournal(store.journal())
    await told_again(recovered(store, journal))
    await journal.let_go()
    store.close()
    return store.path
