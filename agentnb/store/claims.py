"""Claims: which process recovers a run whose process died. It is `runs.process` of that run.

All functions work within their caller's transaction, so only one of two kernels gets a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentnb.core.errors import CannotRecover, NoSuchRun
from agentnb.core.types import AgentStatus
from agentnb.store.runs import IsAlive, find_run

if TYPE_CHECKING:
    from sqlite3 import Connection

_IS_CANCELLED = """
    SELECT 1 FROM orders
    WHERE run = ? AND kind = 'cancel' AND json_extract(value, '$.agent') IS NULL
"""


def is_held(db: Connection, run_id: str, *, is_alive: IsAlive) -> bool:
    """Whether a run without an end belongs to a living process, which may be this one."""
    row = db.execute("SELECT process, status FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    return row is not None and row[1] is None and row[0] is not None and is_alive(row[0])


def may_go_on(db: Connection, run_id: str, *, process: int, is_alive: IsAlive) -> bool:
    """Claim a run if it can continue. Returns whether it belongs to this process now."""
    try:
        claim(db, run_id, process=process, is_alive=is_alive)
    except (NoSuchRun, CannotRecover):
        return False
    return True


def cancel_of(db: Connection, run_id: str) -> str | None:
    """Why a whole run was cancelled; `None` if it was not, or ended otherwise before."""
    row = db.execute(
        "SELECT json_extract(o.value, '$.reason') FROM orders o JOIN runs r ON r.id = o.run "
        "WHERE r.run_id = ? AND (r.status IS NULL OR r.status = 'cancelled') AND o.kind = 'cancel' "
        "AND json_extract(o.value, '$.agent') IS NULL",
        (run_id,),
    ).fetchone()
    return None if row is None else str(row[0])


def claim(
    db: Connection, run: str, *, process: int, is_alive: IsAlive, may_be_exhausted: bool = False
) -> str:
    """Claim a run for a process that recovers it. Nothing else of the run changes.

    If the process then dies, the run is interrupted as before.

    Args:
        db: A connection in a transaction.
        run: The run's id, or the beginning of it.
        process: The process that recovers it.
        is_alive: Returns whether a process is alive.
        may_be_exhausted: Whether the run may have ended because its budget was exhausted. Its own
            process may continue it as long as that is alive, any other process afterwards; the
            caller must ensure that its process does so only once.

    Returns:
        The run's whole id.

    Raises:
        NoSuchRun: The run does not exist.
        AmbiguousRun: Several ids begin like this.
        CannotRecover: The run is still running, has ended, or was cancelled.
    """
    number = find_run(db, run)
    run_id, owner, status = db.execute(
        "SELECT run_id, process, status FROM runs WHERE id = ?", (number,)
    ).fetchone()
    is_exhausted = status == AgentStatus.EXHAUSTED
    why: str | None = None
    if status == AgentStatus.CANCELLED or _was_cancelled(db, number, status):
        why = "it was cancelled; start its task again"
    elif status is not None and not is_exhausted:
        why = f"it has ended ({status}); start its task again"
    elif is_exhausted and not may_be_exhausted:
        why = "it has ended (exhausted); `budget=` gives it more, so that it can go on"
    elif owner == process:
        why = None if is_exhausted else "it is running in this process; wait until it has ended"
    elif owner is not None and is_alive(owner):
        is_elsewhere = "it is running in another process"
        where = "its process is still running" if is_exhausted else is_elsewhere
        why = f"{where}; recover it when that has ended"
    if why is not None:
        raise CannotRecover(run, why)
    db.execute("UPDATE runs SET process = ? WHERE id = ?", (process, number))
    return str(run_id)


def _was_cancelled(db: Connection, number: int, status: str | None) -> bool:
    """Whether a run's process died between the order to cancel the whole run and its end."""
    return status is None and db.execute(_IS_CANCELLED, (number,)).fetchone() is not None


def give_up(db: Connection, run_id: str, *, process: int) -> None:
    """Release a claimed run for the next recovery: it is interrupted again.

    Only before its old record was replaced. Does nothing if the process has not claimed it.
    """
    db.execute("UPDATE runs SET process = NULL WHERE run_id = ? AND process = ?", (run_id, process))
