"""One call to a model, from its budget lease to the lease's settlement.

Whatever ends a call (its end mark, an error, the deadline, the budget, a cancel), its stream is
closed, its lease is settled, and `ModelCallFinished` is published with the usage.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING

from agentnb.core.budget import as_json
from agentnb.core.cancel import is_own_cancellation
from agentnb.core.clock import TimeLimit
from agentnb.core.errors import CallTimedOut, Refused, StreamBroken, in_words
from agentnb.core.events import ModelCallFinished, ModelCallStarted, TextRow
from agentnb.core.protocols import (
    AgentWork,
    CallLease,
    Provider,
    RunServices,
    closing,
    supports_ready,
)
from agentnb.core.records import CANCELLED, ErrorRecord, error_record
from agentnb.core.text import if_seen, literal, one_line, short_reason
from agentnb.core.tool_results import calls_in
from agentnb.core.types import (
    MOST,
    CompletionRequest,
    Message,
    Stopped,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
    ToolUse,
    Usage,
    assistant_message,
    text_so_far,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(slots=True)
class ReplySoFar:
    """What one call has received so far."""

    pieces: list[TextRow] = field(default_factory=list)
    usage: Usage | None = None
    stopped: Stopped | None = None
    halted: str | None = None
    limited_by: str | None = None
    """The name of the budget that lowered `max_tokens`; `None` if none did."""
    metered_ahead: int = 0
    """Characters of tool calls metered as pieces, before the whole call arrived."""
    note: str | None = None
    """What a person should know of a complete reply, such as an error in closing its stream."""

    @property
    def text(self) -> str:
        return "".join([text for _, _, text in self.pieces])

    @property
    def message(self) -> Message | None:
        """The reply: complete, or its text so far; `None` if nothing arrived."""
        if self.stopped is not None:
            return self.stopped.message
        return assistant_message(self.text) if self.pieces else None

    @property
    def stop_reason(self) -> str | None:
        return self.stopped.reason if self.stopped else None

    @property
    def exhausted(self) -> str | None:
        """Why the budget ended the reply; `None` if it did not."""
        if self.halted is not None:
            return self.halted
        if self.stop_reason == "max_tokens" and self.limited_by is not None:
            return f"{self.limited_by} left no room for the rest of the answer"
        return None


async def make_call(
    work: AgentWork,
    request: CompletionRequest,
    provider: Provider,
    services: RunServices,
    reply: ReplySoFar,
    *,
    attempt: int,
) -> None:
    """Make one call, without retries.

    Args:
        work: The agent's work that the call belongs to.
        request: The request; the budget may lower its `max_tokens`.
        provider: Answers the call.
        services: The agent's run services.
        reply: Filled while the call runs, so it holds what arrived even if the call fails.
        attempt: The number of this call among the attempts of one turn, from 1.

    Raises:
        LlmError: The call failed.
        BudgetExceeded: The budget has no room for it, so it was not made.
        WordsCame: A note for the agent arrived while the call waited, so it was not made.
    """
    finished: ModelCallFinished | None = None
    error: ErrorRecord | None = CANCELLED
    try:
        async with services.lease(work, request) as lease:
            reply.limited_by = lease.limited_by
            started_at_s = services.clock.now()
            services.publish(
                ModelCallStarted(
                    agent_id=work.agent_id,
                    request=lease.request,
                    model=work.model,
                    attempt=attempt,
                    is_synthesis=work.is_synthesis,
                )
            )
            services.reply_begins(reply.pieces)
            try:
                await services.commit()  # a call goes out only once its intent is stored
                answerer = lease.answered_by(provider)
                await _stream(work.agent_id, answerer, lease, services, reply)
                error = None
            except BaseException as failure:
                if not is_own_cancellation(failure):
                    error = error_record(failure)
                raise
            finally:
                usage, estimate_error = lease.settle(
                    reply.usage, is_complete=reply.stopped is not None
                )
                took_ms = lease.took_ms
                if took_ms is None:
                    took_ms = round((services.clock.now() - started_at_s) * 1000)
                finished = ModelCallFinished(
                    agent_id=work.agent_id,
                    model=work.model,
                    usage=usage,
                    duration_ms=took_ms,
                    stop_reason=reply.stop_reason,
                    error=reply.note if error is None else error["message"],
                    message=reply.message,
                    estimate_error=estimate_error,
                )
    finally:
        # After the lease's block: the gate is free for other calls during the commit.
        if finished is not None:
            await services.call_ended(finished, error)


async def _stream(
    agent_id: str, provider: Provider, lease: CallLease, services: RunServices, reply: ReplySoFar
) -> None:
    """Read one stream until its end mark, the deadline, or a halt by the budget.

    A reply with its end mark is complete, whatever fails while its stream is closed. Without one
    the call fails, unless the budget halted it: then the text so far is kept, as exhausted.
    """
    try:
        with TimeLimit(services.clock) as limit:
            lease.when_halted(limit.expire)
            if supports_ready(provider):
                await provider.ready()
            # The deadline starts only here: loading the provider's SDK does not count.
            limit.start(services.call_timeout_s)
            async with closing(provider.stream(lease.request)) as stream:
                if await _read(stream, agent_id, lease, services, reply):
                    # A halt must not interrupt the closing of the stream: its connection would
                    # stay open.
                    limit.disarm()
    except TimeoutError:
        if not limit.has_expired:
            raise  # the provider's own
        if reply.stopped is not None:  # the deadline passed while the stream was closed
            reply.note = "the reply is whole, but its stream was not closed in time"
        elif lease.halted is None:
            raise CallTimedOut(
                f"The model's turn did not end within {services.call_timeout_s:g} s: give it more "
                "time by a larger `call_timeout_s`."
            ) from None
    except BaseException as error:
        if reply.stopped is None or is_own_cancellation(error):
            raise
        why = in_words(error)
        reply.note = f"the reply is whole, but its stream could not be closed: {why}"
    if reply.stopped is None and lease.halted is not None:
        reply.halted = lease.halted
    elif reply.stopped is None:
        raise StreamBroken(
            "The model's reply was cut off in transit, before its end mark: try again."
        )
    elif reply.stopped.reason == "refusal":
        raise Refused(
            reply.note
            or "The model declined to answer"
            + (f": {one_line(reply.text).rstrip('.')}" if reply.text else "")
            + ". Rephrase the task, or use another model."
        )
    elif not reply.pieces or not (if_seen(reply.pieces[0][2]) or if_seen(reply.text)):
        _note_empty(lease.request, reply, reply.stopped)


def _note_empty(request: CompletionRequest, reply: ReplySoFar, stopped: Stopped) -> None:
    """Note that a reply without text is no answer, unless it has calls or is a part of another."""
    is_part = stopped.reason == "pause_turn" or text_so_far(request.messages)
    if is_part or calls_in(stopped.message):
        return
    is_cut = stopped.reason == "max_tokens"
    limit = f" within its limit of {request.max_tokens:,} tokens" if is_cut else ""
    note = f"The reply held no text{limit}."
    if note not in (reply.note or ""):  # a recorded reply brings it along
        reply.note = " ".join(filter(None, (reply.note, note)))


async def _read(
    stream: AsyncIterator[StreamEvent],
    agent_id: str,
    lease: CallLease,
    services: RunServices,
    reply: ReplySoFar,
) -> bool:
    """Read events into `reply`. Returns false if the stream ended without an end mark or a halt."""
    keep, say, meter = reply.pieces.append, services.publish_text, lease.output_grew
    has_begun = False
    async for event in stream:
        if not has_begun:
            has_begun = True
            lease.reply_started()
            services.reply_started()
        # The fast path for nearly all events; `_take` handles every kind, this one included.
        if type(event) is TextDelta and type(text := event.text) is str:
            if text:
                keep(say(agent_id, text))
                meter(text)
        else:
            _take(event, agent_id, lease, services, reply)
            if reply.stopped is not None:
                return True
        if lease.halted is not None:
            return True
    return False


def _take(
    event: StreamEvent, agent_id: str, lease: CallLease, services: RunServices, reply: ReplySoFar
) -> None:
    """Read one event of any kind into `reply`, and meter its output."""
    _check_shape(event)
    match event:
        case TextDelta(text):
            if text:
                reply.pieces.append(services.publish_text(agent_id, text))
                lease.output_grew(text)
        case ThinkingDelta(text):
            if isinstance(event, ToolInputDelta):
                reply.metered_ahead += len(text)
            lease.output_grew(text)
        case ToolUse(name=name, input=arguments):
            services.note_tool_call(event)
            whole = name + as_json(arguments)
            # Meter only what its `ToolInputDelta` pieces did not: a provider may send none.
            ahead = min(reply.metered_ahead, len(whole))
            reply.metered_ahead -= ahead
            lease.output_grew(whole[ahead:])
        case Usage():
            if _are_counts(event):  # else ignored: the estimate stays
                reply.usage = event
                lease.input_counted(event)
        case Stopped():
            reply.stopped = replace(event, reason=short_reason(event.reason))
            reply.note = event.note or None


def _check_shape(event: StreamEvent) -> None:
    """Raise `TypeError` for a field of the wrong type, before it is stored."""
    match event:
        case TextDelta(text) | ThinkingDelta(text) if not isinstance(text, str):
            raise TypeError(
                f"the text of a {type(event).__name__} must be a str, not {literal(text)}"
            )
        case Stopped(message=message) if not isinstance(message, Message):
            raise TypeError(f"`Stopped.message` must be a Message, not {literal(message)}")


def _are_counts(usage: Usage) -> bool:
    """Whether every field is a count, as the budget needs."""
    for count in _counts(usage):
        if not isinstance(count, int) or not 0 <= count <= MOST:
            return False
    return True


_counts = attrgetter(*(count.name for count in fields(Usage)))
