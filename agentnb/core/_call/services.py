"""Run services for one agent: its events, its leases on the budget, its waits.

A call waits in this order: for the end of a person's pause, for the answer to the budget's
question, for the gate, for room in the budget. It does not hold the gate during the other waits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from agentnb.core._budget.lease import Lease
from agentnb.core._budget.meter import BudgetExceeded, Meter, least_amount
from agentnb.core._call.approval import Approvals
from agentnb.core._call.asking import asked_of
from agentnb.core._call.memory import AgentMemory
from agentnb.core._call.news import AgentNews
from agentnb.core._call.recorded import RecordedCall
from agentnb.core._call.tool_order import BEGINNING, END, WAIT, ToolOrder
from agentnb.core.budget import InputEstimate, estimate_input_tokens
from agentnb.core.cancel import foreign
from agentnb.core.clock import TimeLimit
from agentnb.core.events import (
    AgentWaiting,
    Event,
    ModelCallFinished,
    ModelCallStarted,
    SpawnIgnored,
    TextRow,
    ToolCallFinished,
    ToolCallStarted,
)
from agentnb.core.past import AgentPast, Miss
from agentnb.core.pauses import PAUSED
from agentnb.core.protocols import (
    AgentWork,
    CallLease,
    Gate,
    Jobs,
    Memory,
    Provider,
    Ruling,
    Tool,
    is_chain,
    links_of,
    supports_enter_now,
    supports_token_count,
)
from agentnb.core.records import CallRecord, ErrorRecord, ToolCallRecord
from agentnb.core.request import RunState
from agentnb.core.spawn import read_reply, task_of
from agentnb.core.types import CompletionRequest, ToolUse, Usage, path_of, text_so_far

WAITS_FOR_ROOM = "room in the budget, until other calls settle"
"""Reason of an `AgentWaiting`."""
_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 8.0


@dataclass(slots=True)
class Siblings:
    """State shared by the children of one parent."""

    have_answered: bool = False
    """Whether any of them has produced text."""


class AgentServices:
    """Run services for one agent. See `agentnb.core.protocols.RunServices`.

    Args:
        agent_id: The agent's id.
        run: The run's state.
        provider: Answers the agent's calls.
        siblings: State shared with its siblings.
        cache_prefix: Called just before each call; returns how many leading characters of the
            system prompt are worth a cache breakpoint now.
        gate: The gate of the agent's model.
        jobs: The agent's jobs; `None` if it may start none.
        withheld: By name: tools that it does not have. See `RunServices.withheld`.
        gated: Names of tools that need approval when this agent calls them.
    """

    def __init__(
        self,
        agent_id: str,
        run: RunState,
        *,
        provider: Provider,
        siblings: Siblings,
        cache_prefix: Callable[[], int],
        gate: Gate,
        jobs: Jobs | None,
        withheld: Mapping[str, Callable[[Mapping[str, Any]], str]],
        gated: Collection[str] = (),
    ) -> None:
        request = run.request
        self.clock = request.clock
        self.call_timeout_s = request.call_timeout_s
        self.run_id = request.run_id
        self.path = path_of(agent_id, request.thread_id)
        self.workspace, self.notes = request.workspace, request.notes
        self.jobs = jobs
        self.withheld = withheld
        self.usage = Usage()
        """Usage of all calls so far."""
        self.conversation_tokens = 0
        """Input and output of its newest counted call."""
        self._announced: Event | None = None
        self._reserved_input = 0
        """Input tokens reserved for its newest call."""
        self._reply_begins = ""
        """The text of a paused reply, if the newest call continues one."""
        self._reply_pieces: list[TextRow] = []
        """Text of the newest reply in pieces: the list that the call itself fills."""
        self._numbers = request.numbers
        self._unstarted_orders: list[ToolUse] = []
        """Tool calls of the newest reply that have not started."""
        self._block_is_settled = False
        """Whether each task of a spawn block in the newest reply was started or published."""
        self._input_estimate = InputEstimate()
        self._agent_id = agent_id
        self._provider = provider
        self.gate = gate
        self._abandoned = request.abandoned
        self._pauses = request.pauses
        self._held_tools = 0
        """Number of the agent's tool calls that a pause holds now."""
        self._held_before: dict[int, Mapping[str, Any]] = {}
        """By number: the recorded verdicts on how tool calls waited and began."""
        self._waits: dict[int, Mapping[str, int] | None] = {}
        """By number, for the tool calls that a pause holds or held: the place at which the wait was
        published; `None` if another call's wait was published already.
        """
        self.tool_order = ToolOrder()
        self.past = None if run.past is None else run.past.begin(self.path)
        """The agent's past, in a recovered or replayed run; else `None`."""
        self.memory: Memory | None = AgentMemory.of(agent_id, run)
        self._is_recorded = False
        """Whether a record answers the newest call."""
        self._bus, self._meter, self._recorder = run.bus, run.meter, run.recorder
        self._limits = run.limits
        self._log = run.recorder.log(self.path)
        self.rate = request.rate_of
        """Returns the prices of a model's tokens; `None` if no budget counts money."""
        # Not a bound method: the two objects would keep each other in memory.
        has_room = partial(_has_room, provider, run.meter)
        self.news = AgentNews(agent_id, request, self._log, self.past, has_room)
        self.verdict = self._log.verdict
        # Created for each call: it refers to this object, and the two would keep each other alive.
        self._approvals = partial(Approvals, agent_id, run, log=self._log, gated=gated)
        self.next_tool_call = self._log.next_tool_call
        self.next_tool_start = self._log.next_tool_start
        self.next_tool_end = self._log.next_tool_end
        # The bus's own method, since it runs for each piece of text: one call less.
        self.publish_text = run.bus.publish_text
        self._siblings = siblings
        self.on_first_sign: Callable[[], None] | None = None
        """Called once: at the first byte of a reply, when a call ends without one, or when the
        agent waits.
        """
        self._cache_prefix = cache_prefix

    @property
    def text(self) -> str:
        """Text of the newest reply so far."""
        return self._reply_begins + "".join([text for _, _, text in self._reply_pieces])

    @property
    def calls(self) -> int:
        """The number of its newest call."""
        return self._log.calls

    def take_unstarted(self, spawn_tool: str, *, is_read: bool) -> tuple[str, ...]:
        """Tasks of the newest reply that will not start; each only once.

        Args:
            spawn_tool: The name of the tool that starts sub-agents; empty if there is none.
            is_read: Whether the reply is complete: the agent then reads it and handles the tasks
                of its block.
        """
        by_block = () if is_read or self._block_is_settled else read_reply(self.text).tasks
        by_tool = [
            task_of(each.input) for each in self._unstarted_orders if each.name == spawn_tool
        ]
        self._unstarted_orders, self._block_is_settled = [], True
        return (*by_block, *filter(None, by_tool))

    def reply_is_read(self) -> None:
        """Note that the agent itself handles the tasks of the newest reply's block."""
        self._block_is_settled = True

    def take_numbers(self, count: int) -> tuple[int, ...]:
        return self._numbers.take(self._agent_id, count)

    def publish(self, event: Event) -> float:
        if self._is_recorded and isinstance(event, ModelCallStarted):
            self._bus.recorded_calls.add((self._agent_id, self._log.calls + 1))
        at_s = self._bus.publish(event)
        match event:
            case AgentWaiting():
                self._give_sign()
            case ModelCallStarted():
                self._log.call_started(event, at_s)
                self._pauses.came_to(self.path, self._log.calls)
                # The call may continue a paused reply, whose beginning is in the conversation.
                self._reply_begins, self._reply_pieces = text_so_far(event.request.messages), []
                self._unstarted_orders, self._block_is_settled = [], False
                self.news.call_started()
            case ModelCallFinished():
                self._give_sign()
                if event.stop_reason is not None:
                    self.news.has_reply()
                self.usage += event.usage
                if (counted := event.usage.total_tokens) > 0:
                    # The next call reserves its input by the estimate: count no less than that.
                    reserved = self._reserved_input + event.usage.output_tokens
                    self.conversation_tokens = max(counted, reserved)
            case ToolCallStarted():
                self._mark_started(event.tool_use_id)
            case SpawnIgnored():
                self._block_is_settled = True
        return at_s

    def _mark_started(self, tool_use_id: str) -> None:
        for at, order in enumerate(self._unstarted_orders):
            if order.id == tool_use_id:
                del self._unstarted_orders[at]
                return

    async def take_news(self, work: AgentWork, request: CompletionRequest) -> Sequence[str]:
        return await self.news.take(work, request)

    def note_tool_call(self, order: ToolUse) -> None:
        self._unstarted_orders.append(order)

    def reply_begins(self, pieces: list[TextRow]) -> None:
        self._reply_pieces = pieces

    def reply_started(self) -> None:
        self._siblings.have_answered = True
        self._give_sign()

    def _give_sign(self) -> None:
        if self.on_first_sign is not None:
            sign, self.on_first_sign = self.on_first_sign, None
            sign()

    async def commit(self) -> None:
        await self._recorder.commit()

    async def call_ended(self, event: ModelCallFinished, error: ErrorRecord | None) -> None:
        if error is not None:
            self._bus.call_errors[self._agent_id, self._log.calls] = error
        self._log.call_finished(event, self._reply_pieces, error)
        await self._commit_and_publish(event)

    def intend(self, record: ToolCallRecord) -> None:
        self._recorder.intend(record)

    def keep_whole(self, record: ToolCallRecord, place: int) -> None:
        self._bus.keep_whole(record, place)

    def tool_is_recorded(self, place: int) -> None:
        self._bus.recorded_tool_calls.add((self._agent_id, place))

    async def tool_ended(self, record: ToolCallRecord, event: ToolCallFinished) -> None:
        self._recorder.keep(record)
        try:
            await self._commit_and_publish(event)
        finally:
            self.tool_order.came(END, record.number)

    async def _commit_and_publish(self, event: Event) -> None:
        try:
            await self._recorder.commit()
        finally:  # also when a cancel arrives during the commit
            self.publish(event)

    def ending_with_run(self, limit: TimeLimit) -> AbstractContextManager[None]:
        return self._meter.ending_with_run(limit)

    def stopped_by(self) -> str | None:
        return self._meter.stopped_by

    def abandon_tool(self) -> Callable[[], None]:
        return self._abandoned.add(self._agent_id)

    def throttle(self, model: str, seconds: float) -> None:
        if self._is_recorded:
            return  # the recorded limit is long over
        with foreign("the gate"):
            self.gate.throttle(model, seconds)

    def retry_delay_s(self, attempt: int) -> float:
        longest = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2 ** (attempt - 1))
        return float(longest * random.uniform(0.75, 1.25))

    async def wait_to_retry(self, work: AgentWork, seconds: float) -> None:
        if self.past is not None:
            number = self._log.calls + 1
            self._raise_if_exhausted_before(work, self.past, number)
            if self.past.has_begun_call(number):
                return  # the recorded run has waited
            await self.past.does_more()
        try:
            async with self._meter.wait(for_root_synthesis=_is_root_synthesis(work)):
                await self.clock.sleep(seconds)
        except BudgetExceeded as error:
            self._keep_exhausted(error)
            raise

    def _keep_exhausted(self, error: BudgetExceeded) -> None:
        why, ended_by = str(error), self._meter.ended_by
        self.verdict("exhausted", {"call": self._log.calls + 1, "why": why, "ended_by": ended_by})

    def _raise_if_exhausted_before(self, work: AgentWork, past: AgentPast, number: int) -> None:
        """Raise `BudgetExceeded` if a limit prevented the agent's next call in the record."""
        if (found := past.of_call("exhausted", number)) is not None:
            self._meter.exhausted_before(
                found["ended_by"], for_root_synthesis=_is_root_synthesis(work)
            )
            self.verdict("exhausted", found)
            raise BudgetExceeded(found["why"])

    def lease(
        self, work: AgentWork, request: CompletionRequest
    ) -> AbstractAsyncContextManager[CallLease]:
        if self.past is not None:
            number, key = self._log.calls + 1, self._log.key_of(work.model, request)
            self._wait_as_before(partial(self.past.of_call, "waited", number))
            self._raise_if_exhausted_before(work, self.past, number)
            record = self.past.call(number, key, work.model, request)
            self._is_recorded = record is not None
            if record is not None:
                return self._recorded_call(record, self.past, work, request)
            return _Leasing(self, work, request, Miss(self.path, number, work.model, key, request))
        return _Leasing(self, work, request, None)

    def _recorded_call(
        self, record: CallRecord, past: AgentPast, work: AgentWork, request: CompletionRequest
    ) -> RecordedCall:
        self._wait_as_before(partial(past.of_record, "waited", record))
        clamped = past.of_record("clamped", record)
        halted = past.of_record("halted", record)
        for kind, value in (("clamped", clamped), ("halted", halted)):
            if value is not None:
                self.verdict(kind, {**value, "call": self._log.calls + 1})
        return RecordedCall(
            record,
            request,
            self._meter,
            partial(self._announce, work.announcement),
            past.until,
            may_begin=partial(self._wait_while_held, work),
            clamped=clamped,
            halted=halted,
            for_root_synthesis=_is_root_synthesis(work),
            rate=self.rate(work.model),
        )

    def _wait_as_before(self, taken: Callable[[], Any]) -> None:
        """Publish the recorded waits of the next call for a person again."""
        while (waited := taken()) is not None:
            if waited.get("for") == PAUSED:
                self._publish_waiting(PAUSED, None)
                self._waited_for_resume()
            else:
                self._wait_for_answer()

    def _wait_for_answer(self) -> None:
        self._publish_waiting("an answer to the budget's question", None)
        self.verdict("waited", {"call": self._log.calls + 1})

    # -- a person's pauses ------------------------------------------------------------------------

    @property
    def _is_held(self) -> bool:
        return self._pauses.is_held(self._agent_id)

    async def _wait_while_held(self, work: AgentWork) -> None:
        """Wait while a pause holds the agent; `BudgetExceeded` if a limit ends its work first."""
        if not self._is_held:
            return
        wait = self._meter.wait(for_root_synthesis=_is_root_synthesis(work))
        self._publish_waiting(PAUSED, None)
        self._meter.does_not_call()
        try:
            async with wait:
                await self._pauses.wait(self._agent_id)
        finally:
            self._waited_for_resume()

    def _waited_for_resume(self) -> None:
        self.verdict("waited", {"call": self._log.calls + 1, "for": PAUSED})

    async def rule(self, call: ToolCallRecord, tool: Tool | None) -> Ruling:
        return await self._approvals(services=self).rule(call, tool)

    def follow(
        self, now: ToolCallRecord, recorded: ToolCallRecord | None, answer: Mapping[str, Any] | None
    ) -> None:
        """Take up the recorded steps of a tool call, before anything of it is awaited."""
        assert self.past is not None
        number = now.number
        if recorded is not None:
            number = recorded.number
        elif answer is not None:
            number = answer["tool_call"]
        held = self.past.verdict("held", lambda value: value["tool_call"] == number)
        if held is not None:
            self._held_before[now.number] = held
        self.tool_order.expect(now.number, answer, held, recorded)

    async def may_begin(self, tool_call: int, *, was_asked: bool) -> None:
        past = self.past
        await self.hold_as_before(tool_call)
        if past is not None and not self.is_done_again and tool_call not in past.tool_calls:
            await past.is_taken()  # here and not later: a pause that is still open must hold it
        # A tool call that a limit stops gets that as its reason, and is not held.
        if self._is_held and self._meter.stopped_by is None:
            await self._hold(tool_call)
        elif was_asked or tool_call in self._waits:
            self._keep_beginning(tool_call)
        self.tool_order.came(BEGINNING, tool_call)
        if past is not None:
            past.tool_call_begins(tool_call)

    async def _hold(self, tool_call: int) -> None:
        """Wait while a pause holds the agent, unless a limit of the run ends all tools."""
        if self._held_tools:
            self._waits.setdefault(tool_call)
        else:
            self._tell_hold(tool_call)
        self._held_tools += 1
        begins = False
        try:
            with suppress(TimeoutError), TimeLimit(self.clock) as limit:
                with self._meter.ending_with_run(limit):
                    await self._pauses.wait(self._agent_id)
            begins = True
        finally:
            self._held_tools -= 1
            self._keep_beginning(tool_call, begins=begins)

    async def hold_as_before(self, tool_call: int) -> None:
        """If a pause held a recorded call, publish that at its place, and wait until it began."""
        before = self._held_before.pop(tool_call, None)
        if before is None or self.past is None:
            return
        self._waits[tool_call] = None
        if before["told"]:
            await self.tool_order.turn_to(WAIT, tool_call)
            self._tell_hold(tool_call)
        if before["ended"] is not None:
            await self.tool_order.turn_to(BEGINNING, tool_call)
            return
        try:
            await self.past.is_cancelled()
        except BaseException:  # it never began
            self._keep_beginning(tool_call, begins=False)
            raise

    def _tell_hold(self, tool_call: int) -> None:
        self._publish_waiting(PAUSED, None)
        self._waits[tool_call] = self.tool_order.next_place()
        self.tool_order.came(WAIT, tool_call)

    def _keep_beginning(self, tool_call: int, *, begins: bool = True) -> None:
        place = self.tool_order.next_place() if begins else {"ended": None, "place": 0}
        wait = self._waits.pop(tool_call, None)
        told = {"told": False} if wait is None else {"told": True, "wait": wait}
        self.verdict("held", {"tool_call": tool_call, **told, **place})

    async def may_call(self, tool: ToolCallRecord, *, was: ToolCallRecord | None = None) -> None:
        if self.past is not None:
            await self.past.is_taken(Miss(self.path, tool.number, tool=tool, was=was))

    @property
    def has_changed_below(self) -> bool:
        return self.past is not None and self.past.has_changed_below

    @property
    def is_done_again(self) -> bool:
        return self.past is not None and self.past.is_done_again

    def is_unknown(self, now: ToolCallRecord) -> bool:
        return self.past is not None and self.past.was_open(now)

    def mark_of(self, now: ToolCallRecord) -> str | None:
        return None if self.past is None else self.past.mark_of(now)

    async def turn_to_end(self, number: int, recorded: ToolCallRecord) -> None:
        if self.past is not None:
            await self.past.turn_to_end(recorded.number)
            await self.tool_order.turn_to(END, number)
            if self.past.until is not None:
                await self.past.until(recorded.at_s + (recorded.duration_ms or 0) / 1000)
            for event in self.past.told_before_end(recorded.ended):
                self._bus.publish(event)
            for value in () if self.is_done_again else self.past.assigned():
                self.assigned_before(value)

    def assigned_before(self, value: Mapping[str, Any]) -> None:
        """Count a task for another thread again, since its tool is answered by its record.

        Args:
            value: The recorded verdict on the task.
        """
        refused = value["refused"]
        refused_by = refused[0]["limit"] if refused else None
        self._limits.admit_again(value["assigned"], refused_by=refused_by)
        self.verdict("admitted", value)

    def _announce(self, event: Event | None) -> None:
        """Publish the notes and the announcement of a call. A retry announces nothing again."""
        for told in self.news.told_with_call():
            self._bus.publish(told)
        if event is not None and event is not self._announced:
            self._announced = event
            self._bus.publish(event)

    def _publish_waiting(self, reason: str, seconds: float | None) -> None:
        self.publish(AgentWaiting(agent_id=self._agent_id, reason=reason, wait_s=seconds))
        self._recorder.commit_soon()


class _Leasing:
    """`async with` around a call: enters the gate, leases budget, and leaves the gate at the end.

    `make_call` settles the lease.
    """

    def __init__(
        self,
        services: AgentServices,
        work: AgentWork,
        request: CompletionRequest,
        new: Miss | None,
    ) -> None:
        self._services = services
        self._new = new
        self._work = work
        self._request = request
        self._slot: AbstractAsyncContextManager[None]
        self._lease: Lease

    async def __aenter__(self) -> Lease:
        if self._new is not None and (past := self._services.past) is not None:
            await past.is_taken(self._new)
        try:
            lease = self._lease = await self._wait_for_lease()
        except BudgetExceeded as error:
            self._services._keep_exhausted(error)
            raise
        if lease.limited_by is not None:
            self._services.verdict(
                "clamped",
                {
                    "call": self._services._log.calls + 1,
                    "max_tokens": lease.request.max_tokens,
                    "limited_by": lease.limited_by,
                },
            )
        return lease

    async def _wait_for_lease(self) -> Lease:
        services, request = self._services, self._request
        meter = services._meter
        provider = _provider_of(services._provider, self._work)
        input_tokens = input_tokens_of(request, provider, estimate=services._input_estimate.of)
        for_root_synthesis = _is_root_synthesis(self._work)
        rate = services.rate(self._work.model)
        # A lease can be refused for a while: a person's pause or the budget's question began while
        # the call waited at the gate, or other calls hold the room. Then the call leaves the gate,
        # waits, and starts over. A final refusal is `BudgetExceeded`.
        while True:
            await services._wait_while_held(self._work)
            if meter.holds(for_root_synthesis=for_root_synthesis):
                services._wait_for_answer()
                await meter.wait_while_paused()
            await self._enter_gate()
            lease: Lease | None = None
            try:
                if not services._is_held:
                    services.news.check_for_words()
                    lease = meter.lease(
                        request,
                        input_tokens=input_tokens,
                        cache_prefix=services._cache_prefix(),
                        hidden_output=_may_hide_output(request),
                        for_root_synthesis=for_root_synthesis,
                        rate=rate,
                    )
            finally:
                if lease is None:  # refused, outdated or raised
                    await self._slot.__aexit__(None, None, None)
            if lease is not None:
                services._reserved_input = input_tokens
                services._announce(self._work.announcement)
                return lease
            if not (services._is_held or meter.holds(for_root_synthesis=for_root_synthesis)):
                services._publish_waiting(WAITS_FOR_ROOM, None)
                needed = least_amount(
                    request, input_tokens, rate, cache_prefix=services._cache_prefix()
                )
                await meter.wait_for_room(needed, for_root_synthesis=for_root_synthesis)

    async def _enter_gate(self) -> None:
        """Wait at the gate; `BudgetExceeded` if the budget ends meanwhile."""
        services, work = self._services, self._work
        with foreign("the gate", passes=(BudgetExceeded,)):
            self._slot = services.gate.acquire(work.model, on_wait=services._publish_waiting)
            if supports_enter_now(self._slot) and self._slot.enter_now():
                return
            async with services._meter.wait(for_root_synthesis=_is_root_synthesis(work)):
                await self._slot.__aenter__()

    async def __aexit__(self, *raised: Any) -> None:
        if self._lease.halted is not None:
            self._services.verdict(
                "halted",
                {
                    "call": self._services._log.calls,
                    "why": self._lease.halted,
                    "ended_by": self._services._meter.ended_by,
                },
            )
        await self._slot.__aexit__(*raised)


def _is_root_synthesis(work: AgentWork) -> bool:
    return work.is_root and work.is_synthesis


def _has_room(
    provider: Provider, meter: Meter, work: AgentWork, request: CompletionRequest
) -> bool:
    """Whether a call has room now; always true for calls that can wait for it.

    Only the root's synthesis cannot.
    """
    if not _is_root_synthesis(work):
        return True
    asked = _provider_of(provider, work)
    input_tokens = input_tokens_of(asked_of(asked, request), asked)
    return meter.has_room(input_tokens, request.max_tokens)


def _provider_of(provider: Provider, work: AgentWork) -> Provider:
    """The provider of a call's model: a chain's link, else the provider itself."""
    if is_chain(provider):
        for link in links_of(provider, work.model):
            if link.model == work.model:
                return link.provider
    return provider


def input_tokens_of(
    request: CompletionRequest,
    provider: Provider,
    *,
    estimate: Callable[[CompletionRequest], int] = estimate_input_tokens,
) -> int:
    """Tokens of a request's whole input: counted by the provider if it can, else estimated."""
    if supports_token_count(provider):
        return int(provider.count_tokens(request))
    return estimate(request)


def _may_hide_output(request: CompletionRequest) -> bool:
    """Whether the model may produce output that does not stream: thinking, tool calls."""
    thinking = request.extra.get("thinking")
    thinks = isinstance(thinking, Mapping) and thinking.get("type") != "disabled"
    return thinks or bool(request.tools)
