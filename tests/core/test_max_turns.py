"""An agent that would go on for ever ends after its turns, with what it has, and says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agentnb.core.events import AgentCompleted, ToolCallFinished
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.protocols import ToolContext
from agentnb.core.types import ToolSpec, ToolUse
from agentnb.providers.scripted import Reply, ScriptedProvider
from tests.support import Tree, by_agent, requests_of, run_tree, spawn

NOTE = "*The agent ended here: it took all of its {} turns and was not done.*"


class Look:
    spec = ToolSpec("look", "Looks.", {"type": "object"})

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str:
        return "far and wide"


def look(text: str = "") -> Reply:
    return Reply(text, tool_uses=(ToolUse("t", "look", {}),))


async def run(provider: ScriptedProvider, max_turns: int = 3) -> Tree:
    orchestrator = AgentOrchestrator(max_turns=max_turns)
    return await run_tree(provider, orchestrator=orchestrator, tools=[Look()])


@pytest.mark.parametrize(
    ("replies", "has"),
    [
        ([look("One."), look("Two."), look("Three.")], "Three."),
        ([look("One."), look("Two."), look()], "Two."),
        ([look(), look(), look(" \n")], "far and wide"),
    ],
    ids=["last words", "earlier words", "no words"],
)
async def test_agent_that_took_all_its_turns_ends_with_what_it_has_and_says_so(
    replies: list[Reply], has: str
) -> None:
    provider = ScriptedProvider(replies)

    tree = await run(provider)

    assert len(provider.requests) == 3
    assert len(tree.of(ToolCallFinished)) == 3, "a turn is a call and the tools it asked for"
    assert tree.result.final_response == f"{has}\n\n{NOTE.format(3)}"
    assert tree.result.cut
    assert tree.of(AgentCompleted)[0].cut
    assert tree.result.status == "completed"


async def test_agent_that_is_done_in_its_last_turn_is_not_cut() -> None:
    tree = await run(ScriptedProvider([look(), look(), "Done."]))

    assert (tree.result.final_response, tree.result.cut) == ("Done.", False)


async def test_parent_reads_that_its_sub_agent_was_not_done() -> None:
    provider = by_agent({"root": [spawn("A"), "ok"], "A": look("So far.")})

    await run(provider)

    told = requests_of(provider, "root")[-1].last_user_text
    assert "So far." in told
    assert NOTE.format(3) in told


async def test_synthesis_that_has_no_turn_left_has_one_and_ends_with_the_results() -> None:
    provider = by_agent({"root": [look(), look(), spawn("A"), look()], "A": "A was found."})

    tree = await run(provider)

    assert len(requests_of(provider, "root")) == 4
    assert "A was found." in tree.result.final_response
    assert tree.result.final_response.endswith(NOTE.format(4))
    assert tree.result.cut
