"""Two tools with which agents remember facts for later runs, and find those of earlier ones.

`Session(tools=["memory"])` gives agents these tools. The facts are in the session's store.
"""

from __future__ import annotations

from functools import cache

from agentnb.core.errors import ToolError
from agentnb.core.prompt import listed
from agentnb.core.protocols import AGAIN, Memory, Tool, ToolContext
from agentnb.tools.function import tool

MOST_IN_FACT = 2_000
MOST_IN_QUERY = 10_000
"""Characters."""
MOST_RECALLED = 10
_NO_MEMORY = (
    "Nothing keeps what agents remember in this run: go on without it. (A run of a `Session` can "
    "remember; `RequestContext(memory=…)` is for any other.)"
)


@cache
def memory_tools() -> tuple[Tool, ...]:
    """`remember` and `recall`."""
    keeps, finds = tool(remember), tool(recall)
    keeps.on_replay = AGAIN
    finds.effects = False
    return keeps, finds


# Both run on the runtime's loop, as `ToolContext.memory` asks.


async def remember(context: ToolContext, fact: str) -> str:
    """Remember a fact for later runs: their agents can recall it when it matters to their task.

    Args:
        context: Keeps the fact.
        fact: One fact in a sentence or two that can be understood alone.
    """
    memory = _memory_of(context)
    fact = fact.strip()
    if not fact:
        raise ToolError("`fact` is blank: say in a sentence what is to be remembered.")
    if len(fact) > MOST_IN_FACT:
        raise ToolError(
            f"`fact` has {len(fact):,} characters, and a memory holds {MOST_IN_FACT:,} at most: "
            "shorten it, or remember several facts."
        )
    await memory.remember(fact)
    return "Remembered."


async def recall(context: ToolContext, query: str) -> str:
    """Look up what agents remembered in earlier runs, and in this one.

    Args:
        context: Finds the facts.
        query: A few words that the fact may contain.
    """
    memory = _memory_of(context)
    if not query.strip():
        raise ToolError("`query` is blank: give a few words that the fact may contain.")
    if len(query) > MOST_IN_QUERY:
        raise ToolError(f"`query` has {len(query):,} characters: give a few words.")
    found = await memory.recall(query, MOST_RECALLED)
    return listed(each.text for each in found) or "Nothing that was remembered has these words."


def _memory_of(context: ToolContext) -> Memory:
    if context.memory is None:
        raise ToolError(_NO_MEMORY)
    return context.memory
