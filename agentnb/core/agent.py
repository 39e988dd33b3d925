"""One agent's turns: stream a reply, run the tools it asked for, stream again until it stops.

`InProcessEngine.run` is one attempt as one awaitable: plain values in, a plain value out, facts
through the port. It knows nothing of trees; whether a failed turn is tried again, and what a
finished text means, is the orchestrator's to decide.

Two layers of failure meet here. The transport's: a call that failed before any text was shown
is made again (`agentnb.core.turn`). And the turn's: whatever else went wrong ends this attempt,
with everything that was finished before it kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentnb.core.call import Reply
from agentnb.core.cancel import is_own_end
from agentnb.core.events import ToolCallFinished, ToolCallStarted
from agentnb.core.meter import PotEmpty
from agentnb.core.protocols import AgentOutcome, AgentWork, Provider, RunPort, Tool
from agentnb.core.turn import TurnFailed, take_turn
from agentnb.core.types import (
    Block,
    Message,
    Role,
    ToolResultBlock,
    ToolUseBlock,
    assistant_message,
    one_line,
    text_so_far,
)

CUT_REASONS = frozenset({"max_tokens", "model_context_window_exceeded", "max_turns"})
"""Ends at which an agent had more to say."""
PAUSED = "pause_turn"
"""Not an end: the conversation is sent back as it is, and the model goes on."""


class InProcessEngine:
    """Runs attempts on the loop that it is called on."""

    async def run(
        self, work: AgentWork, *, provider: Provider, tools: Mapping[str, Tool], port: RunPort
    ) -> AgentOutcome:
        messages = work.request.messages
        turns = 0
        while True:
            said = text_so_far(messages)
            request = work.request
            if messages is not request.messages:
                request = replace(request, messages=messages)
            try:
                reply, link = await take_turn(work, request, provider, port)
            except TurnFailed as failed:
                return AgentOutcome(
                    messages,
                    error=failed.error,
                    may_retry=failed.may_retry,
                    turns_used=turns,
                    link=failed.link,
                )
            except PotEmpty as empty:
                return AgentOutcome(
                    messages, text=said, exhausted=str(empty), turns_used=turns, link=work.link
                )
            turns += 1
            if link != work.link:
                work = replace(work, link=link)
            message = _sendable(reply)
            messages = (*messages, message)
            outcome = AgentOutcome(
                messages,
                text=said + reply.text,
                stop_reason=reply.stop_reason,
                exhausted=reply.exhausted,
                turns_used=turns,
                link=link,
            )
            if outcome.exhausted:
                return outcome
            orders = [block for block in message.content if isinstance(block, ToolUseBlock)]
            goes_on = bool(orders) or (reply.stop_reason == PAUSED and bool(message.content))
            if not goes_on:
                return outcome
            if orders:
                results = await _run_tools(work.agent_id, orders, tools, port)
                messages = (*messages, Message(Role.USER, results))
            if turns >= work.turns_left:
                return replace(outcome, messages=messages, stop_reason="max_turns")


def _sendable(reply: Reply) -> Message:
    """The reply as it goes back into the conversation: no tool call in it without an answer."""
    if reply.stopped is None:
        return assistant_message(reply.text)
    message = reply.stopped.message
    if reply.stopped.reason != "tool_use":
        kept = [b for b in message.content if not isinstance(b, ToolUseBlock)]
        if len(kept) < len(message.content):
            return replace(message, content=tuple(kept))
    return message


# -- tools ------------------------------------------------------------------------------------


async def _run_tools(
    agent_id: str, orders: Sequence[ToolUseBlock], tools: Mapping[str, Tool], port: RunPort
) -> tuple[Block, ...]:
    """Run one turn's tool calls in parallel; the results stand in the order of the calls."""
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_run_tool(agent_id, o, tools, port)) for o in orders]
    return tuple(task.result() for task in running)


async def _run_tool(
    agent_id: str, order: ToolUseBlock, tools: Mapping[str, Tool], port: RunPort
) -> ToolResultBlock:
    started_at_s = port.clock.now()
    port.publish(
        ToolCallStarted(agent_id=agent_id, tool_use_id=order.id, name=order.name, input=order.input)
    )
    text, is_error = "cancelled", True
    try:
        text, is_error = await _tool_text(order.name, order.input, tools)
    finally:
        await port.publish_kept(
            ToolCallFinished(
                agent_id=agent_id,
                tool_use_id=order.id,
                name=order.name,
                result_summary=one_line(text),
                is_error=is_error,
                duration_ms=round((port.clock.now() - started_at_s) * 1000),
            )
        )
    return ToolResultBlock(order.id, text, is_error)


async def _tool_text(
    name: str, arguments: Mapping[str, Any], tools: Mapping[str, Tool]
) -> tuple[str, bool]:
    if name not in tools:
        known = ", ".join(repr(k) for k in sorted(tools)) or "none"
        return f"There is no tool {name!r} (known: {known}).", True
    try:
        text: object = await tools[name].call(arguments)
    except BaseException as error:  # a tool's body is not ours: what it raises is told to the model
        if is_own_end(error):
            raise
        return f"{type(error).__name__}: {error}", True
    if not isinstance(text, str):
        return f"The tool returned {type(text).__name__} where text was expected.", True
    return text, False
