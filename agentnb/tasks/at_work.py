"""The runs of a session at work in this process, and what they leave to the runs below them."""

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
"""Of this process's runs, by id: several sessions with one id draw on the same."""
_rebuilt: weakref.WeakValueDictionary[str, RequestBudget] = weakref.WeakValueDictionary()
"""Of other runs, by id, as the store tells."""
_cancellations: weakref.WeakValueDictionary[str, Cancellation] = weakref.WeakValueDictionary()
"""Of runs, by id: a cancel of one reaches what it has assigned, also when it has ended. What goes
on below one keeps it."""
_lock = threading.Lock()
"""Held to add to these three, and to go through them: several threads do."""


class AtWork:
    """Runs at work, by id; pots also of those that have ended."""

    def __init__(self) -> None:
        self._live: dict[str, RequestContext] = {}
        self._pots: dict[str, RequestBudget] = {}
        """Pots of runs that have assigned tasks, by the run's id."""
        self._standing: dict[str, Standing] = {}
        """Of runs that went on here, by id: kept as long as the desk, like their pots."""

        self.session: SessionPot | None = None
        """The session's budget, if it has one."""
        self.rate_for: Callable[[str], Rate | None] = lambda _: None

    def __bool__(self) -> bool:
        return bool(self._live)

    def begin(self, request: RequestContext) -> None:
        """A run begins to work."""
        self._live[request.run_id] = request
        with _lock:
            _cancellations.setdefault(request.run_id, request.cancellation)
            _budgets[request.run_id] = request.budget
            _rebuilt.pop(request.run_id, None)

    def end(self, request: RequestContext) -> None:
        """A run is not at work any more."""
        del self._live[request.run_id]

    def close(self) -> None:
        """The session is closed: that stops its runs, but cancels nothing that is left queued."""
        with _lock:
            for run_id in {*self._live, *self._pots, *self._standing}:
                _cancellations.pop(run_id, None)

    def run_of(self, agent_id: str) -> RequestContext | None:
        """The run at work in this process that an agent belongs to. From any thread."""
        live = list(self._live.values())  # in one step: the loop changes it meanwhile
        of = [each for each in live if is_at_or_below(agent_id, each.thread_id)]
        return max(of, key=lambda each: len(each.thread_id), default=None)

    def cancellation_of(self, run_id: str) -> Cancellation:
        """By which a run is cancelled; also one that ended, or that may go on in this process."""
        with _lock:
            found = _cancellations.get(run_id)
            if found is None:
                found = _cancellations[run_id] = Cancellation()
            return found

    def standing(self, db: Connection, run_id: str) -> Standing:
        """What a run that goes on in this process shares with those below it."""
        with _lock:
            budget = _rebuilt.get(run_id) or _budgets.get(run_id)
        if budget is None:
            budget = pots.pot_of(db, run_id, above=self.pot, session=self._top)
            with _lock:
                _rebuilt[run_id] = budget
        found = self._standing[run_id] = Standing(budget, self.cancellation_of(run_id))
        return found

    def pot(self, db: Connection, run_id: str) -> RequestBudget:
        """The pot of a run, also of one that has ended or whose process died."""
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
        """Whether another process is at work in the session's budget."""
        if self.session is None:
            return False
        return self.session.is_elsewhere(db, process=process, is_alive=is_alive)

    def look_at_session(self, db: Connection, *, process: int) -> None:
        """Count what other processes have spent in the session's budget."""
        if self.session is not None:
            self.session.look(db, process=process, rate_for=self.rate_for)

    def take_over_session(self, db: Connection, *, process: int) -> None:
        """The same, in the transaction in which a run begins."""
        if self.session is not None:
            self.session.take_over(db, process=process, rate_for=self.rate_for)

    def catch_up(self, db: Connection, pot: str, *, process: int) -> None:
        """Count what another process has spent in a pot since this one last worked in it.

        Args:
            db: In the transaction in which a run below the pot begins.
            pot: The run whose pot it is.
            process: This process.
        """
        top = pots.top_of(db, pot)
        before = pots.take_over(db, top, process=process)
        if before == process:
            return
        # Runs of this process may be at work in their own budgets, unless another was in between.
        with _lock:
            behind = [*_rebuilt.items(), *(() if before is None else _budgets.items())]
        for run_id, budget in behind:
            if pots.top_of(db, run_id) == top:
                total, used, _ = pots.state_of(db, run_id)
                budget.catch_up(used, total=total if run_id in _rebuilt else None)

    def go_on(self, before: AtWork) -> None:
        """Follow another session with this one's id: what was assigned there is not forgotten."""
        self._pots.update(before._pots)
        self._standing.update(before._standing)
