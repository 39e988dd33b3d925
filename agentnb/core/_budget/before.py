"""Repeats a run's recorded budget events while the run is repeated from its record.

Recorded calls do not ask the budget, so their spending triggers nothing. Warnings, questions,
answers and new totals come from the record instead: each is published when the call during which it
occurred has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agentnb.core._budget.pause import paused
from agentnb.core.budget import RequestBudget
from agentnb.core.events import BudgetChanged, BudgetResumed, BudgetWarning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentnb.core._past.whole import BudgetAct
    from agentnb.core.bus import EventBus


class KeepsAgain(Protocol):
    """What this module needs of the run's recorder."""

    def of_run_again(self, kind: str, value: Any) -> None: ...


class ToldBefore:
    """Publishes the recorded budget events of one run again.

    Args:
        acts: The recorded questions, decisions and new totals, in order.
        total: The total at the run's start.
        budget: The run's budget, already set to its latest total.
        bus: Where the events are published.
        recorder: Records the verdicts again; `None` for none.
        wait_s: Seconds that a question waits for its answer.
    """

    def __init__(
        self,
        acts: Sequence[BudgetAct],
        total: int,
        budget: RequestBudget,
        bus: EventBus,
        recorder: KeepsAgain | None,
        wait_s: float,
    ) -> None:
        self.total = total
        """The total after the events published so far."""
        self.is_asked = False
        """Whether the question is open."""
        self.is_warned = False
        """Whether a warning was published for this total."""
        self.has_warned = False
        """Whether a warning was published for any total."""
        self.has_crossed = False
        """Whether the warning line was crossed for this total."""
        self.stopped: str | None = None
        """Why the run was stopped; `None` if it was not."""
        self._acts = list(acts)
        self._budget, self._bus, self._recorder = budget, bus, recorder
        self._wait_s = wait_s
        self._ended: set[tuple[str, int]] = set()

    def call_ended(self, path: str, number: int) -> None:
        """A recorded call has ended: publish what occurred up to then, in order.

        An act waits for its own call and for all acts before it.
        """
        self._ended.add((path, number))
        while self._acts and (self._acts[0].place in self._ended or not self._acts[0].place[1]):
            self._tell(self._acts.pop(0))
        if self._budget.tokens_used >= self.total:  # past the total: no decision was recorded
            self.has_crossed = True
            self.warn_once()

    def tell_the_rest(self) -> None:
        """Publish what occurred during calls that had not ended."""
        while self._acts:
            self._tell(self._acts.pop(0))

    def warn_once(self) -> None:
        """Publish the warning, unless one was published for this total."""
        if not self.is_warned:
            self.is_warned = self.has_warned = True
            self._bus.publish(self.warning())

    def warning(self) -> BudgetWarning:
        """A warning with the current figures."""
        used = self._budget.tokens_used
        return BudgetWarning(
            tokens_used=used,
            budget_total=self.total,
            percentage=100 * used / self.total if self.total else 100.0,
            unit=self._budget.unit,
        )

    def _tell(self, act: BudgetAct) -> None:
        if act.kind == "budget":
            self._tell_total(act.value, act.by)
            return
        if self._recorder is not None:
            self._recorder.of_run_again(act.kind, act.value)
        self.has_crossed = True
        if not self.is_asked:
            self.warn_once()
        if act.kind == "asked":
            self._ask()
        else:
            self._decide(act.value)

    def _ask(self) -> None:
        self.is_asked = True
        self._bus.publish(paused(self.warning(), self._wait_s))

    def _decide(self, value: Any) -> None:
        if self.is_asked:
            self.is_asked = False
            self._bus.publish(BudgetResumed(reason=value["answer"], by=value["by"]))
        self.stopped = value["why"] if value["decision"] == "stop" else None

    def _tell_total(self, total: int, by: str) -> None:
        previous, self.total = self.total, total
        used = self._budget.tokens_used
        self._bus.publish(
            BudgetChanged(
                budget_total=total,
                previous_total=previous,
                tokens_used=used,
                by=by,
                unit=self._budget.unit,
            )
        )
        if total > previous:
            self.stopped = None
            if used < self._budget.warning_line(total):
                self.is_warned = self.has_crossed = False
