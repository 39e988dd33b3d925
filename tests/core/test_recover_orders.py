"""What a person orders while a recovered run does again what it did before: no record is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from agentnb.core.errors import NoOpenQuestion, RunCancelled
from agentnb.core.events import BudgetChanged, BudgetWarning
from agentnb.core.records import CallRecord, Kept, RunJournal
from tests.core.recovering import Mortal, NothingLost, Unbroken, finished, told, unbroken
from tests.core.test_recover import looking, uses
from tests.core.test_recover_limits import IN_ORDER
from tests.support import Tree, spawn

SCRIPT: dict[str, Any] = {
    "root": [spawn("A", "B"), "All."],
    "A": [uses(("look", {"text": "a"})), spawn("A1"), "a"],
    "B": [uses(("look", {"text": "b"})), "b"],
}


class Ordered(NothingLost):
    """A past during which something is ordered: when the first call of agent 1 is told again."""

    def __init__(self, journal: RunJournal, act: Callable[[], object], at: str = "1") -> None:
        super().__init__(journal)
        self._act, self._at = act, at
        self.was_ordered_early = False

    def kept(self, record: Kept) -> None:
        if isinstance(record, CallRecord) and record.path == self._at and record.number == 1:
            self.was_ordered_early = self.was_ordered_early or not self.frontier._is_taken.is_set()
            act, self._act = self._act, lambda: None
            act()
        super().kept(record)


async def recovered(
    run: Unbroken, moment: RunJournal, act: Callable[[Tree], object], at: str = "1", **more: Any
) -> tuple[Tree, list[Any]]:
    """The run that goes on from a moment with an order on the way, and what it asked the model."""
    found: list[Tree] = []
    past = Ordered(moment, lambda: act(found[0]), at)
    tree, provider = await run.recover(moment, found=found, past=past, **more)
    assert past.was_ordered_early
    assert past.misfits == {}
    return tree, provider.requests


def after_call_of_1(run: Unbroken) -> list[RunJournal]:
    """The moments in which agent 1 has had a reply, but not its last one."""
    calls = [(each, set(finished(each))) for each in run.moments]
    found = [each for each, had in calls if ("1", 1) in had and ("1", 3) not in had]
    assert len(found) > 3
    return found


def last_of(tree: Tree) -> RunJournal:
    assert isinstance(tree.journal, Mortal)
    return tree.journal.moments[-1]


async def test_agent_that_is_cancelled_meanwhile_keeps_what_was_recorded_of_it() -> None:
    run = await unbroken(SCRIPT, looking)
    for moment in after_call_of_1(run):
        tree, _ = await recovered(run, moment, lambda tree: tree.cancel("1"))

        assert tree.statuses()["1"] == "cancelled"
        assert tree.statuses()["root"] == tree.statuses()["2"] == "completed"
        last = last_of(tree)
        assert set(finished(moment)) <= set(finished(last))
        assert [(each.kind, each.value["agent"]) for each in last.orders] == [("cancel", "1")]
        again, _ = await run.recover(last)
        assert again.statuses() == tree.statuses()


async def test_run_that_is_cancelled_meanwhile_asks_for_nothing_and_keeps_what_was_recorded() -> (
    None
):
    run = await unbroken(SCRIPT, looking)
    for moment in after_call_of_1(run):
        scopes: list[Any] = []

        def cancel(tree: Tree, scopes: list[Any] = scopes) -> None:
            order = tree.request.cancellation.cancel(None, "too late")
            assert order == []
            assert order is tree.request.cancellation.root_order
            scopes.append(order)

        tree, requests = await recovered(run, moment, cancel)

        assert isinstance(tree.error, RunCancelled)
        assert requests == []
        assert {each.agent_id for each in scopes[0]} >= {tree.id_of("root"), tree.id_of("1")}
        last = last_of(tree)
        assert set(finished(moment)) == set(finished(last))
        assert {each.path for each in moment.ends} <= {each.path for each in last.ends}
        assert [(each.kind, each.value["agent"]) for each in last.orders] == [("cancel", None)]


async def test_second_order_to_cancel_the_run_does_not_wait() -> None:
    run = await unbroken(SCRIPT, looking)
    moment = after_call_of_1(run)[-1]
    found: list[Tree] = []

    def twice() -> None:
        for _ in range(2):
            found[0].request.cancellation.cancel(None, "too late")

    past = Ordered(moment, twice)
    tree, provider = await run.recover(moment, found=found, past=past)

    assert isinstance(tree.error, RunCancelled)
    assert provider.requests == []
    assert not past.is_over


async def test_new_total_of_meanwhile_holds_from_the_first_new_call_and_is_kept_once() -> None:
    run = await unbroken(SCRIPT, looking, budget=50_000)
    for moment in after_call_of_1(run):
        tree, _ = await recovered(
            run, moment, lambda tree: tree.request.budget.set_total(90_000, by="panel")
        )

        assert [each.budget_total for each in tree.of(BudgetChanged)] == [90_000]
        assert [(each.kind, each.value) for each in last_of(tree).orders] == [("budget", 90_000)]
        assert set(finished(moment)) <= set(finished(last_of(tree)))
        again, _ = await run.recover(last_of(tree), past=NothingLost(last_of(tree)))
        assert again.request.budget.total == 90_000


@pytest.mark.parametrize("answer", ["continue", "stop"])
async def test_answer_of_meanwhile_is_refused_and_the_question_is_asked_as_it_was(
    answer: str,
) -> None:
    """It is told again as a part of the past, and cannot be answered before it is open."""
    asked: list[BudgetWarning] = []

    async def gate(warning: BudgetWarning) -> str:
        asked.append(warning)
        return answer

    run = await unbroken(IN_ORDER, looking, budget=44_000, budget_gate=gate)
    refused = 0

    def answers(tree: Tree) -> None:
        nonlocal refused
        with suppress(NoOpenQuestion):
            tree.request.answer_budget("continue")
            refused -= 1
        refused += 1

    moments = [each for each in run.moments if ("1", 1) in set(finished(each))]
    for number, moment in enumerate(moments, 1):
        verdicts = [each.kind for each in moment.verdicts]
        asked.clear()
        tree, _ = await recovered(run, moment, answers)

        assert refused == number
        assert told(tree) == told(run.tree)
        assert len(asked) == ("warned" not in verdicts)
