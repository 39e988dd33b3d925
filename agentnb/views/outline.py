"""A tree of agents as plain text: what is left of a run when nothing else can be shown.

The same tree gives the same text, in every replay: paths and no ids, no times, no tokens, no
colours. Each agent has exactly one line, whatever its task holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap

from agentnb.core.tree import ToolCount
from agentnb.core.types import AgentNode, AgentStatus
from agentnb.views.text import visible

# Single-width, in the Basic Multilingual Plane, and none that a phone draws as an emoji.
GLYPHS: Mapping[AgentStatus, str] = {
    AgentStatus.PENDING: "○",
    AgentStatus.RUNNING: "►",
    AgentStatus.WAITING: "‖",
    AgentStatus.COMPLETED: "✓",
    AgentStatus.FAILED: "✗",
    AgentStatus.CANCELLED: "■",
    AgentStatus.EXHAUSTED: "◔",
    AgentStatus.INTERRUPTED: "¦",
    AgentStatus.SKIPPED: "–",  # noqa: RUF001 - a dash, as in "nothing came of it"
}
"""One shape for each status, so that it is never told by colour alone."""

TASK_WIDTH = 72
NOTE_WIDTH = 88
"""A longer note goes on in the next line: errors end with what to do."""
_NOTE_LENGTH = 400
_PATH_WIDTH = 40

_DRAWN_LEVELS = 12
"""Levels that are indented. Below them the path alone tells the place: indenting a chain of
10,000 agents would take 150 million blanks."""


def outline(root: AgentNode, *, notes: Mapping[str, Sequence[str]] | None = None) -> str:
    """The tree below `root`, one line for each agent: path, status, task.

    Args:
        root: The tree.
        notes: Further lines to show below an agent, by its path: an error, a skipped task.

    Returns:
        The lines, joined, without a line break at the end.
    """
    notes = notes or {}
    lines: list[str] = []
    # An entry: the node, what stands before its line, what stands before all below it.
    open_nodes = [(root, "", "")]
    while open_nodes:
        node, lead, indent = open_nodes.pop()
        lines.append(lead + _line(node))
        rail = indent + ("│  " if node.children else "   ")
        lines.extend(rail + line for note in notes.get(node.path, ()) for line in _wrapped(note))
        below = [_placed(child, indent, last=False) for child in node.children[:-1]]
        below += [_placed(child, indent, last=True) for child in node.children[-1:]]
        open_nodes.extend(reversed(below))
    return "\n".join(lines)


def lines_below(
    tools: Mapping[str, ToolCount], notes: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """By path, what an outline shows below an agent: its tool calls, and then its notes."""
    paths = dict.fromkeys([*tools, *notes])
    return {
        path: [*([str(tools[path])] if path in tools else []), *notes.get(path, ())]
        for path in paths
    }


def _wrapped(note: str) -> list[str]:
    text = visible(note, _NOTE_LENGTH)
    return wrap(text, NOTE_WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _placed(node: AgentNode, indent: str, *, last: bool) -> tuple[AgentNode, str, str]:
    if len(indent) >= 3 * _DRAWN_LEVELS:
        return node, f"{indent}┄┄ ", indent
    elbow, rail = ("└─ ", "   ") if last else ("├─ ", "│  ")
    return node, indent + elbow, indent + rail


def _line(node: AgentNode) -> str:
    head = f"{visible(node.path, _PATH_WIDTH)} {GLYPHS[node.status]} {node.status}"
    task = visible(node.task, TASK_WIDTH)
    return f"{head} · {task}" if task else head
