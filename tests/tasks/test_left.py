"""What a dead process left is started when its session is opened again, in order, by the way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import pytest

from agentnb import Reply, ScriptedProvider, Session
from agentnb.core.durable import TaskStatus
from agentnb.core.types import CompletionRequest
from agentnb.providers.scripted import AnyReply
from agentnb.runtime import get_runtime
from agentnb.store import queue
from agentnb.tasks import at_work
from tests.support import DEADLINE_S, Hold, until
from tests.tasks.keeping import Keeping, ended
from tests.tasks.scripts import NEW, Play, by_title, create, once, results, tools, worked_on

TEXTS = [f"{number}" for number in range(2, 14)]


def echo() -> ScriptedProvider:
    return ScriptedProvider(lambda request: f"heard: {request.messages[-1].text}")


def session_with_threads(folder: Path, count: int) -> tuple[Session, list[str]]:
    """A session, and threads in which `1` was said and heard."""
    session = Session(provider=echo(), store=folder)
    return session, [ended(session.spawn("1")).thread_id for _ in range(count)]


def leave(session: Session, threads: Sequence[str], texts: Sequence[str], **about: Any) -> None:
    """Have messages that nobody runs: each text on each thread."""

    def work(db: Connection) -> None:
        for text in texts:
            for thread in threads:
                queue.enqueue(db, thread, text, process=process, now=0.0, **about)
        db.execute("UPDATE queue SET process = NULL")

    transactions = session.store.transactions()
    process = transactions.process
    transactions.do(work)


def texts_of(session: Session, thread: str) -> list[str]:
    return [message.content for message in session.thread(thread).messages]


def heard(*texts: str) -> list[str]:
    """A conversation in which each text was said, and heard."""
    return [said for text in texts for said in (text, f"heard: {text}")]


@contextmanager
def blocking_calls(session: Session) -> Iterator[list[threading.Thread]]:
    """Collect the threads that wait for a transaction of the session."""
    kind = type(session.store.transactions())
    do, waited = kind.do, list[threading.Thread]()

    def noted(self: Any, work: Any) -> Any:
        waited.append(threading.current_thread())
        return do(self, work)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "do", noted)
        yield waited


def test_first_message_of_each_thread_has_its_run_at_once_and_the_others_follow_in_order(
    tmp_path: Path,
) -> None:
    first, threads = session_with_threads(tmp_path, 2)
    leave(first, threads, TEXTS)

    again = Keeping(provider=echo(), store=tmp_path, id=first.id)

    assert [run.thread_id for run in again.started[:2]] == threads
    for run in [again.thread(thread).send("last") for thread in threads]:
        ended(run)
    for thread in threads:
        assert texts_of(again, thread) == heard("1", *TEXTS, "last")
        tasks = [run.task for run in again.runs_on(thread)]
        assert tasks == TEXTS


def test_opening_waits_for_as_many_transactions_whatever_was_left(tmp_path: Path) -> None:
    waits = []
    for count in (1, len(TEXTS)):
        first, threads = session_with_threads(tmp_path / f"{count}", 2)
        leave(first, threads, TEXTS[:count])
        with blocking_calls(first) as waited:
            Session(provider=echo(), store=tmp_path / f"{count}", id=first.id)
            here = threading.current_thread()
            waits.append(waited.count(here))

    assert waits[0] == waits[1]


def test_session_that_is_closed_at_once_leaves_all_that_has_not_begun(tmp_path: Path) -> None:
    first, threads = session_with_threads(tmp_path, 2)
    leave(first, threads, TEXTS)
    hold = Hold()

    with Session(
        provider=ScriptedProvider(lambda _: Reply("a word", pause=hold)),
        store=tmp_path,
        id=first.id,
    ):
        pass

    left = first.store.transactions().do(
        lambda db: db.execute("SELECT process FROM queue").fetchall()
    )
    assert len(left) >= len(threads) * (len(TEXTS) - 1)  # of each thread one may have begun
    assert set(left) == {(None,)}
    again = Session(provider=echo(), store=tmp_path, id=first.id)
    for thread in threads:
        ended(again.thread(thread).send("last"))
        behind = heard(*TEXTS[1:], "last")
        assert texts_of(again, thread)[-len(behind) :] == behind


def test_session_is_opened_on_the_loop_too(tmp_path: Path) -> None:
    first, threads = session_with_threads(tmp_path, 2)
    leave(first, threads, TEXTS)

    async def opened() -> Session:
        return Session(provider=echo(), store=tmp_path, id=first.id)

    again = get_runtime().submit(opened()).result(DEADLINE_S)

    for thread in threads:
        ended(again.thread(thread).send("last"))
        assert texts_of(again, thread) == heard("1", *TEXTS, "last")


def test_message_whose_pot_cannot_be_read_ends_and_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, (thread, other) = session_with_threads(tmp_path, 2)
    (pot,) = [run.id for run in first.runs() if run.thread_id == other]
    leave(first, [thread], ["2"], pot=pot)
    leave(first, [thread, other], ["3"])
    store = first.store.transactions()
    store.do(lambda db: db.execute("UPDATE runs SET settings = '{' WHERE run_id = ?", (pot,)))
    monkeypatch.setattr(at_work, "_budgets", {})  # as in another process

    again = Session(provider=echo(), store=tmp_path, id=first.id)

    for each in (thread, other):
        ended(again.thread(each).send("4"))
    assert texts_of(again, thread) == [*heard("1"), "2", *heard("3", "4")]
    assert texts_of(again, other) == heard("1", "3", "4")


def test_no_run_is_held_up_by_the_queue_of_another(tmp_path: Path) -> None:
    """What agents create, complete, are told of and leave is never waited for on the loop."""
    hold = Hold()

    def manager(request: CompletionRequest) -> AnyReply:
        if "is completed" in request.messages[-1].text:
            return "heard"
        return "given" if results(request) else tools(create("Part"), create("Odd"))

    plays: dict[str, Play | AnyReply] = {
        "Whole": manager,
        "Part": once(("task_complete", {"id": "t2"})),
        "Odd": Reply("a word", pause=hold),
    }
    session = Session(provider=by_title(plays), store=tmp_path)
    run = ended(session.spawn("1"))
    leave(session, [run.thread_id], ["2"], settings={"of_tomorrow": 1})
    with blocking_calls(session) as waited:
        session.tasks.create("Whole", "All of it.", assigned_to=NEW)
        hold.wait()
        ended(session.thread(run.thread_id).send("3"))  # it adopts what is left before it
        done = TaskStatus.COMPLETED
        asyncio.run(until(lambda: session.tasks.get("t2").status is done))
        worked_on(session, "t1")
        session.close()

    on_loop = get_runtime().call(threading.current_thread)
    assert texts_of(session, run.thread_id)[2:] == ["2", "3", "done"]
    assert on_loop not in waited
