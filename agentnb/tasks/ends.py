"""How a message leaves its queue, and the effect on its task.

All functions work within their caller's transaction.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from agentnb.core.durable import MessageKind
from agentnb.core.secrets import masked_words
from agentnb.core.types import AgentStatus, OrchestratorResult, Role
from agentnb.store import claims, queue, task_runs, threads
from agentnb.store.runs import finished_run

if TYPE_CHECKING:
    from sqlite3 import Connection

    from agentnb.core.request import RequestContext
    from agentnb.store.queue import Queued
    from agentnb.tasks.order import Work

_LIMIT_REACHED = "a limit of the run was reached"


def end(
    db: Connection,
    work: Work,
    request: RequestContext,
    result: OrchestratorResult | None,
    error: str,
    *,
    process: int,
) -> list[Queued]:
    """Store the end of a run.

    Args:
        db: A connection in a transaction.
        work: The run's work.
        request: The run's shared state.
        result: The run's result, perhaps partial; `None` if it raised before it had one.
        error: Why it raised; empty if it did not.
        process: This process.

    Returns:
        Messages that now begin runs.
    """
    now = time.time()
    answer = _answer_of(result)
    _keep_answers(db, request, result, now)
    woken = queue.end(
        db,
        work.thread_id,
        request.run_id,
        answer,
        message=None if work.queued is None else work.queued.message,
        next_children=request.numbers.all(),
        process=process,
        now=now,
    )
    if work.queued is not None:
        status = AgentStatus.FAILED if result is None else result.status
        reason = error or _why_not_done(result)
        _end_task(db, work.queued, status, answer, reason)
    return woken


def end_of_dead(db: Connection, queued: Queued, *, process: int) -> list[Queued] | None:
    """Store the end of a run whose process died right after that end, or after its cancel.

    Returns:
        Messages that now begin runs; `None` if no run of the message has ended.
    """
    if queued.run_id is None or queued.goes_on:
        return None
    finished = finished_run(db, queued.run_id)
    if finished is None:
        if (why := claims.cancel_of(db, queued.run_id)) is None:
            return None
        finished = AgentStatus.CANCELLED, "", why  # a cancelled run stays cancelled
    status, answer, error = finished
    woken = queue.end(
        db,
        queued.thread_id,
        queued.run_id,
        answer,
        message=queued.message,
        next_children={},
        process=process,
        now=time.time(),
    )
    _end_task(db, queued, status, answer, error or _LIMIT_REACHED)
    return woken


def refuse(db: Connection, queued: Queued, why: str) -> None:
    """Store a message whose run cannot be started, without a run, and block its task."""
    queue.keep_only(db, queued.message, None)
    _end_task(db, queued, AgentStatus.FAILED, "", why)


def withdraw(db: Connection, queued: Queued, why: str) -> None:
    """Remove a message that was cancelled before its turn; a completion stays as a message."""
    if queued.kind is MessageKind.TASK_COMPLETION:
        queue.keep_only(db, queued.message, None)
    else:
        queue.withdraw(db, queued.message)
    _end_task(db, queued, AgentStatus.CANCELLED, "", why)


def leave(db: Connection, queued: Queued, *, process: int) -> None:
    """Leave a message that a closed session does not run until the session is opened again."""
    if queued.goes_on and queued.run_id is not None:
        queue.leave(db, queued.run_id, process=process)
        return
    # Selected by its owner, since an adopted message has the `run_id` of the dead process.
    db.execute(
        "UPDATE queue SET process = NULL WHERE message = ? AND process = ?",
        (queued.message, process),
    )


def drop_run(db: Connection, queued: Queued, why: str, *, process: int) -> None:
    """A message's run cannot continue: let it begin a new one, and note why in thread and task."""
    if queued.run_id is None:
        return
    queue.let_go(db, queued.run_id, process=process)
    note = (
        f"The run {queued.run_id} could not go on after its process had ended, so its message "
        f"begins a new one: {why}"
    )
    now = time.time()
    threads.add_message(
        db, queued.thread_id, Role.USER, note, now=now, kind=MessageKind.NOTE, run_id=queued.run_id
    )
    if queued.task is not None and queued.kind is MessageKind.TASK_ASSIGNMENT:
        task_runs.add_note(db, queued.task, note, now=now)


def _keep_answers(
    db: Connection, request: RequestContext, result: OrchestratorResult | None, now: float
) -> None:
    """Store the answers of the run's own agents that have a thread by now."""
    if result is None:
        return
    root = request.thread_id
    answers = {each.agent_id: each.response_text for each in result.memory_contexts}
    own = db.execute("SELECT id FROM threads WHERE run_id = ?", (request.run_id,))
    for (thread,) in own.fetchall():
        if thread != root and answers.get(thread):
            threads.add_message(
                db,
                thread,
                Role.ASSISTANT,
                answers[thread],
                now=now,
                author=thread,
                run_id=request.run_id,
            )


def _end_task(
    db: Connection, queued: Queued, status: AgentStatus, answer: str, reason: str
) -> None:
    if queued.task is not None and queued.kind is MessageKind.TASK_ASSIGNMENT:
        task_runs.end_work(
            db,
            queued.task,
            queued.thread_id,
            status=status,
            answer=answer,
            reason=reason,
            now=time.time(),
        )


def _answer_of(result: OrchestratorResult | None) -> str:
    """The answer of a run. That of a stopped run says why, and may break off within a secret."""
    if result is None:
        return ""
    is_whole = result.status is AgentStatus.COMPLETED and not result.cut
    return result.final_response if is_whole else masked_words(result.final_response)


def _why_not_done(result: OrchestratorResult | None) -> str:
    """Why a run that raised no error did not complete."""
    incomplete = () if result is None else result.incomplete
    reasons = (each.error for each in incomplete if each.error)
    return next(reasons, _LIMIT_REACHED)
