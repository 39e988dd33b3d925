"""Records of runs, made by hand: who did what when."""

from __future__ import annotations

from collections.abc import Sequence

from agentnb.core.events import (
    AgentCompleted,
    AgentSpawned,
    AgentTextDelta,
    AgentWaiting,
    BudgetUpdate,
    Event,
    ModelCallFinished,
    ModelCallStarted,
    Row,
    RunFinished,
    RunStarted,
    SynthesisStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from agentnb.core.types import AgentNode, AgentStatus, CompletionRequest, Usage
from tests.views.figures.trees import tree

REQUEST = CompletionRequest("scripted", "", ())


def rows_of(told: Sequence[tuple[float, Event]]) -> list[Row]:
    """Events with their times, as a bus keeps them."""
    return [
        (at_s, event.agent_id, event.text) if isinstance(event, AgentTextDelta) else (at_s, event)
        for at_s, event in told
    ]


def started(total: int = 1000, unit: str = "tokens") -> Event:
    return RunStarted(
        task_description="Do it", model="m", budget_total=total, max_depth=3, unit=unit
    )


def finished() -> Event:
    return RunFinished(status=AgentStatus.COMPLETED, tokens_used=1, duration_ms=1)


def spawned(agent_id: str, parent_id: str | None = None, task: str = "Do it") -> Event:
    depth = 0 if parent_id is None else 1
    return AgentSpawned(agent_id=agent_id, parent_id=parent_id, task_description=task, depth=depth)


def call_started(agent_id: str, attempt: int = 1) -> Event:
    return ModelCallStarted(agent_id=agent_id, request=REQUEST, model="m", attempt=attempt)


def call_finished(agent_id: str) -> Event:
    return ModelCallFinished(agent_id=agent_id, model="m", usage=Usage(10, 10), duration_ms=1)


def waits(agent_id: str) -> Event:
    return AgentWaiting(agent_id=agent_id, reason="for a slot")


def uses_tool(agent_id: str, use: str = "1") -> Event:
    return ToolCallStarted(agent_id=agent_id, tool_use_id=use, name="look", input={})


def used_tool(agent_id: str, use: str = "1") -> Event:
    return ToolCallFinished(
        agent_id=agent_id,
        tool_use_id=use,
        name="look",
        result_summary="",
        is_error=False,
        duration_ms=1,
    )


def completed(agent_id: str) -> Event:
    return AgentCompleted(
        agent_id=agent_id, result_summary="", text="", tokens_used=1, duration_ms=1
    )


def brings_together(agent_id: str) -> Event:
    return SynthesisStarted(agent_id=agent_id, total=1)


def budget_update(used: int, total: int = 1000, unit: str = "tokens") -> Event:
    percentage = 100 * used / total
    return BudgetUpdate(tokens_used=used, budget_total=total, percentage=percentage, unit=unit)


def record(count: int, *, shape: str = "three levels") -> list[Row]:
    """A run of `count` agents, each of which calls a model, waits, uses a tool and calls again."""
    told: list[tuple[float, Event]] = [(0.0, started(30 * count))]
    root = tree(shape, count)
    ends: dict[str, float] = {}
    begins = {root.agent_id: 0.01}
    for node in root.walk():
        begin = begins[node.agent_id]
        for child in node.children:
            begins[child.agent_id] = begin + 1.0 + len(begins) % 7 / 10
    for node in reversed(list(root.walk())):
        ends[node.agent_id] = _one(told, node, begins[node.agent_id], ends)
    told.sort(key=lambda each: each[0])
    used = 0
    with_budget: list[tuple[float, Event]] = []
    for at_s, event in told:
        with_budget.append((at_s, event))
        if isinstance(event, ModelCallFinished):
            used += 10
            with_budget.append((at_s, budget_update(used, 30 * count)))
    return rows_of([*with_budget, (ends[root.agent_id], finished())])


def _one(
    told: list[tuple[float, Event]], node: AgentNode, begin: float, ends: dict[str, float]
) -> float:
    agent = node.agent_id
    parent = None if node.path == "root" else agent.rpartition(".")[0]
    told += [
        (begin, spawned(agent, parent, node.task)),
        (begin, waits(agent)),
        (begin + 0.2, call_started(agent)),
        (begin + 0.5, call_finished(agent)),
        (begin + 0.5, uses_tool(agent)),
        (begin + 0.7, used_tool(agent)),
        (begin + 0.7, call_started(agent)),
        (begin + 0.9, call_finished(agent)),
    ]
    end = begin + 0.9
    if node.children:
        back = max(ends[child.agent_id] for child in node.children)
        end = back + 0.4
        told += [
            (back, brings_together(agent)),
            (back + 0.01, call_started(agent)),
            (end - 0.01, call_finished(agent)),
        ]
    told.append((end, completed(agent)))
    return end
