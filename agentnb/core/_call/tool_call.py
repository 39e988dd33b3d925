"""One tool call, from a model's order to the result for the model.

Whatever a tool does (raises, hangs, returns the wrong type or far too much) becomes a result for
the model; only the task's own cancellation leaves `run_tool`. `ToolCallFinished` is the last event
of a call, and nothing of the call runs after it, except a thread that ignores its cancellation.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from agentnb.core.arguments import BadArguments, read_arguments
from agentnb.core.cancel import is_own_cancellation
from agentnb.core.clock import TimeLimit, TimerHandle
from agentnb.core.durable import ToolCallId
from agentnb.core.errors import ToolError
from agentnb.core.events import TOOL_CANCELLED, ToolCallReported
from agentnb.core.media import taken
from agentnb.core.protocols import (
    RECORDED,
    RUN,
    Jobs,
    Memory,
    Ruling,
    RunServices,
    Tool,
    has_effects,
    on_replay,
    supports_again,
    supports_marks,
    supports_timeout,
)
from agentnb.core.reading import tool_call_finished, tool_call_started
from agentnb.core.records import FINISHED, STARTED, ToolCallRecord
from agentnb.core.shown import listed
from agentnb.core.text import literal, one_line, sendable, visible
from agentnb.core.threads import BlockingCall, ThreadCall
from agentnb.core.tool_results import ToolResult
from agentnb.core.types import MALFORMED_INPUT, MediaBlock, ToolOutput, ToolUseBlock

T = TypeVar("T")

THREAD_PATIENCE_S = 2.0
"""Seconds that a thread has to end after its call was cancelled."""
UNKNOWN_OUTCOME = (
    "The process ended while this tool was at work: nobody knows whether it did what it was asked "
    "for. Look before you call it again."
)
REPORT_PAUSE_S = 0.1
"""Minimum seconds between two published reports of one call."""


class _Outcome(NamedTuple):
    """The outcome of a call."""

    text: str
    is_error: bool = False
    media: tuple[MediaBlock, ...] = ()


async def run_tool(
    agent_id: str,
    order: ToolUseBlock,
    tools: Mapping[str, Tool],
    services: RunServices,
    takes: Callable[[str], bool] = lambda _: True,
) -> ToolResult:
    """Run one call once it may run, and publish its start and its end.

    Args:
        agent_id: The agent's id.
        order: The call as the model asked for it.
        tools: The agent's tools, by name.
        services: The agent's run services.
        takes: Whether the agent's model takes files of a media type.
    """
    tool = tools.get(order.name)
    asked = ToolCallRecord(
        agent_id,
        order.id,
        order.name,
        order.input,
        path=services.path,
        # Before the call waits for anything: numbers are in the order of the model's reply.
        number=services.next_tool_call(),
        effects=tool is not None and has_effects(tool),
        status=STARTED,
    )
    ruling = await services.rule(asked, None if _complaint(order.input) else tool)
    await services.may_begin(asked.number, was_asked=ruling.was_asked)
    started_at_s = services.clock.now()
    event = tool_call_started(ruling.call)
    recorded = ruling.recorded
    place = services.next_tool_start()
    if recorded is not None:
        services.tool_is_recorded(place)
    record = replace(ruling.call, at_s=services.publish(event))
    if event.input_length is not None:
        services.keep_whole(record, place)
    context = CallContext(agent_id, order, services, record.number)
    outcome = _Outcome(TOOL_CANCELLED, True)
    try:
        if recorded is not None:
            outcome = await _answered(record, ruling, recorded, tool, context, services)
        else:
            outcome = await _outcome(record, ruling, tool, tools, context, services)
    finally:
        context.end()
        duration_ms = round((services.clock.now() - started_at_s) * 1000)
        if recorded is not None and recorded.duration_ms is not None:
            duration_ms = recorded.duration_ms
        record = replace(
            record,
            result=sendable(outcome.text),
            is_error=outcome.is_error,
            media=outcome.media,
            unseen=_unseen(outcome.media, recorded, takes),
            duration_ms=duration_ms,
            status=FINISHED,
            ended=services.next_tool_end(),
        )
        finished = tool_call_finished(record)
        if finished.result_length is not None or event.input_length is not None or record.media:
            services.keep_whole(record, place)
        await services.tool_ended(record, finished)
    return ToolResult(record, ruling.note)


def _unseen(
    media: tuple[MediaBlock, ...], recorded: ToolCallRecord | None, takes: Callable[[str], bool]
) -> tuple[int, ...]:
    """Places, from 1, of a call's files that the model does not accept.

    For a recorded result they come from the record: its model may not be available here, and the
    key of the next call depends on them.
    """
    if recorded is not None and media == recorded.media:
        return recorded.unseen
    return tuple([n for n, block in enumerate(media, 1) if not takes(block.media_type)])


async def _answered(
    record: ToolCallRecord,
    ruling: Ruling,
    recorded: ToolCallRecord,
    tool: Tool | None,
    context: CallContext,
    services: RunServices,
) -> _Outcome:
    """The result of a call that its record answers; repeats its changes in the run."""
    replayed = on_replay(tool) if services.is_done_again else RECORDED
    if tool is None and record.name in services.withheld:
        services.withheld[record.name](record.input)
    elif tool is None or not ruling.may_repeat:
        pass  # a tool is not called again unless this very call was approved
    elif supports_again(tool):
        now = await _result_of(tool.again(recorded.input, context))
        if services.has_changed_below:  # its result is about agents that differ from the record
            await services.may_call(record)
            return now
    elif replayed != RECORDED:
        now = await _called(record, tool, context)
        if replayed == RUN and now != (recorded.result, recorded.is_error, recorded.media):
            other = replace(record, result=now.text, is_error=now.is_error, media=now.media)
            await services.may_call(other, was=recorded)
            return now
    await services.turn_to_end(record.number, recorded)
    return _Outcome(recorded.result, recorded.is_error, recorded.media)


async def _outcome(
    record: ToolCallRecord,
    ruling: Ruling,
    tool: Tool | None,
    tools: Mapping[str, Tool],
    context: CallContext,
    services: RunServices,
) -> _Outcome:
    """The result of a call that no record answers."""
    name = record.name
    if tool is None and name in services.withheld:
        return _Outcome(services.withheld[name](record.input), True)
    if tool is None and services.is_unknown(record):  # it began when the tool still existed
        await services.may_call(record)
        return _Outcome(UNKNOWN_OUTCOME, True)
    if tool is None:
        known = listed(map(repr, sorted(tools)))
        return _Outcome(f"There is no tool {name!r} (known: {known}).", True)
    if complaint := _complaint(record.input):
        return _Outcome(complaint, True)
    await services.may_call(record)
    if ruling.refusal:
        return _Outcome(ruling.refusal, True)
    marking = tool if supports_marks(tool) else None
    if marking is not None and (mark := services.mark_of(record)) is not None:
        return await _result_of(marking.marked_result(mark, record.input, context))
    # Without a mark it changed nothing: a change and its mark are one transaction.
    if record.effects and marking is None and services.is_unknown(record):
        return _Outcome(UNKNOWN_OUTCOME, True)
    if record.effects:
        services.intend(record)
        await services.commit()
    if why := services.stopped_by():
        return _Outcome(f"The tool {name!r} was not run: {why}.", True)
    return await _called(record, tool, context)


async def _called(record: ToolCallRecord, tool: Tool, context: CallContext) -> _Outcome:
    """Call the tool, within its time limit."""
    timeout_s = tool.timeout_s if supports_timeout(tool) else None

    async def in_time() -> object:
        return await context.in_time(tool.call(record.input, context), timeout_s)

    return await _result_of(in_time())


async def _result_of(work: Awaitable[object]) -> _Outcome:
    """Await a tool's own code. What it raises, or returns of a wrong type, is an error result."""
    try:
        value = await work
    except BaseException as error:  # a tool's body is foreign code: any error is a result
        if is_own_cancellation(error):
            raise
        return _Outcome(_in_words(error), True)
    if isinstance(value, str):
        return _Outcome(value)
    if not isinstance(value, ToolOutput) or not isinstance(value.text, str):
        kind = type(value.text if isinstance(value, ToolOutput) else value).__name__
        return _Outcome(f"The tool returned {kind} where text was expected.", True)
    if wrong := next((each for each in value.media if not _is_file(each)), None):
        kind = type(wrong).__name__
        return _Outcome(f"The tool returned {kind} where a `MediaBlock` was expected.", True)
    output = taken(value)
    return _Outcome(output.text, media=output.media)


def _is_file(value: object) -> bool:
    if type(value) is not MediaBlock:
        return False
    return all(isinstance(each, str) for each in (value.media_type, value.data, value.name))


class CallContext:
    """Implements `agentnb.core.protocols.ToolContext` for a tool that runs in this process."""

    def __init__(
        self, agent_id: str, order: ToolUseBlock, services: RunServices, number: int
    ) -> None:
        self._agent_id = agent_id
        self._number = number
        self._order = order
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._is_stopped = self._has_ended = False
        self._limit: TimeLimit | None = None
        self._report: str | None = None
        """The newest unpublished report."""
        self._will_publish = False
        self._published_at_s = -REPORT_PAUSE_S
        self._timer: TimerHandle | None = None

    def __repr__(self) -> str:
        return f"ToolContext({literal(self._order.name)}, agent {visible(self.path, 60)})"

    @property
    def agent_id(self) -> str:
        return self._agent_id

    @property
    def path(self) -> str:
        return self._services.path

    @property
    def run_id(self) -> str:
        return self._services.run_id

    @property
    def call_id(self) -> ToolCallId:
        """Identifies the call for our own tools, which mark their changes in the store with it."""
        return ToolCallId(self.run_id, self.path, self._number)

    @property
    def workspace(self) -> dict[str, Any]:
        return self._services.workspace

    @property
    def notes(self) -> dict[str, str]:
        return self._services.notes

    @property
    def cancelled(self) -> bool:
        return self._is_stopped or self._is_too_slow

    @property
    def _is_too_slow(self) -> bool:
        return self._limit is not None and self._limit.has_expired

    @property
    def jobs(self) -> Jobs | None:
        return self._services.jobs

    @property
    def memory(self) -> Memory | None:
        return self._services.memory

    # -- progress reports -------------------------------------------------------------------------

    def report(self, text: str) -> None:
        line = one_line(str(text))
        with self._lock:
            self._report = line
            if self._will_publish or self._has_ended:
                return
            self._will_publish = True
        with suppress(RuntimeError):  # the loop is closed: the run is over
            self._loop.call_soon_threadsafe(self._publish_soon)

    def _publish_soon(self) -> None:
        """On the run's loop: publish the newest report, `REPORT_PAUSE_S` after the last one."""
        if self._has_ended:
            return
        wait_s = self._published_at_s + REPORT_PAUSE_S - self._services.clock.now()
        if wait_s > 0:
            self._timer = self._services.clock.call_later(wait_s, self._publish_report)
        else:
            self._publish_report()

    def _publish_report(self) -> None:
        with self._lock:
            report, self._report, self._will_publish = self._report, None, False
        self._timer = None
        self._published_at_s = self._services.clock.now()
        if report is not None:
            order = self._order
            self._services.publish(
                ToolCallReported(
                    agent_id=self._agent_id,
                    tool_use_id=order.id,
                    name=order.name,
                    text=sendable(report),
                )
            )

    def end(self) -> None:
        """The call is over: publish the last report, and ignore further ones."""
        if self._timer is not None:
            self._timer.cancel()
        if self._report is not None:
            self._publish_report()
        self._is_stopped = self._has_ended = True

    # -- time limits ------------------------------------------------------------------------------

    async def in_time(self, call: Coroutine[Any, Any, T], timeout_s: float | None) -> T:
        """Await `call` within the tool's time limit and the run's.

        Args:
            call: The tool's call.
            timeout_s: The tool's own limit in seconds; `None` for none.

        Raises:
            ToolError: A limit was reached, also if the call then returned or raised.
        """
        try:
            with TimeLimit(self._services.clock, timeout_s) as limit:
                self._limit = limit
                with self._services.ending_with_run(limit):
                    result = await call
        except BaseException as error:
            # The limit's own cancellation is a `TimeoutError` by now, or whatever the tool turned
            # it into. A `CancelledError` of this task has another source, and passes.
            if not limit.has_expired or is_own_cancellation(error):
                raise
            raise ToolError(self._why_stopped(timeout_s)) from error
        if limit.has_expired:
            raise ToolError(self._why_stopped(timeout_s))
        return result

    def _why_stopped(self, timeout_s: float | None) -> str:
        why = self._services.stopped_by() or f"it did not end within {timeout_s:g} s"
        return f"The tool {self._order.name!r} was stopped: {why}."

    async def on_thread(self, function: Callable[[], T]) -> T:
        call = ThreadCall(function)
        call.start()
        try:
            await call.wait()
        except asyncio.CancelledError:
            await self.leave(call)
            raise
        return call.result()

    async def leave(self, call: BlockingCall) -> None:
        """Wait `THREAD_PATIENCE_S` for a cancelled call; then abandon it."""
        self._is_stopped = True
        try:
            if not self._is_too_slow:  # past its time limit, a call gets no more patience
                with suppress(TimeoutError):
                    with TimeLimit(self._services.clock, THREAD_PATIENCE_S):
                        await call.wait()
        finally:  # also when the task is cancelled a second time
            call.abandon(None if call.has_ended else self._services.abandon_tool())


# -- events and results ---------------------------------------------------------------------------


def _complaint(given: Any) -> str:
    """The error for a model whose arguments are not a JSON object; empty if they are."""
    if not isinstance(given, Mapping) or list(given) != [MALFORMED_INPUT]:
        return ""
    raw = str(given[MALFORMED_INPUT])
    return f"{_flaw(raw)}: {one_line(raw)}\nCall it again with arguments as one JSON object."


def _flaw(raw: str) -> str:
    try:
        read_arguments(raw)
    except BadArguments as flaw:
        return str(flaw)
    return "The arguments of the call were not taken"


def _in_words(error: BaseException) -> str:
    """An error for the model: its message, or its type's name if it has none."""
    try:
        text = error.for_model if isinstance(error, ToolError) else str(error)
    except BaseException as worse:  # its `__str__` is foreign code, too
        if is_own_cancellation(worse):
            raise
        text = ""
    if isinstance(error, ToolError) and text:
        return text
    name = type(error).__name__
    return f"{name}: {text}" if text else name
