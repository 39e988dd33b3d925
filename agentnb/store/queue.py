"""The queue of each thread in a store, and the process that works on a thread.

At most one process works on a thread at a time: `threads.process` is its owner, from the beginning
of a run (`begin`) to its end (`end`), or until the process dies. Messages get their turn in the
order in which they were queued. The process that queued a message runs it; the messages of a dead
process go to the first process that looks for them (`agentnb.store.adoption`). A run that died with
its process continues at its place in the conversation, if the new process could claim it
(`resume`); otherwise its message begins again, at the end of the conversation.

All functions work within their caller's transaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentnb.core.durable import AgentKind, MessageKind, ThreadMessage
from agentnb.core.types import Role
from agentnb.store import claims
from agentnb.store.pots import is_elsewhere
from agentnb.store.runs import IsAlive, answer_kept
from agentnb.store.threads import add_message, messages_of, place_message, take_place

if TYPE_CHECKING:
    from sqlite3 import Connection


class NotQueued(LookupError):
    """A message is not in the queue any more, because it was taken out."""


AHEAD = 100_000
"""A run that works on a thread numbers the children itself. A child that is created elsewhere at
the same time gets a number this far ahead."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A queued message: it waits for its run, or has begun it."""

    message: int
    """`messages.id`."""
    thread_id: str
    content: str
    kind: MessageKind
    task: int | None
    """`tasks.number` of the task that it assigns, or whose completion it reports."""
    pot: str | None
    """The run whose budget is above that of the message's own run."""
    settings: Mapping[str, Any]
    """The settings given for its run."""
    run_id: str | None
    """Its run; `None` before that has begun."""
    goes_on: bool = False
    """Whether that run died with its process and this process has claimed it, to recover it."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A message whose turn has come."""

    before: tuple[ThreadMessage, ...]
    """The conversation before the message."""
    first_child: int
    """The number of the next child."""
    given: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """For a recovered run, by agent: the numbers of the children created for assigned tasks."""
    told: Sequence[str] = ()
    """For a recovered run: its agents with unread messages."""


def enqueue(
    db: Connection,
    thread_id: str,
    content: str,
    *,
    process: int,
    now: float,
    kind: MessageKind = MessageKind.MESSAGE,
    author: str | None = None,
    task: int | None = None,
    pot: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Queued:
    """Queue a message for a run of its own.

    Args:
        db: A connection in a transaction.
        thread_id: The thread, which must exist.
        content: The message.
        process: The process that will run it.
        now: The time in seconds since 1970.
        kind: The reason for the message.
        author: The thread of the agent that sends it; `None` for a person.
        task: `tasks.number` of the task that it assigns, or whose completion it reports.
        pot: The run whose budget is above that of the message's own run.
        settings: Settings given for its run, as plain values.
    """
    message = add_message(
        db, thread_id, Role.USER, content, now=now, kind=kind, author=author, is_queued=True
    )
    _put(db, message, thread_id, "run", process, task, pot, settings or {})
    return Queued(message, thread_id, content, kind, task, pot, settings or {}, None)


def tell(
    db: Connection,
    thread_id: str,
    content: str,
    *,
    kind: MessageKind,
    process: int,
    now: float,
    is_alive: IsAlive,
    author: str | None = None,
    task: int | None = None,
    pot: str | None = None,
) -> Queued | None:
    """Send a message to an agent, in the way that fits its present state.

    A running agent gets the message with its next turn. A persistent agent that is not running gets
    a run. Any other thread only stores the message.

    Returns:
        The message to start a run for in this process; `None` for none.
    """
    thread = db.execute("SELECT process FROM threads WHERE id = ?", (thread_id,)).fetchone()
    if thread is None:
        return None
    (owner,) = thread
    if owner is not None and is_alive(owner):
        message = add_message(
            db, thread_id, Role.USER, content, now=now, kind=kind, author=author, is_queued=True
        )
        _put(db, message, thread_id, "notice", owner, task, pot, {})
        return None
    if is_persistent(db, thread_id):
        return enqueue(
            db,
            thread_id,
            content,
            process=process,
            now=now,
            kind=kind,
            author=author,
            task=task,
            pot=pot,
        )
    add_message(db, thread_id, Role.USER, content, now=now, kind=kind, author=author)
    return None


def _put(
    db: Connection,
    message: int,
    thread_id: str,
    kind: str,
    process: int | None,
    task: int | None,
    pot: str | None,
    settings: Mapping[str, Any],
) -> None:
    db.execute(
        "INSERT INTO queue (message, thread_id, process, kind, task, pot, settings) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (message, thread_id, process, kind, task, pot, json.dumps(dict(settings))),
    )


# -- turns ----------------------------------------------------------------------------------------


def begin(
    db: Connection,
    message: int,
    run_id: str,
    *,
    process: int,
    is_alive: IsAlive,
    goes_on: bool = False,
) -> Begun | None:
    """Begin the run of a queued message, or continue it, if its turn has come.

    Args:
        db: A connection in a transaction.
        message: `messages.id`.
        run_id: The message's run.
        process: This process.
        is_alive: Returns whether a process is alive.
        goes_on: Whether the message had begun this run, and the process has claimed it.

    Returns:
        The conversation and the next child's number; `None` if an earlier message of the thread is
        not done, a process works on the thread, or another process works in a budget of the run's
        chain. An earlier message may be a dead process's, so callers that wait call
        `is_held_up_by_dead` now and then.

    Raises:
        NotQueued: The message is not in the queue any more.
    """
    row = db.execute(
        "SELECT thread_id, run_id, pot FROM queue WHERE message = ?", (message,)
    ).fetchone()
    if row is None:
        raise NotQueued(f"The message {message} is not queued any more.")
    thread_id, earlier_run, pot = row
    (head,) = db.execute(
        "SELECT min(message) FROM queue WHERE thread_id = ? AND kind = 'run'", (thread_id,)
    ).fetchone()
    (owner,) = db.execute("SELECT process FROM threads WHERE id = ?", (thread_id,)).fetchone()
    if head != message or (owner is not None and is_alive(owner)):
        return None
    if goes_on and pot is None:
        pot = run_id  # other runs may be using its own budget
    if pot is not None and is_elsewhere(db, pot, process=process, is_alive=is_alive):
        return None
    if goes_on:
        if (begun := resume(db, thread_id, run_id, process=process)) is None:
            raise NotQueued(f"Another run than {run_id} has begun on its thread.")
        db.execute("UPDATE queue SET process = ? WHERE message = ?", (process, message))
        return begun
    first = take_over(db, thread_id, run_id, process=process)
    if earlier_run is not None:
        # What its agent was told in that run now precedes it, since it would not be told again.
        take_place(db, message)
    before = tuple(messages_of(db, thread_id, is_placed=True))
    place_message(db, message, run_id)
    db.execute(
        "UPDATE queue SET run_id = ?, process = ? WHERE message = ?", (run_id, process, message)
    )
    return Begun(before, first)


def is_held_up_by_dead(db: Connection, message: int, *, is_alive: IsAlive) -> bool:
    """Whether the first queued message of a message's thread belongs to a dead process."""
    first = db.execute(
        "SELECT process FROM queue WHERE kind = 'run' AND thread_id = "
        "(SELECT thread_id FROM queue WHERE message = ?) ORDER BY message LIMIT 1",
        (message,),
    ).fetchone()
    return first is not None and (first[0] is None or not is_alive(first[0]))


def begin_new(
    db: Connection, thread_id: str, content: str, run_id: str, *, process: int, now: float
) -> Begun:
    """Begin a run on a thread that was just added, with its first message."""
    add_message(db, thread_id, Role.USER, content, now=now, run_id=run_id)
    return Begun((), take_over(db, thread_id, run_id, process=process))


def take_over(db: Connection, thread_id: str, run_id: str, *, process: int) -> int:
    """Make a process the owner of a thread. Returns the number of the thread's next child.

    If the thread has an owner, that process is dead.
    """
    (owner,) = db.execute("SELECT process FROM threads WHERE id = ?", (thread_id,)).fetchone()
    if owner is not None:
        release_dead(db, thread_id)
    (first,) = db.execute("SELECT next_child FROM threads WHERE id = ?", (thread_id,)).fetchone()
    db.execute(
        "UPDATE threads SET process = ?, run_id = ?, next_child = ? WHERE id = ?",
        (process, run_id, first + AHEAD, thread_id),
    )
    return int(first)


# -- a recovered run ------------------------------------------------------------------------------


def resume(db: Connection, thread_id: str, run_id: str, *, process: int) -> Begun | None:
    """Take over a thread whose newest run is recovered, and the threads of its sub-agents.

    Deletes the stored answers of the run, since it will give them again.

    Returns:
        The conversation as it was when the run began first; `None` if another run has begun on the
        thread since, or the thread does not exist any more.
    """
    row = db.execute(
        "SELECT t.run_id, r.first_child FROM threads t LEFT JOIN runs r ON r.run_id = t.run_id "
        "WHERE t.id = ?",
        (thread_id,),
    ).fetchone()
    if row is None or row[0] != run_id:
        return None
    db.execute(
        "DELETE FROM messages WHERE run_id = :run AND role = :role"
        " AND thread_id IN (SELECT id FROM threads WHERE run_id = :run)",
        {"run": run_id, "role": str(Role.ASSISTANT)},
    )
    db.execute(
        "UPDATE threads SET process = :process, next_child = next_child + "
        "CASE WHEN process IS NULL THEN :ahead ELSE 0 END WHERE run_id = :run",
        {"process": process, "ahead": AHEAD, "run": run_id},
    )
    told = db.execute(
        "SELECT DISTINCT thread_id FROM queue JOIN threads t ON t.id = thread_id "
        "WHERE kind = 'notice' AND t.run_id = ?",
        (run_id,),
    ).fetchall()
    for thread in told:
        db.execute(
            "UPDATE queue SET process = ? WHERE kind = 'notice' AND thread_id = ?",
            (process, *thread),
        )
    (before,) = db.execute(
        "SELECT count(*) FROM messages WHERE thread_id = :thread AND place < "
        "(SELECT min(place) FROM messages WHERE thread_id = :thread AND run_id = :run)",
        {"thread": thread_id, "run": run_id},
    ).fetchone()
    said = messages_of(db, thread_id, is_placed=True)
    return Begun(
        tuple(said[:before]),
        row[1] or 1,
        _given_numbers(db, run_id),
        tuple(thread for (thread,) in told),
    )


def _given_numbers(db: Connection, run_id: str) -> dict[str, list[int]]:
    """By agent of a run: the numbers of the persistent children that were created for its tasks."""
    found = db.execute(
        "SELECT c.id, c.parent_id FROM threads c JOIN threads p ON p.id = c.parent_id "
        "JOIN agent_metadata m ON m.thread_id = c.id WHERE p.run_id = ? AND m.kind = ?",
        (run_id, str(AgentKind.PERSISTENT)),
    )
    given: dict[str, list[int]] = {}
    for child, parent in found:
        given.setdefault(parent, []).append(_number_below(child, parent))
    return given


def leave(db: Connection, run_id: str, *, process: int) -> None:
    """Leave a claimed run with its message until the session is opened again."""
    let_go(db, run_id, process=process)
    db.execute(
        "UPDATE queue SET process = NULL WHERE run_id = ? AND process = ?", (run_id, process)
    )


def let_go(db: Connection, run_id: str, *, process: int) -> None:
    """Release a run that does not continue here: interrupted, without a process, as before."""
    claims.give_up(db, run_id, process=process)
    held = db.execute(
        "SELECT id FROM threads WHERE run_id = ? AND process IS NOT NULL", (run_id,)
    ).fetchall()
    for (thread,) in held:
        _release(db, thread, None)


def put_back(db: Connection, thread_id: str, run_id: str) -> None:
    """Undo `resume`: the run is left as it was, and its thread has the run's answer again."""
    db.execute(
        "DELETE FROM messages WHERE thread_id = ? AND run_id = ? AND role = ?",
        (thread_id, run_id, str(Role.ASSISTANT)),
    )
    text, at = answer_kept(db, run_id, thread_id) or ("", 0.0)
    if text:
        add_message(db, thread_id, Role.ASSISTANT, text, now=at, author=thread_id, run_id=run_id)


def release_dead(db: Connection, thread_id: str) -> None:
    """Release a thread whose process died, perhaps between its agent's end and `end`."""
    (run_id,) = db.execute("SELECT run_id FROM threads WHERE id = ?", (thread_id,)).fetchone()
    # A run that was begun by a message is ended together with that message.
    is_queued = db.execute(
        "SELECT 1 FROM queue WHERE thread_id = ? AND run_id = ?", (thread_id, run_id)
    ).fetchone()
    kept = None if is_queued else answer_kept(db, run_id, thread_id)
    text, at = kept or ("", 0.0)
    if text:
        add_message(db, thread_id, Role.ASSISTANT, text, now=at, author=thread_id, run_id=run_id)
    _release(db, thread_id, None)


def _release(db: Connection, thread_id: str, counted: int | None) -> None:
    """Release a thread.

    Args:
        db: A connection in a transaction.
        thread_id: The thread.
        counted: The number of its next child by the run's own count; `None` if that is unknown, so
            that it is computed from the stored children.
    """
    children = db.execute("SELECT id FROM threads WHERE parent_id = ?", (thread_id,))
    # Others may have created children meanwhile.
    numbers = [_number_below(child, thread_id) for (child,) in children]
    if counted is None:
        numbers += [_number_below(agent, thread_id) for agent in _spawned(db, thread_id)]
    db.execute(
        "UPDATE threads SET process = NULL, next_child = ? WHERE id = ?",
        (max(counted or 1, 1 + max(numbers, default=0)), thread_id),
    )


def _number_below(agent: str, parent: str) -> int:
    """An agent's number among the children of a parent; 0 if it is not one of them."""
    above, _, number = agent.rpartition(".")
    return int(number) if above == parent and number.isdecimal() else 0


def _spawned(db: Connection, thread_id: str) -> Iterator[str]:
    """The agents of all runs on a thread and on the threads above it."""
    root = thread_id
    while root:
        found = db.execute(
            "SELECT e.path FROM runs r JOIN events e ON e.run = r.id "
            "WHERE r.thread_id = ? AND e.kind = 'agent_spawned'",
            (root,),
        )
        yield from (f"{root}.{path}" for (path,) in found)
        root = root.rpartition(".")[0]


def notices(db: Connection, thread_id: str, run_id: str) -> list[str]:
    """Take the messages that a running agent has got since its last turn; each only once."""
    found = db.execute(
        "SELECT m.id, m.content FROM queue q JOIN messages m ON m.id = q.message "
        "WHERE q.thread_id = ? AND q.kind = 'notice' ORDER BY m.id",
        (thread_id,),
    ).fetchall()
    for message, _ in found:
        keep_only(db, message, run_id)
    return [content for _, content in found]


def end(
    db: Connection,
    thread_id: str,
    run_id: str,
    answer: str | None,
    *,
    message: int | None,
    next_children: Mapping[str, int],
    process: int,
    now: float,
) -> list[Queued]:
    """End a run: store its answer, and release its threads. Does nothing if it was ended before.

    Args:
        db: A connection in a transaction.
        thread_id: The thread of the run's root.
        run_id: The run.
        answer: The root's answer; `None` for none.
        message: The queued message that began it; `None` for none.
        next_children: By thread: the number of the next child by the run's own count. For a thread
            that is missing here, it is computed from the stored children.
        process: This process.
        now: The time in seconds since 1970.

    Returns:
        Messages that its agents had no turn for, and that now begin runs in this process.
    """
    theirs = [
        thread
        for (thread,) in db.execute(
            "SELECT id FROM threads INDEXED BY threads_at_work "
            "WHERE run_id = ? AND process IS NOT NULL",
            (run_id,),
        )
    ]
    if message is None:
        is_open = thread_id in theirs
    else:
        is_open = _take_out(db, message, run_id)
    if not is_open:
        return []
    if answer:
        add_message(db, thread_id, Role.ASSISTANT, answer, now=now, author=thread_id, run_id=run_id)
    woken: list[Queued] = []
    for thread in theirs:
        _release(db, thread, next_children.get(thread))
        woken += _wake(db, thread, process)
    return woken


def _take_out(db: Connection, message: int, run_id: str) -> bool:
    """Remove a message from the queue, if this is the run that it began last."""
    found = db.execute(
        "DELETE FROM queue WHERE message = ? AND run_id = ?", (message, run_id)
    ).rowcount
    return bool(found)


def _wake(db: Connection, thread_id: str, process: int) -> list[Queued]:
    """Let the messages that an agent had no turn for begin runs; returns those.

    If the agent is not persistent, they are only stored in its conversation.
    """
    found = db.execute(
        "SELECT message FROM queue WHERE thread_id = ? AND kind = 'notice' ORDER BY message",
        (thread_id,),
    ).fetchall()
    if found and not is_persistent(db, thread_id):
        for (message,) in found:
            keep_only(db, message, None)
        return []
    for (message,) in found:
        db.execute(
            "UPDATE queue SET kind = 'run', process = ? WHERE message = ?", (process, message)
        )
    woken = {message for (message,) in found}
    return [each for each in queued_of(db, process, thread_id=thread_id) if each.message in woken]


def keep_only(db: Connection, message: int, run_id: str | None) -> None:
    """Give a queued message its place in the conversation, without a run."""
    place_message(db, message, run_id)
    db.execute("DELETE FROM queue WHERE message = ?", (message,))


def is_persistent(db: Connection, thread_id: str) -> bool:
    """Whether a thread's agent is persistent."""
    found = db.execute(
        "SELECT 1 FROM agent_metadata WHERE thread_id = ? AND kind = ?",
        (thread_id, str(AgentKind.PERSISTENT)),
    ).fetchone()
    return found is not None


def queued_of(db: Connection, process: int, *, thread_id: str | None = None) -> list[Queued]:
    """The messages that a process runs or will run, in order; with `thread_id`, of one thread."""
    found = db.execute(
        "SELECT q.message, q.thread_id, m.content, m.kind, q.task, q.pot, q.settings, q.run_id "
        "FROM queue q JOIN messages m ON m.id = q.message "
        "WHERE q.kind = 'run' AND q.process = ? AND (? IS NULL OR q.thread_id = ?) "
        "ORDER BY q.message",
        (process, thread_id, thread_id),
    )
    return [
        Queued(message, thread, content, MessageKind(kind), task, pot, json.loads(given), run)
        for message, thread, content, kind, task, pot, given, run in found
    ]


def told(db: Connection, *, process: int) -> list[str]:
    """The threads on which a process works and whose agents have unread messages."""
    found = db.execute(
        "SELECT DISTINCT thread_id FROM queue WHERE kind = 'notice' AND process = ?", (process,)
    )
    return [thread for (thread,) in found]


def withdraw(db: Connection, message: int) -> bool:
    """Remove a message from the queue, unless a process works on it.

    A message whose run never began is removed from its thread, too.

    Returns:
        Whether it was in the queue, and no process worked on it.
    """
    changed = db.execute(
        "DELETE FROM queue WHERE message = ? AND NOT EXISTS ("
        "SELECT 1 FROM threads t WHERE t.id = thread_id AND t.run_id = queue.run_id "
        "AND t.process IS NOT NULL)",
        (message,),
    ).rowcount
    if changed:
        db.execute("DELETE FROM messages WHERE id = ? AND place IS NULL", (message,))
    return bool(changed)
