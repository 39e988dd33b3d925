"""The pause after a budget warning: asks whether the run should continue.

The question is one of the run's (`agentnb.core.questions`); at most one is open at a time. While it
is open, new calls wait, except the root's synthesis. A new total answers it, too. Its events are
`BudgetPaused` and `BudgetResumed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from agentnb.core.errors import NoOpenQuestion
from agentnb.core.events import BudgetPaused, BudgetResumed, BudgetWarning
from agentnb.core.money import TOKENS, share_in_words
from agentnb.core.protocols import BudgetGate
from agentnb.core.questions import BUDGET, ENDED, OPTIONS, Answer, Gate, Questions
from agentnb.core.text import literal

if TYPE_CHECKING:
    from agentnb.core.bus import EventBus

_WHY_STOP = {
    "stop": "the answer to the budget's question was to stop",
    "timeout": "nobody answered the budget's question in time",
    "lowered": "the total was set to what is used already",
}


_BY_GATE = "stop: "


def _ignore(_: str, __: str | None, ___: str) -> None:
    return


def paused(warning: BudgetWarning, wait_s: float) -> BudgetPaused:
    """The event that opens the question."""
    return BudgetPaused(
        tokens_used=warning.tokens_used,
        budget_total=warning.budget_total,
        percentage=warning.percentage,
        wait_s=wait_s,
        unit=warning.unit,
    )


def question_text(warning: BudgetWarning) -> str:
    """The question in words."""
    return (
        f"{share_in_words(warning.tokens_used, warning.budget_total, warning.unit)} "
        f"{'are' if warning.unit == TOKENS else 'is'} used. Continue or stop? "
        "New calls wait for the answer."
    )


class BudgetPause:
    """The budget's question. Belongs to the run's loop.

    Args:
        bus: Where `BudgetPaused` and `BudgetResumed` are published.
        questions: The run's questions.
        root_id: The root agent's id.
        gate: Asked instead of a person.
        on_answer: Called before waiting calls continue, with the answer, the reason to stop (`None`
            to continue), and who answered.
    """

    def __init__(
        self,
        bus: EventBus,
        questions: Questions,
        *,
        root_id: str,
        gate: BudgetGate | None,
        on_answer: Callable[[str, str | None, str], None],
    ) -> None:
        self._bus = bus
        self._questions = questions
        self._root_id = root_id
        self._gate = None if gate is None else Gate(gate, None, "the budget gate", _read)
        self._on_answer = on_answer
        self.question_id = ""
        """Id of the question that is open or was asked last; empty before the first."""
        self._closed = asyncio.Event()
        self._closed.set()

    @property
    def is_open(self) -> bool:
        return not self._closed.is_set()

    async def wait_until_closed(self) -> None:
        await self._closed.wait()

    def ask(self, warning: BudgetWarning, *, is_told: bool = False) -> None:
        """Open the question; does nothing if it is open.

        Args:
            warning: The warning that it asks about.
            is_told: Whether `BudgetPaused` is published already.
        """
        if self.is_open:
            return
        self._closed.clear()
        if not is_told:
            self._bus.publish(paused(warning, self._questions.timeout_s))
        gate = self._gate
        self.question_id = self._questions.ask(
            BUDGET,
            self._root_id,
            question_text(warning),
            warning,
            self._answered,
            gate=None if gate is None else replace(gate, given=warning),
        )

    def answer(self, answer: str, by: str = "code") -> None:
        """Take a person's answer, from a panel or from code.

        Raises:
            ValueError: The answer is neither `continue` nor `stop`.
            NoOpenQuestion: No question is open.
        """
        if answer not in OPTIONS[BUDGET]:
            raise ValueError(f"Answer 'continue' or 'stop', not {literal(answer)}.")
        if not self.is_open:
            raise NoOpenQuestion
        self._questions.answer(self.question_id, answer, by=by)

    def settle(self, answer: str, by: str = "") -> None:
        """Close the question if it is open: a new total answered it, or no answer matters now."""
        if self.is_open:
            self._questions.settle(self.question_id, Answer(answer, by))

    def _answered(self, given: Answer) -> None:
        answer = _reason(given)
        self._closed.set()
        self._bus.publish(BudgetResumed(reason=answer, by=given.by))
        goes_on = answer in ("continue", "raised", ENDED)
        self._on_answer(answer, None if goes_on else _WHY_STOP.get(answer, answer), given.by)

    def close(self) -> None:
        """Close an open question at the run's end."""
        self.settle(ENDED)
        # A method of the meter, which refers to this pause: a cycle that would keep the run alive.
        self._on_answer = _ignore


def _reason(answer: Answer) -> str:
    """The reason of an answer, as `BudgetResumed` and the record hold it."""
    if answer.reason and answer.by == "limit":
        return "timeout"
    return f"{_BY_GATE}{answer.reason}" if answer.reason and answer.by == "gate" else answer.answer


def _read(returned: object) -> Answer:
    if returned not in OPTIONS[BUDGET]:
        raise ValueError(f"answered {literal(returned)}, not 'continue' or 'stop'")
    return Answer(str(returned))
