"""The queue of each thread: one at a time, in order, by one process, and nothing twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentnb.core.durable import AgentKind, MessageKind
from agentnb.core.errors import InvalidRequest
from agentnb.core.types import AgentStatus, Role
from agentnb.providers.scripted import Reply
from agentnb.store import adoption, queue, threads
from agentnb.store.journal import SqliteJournal
from agentnb.store.queue import AHEAD, Begun, Queued
from agentnb.store.runs import finished_run
from agentnb.store.transactions import MemoryTransactions
from agentnb.store.writer import Writer
from tests.store.fake_runs import FakeRun
from tests.store.filled import add_call, add_end, add_event, add_run
from tests.support import Hold, by_agent, make_tree

S = "nb_1"
T = "nb_1.1"
A, B = 1, 2
"""Two processes."""


class Alive:
    """Which of the processes live."""

    def __init__(self) -> None:
        self.living = {A, B}

    def __call__(self, process: int) -> bool:
        return process in self.living


@pytest.fixture
def alive() -> Alive:
    return Alive()


def database() -> Connection:
    """A session with an agent's thread, and two processes."""
    db = MemoryTransactions()._db
    db.execute("INSERT INTO processes (id, host, pid, started_at) VALUES (?, '', 1, 0)", (B,))
    threads.open_session(db, S, now=0.0)
    threads.new_thread(db, T, S, now=0.0, parent_id=S)
    return db


@pytest.fixture
def db() -> Connection:
    return database()


def persist(db: Connection, thread: str = T, kind: AgentKind = AgentKind.PERSISTENT) -> None:
    threads.add_metadata(db, thread, name="n", provider="p", model="m", kind=kind, now=0.0)


def send(db: Connection, text: str, process: int = A, thread: str = T, **given: Any) -> Queued:
    return queue.enqueue(db, thread, text, process=process, now=0.0, **given)


def begin(
    db: Connection, queued: Queued, alive: Alive, process: int = A, run: str | None = None
) -> Begun | None:
    run = run or f"run of {queued.content}"
    return queue.begin(db, queued.message, run, process=process, is_alive=alive)


def end(
    db: Connection,
    queued: Queued,
    process: int = A,
    *,
    answer: str | None = "yes",
    run: str | None = None,
    next_children: dict[str, int] | None = None,
) -> list[Queued]:
    return queue.end(
        db,
        queued.thread_id,
        run or f"run of {queued.content}",
        answer,
        message=queued.message,
        next_children={queued.thread_id: 1} if next_children is None else next_children,
        process=process,
        now=0.0,
    )


def tell(db: Connection, text: str, alive: Alive, process: int = A, **given: Any) -> Queued | None:
    fields: dict[str, Any] = {"kind": MessageKind.TASK_COMPLETION, "now": 0.0} | given
    return queue.tell(db, T, text, process=process, is_alive=alive, **fields)


def adopt(db: Connection, alive: Alive, process: int = B) -> list[Queued]:
    return adoption.adopt(db, S, process=process, is_alive=alive)


def said(db: Connection, thread: str = T) -> list[str]:
    return [message.content for message in threads.messages_of(db, thread, is_placed=True)]


def texts(queued: Sequence[Queued]) -> list[str]:
    return [each.content for each in queued]


def owner(db: Connection, thread: str = T) -> int | None:
    row = threads.thread_row(db, thread)
    assert row is not None
    return row.process


def next_child(db: Connection, thread: str = T) -> int:
    (number,) = db.execute("SELECT next_child FROM threads WHERE id = ?", (thread,)).fetchone()
    return int(number)


def left(db: Connection) -> int:
    (count,) = db.execute("SELECT count(*) FROM queue").fetchone()
    return int(count)


# -- turns -------------------------------------------------------------------------------------


def test_message_is_queued_with_all_that_its_run_is_given(db: Connection) -> None:
    persist(db, S)
    db.execute(
        "INSERT INTO tasks (session_id, id, title, prompt, status, priority, created_at, "
        "updated_at) VALUES (?, 't1', 'Look', '', 'pending', 'low', 0, 0)",
        (S,),
    )
    sent = send(
        db,
        "one",
        kind=MessageKind.TASK_ASSIGNMENT,
        author=S,
        task=1,
        pot="r",
        settings={"budget": 5, "tags": ["ü"]},
    )
    assert queue.queued_of(db, A) == [sent]
    assert queue.queued_of(db, B) == []
    assert queue.queued_of(db, A, thread_id=S) == []
    (message,) = threads.messages_of(db, T)
    assert (message.role, message.kind, message.author) == (
        Role.USER,
        MessageKind.TASK_ASSIGNMENT,
        S,
    )
    assert said(db) == []


def test_messages_begin_one_at_a_time_in_order_with_the_conversation_before_them(
    db: Connection, alive: Alive
) -> None:
    one, two, three = send(db, "one"), send(db, "two", B), send(db, "three")

    assert begin(db, three, alive) is None
    assert begin(db, two, alive, B) is None
    begun = begin(db, one, alive)
    assert begun == Begun((), 1)
    assert owner(db) == A
    assert begin(db, two, alive, B) is None, "the thread is at work"
    assert end(db, one, answer="1") == []
    assert owner(db) is None

    assert begin(db, three, alive) is None, "an earlier one waits, though its process is slow"
    begun = begin(db, two, alive, B)
    assert begun is not None
    assert [(str(each.role), each.content) for each in begun.before] == [
        ("user", "one"),
        ("assistant", "1"),
    ]
    end(db, two, B, answer=None)
    assert begin(db, three, alive) is not None
    end(db, three, answer="")
    assert said(db) == ["one", "1", "two", "three"]
    assert left(db) == 0


def test_threads_do_not_wait_for_each_other(db: Connection, alive: Alive) -> None:
    threads.new_thread(db, "nb_1.2", S, now=0.0)
    one, other = send(db, "one"), send(db, "other", thread="nb_1.2")
    assert begin(db, one, alive) is not None
    assert begin(db, other, alive) is not None


def test_message_that_is_no_longer_queued_cannot_begin(db: Connection, alive: Alive) -> None:
    one = send(db, "one")
    assert queue.withdraw(db, one.message)
    with pytest.raises(LookupError, match="not queued any more"):
        begin(db, one, alive)


def test_first_message_of_a_new_thread_begins_at_once(db: Connection, alive: Alive) -> None:
    assert queue.begin_new(db, T, "one", "r", process=A, now=0.0) == Begun((), 1)
    two = send(db, "two", B)
    assert begin(db, two, alive, B) is None
    for _ in range(2):  # the second time nothing happens
        woken = queue.end(db, T, "r", "1", message=None, next_children={T: 3}, process=A, now=0.0)
        assert woken == []
    begun = begin(db, two, alive, B)
    assert begun is not None
    assert (begun.first_child, len(begun.before)) == (3, 2)
    assert [message.run_id for message in begun.before] == ["r", "r"]


def test_end_of_a_run_that_another_one_has_followed_changes_nothing(
    db: Connection, alive: Alive
) -> None:
    one = send(db, "one")
    begin(db, one, alive, run="r1")
    alive.living = {B}
    assert begin(db, one, alive, B, run="r2") is not None
    assert end(db, one, A, answer="late", run="r1") == []
    assert (owner(db), left(db), said(db)) == (B, 1, ["one"])
    end(db, one, B, answer="1", run="r2")
    end(db, one, B, answer="again", run="r2")
    assert (owner(db), left(db), said(db)) == (None, 0, ["one", "1"])


def test_message_whose_run_died_begins_once_more_at_the_end(db: Connection, alive: Alive) -> None:
    zero, one, two = send(db, "zero"), send(db, "one"), send(db, "two")
    begin(db, zero, alive)
    end(db, zero, answer="0")
    begin(db, one, alive)
    tell(db, "heard", alive)
    assert queue.notices(db, T, "run of one") == ["heard"]
    tell(db, "unheard", alive)
    alive.living = {B}

    assert texts(adopt(db, alive)) == ["one", "two"]
    assert begin(db, two, alive, B) is None
    begun = begin(db, one, alive, B, run="again")
    assert begun is not None
    # What was heard is heard again, since nobody has answered it. So is what was not.
    assert texts_of(begun) == ["zero", "0", "heard", "unheard"]
    end(db, one, B, answer="1", run="again")
    assert said(db) == ["zero", "0", "heard", "unheard", "one", "1"]
    places = db.execute("SELECT place FROM messages WHERE place IS NOT NULL ORDER BY place")
    assert [place for (place,) in places] == [1, 2, 3, 4, 5, 6]
    assert begin(db, two, alive, B) is not None


def texts_of(begun: Begun) -> list[str]:
    return [message.content for message in begun.before]


def test_thread_of_a_dead_process_is_taken_over_without_adoption_too(
    db: Connection, alive: Alive
) -> None:
    queue.begin_new(db, T, "one", "r", process=A, now=0.0)
    two = send(db, "two", B)
    assert begin(db, two, alive, B) is None
    alive.living = {B}
    begun = begin(db, two, alive, B)
    assert begun is not None
    assert texts_of(begun) == ["one"]
    assert owner(db) == B


@pytest.mark.parametrize("is_adopted", [True, False])
def test_answer_of_a_run_that_no_message_began_outlives_its_process(
    db: Connection, alive: Alive, is_adopted: bool
) -> None:
    queue.begin_new(db, T, "one", "r", process=A, now=0.0)
    own = f"{T}.1"
    for thread in (own, f"{T}.2"):
        threads.new_thread(db, thread, S, now=0.0, parent_id=T)
        queue.take_over(db, thread, "r", process=A)
    run = add_run(db, "r", thread_id=T, status="completed")
    add_end(db, run, 1, "1", text="of its own agent")
    add_end(db, run, 2, "2", text="half an answer", status="failed")
    add_end(db, run, 3, "root", text="the answer")
    two = send(db, "two", B)
    alive.living = {B}

    if is_adopted:
        assert adopt(db, alive) == []
        assert [said(db, thread) for thread in (own, f"{T}.2")] == [["of its own agent"], []]
    begun = begin(db, two, alive, B)
    assert begun is not None
    assert texts_of(begun) == ["one", "the answer"]
    end(db, two, B)
    assert said(db) == ["one", "the answer", "two", "yes"]


# -- telling ------------------------------------------------------------------------------------


def test_agent_at_work_is_told_with_its_next_turn_and_each_thing_once(
    db: Connection, alive: Alive
) -> None:
    one = send(db, "one")
    begin(db, one, alive)
    assert queue.told(db, process=A) == []
    assert tell(db, "first", alive, B) is None
    assert tell(db, "second", alive, B, author=S) is None
    assert queue.told(db, process=A) == [T]
    assert queue.told(db, process=B) == []
    assert said(db) == ["one"]
    assert queue.notices(db, T, "run of one") == ["first", "second"]
    assert queue.notices(db, T, "run of one") == []
    assert queue.told(db, process=A) == []
    end(db, one, answer="1")
    assert said(db) == ["one", "first", "second", "1"]
    assert {message.run_id for message in threads.messages_of(db, T)} == {"run of one"}


@pytest.mark.parametrize("is_dead", [False, True])
def test_persistent_agent_without_work_gets_a_run(
    db: Connection, alive: Alive, is_dead: bool
) -> None:
    persist(db)
    if is_dead:
        queue.take_over(db, T, "r", process=A)
        alive.living = {B}
    queued = tell(db, "done", alive, B, pot="r", author=S)
    assert queued is not None
    assert (queued.content, queued.kind, queued.pot) == ("done", MessageKind.TASK_COMPLETION, "r")
    assert queue.queued_of(db, B) == [queued]
    assert begin(db, queued, alive, B) is not None


@pytest.mark.parametrize("kind", [None, AgentKind.EPHEMERAL])
def test_any_other_thread_only_keeps_it(
    db: Connection, alive: Alive, kind: AgentKind | None
) -> None:
    if kind is not None:
        persist(db, kind=kind)
    assert tell(db, "done", alive) is None
    assert said(db) == ["done"]
    assert left(db) == 0


def test_no_thread_is_told_nothing(db: Connection, alive: Alive) -> None:
    found = queue.tell(db, "nobody", "x", kind=MessageKind.NOTE, process=A, now=0.0, is_alive=alive)
    assert found is None
    assert db.execute("SELECT count(*) FROM messages").fetchone() == (0,)


def test_what_was_told_too_late_begins_a_run_of_a_persistent_agent(
    db: Connection, alive: Alive
) -> None:
    persist(db)
    one, two = send(db, "one"), send(db, "two")
    begin(db, one, alive)
    tell(db, "late", alive, B)
    tell(db, "later", alive, B)
    woken = end(db, one, answer="1")
    assert texts(woken) == ["late", "later"], "and not what waited before"
    assert said(db) == ["one", "1"]
    waiting = [two, *woken]
    while waiting:
        assert [begin(db, each, alive) for each in waiting[1:]] == [None] * len(waiting[1:])
        assert begin(db, waiting[0], alive) is not None
        end(db, waiting.pop(0), answer=None)
    assert said(db) == ["one", "1", "two", "late", "later"]


def test_what_was_told_too_late_is_only_kept_by_any_other_agent(
    db: Connection, alive: Alive
) -> None:
    persist(db, kind=AgentKind.EPHEMERAL)
    one = send(db, "one")
    begin(db, one, alive)
    tell(db, "late", alive, B)
    assert end(db, one, answer="1") == []
    assert said(db) == ["one", "1", "late"]
    assert threads.messages_of(db, T)[-1].run_id is None, "no run has heard it"
    assert left(db) == 0


# -- numbers of children ------------------------------------------------------------------------


def test_numbers_go_on_where_the_run_stopped(db: Connection, alive: Alive) -> None:
    for text, counted in (("one", 4), ("two", 4), ("three", 9)):
        sent = send(db, text)
        begin(db, sent, alive)
        end(db, sent, next_children={T: counted})
        assert next_child(db) == counted


@pytest.mark.parametrize("own", [0, 1, 3])
@pytest.mark.parametrize("others", [1, 2])
def test_number_that_someone_else_took_meanwhile_is_never_given_again(
    db: Connection, alive: Alive, own: int, others: int
) -> None:
    given: list[int] = []
    for text in ("one", "two", "three"):
        sent = send(db, text)
        begun = begin(db, sent, alive)
        assert begun is not None
        given += range(begun.first_child, begun.first_child + own)
        for _ in range(others):
            number = threads.take_child(db, T)
            threads.new_thread(db, f"{T}.{number}", S, now=0.0, parent_id=T)
            given.append(number)
        end(db, sent, next_children={T: begun.first_child + own})
    assert len(set(given)) == len(given) == 3 * (own + others)


def test_number_given_in_a_run_is_above_those_that_others_get_far_ahead(
    db: Connection, alive: Alive
) -> None:
    sent = send(db, "one")
    begin(db, sent, alive)
    assert threads.take_child(db, T) == 1 + AHEAD
    assert threads.take_child(db, T, at_least=5) == 2 + AHEAD


@pytest.mark.parametrize("by", ["begin", "adopt", "end"])
def test_after_a_death_numbers_go_on_behind_all_that_are_stored(
    db: Connection, alive: Alive, by: str
) -> None:
    sent = send(db, "one")
    begin(db, sent, alive)
    threads.new_thread(db, f"{T}.3", S, now=0.0, parent_id=T)
    threads.new_thread(db, f"{T}.3.9", S, now=0.0, parent_id=f"{T}.3")
    own = add_run(db, "r", thread_id=T)
    above = add_run(db, "r2", thread_id=S)
    others = add_run(db, "r3", thread_id="nb_1.10")
    for run, paths in ((own, ["root", "2", "2.8"]), (above, ["1", "1.5", "7"]), (others, ["6"])):
        for place, path in enumerate(paths):
            add_event(db, run, place, "agent_spawned", path)
    alive.living = {B}
    if by == "end":  # its run came to its end, and the process died before it was kept here
        end(db, sent, B, next_children={})
    elif by == "adopt":
        adopt(db, alive)
    else:
        begun = begin(db, sent, alive, B)
        assert begun is not None
        assert begun.first_child == 6
        return
    assert next_child(db) == 6
    assert owner(db) is None


def test_end_lets_go_of_all_threads_of_its_run(db: Connection, alive: Alive) -> None:
    threads.new_thread(db, f"{T}.1", S, now=0.0, parent_id=T)
    persist(db, f"{T}.1")
    sent = send(db, "one")
    begin(db, sent, alive)
    queue.take_over(db, f"{T}.1", "run of one", process=A)
    queue.take_over(db, S, "another run", process=A)
    queue.tell(db, f"{T}.1", "late", kind=MessageKind.NOTE, process=B, now=0.0, is_alive=alive)
    woken = end(db, sent, next_children={T: 2, f"{T}.1": 5})
    assert [(each.thread_id, each.content) for each in woken] == [(f"{T}.1", "late")]
    assert [owner(db, thread) for thread in (T, f"{T}.1", S)] == [None, None, A]
    assert [next_child(db, thread) for thread in (T, f"{T}.1")] == [2, 5]


# -- taking back --------------------------------------------------------------------------------


def test_message_that_has_not_begun_is_taken_back_without_a_trace(
    db: Connection, alive: Alive
) -> None:
    one, two = send(db, "one"), send(db, "two")
    assert queue.withdraw(db, one.message)
    assert not queue.withdraw(db, one.message)
    assert [message.content for message in threads.messages_of(db, T)] == ["two"]
    assert begin(db, two, alive) is not None


def test_message_that_waits_for_one_at_work_is_taken_back(db: Connection, alive: Alive) -> None:
    one, two = send(db, "one"), send(db, "two")
    begin(db, one, alive)
    assert queue.withdraw(db, two.message)
    assert [message.content for message in threads.messages_of(db, T)] == ["one"]


def test_message_at_work_is_not_taken_back_but_one_whose_run_died_is(
    db: Connection, alive: Alive
) -> None:
    one = send(db, "one")
    begin(db, one, alive)
    assert not queue.withdraw(db, one.message)
    alive.living = {B}
    adopt(db, alive)
    assert queue.withdraw(db, one.message)
    assert said(db) == ["one"], "it has a place in the conversation, and keeps it"
    assert left(db) == 0


# -- what the dead leave ------------------------------------------------------------------------


def test_messages_of_a_dead_process_go_to_the_first_that_looks(
    db: Connection, alive: Alive
) -> None:
    threads.open_session(db, "nb_2", now=0.0)
    sent = [send(db, "a1"), send(db, "b1", B), send(db, "a2"), send(db, "c", A, "nb_2")]
    assert adopt(db, alive) == []
    alive.living = {B}
    adopted = adopt(db, alive)
    assert adopted == [sent[0], sent[2]]
    assert adopt(db, alive) == [], "once"
    assert texts(queue.queued_of(db, B)) == ["a1", "b1", "a2"]
    assert texts(queue.queued_of(db, A)) == ["c"], "of another session"


def test_message_behind_one_of_a_dead_process_is_held_up_by_it(
    db: Connection, alive: Alive
) -> None:
    def is_held_up(queued: Queued) -> bool:
        return queue.is_held_up_by_dead(db, queued.message, is_alive=alive)

    one, two, other = send(db, "one", A), send(db, "two", B), send(db, "other", B, S)
    assert [is_held_up(each) for each in (one, two, other)] == [False, False, False]
    alive.living = {B}
    assert [is_held_up(each) for each in (one, two, other)] == [True, True, False]
    adopt(db, alive)
    assert not is_held_up(two)
    db.execute("UPDATE queue SET process = NULL WHERE message = ?", (one.message,))
    assert is_held_up(two)
    queue.withdraw(db, two.message)
    assert not is_held_up(two)


def test_messages_whose_process_is_not_known_any_more_are_taken_over(
    db: Connection, alive: Alive
) -> None:
    one, two = send(db, "one"), send(db, "two", B)
    begin(db, one, alive)
    db.execute("DELETE FROM processes WHERE id = ?", (A,))
    assert (owner(db), left(db)) == (None, 2)
    (adopted,) = adopt(db, alive)
    assert (adopted.content, adopted.run_id) == ("one", "run of one")
    assert begin(db, two, alive, B) is None
    assert begin(db, one, alive, B) is not None


@pytest.mark.parametrize("is_persistent", [True, False])
def test_what_a_dead_process_was_told_begins_a_run_or_is_kept(
    db: Connection, alive: Alive, is_persistent: bool
) -> None:
    if is_persistent:
        persist(db)
    queue.begin_new(db, T, "one", "r", process=A, now=0.0)
    tell(db, "unheard", alive, B)
    alive.living = {B}
    assert texts(adopt(db, alive)) == (["unheard"] if is_persistent else [])
    assert said(db) == (["one"] if is_persistent else ["one", "unheard"])
    assert owner(db) is None
    assert left(db) == int(is_persistent)


def test_process_that_lives_keeps_what_it_has(db: Connection, alive: Alive) -> None:
    persist(db)
    one, two = send(db, "one"), send(db, "two")
    begin(db, one, alive)
    tell(db, "told", alive, B)
    assert adopt(db, alive) == []
    assert (owner(db), texts(queue.queued_of(db, A))) == (A, ["one", "two"])
    assert queue.notices(db, T, "run of one") == ["told"]
    end(db, one)
    assert begin(db, two, alive) is not None


# -- runs that ended, and whose end was not taken into their thread -----------------------------


async def test_answer_of_a_run_whose_process_died_is_found(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "x.db")
    writer.open()
    tree = make_tree(by_agent({"root": "The whole answer."}), journal=SqliteJournal(writer))
    run_id = tree.request.run_id

    def work(db: Connection) -> Queued:
        threads.open_session(db, S, now=0.0)
        queued = send(db, "one", writer.process, S)
        queue.begin(db, queued.message, run_id, process=writer.process, is_alive=lambda _: True)
        return queued

    queued = writer.do(work)
    assert writer.do(lambda db: finished_run(db, run_id)) is None
    await tree.run()
    writer.close()  # and no `queue.end`

    heir = Writer(tmp_path / "x.db")
    (adopted,) = heir.do(
        lambda db: adoption.adopt(db, S, process=heir.process, is_alive=lambda _: False)
    )
    assert (adopted.message, adopted.run_id) == (queued.message, run_id)
    found = heir.do(lambda db: finished_run(db, run_id))
    assert found == (AgentStatus.COMPLETED, "The whole answer.", None)
    heir.do(lambda db: end(db, adopted, heir.process, answer=found[1], run=run_id))
    assert heir.do(lambda db: (said(db, S), left(db))) == (["one", "The whole answer."], 0)
    heir.close()


async def test_run_that_failed_or_went_on_when_its_process_died(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "x.db")
    writer.open()

    def fails(_: object) -> str:
        raise RuntimeError("no \ud83d such luck")

    failed = make_tree(by_agent({"root": fails}), journal=SqliteJournal(writer))
    await failed.run()
    going_on = FakeRun(SqliteJournal(writer), run_id="going on")
    going_on.begin()
    going_on.spawn("root", "task")
    await going_on.commit()

    found = writer.do(lambda db: finished_run(db, failed.request.run_id))
    assert found is not None
    assert (found[0], found[1]) == (AgentStatus.FAILED, failed.result.final_response)
    assert "luck" in (found[2] or "")
    assert writer.do(lambda db: finished_run(db, "going on")) is None
    assert writer.do(lambda db: finished_run(db, "nobody")) is None
    writer.close()


@pytest.mark.parametrize("ending", ["completes", "says nothing", "fails", "is cancelled"])
async def test_end_of_a_run_is_read_as_the_run_told_it(tmp_path: Path, ending: str) -> None:
    writer = Writer(tmp_path / "x.db")
    writer.open()
    hold = Hold()
    replies: dict[str, str | Reply] = {
        "completes": "All of it.",
        "says nothing": "",
        "fails": Reply("The beginning", error=InvalidRequest("no")),
        "is cancelled": Reply("The beginning", pause=hold),
    }
    tree = make_tree(by_agent({"root": replies[ending]}), journal=SqliteJournal(writer))
    running = tree.start()
    if ending == "is cancelled":
        await hold.until_reached()
        tree.cancel("root")
    await running

    found = writer.do(lambda db: finished_run(db, tree.request.run_id))
    assert found is not None
    assert found[:2] == (tree.result.status, tree.result.final_response)
    writer.close()


@pytest.mark.parametrize(
    ("text", "first", "length", "expected"),
    [("own", None, None, "own"), (None, None, None, "of the call"), (None, 3, 3, "the")],
)
def test_answer_is_the_newest_end_of_the_root(
    db: Connection, text: str | None, first: int | None, length: int | None, expected: str
) -> None:
    run = add_run(db, "r", status="completed")
    add_call(db, run, "root", 2, usage=[1, 2, 0, 0], text="of the call")
    add_end(db, run, 1, "root")
    add_end(db, run, 2, "root")
    add_end(db, run, 3, "1")
    db.execute(
        "UPDATE ends SET text = ?, number = 2, first = ?, length = ? WHERE place = 2",
        (text, first, length),
    )
    assert finished_run(db, "r") == (AgentStatus.COMPLETED, expected, None)


# -- in any order -------------------------------------------------------------------------------


class Kernel:
    """A process that takes one step at a time and may die at any moment."""

    def __init__(self, db: Connection, process: int, alive: Alive, sent: int) -> None:
        self.db, self.process, self.alive = db, process, alive
        self.to_send = [f"{process}:{number}" for number in range(sent)]
        self.line: list[Queued] = []
        self.at_work: Queued | None = None
        self.runs = 0

    @property
    def run_id(self) -> str:
        return f"run {self.process}-{self.runs}"

    def send(self) -> None:
        if self.to_send:
            self.line.append(send(self.db, self.to_send.pop(0), self.process))

    def adopt(self) -> None:
        self.line += adopt(self.db, self.alive, self.process)
        self.line.sort(key=lambda queued: queued.message)

    def tell(self, text: str) -> None:
        woken = tell(self.db, text, self.alive, self.process)
        self.line += [woken] if woken is not None else []

    def work(self) -> None:
        """Begin the first message, or hear what it is told and end it."""
        if self.at_work is None:
            self.runs += 1
            for queued in self.line[:1]:
                begun = begin(self.db, queued, self.alive, self.process, self.run_id)
                self.at_work = None if begun is None else self.line.pop(0)
            return
        queue.notices(self.db, T, self.run_id)
        answer = f"answer to {self.at_work.content}"
        self.line += end(self.db, self.at_work, self.process, answer=answer, run=self.run_id)
        self.line.sort(key=lambda queued: queued.message)
        self.at_work = None


STEPS = st.lists(
    st.sampled_from(["a sends", "b sends", "a works", "b works", "b adopts", "a tells", "b tells"]),
    max_size=60,
)


@given(
    steps=STEPS,
    dies_at=st.none() | st.integers(0, 60),
    is_persistent=st.booleans(),
    sent=st.integers(0, 6),
)
@settings(max_examples=150, deadline=None)
def test_whatever_happens_each_message_is_answered_once_and_in_order(
    steps: list[str], dies_at: int | None, is_persistent: bool, sent: int
) -> None:
    db, alive = database(), Alive()
    if is_persistent:
        persist(db)
    a, b = Kernel(db, A, alive, sent), Kernel(db, B, alive, sent)
    told: list[str] = []
    for place, step in enumerate(steps):
        if place == dies_at:
            alive.living = {B}
        name, does = step.split()
        kernel = a if name == "a" else b
        if kernel.process not in alive.living:
            continue
        match does:
            case "sends":
                kernel.send()
            case "works":
                kernel.work()
            case "adopts":
                kernel.adopt()
            case "tells":
                told.append(f"told {place}")
                kernel.tell(told[-1])
        at_work = [each for each in (a, b) if each.at_work and each.process in alive.living]
        assert len(at_work) <= 1
        if at_work:
            assert owner(db) == at_work[0].process
    for _ in range(4 * (len(steps) + sent)):  # all that is left
        for kernel in (a, b):
            if kernel.process in alive.living:
                kernel.adopt()
                kernel.work()

    assert left(db) == 0
    assert owner(db) is None
    messages = threads.messages_of(db, T)
    asked = [each.content for each in messages if each.role is Role.USER]
    runs = [each.content for each in messages if each.role is Role.ASSISTANT]
    assert len(runs) == len(set(runs)), "each is answered at most once"
    sent_ones = [text for text in asked if ":" in text]
    expected = [f"{each.process}:{number}" for each in (a, b) for number in range(sent)]
    unsent = {*a.to_send, *b.to_send}
    assert sorted(sent_ones) == sorted(text for text in expected if text not in unsent)
    assert sorted(text for text in asked if "told" in text) == sorted(told), "none is lost or twice"
    answered = [text.removeprefix("answer to ") for text in runs]
    assert {text for text in answered if ":" in text} == set(sent_ones)
    ids = {
        content: message
        for message, content in db.execute("SELECT id, content FROM messages WHERE role = 'user'")
    }
    assert [ids[text] for text in answered] == sorted(ids[text] for text in answered)
    for text in sent_ones:  # its answer is the next one after it
        behind = messages[[each.content for each in messages].index(text) :]
        first = next(each.content for each in behind if each.role is Role.ASSISTANT)
        assert first == f"answer to {text}"
