"""What became of each task that was asked for: an agent, or one event that names it and says why.

`check_tasks` reads it off the record, whoever asked: a person by a list, a model by a block, also
one that was cut or could not be followed, or a model by the tool `spawn`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentnb.core.events import (
    AgentFailed,
    AgentSpawned,
    AgentTextDelta,
    CycleDetected,
    DepthLimitReached,
    Entry,
    ModelCallStarted,
    ProviderFailover,
    SpawnIgnored,
    ToolCallFinished,
    ToolCallStarted,
)
from agentnb.core.spawn import read_reply, task_of
from agentnb.core.types import CompletionRequest, SpawnInstruction, ToolUse, text_so_far

Heard = tuple[CompletionRequest, ToolUse]
"""A tool call that a provider has streamed, and for which request."""
_NOT_STARTED = "The sub-agent was not started: "


@dataclass
class _Reply:
    """The newest reply of one agent."""

    text: str = ""
    orders: list[ToolUse] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)
    """By the id of a call of `spawn` that began: its result, `ok` where it is no error."""
    is_replaced: bool = False
    """Its turn failed and is made once more: what it had asked for is not asked for any more."""

    @property
    def tasks(self) -> list[str]:
        by_tool = [task_of(o.input) for o in self.orders if o.name == "spawn" and self._counts(o)]
        return [*read_reply(self.text).tasks, *filter(None, by_tool)]

    def _counts(self, order: ToolUse) -> bool:
        """A call with wrong arguments is an error of the call: the model may put it right."""
        result = self.results.get(order.id, "ok")
        return result == "ok" or result.startswith(_NOT_STARTED)


def check_tasks(
    entries: Sequence[Entry],
    *,
    plan: SpawnInstruction | None = None,
    heard: Iterable[Heard] = (),
) -> None:
    """Check that tasks asked are agents spawned and tasks named by events, each exactly once."""
    asked: Counter[tuple[str, str]] = Counter()
    answered: Counter[tuple[str, str]] = Counter()
    heard_by_request: dict[int, list[ToolUse]] = {}
    for request, order in heard:
        heard_by_request.setdefault(id(request), []).append(order)
    replies: dict[str, _Reply] = {}

    def close(agent_id: str) -> None:
        asked.update((agent_id, task) for task in replies.pop(agent_id, _Reply()).tasks)

    for event in (entry.event for entry in entries):
        match event:
            case AgentSpawned(parent_id=None):
                asked.update((event.agent_id, task) for task in (plan.tasks if plan else ()))
            case AgentSpawned(parent_id=str(parent_id)):
                answered[parent_id, event.task_description] += 1
            case ModelCallStarted():
                goes_on = text_so_far(event.request.messages)
                reply = replies.get(event.agent_id, _Reply())
                if not (reply.is_replaced or goes_on or event.attempt > 1):
                    close(event.agent_id)
                orders = heard_by_request.get(id(event.request), [])
                replies[event.agent_id] = _Reply(goes_on, orders)
            case AgentTextDelta():
                replies[event.agent_id].text += event.text
            case ToolCallStarted(name="spawn"):
                replies[event.agent_id].results[event.tool_use_id] = "began"
            case ToolCallFinished(name="spawn"):
                result = event.result if event.is_error else "ok"
                replies[event.agent_id].results[event.tool_use_id] = result
            case AgentFailed(will_retry=True) | ProviderFailover():
                replies.setdefault(event.agent_id, _Reply()).is_replaced = True
            case _:
                answered.update(_named(event))
    for agent_id in list(replies):
        close(agent_id)
    assert answered == asked, f"asked, and no word: {asked - answered}; else {answered - asked}"


def _named(event: Any) -> list[tuple[str, str]]:
    match event:
        case SpawnIgnored() | DepthLimitReached():
            assert isinstance(event, DepthLimitReached) or event.reason
            return [(event.agent_id, task) for task in event.tasks]
        case CycleDetected():
            return [(event.agent_id, event.task_description)]
    return []
