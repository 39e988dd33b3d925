"""The pause after a budget warning: asks whether the run should go on.

While the question is open, new calls wait, except the root's synthesis. The first of these answers
counts: a gate's (a person's own function), a person's at a panel, a new total, the timeout, the
run's end. All of them lead to `_settle`, which publishes `BudgetResumed` at once.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from agentnb.core.cancel import is_own_cancellation
from agentnb.core.clock import Clock, TimeLimit
from agentnb.core.errors import NoOpenQuestion, in_words
from agentnb.core.events import BudgetPaused, BudgetResumed, BudgetWarning
from agentnb.core.protocols import BudgetGate
from agentnb.core.text import literal
from agentnb.core.threads import run_in_thread

if TYPE_CHECKING:
    from agentnb.core.bus import EventBus

_WHY_STOP = {
    "stop": "the answer to the budget's question was to stop",
    "timeout": "nobody answered the budget's question in time",
    "lowered": "the total was set to what is used already",
}


GATE_PATIENCE_S = 2.0
"""Seconds that a gate has to end after its answer is no longer needed."""


def _ignore(_: str, __: str | None, ___: str) -> None:
    return


def paused(warning: BudgetWarning, wait_s: float) -> BudgetPaused:
    """The event that the question is open."""
    return BudgetPaused(
        tokens_used=warning.tokens_used,
        budget_total=warning.budget_total,
        percentage=warning.percentage,
        wait_s=wait_s,
    )


class BudgetPause:
    """The budget's question, open at most once at a time. Belongs to the run's loop.

    Args:
        bus: Takes `BudgetPaused` and `BudgetResumed`.
        clock: Of the run.
        gate: Asked in place of a person.
        timeout_s: Seconds without an answer after which the run stops.
        on_answer: Called before waiting calls go on, with the answer, with why to stop, or with
            `None` to go on, and with who answered.
    """

    def __init__(
        self,
        bus: EventBus,
        clock: Clock,
        *,
        gate: BudgetGate | None,
        timeout_s: float,
        on_answer: Callable[[str, str | None, str], None],
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._gate = gate
        self._timeout_s = timeout_s
        self._on_answer = on_answer
        self._answer: asyncio.Future[str] | None = None
        self._asking: set[asyncio.Task[None]] = set()
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
            warning: What it is asked for.
            is_told: Whether `BudgetPaused` was published.
        """
        if self.is_open:
            return
        self._closed.clear()
        self._answer = asyncio.get_running_loop().create_future()
        if not is_told:
            self._bus.publish(paused(warning, self._timeout_s))
        asking = asyncio.create_task(self._wait_for_answer(warning, self._answer))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)

    def answer(self, answer: str, by: str = "code") -> None:
        """A person's answer, from a panel or from code.

        Raises:
            ValueError: It is neither `continue` nor `stop`.
            NoOpenQuestion: No question is open.
        """
        if answer not in ("continue", "stop"):
            raise ValueError(f"Answer 'continue' or 'stop', not {literal(answer)}.")
        if not self.is_open:
            raise NoOpenQuestion
        self.settle(answer, by)

    def settle(self, answer: str, by: str = "") -> None:
        """Close the question with an answer, if it is open."""
        if self._answer is not None:
            self._settle(self._answer, answer, by)

    def _settle(self, question: asyncio.Future[str], answer: str, by: str) -> None:
        if question is not self._answer or not self.is_open:
            return
        if not question.done():  # done if its waiting task was cancelled from outside
            question.set_result(answer)
        self._closed.set()
        self._bus.publish(BudgetResumed(reason=answer, by=by))
        goes_on = answer in ("continue", "raised", "ended")
        self._on_answer(answer, None if goes_on else _WHY_STOP.get(answer, answer), by)

    async def aclose(self) -> None:
        """Close an open question at the run's end, and wait for the tasks that asked it."""
        self.settle("ended")
        # A method of the meter, which refers to this pause: the cycle would keep the run in memory.
        self._on_answer = _ignore
        if self._asking:
            await asyncio.wait(self._asking)

    async def _wait_for_answer(self, warning: BudgetWarning, answer: asyncio.Future[str]) -> None:
        gate = self._gate
        asked = (
            asyncio.create_task(self._ask_gate(gate, warning, answer)) if gate is not None else None
        )
        try:
            with TimeLimit(self._clock, self._timeout_s):
                await answer
        except TimeoutError:
            self._settle(answer, "timeout", "limit")
        finally:
            if asked is not None and not asked.done():
                asked.cancel()
                with suppress(TimeoutError):  # one that does not end is abandoned
                    with TimeLimit(self._clock, GATE_PATIENCE_S):
                        await asyncio.wait([asked])

    async def _ask_gate(
        self, gate: BudgetGate, warning: BudgetWarning, question: asyncio.Future[str]
    ) -> None:
        # Settles `question`, not whichever is open: a gate may answer after its own was closed.
        try:
            if inspect.iscoroutinefunction(gate):
                answer = await gate(warning)
            else:
                answer = await run_in_thread(lambda: gate(warning))
                if inspect.isawaitable(answer):
                    answer = await cast("Awaitable[str]", answer)
        except BaseException as error:
            if is_own_cancellation(error):
                raise
            # A broken gate stops the run: it must not spend a person's money.
            said = f"{type(error).__name__}: {in_words(error)}"
            self._settle(question, f"stop: the budget gate raised {said}", "gate")
            return
        if answer not in ("continue", "stop"):
            answer = f"stop: the budget gate answered {literal(answer)}, not 'continue' or 'stop'"
        self._settle(question, answer, "gate")
