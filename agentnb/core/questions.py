"""The questions of one run to a person: one queue, and the first answer counts.

A question is answered by a person (in a panel, in code), by a person's own function (a gate), or
by time: `DENIALS` has the answers that count after the time limit, `UNATTENDED` those if nobody can
answer. All of them lead to `_settle`, which publishes `QuestionAnswered` once and calls the asker.
The budget's question has its own events, `BudgetPaused` and `BudgetResumed`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from agentnb.core.cancel import is_own_cancellation
from agentnb.core.clock import Clock, TimeLimit
from agentnb.core.errors import NoOpenQuestion, in_words
from agentnb.core.events import QuestionAnswered, QuestionAsked
from agentnb.core.text import literal, one_line
from agentnb.core.threads import run_in_thread
from agentnb.core.types import path_of

if TYPE_CHECKING:
    from agentnb.core.bus import EventBus

BUDGET, APPROVAL, PLAN, SAMPLE = "budget", "approval", "plan", "sample"
"""What a question is about: `Question.kind`."""

OPTIONS: Mapping[str, tuple[str, ...]] = {
    BUDGET: ("continue", "stop"),
    APPROVAL: ("approve", "deny"),
    PLAN: ("go", "stop", "fewer"),
    SAMPLE: ("go", "stop"),
}
"""By kind: the answers that a question takes."""

DENIALS: Mapping[str, str] = {BUDGET: "stop", APPROVAL: "deny", PLAN: "stop", SAMPLE: "stop"}
"""By kind: the answer that counts if none came in time, or a gate failed."""

UNATTENDED: Mapping[str, str] = {**DENIALS, PLAN: "go", SAMPLE: "go"}
"""By kind: the answer that counts if no person can answer."""

WAITS_FOR_PLAN = "an answer to its plan"
"""Reason of an `AgentWaiting`; likewise the next one."""
WAITS_FOR_SAMPLE = "an answer to its sample"
ENDED = "ended"
"""The answer of a void question: its agent or the run ended first."""
GATE_PATIENCE_S = 2.0
"""Seconds that a gate has to end after its answer is no longer needed."""


@dataclass(frozen=True, slots=True)
class Question:
    """An open question. It holds only its own agent; the budget's holds every new call."""

    id: str
    """`q1`, `q2`, in the order in which the run asked."""
    kind: str
    """`budget`, `approval`, `plan` or `sample`."""
    agent_id: str
    """The agent that waits for the answer; the root for the budget's question."""
    path: str
    """That agent's path."""
    text: str
    """The question, in words."""
    options: tuple[str, ...]
    """The answers that it takes."""
    value: Any = None
    """Its subject. For an approval: `{"tool": name, "arguments": {…}}`, uncut. For a plan: its
    `SpawnPlanned`. For a sample: `{"sample_agents", "sample_tokens", "sample_cost_usd", "agents",
    "tokens", "cost_usd"}`: the sample's figures, and the estimate for the rest; a cost is `None` if
    a price is unknown. For the budget: its `BudgetWarning`."""
    asked_at_s: float = field(default=0.0, compare=False)
    """Seconds since the run began."""
    wait_s: float = field(default=0.0, compare=False)
    """Seconds without an answer after which it is denied."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question."""

    answer: str
    """One of its options, or a word that only agentnb itself gives, such as `ended`."""
    by: str = ""
    """`panel`, `code`, `gate`, `limit` or `agent`."""
    reason: str = ""
    value: Any = None
    """Other arguments, or a number of tasks."""


@dataclass(frozen=True, slots=True)
class Gate:
    """A person's own function that answers a question, called at once when it is asked."""

    function: Callable[[Any], object]
    """Sync (called on a thread) or async."""
    given: Any
    """Its argument; `None` for the question itself."""
    name: str
    """Its name in the reason of a denial: `the budget gate`."""
    read: Callable[[object], Answer | None]
    """Converts its return value into an answer; `None` leaves the question to a person. Raises
    `ValueError`, whose text says what it should have returned."""


class KeepsAnswers(Protocol):
    """What the queue needs of the run's recorder."""

    def order(self, kind: str, by: str, value: Any, path: str = "") -> None: ...


def nobody_within(timeout_s: float) -> str:
    """The reason of a denial because no answer came in time."""
    return f"nobody answered within {timeout_s:g} s"


def _somebody_may_answer() -> float | None:
    return None


class Questions:
    """The open questions of one run. For the run's loop only, except `open`.

    Args:
        bus: Where `QuestionAsked` and `QuestionAnswered` are published.
        clock: The run's clock.
        root_id: The root agent's id.
        timeout_s: Seconds without an answer after which a question is denied.
        patience: Returns `None` while somebody can answer, 0 if nobody can; otherwise the seconds
            after which to call it again.
        recorder: Records the answers of persons as orders; `None` for no records.
    """

    def __init__(
        self,
        bus: EventBus,
        clock: Clock,
        *,
        root_id: str = "",
        timeout_s: float = 600.0,
        patience: Callable[[], float | None] = _somebody_may_answer,
        recorder: KeepsAnswers | None = None,
    ) -> None:
        self._bus, self._clock, self._recorder = bus, clock, recorder
        self._root_id = root_id
        self.timeout_s = timeout_s
        self._patience = patience
        self._last = 0
        self._open: Mapping[str, _Asked] = {}
        """Replaced, never changed, since other threads read it."""
        self._waiting: set[asyncio.Task[None]] = set()

    @property
    def open(self) -> tuple[Question, ...]:
        """The open questions, in the order in which they were asked. From any thread."""
        return tuple(asked.question for asked in self._open.values())

    @property
    def nobody_can_answer(self) -> bool:
        """Whether no person or function could answer a question."""
        return self._patience() == 0

    def number_after(self, question_id: str) -> None:
        """Give new questions higher numbers than an earlier one."""
        number = question_id.removeprefix("q")
        if number.isdecimal():
            self._last = max(self._last, int(number))

    # -- asking -----------------------------------------------------------------------------------

    def ask(
        self,
        kind: str,
        agent_id: str,
        text: str,
        value: Any,
        on_answer: Callable[[Answer], None],
        *,
        gate: Gate | None = None,
    ) -> str:
        """Ask a question, and return its id.

        Args:
            kind: What it is about.
            agent_id: The agent that waits for the answer.
            text: The question, in words.
            value: See `Question`.
            on_answer: Called once with the answer, on the run's loop.
            gate: Asked instead of a person.
        """
        self._last += 1
        question = Question(
            f"q{self._last}",
            kind,
            agent_id,
            path_of(agent_id, self._root_id),
            text,
            OPTIONS[kind],
            value,
            self._bus.now_s,
            self.timeout_s,
        )
        asked = _Asked(question, on_answer)
        self._open = {**self._open, question.id: asked}
        self.tell_asked(question.id, kind, text, agent_id)
        waiting = asyncio.create_task(self._wait(asked, gate))
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)
        return question.id

    def tell_asked(self, question_id: str, kind: str, text: str, agent_id: str) -> None:
        """Publish that a question is asked, except the budget's, which has its own events."""
        self.number_after(question_id)
        if kind == BUDGET:
            return
        self._bus.publish(
            QuestionAsked(
                agent_id=agent_id,
                question_id=question_id,
                question=kind,
                text=text,
                options=OPTIONS[kind],
                wait_s=self.timeout_s,
            )
        )

    def tell_answered(self, question_id: str, answer: Answer, agent_id: str) -> None:
        """Publish that a question has its answer."""
        value = answer.value
        self._bus.publish(
            QuestionAnswered(
                agent_id=agent_id,
                question_id=question_id,
                answer=answer.answer,
                by=answer.by,
                reason=answer.reason,
                value=None if isinstance(value, Mapping) else value,
            )
        )

    async def answer_to(
        self,
        kind: str,
        agent_id: str,
        text: str,
        value: Any,
        keep: Callable[[str, Answer], None],
        *,
        gate: Gate | None = None,
        keeps_end: bool = False,
    ) -> Answer:
        """Ask, and wait for the answer. A question whose agent is cancelled is void.

        Args:
            kind: As in `ask`, like the next three.
            agent_id: The agent that waits for the answer.
            text: The question, in words.
            value: See `Question`.
            keep: Records the answer: called with the question's id and the answer in the same step
                in which the answer takes effect, so that the process cannot die in between.
            gate: Asked instead of a person.
            keeps_end: Whether `keep` is also called for a void question.
        """
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def answered(answer: Answer) -> None:
            if keeps_end or answer.answer != ENDED:
                keep(question_id, answer)
            if not future.done():
                future.set_result(answer)

        question_id = self.ask(kind, agent_id, text, value, answered, gate=gate)
        try:
            return await future
        finally:
            self.settle(question_id, Answer(ENDED, "limit"))

    async def _wait(self, asked: _Asked, gate: Gate | None) -> None:
        """Wait for a question's answer, and deny it if none comes."""
        asking = None if gate is None else asyncio.create_task(self._ask_gate(asked, gate))
        kind = asked.question.kind
        try:
            with TimeLimit(self._clock, self.timeout_s):
                if asking is not None:
                    # `asyncio.wait` cancels neither of them if this wait is cancelled.
                    both = [asking, asked.answered]
                    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if kind != BUDGET:  # the budget asks only while somebody can answer
                    await self._wait_for_somebody(asked)
                await asyncio.shield(asked.answered)
        except TimeoutError:
            self._settle(asked, Answer(DENIALS[kind], "limit", nobody_within(self.timeout_s)))
        finally:
            if asking is not None and not asking.done():
                asking.cancel()
                with suppress(TimeoutError):  # one that does not end is abandoned
                    with TimeLimit(self._clock, GATE_PATIENCE_S):
                        await asyncio.wait([asking])

    async def _wait_for_somebody(self, asked: _Asked) -> None:
        """Return once somebody can answer; settle the question if nobody can."""
        while not asked.answered.done() and (left_s := self._patience()) is not None:
            if not left_s:
                why = "nobody was there to answer"
                self._settle(asked, Answer(UNATTENDED[asked.question.kind], "limit", why))
                return
            with suppress(TimeoutError):
                with TimeLimit(self._clock, left_s):
                    await asyncio.shield(asked.answered)

    async def _ask_gate(self, asked: _Asked, gate: Gate) -> None:
        # Settles `asked` itself: a gate may answer after its question was closed.
        function = gate.function
        given = asked.question if gate.given is None else gate.given
        denial = DENIALS[asked.question.kind]
        try:
            if inspect.iscoroutinefunction(function):
                returned = await function(given)
            else:
                returned = await run_in_thread(lambda: function(given))
                if inspect.isawaitable(returned):
                    returned = await cast("Awaitable[object]", returned)
            try:
                answer = gate.read(returned)
            except ValueError as wrong:
                answer = Answer(denial, reason=f"{gate.name} {wrong}")
        except BaseException as error:
            if is_own_cancellation(error):
                raise
            # A broken gate denies: it must not spend a person's money, or let a tool through.
            said = f"{type(error).__name__}: {in_words(error)}"
            answer = Answer(denial, reason=f"{gate.name} raised {said}")
        if answer is not None:
            self._settle(asked, Answer(answer.answer, "gate", answer.reason, answer.value))

    # -- answering --------------------------------------------------------------------------------

    def answer(
        self,
        question_id: str,
        answer: str,
        *,
        value: Any = None,
        reason: str | None = None,
        by: str = "code",
    ) -> None:
        """Take a person's answer, from a panel or from code.

        Raises:
            NoOpenQuestion: No such question is open.
            ValueError: The question does not take this answer, or not this value.
        """
        asked = self._open.get(question_id)
        if asked is None:
            raise NoOpenQuestion(question_id, tuple(self._open))
        self._settle(asked, checked(asked.question, answer, value, reason, by))

    def settle(self, question_id: str, answer: Answer) -> None:
        """Close a question with an answer, if it is open."""
        asked = self._open.get(question_id)
        if asked is not None:
            self._settle(asked, answer)

    def _settle(self, asked: _Asked, answer: Answer) -> None:
        question = asked.question
        if self._open.get(question.id) is not asked:
            return
        self._open = {key: each for key, each in self._open.items() if each is not asked}
        if not asked.answered.done():
            asked.answered.set_result(None)
        if question.kind != BUDGET:
            self.tell_answered(question.id, answer, question.agent_id)
        is_persons = answer.by in ("panel", "code", "gate") and answer.answer in question.options
        if self._recorder is not None and is_persons:
            path = "" if question.kind == BUDGET else question.path
            self._recorder.order("answer", answer.by, _as_order(question, answer), path)
        asked.on_answer(answer)

    async def aclose(self) -> None:
        """The run is over: close what is open, and wait for the tasks that asked."""
        for asked in self._open.values():
            self._settle(asked, Answer(ENDED, "limit"))
        if self._waiting:
            await asyncio.wait(self._waiting)


class _Asked:
    """An open question, and who waits for its answer."""

    __slots__ = ("answered", "on_answer", "question")

    def __init__(self, question: Question, on_answer: Callable[[Answer], None]) -> None:
        self.question, self.on_answer = question, on_answer
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()


def _as_order(question: Question, answer: Answer) -> Any:
    """An answer as it is recorded; for the budget's question only the word, as in older records."""
    if question.kind == BUDGET:
        return answer.answer
    return {
        "question": question.id,
        "answer": answer.answer,
        "value": answer.value,
        "reason": answer.reason,
    }


def checked(question: Question, answer: Any, value: Any, reason: Any, by: str) -> Answer:
    """A person's answer, checked against its question.

    Raises:
        ValueError: The question does not take it; the text says what it takes.
    """
    if answer not in question.options:
        *first, last = map(repr, question.options)
        raise ValueError(f"Answer {', '.join(first)} or {last}, not {literal(answer)}.")
    if reason is not None and not isinstance(reason, str):
        raise ValueError(f"`reason` must be a string, not {literal(reason)}.")
    return Answer(answer, by, one_line(reason or ""), _checked_value(question, answer, value))


def _checked_value(question: Question, answer: str, value: Any) -> Any:
    if question.kind == APPROVAL and answer == "approve" and value is not None:
        if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value):
            raise ValueError(f"`value` must be the arguments by name, not {literal(value)}.")
        return dict(value)
    if question.kind == PLAN and answer == "fewer":
        most = len(question.value.tasks)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ValueError(
                f"`value` must be the number of tasks that may start, from 1 to {most}, "
                f"not {literal(value)}."
            )
        return value
    if value is not None:
        raise ValueError(f"The answer {answer!r} takes no `value`.")
    return None
