"""Watches a store's file for changes by this process and by others, and reads it.

It has its own connection and does not use the writer's thread, so runs do not wait for it.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TypeVar

from agentnb.core.errors import AgentnbError
from agentnb.store.database import open_to_watch, trouble_of
from agentnb.store.transactions import Work

T = TypeVar("T")


class FileWatch:
    """Implements `agentnb.store.transactions.Watch` for a file, which must exist.

    Args:
        path: The file.

    Raises:
        StoreTrouble: The file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = open_to_watch(path)

    def changes(self) -> int:
        """A number that differs after any change of the file."""
        try:
            (version,) = self._db.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error as error:
            raise trouble_of(self._path, error) from error
        return int(version)

    def read(self, work: Work[T]) -> T:
        """Do some work that only reads, in one consistent state of the file."""
        try:
            self._db.execute("BEGIN")
            try:
                return work(self._db)
            finally:
                self._db.execute("ROLLBACK")
        except AgentnbError:
            raise
        except sqlite3.Error as error:
            raise trouble_of(self._path, error) from error

    def close(self) -> None:
        """End the watch."""
        self._db.close()
