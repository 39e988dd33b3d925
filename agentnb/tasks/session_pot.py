"""The budget of a session (`session_budget`), which is above the budgets of all its runs.

Like the budgets of runs that assign tasks, it is counted in memory by one process at a time: a run
of another process waits until no run of this one is working, and starts with the figures of the
store. So what a killed process has spent counts, and what it had reserved does not.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

from agentnb.core.budget import RequestBudget
from agentnb.core.errors import SessionBudgetUsedUp
from agentnb.core.money import Rate, share_in_words
from agentnb.settings import budget_amount
from agentnb.store import pots

if TYPE_CHECKING:
    from sqlite3 import Connection

    from agentnb.store.runs import IsAlive

_NAME = "the session's budget (`session_budget`)"


class SessionPot:
    """What the runs of one session may spend together, in one unit.

    Args:
        session_id: The session.
        total: The total, in the unit.
        unit: `tokens`, or `usd` for micro-dollars.
    """

    def __init__(self, session_id: str, total: int, unit: str) -> None:
        self._session_id = session_id
        self.budget = RequestBudget(total, name=_NAME, unit=unit)
        self._is_new = True
        """Whether the store was not read yet."""

    def __str__(self) -> str:
        budget = self.budget
        return share_in_words(budget.tokens_used, budget.total, budget.unit)

    def is_elsewhere(self, db: Connection, *, process: int, is_alive: IsAlive) -> bool:
        """Whether another process works in it."""
        return pots.session_is_elsewhere(db, self._session_id, process=process, is_alive=is_alive)

    def look(self, db: Connection, *, process: int, rate_for: Callable[[str], Rate | None]) -> None:
        """Count what other processes have spent in it, if one of them used it last."""
        if self._is_new or not pots.worked_last(db, self._session_id, process=process):
            unit = self.budget.unit
            self.budget.catch_up(pots.spent_in_session(db, self._session_id, unit, rate_for))

    def take_over(
        self, db: Connection, *, process: int, rate_for: Callable[[str], Rate | None]
    ) -> None:
        """Like `look`, in the transaction in which a run begins: this process now uses it."""
        self.look(db, process=process, rate_for=rate_for)
        pots.take_over(db, self._session_id, process=process)
        self._is_new = False

    def check(self) -> None:
        """Raise `SessionBudgetUsedUp` if nothing is left."""
        if self.budget.tokens_used >= self.budget.total:
            raise SessionBudgetUsedUp(str(self))


_known: weakref.WeakValueDictionary[tuple[object, str, str], SessionPot] = (
    weakref.WeakValueDictionary()
)
_lock = threading.Lock()


def session_pot(
    place: object, session_id: str, budget: int | str | Decimal | None
) -> SessionPot | None:
    """The budget of a session, with this total from now on; `None` if the session has none.

    Args:
        place: The place that sessions of this process must share to share the budget: a file's
            path, or a store in memory.
        session_id: The session.
        budget: The value of the setting.
    """
    if budget is None:
        return None
    total, unit = budget_amount(budget)
    with _lock:
        key = (place, session_id, unit)
        found = _known.get(key)
        if found is None:
            found = _known[key] = SessionPot(session_id, total, unit)
    if found.budget.total != total:
        found.budget.set_total(total)
    return found
