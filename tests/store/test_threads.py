"""Threads, their messages and their agents' metadata, in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentnb.core.durable import AgentKind, MessageKind, ThreadMessage
from agentnb.core.errors import AgentnbError, NoSuchThread
from agentnb.core.types import Role
from agentnb.store import queue, threads
from agentnb.store.store import store_at
from agentnb.store.threads import ThreadAtWork, ThreadRow
from agentnb.store.transactions import MemoryTransactions

S = "nb_1"
OTHER = "nb_2"


@pytest.fixture
def db() -> Connection:
    """A session with a thread of its own."""
    db = MemoryTransactions()._db
    threads.open_session(db, S, now=1.0)
    return db


def add(db: Connection, thread_id: str, *, session: str = S, parent: str | None = None) -> str:
    threads.new_thread(db, thread_id, session, now=2.0, parent_id=parent)
    return thread_id


def agent(db: Connection, thread_id: str, name: str = "n", **given: Any) -> None:
    fields: dict[str, Any] = {"provider": "p", "model": "m", "kind": AgentKind.PERSISTENT}
    fields |= {"now": 3.0} | given
    threads.add_metadata(db, thread_id, name=name, **fields)


def row(db: Connection, thread_id: str) -> ThreadRow:
    found = threads.thread_row(db, thread_id)
    assert found is not None
    return found


def say(db: Connection, thread_id: str, said: str, **given: Any) -> int:
    """Add a message: `u…` of a person, `a…` of the agent."""
    role = Role.USER if said[0] == "u" else Role.ASSISTANT
    return threads.add_message(db, thread_id, role, said, **{"now": 4.0, **given})


def said(db: Connection, thread_id: str) -> list[str]:
    return [message.content for message in threads.messages_of(db, thread_id)]


def nobody(process: int) -> bool:
    return False


def everybody(process: int) -> bool:
    return True


# -- sessions and threads -------------------------------------------------------------------------


def test_session_is_a_thread_of_its_own(db: Connection) -> None:
    threads.open_session(db, S, now=99.0)  # a second time: nothing
    add(db, "t")
    assert threads.has_session(db, S)
    assert not threads.has_session(db, "t")
    assert not threads.has_session(db, "nobody")
    assert row(db, S).created_at == datetime.fromtimestamp(1, UTC)


def test_last_session_is_the_newest_and_of_two_at_once_the_second(db: Connection) -> None:
    assert threads.last_session(db) == S
    threads.open_session(db, OTHER, now=1.0)
    add(db, "t", session=S)
    assert threads.last_session(db) == OTHER
    threads.open_session(db, "older", now=0.5)
    assert threads.last_session(db) == OTHER
    assert threads.last_session(MemoryTransactions()._db) is None


def test_threads_are_listed_by_session_the_newest_first(db: Connection) -> None:
    threads.open_session(db, OTHER, now=5.0)
    for name in ("a", "b"):  # at the same time
        add(db, name)
    add(db, "c", session=OTHER)
    assert [each.id for each in threads.list_threads(db, S)] == ["b", "a", S]
    assert [each.id for each in threads.list_threads(db, OTHER)] == [OTHER, "c"]
    assert threads.list_threads(db, "nobody") == []


def test_row_of_a_thread_has_all_but_its_messages(db: Connection) -> None:
    threads.new_thread(db, "t.1", S, now=2.5, parent_id=S, forked_from=S)
    agent(db, "t.1")
    say(db, "t.1", "u" + "x" * 500)
    say(db, "t.1", "a second one")
    queue.enqueue(db, "t.1", "waits", process=1, now=0.0)
    begun = queue.enqueue(db, "t.1", "waits, too", process=1, now=0.0).message
    db.execute("UPDATE queue SET run_id = 'r' WHERE message = ?", (begun,))

    found = row(db, "t.1")
    assert found == threads.list_threads(db, S)[0] == threads.children_of(db, S)[0]
    assert (found.id, found.session_id, found.parent_id, found.forked_from) == ("t.1", S, S, S)
    assert (found.process, found.run_id, found.queued) == (None, None, 1)
    assert found.title == "u" + "x" * 199
    assert found.metadata is not None
    assert (found.metadata.thread_id, found.metadata.name) == ("t.1", "n")
    assert threads.thread_row(db, "nobody") is None


def test_children_are_in_the_order_in_which_they_were_made(db: Connection) -> None:
    for name in ("z", "a", "m"):
        add(db, name, parent=S)
    add(db, "below", parent="a")
    assert [each.id for each in threads.children_of(db, S)] == ["z", "a", "m"]
    assert threads.children_of(db, "below") == []


def test_thread_is_known_by_its_id_and_session(db: Connection) -> None:
    add(db, "t")
    assert threads.has_thread(db, "t")
    assert threads.has_thread(db, "t", S)
    assert not threads.has_thread(db, "t", OTHER)
    assert not threads.has_thread(db, "nobody")


def test_number_of_a_child_is_given_once(db: Connection) -> None:
    assert [threads.take_child(db, S) for _ in range(3)] == [1, 2, 3]
    assert threads.take_child(db, S, at_least=10) == 10
    assert threads.take_child(db, S, at_least=4) == 11
    with pytest.raises(NoSuchThread):
        threads.take_child(db, "nobody")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda db: add(db, "t", session="nobody"),
        lambda db: add(db, "t", parent="nobody"),
        lambda db: add(db, S),
        lambda db: say(db, "nobody", "u"),
        lambda db: agent(db, "nobody"),
        lambda db: agent(db, S, created_for_task=7),
        lambda db: agent(db, S, parent_thread_id="nobody"),
        lambda db: agent(db, S, kind="eternal"),
        lambda db: [agent(db, S) for _ in range(2)],  # type: ignore[func-returns-value]
        lambda db: say(db, S, "u", kind="shout"),
        lambda db: threads.add_message(db, S, "system", "u", now=0.0),  # type: ignore[arg-type]
    ],
)
def test_schema_refuses_what_cannot_be(
    db: Connection, wrong: Callable[[Connection], object]
) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        wrong(db)


# -- metadata ------------------------------------------------------------------------------------


def test_agents_of_a_session_are_listed_in_order_with_all_that_is_known(db: Connection) -> None:
    threads.open_session(db, OTHER, now=0.0)
    db.execute(
        "INSERT INTO tasks (session_id, id, title, prompt, status, priority, created_at, "
        "updated_at) VALUES (?, 't1', 'Look', '', 'pending', 'low', 0, 0)",
        (S,),
    )
    for name in ("b", "a", "c"):
        add(db, name)
    agent(db, "b", "second", now=4.0, kind=AgentKind.EPHEMERAL)
    agent(db, "a", "first", created_for_task=1, parent_thread_id=S, profile="careful")
    add(db, "d", session=OTHER)
    agent(db, "d")

    first, second = threads.list_agents(db, S)
    assert (first.name, second.name) == ("first", "second")
    assert (first.provider, first.model, first.profile) == ("p", "m", "careful")
    assert (first.created_for_task, first.parent_thread_id) == ("t1", S)
    assert first.created_at == datetime.fromtimestamp(3, UTC)
    assert threads.list_agents(db, S, AgentKind.PERSISTENT) == [first]
    assert threads.list_agents(db, S, AgentKind.EPHEMERAL) == [second]
    assert row(db, "c").metadata is None


def test_current_task_of_an_agent_is_set_and_taken_back(db: Connection) -> None:
    agent(db, S)
    for title in ("Look", None):
        threads.set_current_task(db, S, title)
        (found,) = threads.list_agents(db, S)
        assert found.current_task == title
    threads.set_current_task(db, "nobody", "Look")


@given(names=st.lists(st.sampled_from(["n", "n-2", "n-3", "n.", "n-", "m", "N", "n-22", "%"])))
@settings(max_examples=50)
def test_name_that_is_taken_in_the_session_gets_the_next_free_number(names: list[str]) -> None:
    db = MemoryTransactions()._db
    for session in (S, OTHER):
        threads.open_session(db, session, now=0.0)
        agent(db, session, "n")
    expected = ["n"]
    for number, name in enumerate(names):
        agent(db, add(db, f"t{number}"), name)
        free = [name, *(f"{name}-{n}" for n in range(2, len(names) + 3))]
        expected.append(next(each for each in free if each not in expected))
    found = db.execute(
        "SELECT name FROM agent_metadata JOIN threads ON id = thread_id WHERE session_id = ?", (S,)
    )
    assert sorted(name for (name,) in found) == sorted(expected)


# -- messages ------------------------------------------------------------------------------------


def test_conversation_is_in_order_of_place_and_what_is_queued_comes_last(db: Connection) -> None:
    early = say(db, S, "u queued early", is_queued=True, kind=MessageKind.NOTE, author=S)
    say(db, S, "u first", run_id="r")
    say(db, S, "a second", run_id="r")
    late = say(db, S, "u queued late", is_queued=True)
    assert said(db, S) == ["u first", "a second", "u queued early", "u queued late"]
    assert [each.content for each in threads.messages_of(db, S, is_placed=True)] == [
        "u first",
        "a second",
    ]
    threads.place_message(db, late, "r2")
    threads.place_message(db, early, None)
    threads.place_message(db, late, "r3")  # it has a place, and keeps it
    assert said(db, S)[2:] == ["u queued late", "u queued early"]
    assert [each.run_id for each in threads.messages_of(db, S)] == ["r", "r", "r3", None]
    assert threads.messages_of(db, S)[3] == ThreadMessage(
        Role.USER, "u queued early", MessageKind.NOTE, S, None, datetime.fromtimestamp(4, UTC)
    )


def test_places_of_one_thread_are_not_those_of_another(db: Connection) -> None:
    for thread in (S, add(db, "t")):
        for number in range(3):
            say(db, thread, f"u {number}")
    found = db.execute("SELECT place FROM messages ORDER BY id").fetchall()
    assert found == [(1,), (2,), (3,)] * 2


def test_thread_that_a_person_spoke_to_last_is_known(db: Connection) -> None:
    assert threads.last_spoken_to(db, S) is None
    for name in ("a", "b", "c"):
        add(db, name)
    say(db, "a", "u")
    say(db, "b", "u", is_queued=True)
    say(db, "a", "a answer")
    say(db, "a", "u by an agent", author=S)
    say(db, "c", "u told", kind=MessageKind.TASK_COMPLETION)
    threads.open_session(db, OTHER, now=0.0)
    say(db, OTHER, "u elsewhere")
    assert threads.last_spoken_to(db, S) == "b"


# -- forks ---------------------------------------------------------------------------------------


def fork(db: Connection, at: int | None) -> list[str]:
    threads.fork(db, "t", "fork", at=at, now=9.0)
    return said(db, "fork")


TALK = ["u1", "a1", "u2", "a2", "u3 without an answer", "u4", "u told meanwhile", "a4"]
RUNS = ["r1", "r1", "r2", "r2", "r3", "r4", "r4", "r4"]


def have_talk(db: Connection) -> None:
    add(db, "t", parent=S)
    for text, run in zip(TALK, RUNS, strict=True):
        say(db, "t", text, run_id=run)


@pytest.mark.parametrize("at", [0, 2, 4, 5, 8])
def test_fork_begins_with_the_turns_before_it(db: Connection, at: int) -> None:
    have_talk(db)
    assert fork(db, at) == TALK[:at]
    found = row(db, "fork")
    assert (found.session_id, found.parent_id, found.forked_from) == (S, None, "t")
    assert (found.process, found.run_id, found.metadata) == (None, None, None)
    assert found.title == ("u1" if at else "")
    assert said(db, "t") == TALK
    assert threads.messages_of(db, "fork") == threads.messages_of(db, "t")[:at]
    say(db, "fork", "u goes on")
    assert said(db, "fork") == [*TALK[:at], "u goes on"]
    assert threads.take_child(db, "fork") == 1


@pytest.mark.parametrize(
    ("at", "near"),
    [(1, "0 or 2"), (3, "2 or 4"), (6, "5 or 8"), (7, "5 or 8"), (9, "8"), (-1, "0"), (True, "")],
)
def test_fork_within_a_turn_is_refused_and_says_where_turns_end(
    db: Connection, at: int, near: str
) -> None:
    have_talk(db)
    with pytest.raises(ValueError, match="a number of messages after which a turn ends") as refused:
        fork(db, at)
    assert f"such as {near}" in str(refused.value)
    assert "(the thread has 8)" in str(refused.value)
    assert threads.thread_row(db, "fork") is None


def test_fork_of_a_thread_leaves_out_the_turn_that_goes_on(db: Connection) -> None:
    have_talk(db)
    sent = queue.enqueue(db, "t", "u5", process=1, now=0.0)
    assert queue.begin(db, sent.message, "r5", process=1, is_alive=everybody)
    queue.enqueue(db, "t", "u waits", process=1, now=0.0)
    with pytest.raises(ValueError, match="such as 8,"):
        fork(db, 9)
    assert fork(db, None) == TALK


def test_fork_of_a_conversation_without_runs_cuts_no_answer_off(db: Connection) -> None:
    add(db, "t")
    for text in ("u1", "a1"):
        say(db, "t", text)
    with pytest.raises(ValueError, match="such as 0 or 2,"):
        fork(db, 1)
    assert fork(db, None) == ["u1", "a1"]


def test_fork_of_no_thread_and_of_an_empty_one(db: Connection) -> None:
    with pytest.raises(NoSuchThread):
        fork(db, None)
    add(db, "t")
    assert fork(db, None) == []


# -- deleting ------------------------------------------------------------------------------------


def counts(db: Connection) -> dict[str, int]:
    tables = ("threads", "messages", "queue", "agent_metadata", "tasks", "memories")
    return {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}


def have_a_tree(db: Connection) -> None:
    """An agent and one below it, each with a message, a queued one and a task, and a memory."""
    for name, parent in (("t", S), ("t.1", "t")):
        add(db, name, parent=parent)
        agent(db, name, parent_thread_id=parent)
        say(db, name, "u")
        queue.enqueue(db, name, "u waits", process=1, now=0.0)
        db.execute(
            "INSERT INTO tasks (session_id, id, title, prompt, status, priority, assigned_to, "
            "created_by, created_at, updated_at) "
            "VALUES (?, ?, 'Look', '', 'pending', 'low', ?, ?, 0, 0)",
            (S, f"task of {name}", name, parent),
        )
    threads.new_thread(db, "fork", S, now=0.0, forked_from="t")
    db.execute("INSERT INTO memories VALUES (1, 'text', 't', 'r', 0)")


def test_thread_is_deleted_with_what_is_its_own_and_nothing_else(db: Connection) -> None:
    have_a_tree(db)
    threads.delete(db, "t.1", is_alive=everybody)
    assert [each.id for each in threads.list_threads(db, S)] == ["t", S, "fork"]
    assert counts(db) == {
        "threads": 3,
        "messages": 2,
        "queue": 1,
        "agent_metadata": 1,
        "tasks": 2,
        "memories": 1,
    }
    assert db.execute("SELECT assigned_to, created_by FROM tasks").fetchall() == [
        ("t", S),
        (None, "t"),
    ]
    threads.delete(db, "t", is_alive=everybody)
    assert row(db, "fork").forked_from is None
    threads.delete(db, S, is_alive=everybody)
    assert counts(db) == dict.fromkeys(counts(db), 0) | {"memories": 1}


@pytest.mark.parametrize("at_work", ["t", "t.1"])
@pytest.mark.parametrize("thread", [S, "t"])
def test_thread_at_work_or_above_one_is_not_deleted(
    db: Connection, thread: str, at_work: str
) -> None:
    have_a_tree(db)
    queue.take_over(db, at_work, "r", process=1)
    before = counts(db)
    with pytest.raises(ThreadAtWork) as refused:
        threads.delete(db, thread, is_alive=everybody)
    assert refused.value.thread == at_work
    assert isinstance(refused.value, (AgentnbError, ValueError))
    assert counts(db) == before
    threads.delete(db, thread, is_alive=nobody)  # its process died
    assert threads.thread_row(db, thread) is None
    with pytest.raises(NoSuchThread):
        threads.delete(db, thread, is_alive=nobody)


def test_session_with_any_thread_at_work_is_not_deleted(db: Connection) -> None:
    queue.take_over(db, add(db, "at the top"), "r", process=1)
    add(db, "idle", parent=S)
    with pytest.raises(ThreadAtWork):
        threads.delete(db, S, is_alive=everybody)
    threads.delete(db, "idle", is_alive=everybody)


def test_deleted_text_is_no_longer_in_the_file(tmp_path: Path) -> None:
    store = store_at(tmp_path / "x.db")
    transactions = store.transactions()

    def work(db: Connection) -> int:
        threads.open_session(db, S, now=0.0)
        say(db, add(db, "t"), "u the words to forget")
        return int(db.execute("PRAGMA secure_delete").fetchone()[0])

    before = transactions.do(work)
    transactions.do(lambda db: threads.delete(db, "t", is_alive=nobody))
    after = transactions.do(lambda db: db.execute("PRAGMA secure_delete").fetchone()[0])
    store.close()
    assert before == after
    assert b"words to forget" not in (tmp_path / "x.db").read_bytes()
    with closing(sqlite3.connect(tmp_path / "x.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
