"""What agents are told of a person's objects, which agent has which, and when it lets go of them.

The handles here know the words of an order: each word of a task that begins with `obj-` is a name.
"""

from __future__ import annotations

import asyncio

from agentnb.core.errors import InternalError
from agentnb.core.events import (
    AgentCancelled,
    AgentCompleted,
    AgentFailed,
    SpawnPlanned,
    is_terminal,
)
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.protocols import Delegation
from agentnb.core.types import AgentStatus, CompletionRequest, Role, TextBlock, ToolUse
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.tools.spawn import spawn_tools
from tests.support import Hold, by_agent, make_tree, path_of, requests_of, run_tree, spawn, until


class Words:
    """Handles whose objects are words."""

    def __init__(self) -> None:
        self.of: dict[str, str] = {}
        """By path of an agent: what it was handed."""
        self.ended: list[str] = []
        self.when_ended = asyncio.Event()
        self.when_ended.set()
        self.is_asked = asyncio.Event()
        self.error: Exception | None = None

    def told_to_root(self) -> str:
        return "told: everything"

    def told_to_child(self, parent_id: str, task: str, context: str = "") -> str:
        named = [word for word in f"{task} {context}".split() if word.startswith("obj-")]
        return f"told: {' '.join(named)}" if named else ""

    def hand_over(self, parent_id: str, child_id: str, task: str, context: str = "") -> None:
        self.of[path_of(child_id)] = self.told_to_child(parent_id, task, context)

    async def agent_ended(self, agent_id: str) -> None:
        self.is_asked.set()
        await self.when_ended.wait()
        self.ended.append(path_of(agent_id))
        if self.error is not None:
            raise self.error


def told(request: CompletionRequest) -> list[str]:
    """The texts of a request's first message, behind the first."""
    first = request.messages[0]
    assert first.role is Role.USER
    return [block.text for block in first.content[1:] if isinstance(block, TextBlock)]


async def test_agent_reads_of_the_objects_that_its_order_names_and_of_no_others() -> None:
    script = by_agent({"root": [spawn("look at obj-a", "think"), "all"]})
    handles = Words()
    await run_tree(script, handles=handles)
    assert told(requests_of(script, "root")[0]) == ["told: everything"]
    assert told(requests_of(script, "look at obj-a")[0]) == ["told: obj-a"]
    assert told(requests_of(script, "think")[0]) == []
    assert handles.of == {"1": "told: obj-a", "2": ""}


async def test_job_reads_of_the_objects_that_its_context_names() -> None:
    order = {"task": "look", "context": "at obj-b please"}
    script = by_agent({"root": [Reply(tool_uses=(ToolUse("u", "spawn", order),)), "me", "all"]})
    handles = Words()
    orchestrator = AgentOrchestrator(delegation=Delegation(spawn_tools=spawn_tools()))
    await run_tree(script, handles=handles, orchestrator=orchestrator)
    assert told(requests_of(script, "look")[0]) == ["told: obj-b"]
    assert handles.of == {"1": "told: obj-b"}


async def test_objects_are_let_go_once_for_each_agent_leaves_first() -> None:
    script = by_agent({"root": [spawn("a"), "all"], "a": [spawn("b"), "one"]})
    handles = Words()
    tree = await run_tree(script, handles=handles)
    assert handles.ended == ["1.1", "1", "root"]
    ends = [path_of(e.agent_id) for e in tree.events if isinstance(e, AgentCompleted)]
    assert ends == handles.ended


async def test_agent_counts_as_ended_only_when_its_objects_are_let_go() -> None:
    handles = Words()
    handles.when_ended.clear()
    hold = Hold()
    script = by_agent({"root": [spawn("a"), "all"], "a": Reply("never read", pause=hold)})
    tree = make_tree(script, handles=handles)
    running = tree.start()
    await until(hold.reached.is_set)
    tree.cancel("1")
    await handles.is_asked.wait()
    assert not [event for event in tree.events if is_terminal(event)]
    handles.when_ended.set()
    await running
    assert [path_of(e.agent_id) for e in tree.of(AgentCancelled)] == ["1"]
    assert handles.ended == ["1", "root"]


async def test_agent_whose_objects_cannot_be_let_go_has_failed_and_its_words_are_kept() -> None:
    handles = Words()
    handles.error = OSError("no worker")
    tree = await run_tree(ScriptedProvider(["answer"]), handles=handles)
    assert isinstance(tree.error, InternalError)
    assert "no worker" in str(tree.error)
    (failed,) = tree.of(AgentFailed)
    assert not failed.will_retry
    assert tree.node("root").status is AgentStatus.FAILED
    assert tree.result.final_response.startswith("answer\n")


async def test_estimate_of_a_plan_counts_what_children_are_told() -> None:
    async def estimate(handles: Words | None) -> int:
        plans: list[SpawnPlanned] = []

        def go(plan: SpawnPlanned) -> str:
            plans.append(plan)
            return "go"

        script = by_agent({"root": [spawn("obj-" + "long" * 100), "all"]})
        await run_tree(script, handles=handles, on_plan=go)
        return plans[0].estimated_tokens

    assert await estimate(Words()) > await estimate(None)


async def test_run_without_objects_is_told_of_none() -> None:
    script = ScriptedProvider(["answer"])
    await run_tree(script)
    assert told(script.requests[0]) == []
