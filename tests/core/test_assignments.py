"""An agent that is assigned a task counts like a sub-agent, and repeats none above it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agentnb.core.cycles import mark
from agentnb.core.events import (
    AgentSpawned,
    CycleDetected,
    DepthLimitReached,
    SpawnIgnored,
    ToolCallFinished,
)
from agentnb.core.limits import CYCLE, MAX_AGENTS, MAX_DEPTH, Refusal
from agentnb.core.protocols import ToolContext
from agentnb.core.tree import TreeFold
from agentnb.core.types import ToolSpec, ToolUse
from agentnb.providers.scripted import Reply
from agentnb.testing.memory_journal import MemoryJournal
from tests.support import Tree, by_agent, make_tree, run_tree, spawn

THREAD = "nb_20261101_k3x9aa"


class Assign:
    """A tool that asks whether its agent may assign tasks to new agents."""

    spec = ToolSpec("assign", "Assigns tasks.", {"type": "object"})

    def __init__(self) -> None:
        self.tree: Tree | None = None
        self.answers: dict[str, list[Refusal | None]] = {}
        """By the agent's path."""
        self.run_ids: set[str] = set()

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str:
        assert self.tree is not None
        self.run_ids.add(context.run_id)
        for task in input["tasks"]:
            refusal = self.tree.request.admit_assignment(context.agent_id, task)
            self.answers.setdefault(context.path, []).append(refusal)
        return "asked"


def asks_for(*tasks: str) -> Reply:
    return Reply(tool_uses=(ToolUse("t", "assign", {"tasks": list(tasks)}),))


async def assigning(replies: Mapping[str, Any], **how: Any) -> tuple[Tree, Assign]:
    tool = Assign()
    tool.tree = make_tree(by_agent(replies), tools=[tool], **how)
    await tool.tree.run()
    assert tool.tree.error is None
    return tool.tree, tool


def limits_of(refusals: list[Refusal | None]) -> list[str | None]:
    return [None if each is None else each.limit for each in refusals]


async def test_assigned_agent_counts_as_a_sub_agent() -> None:
    replies = {"root": [asks_for("x", "y", "z"), spawn("A"), "alone"]}
    tree, tool = await assigning(replies, max_agents=2)

    assert limits_of(tool.answers["root"]) == [None, None, MAX_AGENTS]
    assert len(tree.of(AgentSpawned)) == 1, "A has no place left"
    [told, of_block] = tree.of(SpawnIgnored)
    assert (told.agent_id, told.tasks, told.numbers) == (tree.id_of("root"), (), ())
    assert told.reason == of_block.reason == "the run has all of its 2 sub-agents"


async def test_task_above_it_is_a_cycle_and_takes_no_number() -> None:
    replies = {
        "root": [spawn("do A"), "together"],
        "do A": [asks_for("the  TASK", "Do A", "do B"), "done"],
    }
    tree, tool = await assigning(replies)

    assert limits_of(tool.answers["1"]) == [CYCLE, CYCLE, None]
    assert [(each.task_description, each.number) for each in tree.of(CycleDetected)] == [
        ("the  TASK", 0),
        ("Do A", 0),
    ]
    fold = TreeFold(tree.entries)
    assert fold.skipped() == [], "it is no task of this run"
    assert len(fold.notes()["1"]) == 2
    assert tree.request.numbers.all() == {tree.id_of("root"): 2}
    assert tree.result.incomplete == ()


async def test_task_that_comes_up_again_and_again_is_a_cycle() -> None:
    _, tool = await assigning({"root": [asks_for("x", "x", "x"), "done"]}, cycle_threshold=2)

    assert limits_of(tool.answers["root"]) == [None, None, CYCLE]


async def test_level_is_that_of_the_new_thread() -> None:
    replies = {"root": [spawn("A"), "together"], "A": [asks_for("x"), "done"]}

    async def asked(thread_id: str, max_depth: int) -> tuple[Tree, list[str | None]]:
        tree, tool = await assigning(replies, thread_id=thread_id, max_depth=max_depth)
        return tree, limits_of(tool.answers["1"])

    assert (await asked(THREAD, 2))[1] == [None]
    assert (await asked(f"{THREAD}.4", 3))[1] == [None]
    tree, refused = await asked(f"{THREAD}.4", 2)
    assert refused == [MAX_DEPTH]
    [told] = tree.of(DepthLimitReached)
    assert (told.agent_id, told.attempted_depth, told.max_depth, told.tasks) == (
        f"{THREAD}.4.1", 3, 2, (),
    )  # fmt: skip
    assert TreeFold(tree.entries).skipped() == []


async def test_verdict_of_an_assignment_is_kept() -> None:
    journal = MemoryJournal()
    replies = {"root": [asks_for("x", "the task"), "done"]}
    tree, tool = await assigning(replies, journal=journal)

    kept = [each for each in journal.load(tree.request.run_id).verdicts if each.kind == "admitted"]
    _, refusal = tool.answers["root"]
    assert refusal is not None
    assert [(each.path, each.value) for each in kept] == [
        ("root", {"assigned": "x", "refused": []}),
        (
            "root",
            {"assigned": "the task", "refused": [{"limit": "cycle", "reason": refusal.reason}]},
        ),
    ]


async def test_agent_that_the_run_does_not_have_is_unknown_and_so_is_any_when_it_is_over() -> None:
    tree, _ = await assigning({"root": [asks_for("x"), "done"]})
    waiting = make_tree(by_agent({"root": "done"}))

    for request, agent_id in (
        (tree.request, tree.id_of("root")),
        (waiting.request, waiting.id_of("root")),
    ):
        with pytest.raises(KeyError):
            request.admit_assignment(agent_id, "x")


async def test_agent_of_another_run_is_unknown_while_this_one_goes_on() -> None:
    asked: list[str] = []

    def ask(_: object) -> str:
        with pytest.raises(KeyError, match="zzzzzz"):
            tree.request.admit_assignment("nb_20261101_zzzzzz", "x")
        asked.append("x")
        return "done"

    tree = make_tree(by_agent({"root": ask}))
    await tree.run()

    assert asked == ["x"]


async def test_tool_is_told_the_id_of_its_run() -> None:
    tree, tool = await assigning({"root": [asks_for("x"), "done"]}, run_id="of this run")

    assert tool.run_ids == {"of this run"}
    assert tree.of(ToolCallFinished)[0].is_error is False


async def test_tasks_of_the_threads_above_are_cycles_in_the_run_below() -> None:
    replies = {
        "root": [spawn("write it", "Plan  the work", "another"), "together"],
        "another": [spawn("plan the work"), "by myself"],
    }
    tree = await run_tree(
        by_agent(replies), "do it", above=[mark("write it"), mark("plan the work")]
    )

    assert tree.statuses() == {"root": "completed", "3": "completed"}
    assert [each.number for each in tree.of(CycleDetected)] == [1, 2, 1]


async def test_task_of_a_thread_above_counts_for_an_assignment_too() -> None:
    _, tool = await assigning({"root": [asks_for("plan it", "x"), "done"]}, above=[mark("Plan it")])

    assert limits_of(tool.answers["root"]) == [CYCLE, None]
