"""What one agent's attempts need of their run: a sink for facts, and leases on the budget.

The order of waiting is: a person's answer, a slot at the gate, room in the pot. Whoever waits
for the answer or for room holds no slot that another call could use.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace

from agentnb.core.budget import estimate_input_tokens
from agentnb.core.bus import EventBus
from agentnb.core.cancel import is_own_end
from agentnb.core.errors import InternalError
from agentnb.core.events import (
    AgentTextDelta,
    AgentWaiting,
    Event,
    ModelCallFinished,
    ModelCallStarted,
)
from agentnb.core.lease import OUTPUT_SLICE, Lease
from agentnb.core.meter import Meter
from agentnb.core.protocols import AgentWork, Gate, Journal, Provider, links_of
from agentnb.core.request import RequestContext
from agentnb.core.types import CompletionRequest, Usage, text_so_far

_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 8.0


class AgentPort:
    """One agent's way to its run. See `agentnb.core.protocols.RunPort`.

    Args:
        cache_prefix: Asked just before each call: how many leading characters of the system
            prompt are worth a cache breakpoint now.
    """

    def __init__(
        self,
        agent_id: str,
        *,
        provider: Provider,
        request: RequestContext,
        bus: EventBus,
        meter: Meter,
        journal: Journal,
        cache_prefix: Callable[[], int],
    ) -> None:
        self.clock = request.clock
        self.call_timeout_s = request.call_timeout_s
        self.usage = Usage()
        """The provider's numbers of all calls so far."""
        self.has_answered = False
        """Whether any text ever came."""
        self._heard: list[str] = []
        self._agent_id = agent_id
        self._provider = provider
        self._gate: Gate = request.gate
        self._bus = bus
        self._meter = meter
        self._journal = journal
        self._cache_prefix = cache_prefix

    @property
    def text(self) -> str:
        """What the newest call has said so far."""
        return "".join(self._heard)

    def publish(self, event: Event) -> None:
        match event:
            case AgentTextDelta(text=text):
                self._heard.append(text)
                self.has_answered = True
            case ModelCallStarted(request=request):
                # A call that goes on with a paused reply has its beginning in the conversation.
                self._heard = [text_so_far(request.messages)]
            case ModelCallFinished(usage=usage):
                self.usage += usage
        self._bus.publish(event)

    async def publish_kept(self, event: Event) -> None:
        try:
            await self._journal.commit()
        finally:  # a cancel that came meanwhile is no reason to lose it
            self.publish(event)

    def hold_back(self, model: str, seconds: float) -> None:
        with _gate_bugs():
            self._gate.hold_back(model, seconds)

    def retry_delay_s(self, attempt: int) -> float:
        longest = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2 ** (attempt - 1))
        return float(longest * random.uniform(0.75, 1.25))

    async def wait_to_retry(self, work: AgentWork, seconds: float) -> None:
        async with self._meter.wait(for_root_synthesis=_is_root_synthesis(work)):
            await self.clock.sleep(seconds)

    @asynccontextmanager
    async def lease(self, work: AgentWork, request: CompletionRequest) -> AsyncIterator[Lease]:
        input_tokens = input_tokens_of(request, _provider_of(self._provider, work.model))
        for_root_synthesis = _is_root_synthesis(work)
        while True:
            if self._meter.is_paused:
                self._say_waiting("an answer to the budget's question", None)
                await self._meter.wait_while_paused()
            async with AsyncExitStack() as slot:
                async with self._meter.wait(for_root_synthesis=for_root_synthesis):
                    with _gate_bugs():
                        await slot.enter_async_context(
                            self._gate.slot(work.model, on_wait=self._say_waiting)
                        )
                lease = self._meter.lease(
                    replace(request, cache_prefix=self._cache_prefix()),
                    input_tokens=input_tokens,
                    hidden_output=_may_hide_output(request),
                    for_root_synthesis=for_root_synthesis,
                )
                if lease is not None:
                    yield lease
                    return
            if not self._meter.is_paused:
                self._say_waiting("room in the budget, until other calls settle", None)
                await self._meter.wait_for_room(input_tokens + OUTPUT_SLICE)

    def _say_waiting(self, reason: str, seconds: float | None) -> None:
        self._bus.publish(AgentWaiting(agent_id=self._agent_id, reason=reason, wait_s=seconds))


@contextmanager
def _gate_bugs() -> Iterator[None]:
    try:
        yield
    except BaseException as bug:
        if is_own_end(bug):
            raise
        raise InternalError.wrapping(bug, where="the gate") from bug


def _is_root_synthesis(work: AgentWork) -> bool:
    return work.is_root and work.is_synthesis


def _provider_of(provider: Provider, model: str) -> Provider:
    """Who answers for a model: one of a chain, else the provider itself."""
    own = (link.provider for link in links_of(provider, model) if link.model == model)
    return next(own, provider)


def input_tokens_of(request: CompletionRequest, provider: Provider) -> int:
    """Tokens of a request's whole input: the provider's count, else by its size."""
    count = getattr(provider, "count_tokens", None)
    return int(count(request)) if count is not None else estimate_input_tokens(request)


def _may_hide_output(request: CompletionRequest) -> bool:
    """Whether output may be made that is seen only when it is whole: thinking, tool calls."""
    thinking = request.extra.get("thinking")
    thinks = isinstance(thinking, Mapping) and thinking.get("type") != "disabled"
    return thinks or bool(request.tools)
