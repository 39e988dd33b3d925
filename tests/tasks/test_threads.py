"""Threads of a session from outside: they go on, one message after the other, and are found again.

Each test runs with a file and in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentnb import AgentStatus, Session
from agentnb.core.durable import MessageKind
from agentnb.core.errors import (
    InvalidRequest,
    LlmError,
    NoSuchSession,
    NoSuchThread,
    RunCancelled,
    SessionClosed,
)
from agentnb.core.types import Role
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.run import Run
from agentnb.runtime import get_runtime
from agentnb.store import queue
from agentnb.tasks.thread import Thread
from tests.support import DEADLINE_S, Hold, by_agent, requests_of, spawn

Make = Callable[..., Session]


@pytest.fixture(params=["file", "memory"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes sessions that share one store; in memory each has its own."""

    def session(provider: ScriptedProvider | None = None, **settings: Any) -> Session:
        store = tmp_path / "kept.db" if request.param == "file" else None
        return Session(provider=provider or echo(), store=store, **settings)

    return session


def echo() -> ScriptedProvider:
    return ScriptedProvider(lambda request: f"heard: {request.messages[-1].text}")


def ended(run: Run) -> Run:
    run.result(DEADLINE_S)
    return run


def said(thread: Thread) -> list[tuple[str, str]]:
    return [(message.role.value, message.content) for message in thread.messages]


# -- going on -------------------------------------------------------------------------------------


def test_message_goes_out_with_what_was_said_before(make: Make) -> None:
    provider = echo()
    session = make(provider)
    first = ended(session.spawn("My name is Ada."))

    run = session.thread(first.thread_id).send("What is my name?")

    assert run.result(DEADLINE_S).output == "heard: What is my name?"
    assert run.thread_id == first.thread_id
    assert run.id != first.id
    conversation = [(message.role, message.text) for message in provider.requests[-1].messages]
    assert conversation == [
        (Role.USER, "My name is Ada."),
        (Role.ASSISTANT, "heard: My name is Ada."),
        (Role.USER, "What is my name?"),
    ]
    assert said(session.thread(first.thread_id)) == [
        ("user", "My name is Ada."),
        ("assistant", "heard: My name is Ada."),
        ("user", "What is my name?"),
        ("assistant", "heard: What is my name?"),
    ]
    assert [info.id for info in session.thread(first.thread_id).runs] == [run.id, first.id]


def test_spawn_takes_a_thread_by_its_id_and_the_last_one(make: Make) -> None:
    session = make()
    one, two = ended(session.spawn("one")), ended(session.spawn("two"))

    ended(session.spawn("three", thread=one.thread_id))
    after = ended(session.spawn("four", thread="last"))

    assert after.thread_id == one.thread_id != two.thread_id


def test_messages_get_their_turn_one_at_a_time_and_in_order(make: Make) -> None:
    hold = Hold()
    session = make(ScriptedProvider([Reply("a first word", pause=hold), "second", "third"]))
    first = session.spawn("1")
    hold.reached.wait(DEADLINE_S)
    thread = session.thread(first.thread_id)

    second, third = thread.send("2"), thread.send("3")

    assert str(thread.status) == "running"
    assert (second.status, third.status) == (AgentStatus.PENDING, AgentStatus.PENDING)
    assert [text for _, text in said(thread)] == ["1", "2", "3"]  # what waits stands behind
    hold.release()
    assert ended(third).result().output == "third"
    assert [text for _, text in said(thread)] == [
        "1", "a first word", "2", "second", "3", "third",
    ]  # fmt: skip
    assert str(thread.status) == "completed"


def test_message_that_is_cancelled_before_its_turn_was_never_said(make: Make) -> None:
    hold = Hold()
    session = make(ScriptedProvider([Reply("a first word", pause=hold), "after it"]))
    first = session.spawn("1")
    hold.reached.wait(DEADLINE_S)
    thread = session.thread(first.thread_id)
    cancelled, after = thread.send("never mind"), thread.send("2")

    cancelled.cancel()

    with pytest.raises(RunCancelled):
        cancelled.result(DEADLINE_S)
    hold.release()
    ended(after)
    assert [text for _, text in said(thread)] == ["1", "a first word", "2", "after it"]
    assert str(cancelled.events[-1].event.kind) == "run_finished"  # whoever watched it is told


def test_run_that_fails_leaves_its_thread_free(make: Make) -> None:
    session = make(ScriptedProvider([InvalidRequest("no"), "better"]))
    run = session.spawn("a question")
    with pytest.raises(LlmError):
        run.result(DEADLINE_S)

    again = session.thread(run.thread_id).send("again")

    assert again.result(DEADLINE_S).output == "better"


def test_children_are_numbered_on(make: Make) -> None:
    provider = by_agent({"root": [spawn("P", "Q"), "both", spawn("R"), "and R"]})
    session = make(provider)
    first = ended(session.spawn("start"))

    second = ended(session.thread(first.thread_id).send("go on"))

    assert [agent.agent_id for agent in first.agents] == [
        first.thread_id, f"{first.thread_id}.1", f"{first.thread_id}.2",
    ]  # fmt: skip
    assert [agent.path for agent in second.agents] == ["root", "3"]


def test_sub_agent_can_be_talked_to_and_its_runs_have_a_root_of_their_own(make: Make) -> None:
    provider = by_agent({"root": [spawn("P"), "all", spawn("X"), "done"], "P": "P is found"})
    session = make(provider)
    first = ended(session.spawn("start"))
    thread = session.thread(f"{first.thread_id}.1")
    assert said(thread) == [("user", "P"), ("assistant", "P is found")]

    run = ended(thread.send("and more?"))

    assert run.thread_id == f"{first.thread_id}.1"
    assert [agent.path for agent in run.agents] == ["root", "1"]
    assert [agent.agent_id for agent in run.agents] == [
        f"{first.thread_id}.1", f"{first.thread_id}.1.1",
    ]  # fmt: skip
    (first_call, _) = requests_of(provider, "root")[2:]
    assert [message.text for message in first_call.messages] == ["P", "P is found", "and more?"]
    assert thread.metadata is not None
    assert thread.metadata.kind == "ephemeral"


def test_list_of_tasks_goes_on_with_a_thread(make: Make) -> None:
    provider = by_agent({"root": ["hello", "both"]})
    session = make(provider)
    first = ended(session.spawn("start"))

    run = ended(session.spawn_all(["P", "Q"], thread=first.thread_id))

    assert [agent.path for agent in run.agents] == ["root", "1", "2"]
    asked = requests_of(provider, "root")[-1].messages
    assert [message.text for message in asked[:2]] == ["start", "hello"]
    assert said(session.thread(first.thread_id))[2:] == [
        ("user", "2 tasks, parallel:\n- P\n- Q"),
        ("assistant", "both"),
    ]


def test_fork_keeps_a_part_and_goes_its_own_way(make: Make) -> None:
    session = make()
    thread = session.thread(ended(session.spawn("1")).thread_id)
    ended(thread.send("2"))

    fork = thread.fork(at=2)
    ended(fork.send("another 2"))

    assert [text for _, text in said(fork)] == ["1", "heard: 1", "another 2", "heard: another 2"]
    assert len(thread.messages) == 4
    with pytest.raises(ValueError, match="turn"):
        thread.fork(at=1)


def test_threads_are_listed_newest_first(make: Make) -> None:
    session = make()
    one, two = ended(session.spawn("one")), ended(session.spawn("two"))

    listed = session.threads()

    assert {thread.id for thread in listed} == {session.id, one.thread_id, two.thread_id}
    ids = [thread.id for thread in listed]
    assert ids.index(two.thread_id) < ids.index(one.thread_id)


@pytest.mark.parametrize("wanted", ["id", "last"])
def test_thread_of_a_run_that_has_not_begun_yet_is_found(make: Make, wanted: str) -> None:
    session, busy = make(), threading.Event()
    ended(session.spawn("another"))

    async def hold_up() -> None:
        busy.wait(10)

    get_runtime().submit(hold_up())
    try:
        first = session.spawn("one")
        thread = session.thread(first.thread_id if wanted == "id" else "last")
        second = session.spawn("two", thread=first.thread_id if wanted == "id" else "last")
    finally:
        busy.set()
    ended(first), ended(second)

    assert thread.id == second.thread_id == first.thread_id
    assert thread.title == "one"
    assert [text for _, text in said(thread)] == ["one", "heard: one", "two", "heard: two"]


@pytest.mark.parametrize("wanted", ["nb_20260101_nobody", "last", "t1"])
def test_unknown_thread_is_an_error_that_says_so(make: Make, wanted: str) -> None:
    session = make()

    for ask in (session.thread, lambda id: session.spawn("go on", thread=id)):
        with pytest.raises(NoSuchThread, match="No agent found for thread"):
            ask(wanted)
    assert session.newest_run is None


def test_message_whose_settings_nobody_knows_ends_and_holds_up_no_other(tmp_path: Path) -> None:
    first = Session(provider=echo(), store=tmp_path)
    run = ended(first.spawn("1"))
    kept = first.store.transactions()
    kept.do(
        lambda db: queue.enqueue(
            db, run.thread_id, "2", process=kept.process, now=0.0, settings={"of_tomorrow": 1}
        )
    )
    kept.do(lambda db: db.execute("UPDATE queue SET process = NULL"))

    again = Session(provider=echo(), store=tmp_path, id=first.id)
    ended(again.thread(run.thread_id).send("3"))

    texts = [text for _, text in said(again.thread(run.thread_id))]
    assert texts == ["1", "heard: 1", "2", "3", "heard: 3"]


def test_wrong_setting_queues_nothing(make: Make) -> None:
    session = make()
    thread = session.thread(ended(session.spawn("1")).thread_id)

    with pytest.raises(ValueError, match="budget"):
        thread.send("2", budget=-1)

    assert [text for _, text in said(thread)] == ["1", "heard: 1"]


# -- the session again ---------------------------------------------------------------------------


def test_session_is_opened_again_by_its_id_and_as_the_last(tmp_path: Path) -> None:
    first = Session(provider=echo(), store=tmp_path)
    run = ended(first.spawn("My name is Ada."))
    other = Session(provider=echo(), store=tmp_path)
    ended(other.spawn("something else"))

    again = Session(provider=echo(), store=tmp_path, id=first.id)

    assert again.id == first.id
    assert {thread.id for thread in again.threads()} == {first.id, run.thread_id}
    ended(again.thread(run.thread_id).send("What is my name?"))
    assert len(first.thread(run.thread_id).messages) == 4
    assert Session(provider=echo(), store=tmp_path, id="last").id == other.id


@pytest.mark.parametrize("wanted", ["nb_20260101_nobody", "last"])
def test_unknown_session_is_an_error(tmp_path: Path, wanted: str) -> None:
    with pytest.raises(NoSuchSession, match="last"):
        Session(provider=echo(), store=tmp_path, id=wanted)


def test_thread_of_another_session_is_not_found(tmp_path: Path) -> None:
    run = ended(Session(provider=echo(), store=tmp_path).spawn("mine"))

    with pytest.raises(NoSuchThread):
        Session(provider=echo(), store=tmp_path).thread(run.thread_id)


def test_closed_session_starts_nothing_and_reads_on(make: Make) -> None:
    hold = Hold()
    with make(ScriptedProvider(lambda _: Reply("a word", pause=hold))) as session:
        run = session.spawn("1")
        hold.reached.wait(DEADLINE_S)
        waiting = session.thread(run.thread_id).send("2")

    assert (run.status, waiting.status) == (AgentStatus.CANCELLED, AgentStatus.CANCELLED)
    for start in (
        lambda: session.spawn("3"),
        lambda: session.thread(run.thread_id).send("3"),
        lambda: session.tasks.create("a title", "a prompt"),
    ):
        with pytest.raises(SessionClosed):
            start()
    assert session.thread(run.thread_id).messages[0].content == "1"
    session.close()


def test_list_of_tasks_that_is_left_is_run_as_it_was_given(tmp_path: Path) -> None:
    hold = Hold()
    with Session(
        provider=ScriptedProvider(lambda _: Reply("a word", pause=hold)), store=tmp_path
    ) as first:
        run = first.spawn("1")
        hold.reached.wait(DEADLINE_S)
        first.spawn_all(["P", "Q"], "sequential", synthesis=False, thread=run.thread_id, name="N")

    again = Session(provider=by_agent({"root": "x"}), store=tmp_path, id=first.id)
    ended(again.thread(run.thread_id).send("3"))

    left = again.thread(run.thread_id).runs[1]
    assert (left.name, left.task, left.agents) == ("N", "2 tasks, sequential", 3)
    assert "done: P" in again.load(left).output


def test_message_left_by_a_closed_session_is_run_by_the_next(tmp_path: Path) -> None:
    hold = Hold()
    with Session(
        provider=ScriptedProvider(lambda _: Reply("a word", pause=hold)), store=tmp_path
    ) as first:
        run = first.spawn("1")
        hold.reached.wait(DEADLINE_S)
        first.thread(run.thread_id).send("2")

    again = Session(provider=echo(), store=tmp_path, id=first.id)
    ended(again.thread(run.thread_id).send("3"))

    texts = [message.content for message in again.thread(run.thread_id).messages]
    assert texts[-4:] == ["2", "heard: 2", "3", "heard: 3"]
    kinds = {message.kind for message in again.thread(run.thread_id).messages}
    assert kinds == {MessageKind.MESSAGE}
