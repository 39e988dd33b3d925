"""A tool call that fails in the same way again and again: its model is told, its agent ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agentnb.core.errors import NoAnswer
from agentnb.core.protocols import ToolContext
from agentnb.core.types import AgentStatus, ToolResultBlock, ToolSpec, ToolUse
from agentnb.providers.scripted import AnyReply, Reply, ScriptedProvider
from tests.support import Tree, by_agent, requests_of, run_tree, spawn


class Look:
    """Fails for each `q` but those that it knows."""

    spec = ToolSpec("look", "Looks.", {"type": "object"})

    def __init__(self, *known: str) -> None:
        self._known = known
        self.calls = 0

    async def call(self, input: Any, context: ToolContext) -> str:
        self.calls += 1
        if "count" in input:
            raise ValueError(f"error {self.calls}")
        if input["q"] in self._known:
            return f"{input['q']}: yes"
        raise ValueError(f"no such page: {input['q']}")


def look(*pages: str, text: str = "", **more: Any) -> Reply:
    uses = [ToolUse(f"{at}{page}", "look", {"q": page, **more}) for at, page in enumerate(pages)]
    return Reply(text, tuple(uses))


async def run(replies: Sequence[AnyReply], *known: str) -> tuple[Tree, ScriptedProvider]:
    provider = ScriptedProvider(list(replies))
    return await run_tree(provider, tools=[Look(*known)]), provider


def warned(provider: ScriptedProvider) -> list[bool]:
    """Per request: whether its last message tells the model that it repeats itself."""
    return ["the same call" in request.last_user_text for request in provider.requests]


async def test_third_equal_failure_is_told_and_the_fourth_ends_the_agent() -> None:
    tree, provider = await run([look("x", text="I look.")] * 50)

    assert warned(provider) == [False, False, False, True]
    assert isinstance(tree.error, NoAnswer)
    assert "'look' 4 times" in str(tree.error)
    assert "no such page: x" in str(tree.error)
    assert tree.error.partial_result is not None
    assert tree.error.partial_result.final_response.startswith("I look.")


async def test_failures_before_a_correction_count() -> None:
    """An empty reply between begins the agent's turns anew, but not what it has tried."""
    tree, provider = await run([*[look("x")] * 3, "", look("x"), "Done."])

    assert isinstance(tree.error, NoAnswer)
    assert len(provider.requests) == 5


async def test_agent_that_hears_it_goes_on() -> None:
    tree, provider = await run([*[look("x")] * 3, look("y"), "y it is."], "y")

    assert tree.result.final_response == "y it is."
    assert warned(provider) == [False, False, False, True, False]


async def test_results_stand_before_the_word_to_the_model() -> None:
    _, provider = await run([look("x")] * 4)

    last = provider.requests[-1].messages[-1].content
    assert [type(block) for block in last] == [ToolResultBlock, type(last[-1])]


@pytest.mark.parametrize(
    ("replies", "requests"),
    [
        ([look("x"), look("z")] * 9, 7),  # alternating
        ([look("x", "y")] * 9, 4),  # beside a call that works, always with the same result
        ([look("x", "x", "x", "x")] * 9, 4),  # four at once are one turn
        ([look("x"), look("y")] * 9, 9),  # with a success between, new only the first time
        ([look("x", a=1, b=2), look("x", b=2, a=1)] * 9, 4),  # in another order
    ],
    ids=["alternating", "beside a success", "in parallel", "in a circle", "arguments turned"],
)
async def test_failures_are_equal_wherever_they_stand(
    replies: Sequence[AnyReply], requests: int
) -> None:
    tree, provider = await run(replies, "y")

    assert isinstance(tree.error, NoAnswer)
    assert len(provider.requests) == requests


@pytest.mark.parametrize(
    "replies",
    [
        [look(page) for page in "abcdefgh"],  # other arguments
        [look("x", count=1)] * 8,  # other errors
        [look("x"), look("y"), look("x"), look("z")] * 2,  # new results between
    ],
    ids=["arguments", "errors", "progress"],
)
async def test_what_differs_is_not_the_same_again(replies: Sequence[AnyReply]) -> None:
    tree, provider = await run([*replies, "Done."], "y", "z")

    assert tree.result.final_response == "Done."
    assert not any(warned(provider))


async def test_error_tells_the_person_what_failed_and_not_what_the_model_was_advised() -> None:
    class Strict(Look):
        async def call(self, input: Any, context: ToolContext) -> str:
            raise ValueError("`q` is no number. Call it again with a number.")

    tree = await run_tree(ScriptedProvider([look("x")] * 9), tools=[Strict()])

    assert "`q` is no number. Put the task in other words" in str(tree.error)


async def test_sub_agent_that_repeats_itself_fails_and_its_parent_goes_on() -> None:
    provider = by_agent({"root": [spawn("A"), "Without A."], "A": look("x")})

    tree = await run_tree(provider, tools=[Look()], max_depth=1)

    assert len(requests_of(provider, "A")) == 4
    assert tree.statuses() == {"root": "completed", "1": "failed"}
    assert tree.result.status is AgentStatus.COMPLETED
    assert "4 times" in requests_of(provider, "root")[-1].last_user_text
