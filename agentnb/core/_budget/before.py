"""What a meter told before its process died: told again while the run is done again.

Recorded calls do not ask the budget, so nothing follows from what they spend. Warnings, questions,
answers and new totals come from the record, each when the call has ended during which it came.
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
    """The recorder of the run, as it is used here."""

    def of_run_again(self, kind: str, value: Any) -> None: ...


class ToldBefore:
    """Tells again what the record has of one run's budget.

    Args:
        acts: What was kept of it, in order.
        total: The total with which the run began.
        budget: The run's budget, which has its newest total.
        bus: Takes the events.
        recorder: Keeps the verdicts again.
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
        """The total by what was told so far."""
        self.is_asked = False
        """Whether the question is open."""
        self.is_warned = False
        """Whether a warning was told for this total."""
        self.has_warned = False
        """Whether one was told at all."""
        self.has_crossed = False
        """Whether the warning line was crossed for this total."""
        self.stopped: str | None = None
        """Why the run was stopped."""
        self._acts = list(acts)
        self._budget, self._bus, self._recorder = budget, bus, recorder
        self._wait_s = wait_s
        self._ended: set[tuple[str, int]] = set()

    def call_ended(self, path: str, number: int) -> None:
        """Tell what came during this call, unless something that came earlier is not told yet."""
        self._ended.add((path, number))
        while self._acts and (self._acts[0].place in self._ended or not self._acts[0].place[1]):
            self._tell(self._acts.pop(0))
        if self._budget.tokens_used >= self.total:  # both lines at once: nothing was decided
            self.has_crossed = True
            self.warn_once()

    def tell_the_rest(self) -> None:
        """Tell what came during calls that had not ended."""
        while self._acts:
            self._tell(self._acts.pop(0))

    def warn_once(self) -> None:
        """Tell the warning, if none was told for this total."""
        if not self.is_warned:
            self.is_warned = self.has_warned = True
            self._bus.publish(self.warning())

    def warning(self) -> BudgetWarning:
        """The warning with the figures of now."""
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
