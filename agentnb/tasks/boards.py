"""The data of a session's live boards: its tasks, its threads, and their conversations.

The boards themselves are in `agentnb.views.boards`; this module has what they read, and carries out
their commands.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from agentnb.bundles import board_order, thread_board
from agentnb.core.calls import ToolCallHistory
from agentnb.core.durable import AgentMetadata, MessageKind, Task
from agentnb.core.errors import AgentnbError, NoSuchThread
from agentnb.core.secrets import masked_as_known
from agentnb.core.text import visible, visible_text
from agentnb.core.tree import ToolCount
from agentnb.core.types import Role
from agentnb.store import conversation, tasks, threads
from agentnb.store.conversation import MessageRow
from agentnb.store.threads import ThreadRow as StoredThread
from agentnb.views.boards.rich import rich_of
from agentnb.views.boards.source import Conversation
from agentnb.views.boards.wire import Line, Order, Rich, Row, TaskDetails, TaskRow, ThreadRow
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.history import tool_lines
from agentnb.views.panel.wire import ToolLine
from agentnb.views.static import beginning

if TYPE_CHECKING:
    from sqlite3 import Connection

    from agentnb.store.transactions import Transactions, Watch
    from agentnb.tasks.board import Tasks
    from agentnb.tasks.lists import ThreadList
    from agentnb.tasks.thread import House
    from agentnb.views.boards.board_view import BoardView

T = TypeVar("T")

_TEXT_LENGTH = 20_000
"""Most characters of a message or a prompt that are shown."""
_TITLE_LENGTH = 200
_NAME_LENGTH = 100
_NOTES = 50
_MOST_LAID_OUT = 500
"""Most rendered messages that are cached; the least recently used is dropped."""
_MOST_CALLS = 200


class SessionSource:
    """What both boards read of a session. Implements `agentnb.views.boards.source.BoardSource`.

    Args:
        house: The session's services for its threads and boards.
        tasks: The session's tasks.
    """

    def __init__(self, house: House, tasks: Tasks) -> None:
        self._house, self._tasks = house, tasks
        self._watch: Watch | None = None
        self._laid_out: OrderedDict[tuple[int, int], list[Rich]] = OrderedDict()

    # -- reading ----------------------------------------------------------------------------------

    def changes(self) -> int:
        """A number that differs after any change."""
        return self._watched.changes()

    def rows(self) -> list[Row]:
        """All rows of the list, in order."""
        raise NotImplementedError

    def task(self, task_id: str) -> TaskDetails | None:
        """A task; `None` if the session has no such task."""
        return self._read(partial(_details, session_id=self._house.session_id, task_id=task_id))

    def conversation_state(self, thread_id: str) -> object:
        """A value that differs after any change of a conversation."""
        return self._read(partial(conversation.state_of, thread_id=thread_id))

    def conversation(self, thread_id: str, most: int) -> Conversation:
        """A thread's newest messages."""
        return self._read(partial(self._conversation, thread_id=thread_id, most=most))

    def live(self, thread_id: str) -> FramePublisher | None:
        """The frames of the run that works on a thread in this process; `None` without one."""
        row = self._read(lambda db: threads.thread_row(db, thread_id))
        if row is None or row.process is None or row.run_id is None:
            return None
        run = self._house.find_run(row.run_id)
        return None if run is None or run.done else run.frames()

    def calls(self, thread_id: str, run_id: str) -> list[ToolLine]:
        """The tool calls of the root of a thread's run."""
        try:
            record = self._house.load(run_id)
        except AgentnbError:  # it was deleted
            return []
        if record.tree is None or record.tree.agent_id != thread_id:
            return []  # a page may ask for any run
        history = ToolCallHistory()
        for entry in record.events:
            if getattr(entry.event, "agent_id", None) == thread_id:
                history.learn(entry.at_s, entry.event)
        return tool_lines(history.calls[:_MOST_CALLS], record.whole_tool_calls)

    # -- changing ---------------------------------------------------------------------------------

    def act(self, order: Order) -> None:
        """Carry out a command with the functions that code would call, too."""
        match order["type"]:
            case "send":
                self._check_own(order["thread"])
                self._house.send(order["thread"], order["text"])
            case "note":
                self._tasks.add_note(order["id"], order["text"])
            case "status":
                self._tasks.update(order["id"], status=order["status"])

    def rest(self) -> None:
        """Release what is needed only for reading."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    # -- parts ------------------------------------------------------------------------------------

    @property
    def _transactions(self) -> Transactions:
        return self._house.transactions()

    @property
    def _watched(self) -> Watch:
        if self._watch is None:
            self._watch = self._transactions.watch()
        return self._watch

    def _read(self, work: Callable[[Connection], T]) -> T:
        return self._watched.read(work)

    def _check_own(self, thread_id: str) -> None:
        session_id = self._house.session_id
        if not self._transactions.do(lambda db: threads.has_thread(db, thread_id, session_id)):
            raise NoSuchThread(thread_id)

    def _conversation(self, db: Connection, thread_id: str, most: int) -> Conversation:
        row = threads.thread_row(db, thread_id)
        if row is None or row.session_id != self._house.session_id:
            return Conversation(is_there=False)
        messages = conversation.newest_messages(db, thread_id, most)
        answers = {m.run_id for m in messages if m.role is Role.ASSISTANT and m.run_id}
        counts = self._tool_counts(db, answers)
        names = {agent.thread_id: agent.name for agent in threads.list_agents(db, row.session_id)}
        return Conversation(
            name=visible(_name(row), _NAME_LENGTH),
            status=status_of(row, self._transactions.is_alive),
            above=conversation.count_messages(db, thread_id) - len(messages),
            lines=[self._line(message, row.metadata, names, counts) for message in messages],
        )

    def _tool_counts(self, db: Connection, run_ids: set[str]) -> dict[str, ToolCount]:
        stored = conversation.tool_counts(db, run_ids) if run_ids else {}
        counts = {run_id: ToolCount(*count) for run_id, count in stored.items()}
        for run_id in run_ids - counts.keys():
            run = self._house.find_run(run_id)  # without a file
            if run is not None and run.tree is not None:
                count = run.tool_counts.get("root")
                if count is not None and count.calls:
                    counts[run_id] = count
        return counts

    def _line(
        self,
        message: MessageRow,
        agent: AgentMetadata | None,
        names: Mapping[str, str],
        counts: Mapping[str, ToolCount],
    ) -> Line:
        who, author = _speaker(message, agent, names)
        text = beginning(masked_as_known(message.content), _TEXT_LENGTH)
        count = counts.get(message.run_id or "") if who == "agent" else None
        rich = self._rich(message.id, text) if who == "agent" else None
        return {
            "id": message.id,
            "who": who,
            "author": author,
            "kind": str(message.kind),
            "text": "" if rich is not None else visible_text(text),
            "rich": rich,
            "run": message.run_id or "" if count is not None else "",
            "tools": "" if count is None else str(count),
            "queued": message.is_queued,
        }

    def _rich(self, message: int, text: str) -> list[Rich]:
        key = (message, hash(text))
        known = self._laid_out.pop(key, None)
        self._laid_out[key] = rich_of(text) if known is None else known
        if len(self._laid_out) > _MOST_LAID_OUT:
            self._laid_out.popitem(last=False)
        return self._laid_out[key]


class TaskSource(SessionSource):
    """The tasks of a session."""

    def rows(self) -> list[Row]:
        """All tasks in the order of a board."""
        return self._read(partial(_task_rows, session_id=self._house.session_id))


class ThreadSource(SessionSource):
    """The threads of a session."""

    def rows(self) -> list[Row]:
        """All threads, newest first."""
        rows = self._read(lambda db: threads.list_threads(db, self._house.session_id))
        is_alive = self._transactions.is_alive
        return [thread_row(row, is_alive) for row in rows]


# -- the boards -----------------------------------------------------------------------------------


def tasks_panel(house: House, board: Tasks, *, height: int) -> BoardView:
    """The live board of a session's tasks."""
    from agentnb.views.boards.board_view import BoardView  # loads the widgets only when needed

    return BoardView(TaskSource(house, board), kind="tasks", table=board._bundle, height=height)


def threads_panel(
    house: House, board: Tasks, *, listed: Callable[[], ThreadList], height: int
) -> BoardView:
    """The live board of a session's threads; `listed` returns those that its table shows."""
    from agentnb.views.boards.board_view import BoardView

    source = ThreadSource(house, board)
    return BoardView(source, kind="threads", table=lambda: thread_board(listed()), height=height)


# -- a row of what is stored -----------------------------------------------------------------------


def _task_rows(db: Connection, session_id: str) -> list[Row]:
    names = {agent.thread_id: agent.name for agent in threads.list_agents(db, session_id)}
    return [task_row(task, names) for task in board_order(tasks.list_tasks(db, session_id))]


def task_row(task: Task, names: Mapping[str, str]) -> TaskRow:
    """A task's row, with the names of agents by thread."""
    return {
        "id": task.id,
        "title": visible(task.title, _TITLE_LENGTH),
        "status": str(task.status),
        "priority": str(task.priority),
        "agent": visible(names.get(task.assigned_to or "", ""), _NAME_LENGTH),
        "notes": len(task.notes),
        "note": visible(task.notes[-1].text, _TITLE_LENGTH) if task.notes else "",
    }


def _details(db: Connection, session_id: str, task_id: str) -> TaskDetails | None:
    found = tasks.find_task(db, session_id, task_id)
    if found is None:
        return None
    task = found.task
    agents = {agent.thread_id: agent for agent in threads.list_agents(db, session_id)}
    names = {thread: agent.name for thread, agent in agents.items()}
    agent = agents.get(task.assigned_to or "")
    model = "" if agent is None else f"{agent.provider}/{agent.model}"
    return {
        "title": visible(task.title, _TITLE_LENGTH),
        "status": str(task.status),
        "priority": str(task.priority),
        "agent": visible("" if agent is None else agent.name, _NAME_LENGTH),
        "model": visible(model, _NAME_LENGTH),
        "thread": task.assigned_to,
        "creator": _agent_named(task.created_by, names, without="a person"),
        "prompt": visible_text(beginning(masked_as_known(task.prompt), _TEXT_LENGTH)),
        "notes": [
            {
                "author": _agent_named(note.author, names, without=""),
                "text": visible_text(beginning(masked_as_known(note.text), _TEXT_LENGTH)),
            }
            for note in task.notes[-_NOTES:]
        ],
        "older": max(0, len(task.notes) - _NOTES),
    }


def _agent_named(thread: str | None, names: Mapping[str, str], *, without: str) -> str:
    return without if thread is None else visible(names.get(thread, "an agent"), _NAME_LENGTH)


def thread_row(row: StoredThread, is_alive: Callable[[int], bool]) -> ThreadRow:
    """A thread's row; `is_alive` returns whether a process is alive."""
    agent = row.metadata
    return {
        "id": row.id,
        "name": visible(_name(row), _NAME_LENGTH),
        "kind": "" if agent is None else str(agent.kind),
        "model": "" if agent is None else visible(f"{agent.provider}/{agent.model}", _NAME_LENGTH),
        "task": visible((agent.current_task if agent else None) or "", _TITLE_LENGTH),
        "status": status_of(row, is_alive),
        "queued": row.queued,
    }


def _name(row: StoredThread) -> str:
    if row.agent_name is not None:
        return row.agent_name
    own = "(the session's own)" if row.id == row.session_id else "(no message yet)"
    return row.title or own


def status_of(row: StoredThread, is_alive: Callable[[int], bool]) -> str:
    """`working`, `queued`, `interrupted` or `idle`."""
    if row.process is not None:
        return "working" if is_alive(row.process) else "interrupted"
    return "queued" if row.queued else "idle"


def _speaker(
    message: MessageRow, agent: AgentMetadata | None, names: Mapping[str, str]
) -> tuple[str, str]:
    if message.role is Role.ASSISTANT:
        return "agent", "agent" if agent is None else visible(agent.name, _NAME_LENGTH)
    if message.kind in (MessageKind.TASK_ASSIGNMENT, MessageKind.TASK_COMPLETION):
        return "system", "task system"
    if message.author is None:
        return "person", "person"
    return "other", visible(names.get(message.author, "another agent"), _NAME_LENGTH)
