"""What random trees have brought to light, each in its smallest form."""

from __future__ import annotations

import pytest

from agentnb.core.events import AgentCompleted, RunFinished
from agentnb.core.spawn import read_reply
from agentnb.core.types import AgentStatus, SpawnInstruction, SpawnMode
from agentnb.providers.scripted import AnyReply, Reply, ScriptedProvider
from tests.core.clock import everyone_waits
from tests.core.random_trees import SlowJournal
from tests.support import by_agent, make_tree, run_tree, spawn

BLOCK = spawn("a further task")
EXAMPLE = f"```\n{BLOCK}"  # a code fence that was never closed


@pytest.mark.parametrize(
    "replies",
    [
        pytest.param({"root": Reply(BLOCK, stop_reason="refusal")}, id="a refusal quotes it"),
        pytest.param(
            {"root": (spawn(BLOCK), BLOCK, BLOCK)}, id="a task holds it, and nothing is synthesised"
        ),
        pytest.param(
            {"root": (spawn("a", "b"), BLOCK, BLOCK), "a": EXAMPLE, "b": EXAMPLE},
            id="it stands between two fences that were left open",
        ),
    ],
)
async def test_answer_that_is_put_together_has_no_spawn_block_outside_a_fence(
    replies: dict[str, AnyReply],
) -> None:
    tree = await run_tree(by_agent(replies))

    assert not read_reply(tree.result.final_response).has_block
    assert "a further task" in tree.result.final_response


@pytest.mark.parametrize("commits_before", [2, 3])
async def test_run_cancelled_from_outside_while_its_end_is_being_kept_is_told_to_its_end(
    commits_before: int,
) -> None:
    journal = SlowJournal()
    tree = make_tree(ScriptedProvider(["done"]), journal=journal)
    running = tree.start()
    await everyone_waits()
    for _ in range(commits_before):
        assert journal.waiting
        journal.let_commits_end()
        await everyone_waits()
    assert journal.waiting

    running.cancel()
    while not running.done():
        await everyone_waits()
        journal.let_commits_end()

    assert running.cancelled()
    assert len(tree.of(AgentCompleted)) == 1
    [finished] = tree.of(RunFinished)
    assert finished.status is AgentStatus.CANCELLED
    assert tree.bus.closed


@pytest.mark.parametrize("commits_before", [4, 5])
async def test_run_that_is_cancelled_from_outside_while_its_end_is_kept_has_ended(
    commits_before: int,
) -> None:
    journal = SlowJournal()
    tree = make_tree(ScriptedProvider(["done"]), journal=journal)
    running = tree.start()
    for _ in range(commits_before):
        await everyone_waits()
        journal.let_commits_end()
    await everyone_waits()
    assert journal.waiting

    running.cancel()
    while not running.done():
        await everyone_waits()
        journal.let_commits_end()

    assert not running.cancelled()
    assert tree.of(RunFinished)[0].status is tree.result.status is AgentStatus.COMPLETED


async def test_plan_whose_task_holds_a_spawn_block_gives_its_results_without_one() -> None:
    plan = SpawnInstruction(SpawnMode.PARALLEL, (BLOCK,))

    tree = await run_tree(ScriptedProvider(["An answer."]), plan=plan, synthesis=False)

    assert "An answer." in tree.result.final_response
    assert not read_reply(tree.result.final_response).has_block
