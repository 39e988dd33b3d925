"""Clocks that are passed in, and a time limit for a block."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol


class Clock(Protocol):
    """Source of time, passed in so that a test need not wait."""

    def now(self) -> float:
        """Seconds, from an arbitrary start."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` on the running loop when `seconds` have passed."""
        ...


class TimerHandle(Protocol):
    """A scheduled callback that can be cancelled."""

    def cancel(self) -> None: ...


class MonotonicClock:
    """The real time."""

    now = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, callback)


class TimeLimit:
    """`with TimeLimit(clock, 5):` cancels the block when its time is over, or at `expire`.

    Args:
        clock: Measures the time.
        seconds: Seconds from the start of the block; `None` for no limit until `start`.

    Raises:
        TimeoutError: This limit cancelled the block. A `TimeoutError` that the block itself raised
            passes, too: `has_expired` distinguishes them.
    """

    __slots__ = (
        "_cancelling",
        "_clock",
        "_ending",
        "_is_disarmed",
        "_seconds",
        "_task",
        "_timer",
        "has_expired",
    )

    def __init__(self, clock: Clock, seconds: float | None = None) -> None:
        self._clock, self._seconds = clock, seconds
        self._timer: TimerHandle | None = None
        self._ending: asyncio.Handle | None = None
        self._task: asyncio.Task[object] | None = None
        self._is_disarmed = self.has_expired = False

    # Like `asyncio.timeout`, but with a clock that is passed in, and at a third of the cost (0.6
    # instead of 1.7 microseconds). Each call to a model has one; its timer takes 2 more, which no
    # run shows.
    def __enter__(self) -> TimeLimit:
        task = self._task = asyncio.current_task()
        if task is None:
            raise RuntimeError("A time limit needs a task that it can cancel.")
        self._cancelling = task.cancelling()
        if self._seconds is not None:
            self.start(self._seconds)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None  # it refers to this limit
        self._call_off()
        task, self._task = self._task, None
        if not self.has_expired or task is None:
            return
        # If the task was cancelled from elsewhere, too, that cancellation passes.
        if task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error

    def start(self, seconds: float) -> None:
        """Limit the block to `seconds` from now on."""
        self._timer = self._clock.call_later(seconds, self._end)

    def expire(self) -> None:
        """Cancel the block in the loop's next iteration."""
        if not self._is_disarmed:
            self._end()

    def disarm(self) -> None:
        """Ignore `expire` from now on, also one that is scheduled. Only the time ends the block."""
        self._is_disarmed = True
        self._call_off()

    def _end(self) -> None:
        if self._task is not None and self._ending is None and not self.has_expired:
            self._ending = asyncio.get_running_loop().call_soon(self._cancel)

    def _call_off(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None

    def _cancel(self) -> None:
        self._ending = None
        if self._task is not None:
            self.has_expired = True
            self._task.cancel()
