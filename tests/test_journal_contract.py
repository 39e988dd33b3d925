"""agentnb's journals keep a journal's promises, and the contract finds journals that do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agentnb.core.events import Entry, Row, RowEntries, rows_of
from agentnb.core.protocols import Journal
from agentnb.core.records import (
    STARTED,
    CallRecord,
    EndRecord,
    Kept,
    RunHead,
    RunJournal,
    ToolCallRecord,
)
from agentnb.core.types import (
    AgentStatus,
    OpaqueBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    path_of,
)
from agentnb.store.journal import SqliteJournal
from agentnb.store.writer import Writer
from agentnb.testing import Check, JournalFactory, journal_contract
from agentnb.testing._handed import Bench
from agentnb.testing.memory_journal import MemoryJournal
from tests.journal_checks import all_checks
from tests.pages import code_of
from tests.support import run_python

ROOT = Path(__file__).parent.parent


def over(kind: type[MemoryJournal]) -> JournalFactory:
    def factory() -> tuple[Journal, Callable[[], Journal]]:
        journal = kind()
        return journal, journal.reopened

    return factory


_writers: list[Writer] = []


@pytest.fixture(autouse=True)
def _every_writer_ends() -> Iterator[None]:
    yield
    close_writers()


def close_writers() -> None:
    """Close the stores that `in_file` has opened."""
    while _writers:
        _writers.pop().close()


def in_file(folder: Path) -> JournalFactory:
    """A store in a new file for each check."""

    def opened(path: Path) -> Journal:
        writer = Writer(path)
        writer.open()
        _writers.append(writer)
        return SqliteJournal(writer)

    def factory() -> tuple[Journal, Callable[[], Journal]]:
        path = folder / f"{uuid4().hex}.db"
        return opened(path), lambda: opened(path)

    return factory


JOURNALS: Mapping[str, Callable[[Path], JournalFactory]] = {
    "memory": lambda folder: over(MemoryJournal),
    "sqlite": in_file,
}
"""Journals by name, each with an empty folder. Another journal needs one more line."""


def check_of(promise: str, factory: JournalFactory) -> Check:
    """The check with this name, else the only one with these words in its name."""
    checks = all_checks(factory)
    exact = [check for check in checks if check.name == promise]
    (found,) = exact or [check for check in checks if promise in check.name]
    return found


@pytest.mark.parametrize("promise", [*map(str, all_checks(over(MemoryJournal)))])
@pytest.mark.parametrize("journal", JOURNALS)
async def test_journal_keeps_its_promise(journal: str, promise: str, tmp_path: Path) -> None:
    await check_of(promise, JOURNALS[journal](tmp_path))()


# -- journals with one bug each -------------------------------------------------------------------


class ForgetsIntents(MemoryJournal):
    def intend(self, record: CallRecord | ToolCallRecord) -> None:
        return


class KeepsTheIntent(MemoryJournal):
    """Keeps the first record of a call, as `INSERT OR IGNORE` does."""

    def begin(self, head: RunHead) -> None:
        self.seen: set[tuple[type, str, int]] = set()
        super().begin(head)

    def intend(self, record: CallRecord | ToolCallRecord) -> None:
        self.seen.add((type(record), record.path, record.number))
        super().intend(record)

    def keep(self, record: Kept) -> None:
        if isinstance(record, CallRecord | ToolCallRecord):
            if (type(record), record.path, record.number) in self.seen:
                return
        super().keep(record)


class MixesRuns(MemoryJournal):
    """Its records have their path and number, but not their run."""

    def load(self, run_id: str) -> RunJournal:
        found = super().load(run_id)
        calls = {
            (call.path, call.number): call
            for each in (run_id, *self._runs)
            for call in super(MixesRuns, self).load(each).calls
        }
        return replace(found, calls=tuple(calls.values()))


class LosesTheNewest(MemoryJournal):
    """Commits what it has written, while the newest batch is still in its queue."""

    async def commit(self) -> None:
        newest = self._waiting.pop() if len(self._waiting) > 1 else None
        await super().commit()
        if newest is not None:
            self._waiting.append(newest)


class ReturnsTooEarly(MemoryJournal):
    """Passes the work to another task, and does not wait for it."""

    async def commit(self) -> None:
        asyncio.get_running_loop().call_soon(self._keep_waiting)


class ReturnsWithTheFirst(MemoryJournal):
    """Groups commits: those that arrive during another one return with it."""

    committing: asyncio.Future[None] | None = None

    async def commit(self) -> None:
        if self.committing is not None:
            await self.committing
            return
        self.committing = asyncio.get_running_loop().create_future()
        batch, self._waiting = self._waiting, []
        await asyncio.sleep(0)
        late, self._waiting = self._waiting, batch
        await super().commit()
        self._waiting = late
        self.committing.set_result(None)
        self.committing = None


class SortsPathsAsText(MemoryJournal):
    def load(self, run_id: str) -> RunJournal:
        found = super().load(run_id)
        calls = sorted(found.tool_calls, key=lambda call: (call.path, call.number))
        return replace(found, tool_calls=tuple(calls))


class DropsText(MemoryJournal):
    """Has the text in the call's record, and does not put it back among the entries."""

    def published(self, entries: Sequence[Entry]) -> None:
        rows: list[Row] = [row for row in rows_of(entries) if len(row) != 3]
        super().published(RowEntries("", 0, rows))


class JoinsText(MemoryJournal):
    """Keeps a reply as one text, without its pieces."""

    def keep(self, record: Kept) -> None:
        if isinstance(record, CallRecord) and record.pieces:
            record = replace(record, pieces=((record.pieces[0][0], record.text),))
        super().keep(record)


class CutsToolResults(MemoryJournal):
    def keep(self, record: Kept) -> None:
        if isinstance(record, ToolCallRecord):
            record = replace(record, result=record.result[:2000])
        super().keep(record)


class KeepsHalves(MemoryJournal):
    """Writes a call in two transactions."""

    def keep(self, record: Kept) -> None:
        super().keep(record)
        if isinstance(record, CallRecord) and self._run is not None:
            self._run.add(replace(record, pieces=record.pieces[:1]))


class ForgetsEqualOrders(MemoryJournal):
    def load(self, run_id: str) -> RunJournal:
        found = super().load(run_id)
        return replace(found, orders=tuple({repr(each): each for each in found.orders}.values()))


class KnowsNoError(MemoryJournal):
    def load(self, run_id: str) -> RunJournal:
        if run_id not in self._runs:
            raise KeyError(run_id)
        return super().load(run_id)


class ShowsSecrets(MemoryJournal):
    def load(self, run_id: str) -> RunJournal:
        super().load(run_id)
        return self._runs[run_id].snapshot()


class MasksEachPiece(MemoryJournal):
    """Masks each text delta alone, so that a secret in two of them stays."""

    def load(self, run_id: str) -> RunJournal:
        found = super().load(run_id)
        as_they_came = [
            row if len(row) == 3 else masked
            for row, masked in zip(
                rows_of(self._runs[run_id].snapshot().entries), rows_of(found.entries), strict=True
            )
        ]
        rows: list[Row] = as_they_came
        return replace(found, entries=RowEntries(run_id, 0, rows))


class LosesTheRestOnClose(MemoryJournal):
    def close(self) -> None:
        self._waiting.clear()


class ReplacesHalfCharacters(MemoryJournal):
    """Writes UTF-8, which has no lone surrogates."""

    def keep(self, record: Kept) -> None:
        if isinstance(record, ToolCallRecord):
            record = replace(record, result=record.result.encode("utf-8", "replace").decode())
        super().keep(record)


class HasWholeNumbersOf64Bits(MemoryJournal):
    def keep(self, record: Kept) -> None:
        if isinstance(record, CallRecord) and abs(record.estimate_error) >= 2**63:
            raise OverflowError("Python int too large to convert to SQLite INTEGER")
        super().keep(record)


class StopsAtTheEnd(MemoryJournal):
    """Closes a run's record at its end, before `RunFinished` arrives."""

    has_ended = False

    def keep(self, record: Kept) -> None:
        super().keep(record)
        self.has_ended = getattr(record, "path", "") is None

    def published(self, entries: Sequence[Entry]) -> None:
        if not self.has_ended:
            super().published(entries)


class ReadsOneAndTrueAlike(MemoryJournal):
    """Has no type for true and false."""

    def load(self, run_id: str) -> RunJournal:
        found = super().load(run_id)
        calls = [replace(c, is_synthesis=int(c.is_synthesis)) for c in found.calls]  # type: ignore[arg-type]
        return replace(found, calls=tuple(calls))


class LosesForeignParts(MemoryJournal):
    """Keeps only the parts of a reply that it knows."""

    def load(self, run_id: str) -> RunJournal:
        found = super().load(run_id)
        return replace(found, calls=tuple(map(self._without, found.calls)))

    def _without(self, call: CallRecord) -> CallRecord:
        if call.message is None:
            return call
        kept = tuple(each for each in call.message.content if not isinstance(each, OpaqueBlock))
        return replace(call, message=replace(call.message, content=kept))


class LosesForeignFields(LosesForeignParts):
    def _without(self, call: CallRecord) -> CallRecord:
        if call.message is None:
            return call
        known = TextBlock | ThinkingBlock | ToolUseBlock
        kept = [
            replace(each, extra=None) if isinstance(each, known) else each
            for each in call.message.content
        ]
        return replace(call, message=replace(call.message, content=tuple(kept)))


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (ForgetsIntents, "a call without a result stays started"),
        (KeepsTheIntent, "the result of a call replaces its intent"),
        (MixesRuns, "runs in one journal do not mix"),
        (LosesTheNewest, "what came before a commit is there"),
        (ReturnsTooEarly, "what came before a commit is there"),
        (ReturnsWithTheFirst, "each of many commits at once"),
        (SortsPathsAsText, "tool calls come by path and then number: 10 after 9"),
        (DropsText, "a reply comes back in the pieces"),
        (JoinsText, "a reply comes back in the pieces"),
        (CutsToolResults, "a long tool result is kept whole"),
        (KeepsHalves, "what came after the last commit is there whole or not at all"),
        (ForgetsEqualOrders, "equal ones too"),
        (KnowsNoError, "raises NoSuchRun"),
        (ShowsSecrets, "a secret is masked in every text of a record"),
        (MasksEachPiece, "a secret that arrives in several pieces"),
        (LosesTheRestOnClose, "close keeps what came without a commit"),
        (ReplacesHalfCharacters, "any text comes back character by character"),
        (HasWholeNumbersOf64Bits, "counts beyond 64 bits"),
        (StopsAtTheEnd, "published after the end of the run"),
        (ReadsOneAndTrueAlike, "true and false come back as such"),
        (LosesForeignParts, "records of every kind come back equal"),
        (LosesForeignFields, "records of every kind come back equal"),
    ],
)
async def test_broken_journal_fails_at_the_promise_that_it_breaks(
    broken: type[MemoryJournal], promise: str
) -> None:
    with pytest.raises(AssertionError, match=promise):
        await check_of(promise, over(broken))()


class HasTheTextSoFar(MemoryJournal):
    """Also has the text of an open call in its record."""

    def load(self, run_id: str) -> RunJournal:
        found = super().load(run_id)
        texts: dict[str, list[tuple[float, str]]] = {}
        for row in rows_of(found.entries):
            if len(row) == 3:
                texts.setdefault(path_of(row[1], found.head.thread_id), []).append((row[0], row[2]))
        calls = [
            replace(call, pieces=self.pieces_of(texts.get(call.path, [])))
            if call.status == STARTED
            else call
            for call in found.calls
        ]
        return replace(found, calls=tuple(calls))

    def pieces_of(self, pieces: list[tuple[float, str]]) -> tuple[tuple[float, str], ...]:
        return tuple(pieces)


class HasOtherTextSoFar(HasTheTextSoFar):
    def pieces_of(self, pieces: list[tuple[float, str]]) -> tuple[tuple[float, str], ...]:
        return tuple(pieces[:-1])


async def test_record_of_an_open_call_may_have_the_text_so_far_and_no_other() -> None:
    promise = "entries that come between commits"

    await check_of(promise, over(HasTheTextSoFar))()
    with pytest.raises(AssertionError, match="the pieces of an open call"):
        await check_of(promise, over(HasOtherTextSoFar))()


async def test_most_promises_hold_for_a_journal_with_one_bug() -> None:
    """Else a check could fail for any reason, and its name would mean nothing."""
    broken = journal_contract(over(ForgetsEqualOrders))

    failed = [check.name for check in broken if await _fails(check)]

    assert len(broken) >= 15
    assert len(failed) == 1


async def _fails(check: Check) -> bool:
    try:
        await check()
    except AssertionError:
        return True
    return False


def test_contract_needs_no_pytest() -> None:
    done = run_python(
        """
        import sys
        sys.modules["pytest"] = None
        from agentnb.testing import journal_contract
        print(len(journal_contract(lambda: None)) >= 15)
        """
    )

    assert done.strip() == "True"


async def test_journal_of_the_page_notes_the_ends(tmp_path: Path) -> None:
    code, _ = code_of("docs/journal.md")
    names: dict[str, Any] = {}
    exec(code, names)
    journal = names["EndsInAFile"](tmp_path / "ends.txt")
    for path in ("1", None):
        journal.keep(EndRecord(path, AgentStatus.COMPLETED))
        await journal.commit()

    ends = (tmp_path / "ends.txt").read_text(encoding="utf-8")
    assert ends == "1: completed\nthe run: completed\n"


async def test_checks_of_the_page_pass() -> None:
    _, code = code_of("docs/journal.md")
    names: dict[str, Any] = {}
    exec(code, names)

    for check in journal_contract(names["factory"])[:5]:
        await names["test_my_journal"](check)


@pytest.mark.parametrize("commits_before", [0, 1], ids=["at once", "later"])
async def test_secret_in_nothing_but_a_stream_that_closed_badly_is_masked(
    commits_before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_KEY", "planted-secret-51")
    bench = Bench(*in_file(tmp_path)())
    run = bench.begin()
    run.spawn("root")
    call = run.start_call("root")
    for _ in range(commits_before):
        await run.commit()
    run.finish_call(call, not_closed="hung up on planted-secret-51")
    await run.commit_all()

    assert bench.after_death().calls[0].not_closed == "hung up on [secret PLANTED_KEY]"
    bench.close()
