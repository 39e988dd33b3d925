"""Plans in a run that goes on after its process died, and in one that is done again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from agentnb.core.events import AgentSpawned, QuestionAnswered, QuestionAsked, SpawnPlanned
from agentnb.core.past import Past
from agentnb.core.records import RunJournal, VerdictRecord
from agentnb.core.replay import Replay
from agentnb.core.spawn import SpawnInstruction, SpawnMode
from agentnb.core.types import Usage
from agentnb.core.undone import undo_want_of_budget
from agentnb.providers.scripted import Reply
from tests.core.clock import ManualClock, everyone_waits
from tests.core.recovering import Mortal, Unbroken, told, unbroken
from tests.core.replaying import Missing, check_replay, replayed
from tests.support import Tree, by_agent, make_tree, path_of, spawn

SCRIPT: dict[str, Any] = {
    "root": [spawn("A", "B"), "All."],
    "A": [spawn("A1", "A2", mode="sequential"), "a"],
    "B": [spawn("B1"), "b"],
    "A1": ["a1"],
    "A2": ["a2"],
    "B1": ["b1"],
}
LIST = SpawnInstruction(SpawnMode.PARALLEL, ("A", "B"))
Answers = Mapping[str, tuple[str, int | None]]
"""By path: how a person answers the plan of an agent."""
ANSWERS: Mapping[str, Answers] = {
    "go": {},
    "fewer at the root": {"root": ("fewer", 1)},
    "fewer and stop below": {"1": ("fewer", 1), "2": ("stop", None)},
    "stop at the root": {"root": ("stop", None)},
}


class Person:
    """Answers the plans of a run, as soon as they are asked."""

    def __init__(self, answers: Answers) -> None:
        self.found: list[Tree] = []
        self.asked: list[str] = []
        """The paths whose questions it answered."""
        self._answers = answers

    async def __aenter__(self) -> Person:
        self._task = asyncio.create_task(self._answer())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _answer(self) -> None:
        while True:
            for question in self.found[0].request.open_questions if self.found else ():
                answer, value = self._answers.get(question.path, ("go", None))
                self.asked.append(question.path)
                self.found[0].request.answer(question.id, answer, value=value, by="panel")
            await asyncio.sleep(0)


def script_for(answers: Answers, plan: SpawnInstruction | None) -> dict[str, Any]:
    if plan is not None:
        return {**SCRIPT, "root": ["All."]}
    return {**SCRIPT, "root": [SCRIPT["root"][0], "All."]}


async def asked_run(answers: Answers, plan: SpawnInstruction | None = None) -> Unbroken:
    async with Person(answers) as person:
        run = await unbroken(
            script_for(answers, plan), found=person.found, on_plan="ask", plan=plan
        )
    return run


def without_ids(tree: Tree) -> dict[str, list[str]]:
    """What is told, but for the numbers of questions: one that was open is asked anew."""
    return {
        agent: [re.sub(r"'q\d+'", "'q'", each) for each in events]
        for agent, events in told(tree).items()
    }


def answered_in(moment: RunJournal) -> list[str]:
    """The agents whose plans were answered."""
    return [each.path for each in moment.verdicts if each.kind == "planned"]


@pytest.mark.parametrize("plan", [None, LIST], ids=["block", "list"])
@pytest.mark.parametrize("answers", ANSWERS.values(), ids=ANSWERS.keys())
async def test_run_goes_on_from_each_moment_and_asks_only_what_was_not_answered(
    answers: Answers, plan: SpawnInstruction | None
) -> None:
    run = await asked_run(answers, plan)
    for moment in run.moments:
        async with Person(answers) as person:
            tree, _ = await run.recover(moment, found=person.found)

        assert without_ids(tree) == without_ids(run.tree)
        known = answered_in(moment)
        assert not set(person.asked) & set(known)
        assert len(person.asked) + len(known) == len(run.tree.of(QuestionAsked))
        assert isinstance(tree.journal, Mortal)
        last = tree.journal.load(moment.head.run_id)
        assert sorted(answered_in(last)) == sorted(answered_in(run.moments[-1]))


async def test_answer_to_another_plan_counts_for_none() -> None:
    run = await asked_run({}, LIST)
    moment = next(each for each in run.moments if answered_in(each) == ["root"])

    def of_another(verdict: VerdictRecord) -> VerdictRecord:
        if verdict.kind != "planned":
            return verdict
        return replace(verdict, value={**verdict.value, "digest": "of other tasks"})

    for verdicts, asked in (
        (moment.verdicts, []),
        (tuple(map(of_another, moment.verdicts)), ["root"]),
    ):
        async with Person({}) as person:
            await run.recover(replace(moment, verdicts=verdicts), found=person.found)
        assert [path for path in person.asked if path == "root"] == asked


@pytest.mark.parametrize("plan", [None, LIST], ids=["block", "list"])
@pytest.mark.parametrize("answers", ANSWERS.values(), ids=ANSWERS.keys())
async def test_run_is_done_again_with_the_same_ids_and_nobody_is_asked(
    answers: Answers, plan: SpawnInstruction | None
) -> None:
    run = await asked_run(answers, plan)

    await check_replay(run)


async def test_plans_that_nobody_was_asked_about_are_told_again_as_they_were() -> None:
    run = await unbroken(SCRIPT)
    assert len(run.tree.of(SpawnPlanned)) == 3
    for moment in run.moments:
        tree, _ = await run.recover(moment)
        assert told(tree) == told(run.tree)
    await check_replay(run)


async def test_recorded_figures_are_told_again_and_not_estimated_anew() -> None:
    run = await unbroken(SCRIPT)
    journal = run.journal.load(run.tree.request.run_id)
    changed = tuple(
        replace(each, value={**each.value, "tokens": 7, "cost_usd": 0.5})
        if each.kind == "planned"
        else each
        for each in journal.verdicts
    )
    past = Replay(replace(journal, verdicts=changed), explain=Missing)
    again = await replayed(run, past=past)

    figures = {(each.estimated_tokens, each.estimated_cost_usd) for each in again.of(SpawnPlanned)}
    assert figures == {(7, 0.5)}


async def test_question_that_was_open_when_the_process_died_is_asked_again() -> None:
    journal = Mortal()
    tree = make_tree(by_agent(SCRIPT), journal=journal, on_plan="ask", clock=ManualClock())
    task = tree.start()
    await everyone_waits()
    assert [each.path for each in tree.request.open_questions] == ["root"]
    await journal.commit()
    moment = journal.moments[-1]
    task.cancel()
    await asyncio.wait([task])
    assert answered_in(moment) == []

    async with Person({}) as person:
        again, _ = await Unbroken(SCRIPT, tree, journal, tuple, {"on_plan": "ask"}).recover(
            moment, found=person.found
        )
    assert person.asked[0] == "root"
    assert len(again.of(SpawnPlanned)) == 3


async def test_question_that_a_cancel_ended_is_told_again_as_ended() -> None:
    journal = Mortal()
    tree = make_tree(by_agent(SCRIPT), journal=journal, on_plan="ask", clock=ManualClock())
    task = tree.start()
    await everyone_waits()
    tree.request.answer("q1", "go")
    await everyone_waits()
    tree.request.cancellation.cancel(tree.id_of("1"), "not that one")
    await everyone_waits()
    (left,) = tree.request.open_questions
    tree.request.answer(left.id, "go")
    await task
    run = Unbroken(SCRIPT, tree, journal, tuple, {"on_plan": "ask"})
    assert [each.answer for each in tree.of(QuestionAnswered, "1")] == ["ended"]

    await check_replay(run)


async def test_older_record_without_plans_goes_on_where_they_had_begun() -> None:
    run = await unbroken(SCRIPT)
    seen = 0
    for moment in run.moments:
        begun = {
            path_of(entry.event.parent_id)
            for entry in moment.entries
            if isinstance(entry.event, AgentSpawned) and entry.event.parent_id
        }
        older = replace(
            moment,
            entries=[each for each in moment.entries if not isinstance(each.event, SpawnPlanned)],
            verdicts=tuple(each for each in moment.verdicts if each.kind != "planned"),
        )
        # Of the others it is not recorded that they were about to delegate, so that is new.
        tree, _ = await run.recover(older)
        assert not {path_of(each.agent_id) for each in tree.of(SpawnPlanned)} & begun
        assert tree.result.final_response == "All."
        seen += bool(begun)
    assert seen > 3


async def test_replay_that_asks_no_model_asks_no_person_either() -> None:
    journal = Mortal()
    tree = make_tree(by_agent(SCRIPT), journal=journal, on_plan="ask", clock=ManualClock())
    task = tree.start()
    await everyone_waits()
    await journal.commit()
    moment = journal.moments[-1]
    task.cancel()
    await asyncio.wait([task])
    run = Unbroken(SCRIPT, tree, journal, tuple, {"on_plan": "ask"})

    again = await replayed(run, past=Replay(moment, explain=Missing))

    assert again.of(QuestionAsked) == []
    assert isinstance(again.error, Missing)


@pytest.mark.parametrize("plan", [None, LIST], ids=["block", "list"])
async def test_question_that_a_limit_ended_is_told_again_and_nothing_starts(
    plan: SpawnInstruction | None,
) -> None:
    clock, journal = ManualClock(), Mortal()
    limits: dict[str, Any] = {"on_plan": "ask", "plan": plan, "max_time_s": 10.0}
    script = script_for({}, plan)
    tree = make_tree(by_agent(script), journal=journal, clock=clock, **limits)
    task = tree.start()
    await everyone_waits()
    clock.advance(11.0)
    await task
    assert tree.statuses() == {"root": "exhausted"}

    await check_replay(Unbroken(script, tree, journal, tuple, limits))


async def test_with_more_budget_a_plan_that_nobody_agreed_to_is_asked_about() -> None:
    all_of_it = Reply(spawn("A", "B"), usage=Usage(10_000, 10))
    script = {**SCRIPT, "root": [all_of_it, "All."]}
    run = await unbroken(script, on_plan="ask", budget=5000)
    assert run.tree.statuses() == {"root": "exhausted"}
    assert run.tree.of(QuestionAsked) == []

    undone = undo_want_of_budget(run.journal.load(run.tree.request.run_id))
    past = Past(undone.journal, new_total=1_000_000)
    async with Person({"1": ("stop", None)}) as person:
        again, _ = await run.recover(undone.journal, found=person.found, past=past)

    assert sorted(person.asked) == ["1", "2", "root"]
    assert again.statuses()["2.1"] == again.statuses()["root"] == "completed"
