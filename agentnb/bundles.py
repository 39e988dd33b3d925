"""MIME bundles of our values as the last line of a cell: plain text and HTML.

A bundle is inert whatever a model wrote, about a page long whatever the size of the run, and
holds no ids or times, so that saved notebooks can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from agentnb.agent_view import AgentView, AgentViews
from agentnb.core.durable import (
    AgentMetadata,
    MemoryEntry,
    MemoryList,
    MessageKind,
    Task,
    TaskList,
    TaskStatus,
    ThreadMessage,
)
from agentnb.core.events import (
    AgentTextDelta,
    AgentWaiting,
    BudgetUpdate,
    Entries,
    Event,
    ModelCallStarted,
)
from agentnb.core.secrets import masked_as_known
from agentnb.core.shown import Bundle, Listed, counted
from agentnb.core.spawn import extract_text_before_spawn
from agentnb.core.text import LONGEST_LINE, block_quote, visible, visible_text
from agentnb.core.tree import TreeFold
from agentnb.core.types import (
    AgentMemoryContext,
    AgentMemoryContexts,
    AgentNode,
    AgentStatus,
    OrchestratorResult,
    Role,
    SubAgentResult,
    SubAgentResults,
    path_of,
)
from agentnb.prices import Cost, dollars
from agentnb.record import RunRecord
from agentnb.recovery import RecoveryReceipt
from agentnb.store.runs import RunList
from agentnb.views.markdown import answer_html, text_html
from agentnb.views.outline import GLYPHS, lines_below, outline, shortened
from agentnb.views.static import beginning, outline_html, static_bundle
from agentnb.views.table import ROWS, Table
from agentnb.views.typed_answer import answer_of

if TYPE_CHECKING:
    from agentnb.tasks.lists import ListedThread

OUTLINE_LINES = 100
"""Lines of agents and notes; a note below the root counts the rest."""
ANSWER_LENGTH = 20_000
"""Characters; a line at the end counts the rest."""
MESSAGES = 20
"""Newest messages of a thread that are shown; a line above them counts the rest."""
_TITLE_LENGTH = 80
_MEMORY_LENGTH = 300
"""Characters of a memory in a table: most are a sentence or two, to be read there."""
_MESSAGE_LENGTH = 2_000
"""Characters of a message that are shown."""
_TASK_LENGTH = 400
_MOST_CHILDREN = 40
_MOST_NOTES = 20

_NO_ANSWER = "There is no answer yet: the run has not ended."
_NOT_ALL = "(So far: the run has not ended.)"

_CUT = "The text was cut at a limit."

_Part = tuple[str, str]
"""Plain text and HTML of one part of a bundle; the parts stand one below the other."""


@singledispatch
def bundle_of(value: object) -> Bundle:
    """Text by MIME type: `text/plain`, and `text/html` for the types registered below."""
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
    """The root's text since its newest call began."""
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
    answer = _beginning(answer_of(result))
    return _tree_and_answer(result.agent_tree, answer, notes=notes_of(result))


def notes_of(result: OrchestratorResult) -> dict[str, list[str]]:
    """Why tasks were not completed, by path: an outline's notes when there is only a result."""
    root = result.agent_tree.path
    notes: dict[str, list[str]] = {root: ["the answer was cut at a limit"]} if result.cut else {}
    for one in result.incomplete:
        if one.agent_id is None:  # a skipped task has no line of its own: use its parent's
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
    """Path, status and task, the text as Markdown, its error, and its sub-agents."""
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
def _(memories: MemoryList) -> Bundle:
    rows = [(_path_of_source(one), one.text) for one in memories[:ROWS]]
    table = Table(("agent", "memory"), rows, length=len(memories), cell_width=_MEMORY_LENGTH)
    return _list(memories, table)


@bundle_of.register
def _(memory: MemoryEntry) -> Bundle:
    return _bundle(_line(f"memory of {_path_of_source(memory)}"), _answer(memory.text))


def _path_of_source(memory: MemoryEntry) -> str:
    return path_of(memory.source_agent_id, memory.source_agent_id.partition(".")[0])


@bundle_of.register
def _(entries: Entries) -> Bundle:
    """Grouped by agent, since the order between agents differs in every replay."""
    kinds_of: dict[str, list[str]] = {}
    for entry in entries:
        if not isinstance(entry.event, BudgetUpdate | AgentWaiting):  # their number varies
            agent_id = getattr(entry.event, "agent_id", None) or ""
            _add_kind(kinds_of.setdefault(agent_id, []), entry.event)
    fold = TreeFold(e for e in entries if not isinstance(e.event, AgentTextDelta))
    paths = {"": "(run)"} | {agent.agent_id: agent.path for agent in fold.in_path_order()}
    rows = [
        (path, " → ".join(kinds_of[agent_id]))
        for agent_id, path in paths.items()
        if agent_id in kinds_of
    ]
    return _list(entries, Table(("agent", "events"), rows, cell_width=400))


def _add_kind(kinds: list[str], event: Event) -> None:
    if not kinds or kinds[-1] != event.kind:  # a provider may cut its text anywhere
        kinds.append(event.kind)


@bundle_of.register
def _(cost: Cost) -> Bundle:
    parts = [_line(str(cost))]
    for name, part in (("model", cost.by_model), ("agent", cost.by_agent)):
        if part:
            rows = [(key, one.amount) for key, one in part.items()]
            parts.append(_table(Table((name, "cost"), rows)))
    return _bundle(*parts)


@bundle_of.register
def _(runs: RunList) -> Bundle:
    rows = [
        (one.name or one.task, _in_words(one.status), f"{one.agents:,}", f"{one.tokens_used:,}")
        for one in runs[:ROWS]
    ]
    table = Table(("run", "status", "agents", "tokens"), rows, length=len(runs))
    interrupted = sum(one.status == AgentStatus.INTERRUPTED for one in runs)
    return _list(runs, table, *([_how_to_recover(interrupted)] if interrupted else ()))


@bundle_of.register
def _(receipt: RecoveryReceipt) -> Bundle:
    """What was reused as a table, and below it what is uncertain and what changed."""
    reused, usd = receipt.reused, receipt.reused.cost_usd
    table = Table(
        ("calls reused", "tool calls reused", "tokens", "saved"),
        [
            (
                f"{reused.calls:,}",
                f"{reused.tool_calls:,}",
                f"{reused.tokens:,}",
                "no price is known" if usd is None else f"about {dollars(usd)}",
            )
        ],
    )
    lines = [_line(each) for each in receipt.told]
    bundle = _bundle(lines[0], _table(table), *lines[1:])
    return bundle | {"text/plain": "\n".join(plain for plain, _ in lines)}


def _how_to_recover(interrupted: int) -> str:
    if interrupted == 1:
        return "Resume the interrupted run: `%spawn recover`."
    return (
        "Resume the interrupted runs: `%spawn recover` for the newest of them, `%spawn recover "
        "2` for number 2 of `%spawn runs`."
    )


@bundle_of.register
def _(tasks: TaskList) -> Bundle:
    return list_bundle(tasks, ("", "task", "status", "priority", "notes"), _task_row)


def _task_row(_: int, task: Task) -> tuple[object, ...]:
    return task.id, task.title, task.status, task.priority, f"{len(task.notes):,}"


BOARD_ORDER = (
    TaskStatus.PENDING,
    TaskStatus.IN_PROGRESS,
    TaskStatus.BLOCKED,
    TaskStatus.COMPLETED,
    TaskStatus.ARCHIVED,
)
"""The order of tasks on a board: by status, and within one as they were created."""


def board_order(tasks: Iterable[Task]) -> list[Task]:
    """Tasks in the order of a board."""
    return sorted(tasks, key=lambda task: BOARD_ORDER.index(task.status))


def task_board(tasks: Sequence[Task], names: Mapping[str, str], *, none: str = "") -> Bundle:
    """Tasks as a table, for a terminal, too.

    Args:
        tasks: In the order in which they are shown.
        names: The agents' names, by thread: an agent is told by its name, since nbval compares it.
        none: Stands behind the headline of a board without tasks.
    """
    head = counted(len(tasks), "task", (task.status for task in tasks))
    if not tasks:
        return _bundle(_line(f"{head}{none}"))
    columns = ("", "task", "status", "priority", "agent", "notes")
    rows = [_board_row(task, names) for task in tasks[:ROWS]]
    return _bundle(_line(head), _table(Table(columns, rows, length=len(tasks))))


def _board_row(task: Task, names: Mapping[str, str]) -> tuple[str, ...]:
    return (
        task.id,
        task.title,
        task.status,
        task.priority,
        names.get(task.assigned_to or "", ""),
        f"{len(task.notes):,}",
    )


@bundle_of.register
def _(task: Task) -> Bundle:
    """Id, status, priority and title; the prompt; the newest notes."""
    title = visible(task.title, _TASK_LENGTH)
    parts = [_line(f"{task.id} {task.status} · {task.priority} · {title}"), _answer(task.prompt)]
    if (left_out := len(task.notes) - _MOST_NOTES) > 0:
        parts.append(_line(f"… and {left_out:,} older notes: `task.notes` has all"))
    return _bundle(*parts, *(_line(f"note: {note.text}") for note in task.notes[-_MOST_NOTES:]))


def list_bundle(
    values: Listed[Any], columns: Sequence[str], row_of: Callable[[int, Any], Sequence[object]]
) -> Bundle:
    """The bundle of a list whose type is not known here: its headline and a table.

    Args:
        values: The list.
        columns: The names of the columns.
        row_of: A value for each column, from an item's place and the item. Asked of those shown.
    """
    rows = [[*map(_cell, row_of(place, each))] for place, each in enumerate(values[:ROWS])]
    return _list(values, Table(columns, rows, length=len(values)))


def _cell(value: object) -> str:
    return _in_words(value) if isinstance(value, AgentStatus) else str(value)


def _list(values: Listed[Any] | Entries | RunList, table: Table, *below: str) -> Bundle:
    """A table. Its plain text is the `repr`, which IPython prints for any tuple or list."""
    parts = [_line(values.headline), *([_table(table)] if values else []), *map(_line, below)]
    return _bundle(*parts) | {"text/plain": repr(values)}


def table_bundle(headline: str, table: Table | None, *below: str) -> Bundle:
    """The bundle of a value whose type is not known here: its headline, and a table if it has one.

    Args:
        headline: The value in a line.
        table: Its rows.
        below: Lines below the table.
    """
    tables = [] if table is None else [_table(table)]
    return _bundle(_line(headline), *tables, *map(_line, below))


def thread_board(threads: Sequence[ListedThread]) -> Bundle:
    """Threads and their agents as a table, for a terminal, too. The first ones are read."""
    head = counted(len(threads), "thread")
    if not threads:
        return _bundle(_line(head))
    columns = ("", "thread", "kind", "model", "status", "messages")
    rows = [[*map(_cell, _thread_row(place, each))] for place, each in enumerate(threads[:ROWS])]
    return _bundle(_line(head), _table(Table(columns, rows, length=len(threads))))


def _thread_row(place: int, thread: ListedThread) -> tuple[object, ...]:
    agent = thread.metadata
    kind, model = ("", "") if agent is None else (agent.kind, f"{agent.provider}/{agent.model}")
    title = thread.title or "(no message yet)"
    return place, title, kind, model, thread.status, f"{len(thread.messages):,}"


# -- conversations --------------------------------------------------------------------------------


def thread_bundle(thread: ListedThread) -> Bundle:
    """A thread's title, and its newest messages: who said what.

    Each message is quoted, so that none can pass for the beginning of another.
    """
    messages, agent = thread.messages, thread.metadata
    above = len(messages) - MESSAGES
    title = visible(thread.title, _TITLE_LENGTH)
    count = counted(len(messages), "message")
    parts = [_line(f"{_in_words(thread.status)} · {title} · {count}")]
    if above > 0:
        parts.append(_line(f"… {counted(above, 'message')} above: `thread.messages` has all"))
    for message in messages[-MESSAGES:]:
        is_markdown = message.role is Role.ASSISTANT
        parts += [_line(_speaker(message, agent)), _quoted(message.content, is_markdown)]
    return _bundle(*parts)


def _speaker(message: ThreadMessage, agent: AgentMetadata | None) -> str:
    # By name, not by the id of a thread: nbval compares it.
    if message.role is Role.ASSISTANT:
        return f"agent {agent.name}:" if agent is not None else "agent:"
    if message.kind in (MessageKind.TASK_ASSIGNMENT, MessageKind.TASK_COMPLETION):
        return "task system:"
    who = "person" if message.author is None else "another agent"
    return f"{who}, a note:" if message.kind is MessageKind.NOTE else f"{who}:"


def _quoted(text: str, is_markdown: bool) -> _Part:
    said = beginning(masked_as_known(text), _MESSAGE_LENGTH) or "(nothing)"
    lines = visible_text(said).split("\n")
    # What was typed, and what the task system writes, keeps its lines.
    html = answer_html(said) if is_markdown else f"<p>{'<br>'.join(map(text_html, lines))}</p>\n"
    return "\n".join(block_quote(lines)), f"<blockquote>\n{html}</blockquote>"


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
    return beginning(masked_as_known(text), ANSWER_LENGTH)  # masked first: no secret is cut in two


def _table(table: Table) -> _Part:
    return table.plain, table.html


def _tree(root: AgentNode) -> _Part:
    first, notes = shortened(root, {}, lines=OUTLINE_LINES)
    tree = outline(first, notes=notes)
    return tree, outline_html(tree)
