"""Takes over what a dead process left, when a session is opened or a run is recovered by hand.

All functions work within their caller's transaction, so only one of two processes gets a message.
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
    """Take over what dead processes left of a session: their messages, and the threads they held.

    Returns:
        The messages that now begin runs in this process, in order. A message with a `run_id` had
        begun that run: if `goes_on`, this process has claimed the run and continues it; if not,
        `agentnb.store.runs.finished_run` says whether it has ended. A message whose run is being
        recovered elsewhere, by another process or another session of this one, is left alone.
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
        if kind == "notice" and at_work in going_on:  # its agent will soon be running again
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
    """Release a session's threads whose processes died, except those of some runs."""
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
    """Take over the message of a run that this process has claimed, to recover it.

    Returns:
        The message; `None` for a run that no message began.

    Raises:
        CannotRecover: Another run has begun on its thread, or its message begins a new run.
    """
    row = db.execute("SELECT run_id FROM threads WHERE id = ?", (thread_id,)).fetchone()
    if row is None or row[0] != run_id:
        raise CannotRecover(run_id, "its thread went on without it; send its task again")
    found = db.execute("SELECT message, process FROM queue WHERE run_id = ?", (run_id,)).fetchone()
    if found is None:
        return None
    message, owner = found
    if owner is not None and is_alive(owner):
        raise CannotRecover(
            run_id, "its message begins a new run, since the session was opened; wait for it"
        )
    db.execute("UPDATE queue SET process = ? WHERE message = ?", (process, message))
    (queued,) = (each for each in queued_of(db, process) if each.message == message)
    return replace(queued, goes_on=True)
