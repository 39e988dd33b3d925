"""One run for each way in which a run can end, by a session, without keeping a reference.

For tests that make many of them in a fresh process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable

import pytest

from agentnb.core.errors import InvalidRequest, LlmError, RunCancelled, ServerFailed, StreamBroken
from agentnb.core.types import AgentStatus, CompletionRequest
from agentnb.providers.scripted import AnyReply, Reply, ScriptedProvider
from agentnb.run import Run
from agentnb.session import Session
from tests.support import Hold, check_record, spawn, task_of

WORDS = "Some words, more than fit into one piece of text. " * 3


class Answers(ScriptedProvider):
    """A script that chooses the run's end by the root's task, and keeps no requests."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.hold = Hold()
        """Where the agent `held` waits in mid-stream."""
        self._calls: Counter[str] = Counter()

    def _answer(self, request: CompletionRequest) -> AnyReply:
        self.requests.clear()
        task = task_of(request)
        asked = request.messages[0].text if task == "root" else task
        self._calls[asked] += 1
        match asked:
            case "fails":
                return Reply(WORDS, error=InvalidRequest("no such thing"))
            case "a bug":
                raise LookupError("in the script")
            case "refuses":
                return Reply("No.", stop_reason="refusal")
            case "is cut once" if self._calls[asked] % 2:
                return Reply(WORDS, error=StreamBroken("cut"))
            case "is busy once" if self._calls[asked] % 2:
                return ServerFailed("busy")
            case "held":
                return Reply(WORDS, pause=self.hold)
            case "deep" | "deeper" if len(request.messages) == 1:
                return spawn("deeper" if asked == "deep" else "leaf", before="Down.")
            case _ if task == "root" and ":" in asked and len(request.messages) == 1:
                tasks = asked.partition(":")[2].split(",")
                return spawn(*(name.strip() for name in tasks), before="Here they are.")
        return WORDS


def ended(run: Run, status: AgentStatus = AgentStatus.COMPLETED) -> None:
    """Wait for a run to end with this status, and check its record."""
    with contextlib.suppress(LlmError, RunCancelled):
        run.result()
    check_record(run.events)
    assert run.status is status, (run.task, run.status)


def completed(session: Session, answers: Answers) -> None:
    ended(session.spawn("tree: a, deep, b"))


def with_a_plan(session: Session, answers: Answers) -> None:
    ended(session.spawn_all(["a", "is cut once", "b"], "sequential"))


def failed(session: Session, answers: Answers) -> None:
    ended(session.spawn("fails"), AgentStatus.FAILED)


def failed_below(session: Session, answers: Answers) -> None:
    ended(session.spawn("tree: fails, a, refuses"))


def broken(session: Session, answers: Answers) -> None:
    with pytest.raises(Exception, match="LookupError"):
        session.spawn("a bug").result()


def retried(session: Session, answers: Answers) -> None:
    ended(session.spawn("tree: is cut once, is busy once"))


def exhausted(session: Session, answers: Answers) -> None:
    ended(session.spawn("tree: a, b, deep", budget=2600), AgentStatus.EXHAUSTED)


def _held(session: Session, answers: Answers, task: str) -> Run:
    answers.hold = Hold()
    run = session.spawn(task)
    answers.hold.wait()
    return run


def cancelled(session: Session, answers: Answers) -> None:
    run = _held(session, answers, "tree: held, deep")
    assert run.cancel().still_running == ()
    ended(run, AgentStatus.CANCELLED)


def cancelled_below(session: Session, answers: Answers) -> None:
    run = _held(session, answers, "tree: held, a")
    run.cancel("1")
    ended(run)


def steered(session: Session, answers: Answers) -> None:
    run = _held(session, answers, "tree: held, a")
    for total in (400_000, 1, 300_000):
        run.set_budget(total)
    answers.hold.release()
    with contextlib.suppress(LlmError, RunCancelled):
        run.result()


def waited_for_in_vain(session: Session, answers: Answers) -> None:
    """Waits that give up, on a thread and on loops that are closed afterwards."""
    run = _held(session, answers, "tree: held, a")

    async def give_up() -> None:
        waiting = asyncio.ensure_future(run._wait())
        reading = asyncio.ensure_future(_read(run, forever=True))
        await asyncio.sleep(0)
        for task in (waiting, reading):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    with pytest.raises(TimeoutError):
        run.result(timeout=0)
    asyncio.run(give_up())
    answers.hold.release()
    ended(run)


async def _read(run: Run, *, forever: bool) -> None:
    async for _ in run.stream():
        if not forever:
            break


def left_early(session: Session, answers: Answers) -> None:
    """A stream of which one entry is read, and streams that are never read."""
    run = session.spawn("tree: a, b")
    never_read = run.stream(), run._bus.subscribe()
    asyncio.run(_read(run, forever=False))
    ended(run)
    del never_read


def abandoned(session: Session, answers: Answers) -> None:
    """A run that continues without any reference to it."""
    run = _held(session, answers, "tree: held, deep")
    del run
    session.spawn("replaces it as the newest run").result()
    answers.hold.release()
    while session._going_on:
        session.spawn("passes the time").result()


FATES: tuple[Callable[[Session, Answers], None], ...] = (
    completed,
    with_a_plan,
    failed,
    failed_below,
    broken,
    retried,
    exhausted,
    cancelled,
    cancelled_below,
    steered,
    waited_for_in_vain,
    left_early,
    abandoned,
)
