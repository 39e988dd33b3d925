"""`session.tasks`, and the board that agents reach by their tools: one set of rules for both.

Every change is one transaction; what it starts or reports happens after the commit. The board
needs its session's `TaskDesk`, which knows the threads, admits agents, and runs queued messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentnb.core.cancel import shielded
from agentnb.core.durable import Priority, Task, TaskList, TaskStatus, ToolCallId, one_of
from agentnb.core.errors import NoSuchThread, ToolError
from agentnb.core.shown import Bundle, Shown
from agentnb.core.text import literal
from agentnb.errors import wrong_settings_as_line
from agentnb.store import task_runs
from agentnb.store.tasks import TaskRow, list_tasks
from agentnb.store.threads import list_agents
from agentnb.tasks.assignment import NewAgent, parse_assignment
from agentnb.tasks.change import Actor, Change, find_task
from agentnb.tasks.task_desk import TaskDesk

if TYPE_CHECKING:
    from sqlite3 import Connection

    from agentnb.tasks.order import Order
    from agentnb.tasks.thread import House
    from agentnb.views.boards.board_view import BoardView


class Board:
    """The tasks of a session, for its agents and for `Tasks`. Belongs to the runtime's loop.

    `by` is the thread of the acting agent, `call` its tool call; `None` for a person.

    Args:
        desk: The session's desk.
    """

    def __init__(self, desk: TaskDesk) -> None:
        self._desk = desk
        self._writing: set[asyncio.Future[Task]] = set()

    async def create(
        self,
        title: str,
        prompt: str,
        *,
        assigned_to: str | None = None,
        priority: str = Priority.MEDIUM,
        created_by: str | None = None,
        by: str | None = None,
        call: ToolCallId | None = None,
    ) -> Task:
        """See `Tasks.create`. An acting agent is the creator."""
        self._desk.check_open()
        title = _checked_text(title, "`title`").strip()
        prompt = _checked_text(prompt, "`prompt`")
        urgency = one_of(Priority, priority, "`priority`")
        to = self._assignee(assigned_to)
        actor = await self._actor(by, call, assigns=to is not None)
        if isinstance(to, NewAgent) and by is not None:
            self._desk.admit(by, prompt)

        def make(change: Change) -> int:
            number = change.create(title, prompt, urgency, by if by is not None else created_by)
            if to is not None:
                change.assign(number, to)
            return number

        return await self._write(actor, make)

    async def update(
        self,
        id: str,
        *,
        status: str | None = None,
        assigned_to: str | None = None,
        priority: str | None = None,
        by: str | None = None,
        call: ToolCallId | None = None,
    ) -> Task:
        """See `Tasks.update`."""
        self._desk.check_open()
        stands = None if status is None else one_of(TaskStatus, status, "`status`")
        urgency = None if priority is None else one_of(Priority, priority, "`priority`")
        to = self._assignee(assigned_to)
        if to is not None and stands not in (None, TaskStatus.IN_PROGRESS):
            raise ValueError(
                f"A task that is assigned is in progress, not {stands}: leave `status` out, or "
                "set it afterwards."
            )
        task_id, actor = _checked_id(id), await self._actor(by, call, assigns=to is not None)
        if isinstance(to, NewAgent) and by is not None:
            await self._admit(actor, by, task_id, to)

        def make(change: Change) -> int:
            number = change.find(task_id).number
            if urgency is not None:
                change.set_priority(number, urgency)
            if to is not None:
                change.assign(number, to)
            elif stands is not None:
                change.set_status(number, stands)
            return number

        return await self._write(actor, make)

    async def add_note(
        self,
        id: str,
        text: str,
        *,
        author: str | None = None,
        by: str | None = None,
        call: ToolCallId | None = None,
    ) -> Task:
        """See `Tasks.add_note`. An acting agent is the author."""
        self._desk.check_open()
        task_id, text = _checked_id(id), _checked_text(text, "The note")
        writer = by if by is not None else author

        def make(change: Change) -> int:
            number = change.find(task_id).number
            change.add_note(number, text, writer)
            return number

        return await self._write(await self._actor(by, call), make)

    async def complete(
        self,
        id: str,
        note: str | None = None,
        *,
        by: str | None = None,
        call: ToolCallId | None = None,
    ) -> Task:
        """See `Tasks.complete`."""
        self._desk.check_open()
        task_id = _checked_id(id)
        text = None if note is None else _checked_text(note, "`note`")

        def make(change: Change) -> int:
            number = change.find(task_id).number
            if text is not None:  # before the completion is reported to the creator
                change.add_note(number, text, by)
            change.set_status(number, TaskStatus.COMPLETED)
            return number

        return await self._write(await self._actor(by, call), make)

    async def get(self, id: str) -> Task:
        """See `Tasks.get`."""
        return await self._desk.transactions.done(_one(self._desk, id))

    async def list(self, status: str | None = None, assigned_to: str | None = None) -> TaskList:
        """See `Tasks.list`."""
        return await self._desk.transactions.done(_some(self._desk, status, assigned_to))

    # -- parts ------------------------------------------------------------------------------------

    def _assignee(self, given: object) -> str | NewAgent | None:
        """The thread of an agent, existing or new; `None` for no assignment.

        Raises:
            BadAssignment: It is neither; or its provider or profile is unknown.
        """
        if given is None:
            return None
        new = parse_assignment(given)
        if new is not None:
            self._desk.check_new(new)
            return new
        assert isinstance(given, str)  # anything else is a bad assignment
        return given

    async def _actor(
        self, by: str | None, call: ToolCallId | None, *, assigns: bool = False
    ) -> Actor:
        run_id = None if by is None else self._desk.run_of(by)
        if assigns and by is not None and run_id is None:
            # A run that could not be stored does not work on its thread: this then raises why.
            await self._desk.transactions.done(lambda db: None)
            # Without the run, nothing would bound what the assigned agent spends.
            raise ToolError("Your run is over: it can assign no more tasks.")
        above = self._desk.marks_below(by) if assigns and by is not None else ()
        gated = self._desk.gated_for(by) if assigns and by is not None else ()
        desk, transactions = self._desk, self._desk.transactions
        return Actor(desk.session_id, transactions, desk, by, run_id, above, gated, call)

    async def _admit(self, actor: Actor, by: str, task_id: str, to: NewAgent) -> None:
        """Count a new agent, but only if the task may be assigned.

        Raises:
            NoSuchTask, NotAllowed, TaskInProgress: The task may not be assigned.
            ToolError: A limit of the run forbids it.
        """

        def check(db: Connection) -> TaskRow:
            change = Change(db, actor)
            row = change.find(task_id)
            change.check_assignable(row, to)
            return row

        row = await self._desk.transactions.done(check)
        self._desk.admit(by, row.task.prompt)

    async def _write(self, actor: Actor, make: Callable[[Change], int]) -> Task:
        """Make a change and its consequences, even if the agent is cancelled meanwhile."""
        writing = asyncio.ensure_future(self._written(actor, make))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        return await shielded(writing)

    async def _written(self, actor: Actor, make: Callable[[Change], int]) -> Task:
        def work(db: Connection) -> tuple[Change, Task, list[Order]]:
            change = Change(db, actor)
            number = make(change)
            orders = self._desk.orders(db, change.start)
            task = change.task(number)
            if actor.call is not None:
                task_runs.mark_done(db, actor.call, task.id)
            return change, task, orders

        change, task, orders = await self._desk.transactions.done(work)
        for message in change.dropped:
            self._desk.drop(message)
        for thread_id in change.told:
            self._desk.tell(thread_id)
        await self._desk.start(orders)
        return task


class Tasks(Shown):
    """The tasks of a session: `session.tasks`. Use it from any thread but the runtime's.

    A `Task` is a snapshot: each call returns a new one.

    Args:
        desk: The session's.
        board: The board that its agents also use.
        house: The session's services for its threads and live board. Holds a reference to the
            session, which the desk does not.
    """

    def __init__(self, desk: TaskDesk, board: Board, *, house: House | None = None) -> None:
        self._desk = desk
        self._board = board
        self._house = house

    def _bundle(self) -> Bundle:
        """A table, by status, with the agents' names."""
        # Imported only when it is shown: loading Markdown takes time.
        from agentnb.bundles import board_order, task_board

        tasks, names = self._desk.transactions.do(_board(self._desk.session_id))
        return task_board(board_order(tasks), names)

    def __repr__(self) -> str:
        return f"Tasks({self.list().headline})"

    def panel(self, *, height: int = 0) -> BoardView:
        """Live board of the tasks: shows them, takes notes and changes of status.

        As a cell's value it also shows a table of the tasks, which stays in a saved notebook.

        Args:
            height: Height in pixels; 0 for a height that fits most cells.
        """
        from agentnb.tasks.boards import tasks_panel  # loads the views only when needed

        assert self._house is not None  # it is a session's
        return tasks_panel(self._house, self, height=height)

    @wrong_settings_as_line()
    def create(
        self,
        title: str,
        prompt: str,
        *,
        assigned_to: str | None = None,
        priority: str = Priority.MEDIUM,
        created_by: str | None = None,
    ) -> Task:
        """Create a task, and start it if it is assigned.

        Args:
            title: A few words.
            prompt: What to do: all that the agent gets.
            assigned_to: `new:provider/model` creates an agent for it, `new:profile:provider/model`
                one with a profile; a thread's id queues it for that thread's agent. By default
                unassigned.
            priority: `high`, `medium` or `low`.
            created_by: The thread of the agent that gets its completion, and is the parent of a
                new agent.

        Raises:
            BadAssignment: `assigned_to` has a wrong form, or an unknown provider or profile.
            NoSuchThread: The session has no such thread.
            SessionClosed: The session was closed.
            ModeChanged: It is assigned, and `%agentnb mode` has named another mode since.
            ValueError: `title` or `prompt` is blank, or the priority does not exist.
        """
        self._check_start(assigned_to)
        return self._desk.call(
            self._board.create(
                title, prompt, assigned_to=assigned_to, priority=priority, created_by=created_by
            )
        )

    @wrong_settings_as_line()
    def get(self, id: str) -> Task:
        """A task by its id.

        Raises:
            NoSuchTask: The session has no task with this id.
        """
        return self._desk.transactions.do(_one(self._desk, id))

    @wrong_settings_as_line()
    def list(self, status: str | None = None, assigned_to: str | None = None) -> TaskList:
        """The tasks of the session, in order of creation.

        Args:
            status: Only those that are `pending`, `in_progress`, `completed`, `blocked` or
                `archived`.
            assigned_to: Only those of the agent with this thread.

        Raises:
            ValueError: The status does not exist.
        """
        return self._desk.transactions.do(_some(self._desk, status, assigned_to))

    @wrong_settings_as_line()
    def update(
        self,
        id: str,
        status: str | None = None,
        assigned_to: str | None = None,
        priority: str | None = None,
    ) -> Task:
        """Change a task. Arguments left out change nothing.

        When a task becomes `completed`, the agent that created it gets a message. A task that
        becomes `completed` or `archived` before its start leaves its agent's queue. An assigned
        task becomes `in_progress`, even if it was finished.

        Args:
            id: The task's.
            status: `pending`, `in_progress`, `completed`, `blocked` or `archived`.
            assigned_to: As for `create`. A task not yet started leaves the queue of its former
                agent.
            priority: `high`, `medium` or `low`.

        Raises:
            NoSuchTask: The session has no task with this id.
            TaskInProgress: Another agent works on it.
            BadAssignment, NoSuchThread, SessionClosed, ModeChanged: As for `create`.
            ValueError: The status or priority does not exist, or the status does not go with an
                assignment.
        """
        self._check_start(assigned_to)
        return self._desk.call(
            self._board.update(id, status=status, assigned_to=assigned_to, priority=priority)
        )

    @wrong_settings_as_line()
    def add_note(self, id: str, text: str, author: str | None = None) -> Task:
        """Add a note to a task.

        Args:
            id: The task's.
            text: The note.
            author: The thread of the agent that wrote it; by default a person.

        Raises:
            NoSuchTask: The session has no task with this id.
            NoSuchThread: The session has no thread `author`.
            SessionClosed: The session was closed.
            ValueError: The note is blank.
        """
        return self._desk.call(self._board.add_note(id, text, author=author))

    @wrong_settings_as_line()
    def complete(self, id: str, note: str | None = None) -> Task:
        """Set a task to `completed`, and report that to the agent that created it.

        Args:
            id: The task's.
            note: Becomes its last note.

        Raises:
            NoSuchTask: The session has no task with this id.
            SessionClosed: The session was closed.
            ValueError: The note is blank.
        """
        return self._desk.call(self._board.complete(id, note))

    def _check_start(self, assigned_to: object) -> None:
        # Only for a person: an agent at work goes on in the mode that its run began in.
        if assigned_to is not None:
            self._desk.check_current()


def _one(desk: TaskDesk, task_id: object) -> Callable[[Connection], Task]:
    checked = _checked_id(task_id)
    return lambda db: find_task(db, desk.session_id, checked).task


def _some(
    desk: TaskDesk, status: str | None, assigned_to: str | None
) -> Callable[[Connection], TaskList]:
    stands = None if status is None else one_of(TaskStatus, status, "`status`")
    if assigned_to is not None and not isinstance(assigned_to, str):
        raise NoSuchThread(literal(assigned_to))
    return lambda db: TaskList(
        list_tasks(db, desk.session_id, status=stands, assigned_to=assigned_to)
    )


def _board(session_id: str) -> Callable[[Connection], tuple[TaskList, dict[str, str]]]:
    """The tasks, and the names of the agents by thread."""

    def read(db: Connection) -> tuple[TaskList, dict[str, str]]:
        names = {agent.thread_id: agent.name for agent in list_agents(db, session_id)}
        return TaskList(list_tasks(db, session_id)), names

    return read


def _checked_text(text: object, name: str) -> str:
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{name} must be a non-blank string, not {literal(text)}.")
    return text


def _checked_id(task_id: object) -> str:
    if not isinstance(task_id, str):
        raise ValueError(
            f"`id` must be the id of a task as a string, like 't1', not {literal(task_id)}."
        )
    return task_id.strip()
