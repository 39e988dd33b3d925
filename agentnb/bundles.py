"""What a value of ours shows as the last line of a cell: text and HTML, the same every time.

Nothing in it acts, whatever a model wrote; it holds no ids and no times, so that a saved
notebook can be compared; and it is about a page long, however large the run was. Who wants all
of it has the value itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any

from agentnb.agent_view import AgentView, AgentViews
from agentnb.core.events import (
    AgentTextDelta,
    AgentWaiting,
    BudgetUpdate,
    Entries,
    Event,
    ModelCallStarted,
)
from agentnb.core.secrets import masked_as_known
from agentnb.core.shown import Bundle, Listed
from agentnb.core.spawn import extract_text_before_spawn
from agentnb.core.text import LONGEST_LINE, visible, visible_text
from agentnb.core.tree import TreeFold
from agentnb.core.types import (
    AgentMemoryContext,
    AgentMemoryContexts,
    AgentNode,
    AgentStatus,
    OrchestratorResult,
    SubAgentResult,
    SubAgentResults,
)
from agentnb.prices import Cost
from agentnb.record import RunRecord
from agentnb.views.markdown import answer_html, text_html
from agentnb.views.outline import GLYPHS, lines_below, outline, shortened
from agentnb.views.static import beginning, outline_html, static_bundle
from agentnb.views.table import ROWS, Table

OUTLINE_LINES = 100
"""Of agents and notes; how many agents more there are stands below the root."""
ANSWER_LENGTH = 20_000
"""Characters; how many more there are stands at the end."""
_TASK_LENGTH = 400
_MOST_CHILDREN = 40

_NO_ANSWER = "There is no answer yet: the run has not come to its end."
_NOT_ALL = "(So far: the run has not come to its end.)"

_CUT = "The text was cut at a limit."

_Part = tuple[str, str]
"""One below the other they make a bundle: plain text and HTML."""


@singledispatch
def bundle_of(value: object) -> Bundle:
    """MIME types to text: `text/plain`, and `text/html` for every value that is known here."""
    return {"text/plain": repr(value)}


# -- runs: tree and answer ------------------------------------------------------------------------


@bundle_of.register
def _(run: RunRecord) -> Bundle:
    root = run.tree or AgentNode("", None, "root", run.task, 0, AgentStatus.PENDING)
    return _tree_and_answer(
        root,
        _beginning(run.output) if run.done else _so_far(run, root.agent_id),
        notes=lines_below(run.tool_counts, run.notes),
    )


def _so_far(run: RunRecord, root_id: str) -> str:
    """What the root has said since it was last called."""
    said: list[str] = []
    for entry in run.events:
        match entry.event:
            case ModelCallStarted(agent_id=agent_id) if agent_id == root_id:
                said.clear()
            case AgentTextDelta(agent_id=agent_id, text=text) if agent_id == root_id:
                said.append(text)
    words = extract_text_before_spawn("".join(said))
    return f"{_beginning(words)}\n\n{_NOT_ALL}" if words else _NO_ANSWER


@bundle_of.register
def _(result: OrchestratorResult) -> Bundle:
    answer = _beginning(result.final_response)
    return _tree_and_answer(result.agent_tree, answer, notes=notes_of(result))


def notes_of(result: OrchestratorResult) -> dict[str, list[str]]:
    """By path: why a task was not completed. What an outline shows where there is no run to ask."""
    root = result.agent_tree.path
    notes: dict[str, list[str]] = {root: ["the answer was cut at a limit"]} if result.cut else {}
    for one in result.incomplete:
        if one.agent_id is None:  # it has no line of its own: its parent's
            parent = one.path.rpartition(".")[0] or root
            notes.setdefault(parent, []).append(f"skipped: {one.task} ({one.error})")
        elif one.error:
            notes.setdefault(one.path, []).append(_why(one.status, one.error))
    return notes


def _tree_and_answer(root: AgentNode, answer: str, *, notes: Mapping[str, Sequence[str]]) -> Bundle:
    first, kept = shortened(root, notes, lines=OUTLINE_LINES)
    return static_bundle(first, answer, notes=kept)


@bundle_of.register
def _(root: AgentNode) -> Bundle:
    return _bundle(_tree(root))


# -- one agent ------------------------------------------------------------------------------------


@bundle_of.register
def _(agent: AgentView) -> Bundle:
    """Path, status and task, the text as Markdown, what is wrong with it, and who is below."""
    parts = [
        _head(agent.status, agent.task, path=agent.path),
        *_said(agent.status, agent.text, agent.error),
    ]
    if agent.cut:
        parts.append(_line(_CUT))
    if agent.children:
        more = len(agent.children) - _MOST_CHILDREN
        rest = f" … and {more:,} more" if more > 0 else ""
        parts.append(_line(f"sub-agents: {', '.join(agent.children[:_MOST_CHILDREN])}{rest}"))
    return _bundle(*parts)


@bundle_of.register
def _(agents: AgentViews) -> Bundle:
    rows = [
        (one.path, _in_words(one.status), one.task, one.text, one.error or "")
        for one in agents[:ROWS]
    ]
    table = Table(("path", "status", "task", "answer", "error"), rows, length=len(agents))
    return _list(agents, table)


@bundle_of.register
def _(result: SubAgentResult) -> Bundle:
    said = _said(result.status, result.response, result.error)
    cut = [_line(_CUT)] if result.cut else []
    return _bundle(_head(result.status, result.task, path=result.path), *said, *cut)


def _head(status: AgentStatus, task: str, *, path: str = "") -> _Part:
    return _line(f"{path} {_in_words(status)} · {visible(task, _TASK_LENGTH)}".lstrip())


def _said(status: AgentStatus, text: str, error: str | None) -> list[_Part]:
    parts = [_answer(text)] if text.strip() or not error else []
    return parts + ([_line(_why(status, error))] if error else [])


@bundle_of.register
def _(memory: AgentMemoryContext) -> Bundle:
    return _bundle(
        _line(visible(memory.task_description, _TASK_LENGTH)), _answer(memory.response_text)
    )


def _in_words(status: AgentStatus) -> str:
    return f"{GLYPHS[status]} {status}"


def _why(status: AgentStatus, error: str) -> str:
    return f"error: {error}" if status is AgentStatus.FAILED else error


# -- lists ----------------------------------------------------------------------------------------


@bundle_of.register
def _(results: SubAgentResults) -> Bundle:
    rows = [
        (one.path, _in_words(one.status), one.task, one.response, one.error or "")
        for one in results[:ROWS]
    ]
    table = Table(("path", "status", "task", "answer", "error"), rows, length=len(results))
    return _list(results, table)


@bundle_of.register
def _(memories: AgentMemoryContexts) -> Bundle:
    rows = [
        (str(place), one.task_description, one.response_text)
        for place, one in enumerate(memories[:ROWS])
    ]
    table = Table(("", "task", "answer"), rows, length=len(memories))
    return _list(memories, table)


@bundle_of.register
def _(entries: Entries) -> Bundle:
    """By agent, since the order between agents is another one in every replay."""
    told: dict[str, list[str]] = {}
    for entry in entries:
        if not isinstance(entry.event, BudgetUpdate | AgentWaiting):  # as many as time allowed
            _tell(told.setdefault(getattr(entry.event, "agent_id", ""), []), entry.event)
    fold = TreeFold(e for e in entries if not isinstance(e.event, AgentTextDelta))
    paths = {"": "(run)"} | {agent.agent_id: agent.path for agent in fold.in_path_order()}
    rows = [
        (path, " → ".join(told[agent_id])) for agent_id, path in paths.items() if agent_id in told
    ]
    return _list(entries, Table(("agent", "events"), rows, cell_width=400))


def _tell(kinds: list[str], event: Event) -> None:
    if not kinds or kinds[-1] != event.kind:  # text comes in as many pieces as the provider likes
        kinds.append(event.kind)


@bundle_of.register
def _(cost: Cost) -> Bundle:
    parts = [_line(str(cost))]
    for name, part in (("model", cost.by_model), ("agent", cost.by_agent)):
        if part:
            rows = [(key, one.amount) for key, one in part.items()]
            parts.append(_table(Table((name, "cost"), rows)))
    return _bundle(*parts)


def _list(values: Listed[Any] | Entries, table: Table) -> Bundle:
    """A table on a page. IPython prints a tuple or list by its `repr`, whatever a bundle holds."""
    parts = [_line(values.headline), *([_table(table)] if values else [])]
    return _bundle(*parts) | {"text/plain": repr(values)}


# -- parts ----------------------------------------------------------------------------------------


def _bundle(*parts: _Part) -> Bundle:
    plain, html = zip(*parts, strict=True)
    return {
        "text/plain": "\n\n".join(plain),
        "text/html": "\n".join(['<div class="agentnb-result">', *html, "</div>"]),
    }


def _line(text: str) -> _Part:
    line = visible(text, LONGEST_LINE)
    return line, f"<p>{text_html(line)}</p>"


def _answer(text: str) -> _Part:
    answer = _beginning(text) or "(no output)"
    return visible_text(answer), f'<div class="agentnb-answer">\n{answer_html(answer)}</div>'


def _beginning(text: str) -> str:
    return beginning(masked_as_known(text), ANSWER_LENGTH)  # not cut within a secret


def _table(table: Table) -> _Part:
    return table.plain, table.html


def _tree(root: AgentNode) -> _Part:
    first, notes = shortened(root, {}, lines=OUTLINE_LINES)
    tree = outline(first, notes=notes)
    return tree, outline_html(tree)
