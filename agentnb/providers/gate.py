"""Limits concurrent calls to each model, and throttles them all after a rate limit.

One lane per model. A call first waits while the lane is throttled, then acquires a slot, so that
no call holds a slot while it waits for time to pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from weakref import WeakKeyDictionary

from agentnb.core.clock import Clock, MonotonicClock
from agentnb.core.protocols import Gate
from agentnb.core.text import literal


class ConcurrencyGate:
    """Implements `agentnb.core.protocols.Gate`.

    Args:
        max_concurrency: Open calls allowed per model, at least 1.

    Raises:
        ValueError: `max_concurrency` is below 1.
    """

    def __init__(self, max_concurrency: int = 32, *, clock: Clock | None = None) -> None:
        if not isinstance(max_concurrency, int) or max_concurrency < 1:
            raise ValueError(
                "`max_concurrency` must be a whole number, at least 1, not "
                f"{literal(max_concurrency)}."
            )
        self.max_concurrency = max_concurrency
        self._clock = clock or MonotonicClock()
        # Also by loop: a forked process has its own loop, and must not share the parent's slots.
        self._lanes: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Lane]] = (
            WeakKeyDictionary()
        )

    def acquire(
        self, model: str, *, on_wait: Callable[[str, float | None], None]
    ) -> AbstractAsyncContextManager[None]:
        """Hold one of the model's slots; see `agentnb.core.protocols.Gate`."""
        return _Slot(self._lane(model), model, self._clock, on_wait)

    def throttle(self, model: str, seconds: float) -> None:
        """Delay new calls to the model by `seconds`."""
        lane = self._lane(model)
        lane.throttled_until_s = max(lane.throttled_until_s, self._clock.now() + seconds)

    def _lane(self, model: str) -> _Lane:
        lanes = self._lanes.setdefault(asyncio.get_running_loop(), {})
        if model not in lanes:
            lanes[model] = _Lane(self.max_concurrency)
        return lanes[model]


class RoutedGate:
    """Gate of a chain: each model has its own gate, shared with sessions that use it alone."""

    def __init__(self, gates: Mapping[str, Gate]) -> None:
        self._gates = gates

    def acquire(
        self, model: str, *, on_wait: Callable[[str, float | None], None]
    ) -> AbstractAsyncContextManager[None]:
        """See `agentnb.core.protocols.Gate`."""
        return self._gates[model].acquire(model, on_wait=on_wait)

    def throttle(self, model: str, seconds: float) -> None:
        """See `agentnb.core.protocols.Gate`."""
        self._gates[model].throttle(model, seconds)


class _Lane:
    def __init__(self, slots: int) -> None:
        self.size = slots
        self.slots = asyncio.Semaphore(slots)
        self.throttled_until_s = float("-inf")


class _Slot:
    """Context manager: holds one slot of a lane for one call."""

    def __init__(
        self,
        lane: _Lane,
        model: str,
        clock: Clock,
        on_wait: Callable[[str, float | None], None],
    ) -> None:
        self._lane = lane
        self._model = model
        self._clock = clock
        self._on_wait = on_wait

    def enter_now(self) -> bool:
        """Enter without waiting, if possible; returns whether it did."""
        slots = self._lane.slots
        if slots.locked() or self._lane.throttled_until_s > self._clock.now():
            return False
        with suppress(StopIteration):  # raised by a coroutine that does not wait
            slots.acquire().send(None)
        return True

    async def __aenter__(self) -> None:
        lane = self._lane
        while True:
            while (left_s := lane.throttled_until_s - self._clock.now()) > 0:
                self._on_wait("the provider's rate limit", left_s)
                await self._clock.sleep(left_s)
            if lane.slots.locked():
                self._on_wait(f"one of {lane.size} slots for calls to {self._model}", None)
            await lane.slots.acquire()
            # Throttled while it queued: release the slot and wait again.
            if self._clock.now() >= lane.throttled_until_s:
                return
            lane.slots.release()

    async def __aexit__(self, *_: object) -> None:
        self._lane.slots.release()
