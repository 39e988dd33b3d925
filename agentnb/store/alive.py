"""Which of the processes that wrote to a store still live, without clocks.

Beside the database lies one file that stays empty. Each process locks in it the byte at the offset
of its number (`processes.id`) and holds it until it ends: the kernel then releases the lock,
whatever ended the process, also in another container on the same file system. A forked child
inherits no lock. Who asks about a process tries its byte.

These are POSIX record locks: closing *any* descriptor of the file drops all locks that the process
has on it. So a process opens the file once for each store, and nothing else may open it there.
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


# Not through a link: a stranger may have placed it.
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)

SUFFIX = "-alive"
"""The file's name is the database's and this."""


class Alive:
    """Claims numbers for this process, and tells which numbers belong to a process that lives.

    Safe from any thread. There must be one object for each store and process.

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
        """Claim a number until this process ends. Makes the file if there is none.

        A number must be claimed before another process can read of it, so before the transaction
        that adds it commits.

        Returns:
            False if another process has it: its database was deleted, and this one is new.

        Raises:
            OSError: The file cannot be made or locked.
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
        """Whether the process that claimed a number lives; true if that cannot be known.

        Makes no file: without one, nobody lives.
        """
        with self._own_guard():
            try:
                self._open(to_write=False)
            except FileNotFoundError:
                if self._fd is None:
                    return False
            except OSError:  # another user's file, for example
                return True
            # To try one's own byte, and let it go, would give up the claim.
            if self.owns(number):
                return True
            assert self._fd is not None
            try:
                # Shared: two that ask at the same time do not take each other for the owner.
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
            # A forked child: the descriptor is its own, no claim is, and some thread of its parent
            # may have held the guard.
            self._pid, self._guard = os.getpid(), threading.Lock()
            self._claimed.clear()
        return self._guard

    def _open(self, *, to_write: bool) -> None:
        """Have a descriptor of the file that is at the path now, with this process's claims on it.

        Raises:
            OSError: The file cannot be opened, or is not there and not to be made. An earlier
                descriptor stays.
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
            except OSError:  # the file is another store's by now
                self._claimed.discard(number)

    def _is_current(self) -> bool:
        """Whether the file was neither deleted nor replaced since it was opened."""
        assert self._fd is not None
        try:
            now, then = self.path.stat(), os.fstat(self._fd)
        except OSError:
            return False
        return (now.st_dev, now.st_ino) == (then.st_dev, then.st_ino)
