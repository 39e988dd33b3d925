"""A message's run, and one that assigned tasks, go on when their process was killed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from sqlite3 import Connection
from typing import Any
from weakref import WeakValueDictionary

import pytest

import agentnb
from agentnb import CannotRecover, Run, RunChanged, ScriptedProvider, Session
from agentnb.core.durable import MessageKind
from agentnb.core.events import AgentSpawned, RunFinished
from agentnb.core.types import CompletionRequest
from agentnb.providers.scripted import AnyReply
from agentnb.store import queue
from agentnb.tasks import at_work
from tests.support import DEADLINE_S, Hold, events_of, path_of, task_of, until
from tests.tasks.dying import BUDGET, COST, MOST, SCENES, Left, killed, provider_of, settings_of
from tests.tasks.keeping import Keeping, ended
from tests.tasks.scripts import NEW, assigned, create, results, title_of, tools, worked_on


@pytest.fixture(scope="module")
def deaths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Left]:
    """Each scene, killed once: a test takes a copy of what is left."""
    return {scene: killed(tmp_path_factory.mktemp(scene) / "x.db", scene) for scene in SCENES}


@pytest.fixture
def dead(
    deaths: dict[str, Left], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Left]:
    """What a process left that was killed in a scene."""
    # Copies of one store have runs of the same ids, and those of the test before may be alive.
    for by_run in ("_budgets", "_rebuilt", "_cancellations"):
        monkeypatch.setattr(at_work, by_run, WeakValueDictionary())

    def copied(scene: str) -> Left:
        store = tmp_path / scene / "x.db"
        shutil.copytree(deaths[scene].store.parent, store.parent)
        return deaths[scene]._replace(store=store)

    return copied


def opened(left: Left, scene: str, hold: Hold | None = None, **changed: Any) -> Keeping:
    """The dead process's session, in this one."""
    settings = {"provider": provider_of(scene, hold), **settings_of(scene), **changed}
    return Keeping(store=left.store, id=left.session_id, **settings)


def stranger(left: Left, scene: str, **changed: Any) -> Session:
    """Another session on the same store."""
    return Session(
        store=left.store, **{"provider": provider_of(scene), **settings_of(scene), **changed}
    )


def asked(session: Session) -> list[str]:
    """The tasks of the agents that were asked in this process, in order."""
    provider = session.settings.provider
    assert isinstance(provider, ScriptedProvider)
    return [title_of(each) or task_of(each) for each in provider.requests]


def texts_of(session: Session, thread: str) -> list[tuple[str, str]]:
    return [(str(each.kind), each.content) for each in session.thread(thread).messages]


def all_of(session: Session, sql: str) -> list[Any]:
    def read(db: Connection) -> list[Any]:
        return db.execute(sql).fetchall()

    return session.store.transactions().do(read)


def at_rest(session: Session) -> None:
    """Wait until no message is queued, and nobody is at work."""
    sql = "SELECT 1 FROM queue UNION SELECT 1 FROM threads WHERE process IS NOT NULL"
    asyncio.run(until(lambda: not all_of(session, sql)))


UNBROKEN = ["one", "heard 1", "two", "heard 2", "three", "heard 3"]


def by_opening(left: Left) -> tuple[Keeping, Session, Run]:
    session = opened(left, "talks")
    return session, session, session.started[0]


def by_hand(left: Left) -> tuple[Keeping, Session, Run]:
    session = stranger(left, "talks")
    run = session.recover(left.run_id)
    run.result(DEADLINE_S)
    return opened(left, "talks"), session, run


@pytest.mark.parametrize("way", [by_opening, by_hand])
def test_run_of_a_message_goes_on_in_its_thread_and_in_its_turn(
    dead: Callable[[str], Left], way: Callable[[Left], tuple[Keeping, Session, Run]]
) -> None:
    left = dead("talks")

    session, went_on, run = way(left)

    assert ended(run).id == left.run_id
    assert ended(session.thread(run.thread_id).send("four")).result().output == "heard 4"
    texts = [text for _, text in texts_of(session, run.thread_id)]
    assert texts == [*UNBROKEN, "four", "heard 4"]
    assert asked(went_on)[:2] == ["D", "root"]
    agents = [path_of(event.agent_id) for event in events_of(run.events, AgentSpawned)]
    assert agents == ["root", "3", "4"]
    assert run.receipt is not None
    assert run.receipt.reused.calls == 2
    assert run.receipt.uncertain == ("call 1 of agent 4 (scripted)",)
    assert [str(info.status) for info in session.runs()] == ["completed"] * 4
    record = session.load(left.run_id)
    assert len(events_of(record.events, RunFinished)) == 1
    with pytest.raises(CannotRecover, match="it has ended"):
        session.recover(left.run_id)


def test_run_that_no_longer_fits_begins_once_more_and_its_thread_says_why(
    dead: Callable[[str], Left],
) -> None:
    @agentnb.tool
    def look_up(what: str) -> str:
        return what

    left = dead("talks")
    with pytest.raises(RunChanged):
        stranger(left, "talks", tools=[look_up]).recover(left.run_id)

    session = opened(left, "talks", tools=[look_up])
    at_rest(session)

    thread = session.load(left.run_id).thread_id
    told = texts_of(session, thread)
    assert [text for kind, text in told if kind == "message"] == UNBROKEN
    (note,) = (text for kind, text in told if kind == "note")
    assert note.startswith(f"The run {left.run_id} could not go on after its process had ended")
    assert [run.id for run in session.started].count(left.run_id) == 1
    assert asked(session).count("C") == 1
    statuses = {info.id: str(info.status) for info in session.runs()}
    assert statuses.pop(left.run_id) == "interrupted"
    assert set(statuses.values()) == {"completed"}
    with pytest.raises(CannotRecover, match="its thread went on without it"):
        session.recover(left.run_id)


def test_run_of_a_message_that_a_person_changes_by_hand_is_kept(
    dead: Callable[[str], Left],
) -> None:
    """After a refusal the message still waits, and `changed="keep"` goes on with its run."""

    @agentnb.tool
    def look_up(what: str) -> str:
        return what

    left = dead("talks")
    session = stranger(left, "talks", tools=[look_up])
    with pytest.raises(RunChanged):
        session.recover(left.run_id)
    assert asked(session) == []

    run = session.recover(left.run_id, changed="keep")

    assert ended(run).result().output == "heard 2"
    assert asked(session) == ["D", "root"]


def cancel_dead(left: Left) -> None:
    """As if the process had died between the order to cancel its run and the run's end."""
    order = (
        "INSERT INTO orders (run, place, kind, by, path, number, at_s, value) SELECT id, 99, "
        "'cancel', 'code', 'root', 1, 1.0, '{\"agent\": null, \"reason\": \"enough\"}' "
        "FROM runs WHERE run_id = ?"
    )
    store = stranger(left, "talks").store
    store.transactions().do(lambda db: db.execute(order, (left.run_id,)))


def test_message_whose_run_was_cancelled_stays_cancelled(dead: Callable[[str], Left]) -> None:
    left = dead("talks")
    cancel_dead(left)

    session = opened(left, "talks")
    at_rest(session)

    thread = session.load(left.run_id).thread_id
    texts = [text for _, text in texts_of(session, thread)]
    assert texts == ["one", "heard 1", "two", "three", "heard 3"]
    assert asked(session) == ["root"]


def test_what_a_cancelled_run_had_assigned_stays_cancelled(dead: Callable[[str], Left]) -> None:
    left = dead("assigns")
    cancel_dead(left)

    session = opened(left, "assigns")
    at_rest(session)

    assert asked(session) == []
    assert [str(task.status) for task in session.tasks.list()] == ["completed", "blocked"]


def test_run_that_is_recovered_by_hand_is_not_begun_by_who_opens_its_session(
    dead: Callable[[str], Left],
) -> None:
    left = dead("talks")
    hold = Hold()
    run = stranger(left, "talks", provider=provider_of("talks", hold)).recover(left.run_id)
    hold.wait()

    session = opened(left, "talks")
    with pytest.raises(CannotRecover, match="it is running in this process"):
        session.recover(left.run_id)
    hold.release()

    assert ended(run).id == left.run_id
    at_rest(session)
    assert [text for _, text in texts_of(session, run.thread_id)] == UNBROKEN
    assert left.run_id not in [each.id for each in session.started]


def test_session_that_is_closed_before_the_run_has_gone_on_leaves_it(
    dead: Callable[[str], Left],
) -> None:
    left = dead("talks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agentnb.store.queue.is_elsewhere", lambda *_, **__: True)
        first = opened(left, "talks")
        (run,) = first.started[:1]
        first.close()
        with pytest.raises(agentnb.RunCancelled):
            ended(run)
    assert asked(first) == []

    session = opened(left, "talks")
    at_rest(session)

    assert session.started[0].id == left.run_id
    assert asked(session) == ["D", "root", "root"]


def test_what_an_agent_was_told_and_had_not_read_is_read_when_its_run_goes_on(
    dead: Callable[[str], Left],
) -> None:
    left = dead("talks")
    other = stranger(left, "talks")
    thread = other.load(left.run_id).thread_id

    def tell(db: Connection) -> None:
        queue.tell(
            db,
            thread,
            "Some news.",
            kind=MessageKind.TASK_COMPLETION,
            process=1,
            now=0.0,
            is_alive=lambda _: True,  # as it was then
        )

    other.store.transactions().do(tell)

    session = opened(left, "talks")
    at_rest(session)

    provider = session.settings.provider
    assert isinstance(provider, ScriptedProvider)
    told = [
        [message.text.count("Some news.") for message in each.messages]
        for each in provider.requests
        if task_of(each) == "root"
    ]
    assert [sum(counts) for counts in told] == [1, 1]
    assert told[0][-1] == 1
    texts = [text for _, text in texts_of(session, thread)]
    assert texts == ["one", "heard 1", "two", "Some news.", "heard 2", "three", texts[-1]]


# -- tasks ----------------------------------------------------------------------------------------


def test_run_that_assigned_tasks_goes_on_above_them(
    dead: Callable[[str], Left],
) -> None:
    left = dead("assigns")
    hold = Hold()
    session = opened(left, "assigns", hold)
    hold.wait()  # the agent of `Long`: its own run went on
    (long,) = session.runs_on(assigned(session.tasks.get("t2")))

    run = session.recover(left.run_id)
    asyncio.run(until(lambda: hold.count == 2))

    used = run.budget
    # The root's first call was for nothing; Part was done, and the two that wait count by estimate.
    assert used.tokens_used > COST.budget_tokens
    assert [str(task.status) for task in session.tasks.list()] == ["completed", "in_progress"]
    hold.release()
    assert ended(run).result().output == "All is given."
    ended(long)
    at_rest(session)
    assert len(session.tasks.list()) == 2
    assert asked(session).count("Part") == 0
    told = [text for kind, text in texts_of(session, run.thread_id) if kind == "task_completion"]
    assert len(told) == 1
    infos = {info.id: info for info in session.runs()}
    assert {str(info.status) for info in infos.values()} == {"completed"}
    # Nothing was counted twice: not what the root had spent, nor what was spent below it.
    assert sum(info.tokens_used for info in infos.values()) == run.budget.tokens_used <= BUDGET


def test_cancel_of_a_recovered_run_reaches_what_it_had_assigned(
    dead: Callable[[str], Left],
) -> None:
    left = dead("assigns")
    hold = Hold()
    session = opened(left, "assigns", hold)
    hold.wait()
    (long,) = session.runs_on(assigned(session.tasks.get("t2")))
    run = session.recover(left.run_id)
    asyncio.run(until(lambda: hold.count == 2))

    run.cancel(reason="enough")

    with pytest.raises(agentnb.RunCancelled, match="enough"):
        ended(long)
    at_rest(session)
    task = session.tasks.get("t2")
    assert str(task.status) == "blocked"


def test_what_a_recovered_run_had_assigned_counts_for_its_limits_and_numbers(
    dead: Callable[[str], Left],
) -> None:
    def root(request: CompletionRequest) -> AnyReply:
        if title_of(request):
            return SCENES["assigns"](None)(request)
        if len(results(request)) == MOST:
            return tools(create("More"))
        return results(request)[-1]

    left = dead("assigns")
    session = opened(left, "assigns", provider=ScriptedProvider(root))
    at_rest(session)

    run = session.recover(left.run_id)

    assert ended(run).result().output == (
        f"No agent was made: the run has all of its {MOST} sub-agents."
    )
    made = [assigned(task) for task in session.tasks.list()]
    assert made == [f"{run.thread_id}.1", f"{run.thread_id}.2"]
    new = session.tasks.create("New", "x", created_by=run.thread_id, assigned_to=NEW)
    assert new.assigned_to == f"{run.thread_id}.3"


def test_task_of_an_agent_goes_on_and_tells_its_creator_once(
    dead: Callable[[str], Left],
) -> None:
    left = dead("gives")
    session = opened(left, "gives")
    at_rest(session)
    worked_on(session, "t1", "t2")

    assert session.started[0].id == left.run_id
    whole, part = session.tasks.list()
    assert [note.text for note in whole.notes] == ["It is given.", "All is given."]
    assert [str(whole.status), str(part.status)] == ["in_progress", "completed"]
    thread = assigned(whole)
    told = [text for kind, text in texts_of(session, thread) if kind == "task_completion"]
    assert len(told) == 1
    assert assigned(part) == f"{thread}.1"


@pytest.mark.parametrize("was_done", [True, False])
def test_task_tool_that_was_open_is_done_once(dead: Callable[[str], Left], was_done: bool) -> None:
    """The store knows whether its change was made: the process died behind it, or before it."""
    left = dead("gives")

    def reopen(db: Connection) -> None:
        db.execute(
            "UPDATE tool_calls SET status = 'started', result = '', ended = 0, duration_ms = NULL "
            "WHERE name = 'task_note'"
        )
        if not was_done:
            db.execute("DELETE FROM task_notes WHERE text = 'It is given.'")
            db.execute("DELETE FROM verdicts WHERE kind = 'done' AND number = -2")

    stranger(left, "gives").store.transactions().do(reopen)

    session = opened(left, "gives")
    at_rest(session)

    (run,) = session.started[:1]
    assert run.id == left.run_id
    notes = [note.text for note in session.tasks.get("t1").notes]
    assert sorted(notes) == ["All is given.", "It is given."]
    (call,) = [each for each in run.agent("root").tool_calls if each.name == "task_note"]
    assert call.result.startswith("Noted.\nt1 in_progress")
    assert run.receipt is not None
    assert any("task_note" in each for each in run.receipt.uncertain) is not was_done
