"""Opens a store's file, and says in one sentence what is wrong with it.

A foreign, newer or damaged file is detected before anything in it is changed.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path
from urllib.request import pathname2url

from agentnb.core.text import literal
from agentnb.store.place import is_network_home
from agentnb.store.schema import VERSION, NotOurs, migrate, version_of
from agentnb.store.sealing import SealingConnection
from agentnb.store.trouble import StoreTrouble

BUSY_S = 30.0
"""Seconds that SQLite itself waits for another process's transaction. After that, the writer tries
again, and a reader gives up."""

_LOOKS = 100
_LOOK_PAUSE_S = 0.05

_MOST_CHECKED = 2**25
"""Largest file that is read whole before it is written to, in bytes. That takes 0.1 s at most."""
_STATEMENTS = 256
"""Number of prepared statements that a connection caches."""


def open_to_write(path: Path, *, journal_mode: str = "WAL") -> SealingConnection:
    """Open a store; creates or updates its file if necessary. The folder must exist.

    Args:
        path: The file.
        journal_mode: `WAL`, or `DELETE` for a file system that several machines share.

    Raises:
        StoreTrouble: The store cannot be written; an existing file is unchanged.
    """
    try:
        if path.exists():
            _check(path)
        db = _connect(path, "rwc")
        try:
            migrate(db)
            # The store also works without WAL (on a file system without shared memory).
            db.execute(f"PRAGMA journal_mode = {journal_mode}")
            # With WAL and NORMAL, nothing is lost if the process dies, and nothing is damaged if
            # the power fails; without WAL that needs the full sync.
            wal = journal_mode.upper() == "WAL"
            db.execute(f"PRAGMA synchronous = {'NORMAL' if wal else 'FULL'}")
            db.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            db.close()
            raise
    except (sqlite3.Error, OSError, NotOurs) as error:
        raise trouble_of(path, error) from error
    return db


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open an existing store for reading, even in a folder that cannot be written to.

    Raises:
        StoreTrouble: The store cannot be read.
    """
    try:
        db = _reading(path)
        try:
            if version_of(db) == 0:
                raise NotOurs("it is empty")
        except BaseException:
            db.close()
            raise
    except (sqlite3.Error, OSError, NotOurs) as error:
        raise trouble_of(path, error) from error
    return db


def open_to_watch(path: Path) -> sqlite3.Connection:
    """Open a store that this process writes, for reading as long as it is watched.

    Unlike a connection of `open_to_read`, it sees what is written from now on.

    Raises:
        StoreTrouble: The store cannot be read.
    """
    try:
        db = _connect(path, "rw" if is_network_home(path) else "ro")
        try:
            db.execute("PRAGMA query_only = ON")
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException:
            db.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise trouble_of(path, error) from error
    return db


def undo_half_written(path: Path) -> None:
    """Undo what a killed process left half written, such as the creation of a file.

    Only the rollback journal of a file without a write-ahead log needs this. Does nothing if that
    is not possible.
    """
    if path.with_name(path.name + "-journal").exists():
        with suppress(sqlite3.Error), closing(_connect(path, "rw")) as db:
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()


def _connect(path: Path, mode: str) -> SealingConnection:
    # A URI instead of a path, since its `mode` keeps a reader from creating a file.
    address = f"file:{pathname2url(str(path.absolute()))}?{mode if '=' in mode else f'mode={mode}'}"
    return sqlite3.connect(
        address,
        uri=True,
        timeout=BUSY_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS,
        factory=SealingConnection,
    )


def _reading(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing on disk and leaves no files next to the database."""
    size = path.stat().st_size
    if path.is_dir():
        raise IsADirectoryError(21, "It is a folder")
    # A closed store has no WAL next to it, and opening it as immutable creates none. If there is a
    # WAL, a process is writing, or died.
    alone = size > 0 and not path.with_name(path.name + "-wal").exists()
    on_network = is_network_home(path)  # there is no WAL there, so reading needs a lock
    if alone and not on_network:
        db = _unchanging(path)
        if not _is_empty(db):
            return db
        # Another process is creating it right now: only with a lock do we see all of it or nothing.
        db.close()
    # The first reader rolls back what a process that died left half written.
    db = _connect(path, "rw" if on_network else "ro")
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        db.close()
        if on_network:
            raise
        # A folder that cannot be written to, with a WAL but without its shared memory.
        return _unchanging(path)
    except BaseException:
        db.close()
        raise
    return db


def _is_empty(db: sqlite3.Connection) -> bool:
    try:
        return version_of(db) == 0
    except (sqlite3.Error, NotOurs):
        return False


def _unchanging(path: Path) -> sqlite3.Connection:
    return _connect(path, "mode=ro&immutable=1")


def _check(path: Path) -> None:
    """Raise if an existing file must not be written.

    The check takes no lock, since a lock would leave files next to a file that is refused. So a
    file that another process creates or closes at that moment may look wrong: it is refused only if
    it looks wrong twice without having changed.
    """
    for _ in range(_LOOKS):
        before = _state(path)
        try:
            _look(path)
            return
        except (sqlite3.Error, NotOurs) as error:
            wrong = error
        time.sleep(_LOOK_PAUSE_S)
        if _state(path) == before:
            try:
                _look(path)
                return
            except (sqlite3.Error, NotOurs):
                if _state(path) == before:
                    raise
    raise wrong


def _state(path: Path) -> tuple[object, ...]:
    """A value that changes when a process writes the file."""
    found = path.stat()
    beside = [path.with_name(path.name + end).exists() for end in ("-wal", "-journal")]
    return found.st_size, found.st_mtime_ns, found.st_ino, *beside


def _look(path: Path) -> None:
    if path.stat().st_size == 0:
        return
    db = _reading(path)
    try:
        if version_of(db) == VERSION:
            _check_whole(path, db)
    finally:
        db.close()


def _check_whole(path: Path, db: sqlite3.Connection) -> None:
    """Raise if a file is damaged; in a large file, finds only a missing end or missing tables."""
    if path.stat().st_size <= _MOST_CHECKED:
        found = db.execute("PRAGMA quick_check(1)").fetchone()
        if found != ("ok",):
            raise StoreTrouble(path, *_BY_CODE[sqlite3.SQLITE_CORRUPT])
    for table in (*_WITH_ROWID, "events", "ends"):
        db.execute(
            f"SELECT * FROM {table} ORDER BY rowid DESC LIMIT 1"
            if table in _WITH_ROWID
            else f"SELECT * FROM {table} ORDER BY run DESC LIMIT 1"
        ).fetchone()


_WITH_ROWID = (
    "runs",
    "contents",
    "model_calls",
    "tool_calls",
    "threads",
    "messages",
    "agent_metadata",
    "tasks",
    "task_notes",
    "queue",
    "memories",
)


def trouble_of(path: Path, error: BaseException) -> StoreTrouble:
    """The error for a person: what an error of SQLite or of the system means, and what to do."""
    if isinstance(error, StoreTrouble):
        return error
    what, fix = _words(error)
    return StoreTrouble(path, what, fix)


_ELSEWHERE = 'name another place with `store="PATH"`, or none with `store=None`'
_MOVE = "move it away to get a new one, or name another file"


def _words(error: BaseException) -> tuple[str, str]:
    if isinstance(error, NotOurs):
        if "newer" in str(error):
            return str(error), "update agentnb, or name another file"
        return str(error), _MOVE
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _BY_CODE:
            return _BY_CODE[code]
        if any(words in str(error) for words in _OF_DAMAGE):
            return _BY_CODE[sqlite3.SQLITE_CORRUPT]
        if "no such module" in str(error):
            return (
                "the SQLite of this Python has no full-text search (FTS5)",
                "use a Python whose SQLite has it, or store nothing with `store=None`",
            )
        return f"SQLite says {literal(str(error))}", _ELSEWHERE
    if isinstance(error, OSError):
        return (error.strerror or type(error).__name__).lower(), _ELSEWHERE
    return f"an unexpected {type(error).__name__}", _ELSEWHERE


_OF_DAMAGE = ("no such table", "no such column", "Could not decode to UTF-8")
_BY_CODE = {
    sqlite3.SQLITE_FULL: ("the disk is full", "make room and start the kernel again"),
    sqlite3.SQLITE_IOERR: ("the disk failed or is full", f"make room, or {_ELSEWHERE}"),
    sqlite3.SQLITE_READONLY: ("it cannot be written to", _ELSEWHERE),
    sqlite3.SQLITE_CANTOPEN: ("it cannot be opened or made in its folder", _ELSEWHERE),
    sqlite3.SQLITE_PERM: ("it cannot be written to", _ELSEWHERE),
    sqlite3.SQLITE_NOTADB: ("it is not a database", _MOVE),
    sqlite3.SQLITE_CORRUPT: ("it is damaged", _MOVE),
    sqlite3.SQLITE_BUSY: ("another process has locked it for too long", "try again later"),
    sqlite3.SQLITE_LOCKED: ("another process has locked it for too long", "try again later"),
}


def is_of_file(error: sqlite3.Error) -> bool:
    """Whether the file or its disk failed, rather than the statement."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _BY_CODE


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process holds the file, so that trying again helps."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
