"""The allowed changes of a task, and all their consequences, in one transaction.

A task, its agent's thread and metadata, the message that assigns it, and the message that reports
its completion change together or not at all.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from agentnb.core.durable import AgentKind, MessageKind, Priority, Task, TaskStatus, ToolCallId
from agentnb.core.errors import NoSuchTask, NoSuchThread, NotAllowed, TaskInProgress
from agentnb.store import queue, tasks, threads
from agentnb.store.queue import Queued
from agentnb.store.task_runs import OVER
from agentnb.store.tasks import TaskRow
from agentnb.tasks.assignment import NewAgent
from agentnb.tasks.wording import format_task_assignment, format_task_completion

if TYPE_CHECKING:
    from sqlite3 import Connection

    from agentnb.store.transactions import Transactions


class ThreadMaker(Protocol):
    """Creates threads for agents, in the caller's transaction."""

    def take_child(self, db: Connection, thread_id: str) -> int:
        """Take the number of a thread's next child, so that no other child gets it."""
        ...

    def ensure_thread(self, db: Connection, thread_id: str) -> None:
        """Ensure that the thread of an agent that runs in this process has a row."""
        ...


@dataclass(frozen=True, slots=True)
class Actor:
    """Who changes a task, and where."""

    session_id: str
    transactions: Transactions
    threads: ThreadMaker
    by: str | None = None
    """The thread of the agent; `None` for a person."""
    run_id: str | None = None
    """The agent's run, whose budget contains the work that it assigns."""
    above: Collection[str] = ()
    """Marks of the tasks that led to what it assigns, its own included."""
    gated: Collection[str] = ()
    """Names of the tools that need approval when the agents that it assigns call them."""
    call: ToolCallId | None = None
    """The tool call by which it does so."""


@dataclass(slots=True)
class Change:
    """One change in a transaction, and what remains to be done when that is on disk."""

    db: Connection
    actor: Actor
    now: float = field(default_factory=time.time)
    start: list[Queued] = field(default_factory=list)
    """Messages that begin runs."""
    dropped: list[int] = field(default_factory=list)
    """Messages (`messages.id`) that were removed from their queue."""
    told: list[str] = field(default_factory=list)
    """Threads of running agents that got a message."""

    def __post_init__(self) -> None:
        threads.open_session(self.db, self.actor.session_id, now=self.now)
        if self.actor.by is not None:
            self.actor.threads.ensure_thread(self.db, self.actor.by)

    # -- finding ----------------------------------------------------------------------------------

    def find(self, task_id: str) -> TaskRow:
        """A task that the actor may change.

        Raises:
            NoSuchTask: The session has no task with this id.
            NotAllowed: The actor neither created it nor is it assigned to it.
        """
        row = find_task(self.db, self.actor.session_id, task_id)
        if self.actor.by not in (None, row.task.created_by, row.task.assigned_to):
            raise NotAllowed(row.task.id)
        return row

    def check_thread(self, thread_id: str) -> None:
        """Raise `NoSuchThread` unless the session has a thread."""
        if not threads.has_thread(self.db, thread_id, self.actor.session_id):
            raise NoSuchThread(thread_id)

    def check_assignable(self, row: TaskRow, to: str | NewAgent) -> None:
        """Check that a task may be assigned.

        Raises:
            NoSuchThread: The session has no such thread.
            TaskInProgress: Another agent works on it.
        """
        if isinstance(to, str):
            self.check_thread(to)
        held = tasks.assignment_of(self.db, row.number)
        if held is not None and held.run_id is not None and held.thread_id != to:
            raise TaskInProgress(row.task.id, held.thread_id)

    # -- changing ---------------------------------------------------------------------------------

    def create(self, title: str, prompt: str, priority: Priority, created_by: str | None) -> int:
        """Add a task. Returns `tasks.number`.

        Raises:
            NoSuchThread: The session has no thread `created_by`.
        """
        if created_by is not None:
            self.check_thread(created_by)
        return tasks.add_task(
            self.db,
            self.actor.session_id,
            title=title,
            prompt=prompt,
            priority=priority,
            created_by=created_by,
            now=self.now,
        )

    def assign(self, number: int, to: str | NewAgent) -> None:
        """Assign a task, and queue the message that begins its work.

        An agent that has the task already, queued or in work, does not get it twice.

        Raises:
            NoSuchThread, TaskInProgress: See `check_assignable`.
        """
        db, row = self.db, tasks.task_of(self.db, number)
        self.check_assignable(row, to)
        held = tasks.assignment_of(db, number)
        if held is not None and held.thread_id == to:
            return
        self._withdraw(row)
        thread_id = to if isinstance(to, str) else self._new_agent(row, to)
        pot, above = self.actor.run_id, self.actor.above
        tasks.set_assigned(db, number, thread_id, pot=pot, above=above, now=self.now)
        tasks.set_status(db, number, TaskStatus.IN_PROGRESS, now=self.now)
        tasks.expect_work(db, thread_id, row.task.title)
        self.start.append(
            queue.enqueue(
                db,
                thread_id,
                format_task_assignment(tasks.task_of(db, number).task),
                process=self.actor.transactions.process,
                now=self.now,
                kind=MessageKind.TASK_ASSIGNMENT,
                author=row.task.created_by,
                task=number,
                pot=pot,
                settings={"approval": sorted(self.actor.gated)} if self.actor.gated else None,
            )
        )

    def set_priority(self, number: int, priority: Priority) -> None:
        """Set how urgent a task is."""
        tasks.set_priority(self.db, number, priority, now=self.now)

    def set_status(self, number: int, status: TaskStatus) -> None:
        """Set a task's status. Its completion is reported to the agent that created it."""
        row = tasks.task_of(self.db, number)
        if status is row.task.status:
            return
        tasks.set_status(self.db, number, status, now=self.now)
        if status in OVER:
            self._withdraw(row)
        if status is TaskStatus.COMPLETED:
            self._tell_creator(number)

    def add_note(self, number: int, text: str, author: str | None) -> None:
        """Add a note.

        Raises:
            NoSuchThread: The session has no thread `author`.
        """
        if author is not None:
            self.check_thread(author)
        tasks.add_note(self.db, number, text, author=author, now=self.now)

    # -- what follows -----------------------------------------------------------------------------

    def _withdraw(self, row: TaskRow) -> None:
        """Remove a task that has not begun from its agent's queue."""
        held = tasks.assignment_of(self.db, row.number)
        if held is not None and queue.withdraw(self.db, held.message):
            self.dropped.append(held.message)
        if row.task.assigned_to is not None:
            tasks.expect_no_work(self.db, row, row.task.assigned_to)

    def _new_agent(self, row: TaskRow, new: NewAgent) -> str:
        """Create the agent for a task. Returns its thread."""
        parent = row.task.created_by or self.actor.session_id
        number = self.actor.threads.take_child(self.db, parent)
        thread_id = f"{parent}.{number}"
        threads.new_thread(
            self.db, thread_id, self.actor.session_id, now=self.now, parent_id=parent
        )
        threads.add_metadata(
            self.db,
            thread_id,
            name=new.name,
            provider=new.provider,
            model=new.model,
            profile=new.profile,
            kind=AgentKind.PERSISTENT,
            now=self.now,
            created_for_task=row.number,
            parent_thread_id=parent,
        )
        return thread_id

    def _tell_creator(self, number: int) -> None:
        row = tasks.task_of(self.db, number)
        creator = row.task.created_by
        if creator is None or creator == self.actor.by:
            return
        queued = queue.tell(
            self.db,
            creator,
            format_task_completion(row.task),
            kind=MessageKind.TASK_COMPLETION,
            process=self.actor.transactions.process,
            now=self.now,
            is_alive=self.actor.transactions.is_alive,
            task=number,
            pot=row.pot,
        )
        if queued is None:
            self.told.append(creator)
        else:
            self.start.append(queued)

    def task(self, number: int) -> Task:
        """The task as it is now."""
        return tasks.task_of(self.db, number).task


def find_task(db: Connection, session_id: str, task_id: str) -> TaskRow:
    """A task of a session.

    Raises:
        NoSuchTask: The session has no task with this id.
    """
    row = tasks.find_task(db, session_id, task_id)
    if row is None:
        raise NoSuchTask(task_id, known=tasks.known_ids(db, session_id))
    return row
