"""`Store`: one file of runs, as a session sees it.

`store_at` returns one object per file and process, whatever the number of sessions. Nothing is
created on disk before the first `journal`; reading never creates or changes anything.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from agentnb.core.errors import AgentnbError, NoSuchRun
from agentnb.core.events import Row, ToolCallFinished, ToolCallStarted
from agentnb.core.plan import ReusedAnswer
from agentnb.core.reading import whole_rows
from agentnb.core.records import RunHead, RunJournal, ToolCallRecord
from agentnb.core.secrets import known_secrets
from agentnb.core.types import AgentStatus
from agentnb.store import claims
from agentnb.store.alive import Alive
from agentnb.store.database import (
    is_busy,
    open_to_read,
    open_to_write,
    trouble_of,
    undo_half_written,
)
from agentnb.store.journal import SqliteJournal
from agentnb.store.place import is_network_home, make_folder
from agentnb.store.reader import load
from agentnb.store.row_answers import row_answers, schema_text
from agentnb.store.runs import (
    Pricing,
    RunInfo,
    RunList,
    calls_of,
    check_filters,
    check_id,
    find_run,
    info_of,
    list_runs,
)
from agentnb.store.transactions import Transactions, Watch, Work
from agentnb.store.trouble import StoreTrouble
from agentnb.store.upkeep import Pruned, RunGoesOn, age_s, delete, give_back, prune, size_bytes
from agentnb.store.writer import Writer

T = TypeVar("T")

_FLUSH_S = 5.0
"""Seconds that a reader waits for what this process has not written yet."""

_OF_DAMAGE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Errors of reading a file that is a database, but whose values are not what we wrote."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run from a store."""

    head: RunHead
    rows: list[Row]
    """The whole record. In an interrupted run, the missing ends are added."""
    whole_tool_calls: dict[tuple[str, int], ToolCallRecord]
    """By agent id and number: the tool calls whose events are cut."""
    info: RunInfo


class Store:
    """The runs in one file. Safe from any thread. Use `store_at` to get one.

    Args:
        path: The file, with links resolved.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._alive = Alive(path)
        self._writer: Writer | None = None
        self._guard = threading.Lock()
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    @property
    def trouble(self) -> str | None:
        """Why nothing is written any more, as one sentence; `None` while all is well."""
        return None if self._writer is None else self._writer.trouble

    # -- writing ----------------------------------------------------------------------------------

    def journal(self) -> SqliteJournal:
        """The journal of one run. The first call creates or opens the file, and waits for that.

        Never raises: with `trouble` the journal stores nothing, and its commits return at once.
        """
        writer = self.open()
        self._claim_again(writer)
        version = getattr(sys.modules.get("agentnb"), "__version__", "")
        return SqliteJournal(writer, version=version)

    def open(self) -> Writer:
        """Create or open the file, and wait for that. Never raises: see `trouble`."""
        writer = self._writer or self._new_writer()
        writer.open()
        return writer

    def claim(self, run: str, *, may_be_exhausted: bool = False) -> str:
        """Claim a run whose process died, to recover it here. Blocks until that is on disk.

        Until `HeldJournal.let_go` its record is unchanged, and if this process dies, another one
        can claim the run; so it can after `give_up`.

        Args:
            run: The run's id, or the beginning of it.
            may_be_exhausted: See `agentnb.store.claims.claim`.

        Returns:
            The run's whole id.

        Raises:
            ValueError: `run` is not a text.
            NoSuchRun: The run does not exist.
            AmbiguousRun: Several ids begin like this.
            CannotRecover: The run is still running, has ended, or was cancelled.
            StoreTrouble: The file cannot be written.
        """
        check_id(run)
        if not self._is_there():
            raise NoSuchRun(run)
        transactions = self.transactions()
        process = transactions.process
        return transactions.do(
            lambda db: claims.claim(
                db,
                run,
                process=process,
                is_alive=transactions.is_alive,
                may_be_exhausted=may_be_exhausted,
            )
        )

    def give_up(self, run_id: str) -> None:
        """Release a claimed run that was not started again: it is interrupted, as before. Blocks.

        Raises:
            StoreTrouble: The file cannot be written.
        """
        transactions = self.transactions()
        process = transactions.process
        transactions.do(lambda db: claims.give_up(db, run_id, process=process))

    def transactions(self) -> Transactions:
        """The threads and tasks in the file. The first transaction creates or opens the file."""
        return _FileTransactions(self)

    def _claim_again(self, writer: Writer) -> None:
        """Claim our process number again, in case the lock was dropped."""
        if writer.process:
            # If code in this process opened and closed the file of locks, ours were dropped.
            with suppress(OSError):
                self._alive.claim(writer.process)

    def _new_writer(self) -> Writer:
        if self._pid != os.getpid():
            # A fork of a process that had not opened the file; another thread of that process may
            # have held the guard.
            self._pid, self._guard = os.getpid(), threading.Lock()
        with self._guard:
            if self._writer is None:
                with suppress(OSError):  # the file then cannot be opened, and the writer says why
                    make_folder(self.path)
                mode = self._journal_mode()
                self._writer = Writer(self.path, journal_mode=mode, claim=self._alive.claim)
            return self._writer

    def _journal_mode(self) -> str:
        # A write-ahead log needs memory that all processes share: not so on a network.
        return "DELETE" if is_network_home(self.path) else "WAL"

    def close(self) -> None:
        """Write what is left and close the file; runs without an end are then `interrupted`.

        The next `journal` opens it again. A second call does nothing, nor does a call in a fork.
        """
        if self._pid != os.getpid():
            return
        with self._guard:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
                self._alive.close()

    # -- reading ----------------------------------------------------------------------------------

    def runs(
        self,
        limit: int | None = 50,
        status: str | None = None,
        text: str | None = None,
        *,
        thread: str | None = None,
        pricing: Pricing | None = None,
    ) -> RunList:
        """The runs, newest first; none if there is no file yet.

        Args:
            limit: The most runs to list; `None` for all.
            status: Only runs with this status, such as `interrupted`.
            text: Only runs whose name, task or a tag contains this; case is ignored.
            thread: Only runs on the thread with this id.
            pricing: Prices a run's calls when its `cost_usd` is read.

        Raises:
            ValueError: An argument is wrong.
            StoreTrouble: The file cannot be read.
        """
        check_filters(limit, status, text)
        if not self._is_there():
            return RunList()
        with self._reading() as db:
            return list_runs(
                db,
                is_alive=self._alive.is_alive,
                limit=limit,
                status=status,
                text=text,
                thread=thread,
                cost_of=pricing and partial(self._cost_usd, pricing),
            )

    def load(self, run: str, *, pricing: Pricing | None = None) -> StoredRun:
        """One run with its whole record.

        Args:
            run: Its id, or the beginning of it.
            pricing: As for `runs`.

        Raises:
            ValueError: `run` is not a text.
            NoSuchRun: The run does not exist.
            AmbiguousRun: Several ids begin like this.
            StoreTrouble: The file cannot be read.
        """
        info = self._found(run, pricing)[1]
        # The status is read first: if it is `interrupted`, the record is complete by now.
        with self._in_words():
            kept = load(self.path, info.id)
            interrupted = info.status is AgentStatus.INTERRUPTED
            rows = whole_rows(kept.journal, interrupted=interrupted)
        whole = kept.whole_tool_calls | _cut_in(rows, len(kept.rows), kept.journal)
        return StoredRun(kept.journal.head, rows, whole, info)

    def row_answers(
        self, name: str, task: str, *, schema: Mapping[str, Any] | None, most: int
    ) -> list[dict[str, list[ReusedAnswer]]]:
        """See `agentnb.store.row_answers`; empty if there is no file yet.

        Raises:
            StoreTrouble: The file cannot be read.
        """
        if not self._is_there():
            return []
        mask = known_secrets().mask  # the stored texts are masked, too
        typed = mask(schema_text(schema))
        with self._reading() as db:
            return list(row_answers(db, mask(name), mask(task), schema=typed, most=most))

    def size_bytes(self) -> int:
        """Size of the database file and its log; 0 if there is none yet."""
        return size_bytes(self.path)

    def _found(self, run: str, pricing: Pricing | None = None) -> tuple[int, RunInfo]:
        """Number and info of the run with this id, or whose id begins with it."""
        check_id(run)
        if not self._is_there():
            raise NoSuchRun(run)
        with self._reading() as db:
            number = find_run(db, run)
            cost_of = pricing and partial(self._cost_usd, pricing)
            info = info_of(db, number, is_alive=self._alive.is_alive, cost_of=cost_of)
        if info is None:  # it was deleted meanwhile
            raise NoSuchRun(run)
        return number, info

    def _cost_usd(self, pricing: Pricing, run_id: str) -> float | None:
        if not self._is_there():
            return None
        with self._reading() as db:
            calls = calls_of(db, run_id)
        return None if calls is None else pricing(calls)

    # -- upkeep -----------------------------------------------------------------------------------

    def delete(self, run: str) -> None:
        """Delete a run with everything stored about it. None of its text is left in the file.

        Args:
            run: The run's id, or the beginning of it.

        Raises:
            ValueError: `run` is not a text.
            NoSuchRun: The run does not exist.
            AmbiguousRun: Several ids begin like this.
            RunGoesOn: The run is still running, here or in another process.
            StoreTrouble: The file cannot be written.
        """
        number, _ = self._found(run)
        with self._writing() as db:
            if not delete(db, number, is_alive=self._alive.is_alive):
                raise RunGoesOn(run)
            _give_back(db)

    def prune(self, older_than: str | timedelta = "30d") -> Pruned:
        """Delete the runs that ended long ago, and shrink the file. Running runs are kept.

        Args:
            older_than: Hours, days or weeks, such as `12h`, `30d`, `4w`; or a `timedelta`.

        Raises:
            ValueError: `older_than` is not such an age.
            StoreTrouble: The file cannot be written.
        """
        ended_before = time.time() - age_s(older_than)
        if not self._is_there():
            return Pruned(0, 0)
        self._flush()
        before = self.size_bytes()
        with self._writing() as db:
            deleted = prune(db, ended_before=ended_before, is_alive=self._alive.is_alive)
            _give_back(db)
        return Pruned(deleted, max(0, before - self.size_bytes()))

    # -- the file ---------------------------------------------------------------------------------

    def _is_there(self) -> bool:
        """Whether there is a file that is not empty; true if that cannot be known."""
        undo_half_written(self.path)
        try:
            return self.path.stat().st_size > 0
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:  # opening the file will say why
            return True

    def _flush(self) -> None:
        """Wait until everything that this process queued so far is in the file."""
        if self._writer is not None:
            self._writer.flush(_FLUSH_S)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        self._flush()
        with self._in_words(), closing(open_to_read(self.path)) as db:
            yield db

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        if self._writer is not None and self._pid != os.getpid():
            what = "the process that forked this one has it open"
            raise StoreTrouble(self.path, what, "change it from there")
        self._flush()
        mode = self._journal_mode()
        with self._in_words(), closing(open_to_write(self.path, journal_mode=mode)) as db:
            yield db

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        """Within the block, raise any error of reading a file as one of ours."""
        try:
            yield
        except AgentnbError:
            raise
        except (sqlite3.Error, OSError) as error:
            raise trouble_of(self.path, error) from error
        except _OF_DAMAGE as error:
            fix = "move it away to get a new one, or name another file"
            raise StoreTrouble(self.path, "it is damaged", fix) from error


class _FileTransactions:
    """Implements `Transactions` for a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def process(self) -> int:
        """See `Transactions`."""
        writer = self._writer()
        if not writer.process:
            writer.do(lambda db: None)
        self._store._claim_again(writer)
        return writer.process

    def do(self, work: Work[T]) -> T:
        """See `Transactions`."""
        return self._writer().do(work)

    async def done(self, work: Work[T]) -> T:
        """See `Transactions`."""
        return await self._writer().done(work)

    def is_alive(self, process: int) -> bool:
        """See `Transactions`."""
        return self._store._alive.is_alive(process)

    def watch(self) -> Watch:
        """See `Transactions`."""
        from agentnb.store.watch import FileWatch  # only live views need it

        self._store.open()  # so that there is a file
        return FileWatch(self._store.path)

    def _writer(self) -> Writer:
        return self._store._writer or self._store._new_writer()


def _give_back(db: sqlite3.Connection) -> None:
    try:
        give_back(db)
    except sqlite3.Error as error:
        if not is_busy(error):  # if others are writing, the next call frees the rest
            raise


def _cut_in(
    rows: list[Row], told: int, journal: RunJournal
) -> dict[tuple[str, int], ToolCallRecord]:
    """The tool calls that are cut in the rows which a reader added, by agent id and place.

    Args:
        rows: All rows.
        told: How many of them were stored; the rest was added.
        journal: The run's journal, which has the whole calls.
    """
    found: dict[tuple[str, int], ToolCallRecord] = {}
    if told == len(rows):
        return found
    records = {(each.agent_id, each.tool_use_id): each for each in journal.tool_calls}
    started: Counter[str] = Counter()
    places: dict[tuple[str, str], int] = {}
    for at, row in enumerate(rows):
        event = row[1]
        if not isinstance(event, ToolCallStarted | ToolCallFinished):
            continue
        call = event.agent_id, event.tool_use_id
        if isinstance(event, ToolCallStarted):
            started[event.agent_id] += 1
            places[call] = started[event.agent_id]
            is_cut = event.input_length is not None
        else:
            is_cut = event.result_length is not None or bool(event.media)
        if at >= told and is_cut and call in records and call in places:
            found[event.agent_id, places[call]] = records[call]
    return found


# -- one per file and process ---------------------------------------------------------------------

_stores: dict[str, Store] = {}
"""They survive a fork. SQLite in the child takes the parent's open file for its own and then locks
nothing, so a child must not write to such a file: the parent's writer refuses it."""
_lock = threading.Lock()


def store_at(path: Path) -> Store:
    """The store of a file: one object for all users in this process. Opens nothing."""
    real = os.path.realpath(path)
    with _lock:
        if real not in _stores:
            _stores[real] = Store(Path(real))
        return _stores[real]


def _renew_after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)
