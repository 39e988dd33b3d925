"""The magic `%task`: tasks of the default session, and the agents that do them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from IPython.display import display

from agentnb.bundles import task_board
from agentnb.core.durable import Priority, Task, TaskStatus
from agentnb.core.shown import Bundle, listed
from agentnb.core.text import literal
from agentnb.default_session import get_session
from agentnb.errors import NotebookError
from agentnb.notebook.errors import plain_errors
from agentnb.notebook.line import Option, Verb, Words, does_not_take, one_of, read_options, text
from agentnb.notebook.template import fill, notebook_names
from agentnb.notebook.transform import without_form

_HELP = Path(__file__).with_name("help").joinpath("task.txt").read_text("utf-8")


@magics_class
class TaskMagics(Magics):
    """The magic on tasks."""

    @no_var_expand
    @line_cell_magic
    def task(self, line: str, cell: str | None = None) -> None:
        """Give tasks to agents that stay, and follow them."""
        with plain_errors():
            verb, rest = _verb_and_rest(line)
            _show(TASK_VERBS[verb].act(rest) if cell is None else _new(verb, rest, cell))


TaskMagics.task.__doc__ = _HELP


def _verb_and_rest(line: str) -> tuple[str, str]:
    """The verb of a line, `list` by default, and the rest.

    A title and a note are text, so the line is not split like a shell's: that would drop quotes.
    """
    first, rest = (*line.split(maxsplit=1), "", "")[:2]
    if not first or first.startswith("-"):
        return "list", line
    if first not in TASK_VERBS:
        raise NotebookError(
            f"`%task` has no command {literal(first)}: give one of {', '.join(TASK_VERBS)}."
        )
    return first, rest.strip()


def _show(value: object) -> None:
    if isinstance(value, str):
        print(value)
    else:
        display(value, raw=isinstance(value, dict))  # type: ignore[no-untyped-call]  # IPython has no types here


def _read(verb: str, rest: str) -> tuple[dict[str, Any], list[str]]:
    return read_options(rest.split(), TASK_VERBS[verb].options, magic=f"%task {verb}")


# -- verbs ----------------------------------------------------------------------------------------


def _new(verb: str, rest: str, prompt: str) -> object:
    """Create the task of a cell."""
    if verb != "new":
        raise NotebookError(
            f"`%%task {verb}` takes no lines below it: write `%task {verb}` with one %, or "
            "`%%task new TITLE` for a task with a prompt."
        )
    names, prompt = notebook_names(), without_form(prompt)
    values, words = _read("new", fill(rest, names))
    if not values.pop("raw", False):
        prompt = fill(prompt, names)
    title = _without_quotes(" ".join(words)).strip()
    if not title:
        raise NotebookError("The task has no title: write `%%task new TITLE`.")
    if not prompt.strip():
        raise NotebookError("The prompt is empty: write it on the lines below `%%task new`.")
    return _tasks().create(title, prompt.strip(), **_with_thread(values))


def _without_quotes(title: str) -> str:
    if len(title) > 1 and title[0] == title[-1] and title[0] in "'\"":
        return title[1:-1]
    return title


def _new_on_a_line(rest: str) -> NoReturn:
    raise NotebookError(
        "`%task new` needs the prompt: begin the cell with `%%task new TITLE`, and write the "
        "prompt on the lines below."
    )


def _list(rest: str) -> Bundle:
    values, words = _read("list", rest)
    if words:
        raise NotebookError(does_not_take(words, "%task list"))
    if "assigned_to" in values:  # an unknown agent is an error, not one without tasks
        meant = thread_meant(_session(), values["assigned_to"])
        values["assigned_to"] = _session().thread(meant).id
    return _table_of(_tasks().list(**values))


def _table_of(tasks: Sequence[Task]) -> Bundle:
    """Tasks as a board, with the names of their agents."""
    names = {agent.thread_id: agent.name for agent in _session().agents()}
    return task_board(tasks, names, none="; `%task help` shows how to create one.")


def _one(rest: str) -> object:
    task_id, surplus = _id_and_text("show", rest)
    if surplus:
        raise NotebookError(does_not_take([surplus], "%task show"))
    return _tasks().get(task_id)


def _assign(rest: str) -> object:
    task_id, agent = _id_and_text("assign", rest)
    if not agent:
        raise NotebookError(
            f"`%task assign {task_id}` needs the agent: `new:provider/model` for a new one, or "
            "the name of an existing one."
        )
    return _tasks().update(task_id, **_with_thread({"assigned_to": agent}))


def _note(rest: str) -> object:
    task_id, note = _id_and_text("note", rest)
    if not note:
        raise NotebookError(f"The note is empty: write `%task note {task_id} TEXT`.")
    return _tasks().add_note(task_id, note)


def _done(rest: str) -> object:
    task_id, note = _id_and_text("done", rest)
    return _tasks().complete(task_id, note or None)


def _id_and_text(verb: str, rest: str) -> tuple[str, str]:
    """The task's id, and the rest."""
    task_id, _, words = rest.partition(" ")
    if not task_id:
        known = listed([task.id for task in _tasks().list()], none="none yet")
        raise NotebookError(f"`%task {verb}` needs the id of a task (known: {known}).")
    return task_id, words.strip()


def _help(rest: str) -> str:
    if rest:
        raise NotebookError(does_not_take([rest], "%task help"))
    return _HELP.rstrip()


def _with_thread(values: dict[str, Any]) -> dict[str, Any]:
    if "assigned_to" not in values:
        return values
    return values | {"assigned_to": thread_meant(_session(), values["assigned_to"])}


def thread_meant(session: Any, word: str) -> str:
    """The thread of the agent with this name; any other word unchanged.

    Names are accepted because cells show names of agents, not ids.
    """
    if word == "last" or word.startswith("new:"):
        return word
    agents = session.agents(kind="persistent")
    return next((agent.thread_id for agent in agents if agent.name == word), word)


def _session() -> Any:
    return get_session()


def _tasks() -> Any:
    return _session().tasks


_TO = Option("assigned_to", text, "AGENT", words=Words.ASSIGNEES)
_NEW_OPTIONS = {
    "--to": _TO,
    "--priority": Option("priority", one_of(map(str, Priority)), "P", words=Words.PRIORITIES),
    "--raw": Option("raw", None),
}
_LIST_OPTIONS = {
    "--status": Option("status", one_of(map(str, TaskStatus)), "S", words=Words.STATUSES),
    "--to": replace(_TO, words=Words.AGENTS),
}

TASK_VERBS = {
    "list": Verb(_list, options=_LIST_OPTIONS),
    "new": Verb(_new_on_a_line, options=_NEW_OPTIONS),
    "show": Verb(_one, Words.TASKS),
    "assign": Verb(_assign, Words.TASKS, Words.ASSIGNEES),
    "note": Verb(_note, Words.TASKS),
    "done": Verb(_done, Words.TASKS),
    "help": Verb(_help),
}
"""Verbs of `%task`. Each is called with the rest of the line, and returns what to show."""
TASK_CELL_VERBS = {"new": TASK_VERBS["new"]}
"""Verbs of `%%task`."""
