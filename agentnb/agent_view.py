"""`AgentView`: one agent of a run, read from the run's events: its task, conversation, calls, cost.

A view is an immutable snapshot. A loaded run gives the same views as the run that was saved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentnb.core.events import Row
from agentnb.core.shown import Listed, Shown
from agentnb.core.spawn import read_reply
from agentnb.core.text import quoted, visible
from agentnb.core.tree import AgentState
from agentnb.core.types import (
    AgentNode,
    AgentStatus,
    CompletionRequest,
    Message,
    RunUsage,
    Usage,
    assistant_message,
    text_so_far,
)
from agentnb.prices import Cost
from agentnb.views.panel.history import CallHistory, CallRecord, ToolCallRecord

_NOT_THE_END = (None, "tool_use", "pause_turn")
"""Stop reasons of replies that the events hold in part: they lack tool calls or what follows."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One model call of an agent. Each transport attempt is a call of its own."""

    number: int
    """Position among its agent's calls, from 1."""
    status: str
    """`started` or `finished`."""
    request: CompletionRequest
    """As sent."""
    model: str
    """`provider/model`."""
    attempt: int
    """Transport attempt, from 1."""
    is_synthesis: bool
    text: str
    """The reply, as far as it has arrived."""
    at_s: float
    """When it was sent, in seconds since the run began."""
    usage: Usage | None = None
    """`None` while the call is open; so are the next three."""
    stop_reason: str | None = None
    """`None` also when the reply was cut off."""
    error: str | None = None
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call of an agent."""

    number: int
    """Position among its agent's tool calls, from 1."""
    status: str
    """`started` or `finished`."""
    tool_use_id: str
    name: str
    input: Any
    """The arguments by name; shortened if `input_is_cut`."""
    at_s: float
    """When it began, in seconds since the run began."""
    result: str | None = None
    """`None` while the call is open; shortened if `result_is_cut`."""
    is_error: bool = False
    duration_ms: int | None = None
    """`None` while the call is open."""
    input_is_cut: bool = False
    result_is_cut: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class AgentView(Shown):
    """Snapshot of one agent of a run."""

    path: str
    """`root`, `1`, `1.2`."""
    agent_id: str
    parent: str | None
    """The parent's path; `None` for the root."""
    children: tuple[str, ...]
    """Paths of its direct sub-agents, in task order. Skipped tasks are not included."""
    task: str
    status: AgentStatus
    depth: int
    """0 for the root."""
    model: str
    """`provider/model` of its newest call."""
    duration_ms: int
    """From its spawn to its end, or to its newest event."""
    text: str
    """The answer, or its text so far."""
    error: str | None
    """Why it did not complete; `None` while it works and when it completed."""
    cut: bool
    """Whether the answer was cut at a limit."""
    messages: tuple[Message, ...]
    """The conversation: the messages of its newest request, and the reply as text."""
    calls: tuple[ModelCall, ...]
    """All model calls, in order."""
    tool_calls: tuple[ToolCall, ...]
    """All tool calls, in the order in which they began."""
    usage: RunUsage
    """The provider's counts for its own finished calls."""
    cost: Cost
    """Estimated cost of its own calls; see `RunRecord.cost`."""
    subtree_usage: RunUsage
    """Its own usage plus that of all agents below it."""
    subtree_cost: Cost
    """Its own cost plus that of all agents below it."""
    is_whole: bool
    """Whether `messages` and `tool_calls` are complete. False if the events hold a tool's input or
    result in part, or if the newest reply is open, was cut off, or continued with tools."""

    def __repr__(self) -> str:
        path = visible(self.path, 60)
        return f"AgentView({path}, {self.status}, {quoted(self.task)}, {quoted(self.text)})"


class AgentViews(Listed[AgentView]):
    """Several agents of a run."""

    __slots__ = ()
    noun = "agent"


def views_of(
    nodes: Sequence[AgentNode],
    *,
    agents: Mapping[str, AgentState],
    rows: Mapping[str, Sequence[Row]],
    costs: Mapping[str, tuple[Cost, Cost]],
    wanted: int | None = None,
) -> AgentViews:
    """Build the views of agents of one run.

    Args:
        nodes: The whole tree or a branch, in path order.
        agents: Folded state of each agent, by id.
        rows: Each agent's own rows of the record, by id.
        costs: Each agent's own cost and its subtree's, by path.
        wanted: Build views of the first `wanted` nodes only; of all by default.
    """
    usages: dict[str, dict[str, Usage]] = {}
    for node in reversed(nodes):  # children before their parent
        whole = usages[node.agent_id] = dict(agents[node.agent_id].usage)
        for child in node.children:
            for model, usage in usages[child.agent_id].items():
                whole[model] = whole.get(model, Usage()) + usage
    paths = {node.agent_id: node.path for node in nodes}
    return AgentViews(
        _view(
            node,
            agents[node.agent_id],
            rows.get(node.agent_id, ()),
            parent=_parent_path(node, agents, paths),
            subtree_usage=RunUsage.of(usages[node.agent_id]),
            costs=costs[node.path],
        )
        for node in nodes[:wanted]
    )


def _parent_path(
    node: AgentNode, agents: Mapping[str, AgentState], paths: Mapping[str, str]
) -> str | None:
    if node.parent_id is None:
        return None
    return paths.get(node.parent_id) or agents[node.parent_id].path


def _view(
    node: AgentNode,
    agent: AgentState,
    rows: Sequence[Row],
    *,
    parent: str | None,
    subtree_usage: RunUsage,
    costs: tuple[Cost, Cost],
) -> AgentView:
    history = CallHistory(node.agent_id)
    history.feed(rows)
    tool_calls = tuple(_tool_call(call) for call in history.tools.calls)
    messages, messages_are_whole = _messages(history)
    return AgentView(
        path=node.path,
        agent_id=node.agent_id,
        parent=parent,
        children=tuple(child.path for child in node.children),
        task=node.task,
        status=node.status,
        depth=node.depth,
        model=node.model,
        duration_ms=node.duration_ms,
        text=text_of(agent, history),
        error=agent.error,
        cut=agent.cut,
        messages=messages,
        calls=tuple(_model_call(number, call) for number, call in enumerate(history.calls, 1)),
        tool_calls=tool_calls,
        usage=RunUsage.of(agent.usage),
        cost=costs[0],
        subtree_usage=subtree_usage,
        subtree_cost=costs[1],
        is_whole=messages_are_whole
        and not any(call.input_is_cut or call.result_is_cut for call in tool_calls),
    )


def text_of(agent: AgentState, history: CallHistory) -> str:
    """An agent's answer; its text so far if it has not ended."""
    if agent.answer is not None:
        return agent.answer
    for call in reversed(history.calls):
        # A call that continues a paused reply has the reply's beginning in its messages.
        said = read_reply(text_so_far(call.request.messages) + call.text).text_before
        if said:
            return said
    return ""


def _messages(history: CallHistory) -> tuple[tuple[Message, ...], bool]:
    """The conversation, and whether the events hold all of it."""
    if not history.calls:
        return (), True
    newest = history.calls[-1]
    reply = (assistant_message(newest.text),) if newest.text else ()
    stop_reason = newest.finished.stop_reason if newest.finished is not None else None
    return (*newest.request.messages, *reply), stop_reason not in _NOT_THE_END


def _model_call(number: int, call: CallRecord) -> ModelCall:
    started, finished = call.started, call.finished
    return ModelCall(
        number=number,
        status="started" if finished is None else "finished",
        request=started.request,
        model=started.model,
        attempt=started.attempt,
        is_synthesis=started.is_synthesis,
        text=call.text,
        at_s=call.begun_s,
        usage=finished.usage if finished is not None else None,
        stop_reason=finished.stop_reason if finished is not None else None,
        error=finished.error if finished is not None else None,
        duration_ms=finished.duration_ms if finished is not None else None,
    )


def _tool_call(call: ToolCallRecord) -> ToolCall:
    started, finished = call.started, call.finished
    return ToolCall(
        number=call.n,
        status="started" if finished is None else "finished",
        tool_use_id=started.tool_use_id,
        name=started.name,
        input=started.input,
        at_s=call.begun_s,
        # Older records hold only the first line of a result.
        result=(finished.result or finished.result_summary) if finished is not None else None,
        is_error=finished is not None and finished.is_error,
        duration_ms=finished.duration_ms if finished is not None else None,
        input_is_cut=started.input_length is not None,
        result_is_cut=finished is not None and finished.result_length is not None,
    )
