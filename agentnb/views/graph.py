"""Exports a run's tree: as a networkx graph, or as flat records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentnb.core.secrets import masked_as_known
from agentnb.core.tree import AgentState, SkippedTask, TreeFold
from agentnb.core.types import AgentNode, AgentStatus, path_key

if TYPE_CHECKING:
    import networkx as nx


def as_graph(root: AgentNode | None) -> nx.DiGraph[str]:
    """One node per agent, by agent id; edges from parent to child.

    Node attributes: `path`, `task`, `status`, `depth`, `model`, `tokens` (the agent's own) and
    `duration` (milliseconds), all strings and numbers, as networkx's file formats need.
    Empty before the root has spawned.
    """
    import networkx as nx  # heavy: only when a graph is requested

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


def as_records(
    root: AgentNode | None,
    fold: TreeFold,
    *,
    answers: Mapping[str, str],
    costs: Mapping[str, tuple[float | None, float | None]],
) -> list[dict[str, Any]]:
    """One flat dict per agent and per skipped task in path order, for `pandas.DataFrame`.

    Args:
        root: The tree.
        fold: The fold of the same events.
        answers: Each agent's final or current text, by agent id.
        costs: US dollars of an agent's own calls, and of its whole subtree, by path.
    """
    nodes = [*root.walk()] if root is not None else []
    tokens_below: dict[str, int] = {}
    for node in reversed(nodes):  # children before their parent
        below = sum(tokens_below[child.path] for child in node.children)
        tokens_below[node.path] = node.tokens_used + below
    rows = {
        node.path: _agent_row(
            node,
            fold.agents[node.agent_id],
            answer=answers[node.agent_id],
            subtree_tokens=tokens_below[node.path],
            costs=costs[node.path],
        )
        for node in nodes
    }
    for path, parent, task in fold.skipped():
        if parent.path in rows:
            rows[path] = _skipped_row(path, parent, task)
    return [rows[path] for path in sorted(rows, key=path_key)]


def _agent_row(
    node: AgentNode,
    agent: AgentState,
    *,
    answer: str,
    subtree_tokens: int,
    costs: tuple[float | None, float | None],
) -> dict[str, Any]:
    return {
        "path": node.path,
        "task": masked_as_known(node.task),
        "status": str(node.status),
        "answer": masked_as_known(answer),
        "error": agent.error and masked_as_known(agent.error),
        "cut": agent.cut,
        "notes": masked_as_known("; ".join(agent.notes)) or None,
        "depth": node.depth,
        "model": node.model,
        "calls": agent.calls,
        "tool_calls": agent.tool_calls,
        "tool_errors": agent.tool_errors,
        "tokens_used": node.tokens_used,
        "cached_tokens": sum(each.cache_read_tokens for each in agent.usage.values()),
        "subtree_tokens": subtree_tokens,
        "cost_usd": costs[0],
        "subtree_cost_usd": costs[1],
        "duration_ms": node.duration_ms,
        "agent_id": node.agent_id,
        "parent_id": node.parent_id,
    }


def _skipped_row(path: str, parent: AgentState, task: SkippedTask) -> dict[str, Any]:
    return {
        "path": path,
        "task": masked_as_known(task.task),
        "status": str(AgentStatus.SKIPPED),
        "answer": "",
        "error": masked_as_known(task.reason),
        "cut": False,
        "notes": None,
        "depth": parent.depth + 1,
        "model": "",
        "calls": 0,
        "tool_calls": 0,
        "tool_errors": 0,
        "tokens_used": 0,
        "cached_tokens": 0,
        "subtree_tokens": 0,
        "cost_usd": 0.0,
        "subtree_cost_usd": 0.0,
        "duration_ms": 0,
        "agent_id": None,
        "parent_id": parent.agent_id,
    }
