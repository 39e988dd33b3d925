"""Processes are killed while agents give each other tasks, and two are one session.

See `tests/soak/tasks.py` and `tests/soak/sessions.py`.
"""

from __future__ import annotations

from pathlib import Path
from sqlite3 import Connection

import pytest

from agentnb import ScriptedProvider, Session
from agentnb.store import queue
from tests.soak import sessions, tasks
from tests.soak.one_session import Round
from tests.soak.tasks import Point
from tests.support import DEADLINE_S

KILLED = {
    "at an end, and by whoever finds it": [
        Point("end_work", 1, "before"),
        Point("end_of_dead", 1, "committed"),
        Point("assign", 4, "after"),
    ],
    "at queueing, telling and beginning": [
        Point("enqueue", 6, "committed"),
        Point("tell", 1, "after"),
        Point("begin", 5, "before"),
    ],
}


@pytest.mark.parametrize("points", KILLED.values(), ids=KILLED)
def test_tasks_are_all_there_once_wherever_processes_were_killed(
    tmp_path: Path, points: list[Point]
) -> None:
    done, faults = tasks.one_round(tmp_path / "x.db", points)

    assert faults == []
    assert "not reached" not in done


def test_two_processes_of_one_session_lose_no_message_and_answer_none_twice(
    tmp_path: Path,
) -> None:
    done, faults = sessions.one_round(Round(tmp_path / "x", 60, 4, 16, is_killed=True))

    assert faults == []
    assert done.startswith("60 messages to 4 agents, one process killed after ")


def test_message_that_a_dead_process_left_is_answered_by_whoever_waits_behind_it(
    tmp_path: Path,
) -> None:
    model = ScriptedProvider(lambda request: f"heard: {request.messages[-1].text}")
    session = Session(provider=model, store=tmp_path)
    run = session.spawn("one")
    run.result(DEADLINE_S)
    dead = 1_000

    def leave(db: Connection) -> None:
        db.execute(
            "INSERT INTO processes (id, host, pid, started_at) VALUES (?, '', 1, 0)", (dead,)
        )
        queue.enqueue(db, run.thread_id, "left", process=dead, now=0.0)

    session.store.transactions().do(leave)
    session.thread(run.thread_id).send("two").result(DEADLINE_S)

    said = [message.content for message in session.thread(run.thread_id).messages]
    assert said == ["one", "heard: one", "left", "heard: left", "two", "heard: two"]
