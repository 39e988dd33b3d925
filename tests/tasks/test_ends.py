"""What waits when a session ends, or when starting its run is interrupted: nothing stays behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest

from agentnb import AgentStatus, Session
from agentnb.core.durable import MessageKind
from agentnb.core.types import CompletionRequest
from agentnb.providers.scripted import AnyReply, Reply, ScriptedProvider
from agentnb.store import queue
from agentnb.tasks.at_work import AtWork
from tests.support import DEADLINE_S, Hold
from tests.tasks.keeping import ended
from tests.tasks.scripts import NEW, assigned, by_title, create, results, tools


def echo() -> ScriptedProvider:
    return ScriptedProvider(lambda request: f"heard: {request.messages[-1].text}")


def test_agent_that_was_told_at_work_hears_it_in_the_next_session(tmp_path: Path) -> None:
    hold = Hold()

    def a(request: CompletionRequest) -> AnyReply:
        return Reply("a word", pause=hold) if results(request) else tools(create("B", to=None))

    first = Session(provider=by_title({"A": a}), store=tmp_path)
    agent = assigned(first.tasks.create("A", "x", assigned_to=NEW))
    hold.wait()
    first.tasks.complete("t2", "It is done.")

    first.close()

    again = Session(provider=echo(), store=tmp_path, id=first.id)
    ended(again.thread(agent).send("And now?"))
    told, heard, *_ = again.thread(agent).messages[-4:]
    assert told.kind is MessageKind.TASK_COMPLETION
    assert heard.content.startswith("heard: [TASK SYSTEM]")


def test_message_that_a_dead_process_had_begun_waits_on_in_a_closed_session(tmp_path: Path) -> None:
    hold = Hold()
    first = Session(
        provider=ScriptedProvider(lambda _: Reply("a word", pause=hold)), store=tmp_path
    )
    run = first.spawn("1")
    hold.wait()
    thread = first.thread(run.thread_id)
    begun = thread.send("2")
    # As after `adopt`: its run was begun by a process that died.
    first._transactions().do(
        lambda db: db.execute("UPDATE queue SET run_id = 'lost' WHERE run_id IS NULL")
    )
    first.close()
    assert begun.done

    again = Session(provider=echo(), store=tmp_path, id=first.id)
    ended(again.thread(run.thread_id).send("3"))

    texts = [message.content for message in again.thread(run.thread_id).messages]
    assert texts[-4:] == ["2", "heard: 2", "3", "heard: 3"]


def test_message_waits_on_if_the_run_before_it_ends_while_its_session_closes(
    tmp_path: Path,
) -> None:
    hold = Hold()
    first = Session(
        provider=ScriptedProvider(lambda _: Reply("a word", pause=hold)), store=tmp_path
    )
    run = first.spawn("1")
    hold.wait()
    second = first.thread(run.thread_id).send("2")
    first._desk.close()
    run.cancel()  # as a close does, which has not come to the second run yet
    with pytest.raises(TimeoutError):
        second.result(0.5)
    assert second.status is AgentStatus.PENDING
    first.close()

    again = Session(provider=echo(), store=tmp_path, id=first.id)
    ended(again.thread(run.thread_id).send("3"))

    texts = [message.content for message in again.thread(run.thread_id).messages]
    assert texts[-4:] == ["2", "heard: 2", "3", "heard: 3"]


@pytest.mark.parametrize("kept", ["file", "memory"])
@pytest.mark.parametrize("where", ["queued", "queued and known", "no run yet"])
def test_interrupted_send_leaves_no_message(
    kept: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(provider=echo(), store=tmp_path if kept == "file" else None)
    thread = session.thread(ended(session.spawn("1")).thread_id)
    with monkeypatch.context() as patch:
        if where == "queued":
            interrupt_when_queued(session, patch)
        elif where == "queued and known":
            patch.setattr("agentnb.session.Work", interrupt)
        else:
            interrupt_before_run(patch)
        with pytest.raises(KeyboardInterrupt):
            thread.send("2")

    assert thread.send("3").result(DEADLINE_S).output == "heard: 3"
    assert [each.content for each in thread.messages] == ["1", "heard: 1", "3", "heard: 3"]


def interrupt_when_queued(session: Session, patch: pytest.MonkeyPatch) -> None:
    """The interrupt comes when a message is on disk, and who queued it does not know yet."""
    transactions, enqueue = session._transactions(), queue.enqueue
    do = transactions.do
    is_queued = False

    def queue_it(*args: Any, **named: Any) -> Any:
        nonlocal is_queued
        is_queued = True
        return enqueue(*args, **named)

    def stopped(_: object, work: Any) -> Any:
        nonlocal is_queued
        value = do(work)
        if is_queued:
            is_queued = False
            raise KeyboardInterrupt
        return value

    patch.setattr(queue, "enqueue", queue_it)
    patch.setattr(type(transactions), "do", stopped)


def interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def interrupt_before_run(patch: pytest.MonkeyPatch) -> None:
    def stopped(_: str, execution: Any, **named: Any) -> Any:
        execution.close()
        raise KeyboardInterrupt

    patch.setattr("agentnb.session.Run", stopped)


def test_runs_that_begin_meanwhile_do_not_disturb_who_looks_for_one() -> None:
    """Numbers of children are asked for on the writer's thread, while runs begin on the loop."""
    at_work: Any = AtWork()

    class Begins:
        def __init__(self, name: str) -> None:
            self.run_id = name

        @property
        def thread_id(self) -> str:
            at_work._live[f"{self.run_id}x"] = Begins(f"{self.run_id}x")
            return self.run_id

    at_work._live["a"] = Begins("a")
    assert at_work.run_of("a.1").run_id == "a"
