"""The budgets of runs as far as a store knows them, and which process uses them.

The budgets of runs that assign tasks form a chain; here each is a pot. A process counts its
spending in memory, so only one process at a time works in a chain; the next one starts with the
figures of the store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from agentnb.core.budget import RequestBudget
from agentnb.core.money import TOKENS, Rate, rate_of
from agentnb.core.records import PRICES, UNIT
from agentnb.core.types import Usage
from agentnb.store.runs import IsAlive

if TYPE_CHECKING:
    from sqlite3 import Connection


POT = "pot"
"""The setting that names the run whose budget contains a run's own."""

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
        budget_total), settings
    FROM runs WHERE run_id = ?
"""
# The runs that other processes work on. A run that a message began may not have a row yet.
_AT_WORK = """
    SELECT t.process, t.run_id, q.pot
    FROM threads t INDEXED BY threads_by_process
    LEFT JOIN queue q ON q.thread_id = t.id AND q.run_id = t.run_id
    WHERE t.process < :process OR t.process > :process
"""


def pot_of(
    db: Connection,
    run_id: str,
    *,
    above: Callable[[Connection, str], RequestBudget],
    session: RequestBudget | None = None,
) -> RequestBudget:
    """The budget of a run in its last state, with what the run and all below it have spent.

    Args:
        db: A connection in a transaction.
        run_id: The run. A run that the store does not know has nothing left.
        above: Returns the budget of the run above.
        session: The session's budget, above that of the topmost run.
    """
    total, used, unit = state_of(db, run_id)
    upper = _above(db, run_id)
    # The budgets above have counted it: they include all that was spent below them.
    below = session if upper is None else above(db, upper)
    return RequestBudget(total, below=below, used=used, unit=unit)


def state_of(db: Connection, run_id: str) -> tuple[int, int, str]:
    """The total of a run's budget, what the run and all below it have spent, and their unit.

    Total and spending are 0 for a run that the store does not know.
    """
    row = db.execute(_TOTAL, (run_id,)).fetchone()
    if row is None:
        return 0, 0, TOKENS
    settings = json.loads(row[1])
    if settings.get(UNIT, TOKENS) != TOKENS:
        return int(row[0]), _micros_spent(db, run_id, settings[PRICES]), settings[UNIT]
    used = sum(
        int(tokens) if tokens is not None else _spent_so_far(db, run)
        for run, tokens in db.execute(_SPENT, {"run": run_id}).fetchall()
    )
    return int(row[0]), used, TOKENS


def _micros_spent(db: Connection, run_id: str, prices: Mapping[str, Any]) -> int:
    """Micro-dollars that the finished calls of a run and all below it have spent."""
    rates = {model: rate_of(each) for model, each in prices.items()}
    return sum(
        rates[model].of(Usage(*map(int, json.loads(usage))))
        for run, _ in db.execute(_SPENT, {"run": run_id}).fetchall()
        for model, usage in db.execute(
            "SELECT model, usage FROM model_calls WHERE run = ? AND usage IS NOT NULL", (run,)
        )
        if model in rates
    )


def top_of(db: Connection, run_id: str) -> str:
    """The topmost run of a run's chain of budgets; the run itself if there is none above."""
    at: str | None = run_id
    while at is not None:
        top, at = at, _above(db, at)
    return top


def _above(db: Connection, run_id: str) -> str | None:
    row = db.execute(_ABOVE, (run_id,)).fetchone()
    return None if row is None else row[0]


def has_below(db: Connection, run_id: str) -> bool:
    """Whether a run has assigned tasks, so that other runs use its budget, or may do so."""
    return db.execute("SELECT 1 FROM tasks WHERE pot = ?", (run_id,)).fetchone() is not None


# -- one process at a time ------------------------------------------------------------------------


def is_elsewhere(db: Connection, run_id: str, *, process: int, is_alive: IsAlive) -> bool:
    """Whether another process works in the budget of a run, or in another one of its chain.

    Each process counts on its own, so only one at a time may work in a budget.
    """
    at_work = db.execute(_AT_WORK, {"process": process}).fetchall()
    if not any(is_alive(owner) for owner, *_ in at_work):
        return False
    top = top_of(db, run_id)
    return any(top_of(db, pot or run) == top and is_alive(owner) for owner, run, pot in at_work)


def take_over(db: Connection, top: str, *, process: int) -> int | None:
    """Note that a process works in a budget.

    Returns:
        The process that did so before: 0 if it is not known any more, `None` if there was none.
    """
    row = db.execute("SELECT coalesce(process, 0) FROM pots WHERE run_id = ?", (top,)).fetchone()
    if row != (process,):
        db.execute("INSERT OR REPLACE INTO pots (run_id, process) VALUES (?, ?)", (top, process))
    return None if row is None else int(row[0])


# -- the session's budget -------------------------------------------------------------------------


_AT_WORK_IN_SESSION = """
    SELECT DISTINCT process FROM threads INDEXED BY threads_by_process
    WHERE (process < :process OR process > :process) AND session_id = :session
"""
_CALLS_OF_SESSION = """
    SELECT r.id, r.settings, m.model, m.usage FROM runs r JOIN model_calls m ON m.run = r.id
    WHERE r.session_id = ? AND m.usage IS NOT NULL
"""


def session_is_elsewhere(
    db: Connection, session_id: str, *, process: int, is_alive: IsAlive
) -> bool:
    """Whether another process works in a session: only one at a time may use its budget."""
    given = {"process": process, "session": session_id}
    return any(is_alive(other) for (other,) in db.execute(_AT_WORK_IN_SESSION, given).fetchall())


def worked_last(db: Connection, session_id: str, *, process: int) -> bool:
    """Whether a process was the last one to use the budget of a session."""
    row = db.execute("SELECT process FROM pots WHERE run_id = ?", (session_id,)).fetchone()
    return row is not None and row[0] == process


def spent_in_session(
    db: Connection, session_id: str, unit: str, rate_for: Callable[[str], Rate | None]
) -> int:
    """What the finished calls of all runs of a session have spent.

    Args:
        db: A connection in a transaction.
        session_id: The session.
        unit: The unit of the result: `tokens`, or `usd` for micro-dollars.
        rate_for: Returns a model's prices for runs that stored none; `None` if it has none.
    """
    spent, rates = 0, dict[tuple[int, str], Rate | None]()
    for run, settings, model, usage in db.execute(_CALLS_OF_SESSION, (session_id,)):
        used = Usage(*map(int, json.loads(usage)))
        if unit == TOKENS:
            spent += used.budget_tokens
            continue
        if (run, model) not in rates:
            kept = json.loads(settings).get(PRICES, {}).get(model)
            rates[run, model] = rate_for(model) if kept is None else rate_of(kept)
        rate = rates[run, model]
        spent += 0 if rate is None else rate.of(used)
    return spent


def _spent_so_far(db: Connection, run: int) -> int:
    """What the finished calls of a run without an end have spent."""
    found = db.execute("SELECT usage FROM model_calls WHERE run = ? AND usage IS NOT NULL", (run,))
    return sum(Usage(*map(int, json.loads(usage))).budget_tokens for (usage,) in found)
