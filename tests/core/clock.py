"""Time that passes on command, so that a test can wait for an hour at once.

Timers fire in the order of their times, each with `now` at its own time. Nothing here looks
at the machine's clock.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable


class ManualClock:
    """Fulfils `agentnb.core.clock.Clock`; `advance` is how time passes.

    Args:
        sleeps_end: Whether a sleep ends at once and moves the time by itself.
    """

    def __init__(self, *, sleeps_end: bool = False) -> None:
        self.sleeps: list[float] = []
        """The seconds of every sleep that was asked for."""
        self._sleeps_end = sleeps_end
        self._now_s = 0.0
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self._now_s

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        if self._sleeps_end:
            self.advance(seconds)
            await asyncio.sleep(0)
            return
        awake = asyncio.Event()
        timer = self.call_later(seconds, awake.set)
        try:
            await awake.wait()
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        heapq.heappush(self._timers, (self._now_s + seconds, next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Let time pass, and call what is due meanwhile."""
        end_s = self._now_s + seconds
        while self._timers and self._timers[0][0] <= end_s:
            due_s, _, timer = heapq.heappop(self._timers)
            self._now_s = max(self._now_s, due_s)
            timer.fire()
        self._now_s = end_s

    @property
    def pending(self) -> int:
        """Timers that are set and were not called off."""
        return sum(timer.is_set for _, _, timer in self._timers)


class Timer:
    """Calls back once, unless it was called off."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self.is_set = True

    def cancel(self) -> None:
        self.is_set = False

    def fire(self) -> None:
        if self.is_set:
            self.is_set = False
            self._callback()


async def everyone_waits() -> None:
    """Let every task of this loop go on until it waits for something that is not there."""
    # Rounds of the loop, not time: more of them than any chain of callbacks here is long.
    for _ in range(20):
        await asyncio.sleep(0)
