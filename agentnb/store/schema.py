"""The store's schema as numbered migrations, and the check that a file is ours.

`PRAGMA application_id` marks the file as ours, `PRAGMA user_version` is the number of its
migrations. A migration is never changed after its release: a file of any earlier version is updated
by the migrations that it lacks.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

APPLICATION_ID = 0x41474E42  # "AGNB"


def _statements(sql: str) -> Iterator[str]:
    """The statements of a script, which end at the ends of lines.

    They are laid out as in files of any version: SQLite keeps their text.
    """
    statement = ""
    for line in sql.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield indent(statement, "    ").strip()
            statement = ""


_FOLDER = Path(__file__).with_name("migrations")
VERSION = 4
"""The version that this code reads and writes."""
MIGRATIONS = tuple(
    tuple(_statements((_FOLDER / f"{number}.sql").read_text("utf-8")))
    for number in range(1, VERSION + 1)
)
"""The statements of each migration."""


class NotOurs(ValueError):
    """A database that this code must not touch. The message is a clause."""


def version_of(db: sqlite3.Connection) -> int:
    """The number of migrations of a file; 0 for an empty one. Changes nothing.

    Raises:
        NotOurs: It is another program's database, or of a newer version.
        sqlite3.Error: It is not a database, or damaged.
    """
    # In one transaction: another process may be creating the file right now.
    is_own = not db.in_transaction
    if is_own:
        db.execute("BEGIN")
    try:
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    finally:
        if is_own:
            db.execute("COMMIT")
    if application != APPLICATION_ID and (application or version or tables):
        raise NotOurs("it is another program's database")
    if version > VERSION:
        raise NotOurs(
            f"a newer agentnb wrote it (its schema is {version}, and this one knows {VERSION})"
        )
    return int(version)


def _is_of_search(statement: str) -> bool:
    return "memories_text" in statement


def _has_search(db: sqlite3.Connection) -> bool:
    """Whether this SQLite has full-text search (FTS5)."""
    found = db.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone()
    return found is not None


def migrate(db: sqlite3.Connection, *, needs_search: bool = True) -> None:
    """Update a file in one transaction. Another process may do so at the same time.

    Args:
        db: A connection that is not in a transaction.
        needs_search: Whether an SQLite without full-text search is an error; if not, the file then
            has no full-text search.
    """
    if version_of(db) == VERSION:
        return
    db.execute("BEGIN")
    try:
        # Must come before the first table; pruning can then free space without rewriting the file.
        # In the transaction, since others would else see a file with a page and without a version.
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")  # locks the file
        for number, statements in enumerate(MIGRATIONS[version_of(db) :], version_of(db) + 1):
            for statement in statements:
                if needs_search or not _is_of_search(statement) or _has_search(db):
                    db.execute(statement)
            db.execute(f"PRAGMA user_version = {number}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
