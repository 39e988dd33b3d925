"""`session.recover`: a run whose process was killed goes on, in another process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import agentnb
from agentnb import CannotRecover, NoSuchRun, RunChanged
from agentnb.core.events import RunFinished, RunStarted
from tests.recover_scene import killed, session_of
from tests.support import DEADLINE_S, events_of, task_of, until


def test_run_of_three_levels_goes_on_with_what_was_open(tmp_path: Path) -> None:
    run_id = killed(tmp_path / "x.db", "delegates")
    session, provider = session_of(tmp_path / "x.db", "delegates")
    assert [str(info.status) for info in session.runs()] == ["interrupted"]
    before = session.load(run_id)

    run = session.recover(run_id[:12])
    result = run.result(DEADLINE_S)

    assert (run.id, result.output) == (run_id, "All of it.")
    assert {node.path: str(node.status) for node in result.agent_tree.walk()} == dict.fromkeys(
        ("root", "1", "1.1", "1.2", "2"), "completed"
    )
    asked = [task_of(request) for request in provider.requests]
    assert asked == ["B", "root"]
    assert run.receipt is not None
    assert run.receipt.reused.calls == 5
    assert run.receipt.uncertain == ("call 1 of agent 2 (scripted)",)
    assert run.receipt.changed == ()
    (info,) = session.runs()
    assert (info.id, str(info.status)) == (run_id, "completed")
    record = session.load(run_id)
    assert [event.recovered for event in events_of(record.events, RunStarted)] == [1]
    assert len(events_of(record.events, RunFinished)) == 1
    assert len(record.events) > len(before.events)
    own, _ = session_of(tmp_path / "x.db", "delegates", id=info.session_id)
    texts = [each.content for each in own.thread(run.thread_id).messages]
    assert texts == ["the task", "All of it."]


def test_tool_whose_outcome_nobody_knows_is_told_or_repeated(tmp_path: Path) -> None:
    for unknown, on_recover, ordered, said in (
        ("tell", "tell", [], "nobody knows whether it did"),
        ("repeat", "tell", ["a chair"], "a chair is ordered"),
        ("tell", "repeat", ["a chair"], "a chair is ordered"),
    ):
        store = tmp_path / unknown / on_recover / "x.db"
        store.parent.mkdir(parents=True)
        run_id = killed(store, "calls a tool")
        ordered_now: list[str] = []
        session, _ = session_of(store, "calls a tool", ordered_now, on_recover)

        run = session.recover(run_id, unknown=unknown)

        assert said in run.result(DEADLINE_S).output
        assert ordered_now == ordered
        assert run.receipt is not None
        assert run.receipt.uncertain == ("tool 'order_it' of agent root (call 1)",)


def test_changed_prompt_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    store = tmp_path / "x.db"
    run_id = killed(store, "calls a tool")
    session, provider = session_of(store, "calls a tool", tools=())

    with pytest.raises(RunChanged) as caught:
        session.recover(run_id)

    assert list(caught.value.agents) == ["root"]
    assert provider.requests == []
    assert [str(info.status) for info in session.runs()] == ["interrupted"]
    again, _ = session_of(store, "calls a tool")
    assert again.recover(run_id).result(DEADLINE_S).output


def test_run_that_ended_or_is_not_there_cannot_be_recovered(tmp_path: Path) -> None:
    session, _ = session_of(tmp_path / "x.db", "delegates")
    run = session.spawn("the task")
    run.result(DEADLINE_S)

    with pytest.raises(CannotRecover, match="it has ended"):
        session.recover(run.id)
    with pytest.raises(NoSuchRun):
        session.recover("nothing")
    with pytest.raises(ValueError, match="'tell' or 'repeat'"):
        session.recover(run.id, unknown="perhaps")
    assert run.receipt is None


def test_run_that_is_killed_while_it_is_recovered_can_be_recovered_again(tmp_path: Path) -> None:
    store = tmp_path / "x.db"
    run_id = killed(store, "delegates")
    assert killed(store, "delegates", run_id) == run_id
    session, provider = session_of(store, "delegates")

    run = session.recover(run_id)

    assert run.result(DEADLINE_S).output == "All of it."
    assert [task_of(request) for request in provider.requests] == ["B", "root"]
    assert [event.recovered for event in events_of(run.events, RunStarted)] == [2]
    assert run.receipt is not None
    assert run.receipt.reused.calls == 5


def test_run_of_a_message_begins_once_more_and_is_not_recovered(tmp_path: Path) -> None:
    store = tmp_path / "x.db"
    run_id = killed(store, "is asked again")
    session, _ = session_of(store, "is asked again")
    (session_id,) = {info.session_id for info in session.runs()}

    with pytest.raises(CannotRecover, match="begins a new run as soon as the session is opened"):
        session.recover(run_id)
    own, _ = session_of(store, "is asked again", id=session_id)
    thread = own.thread(own.load(run_id).thread_id)
    asyncio.run(until(lambda: len(thread.messages) == 4))
    with pytest.raises(CannotRecover, match="its thread went on without it"):
        own.recover(run_id)


def test_changed_agents_are_kept_as_recorded_or_do_their_work_again(tmp_path: Path) -> None:
    """All agents have a tool that they had not before."""

    @agentnb.tool
    def look_up(what: str) -> str:
        return what

    for changed, asked_again in (("keep", ["B", "root"]), ("redo", None)):
        store = tmp_path / changed / "x.db"
        store.parent.mkdir()
        run_id = killed(store, "delegates")
        session, provider = session_of(store, "delegates", tools=[look_up])
        with pytest.raises(RunChanged):
            session.recover(run_id)

        run = session.recover(run_id, changed=changed)

        assert run.result(DEADLINE_S).output == "All of it."
        assert run.receipt is not None
        asked = [task_of(request) for request in provider.requests]
        if asked_again is None:
            assert set(asked) == {"root", "A", "A1", "A2", "B"}
            assert run.receipt.changed
        else:
            assert asked == asked_again
