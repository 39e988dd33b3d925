"""Effects of the beginning and the end of a run on the task that it works on.

All functions work within their caller's transaction.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from agentnb.core.cycles import mark
from agentnb.core.durable import TaskStatus, ToolCallId
from agentnb.core.records import DONE
from agentnb.core.secrets import masked_as_known
from agentnb.core.text import one_line
from agentnb.core.types import AgentStatus
from agentnb.store.threads import set_current_task

if TYPE_CHECKING:
    from sqlite3 import Connection


LONGEST_NOTE = 500
"""Most characters of an answer that become a note."""

OVER = (TaskStatus.COMPLETED, TaskStatus.ARCHIVED)
"""Statuses of a finished task: it starts only if it is assigned again."""


def begin_work(db: Connection, task: int, thread_id: str, *, now: float) -> None:
    """Record that an agent begins to work on a task.

    Args:
        db: A connection in a transaction.
        task: `tasks.number`.
        thread_id: The agent's thread.
        now: Seconds since 1970.
    """
    row = db.execute("SELECT title, status FROM tasks WHERE number = ?", (task,)).fetchone()
    if row is None:
        return
    title, status = row
    set_current_task(db, thread_id, title)
    if status == TaskStatus.PENDING:
        _set_status(db, task, TaskStatus.IN_PROGRESS, now)


def end_work(
    db: Connection,
    task: int,
    thread_id: str,
    *,
    status: AgentStatus,
    answer: str,
    reason: str,
    now: float,
) -> None:
    """Record that an agent's run on a task has ended. This does not complete the task.

    Only `task_complete` does. The beginning of the answer becomes a note. A run that did not
    complete blocks the task, with the reason as a note.

    Args:
        db: A connection in a transaction.
        task: `tasks.number`.
        thread_id: The agent's thread.
        status: The run's status.
        answer: The run's answer.
        reason: Why the run did not complete.
        now: The time in seconds since 1970.
    """
    set_current_task(db, thread_id, None)
    row = db.execute("SELECT status FROM tasks WHERE number = ?", (task,)).fetchone()
    if row is None or row[0] in OVER:
        return
    if status is AgentStatus.COMPLETED:
        _add_note(db, task, masked_as_known(answer)[:LONGEST_NOTE], thread_id, now)
        return
    _set_status(db, task, TaskStatus.BLOCKED, now)
    _add_note(db, task, reason, None, now)


def mark_done(db: Connection, call: ToolCallId, task_id: str) -> None:
    """Mark a change with the tool call that made it, in the change's own transaction.

    Does nothing for a run that the store does not have.
    """
    db.execute(
        "INSERT OR REPLACE INTO verdicts (run, path, number, kind, value) "
        "SELECT id, ?, ?, ?, ? FROM runs WHERE run_id = ?",
        (
            call.path,
            -call.number,
            DONE,
            json.dumps({"tool_call": call.number, "mark": task_id}),
            call.run_id,
        ),
    )


def add_note(db: Connection, task: int, text: str, *, now: float) -> None:
    """Add a note about a run to its task."""
    _add_note(db, task, text, None, now)


def name_of(db: Connection, task: int | None, *, is_told: bool) -> str:
    """The name, in lists of runs, of a run on a task, or of a run that gets its completion.

    Args:
        db: A connection in a transaction.
        task: `tasks.number`; `None` for a run without a task.
        is_told: Whether the run's message is the completion of the task.
    """
    row = db.execute("SELECT title FROM tasks WHERE number = ?", (task,)).fetchone()
    if row is None:
        return ""
    title = one_line(row[0])
    return f"{title} (completed)" if is_told else title


def marks_above(db: Connection, thread_id: str, task: int | None) -> frozenset[str]:
    """Marks of the tasks that led to a run; a cycle repeats one of them.

    Args:
        db: A connection in a transaction.
        thread_id: The thread of the run's root.
        task: `tasks.number` of the task that it works on.
    """
    found = db.execute(_TASKS_ABOVE, {"thread": thread_id, "task": task}).fetchall()
    return frozenset(each for prompt, above in found for each in (mark(prompt), *json.loads(above)))


# The task itself, and the tasks for which the thread's agent and its ancestors were created.
_TASKS_ABOVE = """
    WITH RECURSIVE up (id) AS (
        SELECT :thread
        UNION
        SELECT t.parent_id FROM threads t JOIN up ON t.id = up.id WHERE t.parent_id IS NOT NULL
    )
    SELECT prompt, above FROM tasks
    WHERE number = :task OR number IN (
        SELECT created_for_task FROM agent_metadata WHERE thread_id IN (SELECT id FROM up)
    )
"""


def _set_status(db: Connection, task: int, status: TaskStatus, now: float) -> None:
    db.execute(
        "UPDATE tasks SET status = ?, updated_at = ? WHERE number = ?", (str(status), now, task)
    )


def _add_note(db: Connection, task: int, text: str, author: str | None, now: float) -> None:
    if text.strip():
        db.execute(
            "INSERT INTO task_notes (task, text, author, created_at) VALUES (?, ?, ?, ?)",
            (task, text, author, now),
        )
