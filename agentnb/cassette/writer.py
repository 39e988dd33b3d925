"""`CassetteFile`: the only writer of a cassette in this process.

Finished work of a run is appended as whole lines, so a killed process leaves a readable file. At
the end of a run, the file is replaced by an ordered one. Both happen under a file lock that other
processes respect (not on Windows, and not on every network home), and the file is read again before
it is replaced, so that no process loses what another one wrote.
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from agentnb.cassette.fold import Recording, after_recording, written
from agentnb.cassette.lines import (
    HEAD,
    MOST_BYTES,
    Content,
    Line,
    are_appended,
    content_of,
    read_bytes,
)
from agentnb.core.collector import without_collector
from agentnb.errors import BadCassette
from agentnb.files import replace_file

if os.name == "nt":  # pragma: no cover

    def _lock(file: BinaryIO) -> None:
        """Do nothing: here a lock would keep other processes from reading the file."""

else:
    import fcntl

    def _lock(file: BinaryIO) -> None:
        with suppress(OSError):  # a network home without locks
            fcntl.flock(file, fcntl.LOCK_EX)


_Act = Callable[[Content], Sequence[Line] | None]
_State = tuple[int, int, int]
"""Number, size and time of a file: they change if another process writes to it."""
_files: weakref.WeakValueDictionary[Path, CassetteFile] = weakref.WeakValueDictionary()
_recent: deque[CassetteFile] = deque(maxlen=4)
"""The files used last, so that a notebook's next run need not read its file again."""
_making = threading.Lock()


def file_at(path: str | Path) -> CassetteFile:
    """The writer of a file: one per file, as long as it is in use, and a while longer."""
    real = Path(os.path.realpath(path))
    with _making:
        found = _files.get(real)
        if found is None:
            found = _files[real] = CassetteFile(real)
            _recent.append(found)
        return found


_only_read = ""
"""Why this process writes no cassette, as a clause; empty if it does."""


def only_read(why: str) -> None:
    """Write no cassette in this process from now on: see `why_read_only`."""
    global _only_read
    _only_read = why


def why_read_only(path: Path) -> str:
    """Why a cassette cannot be written, as a clause; empty if it can be."""
    real = Path(os.path.realpath(path))
    if _only_read:
        return _only_read
    if not real.parent.is_dir():
        return "its folder does not exist"
    if not os.access(real.parent, os.W_OK | os.X_OK):
        return "its folder may only be read"
    return "it may only be read" if real.exists() and not os.access(real, os.W_OK) else ""


class CassetteFile:
    """Appends to one file, and puts it into order. For any thread.

    Args:
        path: The file; its folder must exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._one = threading.Lock()
        self._state: _State | None = None
        """The file's state when this process last wrote or read it."""
        self._content: Content | None = None
        """The content as last read; `None` if that is outdated."""
        self._added: set[str] = set()
        """Recordings of this process that have appended since."""

    def check(self) -> None:
        """Check that a run can be recorded into the file: a cassette, an empty or no file.

        Raises:
            BadCassette: The file is damaged, or something else.
        """
        with self._one:
            try:
                state = _state_of(self.path.stat())
            except OSError:
                state = None
            if state is None or state[1] == 0 or state == self._state:
                if state is None and self.path.is_symlink():
                    raise BadCassette(str(self.path), None, "it is a broken link")
                return
            data = read_bytes(self.path)
            self._content, self._added = content_of(data, str(self.path)), set()
            # Anything appended to a line without an end would become part of that line.
            self._state = state if data.endswith(b"\n") else None

    def content(self) -> Content:
        """The content of the file when it was last read: see `check`."""
        self.check()
        with self._one:
            if self._content is None:
                data = self.path.read_bytes() if self.path.exists() else b""
                self._content = content_of(data, str(self.path)) if data else Content()
                self._added = set()
            return self._content

    def append(self, lines: bytes, recording: str) -> None:
        """Append whole lines, and flush them to the system.

        Args:
            lines: The lines.
            recording: Their mark.

        Raises:
            BadCassette: Another process damaged the file meanwhile; it is unchanged.
            OSError: The file cannot be written.
        """
        with self._one, self._locked() as file:
            state = _state_of(os.fstat(file.fileno()))
            if state[1] == 0:
                lines = HEAD + b"\n" + lines
                self._content, self._added = Content(), set()
            elif state != self._state:
                self._make_room(file, state)
                self._content = None
            size = os.fstat(file.fileno()).st_size
            try:
                if file.write(lines) < len(lines):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                file.truncate(size)  # nothing is to follow a line that is cut
                raise
            self._added.add(recording)
            self._state = _state_of(os.fstat(file.fileno()))

    def _make_room(self, file: BinaryIO, state: _State) -> None:
        """After another process wrote: keep an unfinished line from staying inside the file."""
        known = self._state
        if known is not None and known[0] == state[0] and known[1] < state[1]:
            file.seek(known[1])
            if are_appended(file.read()):  # everything before is unchanged
                return
        file.seek(0)
        data = file.read()
        content = content_of(data, str(self.path), checks_values=False)
        if content.end < len(data):
            file.truncate(content.end)
        elif not data.endswith(b"\n"):
            file.write(b"\n")

    def finish(self, own: Recording, recording: str) -> None:
        """Put the file into order after the end of a recording.

        Args:
            own: The whole recording.
            recording: Its mark in the file.

        Raises:
            BadCassette: Another process damaged the file meanwhile; it is unchanged.
            OSError: The file cannot be written; it is unchanged.
        """
        self._replace(lambda content: after_recording(content.lines, own), without=recording)

    def leave(self, recording: str) -> None:
        """Take the lines of a recording out: the file has what it had before it.

        Raises:
            BadCassette: Another process damaged the file meanwhile; it is unchanged.
            OSError: The file cannot be written; it is unchanged.
        """
        self._replace(lambda content: content.lines, without=recording)

    def change(self, act: _Act) -> None:
        """Replace the file's lines by what `act` returns for them; `None` changes nothing.

        Raises:
            BadCassette: The file is damaged, or does not exist.
            OSError: The file cannot be written; it is unchanged.
        """
        read_bytes(self.path)  # raises if there is no file, so that none is created
        self._replace(act)

    def _replace(self, act: _Act, without: str = "") -> None:
        with self._one, self._locked() as file:
            data, content = b"", self._content
            is_known = _state_of(os.fstat(file.fileno())) == self._state
            if content is None or not is_known or self._added != {without}:
                file.seek(0)
                data = file.read(MOST_BYTES + 1)
                content = Content()
                if data:
                    content = content_of(
                        data, str(self.path), without=without, checks_values=not without
                    )
            # The new state is known only after the replacement.
            self._state, self._content, self._added = None, None, set()
            with without_collector():
                lines = act(content)
            if lines is None:
                return
            made = written(lines)
            if made != data:
                replace_file(self.path, made)
            for place, line in enumerate(lines, 2):
                line.place = place
            self._content = Content(tuple(lines), (), len(made))
            self._state = _state_of(self.path.stat())

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        """The file, open for reading and appending, and locked against other processes."""
        while True:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
            with os.fdopen(os.open(self.path, flags, 0o666), "r+b", buffering=0) as file:
                _lock(file)
                if self._is_there(file):
                    yield file
                    return

    def _is_there(self, file: BinaryIO) -> bool:
        """Whether an open file is still the one at the path.

        Another process may have replaced it before this one got the lock.
        """
        try:
            return os.path.samestat(os.fstat(file.fileno()), self.path.stat())
        except FileNotFoundError:
            return False


def _state_of(found: os.stat_result) -> _State:
    return found.st_ino, found.st_size, found.st_mtime_ns
