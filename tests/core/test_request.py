"""All agents of a run share one context, and its ids say what they must."""

from __future__ import annotations

import re
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import Any

import pytest

from agentnb.core.budget import RequestBudget
from agentnb.core.clock import MonotonicClock
from agentnb.core.request import OpenGate, RequestContext, new_run_id, new_thread_id
from tests.core.clock import ManualClock

# -- ids ---------------------------------------------------------------------------------------


def test_thread_id_holds_the_day_and_six_characters() -> None:
    before = date.today()
    ids = [new_thread_id() for _ in range(200)]
    days = {f"{day:%Y%m%d}" for day in (before, date.today())}

    found = [re.fullmatch(r"nb_(\d{8})_[a-z0-9]{6}", one) for one in ids]
    assert {match and match.group(1) for match in found} <= days
    assert len(set(ids)) == 200


def test_run_id_is_a_uuid_of_version_seven_in_hex() -> None:
    for run_id in (new_run_id() for _ in range(200)):
        assert re.fullmatch(r"[0-9a-f]{32}", run_id)
        as_uuid = uuid.UUID(run_id)
        assert as_uuid.version == 7
        assert as_uuid.variant == uuid.RFC_4122


def test_run_id_begins_with_its_time_in_milliseconds_so_that_runs_sort_by_it() -> None:
    before_ms = time.time_ns() // 1_000_000
    run_id = new_run_id()
    after_ms = time.time_ns() // 1_000_000

    assert before_ms <= int(run_id[:12], 16) <= after_ms


def test_run_ids_of_one_moment_differ() -> None:
    assert len({new_run_id() for _ in range(2000)}) == 2000


# -- the context -------------------------------------------------------------------------------


def test_new_context_is_a_run_s_root() -> None:
    budget = RequestBudget(10)
    request = RequestContext(budget)

    assert request.budget is budget
    assert (request.depth, request.max_depth, request.max_agents) == (0, 3, 1000)
    assert request.workspace == {}
    assert isinstance(request.clock, MonotonicClock)
    assert uuid.UUID(request.run_id).version == 7
    assert request.thread_id.startswith("nb_")
    other = RequestContext(budget)
    assert (other.run_id, other.thread_id) != (request.run_id, request.thread_id)
    assert other.workspace is not request.workspace
    assert request.notes == {}
    assert request.notes is not other.notes
    assert request.notes is not request.workspace


def test_context_takes_what_it_is_given() -> None:
    workspace: dict[str, Any] = {"note": 1}
    clock, gate = ManualClock(), OpenGate()
    request = RequestContext(
        RequestBudget(1),
        run_id="r",
        thread_id="t",
        clock=clock,
        gate=gate,
        workspace=workspace,
        cycle_threshold=1,
    )

    assert (request.run_id, request.thread_id) == ("r", "t")
    assert request.clock is clock
    assert request.gate is gate
    assert request.workspace is workspace
    assert request.cycle_detector.threshold == 1


def test_child_shares_everything_but_its_depth() -> None:
    request = RequestContext(RequestBudget(10), max_agents=2)
    child = request.child()
    grandchild = child.child()

    assert [r.depth for r in (request, child, grandchild)] == [0, 1, 2]
    for name, value in vars(request).items():
        if name != "depth":
            assert getattr(grandchild, name) is value, name


def _started(request: RequestContext, task: int) -> bool:
    return request.limits.admit(f"task {task}", 1, ()) is None


def test_sub_agents_are_counted_for_the_whole_run() -> None:
    request = RequestContext(RequestBudget(10), max_agents=3)
    child = request.child()

    asking = (request, child, child.child(), request, child)
    started = [_started(each, number) for number, each in enumerate(asking)]
    assert started == [True, True, True, False, False]


def test_run_of_no_sub_agents_starts_none() -> None:
    assert not _started(RequestContext(RequestBudget(10), max_agents=0), 1)


def test_many_threads_start_no_more_sub_agents_than_there_may_be() -> None:
    request = RequestContext(RequestBudget(10), max_agents=100)

    with ThreadPoolExecutor(8) as pool:
        started = list(pool.map(lambda number: _started(request.child(), number), range(300)))

    assert sum(started) == 100


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"max_depth": -1}, "`max_depth` must be .*at least 0, not -1"),
        ({"max_agents": -1}, "`max_agents` must be .*at least 0, not -1"),
        ({"on_budget_warning": "maybe"}, "not 'maybe'"),
        ({"cycle_threshold": 0}, "at least 1"),
    ],
)
def test_limit_that_makes_no_sense_is_refused_and_named(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RequestContext(RequestBudget(10), **wrong)


async def test_open_gate_lets_everything_through() -> None:
    gate = OpenGate()
    waits: list[str] = []
    gate.throttle("m", 1000.0)

    async with (
        gate.acquire("m", on_wait=lambda why, _: waits.append(why)),
        gate.acquire("m", on_wait=lambda why, _: waits.append(why)),
    ):
        assert waits == []
