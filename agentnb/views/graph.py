"""A run's tree as other people's libraries take it: a networkx graph, flat records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentnb.core.tree import ToolCount
from agentnb.core.types import AgentNode

if TYPE_CHECKING:
    import networkx as nx


def as_graph(root: AgentNode | None) -> nx.DiGraph[str]:
    """One node per agent, by agent id; edges from parent to child.

    Node attributes: `path`, `task`, `status`, `depth`, `model`, `tokens` (the agent's own) and
    `duration` (milliseconds), all plain texts and numbers, as networkx's file formats want them.
    Empty before the root was spawned.
    """
    import networkx as nx  # heavy: only for those who ask for a graph

    graph: nx.DiGraph[str] = nx.DiGraph()
    for node in root.walk() if root is not None else ():
        graph.add_node(
            node.agent_id,
            path=node.path,
            task=node.task,
            status=str(node.status),
            depth=node.depth,
            model=node.model,
            tokens=node.tokens_used,
            duration=node.duration_ms,
        )
        if node.parent_id is not None:
            graph.add_edge(node.parent_id, node.agent_id)
    return graph


_NO_TOOLS = ToolCount(0, 0)


def as_records(
    root: AgentNode | None, tools: Mapping[str, ToolCount] | None = None
) -> list[dict[str, Any]]:
    """One flat dict per agent in path order, as `pandas.DataFrame` takes it.

    Args:
        root: The tree.
        tools: By path, the tool calls of those who made any.
    """
    nodes = root.walk() if root is not None else ()
    counts = [(node, (tools or {}).get(node.path, _NO_TOOLS)) for node in nodes]
    return [
        {
            "path": node.path,
            "task": node.task,
            "status": str(node.status),
            "depth": node.depth,
            "model": node.model,
            "tokens_used": node.tokens_used,
            "duration_ms": node.duration_ms,
            "agent_id": node.agent_id,
            "parent_id": node.parent_id,
            "tool_calls": count.calls,
            "tool_errors": count.errors,
        }
        for node, count in counts
    ]
