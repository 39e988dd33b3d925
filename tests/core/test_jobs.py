"""Jobs at the edges of their parent's life: every one is told, and none is left without an end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from agentnb import Session
from agentnb.core._run.jobs import AgentJobs, Job
from agentnb.core.events import AgentCancelled, AgentSpawned
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.protocols import Delegation, JobOrder, Tool, ToolContext
from agentnb.core.types import AgentStatus, SubAgentResult, ToolSpec
from agentnb.providers.scripted import Reply
from agentnb.tools.spawn import spawn_tools
from tests.by_tools import order, start
from tests.support import (
    DEADLINE_S,
    Tree,
    by_agent,
    check_record,
    make_tree,
    requests_of,
    run_tree,
    spawn,
)


def by_tools(*, by_block: bool = False) -> AgentOrchestrator:
    return AgentOrchestrator(delegation=Delegation(by_block=by_block, spawn_tools=spawn_tools()))


async def test_job_that_is_started_after_a_block_was_refused_is_handed_over() -> None:
    provider = by_agent(
        {"root": [spawn("the task"), order(start("b")), "I stop here.", "With what b found."]}
    )
    tree = await run_tree(provider, orchestrator=by_tools(by_block=True))

    assert tree.statuses() == {"root": "completed", "2": "completed"}, "1 is the refused task"
    assert tree.result.final_response == "With what b found."
    last = requests_of(provider, "root")[-1].messages[-1].text
    assert "done: b" in last
    assert '<result task="the task"' not in last, "of that it was told before"


async def test_pot_that_ends_after_a_refused_block_leaves_what_its_jobs_came_to() -> None:
    def start_the_last(_: Any) -> Reply:
        tree.request.budget.set_total(tree.request.budget.tokens_used)
        return order(start("b"))

    provider = by_agent({"root": [spawn("a"), start_the_last]})
    tree = make_tree(provider, orchestrator=by_tools())
    await tree.run()

    assert tree.result.status is AgentStatus.EXHAUSTED
    (job,) = tree.result.sub_agent_results
    assert job.status is AgentStatus.EXHAUSTED
    assert tree.result.final_response.count("**2 b**") == 1


async def test_results_of_jobs_and_block_are_told_in_the_order_of_their_tasks() -> None:
    provider = by_agent({"root": [order(start("first")), spawn("second"), "Together."]})
    tree = await run_tree(provider, orchestrator=by_tools(by_block=True))

    last = requests_of(provider, "root")[-1].messages[-1].text
    assert last.index("done: first") < last.index("done: second")
    assert [each.task for each in tree.result.sub_agent_results] == ["first", "second"]


def test_root_of_a_persons_own_fan_out_starts_no_jobs() -> None:
    provider = by_agent({"root": [order(start("late")), "Together."]})
    session = Session(provider=provider, delegation="tools", config=False)

    result = session.spawn_all(["x", "y"]).result(DEADLINE_S)

    assert result.output == "Together."
    assert [child.task for child in result.agent_tree.children] == ["x", "y"]


class CancelsAll:
    """Cancels every task but those of the test, as the end of `asyncio.run` does."""

    spec = ToolSpec("cancel_all", "Cancels all.", {"type": "object"})

    def __init__(self) -> None:
        self._spared = asyncio.all_tasks()

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str:
        for task in asyncio.all_tasks() - self._spared:
            task.cancel()
        return "cancelled"


async def test_job_that_is_cancelled_from_outside_before_it_began_has_its_one_end() -> None:
    provider = by_agent({"root": [order(start("a"), ("cancel_all", {})), "Never said."]})
    tools: list[Tool] = [CancelsAll()]
    tree: Tree = make_tree(provider, tools=tools, orchestrator=by_tools())

    running = asyncio.create_task(
        tree.orchestrator.execute(
            provider, tree.context, "the task", tree.request, tree.bus, tools=tools
        )
    )
    await asyncio.wait([running])

    assert running.cancelled()
    check_record(tree.entries)
    assert [event.depth for event in tree.of(AgentSpawned)] == [0, 1]
    assert len(tree.of(AgentCancelled)) == 2


async def test_job_that_ends_by_itself_while_it_is_cancelled_is_still_reported() -> None:
    ends = asyncio.Event()
    parent: Any = SimpleNamespace(results=[SubAgentResult("1", "a", AgentStatus.SKIPPED)])

    async def work() -> None:
        await ends.wait()
        parent.results[0] = SubAgentResult("1", "a", AgentStatus.COMPLETED, "what it found")

    def start_job(*_: object) -> Job:
        agent: Any = SimpleNamespace(path="1")
        return Job("abcdef", parent, 0, agent, asyncio.create_task(work()))

    host: Any = SimpleNamespace(start_job=start_job, stop=lambda *_: ends.set())
    jobs = AgentJobs("root", (), host)
    job_id = jobs.start(JobOrder("a"))

    assert await jobs.cancel([job_id]) == []
    assert [each.response for each in jobs.take_unreported()] == ["what it found"]
