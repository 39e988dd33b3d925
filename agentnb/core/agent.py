"""One agent's turns: stream a reply, run the tools it asked for, stream again until it stops.

`InProcessEngine.run` is one attempt as one awaitable: plain values in, a plain value out, facts
through the port. It knows nothing of trees; whether a failed turn is tried again, and what a
finished text means, is the orchestrator's to decide.

Two layers of failure meet here. The transport's: a call that failed before any text was shown
is made again, up to four times. And the turn's: whatever else went wrong ends this attempt,
with everything that was finished before it kept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, cast

from agentnb.core.cancel import BUGS, is_being_cancelled
from agentnb.core.errors import (
    CallTimedOut,
    InternalError,
    LlmError,
    OrchestratorError,
    RateLimited,
    Refused,
    StreamBroken,
)
from agentnb.core.events import (
    AgentTextDelta,
    AgentWaiting,
    ModelCallFinished,
    ModelCallStarted,
    ToolCallFinished,
    ToolCallStarted,
)
from agentnb.core.meter import PotEmpty
from agentnb.core.protocols import AgentOutcome, AgentWork, CallLease, Provider, RunPort, Tool
from agentnb.core.types import (
    Block,
    CompletionRequest,
    Message,
    Role,
    Stopped,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolResultBlock,
    ToolUse,
    ToolUseBlock,
    Usage,
    assistant_message,
    one_line,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

TRANSPORT_ATTEMPTS = 4
LONGEST_WAIT_S = 60.0
"""A provider that asks for a longer wait fails the call instead."""

CUT_REASONS = frozenset({"max_tokens", "model_context_window_exceeded", "max_turns"})
"""Ends at which an agent had more to say."""


@dataclass(slots=True)
class _Reply:
    """What has come of one call so far."""

    pieces: list[str] = field(default_factory=list)
    usage: Usage | None = None
    stopped: Stopped | None = None
    halted: str | None = None
    max_tokens_from_budget: bool = False

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def exhausted(self) -> str | None:
        if self.halted is not None:
            return self.halted
        at_limit = self.stopped is not None and self.stopped.reason == "max_tokens"
        if at_limit and self.max_tokens_from_budget:
            return "the budget left no room for the rest of the answer"
        return None


class _TurnFailed(Exception):
    def __init__(self, error: OrchestratorError, *, may_retry: bool) -> None:
        self.error, self.may_retry = error, may_retry


class InProcessEngine:
    """Runs attempts on the loop that it is called on."""

    async def run(
        self, work: AgentWork, *, provider: Provider, tools: Mapping[str, Tool], port: RunPort
    ) -> AgentOutcome:
        messages = work.request.messages
        turns = 0
        while True:
            request = replace(work.request, messages=messages)
            try:
                reply = await _turn(work, request, provider, port)
            except _TurnFailed as failed:
                return AgentOutcome(
                    messages, error=failed.error, may_retry=failed.may_retry, turns_used=turns
                )
            except PotEmpty as empty:
                return AgentOutcome(messages, exhausted=str(empty), turns_used=turns)
            turns += 1
            message = _sendable(reply)
            messages = (*messages, message)
            outcome = AgentOutcome(
                messages,
                text=reply.text,
                stop_reason=reply.stopped.reason if reply.stopped else None,
                exhausted=reply.exhausted,
                turns_used=turns,
            )
            orders = [block for block in message.content if isinstance(block, ToolUseBlock)]
            if not orders or outcome.exhausted:
                return outcome
            results = await _run_tools(work.agent_id, orders, tools, port)
            messages = (*messages, Message(Role.USER, results))
            if turns >= work.turns_left:
                return replace(outcome, messages=messages, stop_reason="max_turns")


# -- one turn ---------------------------------------------------------------------------------


async def _turn(
    work: AgentWork, request: CompletionRequest, provider: Provider, port: RunPort
) -> _Reply:
    """One reply, with as many transport attempts as it takes and may take."""
    for attempt in range(1, TRANSPORT_ATTEMPTS + 1):
        reply = _Reply()
        try:
            await _call(work, request, provider, port, reply, attempt)
            return reply
        except LlmError as error:
            if reply.pieces or not error.retryable:
                raise _TurnFailed(error, may_retry=not error.permanent) from error
            if attempt == TRANSPORT_ATTEMPTS:
                raise _TurnFailed(error, may_retry=False) from error
            delay_s = port.retry_delay_s(attempt)
            if error.retry_after_s is not None:
                if error.retry_after_s > LONGEST_WAIT_S:
                    raise _TurnFailed(_too_long(error), may_retry=False) from error
                delay_s = max(delay_s, error.retry_after_s)
            port.publish(
                AgentWaiting(
                    agent_id=work.agent_id,
                    reason=f"to try again after: {one_line(str(error))}",
                    wait_s=delay_s,
                    attempt=attempt + 1,
                )
            )
            if isinstance(error, RateLimited):
                port.hold_back(work.model, delay_s)
            await port.clock.sleep(delay_s)
        except PotEmpty:
            raise
        except BUGS as bug:
            if isinstance(bug, asyncio.CancelledError) and is_being_cancelled():
                raise
            wrapped = InternalError.wrapping(bug, where=f"the provider {provider.name!r}")
            raise _TurnFailed(wrapped, may_retry=True) from bug
    raise AssertionError("the last attempt returns or raises")


def _too_long(error: LlmError) -> LlmError:
    told = copy(error)
    told.retryable = False
    told.args = (
        f"{str(error).rstrip('.')}. The provider asks to wait {error.retry_after_s:,.0f} s, "
        f"which is longer than the {LONGEST_WAIT_S:.0f} s that a run waits. Run it again then.",
    )
    return told


async def _call(
    work: AgentWork,
    request: CompletionRequest,
    provider: Provider,
    port: RunPort,
    reply: _Reply,
    attempt: int,
) -> None:
    """One call, from its lease to its settled books; what comes is written into `reply`."""
    async with port.lease(work, request) as lease:
        reply.max_tokens_from_budget = lease.max_tokens_from_budget
        started_at_s = port.clock.now()
        port.publish(
            ModelCallStarted(
                agent_id=work.agent_id,
                request=lease.request,
                model=work.model,
                attempt=attempt,
                is_synthesis=work.is_synthesis,
            )
        )
        error: str | None = "cancelled"
        try:
            await _stream(work.agent_id, provider, lease, port, reply)
            error = None
        except asyncio.CancelledError:
            raise
        except BUGS as failure:
            error = one_line(str(failure)) or type(failure).__name__
            raise
        finally:
            usage, estimate_error = lease.settle(reply.usage, is_complete=reply.stopped is not None)
            await port.publish_kept(
                ModelCallFinished(
                    agent_id=work.agent_id,
                    model=work.model,
                    usage=usage,
                    duration_ms=round((port.clock.now() - started_at_s) * 1000),
                    stop_reason=reply.stopped.reason if reply.stopped else None,
                    error=error,
                    estimate_error=estimate_error,
                )
            )


async def _stream(
    agent_id: str, provider: Provider, lease: CallLease, port: RunPort, reply: _Reply
) -> None:
    """Read one stream to its end mark, to the budget's end, or to the deadline."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as deadline:

            def end_now() -> None:
                if not deadline.expired():
                    deadline.reschedule(loop.time())

            lease.on_halt = end_now
            timer = port.clock.call_later(port.call_timeout_s, end_now)
            try:
                async with _closing(provider.stream(lease.request)) as stream:
                    async for event in stream:
                        _take(event, agent_id, lease, port, reply)
                        if reply.stopped is not None or lease.halted is not None:
                            break
            finally:
                timer.cancel()
                lease.on_halt = None
    except TimeoutError:
        if not deadline.expired():
            raise  # the provider's own
        if lease.halted is None:
            raise CallTimedOut(
                f"The model's turn did not end within {port.call_timeout_s:g} s. "
                "A larger `call_timeout_s` gives it more time."
            ) from None
    if lease.halted is not None:
        reply.halted = lease.halted
    elif reply.stopped is None:
        raise StreamBroken("The model's reply ended without its end mark: it was cut on the way.")
    elif reply.stopped.reason == "refusal":
        raise Refused(
            "The model declined to answer"
            + (f": {one_line(reply.text).rstrip('.')}" if reply.text else "")
            + ". Put the task in other words, or ask another model."
        )


def _take(
    event: StreamEvent, agent_id: str, lease: CallLease, port: RunPort, reply: _Reply
) -> None:
    """File one piece of a reply."""
    lease.reply_started()
    match event:
        case TextDelta(text):
            if text:
                reply.pieces.append(text)
                port.publish(AgentTextDelta(agent_id=agent_id, text=text))
                lease.output_grew(text)
        case ThinkingDelta(text):
            lease.output_grew(text)
        case ToolUse(name=name, input=arguments):
            lease.output_grew(name + json.dumps(dict(arguments), default=str))
        case Usage():
            reply.usage = _checked(event)
        case Stopped():
            reply.stopped = event


def _checked(usage: Usage) -> Usage:
    """The count, if it is one: the books take nothing else."""
    counts = (getattr(usage, field.name) for field in fields(Usage))
    if not all(isinstance(count, int) and count >= 0 for count in counts):
        raise ValueError(f"not a count of tokens: {usage!r}")
    return usage


@asynccontextmanager
async def _closing(stream: AsyncIterator[StreamEvent]) -> AsyncIterator[AsyncIterator[StreamEvent]]:
    """Close a stream that was left early, where it can be closed."""
    if hasattr(stream, "aclose"):
        async with aclosing(cast("AsyncGenerator[StreamEvent]", stream)):
            yield stream
    else:
        yield stream


def _sendable(reply: _Reply) -> Message:
    """The reply as it goes back into the conversation: no tool call in it without an answer."""
    if reply.stopped is None:
        return assistant_message(reply.text)
    message = reply.stopped.message
    if reply.stopped.reason != "tool_use":
        kept = tuple(b for b in message.content if not isinstance(b, ToolUseBlock))
        return replace(message, content=kept)
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
    text, is_error = await _tool_text(order.name, order.input, tools)
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
    except BUGS as error:  # a tool's body is not ours: what it raises is told to the model
        if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
            raise
        return f"{type(error).__name__}: {error}", True
    if not isinstance(text, str):
        return f"The tool returned {type(text).__name__} where text was expected.", True
    return text, False
