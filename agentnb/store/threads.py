"""Threads, their messages and their agents' metadata in a store.

All functions work within their caller's transaction (`agentnb.store.transactions`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from agentnb.core.durable import AgentKind, AgentMetadata, MessageKind, ThreadMessage
from agentnb.core.errors import AgentnbError, NoSuchThread
from agentnb.core.secrets import masked_as_known
from agentnb.core.text import literal
from agentnb.core.types import Role

if TYPE_CHECKING:
    from sqlite3 import Connection


class ThreadRow(NamedTuple):
    """A thread in a list: everything except its messages.

    A session may list thousands, so this is the stored row, and values are computed only when they
    are read.
    """

    id: str
    session_id: str
    parent_id: str | None
    forked_from: str | None
    created_s: float
    process: int | None
    """The process that works on it; `None` for none."""
    run_id: str | None
    """Its newest run."""
    queued: int
    """Number of messages that wait for a run."""
    title: str
    """The beginning of its first message."""
    agent_name: str | None
    """Like the following fields, `None` for a thread without metadata."""
    agent_provider: str
    agent_model: str
    agent_kind: str
    agent_task: str | None
    agent_parent: str | None
    agent_current_task: str | None
    agent_created_s: float
    agent_profile: str

    @property
    def created_at(self) -> datetime:
        """The time of its creation, in UTC."""
        return time_of(self.created_s)

    @property
    def metadata(self) -> AgentMetadata | None:
        """The data of its agent; `None` for a thread without an agent."""
        if self.agent_name is None:
            return None
        return AgentMetadata(
            thread_id=self.id,
            name=self.agent_name,
            provider=self.agent_provider,
            model=self.agent_model,
            kind=AgentKind(self.agent_kind),
            created_for_task=self.agent_task,
            parent_thread_id=self.agent_parent,
            current_task=self.agent_current_task,
            created_at=time_of(self.agent_created_s),
            profile=self.agent_profile,
        )


_TITLE_LENGTH = 200
"""Most characters of a thread's first message in a list of threads."""


class ThreadAtWork(AgentnbError, ValueError):
    """A thread cannot be deleted: a run works on it, or on a thread below it.

    Args:
        thread: The thread on which a run works.
    """

    def __init__(self, thread: str) -> None:
        self.thread = thread
        super().__init__(
            f"An agent is working on the thread {literal(thread)}, so nothing was deleted. Cancel "
            "its run, or wait until it has ended."
        )


def time_of(seconds: float) -> datetime:
    """A stored time, in seconds since 1970, as a value in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


# -- sessions -------------------------------------------------------------------------------------


def open_session(db: Connection, session_id: str, *, now: float) -> None:
    """Ensure that there is a row for a session's own thread."""
    db.execute(
        "INSERT OR IGNORE INTO threads (id, session_id, created_at) VALUES (?, ?, ?)",
        (session_id, session_id, now),
    )


def has_session(db: Connection, session_id: str) -> bool:
    """Whether there is a session with this id."""
    found = db.execute(
        "SELECT 1 FROM threads WHERE id = ? AND session_id = id", (session_id,)
    ).fetchone()
    return found is not None


def last_session(db: Connection) -> str | None:
    """The id of the newest session; `None` if there is none."""
    found = db.execute(
        "SELECT id FROM threads WHERE session_id = id ORDER BY created_at DESC, rowid DESC LIMIT 1"
    ).fetchone()
    return None if found is None else str(found[0])


# -- threads --------------------------------------------------------------------------------------


def new_thread(
    db: Connection,
    thread_id: str,
    session_id: str,
    *,
    now: float,
    parent_id: str | None = None,
    forked_from: str | None = None,
    next_child: int = 1,
    begins_with: str | None = None,
) -> None:
    """Add a thread. Its session and its parent must exist.

    With `begins_with`, the message of the run that begins it now or soon, it may be there already.
    """
    if_there = "" if begins_with is None else " ON CONFLICT (id) DO NOTHING"
    title = masked_as_known(begins_with or "")[:_TITLE_LENGTH]
    db.execute(
        "INSERT INTO threads "
        "(id, session_id, parent_id, forked_from, next_child, title, created_at) "
        f"VALUES (?, ?, ?, ?, ?, ?, ?){if_there}",
        (thread_id, session_id, parent_id, forked_from, next_child, title, now),
    )


def take_child(db: Connection, thread_id: str, *, at_least: int = 1) -> int:
    """Take the number of a thread's next child, so that no other child gets it.

    Args:
        db: A connection in a transaction.
        thread_id: The parent.
        at_least: The next number that a run working on it in this process would assign.
    """
    row = db.execute("SELECT next_child FROM threads WHERE id = ?", (thread_id,)).fetchone()
    if row is None:
        raise NoSuchThread(thread_id)
    number = max(int(row[0]), at_least)
    db.execute("UPDATE threads SET next_child = ? WHERE id = ?", (number + 1, thread_id))
    return number


def has_thread(db: Connection, thread_id: str, session_id: str | None = None) -> bool:
    """Whether there is a thread; with `session_id`, in that session."""
    row = db.execute("SELECT session_id FROM threads WHERE id = ?", (thread_id,)).fetchone()
    return row is not None and session_id in (None, row[0])


_ROWS = """
    SELECT t.id, t.session_id, t.parent_id, t.forked_from, t.created_at, t.process, t.run_id,
           (SELECT count(*) FROM queue WHERE thread_id = t.id AND kind = 'run' AND run_id IS NULL),
           t.title, m.name, m.provider, m.model, m.kind, k.id, m.parent_thread_id, m.current_task,
           m.created_at, m.profile
    FROM threads t
    LEFT JOIN agent_metadata m ON m.thread_id = t.id
    LEFT JOIN tasks k ON k.number = m.created_for_task
"""


def thread_row(db: Connection, thread_id: str) -> ThreadRow | None:
    """The thread with this id; `None` if there is none."""
    row = db.execute(_ROWS + "WHERE t.id = ?", (thread_id,)).fetchone()
    return None if row is None else ThreadRow._make(row)


def list_threads(db: Connection, session_id: str) -> list[ThreadRow]:
    """All threads of a session, newest first."""
    found = db.execute(
        _ROWS + "WHERE t.session_id = ? ORDER BY t.created_at DESC, t.rowid DESC", (session_id,)
    )
    return [*map(ThreadRow._make, found)]


def children_of(db: Connection, thread_id: str) -> list[ThreadRow]:
    """A thread's children, in the order of their creation."""
    found = db.execute(_ROWS + "WHERE t.parent_id = ? ORDER BY t.created_at, t.rowid", (thread_id,))
    return [*map(ThreadRow._make, found)]


def last_spoken_to(db: Connection, session_id: str) -> str | None:
    """The thread of a session to which a person sent the last message; `None` without messages."""
    found = db.execute(
        "SELECT m.thread_id FROM messages m JOIN threads t ON t.id = m.thread_id "
        "WHERE t.session_id = ? AND m.role = 'user' AND m.kind = 'message' AND m.author IS NULL "
        "ORDER BY m.id DESC LIMIT 1",
        (session_id,),
    ).fetchone()
    return None if found is None else str(found[0])


def fork(db: Connection, thread_id: str, new_id: str, *, at: int | None, now: float) -> None:
    """Add a thread that starts with another one's conversation.

    Args:
        db: A connection in a transaction.
        thread_id: The other thread.
        new_id: The id of the new thread, which is at the top level of the same session.
        at: How many messages it starts with; `None` for all up to the end of the last turn.
        now: The time in seconds since 1970.

    Raises:
        NoSuchThread: The thread does not exist.
        ValueError: No turn ends with the message number `at`.
    """
    thread = db.execute(
        "SELECT session_id, process, run_id FROM threads WHERE id = ?", (thread_id,)
    ).fetchone()
    if thread is None:
        raise NoSuchThread(thread_id)
    session_id, process, newest_run = thread
    found = db.execute(
        "SELECT id, role, run_id FROM messages WHERE thread_id = ? AND place IS NOT NULL "
        "ORDER BY place",
        (thread_id,),
    ).fetchall()
    begun = db.execute("SELECT run_id FROM queue WHERE thread_id = ?", (thread_id,))
    open_runs = {run for (run,) in begun} | ({newest_run} if process is not None else set())
    ends = _ends_of_turns([(role, run) for _, role, run in found], open_runs - {None})
    if at is None:
        at = ends[-1]
    elif not isinstance(at, int) or isinstance(at, bool) or at not in ends:
        raise ValueError(_no_end(at, len(found), ends))
    new_thread(db, new_id, session_id, now=now, forked_from=thread_id)
    for place, (message, _, _) in enumerate(found[:at], 1):
        db.execute(
            "INSERT INTO messages (thread_id, place, role, kind, content, author, run_id, "
            "created_at) SELECT ?, ?, role, kind, content, author, run_id, created_at "
            "FROM messages WHERE id = ?",
            (new_id, place, message),
        )
    if at:
        db.execute(
            "UPDATE threads SET title = (SELECT title FROM threads WHERE id = ?) WHERE id = ?",
            (thread_id, new_id),
        )


def _ends_of_turns(messages: Sequence[tuple[str, str | None]], open_runs: set[str]) -> list[int]:
    """The numbers of messages after which no turn is cut in two: 0, and the ends of all turns.

    Args:
        messages: Role and run of each message, in order.
        open_runs: The runs that have not ended.
    """
    last = {run: number for number, (_, run) in enumerate(messages, 1) if run is not None}
    last |= dict.fromkeys(open_runs & last.keys(), len(messages) + 1)
    ends, end_of_turn = [0], 0
    for number, (_, run) in enumerate(messages, 1):
        end_of_turn = max(end_of_turn, last.get(run, 0) if run is not None else 0)
        is_answered = number < len(messages) and messages[number][0] == Role.ASSISTANT
        if number >= end_of_turn and not is_answered:
            ends.append(number)
    return ends


def _no_end(at: object, count: int, ends: Sequence[int]) -> str:
    near = ends[-1:]
    if isinstance(at, int):
        below = [end for end in ends if end < at]
        above = [end for end in ends if end > at]
        near = below[-1:] + above[:1]
    right = " or ".join(map(str, near))
    return (
        f"`at` must be a number of messages after which a turn ends, such as {right}, "
        f"not {literal(at)} (the thread has {count})."
    )


def delete(db: Connection, thread_id: str, *, is_alive: Callable[[int], bool]) -> None:
    """Delete a thread with its messages, its agent's metadata and the threads below it.

    Deleting a session's own thread deletes all threads and tasks of the session. Runs and memories
    stay.

    Raises:
        NoSuchThread: The thread does not exist.
        ThreadAtWork: A run works on one of them.
    """
    if not has_thread(db, thread_id):
        raise NoSuchThread(thread_id)
    at_work = db.execute(
        "WITH RECURSIVE gone (id) AS (SELECT :thread UNION SELECT t.id FROM threads t, gone "
        "WHERE t.parent_id = gone.id OR t.session_id = gone.id) "
        "SELECT id, process FROM threads JOIN gone USING (id) WHERE process IS NOT NULL",
        {"thread": thread_id},
    ).fetchall()
    for thread, process in at_work:
        if is_alive(process):
            raise ThreadAtWork(thread)
    # Deleted text is overwritten in the file, not just left in free space.
    (before,) = db.execute("PRAGMA secure_delete").fetchone()
    db.execute("PRAGMA secure_delete = ON").fetchall()
    db.execute("DELETE FROM threads WHERE id = ?", (thread_id,))
    db.execute(f"PRAGMA secure_delete = {before}").fetchall()


# -- metadata -------------------------------------------------------------------------------------


def add_metadata(
    db: Connection,
    thread_id: str,
    *,
    name: str,
    provider: str,
    model: str,
    kind: AgentKind,
    now: float,
    profile: str = "",
    created_for_task: int | None = None,
    parent_thread_id: str | None = None,
    current_task: str | None = None,
) -> None:
    """Add the data of a thread's agent.

    Args:
        db: A connection in a transaction.
        thread_id: The agent's thread.
        name: The agent's name. If another agent of the session has it, `-2`, `-3` and so on is
            appended.
        provider: The provider's name.
        model: The model's name, without the provider.
        kind: Whether the agent is persistent.
        now: The time in seconds since 1970.
        profile: The name of its profile; empty for none.
        created_for_task: `tasks.number` of the task that it was created for.
        parent_thread_id: The thread of the agent, or of the session, that created it.
        current_task: The title of the task that it works on.
    """
    db.execute(
        "INSERT INTO agent_metadata (thread_id, name, provider, model, profile, kind, "
        "created_for_task, parent_thread_id, current_task, created_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            thread_id,
            _free_name(db, thread_id, name),
            provider,
            model,
            profile,
            str(kind),
            created_for_task,
            parent_thread_id,
            current_task,
            now,
        ),
    )


def _free_name(db: Connection, thread_id: str, name: str) -> str:
    found = db.execute(
        "SELECT m.name FROM agent_metadata m JOIN threads t ON t.id = m.thread_id "
        "WHERE (m.name = :name OR m.name >= :name || '-' AND m.name < :name || '.') "  # `.` follows
        "AND +t.session_id = (SELECT session_id FROM threads WHERE id = :thread)",
        {"name": name, "thread": thread_id},
    )
    taken = {each for (each,) in found}
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def set_current_task(db: Connection, thread_id: str, title: str | None) -> None:
    """Set the current task of a thread's agent. Does nothing if it has no metadata."""
    db.execute("UPDATE agent_metadata SET current_task = ? WHERE thread_id = ?", (title, thread_id))


def list_agents(
    db: Connection, session_id: str, kind: AgentKind | None = None
) -> list[AgentMetadata]:
    """The agents of a session that have metadata, in the order of their creation."""
    found = db.execute(
        _ROWS + "WHERE t.session_id = ? AND m.thread_id IS NOT NULL "
        "AND (? IS NULL OR m.kind = ?) ORDER BY m.created_at, t.rowid",
        (session_id, kind, kind),
    )
    rows = map(ThreadRow._make, found)
    return [metadata for row in rows if (metadata := row.metadata) is not None]


# -- messages -------------------------------------------------------------------------------------


# A dictionary takes a tenth of the time of `Role(…)`, and conversations are long.
_ROLES = {str(role): role for role in Role}
_MESSAGE_KINDS = {str(kind): kind for kind in MessageKind}


def add_message(
    db: Connection,
    thread_id: str,
    role: Role,
    content: str,
    *,
    now: float,
    kind: MessageKind = MessageKind.MESSAGE,
    author: str | None = None,
    run_id: str | None = None,
    is_queued: bool = False,
) -> int:
    """Add a message at the end of a thread's conversation. Returns `messages.id`.

    Args:
        db: In a transaction.
        thread_id: The thread.
        role: The author's role.
        content: The text.
        now: The time in seconds since 1970.
        kind: The reason for the message.
        author: The thread of the agent that wrote it.
        run_id: The message's run.
        is_queued: Whether it gets its place in the conversation later, from `place_message`.
    """
    message = db.execute(
        "INSERT INTO messages (thread_id, role, kind, content, author, run_id, created_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (thread_id, str(role), str(kind), content, author, run_id, now),
    ).lastrowid
    assert message is not None
    db.execute(
        "UPDATE threads SET title = ? WHERE id = ? AND title = ''",
        (masked_as_known(content)[:_TITLE_LENGTH], thread_id),
    )
    if not is_queued:
        place_message(db, message, run_id)
    return message


def place_message(db: Connection, message: int, run_id: str | None) -> None:
    """Give a queued message its place in its conversation. A message with a place keeps it."""
    db.execute(
        "UPDATE messages SET run_id = :run, place = coalesce(place, 1 + coalesce("
        "(SELECT max(place) FROM messages m WHERE m.thread_id = messages.thread_id), 0)) "
        "WHERE id = :message",
        {"message": message, "run": run_id},
    )


def take_place(db: Connection, message: int) -> None:
    """Take a message out of its conversation, until `place_message` puts it at the end."""
    thread_id, place = db.execute(
        "SELECT thread_id, place FROM messages WHERE id = ?", (message,)
    ).fetchone()
    db.execute("UPDATE messages SET place = NULL WHERE id = ?", (message,))
    behind = db.execute(
        "SELECT id FROM messages WHERE thread_id = ? AND place > ? ORDER BY place",
        (thread_id, place),
    ).fetchall()
    for each in behind:  # one by one, so that no two ever have the same place
        db.execute("UPDATE messages SET place = place - 1 WHERE id = ?", each)


def messages_of(db: Connection, thread_id: str, *, is_placed: bool = False) -> list[ThreadMessage]:
    """A thread's conversation in order, followed by the queued messages.

    Args:
        db: A connection in a transaction.
        thread_id: The thread.
        is_placed: Whether to leave out the queued messages.
    """
    found = db.execute(
        "SELECT role, content, kind, author, run_id, created_at FROM messages "
        f"WHERE thread_id = ? {'AND place IS NOT NULL ' if is_placed else ''}"
        "ORDER BY place IS NULL, place, id",
        (thread_id,),
    )
    return [
        ThreadMessage(
            _ROLES[role], content, _MESSAGE_KINDS[kind], author, run_id, time_of(created_at)
        )
        for role, content, kind, author, run_id, created_at in found
    ]
