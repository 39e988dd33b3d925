"""A tree of agents as plain text, for places where nothing else can be shown.

The same tree gives the same text in every replay: paths, but no ids, times, tokens or colours. Each
agent has exactly one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from textwrap import wrap

from agentnb.core.shown import counted
from agentnb.core.text import visible
from agentnb.core.tree import ToolCount
from agentnb.core.types import AgentNode, AgentStatus

# Single-width, in the Basic Multilingual Plane, and never drawn as an emoji.
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
"""One shape per status, so that colour is never the only sign."""

TASK_WIDTH = 72
NOTE_WIDTH = 88
"""Longer notes are wrapped, not cut: errors end with what to do."""
_NOTE_LENGTH = 400
_PATH_WIDTH = 40

MOST_LINES = 2_000
"""Most lines of a whole run's outline: more than the agents that a run may have by default."""
MOST_NOTES = 20
"""Most notes of one agent in a whole run's outline."""

_DRAWN_LEVELS = 12
"""Most levels that are indented. Deeper ones only show their path: indenting a chain of 10,000
agents would take 150 million blanks."""


def outline(root: AgentNode, *, notes: Mapping[str, Sequence[str]] | None = None) -> str:
    """The tree below `root`, one line for each agent: path, status, task.

    Args:
        root: The tree.
        notes: Lines to show below an agent, by its path: an error, a skipped task.

    Returns:
        The lines, joined, without a line break at the end.
    """
    return "".join(text for text, _ in outline_parts(root, notes=notes))


def outline_parts(
    root: AgentNode,
    *,
    notes: Mapping[str, Sequence[str]] | None = None,
    unreported: Mapping[str, Sequence[str]] | None = None,
) -> list[tuple[str, bool]]:
    """The outline in parts: those that repeat a live view, and those that add to it.

    Unreported notes add to it, with the path and status of their agent. They are readable alone:
    without the lines of the tree, indented by two blanks.

    Args:
        root: The tree.
        notes: As for `outline`.
        unreported: The `notes` that a live view does not show.

    Returns:
        Each part with whether it adds to a live view; the flag alternates.
    """
    notes, unreported = notes or {}, unreported or {}
    parts: list[tuple[str, bool]] = []
    # An entry: the node, the prefix of its line, the prefix of all lines below.
    open_nodes = [(root, "", "")]
    while open_nodes:
        node, lead, indent = open_nodes.pop()
        own, adding = notes.get(node.path, ()), frozenset(unreported.get(node.path, ()))
        head, task = _line(node)
        adds = not adding.isdisjoint(own)
        parts += [(lead, False), (head, adds), (task, False), ("\n", adds)]
        rail = indent + ("│  " if node.children else "   ")
        for note in own:
            adds = note in adding
            for line in _wrapped(note):
                parts += [(rail[:-2], False), (f"{rail[-2:]}{line}\n", adds)]
        below = [_placed(child, indent, last=False) for child in node.children[:-1]]
        below += [_placed(child, indent, last=True) for child in node.children[-1:]]
        open_nodes.extend(reversed(below))
    last, adds = parts[-1]
    parts[-1] = (last.removesuffix("\n"), adds)
    return [
        ("".join(text for text, _ in group), adds)
        for adds, group in groupby(filter(itemgetter(0), parts), itemgetter(1))
    ]


def lines_below(
    tools: Mapping[str, ToolCount], notes: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """The lines below each agent, by path: its tool calls, then its notes."""
    paths = dict.fromkeys([*tools, *notes])
    return {
        path: [*([str(tools[path])] if path in tools else []), *notes.get(path, ())]
        for path in paths
    }


def outline_shortened(root: AgentNode, notes: Mapping[str, Sequence[str]]) -> str:
    """The outline of a tree and its notes, cut to a readable length."""
    first, kept = shortened(root, notes, lines=MOST_LINES, notes_each=MOST_NOTES)
    return outline(first, notes=kept)


def shortened(
    root: AgentNode,
    notes: Mapping[str, Sequence[str]],
    *,
    lines: int,
    notes_each: int = 5,
    unreported: dict[str, list[str]] | None = None,
) -> tuple[AgentNode, dict[str, list[str]]]:
    """Cut a tree to its first lines; a note of the root says what is left out.

    Args:
        root: The tree.
        notes: By path, as for `outline`.
        lines: Agents after this many lines are left out.
        notes_each: Most notes of one agent.
        unreported: As for `outline_parts`. Notes about omitted unreported ones are added to it.

    Returns:
        The arguments for `outline`.
    """
    unreported = {} if unreported is None else unreported
    shown: list[AgentNode] = []
    kept: dict[str, list[str]] = {}
    left_out: list[AgentNode] = []
    for node in root.walk():
        if lines <= 0:
            left_out.append(node)
            continue
        shown.append(node)
        below = notes.get(node.path, ())
        if below:
            more = _more_notes(len(below) - notes_each)
            kept[node.path] = [*below[:notes_each], *more]
            if not set(below[notes_each:]).isdisjoint(unreported.get(node.path, ())):
                unreported[node.path] += more
        lines -= 1 + sum(len(_wrapped(note)) for note in kept.get(node.path, ()))
    if left_out:
        count = counted(len(left_out), "further agent", (node.status for node in left_out))
        kept.setdefault(root.path, []).append(f"not shown: {count}")
        if any(node.path in unreported for node in left_out):
            unreported.setdefault(root.path, []).append(f"not shown: {count}")
    return _without_others(shown), kept


def _more_notes(count: int) -> list[str]:
    return [counted(count, "further note")] if count > 0 else []


def _without_others(shown: Sequence[AgentNode]) -> AgentNode:
    """The tree of only these agents, given in path order, root first."""
    made: dict[int, AgentNode] = {}
    for node in reversed(shown):  # children before their parent
        below = tuple(made[id(child)] for child in node.children if id(child) in made)
        made[id(node)] = replace(node, children=below)
    return made[id(shown[0])]


def _wrapped(note: str) -> list[str]:
    text = visible(note, _NOTE_LENGTH)
    return wrap(text, NOTE_WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _placed(node: AgentNode, indent: str, *, last: bool) -> tuple[AgentNode, str, str]:
    if len(indent) >= 3 * _DRAWN_LEVELS:
        return node, f"{indent}┄┄ ", indent
    elbow, rail = ("└─ ", "   ") if last else ("├─ ", "│  ")
    return node, indent + elbow, indent + rail


def _line(node: AgentNode) -> tuple[str, str]:
    """An agent's path with glyph and status, and its task."""
    head = f"{visible(node.path, _PATH_WIDTH)} {GLYPHS[node.status]} {node.status}"
    task = visible(node.task, TASK_WIDTH)
    return head, f" · {task}" if task else ""
