"""What one agent's attempts need of their run: a sink for facts, and leases on the budget.

The order of waiting is: a person's answer, a slot at the gate, room in the pot. Whoever waits
for the answer or for room holds no slot that another call could use.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from agentnb.core._budget.lease import Lease
from agentnb.core._budget.meter import BudgetExceeded
from agentnb.core.budget import OUTPUT_SLICE, InputEstimate, estimate_input_tokens
from agentnb.core.cancel import foreign
from agentnb.core.clock import TimeLimit
from agentnb.core.events import (
    AgentWaiting,
    Event,
    ModelCallFinished,
    ModelCallStarted,
    SpawnIgnored,
    ToolCallStarted,
)
from agentnb.core.protocols import (
    AgentWork,
    Gate,
    Jobs,
    Provider,
    ToolCallRecord,
    is_chain,
    links_of,
    supports_enter_now,
    supports_token_count,
)
from agentnb.core.request import RunState
from agentnb.core.spawn import read_reply, task_of
from agentnb.core.types import CompletionRequest, ToolUse, Usage, path_of, text_so_far

_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 8.0


@dataclass(slots=True)
class Siblings:
    """The agents that one parent started, as far as they know of each other."""

    have_answered: bool = False
    """Whether any text ever came from one of them."""


class AgentServices:
    """What one agent's calls need of its run. See `agentnb.core.protocols.RunServices`.

    Args:
        siblings: What it shares with the agents beside it.
        provider: Who answers it.
        cache_prefix: Asked just before each call: how many leading characters of the system
            prompt are worth a cache breakpoint now.
        gate: Before its model.
        jobs: The agent's own, where it may start sub-agents by tools.
        withheld: Tools that it has not, each with what says why.
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
    ) -> None:
        request = run.request
        self.clock = request.clock
        self.call_timeout_s = request.call_timeout_s
        self.path = path_of(agent_id, request.thread_id)
        self.workspace, self.notes = request.workspace, request.notes
        self.jobs = jobs
        self.withheld = withheld
        self.usage = Usage()
        """The provider's numbers of all calls so far."""
        self.conversation_tokens = 0
        """Of its newest call that was counted: what it was sent and what it said."""
        self._announced: Event | None = None
        self._asked_input = 0
        """The size of its newest call's input, as it was reserved."""
        self._heard: list[str] = []
        self._numbers_given = 0
        self._unstarted_orders: list[ToolUse] = []
        """Tool calls of the newest reply that have not begun to run."""
        self._block_is_settled = False
        """Whether each task of a spawn block in the newest reply was dealt with."""
        self._input_estimate = InputEstimate()
        self._agent_id = agent_id
        self._provider = provider
        self.gate = gate
        self._abandoned = request.abandoned
        self._bus, self._meter, self._journal = run.bus, run.meter, run.journal
        self._siblings = siblings
        self._cache_prefix = cache_prefix

    @property
    def text(self) -> str:
        """What the newest call has said so far."""
        return "".join(self._heard)

    def take_unstarted(self, spawn_tool: str, *, is_read: bool) -> tuple[str, ...]:
        """Tasks that the newest reply asked for and that will not be started. Each is told once.

        Args:
            spawn_tool: The name of the tool that starts sub-agents; empty where there is none.
            is_read: Whether the reply came to its end. Its agent then reads it, and deals with the
                tasks of a block in it.
        """
        by_block = () if is_read or self._block_is_settled else read_reply(self.text).tasks
        by_tool = [
            task_of(each.input) for each in self._unstarted_orders if each.name == spawn_tool
        ]
        self._unstarted_orders, self._block_is_settled = [], True
        return (*by_block, *filter(None, by_tool))

    def reply_is_read(self) -> None:
        """The agent's own rules deal with the tasks of a block in the newest reply."""
        self._block_is_settled = True

    def take_numbers(self, count: int) -> tuple[int, ...]:
        first = self._numbers_given + 1
        self._numbers_given += count
        return tuple(range(first, first + count))

    def publish(self, event: Event) -> None:
        match event:
            case ModelCallStarted():
                # A call that goes on with a paused reply has its beginning in the conversation.
                self._heard = [text_so_far(event.request.messages)]
                self._unstarted_orders, self._block_is_settled = [], False
            case ModelCallFinished():
                self.usage += event.usage
                if (counted := event.usage.total_tokens) > 0:
                    # No less than what a call with as much input would have to hold.
                    asked = self._asked_input + event.usage.output_tokens
                    self.conversation_tokens = max(counted, asked)
                self._heard = [self.text]
            case ToolCallStarted():
                self._mark_started(event.tool_use_id)
            case SpawnIgnored():
                self._block_is_settled = True
        self._bus.publish(event)

    def _mark_started(self, tool_use_id: str) -> None:
        for at, order in enumerate(self._unstarted_orders):
            if order.id == tool_use_id:
                del self._unstarted_orders[at]
                return

    def note_tool_call(self, order: ToolUse) -> None:
        self._unstarted_orders.append(order)

    def publish_text(self, agent_id: str, text: str) -> None:
        self._heard.append(text)
        self._siblings.have_answered = True
        self._bus.publish_text(agent_id, text)

    async def commit_and_publish(self, event: Event) -> None:
        try:
            await self._journal.commit()
        finally:  # a cancel that came meanwhile is no reason to lose it
            self.publish(event)

    def keep_tool_call(self, record: ToolCallRecord) -> None:
        self._journal.keep_tool_call(record)

    def ending_with_run(self, limit: TimeLimit) -> AbstractContextManager[None]:
        return self._meter.ending_with_run(limit)

    def stopped_by(self) -> str | None:
        return self._meter.stopped_by

    def abandon_tool(self) -> Callable[[], None]:
        return self._abandoned.add(self._agent_id)

    def throttle(self, model: str, seconds: float) -> None:
        with foreign("the gate"):
            self.gate.throttle(model, seconds)

    def retry_delay_s(self, attempt: int) -> float:
        longest = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2 ** (attempt - 1))
        return float(longest * random.uniform(0.75, 1.25))

    async def wait_to_retry(self, work: AgentWork, seconds: float) -> None:
        async with self._meter.wait(for_root_synthesis=_is_root_synthesis(work)):
            await self.clock.sleep(seconds)

    def lease(
        self, work: AgentWork, request: CompletionRequest
    ) -> AbstractAsyncContextManager[Lease]:
        return _Leasing(self, work, request)

    def _announce(self, event: Event | None) -> None:
        """Tell once of what an agent begins. A call that is made again begins nothing new."""
        if event is not None and event is not self._announced:
            self._announced = event
            self._bus.publish(event)

    def _publish_waiting(self, reason: str, seconds: float | None) -> None:
        self.publish(AgentWaiting(agent_id=self._agent_id, reason=reason, wait_s=seconds))


class _Leasing:
    """A call's way to its slot and its lease, and back."""

    def __init__(
        self, services: AgentServices, work: AgentWork, request: CompletionRequest
    ) -> None:
        self._services = services
        self._work = work
        self._request = request
        self._slot: AbstractAsyncContextManager[None]

    async def __aenter__(self) -> Lease:
        services, request = self._services, self._request
        meter = services._meter
        provider = _provider_of(services._provider, self._work)
        input_tokens = input_tokens_of(request, provider, estimate=services._input_estimate.of)
        for_root_synthesis = _is_root_synthesis(self._work)
        while True:
            if meter.holds(for_root_synthesis=for_root_synthesis):
                services._publish_waiting("an answer to the budget's question", None)
                await meter.wait_while_paused()
            await self._enter_gate()
            lease: Lease | None = None
            try:
                lease = meter.lease(
                    request,
                    input_tokens=input_tokens,
                    cache_prefix=services._cache_prefix(),
                    hidden_output=_may_hide_output(request),
                    for_root_synthesis=for_root_synthesis,
                )
            finally:
                if lease is None:
                    await self._slot.__aexit__(None, None, None)
            if lease is not None:
                services._asked_input = input_tokens
                services._announce(self._work.announcement)
                return lease
            if not meter.holds(for_root_synthesis=for_root_synthesis):
                services._publish_waiting("room in the budget, until other calls settle", None)
                await meter.wait_for_room(input_tokens + OUTPUT_SLICE)

    async def _enter_gate(self) -> None:
        """Wait for the gate, and no longer than there is a budget."""
        services, work = self._services, self._work
        with foreign("the gate", passes=(BudgetExceeded,)):
            self._slot = services.gate.acquire(work.model, on_wait=services._publish_waiting)
            if supports_enter_now(self._slot) and self._slot.enter_now():
                return
            async with services._meter.wait(for_root_synthesis=_is_root_synthesis(work)):
                await self._slot.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._slot.__aexit__(kind, error, trace)


def _is_root_synthesis(work: AgentWork) -> bool:
    return work.is_root and work.is_synthesis


def _provider_of(provider: Provider, work: AgentWork) -> Provider:
    """Who answers for a call's model: one of a chain, else the provider itself."""
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
    """Tokens of a request's whole input: the provider's count, else by its size."""
    if supports_token_count(provider):
        return int(provider.count_tokens(request))
    return estimate(request)


def _may_hide_output(request: CompletionRequest) -> bool:
    """Whether output may be made that is seen only when it is whole: thinking, tool calls."""
    thinking = request.extra.get("thinking")
    thinks = isinstance(thinking, Mapping) and thinking.get("type") != "disabled"
    return thinks or bool(request.tools)
