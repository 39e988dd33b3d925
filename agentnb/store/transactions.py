"""Work on the threads and tasks of a session, one transaction each.

With a file, its one writer thread does the work, after everything that runs queued before. Without
a file, the same tables are in memory, so threads and tasks work the same way.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from agentnb.core.secrets import Secrets
from agentnb.store.schema import migrate
from agentnb.store.sealing import SealingConnection

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
"""Work to do in a transaction, with foreign keys on. It must not commit. It may be called several
times; only the last call counts."""


class Transactions(Protocol):
    """The database of a session's threads and tasks. Safe from any thread.

    Values bound to its statements are sealed first (`agentnb.store.sealing`).
    """

    @property
    def process(self) -> int:
        """The number of this process (`processes.id`). The first access may open the file.

        Raises:
            StoreTrouble: The file cannot be written.
        """
        ...

    def do(self, work: Work[T]) -> T:
        """Do some work in one transaction, and block until it is on disk.

        If the work raises an error, it is undone, and the error is raised here.

        Raises:
            StoreTrouble: The file cannot be written. Nothing was changed.
        """
        ...

    async def done(self, work: Work[T]) -> T:
        """Like `do`, awaited. A cancel meanwhile does not undo the work."""
        ...

    def is_alive(self, process: int) -> bool:
        """Whether a process is alive; true if that cannot be known."""
        ...

    def watch(self) -> Watch:
        """Begin to watch the database for changes by this process and by others.

        Raises:
            StoreTrouble: The file cannot be read.
        """
        ...


class Watch(Protocol):
    """Reads a database repeatedly while others write. For one thread at a time."""

    def changes(self) -> int:
        """A number that differs after any change of the database. Takes almost no time.

        Raises:
            StoreTrouble: The file cannot be read any more.
        """
        ...

    def read(self, work: Work[T]) -> T:
        """Do some work that only reads, in one consistent state of the database.

        Raises:
            StoreTrouble: The file cannot be read any more.
        """
        ...

    def close(self) -> None:
        """End the watch. A second call does nothing."""
        ...


class _MemoryConnection(SealingConnection):
    """A database in memory, closed with its last reference.

    `Session.close` does not close it: threads and tasks can still be read after that, and a newer
    session may share them. From Python 3.13 on, a connection that is dropped open warns.
    """

    def __del__(self) -> None:
        self.close()  # no thread uses it now: a user holds a reference


class MemoryTransactions:
    """Implements `Transactions` without a file. It ends with its session."""

    process = 1

    def __init__(self) -> None:
        self._db = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, factory=_MemoryConnection
        )
        self._db.secrets = Secrets({})  # nothing reaches a disk: only lone surrogates are replaced
        self._lock = threading.Lock()
        migrate(self._db, needs_search=False)
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.execute(
            "INSERT INTO processes (id, host, pid, started_at) VALUES (?, '', ?, ?)",
            (self.process, os.getpid(), time.time()),
        )

    def do(self, work: Work[T]) -> T:
        """See `Transactions`."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                value = work(self._db)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            return value

    async def done(self, work: Work[T]) -> T:
        """See `Transactions`. Done at once, since it takes microseconds."""
        value = self.do(work)
        await asyncio.sleep(0)
        return value

    def is_alive(self, process: int) -> bool:
        """See `Transactions`."""
        return process == self.process

    def watch(self) -> Watch:
        """See `Transactions`."""
        return _MemoryWatch(self)


class _MemoryWatch:
    """Implements `Watch` for a database in memory."""

    def __init__(self, transactions: MemoryTransactions) -> None:
        self._transactions = transactions

    def changes(self) -> int:
        """See `Watch`."""
        return self._transactions._db.total_changes

    def read(self, work: Work[T]) -> T:
        """See `Watch`."""
        return self._transactions.do(work)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
