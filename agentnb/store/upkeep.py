"""Deletes runs from a store, frees their space, and computes the store's size.

Each run is deleted whole, in its own transaction, so another kernel that writes meanwhile waits for
one run at most. A run whose process is alive is never deleted.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from agentnb.core.errors import AgentnbError
from agentnb.core.text import literal
from agentnb.store.runs import IsAlive

if TYPE_CHECKING:
    from sqlite3 import Connection

_AGE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 7 * 24}
_PAGES = 1_000
"""Pages freed in one transaction, so that another writer never waits long."""
_BUSY_MS = 1_000
"""Milliseconds that the last step waits for readers."""


class RunGoesOn(AgentnbError, ValueError):
    """A run cannot be deleted because it has not ended.

    Args:
        run: The run's id, or its beginning, as given.
    """

    def __init__(self, run: str) -> None:
        self.run = run
        super().__init__(
            f"The run {literal(run)} has not ended, so it was not deleted. Cancel it, or wait "
            "for its end."
        )


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was deleted."""

    runs: int
    bytes: int
    """How much smaller the store is on disk. Less than was deleted if others were reading it; the
    next call then frees the rest."""


def age_s(older_than: str | timedelta) -> float:
    """An age in seconds.

    Args:
        older_than: Hours, days or weeks, such as `12h`, `30d`, `4w`; or a `timedelta`.

    Raises:
        ValueError: It is anything else, such as a number without a unit, or below 0.
    """
    if isinstance(older_than, timedelta) and older_than >= timedelta():
        return older_than.total_seconds()
    if isinstance(older_than, str) and (found := _AGE.fullmatch(older_than.strip())):
        return float(found[1]) * _HOURS[found[2]] * 3600
    raise ValueError(
        "`older_than` must be an age in hours, days or weeks, such as '12h', '30d' or '4w', or a "
        f"timedelta, not {literal(older_than)}."
    )


def size_bytes(path: Path) -> int:
    """Size of the database and its write-ahead log; 0 if there is no such file."""
    size = 0
    for file in (path, path.with_name(path.name + "-wal")):
        with suppress(OSError):
            size += file.stat().st_size
    return size


def prune(db: Connection, *, ended_before: float, is_alive: IsAlive) -> int:
    """Delete the runs that ended before a time, except those that an agent or a task still needs.

    Args:
        db: A connection that may write, is not in a transaction, and has foreign keys on.
        ended_before: The time in seconds since 1970. An interrupted run ended with its last event.
        is_alive: Returns whether a process is alive.

    Returns:
        The number of deleted runs.
    """
    numbers = db.execute(
        "SELECT id FROM runs WHERE started_at < :time AND started_at + coalesce("
        "  duration_ms / 1000.0,"
        "  (SELECT at_s FROM events WHERE run = runs.id ORDER BY seq DESC LIMIT 1), 0) < :time"
        f" AND NOT ({_NEEDED})",
        {"time": ended_before},
    ).fetchall()
    at_work = db.execute(
        "SELECT r.id, t.process FROM runs r JOIN threads t ON t.id = r.thread_id "
        "WHERE t.process IS NOT NULL"
    )
    needed = {number for number, process in at_work.fetchall() if is_alive(process)}
    return sum(
        delete(db, number, is_alive=is_alive) for (number,) in numbers if number not in needed
    )


# A run of a persistent agent or of an agent with an open task, or a run that the queue or an open
# task names. Agents below the run's thread count like the thread itself.
_NEEDED = """
    EXISTS (SELECT 1 FROM agent_metadata m
            WHERE m.thread_id = runs.thread_id AND m.kind = 'persistent')
    OR EXISTS (SELECT 1 FROM queue q WHERE runs.run_id IN (q.run_id, q.pot))
    OR EXISTS (SELECT 1 FROM tasks k
               WHERE k.status NOT IN ('completed', 'archived')
               AND (k.pot = runs.run_id OR k.assigned_to = runs.thread_id
                    OR k.created_by = runs.thread_id
                    OR substr(k.created_by, 1, length(runs.thread_id) + 1)
                       = runs.thread_id || '.'))
"""


def delete(db: Connection, number: int, *, is_alive: IsAlive) -> bool:
    """Delete one run and everything stored of it.

    Args:
        db: As for `prune`.
        number: `runs.id`.
        is_alive: Returns whether a process is alive.

    Returns:
        False if the run is still running, or there is none with this number.
    """
    # Deleted text is overwritten in the file, not just left in free space.
    db.execute("PRAGMA secure_delete = ON").fetchall()
    db.execute("BEGIN IMMEDIATE")
    try:
        row = db.execute(_WRITER, {"run": number}).fetchone()
        may_delete = row is not None and (row[0] is None or not is_alive(row[0]))
        if may_delete:
            # Foreign keys delete everything else with the run.
            db.execute(
                "DELETE FROM pots WHERE run_id = (SELECT run_id FROM runs WHERE id = ?)", (number,)
            )
            db.execute("DELETE FROM runs WHERE id = ?", (number,))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return may_delete


# The process that may still write to a run: none after the run's last event, which comes one commit
# after its status.
_WRITER = """
    SELECT CASE WHEN EXISTS (SELECT 1 FROM events WHERE run = :run AND kind = 'run_finished')
           THEN NULL ELSE process END
    FROM runs WHERE id = :run
"""


def give_back(db: Connection) -> None:
    """Shrink the file to the size of its content.

    Args:
        db: As for `prune`. Current readers keep the log from being emptied; the next call then
            frees the rest.
    """
    while (free := _number(db, "freelist_count")) > 0:
        db.execute(f"PRAGMA incremental_vacuum({_PAGES})").fetchall()  # one step for each page
        if _number(db, "freelist_count") >= free:  # a file that another program recreated
            break
    waits_ms = _number(db, "busy_timeout")
    db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}").fetchall()
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.execute(f"PRAGMA busy_timeout = {waits_ms}").fetchall()


def _number(db: Connection, pragma: str) -> int:
    (value,) = db.execute(f"PRAGMA {pragma}").fetchone()
    return int(value)
