"""A run that is recovered ends as if its process had not died, and pays for nothing twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentnb.core.budget import RequestBudget
from agentnb.core.context import AgentContext
from agentnb.core.errors import InvalidRequest, Overloaded, StreamBroken
from agentnb.core.money import TOKENS, USD
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.past import Past
from agentnb.core.protocols import Delegation
from agentnb.core.records import FINISHED
from agentnb.core.request import RequestContext
from agentnb.core.types import CompletionRequest, ToolUse
from agentnb.providers.scripted import Reply
from agentnb.tools.spawn import spawn_tools
from tests.core.recovering import Moments, Mortal, NothingLost, Unbroken, finished, told, unbroken
from tests.core.replaying import check_replay
from tests.core.test_money import PRICES
from tests.core.test_reading import SCRIPTS, look
from tests.core.tool_bodies import Tool
from tests.support import Tree, examples, spawn

BY_TOOLS = AgentOrchestrator(
    max_depth=10, delegation=Delegation(by_block=True, spawn_tools=spawn_tools())
)
LOOKS_AROUND = ToolUse("look", "look", {"text": "a"})


def uses(*calls: tuple[str, dict[str, Any]]) -> Reply:
    return Reply(
        "I do.", tool_uses=tuple(ToolUse(f"u{at}", *call) for at, call in enumerate(calls))
    )


def starts(*tasks: str) -> Reply:
    return uses(*(("spawn", {"task": task}) for task in tasks))


ALL = {"job_ids": "*"}
JOBS: dict[str, dict[str, Any]] = {
    "awaited": {
        "root": [starts("A", "B"), uses(("spawn_await", ALL)), "Both."],
        "B": [uses(("look", {"text": "a"})), "b"],
    },
    "left": {
        "root": [
            uses(("spawn", {"task": "A"}), ("look", {"text": "x"}), ("spawn", {"task": "B"})),
            "I do not wait.",
            "All of it.",
        ],
        "B": [uses(("look", {"text": "a"})), spawn("B1"), "b"],
    },
    "looked at": {
        "root": [starts("A"), uses(("spawn_status", ALL)), uses(("spawn_await", ALL)), "It."],
        "A": [uses(("look", {"text": "a"})), "a"],
    },
}


def looking() -> list[Any]:
    return [Tool(look)]


async def check_every_moment(script: dict[str, Any], **limits: Any) -> Unbroken:
    """Recover a run from each moment in which its process may die."""
    run = await unbroken(script, looking, **limits)
    whole = told(run.tree)
    last = run.moments[-1]
    assert len(run.moments) > 1
    for moment in run.moments:
        tree, provider = await run.recover(moment, past=NothingLost(moment))

        assert told(tree) == whole
        assert tree.statuses() == run.tree.statuses()
        assert len(provider.requests) == len(set(finished(last)) - set(finished(moment)))
    await check_replay(run)
    return run


@pytest.mark.parametrize("script", SCRIPTS)
async def test_run_goes_on_from_any_moment_to_the_same_end(script: str) -> None:
    await check_every_moment(SCRIPTS[script])


@st.composite
def any_script(draw: st.DrawFn, name: str = "root", depth: int = 0) -> dict[str, Any]:
    """What the agents of a tree say. No two have one task, so what each hears hangs on no order."""
    acts = st.sampled_from(["looks", "looks twice", "is refused", "breaks off", "fails", "spawns"])
    script: dict[str, Any] = {name: []}
    for at, act in enumerate(draw(st.lists(acts, max_size=3))):
        match act:
            case "looks":
                script[name].append(uses(("look", {"text": "x"})))
            case "looks twice":  # the second one ends first
                script[name].append(uses(("look", {"text": "a"}), ("look", {"text": "fail"})))
            case "is refused":
                script[name].append(Overloaded("busy"))
            case "breaks off":
                script[name].append(Reply("Half", error=StreamBroken("cut")))
            case "fails":
                script[name].append(InvalidRequest("no"))
            case _ if depth < 2:
                children = [f"{name}.{at}{number}" for number in range(draw(st.integers(1, 3)))]
                mode = draw(st.sampled_from(["parallel", "sequential"]))
                script[name].append(spawn(*children, mode=mode, before="Some."))
                for child in children:
                    script |= draw(any_script(child, depth + 1))
    script[name].append(f"{name} is done.")
    return script


@given(any_script())
@settings(max_examples=examples(8))
def test_any_run_goes_on_from_any_moment_to_the_same_record(script: dict[str, Any]) -> None:
    asyncio.run(check_every_moment(script))


@pytest.mark.parametrize("script", JOBS)
async def test_jobs_are_taken_up_with_their_ids(script: str) -> None:
    await check_every_moment(JOBS[script], orchestrator=BY_TOOLS)


async def test_jobs_that_their_agent_stopped_stay_stopped_and_are_not_told_again() -> None:
    script: dict[str, Any] = {
        "root": [
            starts("A", "B"),
            uses(("look", {"text": "x"})),
            uses(("spawn_cancel", ALL)),
            "What there is.",
        ],
        "A": [uses(("look", {"text": "a"})), "a"],
        "B": [uses(("look", {"text": "b"})), uses(("look", {"text": "c"})), spawn("B1"), "b"],
    }
    run = await unbroken(script, looking, orchestrator=BY_TOOLS)
    stopped = [
        moment
        for moment in run.moments
        if any(c.name == "spawn_cancel" and c.status == FINISHED for c in moment.tool_calls)
    ]
    assert len(stopped) > 1
    for moment in stopped:
        tree, _ = await run.recover(moment, past=NothingLost(moment))
        assert told(tree) == told(run.tree)
    await check_replay(run)


@pytest.mark.parametrize("cancels", ["A", "A2", "B"])
async def test_branch_that_was_cancelled_stays_cancelled(cancels: str) -> None:
    """A person cancels a branch in the middle of a call; the rest of the run goes on."""
    trees: list[Tree] = []

    def cancelled(request: CompletionRequest) -> Reply:
        trees[0].cancel({"A": "1", "A2": "1.2", "B": "2"}[cancels])
        return Reply("Too late.")

    script: dict[str, Any] = {
        "root": [spawn("A", "B"), "What there is."],
        "A": [spawn("A1", "A2"), "Both."],
        "A2": ["One.", "Two."],
        "B": [uses(("look", {"text": "a"})), "b"],
    }
    script["A2" if cancels == "A" else cancels] = cancelled
    run = await unbroken(script, looking, found=trees)
    assert "cancelled" in run.tree.statuses().values()

    for moment in run.moments:
        if not moment.orders:
            continue  # the process died before the order
        tree, _ = await run.recover(moment)
        assert tree.statuses() == run.tree.statuses()
        assert told(tree) == told(run.tree)
    await check_replay(run)


@pytest.mark.parametrize("unit", [TOKENS, USD])
async def test_calls_that_were_open_count_with_their_estimate_also_after_a_second_death(
    unit: str,
) -> None:
    def budget() -> RequestBudget:
        return RequestBudget(1_000_000, unit=unit)

    script = {"root": [spawn("A"), "All."], "A": "An answer."}
    run = await unbroken(script, budget=budget(), rates=PRICES)
    (moment,) = [
        each for each in run.moments if [call.status for call in each.calls[1:]] == ["started"]
    ][:1]
    estimate = sum(amount for *_, amount in Past(moment).lost())

    tree, _ = await run.recover(moment, budget=budget())
    again = tree.journal
    assert isinstance(again, Mortal)
    second, _ = await run.recover(again.moments[-1], budget=budget())

    spent = run.tree.request.budget.tokens_used
    assert estimate > 0
    assert tree.request.budget.tokens_used == spent + estimate
    assert second.request.budget.tokens_used == spent + estimate


@pytest.mark.parametrize(("unit", "above"), [(TOKENS, 3_000), (USD, 333)])
async def test_call_that_was_open_counts_in_a_budget_above_of_the_other_unit(
    unit: str, above: int
) -> None:
    pot = RequestBudget(1_000_000, unit=USD if unit == TOKENS else TOKENS)
    own = RequestBudget(1_000_000, unit=unit, below=pot)
    request = RequestContext(own, rates=PRICES)

    own.add_tokens(request.amount_of_lost(1_000))

    assert (own.tokens_used, pot.tokens_used) == (1_000, above)


async def test_changed_prompt_names_the_agents_and_asks_for_nothing() -> None:
    run = await unbroken({"root": [spawn("A", "B"), "All."], "A": "a", "B": "b"})
    moment = next(each for each in run.moments if len(set(finished(each))) == 3)
    other = AgentContext(soul_content="Be brief.")

    tree, provider = await run.recover(moment, context=other)

    assert tree.past is not None
    assert set(tree.past.misfits) == {"root"}
    assert provider.requests == []
    assert isinstance(tree.journal, Mortal)
    assert not tree.journal.moments


async def test_changed_prompt_names_every_agent_whose_record_is_kept_all_the_same() -> None:
    run = await unbroken({"root": [spawn("A", "B"), "All."], "A": "a", "B": "b"})
    moment = next(each for each in run.moments if len(set(finished(each))) == 3)
    past = Past(moment, changed="keep")

    tree, provider = await run.recover(
        moment, past=past, context=AgentContext(soul_content="Be brief.")
    )

    assert set(past.misfits) == {"root", "1", "2"}
    assert len(provider.requests) == 1
    assert tree.result.final_response == "All."


async def test_open_tool_call_stays_known_when_the_process_dies_again_at_once() -> None:
    run = await unbroken({"root": [uses(("look", {"text": "x"})), "Seen."]}, looking)
    moment = next(each for each in run.moments if each.tool_calls)
    assert [each.status for each in moment.tool_calls] == ["started"]

    class Held(Mortal):
        async def let_go(self) -> None:
            await self.commit()
            self.moments = Moments()  # until now the old record stood
            self.moments.note(self._runs[moment.head.run_id].snapshot())

    tree, _ = await run.recover(moment, journal=Held())

    assert isinstance(tree.journal, Mortal)
    assert [each.status for each in tree.journal.moments[0].tool_calls] == ["started"]
    assert told(tree) == told(run.tree)
