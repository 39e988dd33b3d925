"""The task system's two messages to an agent, with their exact wording.

Titles, prompts, notes and names are written by people and by models. None of them can forge a line
of a message: all but the prompt are folded to one line, and a line of the prompt that looks like a
line of ours gets a quote mark.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from agentnb.core.durable import Task
from agentnb.core.quotation import look

HEAD = "[TASK SYSTEM]"
"""Begins the first line of each message."""
BEGIN = "--- BEGIN TASK ---"
END = "--- END TASK ---"
MOST_NOTES = 3
"""Most notes that a completion quotes, from the newest on."""

_INDEX = "\x84"
"""Moves a terminal down a line; `str.splitlines` does not know it."""
_LIKE_DASHES = "\u2043\u2212\u23af\u2500\u2501\u02d7\u30fc\u1173\u4e00"
"""Characters that look like a dash but have another category in Unicode."""


def format_task_assignment(task: Task) -> str:
    """The message that assigns a task to an agent."""
    return "\n".join(
        [
            f"{HEAD} A new task is assigned to you.",
            _title(task),
            f"Created by: {_folded(task.created_by or '') or 'system'}",
            f"Priority: {task.priority}",
            "",
            BEGIN,
            *_quoted(task.prompt),
            END,
        ]
    )


def format_task_completion(task: Task) -> str:
    """The message that reports the completion of a task to the agent that created it."""
    lines = [
        f"{HEAD} A task that you created is completed.",
        _title(task),
        f"Status: {task.status.upper()}",
    ]
    notes = [f"- {_folded(note.text)}" for note in task.notes[-MOST_NOTES:]]
    if notes:
        lines += ["", "Latest notes:", *notes]
    return "\n".join(lines)


def _title(task: Task) -> str:
    # The title's own quotes are escaped, so that everything between the outer ones is the title.
    title = _folded(task.title).replace('"', '\\"')
    return f'Title: "{title}"'


def _folded(text: str) -> str:
    return " ".join(text.replace(_INDEX, "\n").split())


def _quoted(prompt: str) -> Iterator[str]:
    for line in prompt.replace(_INDEX, "\n").splitlines():
        yield f"> {line}" if _looks_like_ours(line) else line


def _looks_like_ours(line: str) -> bool:
    # By what a reader sees: ignores invisible characters before it, case, and look-alikes.
    beginning = look(line).lstrip("\n")[:_LONGEST_HEAD]
    return _OURS.match("".join(map(_plain, beginning))) is not None


_LONGEST_HEAD = len(HEAD)
_OURS = re.compile(r"---|\[tasksystem\W")


def _plain(character: str) -> str:
    """A dash or a bracket of any script as its ASCII form."""
    if character in _LIKE_DASHES:
        return "-"
    kind = "" if character.isascii() else unicodedata.category(character)
    return {"Pd": "-", "Ps": "[", "Pe": "]"}.get(kind, character)
