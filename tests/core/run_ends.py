"""What a run has come to when it is over: its record, its books, its result, its readers.

`check_end` holds for every run, whatever was done to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from agentnb.core.bus import EventBus
from agentnb.core.errors import InternalError, LlmError, NoAnswer, RunCancelled
from agentnb.core.events import (
    AgentCompleted,
    AgentFailed,
    AgentSpawned,
    AgentTextDelta,
    AgentTold,
    AgentWaiting,
    BudgetExhausted,
    BudgetUpdate,
    Entry,
    LimitReached,
    ModelCallFinished,
    ModelCallStarted,
    ProviderFailover,
    Row,
    RunFinished,
    RunStarted,
    SynthesisStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from agentnb.core.spawn import read_reply
from agentnb.core.types import AgentStatus, OrchestratorResult, SpawnInstruction
from agentnb.core.words import Note
from agentnb.record import RunRecord
from agentnb.run_file import read_document
from tests.core.asked_tasks import Heard, check_tasks
from tests.core.clock import ManualClock
from tests.core.random_trees import WatchedBudget
from tests.support import check_record, check_result, events_of


def check_end(
    result: OrchestratorResult | None,
    error: BaseException | None,
    entries: Sequence[Entry],
    *,
    budget: WatchedBudget,
    clock: ManualClock,
    plan: SpawnInstruction | None = None,
    heard: Iterable[Heard] = (),
) -> None:
    """Check what holds for every run that is over.

    Args:
        result: What it returned, or the error's partial result; `None` when the run was cancelled
            from outside, which leaves no result.
        error: What it raised.
        entries: Its whole record.
        budget: Its pot.
        clock: Its clock.
        plan: A person's own list of tasks, where it had one.
        heard: The tool calls that its provider has streamed.
    """
    check_record(entries)
    finished = entries[-1].event
    assert isinstance(finished, RunFinished)
    told: list[Any] = [
        *events_of(entries, BudgetExhausted),
        *events_of(entries, LimitReached),
    ]
    _check_calls(entries)
    check_tasks(entries, plan=plan, heard=heard)
    calls = events_of(entries, ModelCallFinished)
    assert budget.broken == []
    assert budget.reserved == 0
    assert budget.tokens_used == sum(call.usage.budget_tokens for call in calls)
    reported = sum(max(0, call.estimate_error) for call in calls)
    # What a call had metered beyond its own slices of output may be reported as well.
    beyond = budget.beyond_held + budget.held_for_input
    assert budget.too_low <= reported <= budget.too_low + beyond
    assert finished.tokens_used == budget.tokens_used
    assert clock.pending == 0, "a timer is still set"
    if result is None:
        assert finished.status is AgentStatus.CANCELLED
        return
    check_result(result, entries)
    assert not read_reply(result.final_response).has_block, result.final_response
    assert finished.status is result.status is result.agent_tree.status
    match result.status:
        case AgentStatus.COMPLETED:
            assert error is None
            assert not told
        case AgentStatus.EXHAUSTED:
            assert error is None
            # Of the root's own synthesis alone it is not told.
            assert told or result.sub_agent_results
        case AgentStatus.CANCELLED:
            assert isinstance(error, RunCancelled)
        case AgentStatus.FAILED:
            # A person's list of which nothing was completed raises nothing.
            done = [each.status is AgentStatus.COMPLETED for each in result.sub_agent_results]
            is_none_done = plan is not None and not any(done)
            assert isinstance(error, LlmError | NoAnswer | InternalError) or is_none_done
        case other:
            raise AssertionError(f"a run ended as {other}")
    _check_incomplete(result)
    _check_order(result, entries)


def _check_calls(entries: Sequence[Entry]) -> None:
    """Every call that began ended, and nothing was tried more often than it may be."""
    open_calls: Counter[str] = Counter()
    open_tools: set[tuple[str, str]] = set()
    retried: Counter[str] = Counter()
    last_attempt: dict[str, int] = {}
    moved_to: dict[str, str] = {}
    for event in (entry.event for entry in entries):
        match event:
            case ModelCallStarted():
                open_calls[event.agent_id] += 1
                expected = last_attempt.get(event.agent_id, 0) + 1
                assert event.attempt == expected, f"attempt {event.attempt}, not {expected}"
                assert event.attempt <= 4
                assert event.model == moved_to.get(event.agent_id, event.model)
                last_attempt[event.agent_id] = event.attempt
            case ModelCallFinished():
                open_calls[event.agent_id] -= 1
                if event.stop_reason not in (None, "refusal"):
                    last_attempt[event.agent_id] = 0
            case ProviderFailover():
                assert event.agent_id not in moved_to, "it went back, or beyond the last model"
                moved_to[event.agent_id] = event.to_provider
                last_attempt[event.agent_id] = 0
            case AgentWaiting() if event.attempt > 1:
                assert event.attempt == last_attempt[event.agent_id] + 1
            case AgentFailed():
                last_attempt[event.agent_id] = 0
                if event.will_retry:
                    retried[event.agent_id] += 1
                    assert event.attempt == 1
                    assert retried[event.agent_id] == 1, "an agent was tried three times"
                else:
                    assert event.attempt <= 2
            case SynthesisStarted():
                # A turn of its own, also for a root that the budget stopped before a retry.
                last_attempt[event.agent_id] = 0
            case ToolCallStarted():
                open_tools.add((event.agent_id, event.tool_use_id))
            case ToolCallFinished():
                open_tools.remove((event.agent_id, event.tool_use_id))
    assert not +open_calls, "a call has no end"
    assert not open_tools, "a tool call has no end"


def _check_incomplete(result: OrchestratorResult) -> None:
    nodes = {node.agent_id: node for node in result.agent_tree.walk()}
    root = result.agent_tree
    undone = {
        node.agent_id
        for node in nodes.values()
        if node is not root and node.status is not AgentStatus.COMPLETED
    }
    listed = [task.agent_id for task in result.incomplete if task.agent_id is not None]
    if listed == [root.agent_id] or (not result.incomplete):
        listed = []
    assert len(set(listed)) == len(listed)
    assert set(listed) == undone
    for task in result.incomplete:
        assert task.status is not AgentStatus.COMPLETED
        if task.agent_id is not None:
            assert task.status is nodes[task.agent_id].status
    if root.status is not AgentStatus.COMPLETED:
        assert result.incomplete


def _check_order(result: OrchestratorResult, entries: Sequence[Entry]) -> None:
    """The root's results stand in the order of their tasks, each with its own agent's end."""
    nodes = {node.agent_id: node for node in result.agent_tree.walk()}
    spawned = [
        event
        for event in events_of(entries, AgentSpawned)
        if event.parent_id == result.agent_tree.agent_id
    ]
    of_agents = [r.agent_id for r in result.sub_agent_results if r.agent_id is not None]
    assert of_agents == [event.agent_id for event in spawned]
    started_by_tools = sum(bool(event.job_id) for event in spawned)
    for event in spawned:
        # Jobs begin while their parent has its turn, so before any task of its spawn block.
        at = event.index if event.job_id else event.index + started_by_tools
        told = result.sub_agent_results[at]
        assert event.total == (
            at + 1 if event.job_id else len(result.sub_agent_results) - started_by_tools
        )
        assert (told.agent_id, told.task) == (event.agent_id, event.task_description)
        assert told.status is nodes[event.agent_id].status
    for told in result.sub_agent_results:
        assert (told.agent_id is None) == (told.status is AgentStatus.SKIPPED)


def check_size(
    entries: Sequence[Entry], *, max_depth: int, max_agents: int, has_plan: bool = False
) -> None:
    """The tree is no deeper and no larger than it may be: a person's own list has no limit."""
    spawned = events_of(entries, AgentSpawned)
    by_agents = [event for event in spawned if event.depth > (1 if has_plan else 0)]
    assert len(by_agents) <= max_agents
    assert max(event.depth for event in spawned) <= max_depth


def check_words(entries: Sequence[Entry], said: Mapping[str, str]) -> None:
    """What an agent was told and took is told once and read by it alone; or it did not complete.

    The root's last call may have no room for it: then its answer stands.
    """
    root_id = events_of(entries, AgentSpawned)[0].agent_id
    completed = {event.agent_id for event in events_of(entries, AgentCompleted)}
    told = [(event.text, event.agent_id) for event in events_of(entries, AgentTold)]
    assert len(set(told)) == len(told), "something was told twice"
    assert set(told) <= set(said.items())
    left = set(said.items()) - set(told)
    assert {agent_id for _, agent_id in left} & completed <= {root_id}
    calls = events_of(entries, ModelCallStarted)
    for text, agent_id in said.items():
        note = Note(text, "code").for_model
        readers = {
            call.agent_id
            for call in calls
            if any(note in message.text for message in call.request.messages)
        }
        assert readers == ({agent_id} if (text, agent_id) in told else set())


def check_views(bus: EventBus) -> None:
    """Each agent's conversation is whole, goes on as it began, and is the same from a file."""
    rows = bus.rows_since(0)
    agents = _record(bus, rows).agents
    for agent in agents:
        assert agent.is_whole
        for call, after in pairwise(agent.calls):
            if call.message is not None and call.stop_reason == "tool_use":
                place = len(call.request.messages)
                assert after.request.messages[place : place + 1] in ((), (call.message,))
    for length in (len(rows) // 3, 2 * len(rows) // 3, len(rows)):
        record = _record(bus, rows[:length])
        document = read_document(record.to_json(), source="run.json")
        from_file = EventBus.of_record(
            document.run_id, document.rows, whole_tool_calls=document.whole_tool_calls
        )
        assert RunRecord(document.run_id, document.task, from_file).agents == record.agents


def _record(bus: EventBus, rows: list[Row]) -> RunRecord:
    then = EventBus.of_record(bus.run_id, rows.copy(), whole_tool_calls=bus.whole_tool_calls)
    return RunRecord(bus.run_id, "the task", then)


def check_reading(read: Sequence[Entry], entries: Sequence[Entry]) -> None:
    """A reader, however slow, got everything: joined at most, never lost and never reordered."""
    assert [entry.seq for entry in read] == sorted({entry.seq for entry in read})
    whole = [e for e in entries if not isinstance(e.event, AgentTextDelta | BudgetUpdate)]
    assert [e for e in read if not isinstance(e.event, AgentTextDelta | BudgetUpdate)] == whole
    assert _stories(read) == _stories(entries)
    covered = {
        seq for e in read for seq in range(e.seq if e.seq_first is None else e.seq_first, e.seq + 1)
    }
    assert covered == set(range(len(entries)))
    updates = [e.event for e in entries if isinstance(e.event, BudgetUpdate)]
    got = [e.event for e in read if isinstance(e.event, BudgetUpdate)]
    assert got[-1:] == updates[-1:]
    assert isinstance(read[0].event, RunStarted)


def _stories(entries: Sequence[Entry]) -> dict[str, list[object]]:
    """By agent what happened to it, with its text between two other events in one piece."""
    stories: dict[str, list[object]] = {}
    for event in (entry.event for entry in entries):
        story = stories.setdefault(getattr(event, "agent_id", None) or "", [])
        if isinstance(event, AgentTextDelta):
            if story and isinstance(story[-1], str):
                story[-1] += event.text
            else:
                story.append(event.text)
        elif not isinstance(event, BudgetUpdate):
            story.append(event)
    return stories
