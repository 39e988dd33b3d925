"""The tools by which an agent gives and does tasks: `task_create`, `task_list` and so on.

They work over a `TaskBoard`, which holds the rules. Every wrong argument is an error result that
says what would be right. In what a model reads, other agents' text is quoted or on one line: it
cannot be taken for the board's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

from agentnb.core.durable import Priority, Task, TaskNote, TaskStatus, ToolCallId
from agentnb.core.errors import AgentnbError, NoSuchThread, ToolError
from agentnb.core.protocols import AGAIN, RECORDED, Tool, ToolContext
from agentnb.core.quotation import behind_marks
from agentnb.core.shown import listed
from agentnb.core.text import literal, one_line
from agentnb.core.types import ToolSpec
from agentnb.tools.toolset import TASKS, TOOLSETS

_MOST_LISTED = 200
_MOST_NOTES = 20
_MOST_OF_PROMPT = 40_000
_MOST_OF_NOTE = 2_000
"""Characters."""


class TaskBoard(Protocol):
    """The tasks of a session. `by` is the thread of the agent that acts, `call` its tool call.

    A change is marked with its call, so that it is known later whether that was done.

    A wrong argument, an unknown id, and what the agent may not do, raise `AgentnbError` or
    `ValueError`, and change nothing.
    """

    async def create(
        self,
        title: str,
        prompt: str,
        *,
        assigned_to: str | None = None,
        priority: str = Priority.MEDIUM,
        by: str,
        call: ToolCallId | None = None,
    ) -> Task:
        """Create a task, and start the work on it if it is assigned."""
        ...

    async def get(self, id: str) -> Task:
        """A task by its id."""
        ...

    async def update(
        self,
        id: str,
        *,
        status: str | None = None,
        assigned_to: str | None = None,
        priority: str | None = None,
        by: str,
        call: ToolCallId | None = None,
    ) -> Task:
        """Change a task. What is left out stays as it is."""
        ...

    async def add_note(
        self, id: str, text: str, *, by: str, call: ToolCallId | None = None
    ) -> Task:
        """Add a note to a task."""
        ...

    async def complete(
        self, id: str, note: str | None = None, *, by: str, call: ToolCallId | None = None
    ) -> Task:
        """Set a task to `completed`, with a last note."""
        ...

    async def list(
        self, status: str | None = None, assigned_to: str | None = None
    ) -> Sequence[Task]:
        """The tasks of the session, in the order in which they were created."""
        ...


def task_tools(board: TaskBoard) -> tuple[Tool, ...]:
    """The six tools, in the order of `TOOLSETS`."""
    acts: Mapping[str, _Act] = {
        "task_create": _create,
        "task_list": _list,
        "task_view": _view,
        "task_update": _update,
        "task_note": _note,
        "task_complete": _complete,
    }
    return tuple(_TaskTool(name, acts[name], board) for name in TOOLSETS[TASKS])


_DONE: Mapping[str, str] = {
    "task_create": "Created.",
    "task_update": "Changed.",
    "task_note": "Noted.",
    "task_complete": "Completed.",
}
"""By tool: how the result of a change begins."""
Arguments = Mapping[str, str]
"""What a model gave, by name, without what it left out or left blank."""
_Act = Callable[[TaskBoard, Arguments, str, ToolCallId | None], Awaitable[str]]
"""Does what a tool does: with the board, the arguments, the agent's thread, and its call."""


class _TaskTool:
    """One of the tools."""

    def __init__(self, name: str, act: _Act, board: TaskBoard) -> None:
        description, parameters, self._required = _SPECS[name]
        self._parameters = parameters
        self._act, self._board = act, board
        self.effects = name not in ("task_list", "task_view")
        """Whether a call may change something outside the run."""
        self.on_replay = AGAIN if self.effects else RECORDED
        schema = {
            "type": "object",
            "properties": {each: _PARAMETERS[each] for each in parameters},
            "required": list(self._required),
            "additionalProperties": False,
        }
        self.spec = ToolSpec(name, description, schema)

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str:
        """See `agentnb.core.protocols.Tool`."""
        given = self._arguments(input)
        try:
            call_id: ToolCallId | None = getattr(context, "call_id", None)
            return await self._act(self._board, given, context.agent_id, call_id)
        except ToolError:
            raise
        except NoSuchThread as error:
            raise ToolError(await self._no_agent(error.thread)) from None
        except (AgentnbError, ValueError) as error:
            raise ToolError(str(error)) from None

    async def marked_result(self, mark: str, input: Mapping[str, Any], context: ToolContext) -> str:
        """See `agentnb.core.protocols.SupportsMarks`: the mark is the task's id."""
        return f"{_DONE[self.spec.name]}\n{_line(await self._board.get(mark))}"

    def _arguments(self, input: Mapping[str, Any]) -> Arguments:
        if "note" not in self._parameters and "text" in self._parameters:
            # One tool calls it so, and the other so: a model mixes them up.
            input = {"text" if name == "note" else name: value for name, value in input.items()}
        known = listed(f"`{name}`" for name in self._parameters)
        for name in input:
            if name not in self._parameters:
                what = f"There is no parameter {literal(name, 80)}"
                raise ToolError(f"{what} (the parameters are {known}).")
        for name, value in input.items():
            if value is not None and not isinstance(value, str):
                raise ToolError(f"`{name}` must be a text, not {literal(value, 80)}.")
        given = {name: value for name, value in input.items() if value and value.strip()}
        for name in self._required:
            if name not in given:
                what = f"`{name}` is missing or blank"
                raise ToolError(f"{what} (the parameters are {known}).")
        return given

    async def _no_agent(self, thread: str) -> str:
        """What to say of an agent that is not there: those that are known by their tasks."""
        tasks = await self._board.list()
        known = dict.fromkeys(task.assigned_to for task in tasks if task.assigned_to)
        return (
            f"There is no agent {literal(thread)} (known: {listed(known, none='none yet')}). Give "
            "the id of one, or `new:provider/model` for a new one."
        )


async def _create(board: TaskBoard, given: Arguments, by: str, call: ToolCallId | None) -> str:
    return f"{_DONE['task_create']}\n{_line(await board.create(**given, by=by, call=call))}"


async def _list(board: TaskBoard, given: Arguments, by: str, call: ToolCallId | None) -> str:
    tasks = await board.list(**given)
    if not tasks:
        return "There is no such task." if given else "There are no tasks yet."
    lines = [_line(task, by=by) for task in tasks[-_MOST_LISTED:]]
    left_out = len(tasks) - len(lines)
    if left_out:
        lines.insert(0, f"({left_out:,} older ones are left out: give `status` or `assigned_to`.)")
    return "\n".join(lines)


async def _view(board: TaskBoard, given: Arguments, by: str, call: ToolCallId | None) -> str:
    return _whole(await board.get(**given), by=by)


async def _update(board: TaskBoard, given: Arguments, by: str, call: ToolCallId | None) -> str:
    if len(given) == 1:
        raise ToolError("Say what to change: `status`, `assigned_to` or `priority`.")
    return f"{_DONE['task_update']}\n{_line(await board.update(**given, by=by, call=call))}"


async def _note(board: TaskBoard, given: Arguments, by: str, call: ToolCallId | None) -> str:
    return f"{_DONE['task_note']}\n{_line(await board.add_note(**given, by=by, call=call))}"


async def _complete(board: TaskBoard, given: Arguments, by: str, call: ToolCallId | None) -> str:
    return f"{_DONE['task_complete']}\n{_line(await board.complete(**given, by=by, call=call))}"


# -- what a model reads ---------------------------------------------------------------------------


def _line(task: Task, *, by: str = "") -> str:
    """A task on one line: `t3 in_progress, high, assigned to nb_…: "Title"`."""
    parts = [str(task.status), str(task.priority)]
    if task.assigned_to:
        parts.append(f"assigned to {_name(task.assigned_to, by)}")
    return f"{task.id} {', '.join(parts)}: {_quoted(task.title)}"


def _whole(task: Task, *, by: str) -> str:
    """A task with its prompt and notes. Each line of theirs stands behind a quote mark."""
    creator = "a person" if task.created_by is None else _name(task.created_by, by)
    assignee = "nobody" if task.assigned_to is None else _name(task.assigned_to, by)
    notes = task.notes[-_MOST_NOTES:]
    left_out = len(task.notes) - len(notes)
    return "\n".join(
        [
            f"Task {task.id}: {_quoted(task.title)}",
            f"Status: {task.status}",
            f"Priority: {task.priority}",
            f"Assigned to: {assignee}",
            f"Created by: {creator}",
            "Prompt:",
            behind_marks(_cut(task.prompt, _MOST_OF_PROMPT)),
            f"Notes: {len(task.notes):,}" + (f", the newest {len(notes)}:" if left_out else ""),
            *(part for note in notes for part in _noted(note, by)),
        ]
    )


def _noted(note: TaskNote, by: str) -> list[str]:
    author = "a person or the system" if note.author is None else _name(note.author, by)
    return [f"By {author}:", behind_marks(_cut(note.text, _MOST_OF_NOTE))]


def _name(thread_id: str, by: str) -> str:
    return f"{thread_id} (you)" if thread_id == by else thread_id


def _quoted(title: str) -> str:
    folded = one_line(title).replace('"', '\\"')
    return f'"{folded}"'


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n(cut here: {len(text):,} characters in all)"


# -- what a model is offered ----------------------------------------------------------------------


def _text(said: str) -> dict[str, Any]:
    return {"type": "string", "description": said}


def _word(kind: type[StrEnum], said: str) -> dict[str, Any]:
    return {"type": "string", "enum": [str(each) for each in kind], "description": said}


_PARAMETERS: Mapping[str, dict[str, Any]] = {
    "id": _text("The task's id, like `t3`."),
    "title": _text("Names the task in a few words."),
    "prompt": _text(
        "What is to be done: all that the agent needs to know, in plain words. It sees nothing of "
        "this conversation."
    ),
    "assigned_to": _text(
        "Who does it. `new:provider/model` makes a new agent for it, "
        "`new:profile:provider/model` one with a profile; an agent's id, as `task_list` shows it, "
        "gives it to that agent after what it has to do before."
    ),
    "priority": _word(Priority, "How urgent it is."),
    "status": _word(TaskStatus, "Where it stands."),
    "text": _text("The note: what was found, decided or is missing."),
    "note": _text("A last note: the result, in a few sentences."),
}

_SPECS: Mapping[str, tuple[str, Sequence[str], Sequence[str]]] = {
    "task_create": (
        "Create a task for an agent that stays. If it is assigned, the agent begins at once, in "
        "the background; you are told when the task is completed. Returns the task with its id.",
        ("title", "prompt", "assigned_to", "priority"),
        ("title", "prompt"),
    ),
    "task_list": (
        "List the tasks of this session: id, status, priority, the agent's id, title.",
        ("status", "assigned_to"),
        (),
    ),
    "task_view": ("Read a task: its prompt, and the notes on it.", ("id",), ("id",)),
    "task_update": (
        "Change a task that you created or that is assigned to you: its status, its agent or its "
        "priority.",
        ("id", "status", "assigned_to", "priority"),
        ("id",),
    ),
    "task_note": (
        "Add a note to a task that you created or that is assigned to you.",
        ("id", "text"),
        ("id", "text"),
    ),
    "task_complete": (
        "Say that a task is done. Do this when you have done the task that was assigned to you: "
        "whoever created it is told, with your last notes.",
        ("id", "note"),
        ("id",),
    ),
}
"""By the tool's name: its description, its parameters, and those that must be given."""
