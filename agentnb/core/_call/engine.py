"""One agent's turns: stream a reply, run the tools it asked for, stream again until it stops.

`InProcessEngine.run` is one attempt: plain values in, a plain value out, events through the run
services. It knows nothing of trees: the orchestrator decides whether a failed turn is tried again
and what a finished text means.

Failures have two layers. Transport: a call that fails before any text was shown is retried
(`agentnb.core._call.retry`). Turn: any other failure ends this attempt; the turns and tool results
before it are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from agentnb.core._budget.meter import BudgetExceeded
from agentnb.core._call.failing_calls import FailingCalls
from agentnb.core._call.model_call import ReplySoFar
from agentnb.core._call.news import WordsCame
from agentnb.core._call.retry import TurnFailed, take_turn
from agentnb.core._call.tool_call import run_tool
from agentnb.core.errors import InternalError
from agentnb.core.events import SpawnIgnored
from agentnb.core.prompt import BLOCK_BESIDE_TOOLS, SAME_CALL_AGAIN
from agentnb.core.protocols import (
    AgentOutcome,
    AgentWork,
    Provider,
    RunServices,
    Tool,
    links_of,
    supports_media,
)
from agentnb.core.spawn import SpawnReading, read_reply
from agentnb.core.text import if_seen
from agentnb.core.tool_results import blocks_of, calls_in
from agentnb.core.types import (
    FINAL_ANSWER,
    Block,
    CompletionRequest,
    Message,
    Role,
    TextBlock,
    ToolUseBlock,
    assistant_message,
    bare_model,
    sendable_reply,
    text_so_far,
    with_texts,
)

NO_TURNS_LEFT = "max_turns"
"""Stop reason of an agent that used up its turns and asks for more."""
CUT_REASONS = frozenset({"max_tokens", "model_context_window_exceeded", NO_TURNS_LEFT})
"""Stop reasons of an incomplete answer."""
PAUSED = "pause_turn"
"""Stop reason of an unfinished reply: sent back unchanged, the model continues it."""


class InProcessEngine:
    """Runs attempts on the calling loop."""

    async def run(
        self,
        work: AgentWork,
        *,
        provider: Provider,
        tools: Mapping[str, Tool],
        services: RunServices,
    ) -> AgentOutcome:
        messages = work.request.messages
        turns = 0
        failing: FailingCalls | None = None
        while True:
            said = text_so_far(messages)  # of a paused reply, which this call continues
            request = work.request
            if messages is not request.messages:
                request = replace(request, messages=messages)
            try:
                if news := await _news(work, request, services):
                    messages = with_texts(messages, news)
                    request = replace(request, messages=messages)
                reply, link = await take_turn(work, request, provider, services)
            except WordsCame:
                continue
            except TurnFailed as failed:
                return AgentOutcome(
                    messages,
                    error=failed.error,
                    may_retry=failed.may_retry,
                    turns_used=turns,
                    link=failed.link,
                )
            except BudgetExceeded as empty:
                return AgentOutcome(
                    messages, text=said, exhausted=str(empty), turns_used=turns, link=empty.link
                )
            turns += 1
            if link != work.link:
                work = replace(work, link=link)
            message = _sendable(reply)
            messages = (*messages, message)
            outcome = AgentOutcome(
                messages,
                text=if_seen(said + reply.text),
                stop_reason=reply.stop_reason,
                exhausted=reply.exhausted,
                turns_used=turns,
                link=link,
            )
            if outcome.exhausted:
                return outcome
            orders = calls_in(message)
            if request.output_schema is not None and orders:
                return replace(outcome, final_answer=_final_answer(orders))
            # An empty paused reply would be sent back unchanged for ever, so it ends the turns.
            if not (orders or (reply.stop_reason == PAUSED and message.content)):
                return outcome
            if orders:
                # Published before the tools run: the agent may be cancelled during one of them.
                if (reading := read_reply(outcome.text)).has_block:
                    _publish_ignored(work.agent_id, reading, services)
                takes = _takes(provider, work.model)
                results = await _run_tools(work.agent_id, orders, tools, services, takes)
                if reading.has_block:
                    results = (*results, TextBlock(BLOCK_BESIDE_TOOLS))
                    outcome = replace(outcome, text=reading.text_before)
                failing = failing or FailingCalls(messages)
                error = failing.count(orders, results)
                if failing.is_repeated:
                    results = (*results, TextBlock(SAME_CALL_AGAIN))
                messages = (*messages, Message(Role.USER, results))
                if error is not None:
                    return replace(outcome, messages=messages, error=error)
            if turns >= work.turns_left:
                return replace(outcome, messages=messages, stop_reason=NO_TURNS_LEFT)


def _sendable(reply: ReplySoFar) -> Message:
    """The reply for the conversation."""
    if reply.stopped is None:
        return assistant_message(reply.text)
    return sendable_reply(reply.stopped.message, reply.stopped.reason)


def _final_answer(orders: Sequence[ToolUseBlock]) -> ToolUseBlock | None:
    """The tool call that holds the answer; `None` if there is none. No other call runs."""
    return next((order for order in orders if order.name == FINAL_ANSWER), None)


async def _news(
    work: AgentWork, request: CompletionRequest, services: RunServices
) -> Sequence[str]:
    """Texts that arrived for the agent since its last call."""
    if request.messages[-1].role != Role.USER:  # the model continues a paused reply
        return ()
    try:
        return await services.take_news(work, request)
    except InternalError as bug:
        failed = TurnFailed(bug, may_retry=True)
        failed.link = work.link
        raise failed from bug


def _publish_ignored(agent_id: str, reading: SpawnReading, services: RunServices) -> None:
    reason = "a reply that calls tools cannot start sub-agents by a block"
    tasks = reading.tasks
    numbers = services.take_numbers(len(tasks))
    services.publish(SpawnIgnored(agent_id=agent_id, reason=reason, tasks=tasks, numbers=numbers))


def _takes(provider: Provider, model: str) -> Callable[[str], bool]:
    """Returns whether a model takes files of a media type; for a chain, whether all models do."""

    def takes(media_type: str) -> bool:
        try:
            return all(
                supports_media(link.provider, bare_model(link.model), media_type)
                for link in links_of(provider, model)
            )
        except Exception:  # a provider is foreign code; text instead of a file is always safe
            return False

    return takes


async def _run_tools(
    agent_id: str,
    orders: Sequence[ToolUseBlock],
    tools: Mapping[str, Tool],
    services: RunServices,
    takes: Callable[[str], bool],
) -> tuple[Block, ...]:
    """Run one turn's tool calls in parallel.

    Returns the results in the order of the calls, followed by their files.
    """
    # `run_tool` raises no tool's error: that would make the group cancel the other calls.
    async with asyncio.TaskGroup() as group:
        running = [
            group.create_task(run_tool(agent_id, order, tools, services, takes)) for order in orders
        ]
    return blocks_of([task.result() for task in running])
