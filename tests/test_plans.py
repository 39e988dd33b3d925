"""Plans of a session's runs: its settings apply, and a person answers by the run's handle."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from agentnb import Price, Run, Session, set_prices
from agentnb.core.codec import plain
from agentnb.core.events import AgentSpawned, QuestionAsked, SpawnPlanned
from agentnb.settings import Settings
from agentnb.testing import equal_records
from tests.support import DEADLINE_S, by_agent, events_of, spawn, until

SCRIPT = {"root": [spawn("A", "B"), "All."], "A": "a", "B": "b"}


def started(run: Run) -> list[str]:
    return [each.task_description for each in events_of(run.events, AgentSpawned)][1:]


async def asked(session: Session) -> Run:
    run = session.spawn("the task")
    await until(lambda: run.questions)
    return run


async def test_plan_is_answered_by_the_handle_of_its_run(tmp_path: Path) -> None:
    session = Session(provider=by_agent(SCRIPT), on_plan="ask", store=tmp_path / "x.db")
    run = await asked(session)
    (question,) = run.questions
    assert isinstance(question.value, SpawnPlanned)
    assert started(run) == []
    run.answer(question.id, "fewer", value=1)
    run.result(DEADLINE_S)

    assert started(run) == ["A"]
    loaded = session.load(run.id)
    assert equal_records(loaded, run) == []
    assert [each.tasks for each in events_of(loaded.events, SpawnPlanned)] == [("A", "B")]


def test_recorded_run_is_replayed_with_its_answers_and_calls_no_model(tmp_path: Path) -> None:
    cassette = tmp_path / "plans.cassette.jsonl"

    def one(planned: SpawnPlanned) -> int:
        return 1

    def nobody(planned: SpawnPlanned) -> int:
        raise AssertionError("it was asked")

    recording = Session(
        provider=by_agent(SCRIPT), on_plan=one, mode="record", cassette=cassette, store=None
    )
    first = recording.spawn("the task")
    first.result(DEADLINE_S)
    again = Session(
        provider=by_agent({}), on_plan=nobody, mode="replay", cassette=cassette, store=None
    ).spawn("the task")
    again.result(DEADLINE_S)

    assert started(again) == started(first) == ["A"]
    [plan], [told] = (events_of(run.events, SpawnPlanned) for run in (first, again))
    assert (told.tasks, told.estimated_tokens) == (plan.tasks, plan.estimated_tokens)
    [before], [after] = (events_of(run.events, QuestionAsked) for run in (first, again))
    assert (after.question_id, after.text) == (before.question_id, before.text)


def test_cost_is_at_the_list_prices_of_the_session() -> None:
    set_prices({"scripted": Price(input=3, output=15)})
    try:
        run = Session(provider=by_agent(SCRIPT), store=None, max_output_tokens=1000).spawn("it")
        run.result(DEADLINE_S)
    finally:
        set_prices({})

    (plan,) = events_of(run.events, SpawnPlanned)
    outputs = 3 * 1000
    inputs = plan.estimated_tokens - outputs
    assert plan.estimated_cost_usd == pytest.approx((3 * inputs + 15 * outputs) / 1_000_000)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (None, None),
        ([12, Decimal("0.5")], (12, 0.5)),
        ((12, float("inf")), (12, float("inf"))),
        ((0, 0), (0, 0)),
    ],
)
def test_limits_above_which_is_asked_are_the_same_after_they_were_kept(
    value: Any, kept: Any
) -> None:
    before = Settings(ask_above=value).ask_above
    after = Settings(ask_above=json.loads(json.dumps(plain(before)))).ask_above

    assert before == after == kept


@pytest.mark.parametrize("value", [(1,), (1, "2"), (-1, 2), (True, 1), 3, (1, float("nan")), "ab"])
def test_other_limits_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="ask_above"):
        Settings(ask_above=value)
