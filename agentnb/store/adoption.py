"""What a dead process left: who opens the session takes it, or who recovers a run by hand.

All functions work within their caller's transaction, so of two processes one gets each message.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace
from typing import TYPE_CHECKING

from agentnb.core.errors import CannotRecover
from agentnb.store import claims
from agentnb.store.queue import Queued, is_persistent, keep_only, queued_of, release_dead
from agentnb.store.runs import IsAlive

if TYPE_CHECKING:
    from sqlite3 import Connection


def adopt(db: Connection, session_id: str, *, process: int, is_alive: IsAlive) -> list[Queued]:
    """Take over what dead processes left of a session: its messages, and threads held by them.

    Returns:
        The messages that begin runs in this process now, in order. One with a `run_id` had begun:
        its run goes on in this process, which has claimed it, if `goes_on`;
        `agentnb.store.runs.finished_run` tells whether another one came to its end. One whose run
        another process, or another session of this one, recovers is left to that.
    """

    def is_dead(owner: int | None) -> bool:
        return owner is None or not is_alive(owner)

    left = db.execute(
        "SELECT q.message, q.process, q.kind, q.thread_id, q.run_id, t.run_id FROM queue q "
        "JOIN threads t ON t.id = q.thread_id WHERE t.session_id = ?",
        (session_id,),
    ).fetchall()
    owners = {owner for _, owner, *_ in left}
    dead = {owner for owner in owners if is_dead(owner)}
    left = [each for each in left if each[1] in dead]
    begun = {run_id for _, _, kind, _, run_id, _ in left if kind == "run"} - {None}
    elsewhere = {run_id for run_id in begun if claims.is_held(db, run_id, is_alive=is_alive)}
    going_on = {
        run_id
        for run_id in begun - elsewhere
        if claims.may_go_on(db, run_id, process=process, is_alive=is_alive)
    }
    _release_all_dead(db, session_id, is_dead, but=going_on | elsewhere)
    taken: set[int] = set()
    for message, _, kind, thread, run_id, at_work in left:
        if run_id in elsewhere or (kind == "notice" and at_work in elsewhere):
            continue
        if kind == "notice" and at_work in going_on:  # its agent is at work again soon
            db.execute("UPDATE queue SET process = ? WHERE message = ?", (process, message))
        elif kind == "notice" and not is_persistent(db, thread):
            keep_only(db, message, None)
        else:
            db.execute(
                "UPDATE queue SET kind = 'run', process = ? WHERE message = ?", (process, message)
            )
            taken.add(message)
    return [
        replace(each, goes_on=each.run_id in going_on)
        for each in queued_of(db, process)
        if each.message in taken
    ]


def _release_all_dead(
    db: Connection, session_id: str, is_dead: Callable[[int | None], bool], *, but: Set[str]
) -> None:
    """Let go of a session's threads whose processes died, but for those of some runs."""
    held = db.execute(
        "SELECT id, process, run_id FROM threads INDEXED BY threads_at_work "
        "WHERE session_id = ? AND process IS NOT NULL",
        (session_id,),
    ).fetchall()
    dead = {owner for owner in {owner for _, owner, _ in held} if is_dead(owner)}
    for thread, owner, run_id in held:
        if owner in dead and run_id not in but:
            release_dead(db, thread)


def take_up(
    db: Connection, thread_id: str, run_id: str, *, process: int, is_alive: IsAlive
) -> Queued | None:
    """Take the message of a run that this process has claimed, to recover it.

    Returns:
        `None` for a run that no message began.

    Raises:
        CannotRecover: Its thread went on without it, or its message begins a new run.
    """
    row = db.execute("SELECT run_id FROM threads WHERE id = ?", (thread_id,)).fetchone()
    if row is None or row[0] != run_id:
        raise CannotRecover(run_id, "its thread went on without it; send its task again")
    found = db.execute("SELECT message, process FROM queue WHERE run_id = ?", (run_id,)).fetchone()
    if found is None:
        return None
    message, owner = found
    if owner is not None and is_alive(owner):
        raise CannotRecover(run_id, "its message begins a new run, since the session was opened")
    db.execute("UPDATE queue SET process = ? WHERE message = ?", (process, message))
    (queued,) = (each for each in queued_of(db, process) if each.message == message)
    return replace(queued, goes_on=True)
