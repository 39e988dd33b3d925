"""The journal in memory, beyond what every journal promises (`tests/test_journal_contract.py`)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentnb.core.errors import NoSuchRun
from agentnb.core.events import RowEntries, RunStarted
from agentnb.core.records import OrderRecord, RunHead, VerdictRecord
from agentnb.core.secrets import known_secrets
from agentnb.testing.memory_journal import MemoryJournal

HEAD = RunHead("run", "nb", "the task", "demo/any")


async def test_nothing_comes_before_a_run_has_begun() -> None:
    journal = MemoryJournal()

    with pytest.raises(RuntimeError, match="begin"):
        journal.keep(VerdictRecord("root", 1, "clamped", 3))


async def test_what_came_late_from_one_run_is_not_taken_for_the_next_one() -> None:
    journal = MemoryJournal()
    journal.begin(HEAD)
    journal.keep(VerdictRecord("root", 1, "clamped", 3))
    journal.begin(RunHead("next", "nb", "the task", "demo/any"))
    await journal.commit()

    assert len(journal.load("run").verdicts) == 1
    assert journal.load("next").verdicts == ()


async def test_run_of_a_dead_process_does_not_grow_by_what_it_had_not_committed() -> None:
    journal = MemoryJournal()
    journal.begin(HEAD)
    await journal.commit()
    journal.keep(VerdictRecord("root", 1, "clamped", 3))
    journal.begin(RunHead("next", "nb", "the task", "demo/any"))
    after = journal.reopened()
    await after.commit()
    after.close()

    assert after.load("run").verdicts == ()
    with pytest.raises(NoSuchRun, match="next"):
        after.load("next")


async def test_secret_that_became_known_after_it_was_kept_is_masked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal = MemoryJournal()
    journal.begin(HEAD)
    journal.keep(OrderRecord("answer", "panel", "root", 1, 0.5, {"x": "the key is abcdefgh-1"}))
    await journal.commit()
    monkeypatch.setenv("LAB_KEY", "abcdefgh-1")

    assert journal.load("run").orders[0].value == {"x": "the key is [secret LAB_KEY]"}
    monkeypatch.delenv("LAB_KEY")
    known_secrets()


async def test_loaded_entries_are_rows_that_a_reader_may_have_for_itself() -> None:
    rows: list[Any] = [
        (0.0, RunStarted(task_description="t", model="m", budget_total=1, max_depth=1)),
    ]
    journal = MemoryJournal()
    journal.begin(HEAD)
    journal.published(RowEntries("run", 0, rows))
    await journal.commit()
    loaded = journal.load("run").entries
    assert isinstance(loaded, RowEntries)
    loaded.rows.clear()

    assert len(journal.load("run").entries) == 1


def test_journal_is_one_short_line() -> None:
    journal = MemoryJournal()
    journal.begin(HEAD)
    asyncio.run(journal.commit())

    assert repr(journal) == "MemoryJournal(1 run)"
