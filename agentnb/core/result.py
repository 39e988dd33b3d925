"""What a run came to, put together from its agents' ends and from its record."""

from __future__ import annotations

from collections.abc import Mapping

from agentnb.core.events import EventRow
from agentnb.core.life import Agent, Ending, incomplete, without_block
from agentnb.core.tree import TreeFold
from agentnb.core.types import (
    AgentMemoryContext,
    AgentStatus,
    OrchestratorResult,
    SubAgentResult,
)


def result_of(
    root: Agent,
    ending: Ending,
    ends: Mapping[str, SubAgentResult],
    milestones: list[EventRow],
) -> OrchestratorResult:
    """The result of a run.

    Args:
        root: The agent at the top, which has ended.
        ending: How.
        ends: What came of each agent, by id.
        milestones: All rows of the record that are no text.
    """
    fold = TreeFold()
    fold.feed(milestones)
    tree = fold.root()
    assert tree is not None
    everyone = [ends[node.agent_id] for node in tree.walk()]
    return OrchestratorResult(
        status=ending.status,
        final_response=_final_response(ending),
        agent_tree=tree,
        pre_spawn_text=root.said,
        sub_agent_results=tuple(root.results),
        synthesis=root.synthesis,
        total_tokens_used=fold.usage.total_tokens,
        usage=fold.usage,
        memory_contexts=tuple(
            AgentMemoryContext(str(end.agent_id), end.response, end.task)
            for end in everyone
            if end.status is AgentStatus.COMPLETED
        ),
        incomplete=tuple(incomplete(root))
        or tuple(end for end in everyone[:1] if end.status is not AgentStatus.COMPLETED),
        cut=ending.cut,
    )


def _final_response(ending: Ending) -> str:
    """The root's last words; for a run that ended early, what there is and why it ended."""
    if ending.error is None:
        return ending.text or "(no output)"
    parts = [part for part in (ending.text, f"*{ending.error}*") if part]
    return without_block("\n\n".join(parts))
