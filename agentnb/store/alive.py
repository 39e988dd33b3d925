"""Finds out which of the processes that wrote to a store are alive, without clocks.

Next to the database there is a file that stays empty. In it, each process locks the byte at the
offset of its number (`processes.id`) and holds the lock until it ends. The operating system then
releases it, whatever ended the process, also in another container on the same file system. A forked
child inherits no lock. To check a process, another one tries to lock its byte.

These are POSIX record locks: closing *any* descriptor of the file drops all locks that the process
has on it. So a process opens the file once per store, and nothing else may open it there.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

if sys.platform == "win32":  # untried
    import msvcrt

    def _lock(fd: int, at: int, *, shared: bool) -> None:  # there are exclusive locks only
        os.lseek(fd, at, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

    def _unlock(fd: int, at: int) -> None:
        os.lseek(fd, at, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(fd: int, at: int, *, shared: bool) -> None:
        fcntl.lockf(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB, 1, at)

    def _unlock(fd: int, at: int) -> None:
        fcntl.lockf(fd, fcntl.LOCK_UN, 1, at)


# Not through a link, which another user may have placed.
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)

SUFFIX = "-alive"
"""Suffix of the database's name that makes the file's name."""


class Alive:
    """Claims numbers for this process, and finds out which numbers belong to living processes.

    Safe from any thread. There must be only one object per store and process.

    Args:
        database: The store's file.
    """

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(database.name + SUFFIX)
        self._guard = threading.Lock()
        self._fd: int | None = None
        self._may_write = False
        self._claimed: set[int] = set()
        self._pid = os.getpid()

    def claim(self, number: int) -> bool:
        """Claim a number until this process ends. Creates the file if there is none.

        A number must be claimed before another process can read it, so before the transaction that
        adds it commits.

        Returns:
            False if another process has it: that one's database was deleted, and this one is new.

        Raises:
            OSError: The file cannot be created or locked.
        """
        with self._own_guard():
            self._open(to_write=True)
            assert self._fd is not None
            try:
                _lock(self._fd, number, shared=False)
            except (BlockingIOError, PermissionError):
                return False
            self._claimed.add(number)
            return True

    def owns(self, number: int) -> bool:
        """Whether this process, not one that it was forked from, has claimed the number."""
        return self._pid == os.getpid() and number in self._claimed

    def is_alive(self, number: int) -> bool:
        """Whether the process that claimed a number is alive; true if that cannot be known.

        Creates no file: without one, no process is alive.
        """
        with self._own_guard():
            try:
                self._open(to_write=False)
            except FileNotFoundError:
                if self._fd is None:
                    return False
            except OSError:  # another user's file, for example
                return True
            # Locking and unlocking our own byte would give up our claim.
            if self.owns(number):
                return True
            assert self._fd is not None
            try:
                # Shared, so that two processes that check at once do not see each other as owner.
                _lock(self._fd, number, shared=True)
            except OSError:
                return True
            _unlock(self._fd, number)
            return False

    def close(self) -> None:
        """Give up all claims of this process. A second call does nothing."""
        with self._own_guard():
            if self._fd is not None:
                os.close(self._fd)
            self._fd = None
            self._claimed.clear()

    def _own_guard(self) -> threading.Lock:
        if self._pid != os.getpid():
            # A forked child: it has its own descriptor but none of the claims, and a thread of its
            # parent may have held the guard.
            self._pid, self._guard = os.getpid(), threading.Lock()
            self._claimed.clear()
        return self._guard

    def _open(self, *, to_write: bool) -> None:
        """Ensure an open descriptor of the file that is at the path now, with our claims on it.

        Raises:
            OSError: The file cannot be opened, or does not exist and `to_write` is false. An
                earlier descriptor is kept.
        """
        if self._fd is not None and (self._may_write or not to_write) and self._is_current():
            return
        may_write = True
        try:
            fd = os.open(self.path, _FLAGS | os.O_RDWR | (os.O_CREAT if to_write else 0), 0o666)
        except PermissionError:
            if to_write:
                raise
            fd, may_write = os.open(self.path, _FLAGS | os.O_RDONLY), False
        if self._fd is not None:
            os.close(self._fd)
        self._fd, self._may_write = fd, may_write
        for number in tuple(self._claimed):
            try:
                _lock(fd, number, shared=False)
            except OSError:  # the file belongs to another store by now
                self._claimed.discard(number)

    def _is_current(self) -> bool:
        """Whether the file was neither deleted nor replaced since it was opened."""
        assert self._fd is not None
        try:
            now, then = self.path.stat(), os.fstat(self._fd)
        except OSError:
            return False
        return (now.st_dev, now.st_ino) == (then.st_dev, then.st_ino)
