from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentnb.core.events import (
    AgentCancelled,
    AgentExhausted,
    AgentFailed,
    AgentInterrupted,
    AgentTextDelta,
    BudgetChanged,
    BudgetPaused,
    BudgetResumed,
    BudgetWarning,
    Event,
    Row,
    RunPaused,
    RunResumed,
)
from agentnb.core.types import AgentStatus
from agentnb.views.figures.spans import Level, SpanKind, Times, times
from tests.views.figures.records import (
    brings_together,
    budget_update,
    call_finished,
    call_started,
    completed,
    finished,
    record,
    rows_of,
    spawned,
    started,
    used_tool,
    uses_tool,
    waits,
)

R, A, B = "nb_20261101_k3x9aa", "nb_20261101_k3x9aa.1", "nb_20261101_k3x9aa.2"


def folded(*told: tuple[float, Event]) -> Times:
    return times(rows_of(told))


def spans(run: Times, number: int = 0) -> list[tuple[str, float, float]]:
    return [(str(s.kind), s.begin_s, s.end_s) for s in run.agents[number].spans]


def test_calls_tools_and_waits_follow_each_other() -> None:
    run = folded(
        (0, spawned(R)),
        (1, waits(R)),
        (2, call_started(R)),
        (4, call_finished(R)),
        (4, uses_tool(R)),
        (6, used_tool(R)),
        (6, call_started(R)),
        (7, call_finished(R)),
        (8, completed(R)),
    )

    assert spans(run) == [
        ("idle", 0, 1),
        ("waiting", 1, 2),
        ("call", 2, 4),
        ("tool", 4, 6),
        ("call", 6, 7),
        ("idle", 7, 8),
    ]
    assert run.agents[0].status is AgentStatus.COMPLETED


def test_parent_waits_for_its_sub_agents_until_it_brings_their_results_together() -> None:
    run = folded(
        (0, spawned(R)),
        (0, call_started(R)),
        (2, call_finished(R)),
        (2.5, spawned(A, R)),
        (2.5, call_started(A)),
        (5, call_finished(A)),
        (5, completed(A)),
        (6, brings_together(R)),
        (6, call_started(R)),
        (7, call_finished(R)),
        (7, completed(R)),
    )

    assert spans(run) == [("call", 0, 2), ("children", 2, 6), ("call", 6, 7)]
    assert spans(run, 1) == [("call", 2.5, 5)]


def test_root_that_plans_nothing_waits_for_its_sub_agents_from_the_beginning() -> None:
    run = folded(
        (0, spawned(R)), (0.1, spawned(A, R)), (0.1, call_started(A)), (3, call_finished(A))
    )

    assert spans(run) == [("children", 0, 3)]
    assert run.agents[0].status is AgentStatus.RUNNING


def test_parent_that_spawns_in_a_tool_is_in_that_tool() -> None:
    run = folded(
        (0, spawned(R)),
        (0, uses_tool(R)),
        (1, spawned(A, R)),
        (4, used_tool(R)),
        (4, call_started(R)),
    )

    assert spans(run) == [("tool", 0, 4)]


def test_tools_at_the_same_time_are_one_span() -> None:
    run = folded(
        (0, spawned(R)),
        (0, uses_tool(R, "1")),
        (1, uses_tool(R, "2")),
        (2, used_tool(R, "1")),
        (5, used_tool(R, "2")),
        (6, call_started(R)),
    )

    assert [(s[1], s[2]) for s in spans(run) if s[0] == "tool"] == [(0, 1), (1, 5)]
    assert spans(run)[-1] == ("idle", 5, 6)


def test_attempt_that_failed_is_a_retry_and_waits_for_the_next_one() -> None:
    run = folded(
        (0, spawned(R)),
        (0, call_started(R)),
        (1, call_finished(R)),
        (1, AgentFailed(agent_id=R, error="no", will_retry=True, attempt=1)),
        (3, call_started(R)),
        (4, waits(R)),
        (5, call_started(R, attempt=2)),
        (6, call_finished(R)),
        (6, AgentFailed(agent_id=R, error="no", will_retry=False, attempt=2)),
    )

    assert run.agents[0].retries_s == [1, 5]
    assert ("waiting", 1, 3) in spans(run)
    assert run.agents[0].status is AgentStatus.FAILED


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (completed(R), AgentStatus.COMPLETED),
        (AgentFailed(agent_id=R, error="", will_retry=False, attempt=2), AgentStatus.FAILED),
        (AgentCancelled(agent_id=R, reason=""), AgentStatus.CANCELLED),
        (AgentExhausted(agent_id=R, reason=""), AgentStatus.EXHAUSTED),
        (AgentInterrupted(agent_id=R), AgentStatus.INTERRUPTED),
    ],
)
def test_every_end_closes_the_open_span_and_nothing_comes_after_it(
    event: Event, status: AgentStatus
) -> None:
    run = folded(
        (0, spawned(R)), (0, call_started(R)), (2, event), (3, call_finished(R)), (9, finished())
    )

    assert spans(run) == [("call", 0, 2)]
    assert (run.agents[0].status, run.agents[0].end_s) == (status, 2)
    assert run.end_s == 9
    assert run.has_ended


def test_run_that_goes_on_has_open_spans_up_to_its_last_entry() -> None:
    run = folded((0, spawned(R)), (1, call_started(R)), (4, AgentTextDelta(agent_id=R, text="so")))

    assert spans(run) == [("idle", 0, 1), ("call", 1, 4)]
    assert run.agents[0].status is AgentStatus.RUNNING
    assert run.agents[0].end_s == 4
    assert not run.has_ended


def test_agent_that_was_cancelled_before_it_began_is_there_without_a_span() -> None:
    run = folded((1, spawned(R)), (1, AgentCancelled(agent_id=R, reason="")))

    assert spans(run) == []
    assert run.agents[0].status is AgentStatus.CANCELLED


def test_nothing_has_no_agents() -> None:
    assert times([]) == Times()


def test_agents_stand_in_path_order() -> None:
    ids = [R, f"{R}.10", f"{R}.2", f"{R}.1", f"{R}.1.1"]

    run = folded(*((float(i), spawned(a, None if a == R else R)) for i, a in enumerate(ids)))

    assert [agent.path for agent in run.agents] == ["root", "1", "1.1", "2", "10"]


def test_budget_is_kept_with_each_new_total_as_a_step_warnings_and_pauses() -> None:
    run = folded(
        (0, started(100)),
        (1, budget_update(30, 100)),
        (2, BudgetChanged(budget_total=50, previous_total=100, tokens_used=30)),
        (3, BudgetWarning(tokens_used=45, budget_total=50, percentage=90)),
        (3, BudgetPaused(tokens_used=45, budget_total=50, percentage=90, wait_s=9)),
        (5, BudgetResumed(reason="continue")),
        (6, budget_update(48, 50)),
        (7, finished()),
    )

    assert run.levels == [
        Level(0, 0, 100),
        Level(1, 30, 100),
        Level(2, 30, 100),
        Level(2, 30, 50),
        Level(3, 45, 50),
        Level(6, 48, 50),
        Level(7, 48, 50),
    ]
    assert run.warnings_s == [3]
    assert run.pauses == [(3, 5)]


def test_pause_without_an_answer_lasts_until_now() -> None:
    run = folded(
        (0, started()),
        (2, BudgetPaused(tokens_used=1, budget_total=1, percentage=100, wait_s=9)),
        (4, budget_update(1)),
    )

    assert run.pauses == [(2, 4)]


def test_pauses_of_a_person_and_of_the_budget_are_one_where_they_overlap() -> None:
    run = folded(
        (0, started()),
        (1, RunPaused()),
        (2, BudgetPaused(tokens_used=1, budget_total=1, percentage=100, wait_s=9)),
        (3, RunResumed()),
        (4, BudgetResumed(reason="continue")),
        (5, RunPaused(agent_id="t.1")),  # a branch: the others go on
        (6, RunPaused()),
        (7, finished()),
    )

    assert run.pauses == [(1, 4), (6, 7)]


@pytest.mark.parametrize("until", range(0, 60, 7))
def test_spans_of_a_record_cut_anywhere_join_without_gaps(until: int) -> None:
    run = times(record(6)[:until])

    for agent in run.agents:
        edges = [agent.begin_s, *(span.end_s for span in agent.spans)]
        assert [span.begin_s for span in agent.spans] == edges[:-1]
        assert edges[-1] == pytest.approx(agent.end_s)


@given(st.permutations(record(5)))
def test_entries_in_any_order_are_folded_without_a_fault(rows: list[Row]) -> None:
    for agent in times(rows).agents:
        assert all(span.end_s > span.begin_s for span in agent.spans)
        assert {span.kind for span in agent.spans} <= set(SpanKind)
