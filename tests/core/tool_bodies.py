"""Tools whose bodies a test gives, and models that call them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from agentnb.core.events import ModelCallStarted
from agentnb.core.protocols import ToolContext
from agentnb.core.types import ToolResultBlock, ToolSpec, ToolUse
from agentnb.providers.scripted import Reply, ScriptedProvider
from tests.support import Tree, run_tree

Body = Callable[[Mapping[str, Any], ToolContext], Awaitable[Any]]


class Tool:
    """A tool whose body a test gives."""

    def __init__(self, body: Body, name: str = "look", timeout_s: float | None = None) -> None:
        self.spec = ToolSpec(name, "Looks.", {"type": "object"})
        self.timeout_s = timeout_s
        self.effects = True
        self._body = body

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str:
        return await self._body(input, context)  # type: ignore[no-any-return]


def on_thread(function: Callable[[ToolContext], Any]) -> Body:
    async def body(_: Mapping[str, Any], context: ToolContext) -> Any:
        return await context.on_thread(lambda: function(context))

    return body


def order(*names: str, **input: Any) -> Reply:
    uses = tuple(ToolUse(f"t{n}", name, input) for n, name in enumerate(names, 1))
    return Reply("I look.", tool_uses=uses)


def looking(**input: Any) -> ScriptedProvider:
    return ScriptedProvider([order("look", **input), "Seen."])


def told(tree: Tree) -> tuple[ToolResultBlock, ...]:
    """What the model was told after its first turn."""
    second = tree.of(ModelCallStarted)[1].request
    return second.messages[-1].content  # type: ignore[return-value]


async def outcome_of(body: Body, **limits: Any) -> tuple[str, bool]:
    """What the model is told of one call, in a run that goes on to its answer."""
    tree = await run_tree(looking(), tools=[Tool(body)], **limits)
    assert tree.result.final_response == "Seen."
    (block,) = told(tree)
    return block.text, block.is_error
