"""`Thread`: a durable conversation and its agent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from agentnb.core.durable import AgentKind, AgentMetadata, MessageKind, ThreadMessage
from agentnb.core.errors import NoSuchThread
from agentnb.core.request import new_thread_id
from agentnb.core.shown import Bundle, Shown
from agentnb.core.text import literal, quoted
from agentnb.core.types import AgentStatus, Message, Role, TextBlock
from agentnb.store import threads
from agentnb.store.threads import ThreadRow

if TYPE_CHECKING:
    from sqlite3 import Connection

    from agentnb.agent_view import AgentView
    from agentnb.record import RunRecord
    from agentnb.run import Run
    from agentnb.store.runs import RunList
    from agentnb.store.transactions import Transactions

LAST = "last"
"""Stands for the thread to which the person sent the last message."""


@dataclass(frozen=True, slots=True)
class House:
    """A session's services for its threads."""

    session_id: str
    transactions: Callable[[], Transactions]
    send: Callable[..., Run]
    """`send(thread_id, text, **settings)`."""
    runs: Callable[[str], RunList]
    """The runs of a thread, newest first."""
    own_agent: Callable[[str], AgentView | None]
    """An agent of a stored run, by its id; `None` if there is none."""
    find_run: Callable[[str], Run | None]
    """A run of this process by its id; `None` if there is none."""
    load: Callable[[str], RunRecord]
    """A stored run, by its id."""


class Thread(Shown):
    """A durable conversation and its agent. Created by `Session.thread`.

    Each property is read from the store on access.
    """

    def __init__(self, row: ThreadRow, house: House) -> None:
        self._row = row
        self._house = house

    def __repr__(self) -> str:
        return f"Thread({quoted(self.title)}, {self.status})"

    def _bundle(self) -> Bundle:
        from agentnb.bundles import thread_bundle  # only when shown: loading Markdown takes time

        return thread_bundle(self)

    @property
    def id(self) -> str:
        """Its id, which is also its agent's id."""
        return self._row.id

    @property
    def title(self) -> str:
        """The agent's name, else the beginning of the conversation."""
        metadata = self._row.metadata
        if metadata is not None and metadata.kind is AgentKind.PERSISTENT:
            return metadata.name
        is_of_session = self.id == self._row.session_id
        return self._row.title or ("(the session's own)" if is_of_session else "")

    @property
    def metadata(self) -> AgentMetadata | None:
        """Its agent's data; `None` for a thread without an agent."""
        return self._now().metadata

    @property
    def messages(self) -> tuple[ThreadMessage, ...]:
        """The conversation in order, followed by the queued messages.

        For each run: the message that started it, the answer, and notes to its agent meanwhile.
        `session.load(message.run_id)` has the rest.
        """
        return tuple(self._do(partial(threads.messages_of, thread_id=self.id)))

    @property
    def children(self) -> tuple[Thread, ...]:
        """The threads of the agents created for its tasks, in order."""
        rows = self._do(partial(threads.children_of, thread_id=self.id))
        return tuple(Thread(row, self._house) for row in rows)

    @property
    def runs(self) -> RunList:
        """Its runs, newest first."""
        return self._house.runs(self.id)

    @property
    def status(self) -> AgentStatus:
        """`pending` with a queued message or before the first run; else the newest run's.

        `running` while a process works on it; `interrupted` if that process died.
        """
        row = self._now()
        if row.process is not None:
            is_alive = self._house.transactions().is_alive(row.process)
            return AgentStatus.RUNNING if is_alive else AgentStatus.INTERRUPTED
        if row.queued or row.run_id is None:
            return AgentStatus.PENDING
        newest = next((run for run in self.runs if run.id == row.run_id), None)
        return AgentStatus.COMPLETED if newest is None else newest.status

    def send(self, text: str, **settings: Any) -> Run:
        """Send a message: it starts a run on this thread, with the conversation so far.

        Returns immediately. While the agent works, or other messages wait, the run is `pending`.

        Args:
            text: The message.
            settings: As for `Session.spawn`.

        Raises:
            SessionClosed: The session was closed.
            ValueError: As for `Session.spawn`.
        """
        return self._house.send(self.id, text, **settings)

    def fork(self, at: int | None = None) -> Thread:
        """Create a new thread that starts with this one's conversation.

        Args:
            at: How many messages to keep; by default all. The last of them must end a turn.

        Raises:
            ValueError: Message number `at` does not end a turn, or there are fewer messages.
        """
        new_id = new_thread_id()
        self._do(lambda db: threads.fork(db, self.id, new_id, at=at, now=time.time()))
        return thread_of(new_id, self._house)

    def delete(self) -> None:
        """Delete the thread, with its messages and the threads below it. Its runs stay.

        Deleting the session's own thread deletes all threads and tasks of the session.

        Raises:
            ValueError: An agent works on one of them.
        """
        is_alive = self._house.transactions().is_alive
        self._do(lambda db: threads.delete(db, self.id, is_alive=is_alive))

    def _now(self) -> ThreadRow:
        row: ThreadRow | None = self._do(lambda db: threads.thread_row(db, self.id))
        if row is None:
            raise NoSuchThread(self.id)
        return row

    def _do(self, work: Callable[[Connection], Any]) -> Any:
        return self._house.transactions().do(work)


def thread_of(thread_id: str, house: House) -> Thread:
    """A thread of a session by its id, or `last`. A run's own agent gets its thread's row here.

    Raises:
        NoSuchThread: There is no such thread.
    """
    if not isinstance(thread_id, str) or not thread_id.strip():
        raise ValueError(f"A thread's id must be a string, not {literal(thread_id)}.")
    transactions = house.transactions()
    wanted: str | None = thread_id.strip()
    if wanted == LAST:
        wanted = transactions.do(lambda db: threads.last_spoken_to(db, house.session_id))
    if wanted is None:
        raise NoSuchThread(thread_id)
    row = transactions.do(lambda db: threads.thread_row(db, wanted))
    if row is None:
        views = own_agents(wanted, house)
        if not views:
            raise NoSuchThread(wanted)
        row = transactions.do(lambda db: _added(db, wanted, house.session_id, views))
    if row is None or row.session_id != house.session_id:
        raise NoSuchThread(wanted)
    return Thread(row, house)


def _added(
    db: Connection, agent_id: str, session_id: str, views: Iterable[AgentView]
) -> ThreadRow | None:
    add_own_agents(db, session_id, views)
    return threads.thread_row(db, agent_id)


# -- threads of a run's own agents -----------------------------------------------------------------


def own_agents(agent_id: str, house: House) -> list[AgentView]:
    """A run's own agent and its ancestors that have no thread yet, topmost first.

    Empty if no run has the agent.
    """
    views: list[AgentView] = []
    at: str = agent_id
    while "." in at and (view := house.own_agent(at)) is not None:
        views.insert(0, view)
        at = at.rpartition(".")[0]
    return views


def add_own_agents(db: Connection, session_id: str, views: Iterable[AgentView]) -> None:
    """Add threads for a run's own agents: each with its task and, if it has ended, its answer."""
    now = time.time()
    for view in views:
        if threads.has_thread(db, view.agent_id):
            continue
        parent = view.agent_id.rpartition(".")[0]
        numbers = [int(path.rpartition(".")[2]) for path in view.children]
        threads.new_thread(
            db,
            view.agent_id,
            session_id,
            parent_id=parent,
            next_child=1 + max(numbers, default=0),
            now=now,
        )
        provider, _, model = view.model.partition("/")
        threads.add_metadata(
            db,
            view.agent_id,
            name=model or provider,
            provider=provider,
            model=model,
            kind=AgentKind.EPHEMERAL,
            parent_thread_id=parent,
            now=now,
        )
        threads.add_message(db, view.agent_id, Role.USER, view.task, author=parent, now=now)
        if view.status.is_terminal and view.text:
            threads.add_message(
                db, view.agent_id, Role.ASSISTANT, view.text, author=view.agent_id, now=now
            )


# -- a conversation as a model reads it ------------------------------------------------------------


def history_of(messages: Sequence[ThreadMessage]) -> tuple[Message, ...]:
    """A thread's conversation for the next run. Roles alternate: equal neighbours are joined."""
    history: list[tuple[Role, list[str]]] = []
    for message in messages:
        if message.kind is MessageKind.NOTE:
            continue
        if history and history[-1][0] is message.role:
            history[-1][1].append(message.content)
        else:
            history.append((message.role, [message.content]))
    return tuple(Message(role, (TextBlock("\n\n".join(texts)),)) for role, texts in history)
