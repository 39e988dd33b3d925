"""The result of a run, built from its agents' results and its record."""

from __future__ import annotations

from collections.abc import Mapping

from agentnb.core._run.agent import Agent, AgentEnd
from agentnb.core.collector import without_collector
from agentnb.core.errors import InvalidOutput
from agentnb.core.events import EventRow
from agentnb.core.reading import memories_in
from agentnb.core.spawn import final_text
from agentnb.core.tree import TreeFold
from agentnb.core.types import AgentMemoryContext, AgentStatus, OrchestratorResult, SubAgentResult


@without_collector()  # of thousands of agents, this makes many objects, which all stay
def result_of(
    root: Agent,
    end: AgentEnd,
    ends: Mapping[str, SubAgentResult],
    lifecycle_rows: list[EventRow],
) -> OrchestratorResult:
    """The result of a run.

    Args:
        root: The root agent, which has ended.
        end: How it ended.
        ends: Every agent's result, by id.
        lifecycle_rows: All rows of the record except text.
    """
    fold = TreeFold(is_over=True)
    fold.feed(lifecycle_rows)
    tree = fold.root()
    assert tree is not None
    everyone = [ends[node.agent_id] for node in tree.walk()]
    return OrchestratorResult(
        status=end.status,
        final_response=_final_response(end),
        agent_tree=tree,
        pre_spawn_text=root.said,
        sub_agent_results=tuple(root.results),
        synthesis=root.synthesis,
        total_tokens_used=fold.usage.total_tokens,
        usage=fold.usage,
        memory_contexts=tuple(
            AgentMemoryContext(str(each.agent_id), each.response, each.task)
            for each in everyone
            if each.status is AgentStatus.COMPLETED
        ),
        incomplete=tuple(_incomplete(root))
        or tuple(each for each in everyone[:1] if each.status is not AgentStatus.COMPLETED),
        cut=end.cut,
        memories=memories_in(lifecycle_rows, root.request.run_id),
        data=None if end.typed is None else end.typed.data,
    )


def _final_response(end: AgentEnd) -> str:
    if isinstance(end.error, InvalidOutput) and end.text:  # unchanged: code may try to parse it
        return end.text
    why = str(end.error) if end.error else end.reason * (end.status is AgentStatus.FAILED)
    return final_text(end.text, why or None)


def _incomplete(agent: Agent) -> list[SubAgentResult]:
    """Every task below `agent` that was not completed, in path order."""
    found: list[SubAgentResult] = []
    open_ = _tasks_of(agent)
    while open_:
        result, child = open_.pop()
        if result.status is not AgentStatus.COMPLETED:
            found.append(result)
        if child is not None:
            open_ += _tasks_of(child)
    return found


def _tasks_of(agent: Agent) -> list[tuple[SubAgentResult, Agent | None]]:
    """The results of an agent's tasks, the last one first, each with the agent that ran it."""
    children = {child.agent_id: child for child in agent.children}
    return [(r, children.get(r.agent_id or "")) for r in reversed(agent.results)]
