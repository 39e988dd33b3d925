"""The runs of a session that work in this process, and what they share with the runs below them."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from agentnb.core.cancel import Cancellation
from agentnb.core.types import is_at_or_below
from agentnb.store import pots
from agentnb.tasks.order import Standing

if TYPE_CHECKING:
    from collections.abc import Callable
    from sqlite3 import Connection

    from agentnb.core.budget import RequestBudget
    from agentnb.core.money import Rate
    from agentnb.core.request import RequestContext
    from agentnb.store.runs import IsAlive
    from agentnb.tasks.session_pot import SessionPot

_budgets: weakref.WeakValueDictionary[str, RequestBudget] = weakref.WeakValueDictionary()
"""Budgets of this process's runs, by id: several sessions with one id share them."""
_rebuilt: weakref.WeakValueDictionary[str, RequestBudget] = weakref.WeakValueDictionary()
"""Budgets of other runs, by id, as computed from the store."""
_cancellations: weakref.WeakValueDictionary[str, Cancellation] = weakref.WeakValueDictionary()
"""Cancellations of runs, by id: a cancel of a run, even of an ended one, reaches what it assigned.
Whatever runs below it keeps it alive."""
_lock = threading.Lock()
"""Held while adding to these three or iterating over them, since several threads do."""


class AtWork:
    """The working runs of a session, and the budgets of all its runs that assigned tasks."""

    def __init__(self) -> None:
        self._live: dict[str, RequestContext] = {}
        self._pots: dict[str, RequestBudget] = {}
        """Budgets of runs that have assigned tasks, by the run's id."""
        self._standing: dict[str, Standing] = {}
        """For runs recovered here, by id: kept as long as the desk, like their budgets."""

        self.session: SessionPot | None = None
        """The session's budget, if it has one."""
        self.rate_for: Callable[[str], Rate | None] = lambda _: None

    def __bool__(self) -> bool:
        return bool(self._live)

    def begin(self, request: RequestContext) -> None:
        """Note that a run begins to work."""
        self._live[request.run_id] = request
        with _lock:
            _cancellations.setdefault(request.run_id, request.cancellation)
            _budgets[request.run_id] = request.budget
            _rebuilt.pop(request.run_id, None)

    def end(self, request: RequestContext) -> None:
        """Note that a run does not work any more."""
        del self._live[request.run_id]

    def close(self) -> None:
        """The session is closed: its runs stop, but nothing that is still queued is cancelled."""
        with _lock:
            for run_id in {*self._live, *self._pots, *self._standing}:
                _cancellations.pop(run_id, None)

    def run_of(self, agent_id: str) -> RequestContext | None:
        """The run in this process that an agent belongs to; `None` for none. From any thread."""
        live = list(self._live.values())  # in one step, since the loop changes it meanwhile
        of = [each for each in live if is_at_or_below(agent_id, each.thread_id)]
        return max(of, key=lambda each: len(each.thread_id), default=None)

    def cancellation_of(self, run_id: str) -> Cancellation:
        """The cancellation of a run, even of one that has ended or may be recovered here."""
        with _lock:
            found = _cancellations.get(run_id)
            if found is None:
                found = _cancellations[run_id] = Cancellation()
            return found

    def standing(self, db: Connection, run_id: str) -> Standing:
        """What a run that is recovered in this process shares with the runs below it."""
        with _lock:
            budget = _rebuilt.get(run_id) or _budgets.get(run_id)
        if budget is None:
            budget = pots.pot_of(db, run_id, above=self.pot, session=self._top)
            with _lock:
                _rebuilt[run_id] = budget
        found = self._standing[run_id] = Standing(budget, self.cancellation_of(run_id))
        return found

    def pot(self, db: Connection, run_id: str) -> RequestBudget:
        """The budget of a run, even of one that has ended or whose process died."""
        if run_id not in self._pots:
            found = _budgets.get(run_id) or _rebuilt.get(run_id)
            if found is None:
                found = pots.pot_of(db, run_id, above=self.pot, session=self._top)
                with _lock:
                    _rebuilt[run_id] = found
            self._pots[run_id] = found
        return self._pots[run_id]

    @property
    def _top(self) -> RequestBudget | None:
        return None if self.session is None else self.session.budget

    def session_is_elsewhere(self, db: Connection, *, process: int, is_alive: IsAlive) -> bool:
        """Whether another process works in the session's budget."""
        if self.session is None:
            return False
        return self.session.is_elsewhere(db, process=process, is_alive=is_alive)

    def look_at_session(self, db: Connection, *, process: int) -> None:
        """Count what other processes have spent in the session's budget."""
        if self.session is not None:
            self.session.look(db, process=process, rate_for=self.rate_for)

    def take_over_session(self, db: Connection, *, process: int) -> None:
        """Like `look_at_session`, in the transaction in which a run begins."""
        if self.session is not None:
            self.session.take_over(db, process=process, rate_for=self.rate_for)

    def catch_up(self, db: Connection, pot: str, *, process: int) -> None:
        """Count what another process has spent in a budget since this one last used it.

        Args:
            db: A connection in the transaction in which a run below the budget begins.
            pot: The run whose budget it is.
            process: This process.
        """
        top = pots.top_of(db, pot)
        before = pots.take_over(db, top, process=process)
        if before == process:
            return
        # Runs of this process may be using their own budgets, unless another process came between.
        with _lock:
            behind = [*_rebuilt.items(), *(() if before is None else _budgets.items())]
        for run_id, budget in behind:
            if pots.top_of(db, run_id) == top:
                total, used, _ = pots.state_of(db, run_id)
                budget.catch_up(used, total=total if run_id in _rebuilt else None)

    def go_on(self, before: AtWork) -> None:
        """Take over from an earlier session with this one's id the state of what it assigned."""
        self._pots.update(before._pots)
        self._standing.update(before._standing)
