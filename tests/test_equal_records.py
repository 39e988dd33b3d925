"""Two records are equal but for ids and times; any other difference is described in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from agentnb.core.errors import RateLimited
from agentnb.core.events import (
    AgentCompleted,
    AgentSpawned,
    AgentTextDelta,
    AgentWaiting,
    BudgetChanged,
    BudgetExhausted,
    BudgetPaused,
    BudgetUpdate,
    BudgetWarning,
    Entry,
    Event,
    LimitReached,
    MemoryCreated,
    ModelCallFinished,
    ModelCallStarted,
    RunFinished,
    RunStarted,
    ToolCallFinished,
    ToolCallReported,
    rows_of,
)
from agentnb.core.types import AgentStatus, CompletionRequest, Usage, user_message
from agentnb.providers.gate import ConcurrencyGate
from agentnb.providers.scripted import Reply
from agentnb.record import RunRecord, record_of
from agentnb.testing import equal_records
from tests.core.clock import ManualClock
from tests.core.tool_bodies import Tool, order
from tests.support import Hold, Tree, by_agent, make_tree, run_tree, spawn


def record(tree: Tree) -> RunRecord:
    return recorded(tree.events)


def recorded(events: Sequence[Event]) -> RunRecord:
    entries = [Entry("run", seq, 0.1 * seq, event) for seq, event in enumerate(events)]
    return record_of("run", "the task", rows_of(entries), {})


async def look(_: Mapping[str, Any], context: Any) -> str:
    return f"seen by {context.agent_id}"


async def told(**more: Any) -> Tree:
    """A run of one script: two agents side by side, one with a retry, one with a tool."""
    limited = RateLimited("slow down", retry_after_s=1.0)
    provider = by_agent(
        {
            "root": [spawn("A", "B", before="Two."), "all"],
            "A": [limited, Reply("a is done")],
            "B": [order("look"), Reply("b is done", **more)],
        }
    )
    return make_tree(provider, tools=[Tool(look)], clock=ManualClock(sleeps_end=True))


async def test_runs_of_one_script_are_equal_whatever_their_ids_and_whoever_is_first() -> None:
    hold = Hold()
    one, other = await told(), await told(pause=hold)
    await one.run()
    running = other.start()
    await other.saw(AgentCompleted, "1")
    hold.release()
    await running

    first, second = record(one), record(other)
    assert first.thread_id != second.thread_id
    assert equal_records(first, second) == []
    assert equal_records(second, first) == []


async def test_wait_for_a_slot_or_for_room_is_left_out_and_no_other() -> None:
    def script(**more: Any) -> Any:
        return by_agent({"root": [spawn("A", "B"), "all"], "A": Reply("a", **more)})

    hold = Hold()
    free = await run_tree(script())
    narrow = make_tree(script(pause=hold), gate=ConcurrencyGate(1))
    running = narrow.start()
    assert "slots" in (await narrow.saw(AgentWaiting)).reason
    hold.release()
    await running
    assert equal_records(record(free), record(narrow)) == []

    room = AgentWaiting(agent_id="nb", reason="room in the budget, until other calls settle")
    limit = AgentWaiting(agent_id="nb", reason="the provider's rate limit", wait_s=3.0)
    assert equal_records(of(SPAWNED), of(SPAWNED, room)) == []
    assert equal_records(of(SPAWNED), of(SPAWNED, limit)) == [
        "the root: from event 1 on only in the second record: agent_waiting"
    ]


STARTED = RunStarted(task_description="t", model="p/m", budget_total=9, max_depth=3, thread_id="nb")
SPAWNED = AgentSpawned(agent_id="nb", parent_id=None, task_description="t", depth=0)
CHILD = AgentSpawned(agent_id="nb.1", parent_id="nb", task_description="A", depth=1)
CALL = CompletionRequest("m", "system", (user_message("Go on."),))
NUMBERS: dict[str, Any] = {"tokens_used": 8, "budget_total": 9, "percentage": 88.8}
LISTS: dict[str, Any] = {"completed_agents": ("nb.1",), "incomplete_agents": ("nb",)}


def of(*events: Event) -> RunRecord:
    return recorded([STARTED, *events])


@pytest.mark.parametrize(
    ("event", "change"),
    [
        (STARTED, {"recovered": 2}),
        (
            ModelCallStarted(agent_id="nb", request=CALL, model="p/m"),
            {"request": replace(CALL, cache_prefix=7)},
        ),
        (BudgetWarning(**NUMBERS), {"tokens_used": 7, "budget_total": 8, "percentage": 87.5}),
        (BudgetPaused(**NUMBERS, wait_s=600), {"tokens_used": 7, "percentage": 1.0, "wait_s": 1}),
        (BudgetExhausted(**NUMBERS, **LISTS), {"tokens_used": 7, "completed_agents": ()}),
        (LimitReached(limit="max_time_s", value=1, **LISTS), {"incomplete_agents": ()}),
        (
            RunFinished(status=AgentStatus.COMPLETED, tokens_used=3, duration_ms=4),
            {"duration_ms": 9},
        ),
        (MemoryCreated(agent_id="nb", fact="f", memory_id=1, created_at=1), {"created_at": 2.0}),
        (
            ModelCallFinished(agent_id="nb", model="p/m", usage=Usage(1, 2), duration_ms=3),
            {"duration_ms": 4, "estimate_error": 5},
        ),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_what_hangs_on_time_is_left_out(event: Any, change: dict[str, Any]) -> None:
    before = [] if event is STARTED else [STARTED, SPAWNED]
    one, other = [*before, event], [*before, replace(event, **change)]
    assert equal_records(recorded(one), recorded(other)) == []


@pytest.mark.parametrize(
    "event",
    [
        BudgetUpdate(**NUMBERS),
        ToolCallReported(agent_id="nb", tool_use_id="t", name="look", text="half"),
    ],
    ids=lambda event: event.kind,
)
def test_event_that_hangs_on_time_is_left_out(event: Event) -> None:
    assert equal_records(of(SPAWNED), of(SPAWNED, event)) == []


def _changed(kind: type[Any], **change: Any) -> Callable[[Sequence[Any]], list[Any]]:
    """Change fields of the last event of a kind."""

    def edit(events: Sequence[Any]) -> list[Any]:
        at = max(place for place, event in enumerate(events) if isinstance(event, kind))
        return [replace(e, **change) if n == at else e for n, e in enumerate(events)]

    return edit


def _without(kind: type[Any]) -> Callable[[Sequence[Any]], list[Any]]:
    def edit(events: Sequence[Any]) -> list[Any]:
        at = max(place for place, event in enumerate(events) if isinstance(event, kind))
        return [event for place, event in enumerate(events) if place != at]

    return edit


def _twice_changed(events: Sequence[Any]) -> list[Any]:
    [*before, finished] = events
    change = BudgetChanged(budget_total=8, previous_total=9, tokens_used=1, by="panel")
    return [*before, change, finished]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (_changed(AgentTextDelta, text="other"), "agent_text_delta: `text` is"),
        (_changed(AgentCompleted, cut=True), "agent_completed: `cut` is False and True"),
        (_changed(AgentCompleted, tokens_used=1), "`tokens_used` is"),
        (_changed(ModelCallStarted, attempt=7), "`attempt` is 1 and 7"),
        (_changed(ModelCallFinished, usage=Usage(1, 1)), "`usage.input_tokens` is"),
        (_changed(ToolCallFinished, result="other"), "agent 2, event"),
        (_changed(ToolCallFinished, is_error=True), "`is_error` is False and True"),
        (_changed(AgentSpawned, task_description="other"), "agent 2, event 0, agent_spawned"),
        (_changed(RunFinished, tokens_used=1), "the run: only in the second record: run_finished"),
        (_changed(RunStarted, budget_total=1), "the run: only in the first record: run_started"),
        (_without(AgentCompleted), "the root: from event"),
        (_without(ToolCallFinished), "tool_call_finished and model_call_started"),
        (_twice_changed, "the run: only in the second record: budget_changed {'budget_total': 8"),
    ],
)
async def test_each_other_difference_is_said(
    edit: Callable[[Sequence[Any]], list[Any]], said: str
) -> None:
    tree = await told()
    await tree.run()
    other = recorded(edit(tree.events))

    found = equal_records(record(tree), other)
    assert any(said in line for line in found), found
    assert all(len(line) < 500 for line in found)
    assert equal_records(other, record(tree)) != []


def test_agent_that_only_one_run_has_is_named() -> None:
    assert equal_records(of(SPAWNED, CHILD), of(SPAWNED)) == [
        "agent 1: only in the first record, with 1 event"
    ]


def test_order_counts_for_an_agent_and_not_for_the_run() -> None:
    one, other = (
        BudgetChanged(budget_total=n, previous_total=9, tokens_used=1, by="code") for n in (7, 8)
    )
    assert equal_records(of(one, other), of(other, one)) == []
    a, b = (AgentTextDelta(agent_id="nb", text=text) for text in "ab")
    assert equal_records(of(SPAWNED, a, b), of(SPAWNED, b, a)) == [
        "the root, event 1, agent_text_delta: `text` is 'a' and 'b'"
    ]


def test_event_of_the_run_counts_as_often_as_it_came() -> None:
    change = BudgetChanged(budget_total=8, previous_total=9, tokens_used=1, by="code")
    (line,) = equal_records(of(change), of(change, change))
    assert line.startswith("the run: only in the second record: budget_changed")


def test_long_text_is_shown_where_it_begins_to_differ() -> None:
    long = "word " * 1000
    a, b = (AgentTextDelta(agent_id="nb", text=f"{long}{end}") for end in ("one way", "other way"))
    (line,) = equal_records(of(SPAWNED, a), of(SPAWNED, b))
    assert "word one way' and … '" in line
    assert line.endswith("word other way'")
    assert len(line) < 150
