"""The budgets of runs as far as a store knows them, and which process works in them.

Budgets of runs that assign tasks are pots in a chain. A process counts in memory what it spends in
them, so only one at a time works in a chain; the next one begins with what the store tells.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentnb.core.budget import RequestBudget
from agentnb.core.types import Usage
from agentnb.store.runs import IsAlive

if TYPE_CHECKING:
    from sqlite3 import Connection


POT = "pot"
"""The setting of a run that names the run in whose budget its own stands."""

_ABOVE = "SELECT json_extract(settings, '$.pot') FROM runs WHERE run_id = ?"
_SPENT = """
    WITH RECURSIVE below (run_id) AS (
        SELECT :run
        UNION
        SELECT r.run_id FROM runs r JOIN below b ON json_extract(r.settings, '$.pot') = b.run_id
    )
    SELECT r.id, r.tokens_used FROM runs r JOIN below b ON b.run_id = r.run_id
"""
_TOTAL = """
    SELECT coalesce(
        (SELECT value FROM orders WHERE run = runs.id AND kind = 'budget'
         ORDER BY place DESC LIMIT 1),
        budget_total)
    FROM runs WHERE run_id = ?
"""
# The runs that other processes work on. One that a message began may have no row of its own yet.
_AT_WORK = """
    SELECT t.process, t.run_id, q.pot
    FROM threads t INDEXED BY threads_by_process
    LEFT JOIN queue q ON q.thread_id = t.id AND q.run_id = t.run_id
    WHERE t.process < :process OR t.process > :process
"""


def pot_of(
    db: Connection, run_id: str, *, above: Callable[[Connection, str], RequestBudget]
) -> RequestBudget:
    """The pot of a run as it was left: with what the run and all below it have spent.

    Args:
        db: In a transaction.
        run_id: The run. One that the store does not know has nothing left.
        above: Gives the pot of a run that stands above it.
    """
    total, used = state_of(db, run_id)
    upper = _above(db, run_id)
    # Those above have counted it: they stand here with all that was spent below them.
    return RequestBudget(total, below=None if upper is None else above(db, upper), used=used)


def state_of(db: Connection, run_id: str) -> tuple[int, int]:
    """The total of a run's pot, and the tokens that the run and all below it have spent.

    Nothing of both for a run that the store does not know.
    """
    row = db.execute(_TOTAL, (run_id,)).fetchone()
    if row is None:
        return 0, 0
    used = sum(
        int(tokens) if tokens is not None else _spent_so_far(db, run)
        for run, tokens in db.execute(_SPENT, {"run": run_id}).fetchall()
    )
    return int(row[0]), used


def top_of(db: Connection, run_id: str) -> str:
    """The run in whose pot all others of a run's chain stand: itself, if it stands in none."""
    at: str | None = run_id
    while at is not None:
        top, at = at, _above(db, at)
    return top


def _above(db: Connection, run_id: str) -> str | None:
    row = db.execute(_ABOVE, (run_id,)).fetchone()
    return None if row is None else row[0]


def has_below(db: Connection, run_id: str) -> bool:
    """Whether runs stand in the budget of a run, or may come to: it has assigned tasks."""
    return db.execute("SELECT 1 FROM tasks WHERE pot = ?", (run_id,)).fetchone() is not None


# -- one process at a time ------------------------------------------------------------------------


def is_elsewhere(db: Connection, run_id: str, *, process: int, is_alive: IsAlive) -> bool:
    """Whether another process is at work in the pot of a run, or in one of the same chain.

    Each process counts for itself: so only one at a time works in a pot.
    """
    at_work = db.execute(_AT_WORK, {"process": process}).fetchall()
    if not any(is_alive(owner) for owner, *_ in at_work):
        return False
    top = top_of(db, run_id)
    return any(top_of(db, pot or run) == top and is_alive(owner) for owner, run, pot in at_work)


def take_over(db: Connection, top: str, *, process: int) -> int | None:
    """Note that a process works in a pot.

    Returns:
        The one that did before: 0 for one that is forgotten, `None` if nobody did.
    """
    row = db.execute("SELECT coalesce(process, 0) FROM pots WHERE run_id = ?", (top,)).fetchone()
    if row != (process,):
        db.execute("INSERT OR REPLACE INTO pots (run_id, process) VALUES (?, ?)", (top, process))
    return None if row is None else int(row[0])


def _spent_so_far(db: Connection, run: int) -> int:
    """What a run without an end has spent by its finished calls."""
    found = db.execute("SELECT usage FROM model_calls WHERE run = ? AND usage IS NOT NULL", (run,))
    return sum(Usage(*map(int, json.loads(usage))).budget_tokens for (usage,) in found)
