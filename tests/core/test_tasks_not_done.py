"""Every task that is not done has one event that names it and says why, whatever the reason.

The property tests hold it for any run (`tests.core.asked_tasks`); here each reason stands alone.
"""

from __future__ import annotations

from typing import Any

import pytest

from agentnb.core.errors import InvalidRequest
from agentnb.core.events import AgentSpawned, DepthLimitReached, SpawnIgnored
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.protocols import Delegation
from agentnb.core.tree import TreeFold
from agentnb.core.types import (
    AgentStatus,
    CompletionRequest,
    SpawnInstruction,
    SpawnMode,
    TextDelta,
    Usage,
)
from agentnb.providers.scripted import AnyReply, Reply
from agentnb.tools.spawn import spawn_tools
from tests.by_tools import order, run_of, start, told
from tests.core.asked_tasks import check_tasks
from tests.support import Hold, Tree, by_agent, make_tree, run_tree, spawn

PLAN = SpawnInstruction(SpawnMode.SEQUENTIAL, ("A", "B", "C"))


def ignored(tree: Tree) -> list[tuple[str, tuple[str, ...]]]:
    check_tasks(tree.entries, plan=tree.plan)
    return [(event.reason, event.tasks) for event in tree.of(SpawnIgnored)]


@pytest.mark.parametrize(
    ("reply", "tasks"),
    [
        ('Mine. <spawn_agents><agent task="A" /><agent task="half', ("A",)),
        ('Mine. <spawn_agents><agent task="A" />', ("A",)),
        (f"Mine. <spawn_agents></spawn_agents>{spawn('A')}", ("A",)),
        (f'Mine. <spawn_agents><agent task="A" />{spawn("B")}{spawn("C")}', ("A", "C")),
    ],
    ids=["cut in a task", "no end", "first block has no task", "a block before and one behind"],
)
async def test_tasks_of_blocks_that_do_not_count_are_named(
    reply: str, tasks: tuple[str, ...]
) -> None:
    tree = await run_tree(by_agent({"root": [reply, "ok"]}))

    assert [named for _, named in ignored(tree)] == [tasks]


async def test_depth_limit_of_a_block_names_its_tasks_and_the_tree_shows_each_once() -> None:
    tree = await run_tree(by_agent({"root": spawn("A", "B", before="Mine.")}), max_depth=0)

    (event,) = tree.of(DepthLimitReached)
    assert event.tasks == ("A", "B")
    assert ignored(tree) == []
    assert TreeFold(tree.entries).notes()["root"] == [
        "skipped: A (at depth 1; the deepest allowed is 0)",
        "skipped: B (at depth 1; the deepest allowed is 0)",
    ]


async def test_block_of_a_failed_reply_is_named_once_and_not_for_its_first_attempt() -> None:
    broken = Reply(spawn("A"), error=InvalidRequest("not understood"))

    tree = await run_tree(by_agent({"root": broken}))

    assert ignored(tree) == [("its parent failed before it could start", ("A",))]
    assert tree.result.status is AgentStatus.FAILED


@pytest.mark.parametrize("whole", ["the run", "the agent"])
async def test_tasks_of_a_sequence_that_a_cancel_kept_from_starting_are_named(whole: str) -> None:
    hold = Hold()
    provider = by_agent(
        {
            "root": [spawn("P"), "ok"],
            "P": spawn("A", "B", "C", mode="sequential"),
            "A": Reply("half of it", pause=hold),
        }
    )
    tree = make_tree(provider)
    running = tree.start()
    await hold.until_reached()
    tree.request.cancellation.cancel(None if whole == "the run" else tree.id_of("1"), "enough")
    await running

    assert ignored(tree) == [("its parent was stopped before its turn", ("B", "C"))]
    assert [r.status for r in tree.result.incomplete if r.task in "BC"] == [AgentStatus.SKIPPED] * 2


async def test_block_of_an_agent_that_is_stopped_while_it_writes_it_is_named() -> None:
    hold = Hold()

    class Slow:
        name = "slow"

        async def stream(self, request: CompletionRequest) -> Any:
            yield TextDelta(spawn("A", "B"))
            await hold()

    tree = make_tree(Slow())
    running = tree.start()
    await hold.until_reached()
    tree.cancel("root")
    await running

    assert ignored(tree) == [("its parent was stopped before it could start", ("A", "B"))]


async def test_persons_list_is_named_where_the_run_is_stopped_before_it_begins() -> None:
    tree = make_tree(by_agent({}), plan=PLAN)
    tree.request.cancellation.cancel(None, "enough")
    await tree.run()

    assert ignored(tree) == [("its parent was stopped before its turn", ("A", "B", "C"))]
    assert [r.task for r in tree.result.sub_agent_results] == ["A", "B", "C"]


async def test_persons_list_without_a_budget_is_named_and_nothing_is_called_complete() -> None:
    tree = await run_tree(by_agent({}), plan=PLAN, budget=0)

    assert tree.result.status is AgentStatus.EXHAUSTED
    assert ignored(tree) == [("the budget ended before its turn", ("B", "C"))]


async def test_job_at_work_is_not_named_when_the_budget_ends_beside_it() -> None:
    hold = Hold()

    def spend(_: CompletionRequest) -> AnyReply:
        tree.request.budget.set_total(tree.request.budget.tokens_used + 600)
        hold.release()
        return Reply("A was", usage=Usage(100, 5000))

    provider = by_agent(
        {
            "root": [order(start("job")), spawn("A", "B", mode="sequential"), "ok"],
            "A": spend,
            "job": Reply("The job is done.", pause=hold),
        }
    )
    delegation = Delegation(by_block=True, spawn_tools=spawn_tools())
    tree = make_tree(provider, orchestrator=AgentOrchestrator(delegation=delegation))
    await tree.run()

    named = [task for event in tree.of(SpawnIgnored) for task in event.tasks]
    assert named == ["B"]
    assert {e.task_description for e in tree.of(AgentSpawned)} == {"the task", "job", "A"}


# -- by tools --------------------------------------------------------------------------------------


def named_by(run: Any, kind: type[Any]) -> list[Any]:
    return [entry.event for entry in run.events if isinstance(entry.event, kind)]


def test_depth_limit_met_by_the_tool_is_told_and_is_no_missing_tool() -> None:
    provider = by_agent({"root": [order(start("a")), "w", "ok"], "a": [order(start("b")), "Mine."]})

    run, _ = run_of(provider, max_depth=1, nested_spawn=True)

    (event,) = named_by(run, DepthLimitReached)
    assert (event.attempted_depth, event.max_depth, event.tasks) == (2, 1, ("b",))
    assert told(run, "1") == [
        (
            "spawn",
            "The sub-agent was not started: sub-agents at depth 2 are not allowed (the deepest "
            "is 1). Do the task yourself.",
            True,
        )
    ]
    assert named_by(run, SpawnIgnored) == []
    assert run.notes["1"] == ["skipped: b (at depth 2; the deepest allowed is 1)"]


def test_sub_agent_without_the_tool_is_told_why_it_has_none() -> None:
    provider = by_agent({"root": [order(start("a")), "w", "ok"], "a": [order(start("b")), "Mine."]})

    run, _ = run_of(provider, max_depth=3)

    (event,) = named_by(run, SpawnIgnored)
    assert event.tasks == ("b",)
    ((_, result, is_error),) = told(run, "1")
    assert is_error
    assert "`nested_spawn` is off" in result
    assert named_by(run, DepthLimitReached) == []


def test_job_that_comes_when_the_results_are_in_is_named() -> None:
    provider = by_agent({"root": [order(start("a")), "Done.", order(start("b")), "All of it."]})

    run, _ = run_of(provider)

    (event,) = named_by(run, SpawnIgnored)
    assert event.tasks == ("b",)
    assert "the results of your sub-agents are in" in event.reason


def test_call_of_spawn_that_was_cut_off_is_named() -> None:
    cut = Reply("Mine.", tool_uses=order(start("a")).tool_uses, stop_reason="max_tokens")

    run, _ = run_of(by_agent({"root": cut}))

    (event,) = named_by(run, SpawnIgnored)
    assert (event.reason, event.tasks) == ("the tool call was cut off, so it was not run", ("a",))
