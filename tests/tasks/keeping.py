"""A session whose runs of tasks can be looked at, also when they have ended."""

from __future__ import annotations

from agentnb.run import Run
from agentnb.session import Session
from agentnb.tasks.order import Order
from tests.support import DEADLINE_S


class Keeping(Session):
    """Keeps the runs of its tasks."""

    @property
    def started(self) -> list[Run]:
        """In the order in which their messages were queued."""
        runs: list[Run] = self.__dict__.setdefault("_started", [])
        return runs

    def start_order(self, order: Order) -> Run:
        self.started.append(super().start_order(order))
        return self.started[-1]

    def runs_on(self, thread_id: str) -> list[Run]:
        """Those of one thread, in their order."""
        return [run for run in self.started if run.thread_id == thread_id]


def ended(run: Run) -> Run:
    run.result(DEADLINE_S)
    return run
