"""The one thread of a process that writes to a store's file.

Runs queue what is to be written. Whenever the thread is idle, it writes everything queued so far in
one transaction: commits accumulate only while it writes, and none waits for a timer. After the
first failure that a retry cannot mend, it writes nothing more, and commits return at once.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from agentnb.core.collector import without_collector
from agentnb.core.secrets import known_secrets
from agentnb.runtime import before_exit
from agentnb.store.database import is_busy, is_of_file, open_to_write, trouble_of
from agentnb.store.rows import Rows
from agentnb.store.sealing import SealingConnection
from agentnb.store.transactions import Work
from agentnb.store.trouble import StoreTrouble

T = TypeVar("T")

_LAST_WAIT_S = 10.0
"""Seconds that the interpreter's exit waits for what is not written yet."""
_CHECKPOINT_PAGES = 4_000
"""Pages in the WAL before they are copied into the file. With many, a page that several
transactions change is copied only once."""


_HAS_RUN = "SELECT 1 FROM runs WHERE id = ?"


class _Call(Generic[T]):
    """Work whose caller waits for its result."""

    def __init__(self, work: Work[T], waiter: threading.Event | asyncio.Future[None]) -> None:
        self._work = work
        self.waiter = waiter
        self.error: BaseException | None = None
        self.has_ended = False
        self._value: T

    def make(self, db: sqlite3.Connection) -> None:
        """Do the work. Its own error is kept for the caller, and undoes the transaction."""
        try:
            self._value = self._work(db)
        except BaseException as error:
            # All errors are the caller's, wrong statements included, except a failure of the file.
            if not isinstance(error, sqlite3.Error) or not is_of_file(error):
                self.error = error
            raise

    def result(self) -> T:
        """Return what the work returned, or raise what it raised."""
        error, self.error = self.error, None
        if error is None:
            return self._value
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame


class Encoder(Protocol):
    """Encodes what a run queues as rows. Used only on the writer's thread."""

    def open(self, db: sqlite3.Connection, process: int) -> None:
        """Called in its own transaction before the first `take`; called again if that failed."""
        ...

    run: int
    """`runs.id`; 0 before `open` was called."""
    is_lost: bool
    """Whether nothing of the run is stored any more, because it was deleted or another run has its
    id. `open` may set it, too."""

    def take(self, thing: Any, rows: Rows) -> None:
        """Add the rows of a thing that the run queued."""
        ...

    def finish(self, rows: Rows) -> None:
        """Add the last rows of this transaction, after all things of it were taken."""
        ...


class Writer:
    """Writes to one file, from a daemon thread that starts with the first `open`.

    Args:
        path: The file. Its folder must exist.
        journal_mode: See `agentnb.store.database.open_to_write`.
        claim: Called with the number of this process (`processes.id`) before the transaction that
            adds it commits. If it returns false, another number is tried.
    """

    def __init__(
        self,
        path: Path,
        *,
        journal_mode: str = "WAL",
        claim: Callable[[int], bool] | None = None,
    ) -> None:
        self.path = path
        self._journal_mode = journal_mode
        self._claim = claim or (lambda number: True)
        self._pid = os.getpid()
        self._trouble: str | None = None
        self._error: StoreTrouble | None = None
        self._queue: deque[tuple[Encoder | None, Any]] = deque()
        self._news = threading.Lock()
        self._news.acquire()
        self._is_idle = False
        self._is_closing = False
        self._opened = threading.Event()
        self._ended = threading.Event()
        self._start = threading.Lock()
        self._thread: threading.Thread | None = None
        self.process = 0
        """The number of this process in the file; 0 before the first run or transaction."""

    @property
    def trouble(self) -> str | None:
        """Why nothing is written any more, in one sentence; `None` if all is well."""
        if self._trouble is None and self._is_forked:
            return (
                f"{self.path} belongs to the process that forked this one: runs of this process "
                'are in memory only; name another file with `store="PATH"` to keep them.'
            )
        return self._trouble

    @property
    def _is_forked(self) -> bool:
        return os.getpid() != self._pid

    def open(self) -> None:
        """Start the thread and wait until the file is open, or cannot be. Never raises."""
        if self._is_forked or self._opened.is_set():
            return
        self._start_thread()
        self._opened.wait()

    def _start_thread(self) -> None:
        with self._start:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._main, name="agentnb-store", daemon=True
                )
                self._thread.start()
                _open.add(self)

    def add(self, encoder: Encoder, thing: Any) -> None:
        """Queue something of a run. It is written with the next commit of any run.

        Does nothing after trouble and in a forked process, where no thread would take it.
        """
        if self._trouble is None and not self._is_forked:
            self._queue.append((encoder, thing))

    def do(self, work: Work[T]) -> T:
        """Do some work in one transaction, after everything queued before, and block until it ends.

        Raises:
            StoreTrouble: The file cannot be written, or belongs to the parent of this fork. Nothing
                was changed.
        """
        ended = threading.Event()
        call = _Call(work, ended)
        if self._takes(call):
            ended.wait()
        return call.result()

    async def done(self, work: Work[T]) -> T:
        """Like `do`, awaited. A cancel meanwhile does not undo the work."""
        ended = asyncio.get_running_loop().create_future()
        call = _Call(work, ended)
        if self._takes(call):
            await ended
        return call.result()

    def _takes(self, call: _Call[Any]) -> bool:
        """Queue a call, or refuse it at once."""
        if self._trouble is not None or self._is_forked or self._ended.is_set():
            self._refuse(call)
            return False
        self._start_thread()
        self._queue.append((None, call))
        self._notify()
        return True

    def _refuse(self, call: _Call[Any]) -> None:
        """End a call that cannot be done any more with an error."""
        if self._is_forked:
            what = "it belongs to the process that forked this one"
            call.error = StoreTrouble(self.path, what, 'name another file with `store="PATH"`')
        elif self._error is not None:
            call.error = StoreTrouble(self.path, self._error.what, self._error.fix)
        else:
            fix = "start the kernel again, or name another file"
            call.error = StoreTrouble(self.path, "this process has closed it", fix)

    async def commit(self) -> None:
        """Wait until everything queued before is on disk; return at once if nothing is written."""
        if self._trouble is not None or self._ended.is_set() or self._is_forked:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._queue.append((None, waiter))
        self._notify()
        await waiter

    def flush(self, timeout_s: float | None = None) -> bool:
        """Write everything queued, and block until that is done. Not for an event loop.

        Returns:
            Whether that was done in time.
        """
        if self._thread is None or self._ended.is_set() or self._is_forked:
            return True
        done = threading.Event()
        self._queue.append((None, done))
        self._notify()
        return done.wait(timeout_s)

    def close(self) -> None:
        """Write everything queued and close the file. A second call does nothing.

        Does nothing in a forked process.
        """
        if self._thread is None or self._is_forked:
            return
        self._is_closing = True
        self._notify()
        if self._ended.wait(_LAST_WAIT_S):
            _open.discard(self)

    def _notify(self) -> None:
        if self._is_idle or self._ended.is_set():
            self._is_idle = False
            with suppress(RuntimeError):  # another thread has just released it
                self._news.release()
            if self._ended.is_set():  # the thread ended before it saw this
                self._wake_rest()

    # -- the thread -------------------------------------------------------------------------------

    def _main(self) -> None:
        # The connection is only a local name: in a forked process this frame never continues, so
        # the connection is never closed there, which would release the parent's locks.
        db: SealingConnection | None = None
        try:
            db = open_to_write(self.path, journal_mode=self._journal_mode)
            db.execute("PRAGMA foreign_keys = OFF")
            db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            self._file = _identity(self.path)
        except BaseException as error:
            self._fail(error)
        self._opened.set()
        try:
            while True:
                self._is_idle = True
                if not self._queue and not self._is_closing:
                    self._news.acquire()
                self._is_idle = False
                things, calls, waiters = self._take()
                if db is not None and self._trouble is None and things:
                    try:
                        with without_collector():
                            self._write(db, things)
                            things.clear()  # here, so that the collector never sees them
                    except BaseException as error:
                        self._fail(error)
                del things
                self._do_calls(db, calls)
                _wake([*waiters, *(call.waiter for call in calls)])
                del waiters, calls
                if self._is_closing and not self._queue:
                    break
        finally:
            keeps_file = db is not None and _identity(self.path) == self._file
            if db is not None and keeps_file:
                with suppress(sqlite3.Error):
                    db.close()
            self._ended.set()
            self._wake_rest()
            if db is not None and not keeps_file:
                # Closing would delete the WAL at the path, which belongs to another file by now. In
                # this wait, not even the interpreter's exit closes it.
                threading.Event().wait()

    def _do_calls(self, db: SealingConnection | None, calls: Sequence[_Call[Any]]) -> None:
        """Do calls, each in its own transaction, or refuse them."""
        if db is not None and self._trouble is None and calls:
            try:
                with _foreign_keys(db):
                    db.secrets = known_secrets()
                    for call in calls:
                        self._do_call(db, call)
            except BaseException as error:
                self._fail(error)
            finally:
                db.secrets = None
        for call in calls:
            if not call.has_ended:
                self._refuse(call)

    def _do_call(self, db: SealingConnection, call: _Call[Any]) -> None:
        if self.process == 0:
            self._transaction(db, lambda: self._new_process(db))
        try:
            self._transaction(db, lambda: call.make(db))
        except BaseException:
            if call.error is None:  # not an error of the work itself
                raise
        call.has_ended = True

    def _take(self) -> tuple[list[tuple[Encoder, Any]], list[_Call[Any]], list[Any]]:
        """Take everything queued: things to write, calls to do, waiters for a commit."""
        things: list[tuple[Encoder, Any]] = []
        calls: list[_Call[Any]] = []
        waiters = []
        # One at a time: other threads append meanwhile, and after this thread's end they take, too.
        for _ in range(len(self._queue)):
            try:
                encoder, thing = self._queue.popleft()
            except IndexError:
                break
            if encoder is not None:
                things.append((encoder, thing))
            elif isinstance(thing, _Call):
                calls.append(thing)
            else:
                waiters.append(thing)
        return things, calls, waiters

    def _wake_rest(self) -> None:
        _, calls, waiters = self._take()
        for call in calls:
            self._refuse(call)
        _wake([*waiters, *(call.waiter for call in calls)])

    def _write(self, db: sqlite3.Connection, things: Sequence[tuple[Encoder, Any]]) -> None:
        rows = Rows(known_secrets())
        encoders: dict[Encoder, None] = {}
        for encoder, thing in things:
            if encoder not in encoders:
                encoders[encoder] = None
                if encoder.run == 0 and not encoder.is_lost:
                    self._begin(db, encoder)
            if not encoder.is_lost:
                encoder.take(thing, rows)
        for encoder in encoders:
            encoder.finish(rows)
        rows.seal()
        self._transaction(db, lambda: self._write_rows(db, rows, encoders))

    def _write_rows(self, db: sqlite3.Connection, rows: Rows, encoders: Iterable[Encoder]) -> None:
        for encoder in encoders:
            # One check per run, instead of a foreign key's check per row.
            if not encoder.is_lost and not db.execute(_HAS_RUN, (encoder.run,)).fetchone():
                encoder.is_lost = True
                rows.drop(encoder.run)
        rows.write(db)

    def _begin(self, db: sqlite3.Connection, encoder: Encoder) -> None:
        if self.process == 0:
            self._transaction(db, lambda: self._new_process(db))
        self._transaction(db, lambda: encoder.open(db, self.process))

    def _new_process(self, db: sqlite3.Connection) -> None:
        while True:
            number = db.execute(
                "INSERT INTO processes (host, pid, started_at) VALUES (?, ?, ?)",
                (socket.gethostname(), self._pid, time.time()),
            ).lastrowid
            assert number is not None
            if self._claim(number):
                self.process = number
                return
            db.execute("DELETE FROM processes WHERE id = ?", (number,))

    def _transaction(self, db: sqlite3.Connection, work: Callable[[], None]) -> None:
        """Do some work in one transaction, and retry as long as others hold the file."""
        while True:
            self._check_file()
            try:
                db.execute("BEGIN IMMEDIATE")
                work()
                self._commit(db)
                return
            except BaseException as error:
                _roll_back(db)
                if not isinstance(error, sqlite3.Error) or not is_busy(error):
                    raise

    def _commit(self, db: sqlite3.Connection) -> None:
        while True:
            try:
                db.execute("COMMIT")
                return
            except sqlite3.Error as error:  # without a WAL, a reader can block the commit
                if not is_busy(error) or not db.in_transaction:
                    raise

    def _check_file(self) -> None:
        """Raise if the file was deleted or replaced: everything written would be lost with it."""
        found = _identity(self.path)
        if found != self._file:
            what = "deleted" if found is None else "replaced by another file"
            raise StoreTrouble(
                self.path,
                f"it was {what} while this process wrote to it",
                "runs are kept in memory only until the kernel is started again",
            )

    def _fail(self, error: BaseException) -> None:
        if self._trouble is None:
            self._error = trouble_of(self.path, error)
            self._trouble = str(self._error)


_open: set[Writer] = set()


def _close_all() -> None:
    for writer in _open.copy():
        with suppress(KeyboardInterrupt):  # ends the wait for this one
            writer.close()


# Just before the runs are cancelled. Earlier, tools would run without a record; later, the runs
# would be stored as cancelled, but the end of a process only interrupts them: see `recover`.
before_exit(_close_all)


@contextmanager
def _foreign_keys(db: sqlite3.Connection) -> Iterator[None]:
    """Within the block, check foreign keys; the rows of runs are written without that."""
    db.execute("PRAGMA foreign_keys = ON")
    yield
    db.execute("PRAGMA foreign_keys = OFF")


def _roll_back(db: sqlite3.Connection) -> None:
    if db.in_transaction:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file at a path."""
    try:
        found = os.stat(path)  # noqa: PTH116 - half the time of the path's own method
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _wake(waiters: Sequence[Any]) -> None:
    """Wake all waiters, with one call per event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for waiter in waiters:
        if isinstance(waiter, threading.Event):
            waiter.set()
        else:
            loops.setdefault(waiter.get_loop(), []).append(waiter)
    for loop, futures in loops.items():
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_resolve, futures)


def _resolve(futures: Sequence[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
