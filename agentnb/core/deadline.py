"""The time that a call has: the same for each call of a run, so one timer is enough for all.

A timer of its own for each would cost more than all else that is done to open a call.
"""

from __future__ import annotations

from collections.abc import Callable

from agentnb.core.protocols import Clock, TimerHandle


class Deadlines:
    """Ends what takes longer than it may. Belongs to the loop of one run, which closes it."""

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._clock = clock
        self._open: dict[_Deadline, None] = {}  # in the order in which they come
        self._timer: TimerHandle | None = None

    def start(self, end_now: Callable[[], None]) -> TimerHandle:
        """Have `end_now` called when the time is over, if it is not called off before."""
        deadline = _Deadline(self._open, self._clock.now() + self.timeout_s, end_now)
        self._open[deadline] = None
        if self._timer is None:
            self._timer = self._clock.call_later(self.timeout_s, self._ring)
        return deadline

    def close(self) -> None:
        """At the end of the run: nothing is timed any more."""
        self._open.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        now_s = self._clock.now()
        over = [deadline for deadline in self._open if deadline.at_s <= now_s]
        for deadline in over:
            del self._open[deadline]
            deadline.end_now()
        if self._open and self._timer is None:
            wait_s = next(iter(self._open)).at_s - now_s
            self._timer = self._clock.call_later(wait_s, self._ring)


class _Deadline:
    """One call's."""

    __slots__ = ("_open", "at_s", "end_now")

    def __init__(
        self, open_: dict[_Deadline, None], at_s: float, end_now: Callable[[], None]
    ) -> None:
        self._open = open_
        self.at_s = at_s
        self.end_now = end_now

    def cancel(self) -> None:
        self._open.pop(self, None)
