"""`AgentView`: one agent of a run, read from the run's events: its task, conversation, calls, cost.

A view is an immutable snapshot. A loaded run gives the same views as the run that was saved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentnb.core.calls import CallHistory, CallState
from agentnb.core.events import Row
from agentnb.core.keys import CallKeys
from agentnb.core.prompt import BLOCK_BESIDE_TOOLS
from agentnb.core.records import FINISHED, CallRecord, ErrorRecord, ToolCallRecord
from agentnb.core.secrets import known_secrets
from agentnb.core.shown import Listed, Shown
from agentnb.core.spawn import read_reply
from agentnb.core.text import quoted, visible
from agentnb.core.tool_results import ToolResult, blocks_of
from agentnb.core.tree import AgentState
from agentnb.core.types import (
    AgentNode,
    AgentStatus,
    Block,
    Message,
    Role,
    RunUsage,
    TextBlock,
    ToolUseBlock,
    Usage,
    assistant_message,
    sendable_reply,
    text_so_far,
)
from agentnb.prices import Cost

WholeToolCalls = Mapping[tuple[str, int], ToolCallRecord]
"""See `agentnb.core.bus.EventBus.whole_tool_calls`."""


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
    """Why it did not complete; `None` while it works and if it completed."""
    cut: bool
    """Whether the answer was cut at a limit."""
    data: Any
    """The typed answer; a plain JSON value for a loaded run, `None` for text."""
    messages: tuple[Message, ...]
    """The conversation: the messages of its newest request, the reply as it is sent back (of an
    open call: its text so far), and the results of the tools that it called, once all have ended.
    Text of a failed attempt is only in `calls`."""
    calls: tuple[CallRecord, ...]
    """All model calls, in order; each transport attempt is a separate call. Events hold only an
    error's message: its `class` is empty."""
    tool_calls: tuple[ToolCallRecord, ...]
    """All tool calls, in order of their start. `effects` is true if unknown."""
    usage: RunUsage
    """The provider's counts for its own finished calls."""
    cost: Cost
    """Estimated cost of its own calls; see `RunRecord.cost`."""
    subtree_usage: RunUsage
    """Its own usage plus that of its whole subtree."""
    subtree_cost: Cost
    """Its own cost plus that of its whole subtree."""
    is_whole: bool
    """Whether `messages` and `tool_calls` are complete so far. False while a call or a tool call
    is open, if the process died in one, and in older files, which lack some of it."""
    notes: tuple[str, ...]
    """What else is to be known, one line each: tasks not followed, another model of its chain, a
    cut answer, what its provider notes of a reply."""

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
    whole_tool_calls: WholeToolCalls,
    data: Mapping[str, Any],
    costs: Mapping[str, tuple[Cost, Cost]],
    wanted: int | None = None,
) -> AgentViews:
    """Build the views of agents of one run.

    Args:
        nodes: The whole tree or a branch, in path order.
        agents: Folded state of each agent, by id.
        rows: Each agent's own rows of the record, by id.
        whole_tool_calls: Those that the events hold in part, by agent id and number.
        data: Answers as values, by agent id; of a loaded run none.
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
    secrets = known_secrets()
    return AgentViews(
        _view(
            node,
            agents[node.agent_id],
            rows.get(node.agent_id, ()),
            whole_tool_calls,
            CallKeys(secrets),
            parent=_parent_path(node, agents, paths),
            subtree_usage=RunUsage.of(usages[node.agent_id]),
            data=data,
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
    whole_tool_calls: WholeToolCalls,
    keys: CallKeys,
    *,
    parent: str | None,
    subtree_usage: RunUsage,
    data: Mapping[str, Any],
    costs: tuple[Cost, Cost],
) -> AgentView:
    history = CallHistory(node.agent_id)
    history.feed(rows)
    made = [
        (call, whole_tool_calls.get((node.agent_id, call.number))) for call in history.tools.calls
    ]
    tool_calls = [call.record(node.path, whole) for call, whole in made]
    tools_are_whole = [call.is_known_whole(whole) for call, whole in made]
    messages, messages_are_whole = _messages(history, tool_calls, tools_are_whole, node.status)
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
        data=data[node.agent_id] if node.agent_id in data else _data_of(agent),
        messages=messages,
        calls=tuple(
            [
                _call_record(call, node.path, number, keys)
                for number, call in enumerate(history.calls, 1)
            ]
        ),
        tool_calls=tuple(tool_calls),
        usage=RunUsage.of(agent.usage),
        cost=costs[0],
        subtree_usage=subtree_usage,
        subtree_cost=costs[1],
        is_whole=messages_are_whole and all(tools_are_whole),
        notes=tuple(agent.notes),
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


def _data_of(agent: AgentState) -> Any:
    """The answer of a loaded run's agent as a plain JSON value; `None` for text."""
    if not agent.typed or agent.answer is None:
        return None
    try:
        return json.loads(agent.answer)
    except (ValueError, RecursionError):  # a secret was masked in it, for example
        return None


def _messages(
    history: CallHistory,
    tool_calls: Sequence[ToolCallRecord],
    tools_are_whole: Sequence[bool],
    status: AgentStatus,
) -> tuple[tuple[Message, ...], bool]:
    """The conversation, and whether it has all that was said so far."""
    if not history.calls:
        return (), True
    newest = history.calls[-1]
    messages, finished = newest.request.messages, newest.finished
    if finished is None or finished.message is None:
        # The call is open, nothing came, or it is an older record, which has the text only.
        reply = assistant_message(newest.text)
        is_whole = finished is not None and finished.stop_reason is None
    else:
        reply, is_whole = finished.message, True
        if finished.stop_reason is not None:
            reply = sendable_reply(reply, finished.stop_reason)
    if reply.content:
        messages = (*messages, reply)
    orders = [block for block in reply.content if isinstance(block, ToolUseBlock)]
    if not orders:
        return messages, is_whole
    # The engine starts one turn's tools in the order of their calls.
    made = tool_calls[newest.tools_before :]
    asked = [(order.id, order.name) for order in orders]
    if not all(tools_are_whole[newest.tools_before :]) or asked != [
        (call.tool_use_id, call.name) for call in made
    ]:
        return messages, status.is_terminal  # some may begin yet
    return (*messages, _results_message(newest, made)), True


def _results_message(call: CallState, made: Sequence[ToolCallRecord]) -> Message:
    """The results of a reply's tool calls, as the engine gives them to the model."""
    results: list[Block] = [*blocks_of([ToolResult(each) for each in made])]
    if read_reply(text_so_far(call.request.messages) + call.text).has_block:
        results.append(TextBlock(BLOCK_BESIDE_TOOLS))
    return Message(Role.USER, tuple(results))


def _call_record(call: CallState, path: str, number: int, keys: CallKeys) -> CallRecord:
    started, finished = call.started, call.finished
    key, pieces = keys.key_of(started.model, started.request), tuple(call.pieces)
    record = CallRecord(
        path=path,
        number=number,
        attempt=started.attempt,
        key=key,
        request=started.request,
        pieces=pieces,
        at_s=call.begun_s,
        model=started.model,
        is_synthesis=started.is_synthesis,
    )
    if finished is None:
        return record
    return replace(
        record,
        message=finished.message,
        stop_reason=finished.stop_reason,
        usage=finished.usage,
        error=_error_record(finished.error),
        duration_ms=finished.duration_ms,
        status=FINISHED,
        estimate_error=finished.estimate_error,
    )


def _error_record(words: str | None) -> ErrorRecord | None:
    """An error of which only the message is known."""
    if words is None:
        return None
    return {
        "class": "",
        "message": words,
        "retryable": False,
        "retry_after_s": None,
        "status": None,
    }
