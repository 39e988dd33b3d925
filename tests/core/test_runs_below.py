"""A run below another's budget: it waits with it, ends with it, and is stopped with it."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest

from agentnb.core.budget import OUTPUT_SLICE, RequestBudget
from agentnb.core.context import AgentContext
from agentnb.core.errors import RunCancelled
from agentnb.core.events import (
    AgentCancelled,
    AgentExhausted,
    AgentWaiting,
    BudgetExhausted,
    BudgetPaused,
    BudgetUpdate,
    BudgetWarning,
    ModelCallFinished,
    ModelCallStarted,
    RunFinished,
)
from agentnb.core.threads import run_in_thread
from agentnb.core.types import AgentConfig, Usage
from agentnb.providers.scripted import AnyReply, Reply, ScriptedProvider
from tests.core.clock import everyone_waits
from tests.core.random_trees import WatchedBudget
from tests.support import DEADLINE_S, Hold, Tree, by_agent, make_tree, run_tree, spawn

WORDS = " ".join(f"word{n:03}" for n in range(60))
"""120 tokens by size."""
OF_ABOVE = "the budget of the run that assigned the task"


@pytest.fixture(autouse=True)
async def nothing_is_left() -> AsyncIterator[None]:
    """No task of any of the runs that were side by side goes on."""
    others = asyncio.all_tasks()
    yield
    assert asyncio.all_tasks() - others <= {asyncio.current_task()}


def short(max_output: int = 256) -> AgentContext:
    return AgentContext(AgentConfig(max_output_tokens=max_output))


def below(upper: RequestBudget, provider: ScriptedProvider, total: int = 10**6, **how: Any) -> Tree:
    """A run that stands below a budget, and whose agents give short answers."""
    how.setdefault("context", short())
    return make_tree(provider, budget=RequestBudget(total, below=upper), beside_others=True, **how)


def use(budget: RequestBudget, *, leave: int) -> None:
    """Spend all of a budget but `leave` tokens."""
    budget.add_tokens(budget.total - budget.tokens_used - leave)


# -- side by side ----------------------------------------------------------------------------------


def fan(tasks: int, answer: AnyReply = WORDS) -> ScriptedProvider:
    names = [f"part {number}" for number in range(tasks)]
    return by_agent({"root": [spawn(*names), "together"], **dict.fromkeys(names, answer)})


@pytest.mark.parametrize("total", [0, 600, 1500, 3000, 6000, 12_000, 100_000])
@pytest.mark.parametrize("own", [2500, 10**6])
async def test_two_runs_on_one_upper_pot_never_spend_more_than_it_has_and_both_end(
    total: int, own: int
) -> None:
    upper = WatchedBudget(total)
    trees = [below(upper, fan(tasks), total=own, context=short(400)) for tasks in (3, 12)]

    await asyncio.gather(*[tree.run() for tree in trees])

    calls = [call for tree in trees for call in tree.of(ModelCallFinished)]
    assert upper.reserved == 0
    assert upper.tokens_used == sum(call.usage.budget_tokens for call in calls)
    assert upper.overdrawn <= sum(max(0, call.estimate_error) for call in calls)
    for tree in trees:
        budget = tree.request.budget
        [finished] = tree.of(RunFinished)
        theirs = [call.usage.budget_tokens for call in tree.of(ModelCallFinished)]
        assert finished.tokens_used == budget.tokens_used == sum(theirs)
        assert budget.reserved == 0
        assert str(finished.status) in ("completed", "exhausted")
    assert upper.tokens_used == sum(tree.request.budget.tokens_used for tree in trees)
    if own == 10**6 and total < 3000:
        assert [str(tree.result.status) for tree in trees] == ["exhausted"] * 2


@pytest.mark.parametrize("seed", range(40))
async def test_runs_at_random_on_pots_at_random_end_and_each_pot_is_the_sum_of_its_calls(
    seed: int,
) -> None:
    choose = random.Random(seed)
    pots: list[RequestBudget] = [WatchedBudget(choose.choice([1500, 4000, 12_000]))]
    trees: list[Tree] = []
    totals = [pots[0].total]
    """Those that the topmost pot had."""

    async def disturb() -> None:
        for _ in range(choose.randrange(6)):
            await asyncio.sleep(0)
        what, pot = choose.randrange(8), choose.choice(pots)
        if what == 0:
            pot.set_total(choose.randrange(15_000))
            totals.append(pots[0].total)
        elif what == 1:
            choose.choice(trees).request.cancellation.cancel(None, "by chance")

    def answer(_: object) -> Reply:
        words = " ".join([WORDS] * choose.randrange(1, 12))
        return Reply(words, pause=disturb)

    for number in range(4):
        upper = choose.choice(pots)
        names = [f"{number} {part}" for part in range(choose.randrange(1, 6))]
        mode = choose.choice(["parallel", "sequential"])
        provider = by_agent(
            {"root": [spawn(*names, mode=mode), answer], **dict.fromkeys(names, answer)}
        )
        total = choose.choice([800, 3000, 9000, 10**6])
        trees.append(below(upper, provider, total=total, context=short(choose.choice([80, 2000]))))
        pots.append(trees[-1].request.budget)

    await asyncio.gather(*[tree.run() for tree in trees])

    used = {
        tree.request.budget: sum(c.usage.budget_tokens for c in tree.of(ModelCallFinished))
        for tree in trees
    }
    for pot in pots:
        standing = [budget for budget in used if pot in (budget, *budget.above)]
        assert pot.tokens_used == sum(used[budget] for budget in standing)
        assert pot.reserved == 0
        assert pot.kept == 0
    errors = [call.estimate_error for tree in trees for call in tree.of(ModelCallFinished)]
    top = pots[0]
    assert isinstance(top, WatchedBudget)
    lowered = max(totals) - min(totals)
    assert top.overdrawn <= lowered + sum(max(0, error) for error in errors)


async def test_run_of_another_run_s_tool_draws_on_that_run_s_pot() -> None:
    hold = Hold()
    upper = make_tree(
        by_agent({"root": Reply("done", pause=hold)}), budget=10**6, beside_others=True
    )
    running = upper.start()
    await hold.until_reached()

    tree = await below(upper.request.budget, fan(3)).run()
    hold.release()
    await running

    budget, own = upper.request.budget, upper.of(ModelCallFinished)[0].usage.budget_tokens
    assert budget.tokens_used_below == tree.request.budget.tokens_used
    assert budget.tokens_used == own + budget.tokens_used_below
    assert upper.of(BudgetUpdate)[-1].tokens_used == budget.tokens_used, "the pot's"
    assert upper.of(RunFinished)[0].tokens_used == own, "the run's"
    assert upper.result.total_tokens_used == own


# -- waiting for room ------------------------------------------------------------------------------


async def test_call_waits_for_another_run_s_call_and_is_woken_when_it_settles() -> None:
    upper = RequestBudget(10_000)
    hold = Hold()
    first = below(upper, by_agent({"root": Reply("first", pause=hold, usage=Usage(10, 10))}))
    first_run = first.start()
    await hold.until_reached()
    use(upper, leave=upper.reserved + 100)
    second = below(upper, by_agent({"root": "second"}))
    second_run = second.start()
    await second.saw(AgentWaiting)
    await everyone_waits()
    assert not second_run.done()
    assert second.of(ModelCallStarted) == []

    hold.release()
    await asyncio.gather(first_run, second_run)

    assert second.result.final_response == "second"
    assert [each.reason for each in second.of(AgentWaiting)] == [
        "room in the budget, until other calls settle"
    ]
    assert second.of(BudgetExhausted) == []


@pytest.mark.parametrize(("actual", "ends"), [(0, "completed"), (4900, "exhausted")])
async def test_settlement_of_anyone_in_the_upper_pot_wakes_a_call_that_waits(
    actual: int, ends: str
) -> None:
    upper = RequestBudget(10_000)
    held, other = upper.reserve(4900), upper.reserve(5000)
    assert held is not None
    assert other is not None
    tree = below(upper, by_agent({"root": "an answer"}))
    run = tree.start()
    await tree.saw(AgentWaiting)

    if ends == "exhausted":  # nobody else is left who might give something back
        other.settle(5000)
        await everyone_waits()
        assert not run.done()
    await run_in_thread(lambda: held.settle(actual))
    await run

    assert tree.result.status == ends


async def test_run_whose_upper_pot_is_empty_ends_in_an_answer_that_says_whose_it_is() -> None:
    upper = RequestBudget(10_000)
    use(upper, leave=100)

    tree = await below(upper, by_agent({"root": "never asked"})).run()

    assert tree.error is None
    assert tree.of(ModelCallStarted) == []
    assert tree.of(AgentExhausted)[0].reason == f"{OF_ABOVE} is used up"
    assert OF_ABOVE in tree.result.final_response
    assert len(tree.of(BudgetExhausted)) == 1


async def test_upper_pot_that_is_called_otherwise_is_called_so_in_the_answer() -> None:
    upper = RequestBudget(10_000, name="the session's budget")
    use(upper, leave=100)

    tree = await below(upper, by_agent({"root": "never asked"})).run()

    assert tree.of(AgentExhausted)[0].reason == "the session's budget is used up"


async def test_own_pot_that_is_empty_says_so_as_ever() -> None:
    tree = await below(RequestBudget(10**6), by_agent({"root": "never asked"}), total=100).run()

    assert tree.of(AgentExhausted)[0].reason.startswith("the call needs about ")
    assert "of 100 are left" in tree.of(AgentExhausted)[0].reason


async def test_answer_in_whose_middle_the_upper_pot_is_full_is_kept_and_says_so() -> None:
    upper = RequestBudget(10_000)

    async def others_spend() -> None:
        use(upper, leave=upper.reserved)

    provider = ScriptedProvider([Reply(WORDS * 40, pause=others_spend)])
    tree = await below(upper, provider, context=short(10_000)).run()

    [ended] = tree.of(AgentExhausted)
    assert ended.reason == f"{OF_ABOVE} was used up in the middle of the answer"
    assert tree.result.final_response.startswith("word000 word001")
    assert upper.reserved == 0


async def test_answer_that_ends_where_the_upper_pot_let_it_says_so() -> None:
    upper = RequestBudget(10_000)
    use(upper, leave=1000)
    provider = ScriptedProvider([Reply("a beginning", stop_reason="max_tokens")])

    tree = await below(upper, provider, context=short(10_000)).run()

    [ended] = tree.of(AgentExhausted)
    assert ended.reason == f"{OF_ABOVE} left no room for the rest of the answer"


async def test_tasks_in_sequence_that_the_upper_pot_does_not_reach_for_are_skipped() -> None:
    upper = RequestBudget(10_000)

    def spends(_: object) -> str:
        use(upper, leave=10)
        return "A is done"

    tasks = spawn("A", "B", "C", mode="sequential")
    tree = await below(upper, by_agent({"root": [tasks, "never asked"], "A": spends})).run()

    assert tree.statuses() == {"root": "exhausted", "1": "completed", "2": "exhausted"}
    assert tree.result.sub_agent_results[2].error == f"{OF_ABOVE} ended before its turn"
    assert "A is done" in tree.result.final_response


async def test_raised_total_of_the_upper_pot_wakes_a_call_from_any_thread() -> None:
    upper = RequestBudget(10_000)
    hold = Hold()
    first = below(upper, by_agent({"root": Reply("first", pause=hold)}))
    first_run = first.start()
    await hold.until_reached()
    use(upper, leave=upper.reserved)
    second = below(upper, by_agent({"root": "second"}))
    second_run = second.start()
    await second.saw(AgentWaiting)

    await run_in_thread(lambda: upper.set_total(50_000))
    await second_run

    assert not first_run.done()
    assert second.result.final_response == "second"
    hold.release()
    await first_run


async def test_upper_pot_set_to_what_is_used_ends_the_runs_below() -> None:
    upper = RequestBudget(10_000)
    hold = Hold()
    tree = below(upper, by_agent({"root": Reply("so far and no more", pause=hold)}))
    run = tree.start()
    await hold.until_reached()

    upper.set_total(0)
    async with asyncio.timeout(DEADLINE_S):
        await run

    [ended] = tree.of(AgentExhausted)
    assert ended.reason.startswith(f"the total of {OF_ABOVE} was set to 0 tokens")


async def test_raise_of_the_upper_pot_lets_an_exhausted_run_start_the_rest() -> None:
    upper = RequestBudget(10_000)
    hold = Hold()

    async def others_spend() -> None:
        await hold.until_reached()
        use(upper, leave=upper.reserved)

    replies: Mapping[str, Any] = {
        "root": [spawn("A", "B"), "together"],
        "A": Reply(WORDS * 40, pause=others_spend),
        "B": [Reply(spawn("C", mode="sequential"), pause=hold), "B is done"],
    }
    tree = below(upper, by_agent(replies), context=short(5000))
    run = tree.start()
    await tree.saw(AgentExhausted, "1")
    upper.set_total(100_000)
    hold.release()
    await run

    assert tree.statuses()["2.1"] == "completed"


# -- the root's answer -----------------------------------------------------------------------------


async def test_what_the_upper_run_keeps_for_its_answer_is_not_taken_by_the_run_below() -> None:
    hold = Hold()
    upper = make_tree(
        by_agent({"root": Reply("the answer", pause=hold, usage=Usage(10, 10))}),
        budget=20_000,
        context=short(),
        beside_others=True,
    )
    running = upper.start()
    await hold.until_reached()
    budget, meter = upper.request.budget, upper.request.meter
    assert meter is not None
    assert budget.kept == meter.kept == 1000
    use(budget, leave=budget.reserved + 1000 + OUTPUT_SLICE)

    tree = below(budget, by_agent({"root": "never asked"}))
    run = tree.start()
    await tree.saw(AgentWaiting)
    assert budget.available >= meter.kept
    hold.release()
    await asyncio.gather(running, run)

    assert upper.result.final_response == "the answer"
    assert budget.kept == 0, "the run is over"


async def test_root_below_waits_for_other_runs_before_it_answers_without_a_model() -> None:
    upper = RequestBudget(30_000)
    busy, half = Hold(), Hold()
    first = below(upper, by_agent({"root": Reply("first", pause=busy, usage=Usage(10, 10))}))
    first_run = first.start()
    await busy.until_reached()
    replies: Mapping[str, Any] = {
        "root": [spawn("A"), "brought together"],
        "A": Reply("A is done", pause=half, usage=Usage(10, 10)),
    }
    second = below(upper, by_agent(replies))
    second_run = second.start()
    await half.until_reached()
    reserved = upper.reserved
    use(upper, leave=reserved - 300)  # so that nothing comes back when A is done
    half.release()
    await second.saw(AgentWaiting, "root")
    busy.release()
    upper.set_total(60_000)
    await asyncio.gather(first_run, second_run)

    assert second.result.final_response == "brought together"


# -- warnings --------------------------------------------------------------------------------------


async def test_upper_pot_s_warning_line_is_a_question_of_the_upper_run_alone() -> None:
    hold = Hold()
    upper = make_tree(
        by_agent({"root": Reply("done", pause=hold)}),
        budget=100_000,
        is_attended=lambda: True,
        beside_others=True,
    )
    running = upper.start()
    await hold.until_reached()

    provider = by_agent({"root": Reply("much", usage=Usage(85_000, 0))})
    tree = below(upper.request.budget, provider, is_attended=lambda: True)
    await tree.run()
    await upper.saw(BudgetPaused)
    upper.request.answer_budget("continue")
    hold.release()
    await running

    assert tree.of(BudgetWarning) == []
    assert tree.of(BudgetPaused) == []
    assert len(upper.of(BudgetWarning)) == 1
    assert (tree.result.status, upper.result.status) == ("completed", "completed")


async def test_own_warning_line_asks_in_the_run_below_alone() -> None:
    upper = RequestBudget(10**6)

    async def stop(_: object) -> str:
        return "stop"

    replies: Mapping[str, Any] = {
        "root": [spawn("A", "B", mode="sequential"), "together"],
        "A": Reply("A is done", usage=Usage(8500, 0)),
    }
    tree = await below(upper, by_agent(replies), total=10_000, budget_gate=stop).run()

    assert len(tree.of(BudgetPaused)) == 1
    assert tree.statuses() == {"root": "exhausted", "1": "completed"}
    assert upper.crossings == 0


# -- a cancel --------------------------------------------------------------------------------------


def held_run(words: str = "half") -> tuple[Tree, Hold]:
    hold = Hold()
    return make_tree(by_agent({"root": Reply(words, pause=hold)}), beside_others=True), hold


async def reached(trees: Sequence[tuple[Tree, Hold]]) -> list[asyncio.Task[Tree]]:
    running = [tree.start() for tree, _ in trees]
    for _, hold in trees:
        await hold.until_reached()
    return running


async def test_cancel_of_a_run_cancels_the_runs_below_it_at_any_depth() -> None:
    three = [held_run() for _ in range(3)]
    for (tree, _), (other, _) in pairwise(three):
        tree.request.cancellation.add_below(other.request.cancellation)
    running = await reached(three)

    scopes = three[0][0].request.cancellation.cancel(None, "enough of it", by="panel")
    await asyncio.gather(*running)

    assert [scope.agent_id for scope in scopes] == [three[0][0].request.thread_id]
    for tree, _ in three:
        assert isinstance(tree.error, RunCancelled)
        [event] = tree.of(AgentCancelled)
        assert (event.reason, event.by) == ("enough of it", "panel")


async def test_cancel_of_a_run_that_has_ended_reaches_what_still_runs_below() -> None:
    upper = await run_tree(by_agent({"root": "done"}))
    middle = await run_tree(by_agent({"root": "done"}))
    tree, hold = held_run()
    upper.request.cancellation.add_below(middle.request.cancellation)
    middle.request.cancellation.add_below(tree.request.cancellation)
    del middle
    gc.collect()
    [running] = await reached([(tree, hold)])

    upper.request.cancellation.cancel(None, "not needed")
    await running

    assert isinstance(tree.error, RunCancelled)


async def test_run_that_is_put_below_a_cancelled_one_does_not_begin() -> None:
    upper, _ = held_run()
    upper.request.cancellation.cancel(None, "never mind")
    tree, _ = held_run()
    upper.request.cancellation.add_below(tree.request.cancellation)

    await tree.run()

    assert isinstance(tree.error, RunCancelled)
    assert tree.of(ModelCallStarted) == []


async def test_cancel_of_an_agent_reaches_no_run_below() -> None:
    busy, hold = Hold(), Hold()
    upper = make_tree(
        by_agent({"root": [spawn("A"), "together"], "A": Reply(pause=busy)}), beside_others=True
    )
    tree = make_tree(by_agent({"root": Reply("went on", pause=hold)}), beside_others=True)
    upper.request.cancellation.add_below(tree.request.cancellation)
    running = await reached([(upper, busy), (tree, hold)])

    upper.cancel("1")
    hold.release()
    await asyncio.gather(*running)

    assert tree.result.final_response == "went on"


async def test_runs_below_that_have_ended_are_not_kept() -> None:
    upper, _ = held_run()
    tree = await run_tree(by_agent({"root": "done"}))
    upper.request.cancellation.add_below(tree.request.cancellation)
    gone = weakref.ref(tree.request.cancellation)

    del tree
    gc.collect()

    assert gone() is None
