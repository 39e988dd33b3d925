"""A tree as plain text with marks at some agents, to show why a run differs from expectations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agentnb.core.shown import counted
from agentnb.core.text import visible
from agentnb.core.types import AgentNode
from agentnb.views.outline import outline

MOST_LINES = 15
"""Most agents that are shown of a tree: few enough for the longest error message."""
_MOST_MARKED = 5
_NOTE_LENGTH = 80


def marked_outline(root: AgentNode, marks: Mapping[str, str]) -> str:
    """One line per agent: path, status, task, tokens. Lines of marked agents begin with `> `.

    A long tree is shortened: the first marked agents stay, with their ancestors and siblings.

    Args:
        root: The tree.
        marks: By path: a few words for the end of the agent's line; they may be empty.
    """
    nodes = [*root.walk()]
    # Without notes, the outline has one line per agent, in the same order.
    lines = [
        _line(text, node, marks.get(node.path))
        for node, text in zip(nodes, outline(root).split("\n"), strict=True)
    ]
    marked = [place for place, node in enumerate(nodes) if node.path in marks]
    return "\n".join(_with_gaps(lines, _chosen(nodes, marked)))


def _line(text: str, node: AgentNode, note: str | None) -> str:
    line = f"{text} · {counted(node.tokens_used, 'token')}"
    if note is None:
        return f"  {line}"
    return f"> {line}" + (f"  <- {visible(note, _NOTE_LENGTH)}" if note else "")


def _chosen(nodes: Sequence[AgentNode], marked: Sequence[int]) -> list[int]:
    """The places of the agents that are shown, in order."""
    if len(nodes) <= MOST_LINES:
        return [*range(len(nodes))]
    middle = marked[0] if marked else 0
    chosen = {0, *marked[:_MOST_MARKED], *_above(nodes, middle)[:_MOST_MARKED]}
    for distance in range(1, len(nodes)):
        for place in (middle - distance, middle + distance):
            if len(chosen) >= MOST_LINES:
                return sorted(chosen)
            if 0 <= place < len(nodes):
                chosen.add(place)
    return sorted(chosen)


def _above(nodes: Sequence[AgentNode], place: int) -> list[int]:
    """The places of an agent's ancestors, nearest first."""
    places = {node.agent_id: at for at, node in enumerate(nodes)}
    found: list[int] = []
    parent = nodes[place].parent_id
    while parent in places:
        found.append(places[parent])
        parent = nodes[places[parent]].parent_id
    return found


def _with_gaps(lines: Sequence[str], chosen: Sequence[int]) -> Iterator[str]:
    for place, following in zip(chosen, [*chosen[1:], len(lines)], strict=True):
        yield lines[place]
        if (left_out := following - place - 1) > 0:
            yield f"  … {counted(left_out, 'agent')} not shown"
