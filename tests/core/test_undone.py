"""An exhausted run that gets a larger budget does what the smaller one had left undone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from agentnb.core.events import BudgetChanged, BudgetPaused, is_terminal
from agentnb.core.past import Past
from agentnb.core.records import FINISHED, RunJournal
from agentnb.core.types import SpawnInstruction, SpawnMode, Usage
from agentnb.core.undone import Undone, undo_want_of_budget
from agentnb.providers.scripted import Reply
from tests.core.recovering import Mortal, Unbroken, unbroken
from tests.core.test_recover import ALL, BY_TOOLS, looking, uses
from tests.core.tool_bodies import Tool
from tests.support import Tree, spawn, task_of

BIG = 1_000_000
LONG = " ".join(["x" * 60] * 600)
"""About 9,000 tokens."""


def large(tokens: int, text: str, *tools: tuple[str, dict[str, Any]]) -> Reply:
    """A reply that is short, and costs much."""
    return Reply(text, tool_uses=uses(*tools).tool_uses, usage=Usage(tokens - 100, 100))


LOOK = ("look", {"text": "a"})


@dataclass
class GoneOn:
    """An exhausted run, what was undone of it, and the run with a larger budget."""

    small: Unbroken
    undone: Undone
    tree: Tree
    asked: list[str]
    """The tasks of the agents that a model was asked for, in order."""

    @property
    def journal(self) -> RunJournal:
        assert isinstance(self.tree.journal, Mortal)
        return self.tree.journal.moments[-1]


async def raised(small: Unbroken, total: int = BIG, moment: RunJournal | None = None) -> GoneOn:
    """Go on with a run that has ended, or from a moment, with a larger total."""
    undone = undo_want_of_budget(moment or small.moments[-1])
    past = Past(undone.journal, new_total=total)
    tree, provider = await small.recover(undone.journal, past=past)
    assert tree.past is not None
    assert tree.past.misfits == {}
    return GoneOn(small, undone, tree, [task_of(each) for each in provider.requests])


CASES: dict[str, tuple[dict[str, Any], int, dict[str, Any], list[str], list[str]]] = {
    # script, budget, more, agents that go on, tasks asked anew
    "root at its first call": ({"root": ["It."]}, 40, {}, ["root"], ["root"]),
    "children in parallel": (
        {"root": [large(30_000, spawn("A", "B")), "All."], "A": [uses(LOOK), LONG], "B": "b"},
        40_000,
        {},
        ["root", "1"],
        ["A", "root"],
    ),
    "rest of a sequence": (
        {
            "root": [large(30_000, spawn("A", "B", "C", "D", mode="sequential")), "All."],
            "B": [LONG],
        },
        40_000,
        {},
        ["root", "2"],
        ["B", "C", "D", "root"],
    ),
    "two levels down": (
        {
            "root": [large(25_000, spawn("A", "B")), "All."],
            "A": [spawn("A1", "A2"), "Both."],
            "A2": [large(2_000, "I look.", LOOK), LONG],
        },
        36_000,
        {},
        ["root", "1", "1.2"],
        ["A2", "A", "root"],
    ),
    "between two turns": (
        {"root": [spawn("A"), "All."], "A": [large(39_000, "I look.", LOOK), "a"]},
        40_000,
        {},
        ["root", "1"],
        ["A", "root"],
    ),
    "jobs that were awaited": (
        {
            "root": [
                large(30_000, "I do.", ("spawn", {"task": "A"}), ("spawn", {"task": "B"})),
                uses(("spawn_await", ALL), LOOK),
                uses(LOOK),
                "Both.",
            ],
            "A": "a",
            "B": [uses(LOOK), LONG],
        },
        40_000,
        {"orchestrator": BY_TOOLS},
        ["root", "2"],
        ["B", "root", "root"],
    ),
    "jobs that were left": (
        {
            "root": [large(30_000, "I do.", ("spawn", {"task": "A"})), "I do not wait.", "It."],
            "A": [uses(LOOK), LONG],
        },
        40_000,
        {"orchestrator": BY_TOOLS},
        ["root", "1"],
        ["A", "root"],
    ),
    "a person's own list": (
        {"A": [large(35_000, "a")], "B": [LONG], "root": "All."},
        40_000,
        {"plan": SpawnInstruction(SpawnMode.SEQUENTIAL, ("A", "B", "C"))},
        ["root", "2"],
        ["B", "C", "root"],
    ),
    "results cut for the synthesis": (
        {"root": [spawn("A", "B"), "All."], "A": [LONG], "B": [large(20_000, "b")]},
        32_000,
        {},
        ["root"],
        ["root"],
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_exhausted_run_ends_as_if_it_had_had_the_larger_budget(case: str) -> None:
    script, budget, more, again, asked = CASES[case]
    small = await unbroken(script, looking, budget=budget, on_budget_warning="continue", **more)
    big = await unbroken(script, looking, **more)
    assert small.tree.result.status == ("completed" if "cut" in case else "exhausted")

    gone_on = await raised(small)

    assert list(gone_on.undone.again) == again
    assert gone_on.asked == asked
    assert gone_on.tree.result.final_response == big.tree.result.final_response
    assert gone_on.tree.statuses() == big.tree.statuses()
    assert {each.path: each.text for each in gone_on.journal.ends} == {
        each.path: each.text for each in big.moments[-1].ends
    }
    ended = Counter(each.agent_id for each in gone_on.tree.events if is_terminal(each))
    assert set(ended.values()) == {1}
    (change,) = gone_on.tree.of(BudgetChanged)
    assert (change.previous_total, change.budget_total) == (budget, BIG)


async def test_tokens_of_dropped_calls_stay_spent_also_after_a_second_death() -> None:
    script, budget, more, *_ = CASES["two levels down"]
    small = await unbroken(script, looking, budget=budget, on_budget_warning="continue", **more)
    spent_before = small.tree.request.budget.tokens_used

    gone_on = await raised(small)

    kept = {(each.path, each.number) for each in gone_on.undone.journal.calls}
    assert {(each.path, each.number) for each in small.moments[-1].calls} - kept == {
        ("root", 2),
        ("1.2", 2),
    }
    anew = sum(
        (each.usage or Usage()).budget_tokens
        for each in gone_on.journal.calls
        if (each.path, each.number) not in kept
    )
    used = gone_on.tree.request.budget.tokens_used
    assert used == spent_before + anew
    assert gone_on.journal.ends[-1].path is None
    assert gone_on.journal.ends[-1].tokens_used == used
    assert isinstance(gone_on.tree.journal, Mortal)
    moments = [each for each in gone_on.tree.journal.moments if each.orders]
    assert len(moments) > 3  # before the new total, a store has the old record
    for moment in moments:
        again = await recovered(small, moment)
        assert again.tree.result.final_response == gone_on.tree.result.final_response
        assert again.tree.statuses() == gone_on.tree.statuses()
        assert again.tree.request.budget.total == BIG
        left = len(gone_on.journal.calls) - sum(c.status == FINISHED for c in moment.calls)
        assert len(again.asked) == left


async def recovered(small: Unbroken, moment: RunJournal) -> GoneOn:
    """Recover a run that was killed once more, without a word on its budget."""
    tree, provider = await small.recover(moment, past=NothingLostNow(moment))
    return GoneOn(small, Undone(moment), tree, [task_of(each) for each in provider.requests])


class NothingLostNow(Past):
    """A past whose open calls had spent nothing; what was kept of earlier ones stays."""

    def lost(self) -> Iterator[tuple[str, int, int]]:
        return iter([each for each in super().lost() if not each[1]])


@pytest.mark.parametrize(("by", "asked"), [("policy", ["A", "B", "C"]), ("gate", ["B", "C"])])
async def test_run_that_was_stopped_at_the_warning_line_goes_on(by: str, asked: list[str]) -> None:
    """A gate answers a little later: the call that is open then comes to its end."""
    script = {
        "root": [large(30_000, spawn("A", "B", "C", mode="sequential")), "All."],
        "A": [uses(LOOK), LONG],
    }

    async def gate(_: object) -> str:
        return "stop"

    how: dict[str, Any] = {"on_budget_warning": "stop"} if by == "policy" else {"budget_gate": gate}
    small = await unbroken(script, looking, budget=44_000, **how)
    assert small.tree.result.status == "exhausted"

    gone_on = await raised(small)

    assert gone_on.asked == [*asked, "root"]
    assert str(gone_on.tree.result.status) == "completed"
    assert not gone_on.tree.of(BudgetPaused)
    assert [each for each in gone_on.journal.verdicts if each.kind in ("asked", "warned")] == []


async def test_total_that_is_still_too_small_exhausts_the_run_again_and_can_be_raised_again() -> (
    None
):
    script, budget, more, *_ = CASES["rest of a sequence"]
    small = await unbroken(script, looking, budget=budget, on_budget_warning="continue", **more)

    once = await raised(small, budget + 3_000)
    assert str(once.tree.result.status) == "exhausted"
    twice = await raised(small, BIG, once.journal)

    assert once.tree.statuses() == small.tree.statuses()
    assert str(twice.tree.result.status) == "completed"
    assert set(twice.tree.statuses().values()) == {"completed"}
    used = [each.tree.request.budget.tokens_used for each in (once, twice)]
    assert small.tree.request.budget.tokens_used < used[0] < used[1]


async def test_run_that_its_time_ended_has_nothing_to_undo() -> None:
    script = {"root": [spawn("A"), "What there is."], "A": [uses(LOOK), "a"]}

    def slow() -> list[Any]:
        async def look_long(input: Mapping[str, Any], context: Any) -> str:
            await trees[0].request.clock.sleep(10)
            return "seen"

        return [Tool(look_long, "look")]

    trees: list[Tree] = []
    small = await unbroken(script, slow, found=trees, max_time_s=5.0)
    assert str(small.tree.result.status) == "exhausted"

    undone = undo_want_of_budget(small.moments[-1])

    assert undone == Undone(small.moments[-1])


async def test_branch_that_a_person_cancelled_stays_cancelled() -> None:
    trees: list[Tree] = []

    def cancels(_: object) -> Reply:
        if len(trees) == 1:
            trees[0].cancel("2")
        return uses(LOOK)

    script = {
        "root": [large(30_000, spawn("A", "B", "C")), "What there is."],
        "A": [cancels, LONG],
        "B": [uses(LOOK), "Never."],
        "C": "c",
    }
    small = await unbroken(script, looking, trees, budget=40_000, on_budget_warning="continue")
    assert small.tree.statuses() == {
        "root": "exhausted",
        "1": "exhausted",
        "2": "cancelled",
        "3": "completed",
    }

    gone_on = await raised(small)

    assert gone_on.undone.again == ("root", "1")
    assert gone_on.tree.statuses() == {
        **dict.fromkeys(("root", "1", "3"), "completed"),
        "2": "cancelled",
    }
    assert gone_on.asked == ["A", "root"]


async def test_later_one_of_a_sequence_that_was_handed_a_cut_result_begins_again() -> None:
    """The total was raised by hand, so the sequence had gone on with what there was of A."""
    trees: list[Tree] = []

    def raises(_: object) -> str:
        if len(trees) == 1:  # its `max_tokens` stays as it was
            trees[0].request.budget.set_total(80_000)
        return LONG

    script = {
        "root": [large(32_000, spawn("A", "B", mode="sequential")), "All."],
        "A": [raises],
        "B": [uses(LOOK), "b"],
    }
    small = await unbroken(script, looking, trees, budget=40_000, on_budget_warning="continue")
    assert small.tree.statuses() == {"root": "exhausted", "1": "exhausted", "2": "completed"}

    gone_on = await raised(small)

    assert gone_on.undone.again == ("root", "1", "2")
    assert gone_on.asked == ["A", "B", "B", "root"]
    assert [each.name for each in gone_on.undone.repeated] == ["look"]
    assert set(gone_on.tree.statuses().values()) == {"completed"}


# -- any tree -------------------------------------------------------------------------------------


def any_script(rng: Random) -> dict[str, list[Any]]:
    """A tree of agents that work with tools and delegate in any way; all tasks differ."""
    script: dict[str, list[Any]] = {}

    def add(name: str, depth: int) -> None:
        turns: list[Any] = [
            large(rng.choice([300, 2_000, 6_000]), "I look.", LOOK)
            for _ in range(rng.choice([0, 0, 1, 2]))
        ]
        how = rng.choice(["alone", "block", "sequence", "jobs", "left"] if depth < 3 else ["alone"])
        how = "block" if how == "alone" and depth == 0 else how
        below = [f"{name}{each}" for each in "ABC"[: rng.randint(1, 3)]]
        if how in ("block", "sequence"):
            turns.append(spawn(*below, mode="parallel" if how == "block" else "sequential"))
        elif how in ("jobs", "left"):
            orders = [("spawn", {"task": task}) for task in below]
            turns.append(large(rng.choice([300, 3_000]), "I do.", *orders))
            turns.append(uses(("spawn_await", ALL), LOOK) if how == "jobs" else "I do not wait.")
        said = [f"{name} done", f"{name} {'y' * rng.choice([8_000, 20_000])}"]
        turns.append(rng.choice([*said, large(rng.choice([500, 9_000]), said[0])]))
        script[name] = turns
        for task in below if how != "alone" else ():
            add(task, depth + 1)

    add("root", 0)
    return script


@pytest.mark.parametrize("seed", range(8))
async def test_any_exhausted_run_ends_as_one_with_the_larger_budget(seed: int) -> None:
    rng = Random(seed)
    script = any_script(rng)
    big = await unbroken(script, looking, orchestrator=BY_TOOLS)
    budget = 100 + int(big.tree.request.budget.tokens_used * rng.uniform(0.1, 0.9))
    policy = rng.choice(["continue", "stop"])
    small = await unbroken(
        script, looking, budget=budget, on_budget_warning=policy, orchestrator=BY_TOOLS
    )

    for moment in (small.moments[-1], rng.choice(small.moments)):
        gone_on = await raised(small, moment=moment)

        assert gone_on.tree.statuses() == big.tree.statuses()
        assert gone_on.tree.result.final_response == big.tree.result.final_response
