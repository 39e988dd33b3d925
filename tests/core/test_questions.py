"""One queue of questions: asked, answered once from whichever side, denied if nobody answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agentnb.core.bus import EventBus
from agentnb.core.errors import NoOpenQuestion
from agentnb.core.events import QuestionAnswered, QuestionAsked, SpawnPlanned
from agentnb.core.questions import (
    APPROVAL,
    BUDGET,
    DENIALS,
    GATE_PATIENCE_S,
    OPTIONS,
    PLAN,
    Answer,
    Gate,
    Question,
    Questions,
)
from agentnb.core.types import SpawnMode
from tests.core.clock import ManualClock, everyone_waits

PLANNED = SpawnPlanned(
    agent_id="t.1", mode=SpawnMode.PARALLEL, tasks=("a", "b", "c"), estimated_tokens=10
)


class Queue:
    """A queue with all that happens in it."""

    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.bus = EventBus("run", clock=self.clock)
        self.orders: list[tuple[str, str, Any, str]] = []
        self.questions = Questions(
            self.bus, self.clock, root_id="t", timeout_s=600, recorder=self, **options
        )
        self.answers: list[Answer] = []

    def order(self, kind: str, by: str, value: Any, path: str = "") -> None:
        self.orders.append((kind, by, value, path))

    def ask(self, kind: str = APPROVAL, agent: str = "t.1", value: Any = None, **more: Any) -> str:
        return self.questions.ask(kind, agent, "May it?", value, self.answers.append, **more)

    @property
    def told(self) -> list[tuple[str, str]]:
        """Id and answer of each question whose answer was told."""
        events = [entry.event for entry in self.bus.entries]
        return [(e.question_id, e.answer) for e in events if isinstance(e, QuestionAnswered)]


@asynccontextmanager
async def queue_of(**options: Any) -> AsyncIterator[Queue]:
    queue = Queue(**options)
    try:
        yield queue
    finally:
        await queue.questions.aclose()


def read(returned: object) -> Answer | None:
    """What a gate of these tests returns, as an answer."""
    if returned == "ask":
        return None
    if returned not in OPTIONS[APPROVAL]:
        raise ValueError(f"answered {returned!r}, not 'approve' or 'deny'")
    return Answer(str(returned))


def gate_of(function: Callable[[Any], object]) -> Gate:
    return Gate(function, None, "the gate", read)


async def test_questions_are_open_in_their_order_and_named_by_it() -> None:
    async with queue_of() as queue:
        queue.ask(agent="t.1.2")
        queue.ask(PLAN, agent="t", value=PLANNED)

        first, second = queue.questions.open
        assert (first.id, first.path, first.options) == ("q1", "1.2", ("approve", "deny"))
        assert (second.id, second.path, second.kind) == ("q2", "root", "plan")
        asked = [e.event for e in queue.bus.entries if isinstance(e.event, QuestionAsked)]
        assert [(e.question_id, e.question, e.wait_s) for e in asked] == [
            ("q1", "approval", 600),
            ("q2", "plan", 600),
        ]


async def test_first_answer_counts_and_the_second_finds_no_question() -> None:
    async with queue_of() as queue:
        queue.ask()
        queue.ask()
        queue.questions.answer("q2", "deny", reason="not\ntoday", by="panel")

        with pytest.raises(NoOpenQuestion) as error:
            queue.questions.answer("q2", "approve")

        assert error.value.open_ids == ("q1",)
        assert queue.answers == [Answer("deny", "panel", "not today")]
        assert queue.told == [("q2", "deny")]
        (order,) = queue.orders
        assert order[:2] == ("answer", "panel")
        assert order[2]["question"] == "q2"
        assert order[3] == "1"


@pytest.mark.parametrize(
    ("kind", "answer", "value"),
    [
        (APPROVAL, "go", None),
        (APPROVAL, "deny", {"to": "x"}),
        (APPROVAL, "approve", ["x"]),
        (APPROVAL, "approve", {1: "x"}),
        (PLAN, "fewer", None),
        (PLAN, "fewer", 0),
        (PLAN, "fewer", 4),
        (PLAN, "fewer", True),
        (PLAN, "go", 2),
        (BUDGET, "approve", None),
        (BUDGET, None, None),
    ],
)
async def test_answer_that_a_question_does_not_take_is_refused_and_it_stays_open(
    kind: str, answer: Any, value: Any
) -> None:
    async with queue_of() as queue:
        queue.ask(kind, value=PLANNED)

        with pytest.raises(ValueError, match=r"must be|Answer|takes no"):
            queue.questions.answer("q1", answer, value=value)

        assert [each.id for each in queue.questions.open] == ["q1"]
        assert not queue.orders


@pytest.mark.parametrize("kind", [APPROVAL, PLAN])
async def test_question_without_an_answer_is_denied_in_its_time(kind: str) -> None:
    async with queue_of() as queue:
        queue.ask(kind, value=PLANNED)
        await everyone_waits()
        queue.clock.advance(599.9)
        await everyone_waits()
        assert queue.questions.open

        queue.clock.advance(0.1)
        await everyone_waits()

        (answer,) = queue.answers
        assert (answer.answer, answer.by) == (DENIALS[kind], "limit")
        assert "600 s" in answer.reason
        assert not queue.orders, "nobody ordered it"


async def test_question_that_nobody_can_answer_is_denied_at_once() -> None:
    async with queue_of(patience=lambda: 0.0) as queue:
        queue.ask()
        await everyone_waits()

        (answer,) = queue.answers
        assert (answer.answer, answer.by) == ("deny", "limit")
        assert "nobody was there" in answer.reason


async def test_question_waits_for_a_view_that_is_about_to_come_and_no_longer() -> None:
    left: list[float | None] = [5.0]
    async with queue_of(patience=lambda: left[0]) as queue:
        queue.ask()
        await everyone_waits()
        queue.clock.advance(5)
        left[0] = None  # it came
        await everyone_waits()
        assert queue.questions.open
        queue.questions.answer("q1", "approve")

        left[0] = 5.0
        queue.ask()
        await everyone_waits()
        queue.clock.advance(5)
        left[0] = 0.0  # it did not
        await everyone_waits()

        assert queue.told == [("q1", "approve"), ("q2", "deny")]


async def test_gate_answers_in_place_of_a_person_and_may_leave_it_to_one() -> None:
    async def gate(question: Question) -> str:
        return "deny" if question.id == "q1" else "ask"

    async with queue_of() as queue:
        queue.ask(gate=gate_of(gate))
        queue.ask(gate=gate_of(gate))
        await everyone_waits()

        assert queue.answers == [Answer("deny", "gate")]
        queue.questions.answer("q2", "approve")
        assert [by for _, by, _, _ in queue.orders] == ["gate", "code"]


async def test_gate_that_leaves_it_to_nobody_denies() -> None:
    async def ask(_: object) -> str:
        return "ask"

    async with queue_of(patience=lambda: 0.0) as queue:
        queue.ask(gate=gate_of(ask))
        await everyone_waits()

        assert queue.told == [("q1", "deny")]


@pytest.mark.parametrize("returned", [True, None, "yes", 1])
async def test_gate_that_answers_anything_else_denies_and_says_what_it_should(
    returned: object,
) -> None:
    async def gate(_: object) -> object:
        return returned

    async with queue_of() as queue:
        queue.ask(gate=gate_of(gate))
        await everyone_waits()

        (answer,) = queue.answers
        assert answer.answer == "deny"
        assert answer.reason == f"the gate answered {returned!r}, not 'approve' or 'deny'"


async def test_gate_that_raises_denies() -> None:
    async def gate(_: object) -> object:
        raise KeyError("rules")

    async with queue_of() as queue:
        queue.ask(gate=gate_of(gate))
        await everyone_waits()

        (answer,) = queue.answers
        assert (answer.answer, answer.by) == ("deny", "gate")
        assert "KeyError" in answer.reason


async def test_person_is_quicker_than_a_gate_whose_late_answer_counts_for_nothing() -> None:
    late = asyncio.Event()

    async def gate(_: object) -> object:
        try:
            await late.wait()
        except asyncio.CancelledError:
            await late.wait()
        return "deny"

    async with queue_of() as queue:
        queue.ask(gate=gate_of(gate))
        queue.ask()
        await everyone_waits()
        queue.questions.answer("q1", "approve")
        await everyone_waits()
        late.set()
        await everyone_waits()
        queue.clock.advance(GATE_PATIENCE_S)

        assert queue.told == [("q1", "approve")]
        assert [each.id for each in queue.questions.open] == ["q2"]


async def test_question_whose_agent_is_cancelled_is_void_and_nothing_is_kept_of_it() -> None:
    kept: list[Answer] = []
    async with queue_of() as queue:
        waiting = asyncio.create_task(
            queue.questions.answer_to(
                APPROVAL, "t.1", "May it?", None, lambda _, answer: kept.append(answer)
            )
        )
        await everyone_waits()
        waiting.cancel()
        await everyone_waits()

        assert waiting.cancelled()
        assert queue.told == [("q1", "ended")]
        assert not kept
        assert not queue.orders


async def test_answer_is_kept_before_anything_else_happens() -> None:
    kept: list[str] = []
    async with queue_of() as queue:
        waiting = asyncio.create_task(
            queue.questions.answer_to(
                APPROVAL, "t.1", "May it?", None, lambda key, answer: kept.append(answer.answer)
            )
        )
        await everyone_waits()
        queue.questions.answer("q1", "approve", value={"to": "x"})

        assert kept == ["approve"], "in the same step"
        assert (await waiting).value == {"to": "x"}


async def test_questions_of_a_run_that_ended_are_void() -> None:
    async with queue_of() as queue:
        queue.ask()
        queue.ask()

    assert queue.told == [("q1", "ended"), ("q2", "ended")]
    with pytest.raises(NoOpenQuestion):
        queue.questions.answer("q1", "approve")


async def test_new_questions_are_numbered_behind_those_that_were_asked_before() -> None:
    async with queue_of() as queue:
        queue.questions.number_after("q7")
        queue.questions.number_after("q3")
        queue.questions.number_after("")

        assert queue.ask() == "q8"


async def test_budget_s_question_is_in_the_queue_and_told_by_its_own_events() -> None:
    async with queue_of() as queue:
        queue.ask(BUDGET, agent="t", value="a warning")
        queue.questions.answer("q1", "continue", by="panel")

        assert len(queue.bus) == 0
        assert queue.orders == [("answer", "panel", "continue", "")]
