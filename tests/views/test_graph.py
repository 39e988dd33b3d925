"""A tree as other people's libraries take it."""

from __future__ import annotations

import io

import networkx as nx

from agentnb.core.tree import TreeFold
from agentnb.core.types import AgentNode, AgentStatus
from agentnb.views.graph import as_graph, as_records

LEAF = AgentNode("nb.1.1", "nb.1", "1.1", "leaf", 2, AgentStatus.FAILED, "p/m", 5, 6)
MIDDLE = AgentNode("nb.1", "nb", "1", "middle", 1, AgentStatus.RUNNING, "p/m", 7, 8, (LEAF,))
OTHER = AgentNode("nb.2", "nb", "2", "other", 1, AgentStatus.COMPLETED, "p/n", 9, 10)
ROOT = AgentNode("nb", None, "root", "top", 0, AgentStatus.WAITING, "p/m", 1, 2, (MIDDLE, OTHER))


def test_graph_has_a_node_for_each_agent_by_its_id_and_edges_from_parent_to_child() -> None:
    graph = as_graph(ROOT)

    assert list(graph) == ["nb", "nb.1", "nb.1.1", "nb.2"]
    assert sorted(graph.edges) == [("nb", "nb.1"), ("nb", "nb.2"), ("nb.1", "nb.1.1")]
    assert dict(graph.nodes["nb.1.1"]) == {
        "path": "1.1", "task": "leaf", "status": "failed", "depth": 2, "model": "p/m",
        "tokens": 5, "duration": 6,
    }  # fmt: skip
    assert nx.is_arborescence(graph)


def test_graph_can_be_written_in_networkxs_own_formats() -> None:
    file = io.BytesIO()

    nx.write_graphml(as_graph(ROOT), file)
    file.seek(0)

    back = nx.read_graphml(file)
    assert [*back.nodes(data=True)] == [*as_graph(ROOT).nodes(data=True)]
    assert set(back.edges) == set(as_graph(ROOT).edges)


def test_nothing_is_there_before_the_root() -> None:
    assert len(as_graph(None)) == 0
    assert as_records(None, TreeFold(), answers={}, costs={}) == []
