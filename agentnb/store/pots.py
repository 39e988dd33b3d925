"""The budgets of runs that have ended, or whose process died, as far as a store knows them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentnb.core.budget import RequestBudget
from agentnb.core.types import Usage

if TYPE_CHECKING:
    from sqlite3 import Connection


POT = "pot"
"""The setting of a run that names the run in whose budget its own stands."""

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
        budget_total), settings
    FROM runs WHERE run_id = ?
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
    row = db.execute(_TOTAL, (run_id,)).fetchone()
    if row is None:
        return RequestBudget(0)
    total, settings = int(row[0]), json.loads(row[1])
    spent = sum(
        int(tokens) if tokens is not None else _spent_so_far(db, run)
        for run, tokens in db.execute(_SPENT, {"run": run_id}).fetchall()
    )
    upper = settings.get(POT)
    # Those above have counted it: they stand here with all that was spent below them.
    return RequestBudget(total, below=None if upper is None else above(db, upper), used=spent)


def _spent_so_far(db: Connection, run: int) -> int:
    """What a run without an end has spent by its finished calls."""
    found = db.execute("SELECT usage FROM model_calls WHERE run = ? AND usage IS NOT NULL", (run,))
    return sum(Usage(*map(int, json.loads(usage))).budget_tokens for (usage,) in found)
