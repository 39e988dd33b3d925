"""The tasks of a session in a store, with their notes.

All functions work within their caller's transaction (`agentnb.store.transactions`). `agentnb.tasks`
decides what may be done with a task; the constraints of the schema apply in any case.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentnb.core.durable import MessageKind, Priority, Task, TaskNote, TaskStatus
from agentnb.store.threads import time_of

if TYPE_CHECKING:
    from sqlite3 import Connection


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task with the columns that only the store needs."""

    number: int
    """`tasks.number`."""
    pot: str | None
    """The run whose budget contains the work on it."""
    task: Task


@dataclass(frozen=True, slots=True)
class Assignment:
    """The message that assigns a task to an agent, while it is in that agent's queue."""

    message: int
    """`messages.id`."""
    thread_id: str
    run_id: str | None
    """The run that it began; `None` while it waits."""


def add_task(
    db: Connection,
    session_id: str,
    *,
    title: str,
    prompt: str,
    priority: Priority,
    created_by: str | None,
    now: float,
) -> int:
    """Add an unassigned task. Returns `tasks.number`.

    Args:
        db: A connection in a transaction.
        session_id: The session. Takes its next number, so that no other process gets the same one.
        title: The title, not blank.
        prompt: What to do.
        priority: How urgent the task is.
        created_by: The thread of the agent that creates it; `None` for a person.
        now: The time in seconds since 1970.
    """
    (next_task,) = db.execute(
        "SELECT next_task FROM threads WHERE id = ?", (session_id,)
    ).fetchone()
    db.execute("UPDATE threads SET next_task = ? WHERE id = ?", (next_task + 1, session_id))
    number = db.execute(
        "INSERT INTO tasks (session_id, id, title, prompt, status, priority, created_by, "
        "created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            session_id,
            f"t{next_task}",
            title,
            prompt,
            str(TaskStatus.PENDING),
            str(priority),
            created_by,
            now,
            now,
        ),
    ).lastrowid
    assert number is not None
    return number


def set_status(db: Connection, number: int, status: TaskStatus, *, now: float) -> None:
    """Set a task's status."""
    db.execute(
        "UPDATE tasks SET status = ?, updated_at = ? WHERE number = ?", (str(status), now, number)
    )


def set_priority(db: Connection, number: int, priority: Priority, *, now: float) -> None:
    """Set how urgent a task is."""
    db.execute(
        "UPDATE tasks SET priority = ?, updated_at = ? WHERE number = ?",
        (str(priority), now, number),
    )


def set_assigned(
    db: Connection,
    number: int,
    thread_id: str,
    *,
    pot: str | None,
    above: Collection[str],
    now: float,
) -> None:
    """Assign a task.

    Args:
        db: In a transaction.
        number: `tasks.number`.
        thread_id: The thread of the agent.
        pot: The run whose budget contains the work on it; `None` for none.
        above: Marks of the tasks that led to it.
        now: Seconds since 1970.
    """
    db.execute(
        "UPDATE tasks SET assigned_to = ?, pot = ?, above = ?, updated_at = ? WHERE number = ?",
        (thread_id, pot, json.dumps(sorted(above)), now, number),
    )


def add_note(db: Connection, number: int, text: str, *, author: str | None, now: float) -> None:
    """Add a note to a task.

    Args:
        db: In a transaction.
        number: `tasks.number`.
        text: The note.
        author: The thread of the agent that writes it.
        now: Seconds since 1970.
    """
    db.execute(
        "INSERT INTO task_notes (task, text, author, created_at) VALUES (?, ?, ?, ?)",
        (number, text, author, now),
    )
    db.execute("UPDATE tasks SET updated_at = ? WHERE number = ?", (now, number))


# -- reading --------------------------------------------------------------------------------------

_TASKS = (
    "SELECT number, pot, id, title, prompt, status, priority, assigned_to, created_by, "
    "session_id, created_at, updated_at FROM tasks "
)


def find_task(db: Connection, session_id: str, task_id: str) -> TaskRow | None:
    """The session's task with this id; `None` if there is none."""
    row = db.execute(_TASKS + "WHERE session_id = ? AND id = ?", (session_id, task_id)).fetchone()
    return None if row is None else _row(db, row)


def task_of(db: Connection, number: int) -> TaskRow:
    """The task with a number (`tasks.number`), which must exist."""
    return _row(db, db.execute(_TASKS + "WHERE number = ?", (number,)).fetchone())


def list_tasks(
    db: Connection,
    session_id: str,
    *,
    status: TaskStatus | None = None,
    assigned_to: str | None = None,
) -> list[Task]:
    """The tasks of a session, in the order in which they were created.

    Args:
        db: In a transaction.
        session_id: The session.
        status: Only those with this status.
        assigned_to: Only those of the agent with this thread.
    """
    wanted = "session_id = :session AND (:status IS NULL OR status = :status) "
    wanted += "AND (:thread IS NULL OR assigned_to = :thread)"
    values = {"session": session_id, "status": status and str(status), "thread": assigned_to}
    rows = db.execute(f"{_TASKS} WHERE {wanted} ORDER BY number", values).fetchall()
    notes = db.execute(
        "SELECT task, text, author, created_at FROM task_notes "
        f"WHERE task IN (SELECT number FROM tasks WHERE {wanted}) ORDER BY id",
        values,
    )
    by_task: dict[int, list[TaskNote]] = {}
    for number, text, author, created_at in notes:
        by_task.setdefault(number, []).append(TaskNote(text, author, time_of(created_at)))
    return [_task(row, by_task.get(row[0], ())) for row in rows]


def known_ids(db: Connection, session_id: str) -> list[str]:
    """The ids of a session's tasks, in the order in which they were created."""
    found = db.execute("SELECT id FROM tasks WHERE session_id = ? ORDER BY number", (session_id,))
    return [task_id for (task_id,) in found]


def assignment_of(db: Connection, number: int) -> Assignment | None:
    """The message that assigns a task, while it waits or is in work; else `None`."""
    row = db.execute(
        "SELECT q.message, q.thread_id, q.run_id FROM queue q JOIN messages m ON m.id = q.message "
        "WHERE q.task = ? AND m.kind = ? ORDER BY q.message DESC LIMIT 1",
        (number, str(MessageKind.TASK_ASSIGNMENT)),
    ).fetchone()
    return None if row is None else Assignment(*row)


def _row(db: Connection, row: Sequence[Any]) -> TaskRow:
    number, pot = row[:2]
    notes = db.execute(
        "SELECT text, author, created_at FROM task_notes WHERE task = ? ORDER BY id", (number,)
    )
    written = [TaskNote(text, author, time_of(created_at)) for text, author, created_at in notes]
    return TaskRow(number, pot, _task(row, written))


def _task(row: Sequence[Any], notes: Iterable[TaskNote]) -> Task:
    task_id, title, prompt, status, priority, assigned_to, created_by, session_id = row[2:10]
    return Task(
        task_id,
        title,
        prompt,
        TaskStatus(status),
        Priority(priority),
        assigned_to,
        created_by,
        tuple(notes),
        session_id,
        time_of(row[10]),
        time_of(row[11]),
    )


# -- what an agent works on -----------------------------------------------------------------------


def expect_work(db: Connection, thread_id: str, title: str) -> None:
    """Set an agent's current task, if nothing precedes it in the agent's queue."""
    db.execute(
        "UPDATE agent_metadata SET current_task = :title WHERE thread_id = :thread "
        "AND NOT EXISTS (SELECT 1 FROM queue WHERE thread_id = :thread)",
        {"thread": thread_id, "title": title},
    )


def expect_no_work(db: Connection, row: TaskRow, thread_id: str) -> None:
    """Clear an agent's current task, if it is this one.

    Args:
        db: In a transaction.
        row: The task.
        thread_id: The thread of the agent.
    """
    # Titles are not unique: the agent may work on another task with the same title.
    db.execute(
        "UPDATE agent_metadata SET current_task = NULL "
        "WHERE thread_id = :thread AND current_task = :title AND NOT EXISTS ("
        "SELECT 1 FROM queue WHERE thread_id = :thread AND run_id IS NOT NULL AND task <> :task)",
        {"thread": thread_id, "title": row.task.title, "task": row.number},
    )
