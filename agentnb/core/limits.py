"""All limits of a run except its budget: what it may start, and whether it may continue.

`RunLimits.admit` is asked for each task, from a spawn block, a job or a person's own list;
`RunLimits.may_call` before each call. Both return a `Refusal`, a plain value, or `None`. The limits
only decide: the caller acts, and publishes the event.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agentnb.core.clock import Clock, TimerHandle
from agentnb.core.cycles import CycleDetector
from agentnb.core.shown import counted
from agentnb.core.text import literal
from agentnb.core.types import MOST

MAX_DEPTH = "max_depth"
MAX_AGENTS = "max_agents"
CYCLE = "cycle"
MAX_TIME = "max_time_s"
STOP_AFTER_FAILURES = "stop_after_failures"
_DONE_AGAIN = "the run is done again"
"""Reason to stop the run's time, see `RunLimits.pause`: the run repeats its record."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a task is not started, or a call not made."""

    limit: str
    """The limit's name: that of its setting, or `CYCLE`."""
    reason: str
    """Part of a sentence."""
    value: float | None = None
    """The limit's value; `None` if it is not a number."""
    stops_open_calls: bool = False
    """Whether open calls and running tools are ended, too."""


class RunLimits:
    """The limits of one run, and its counts. Only `admit` is thread-safe; the rest is the loop's.

    Args:
        max_depth: Depth of the deepest sub-agent; the root has 0.
        max_agents: Most sub-agents that agents may start. Neither the root nor the tasks of a
            person's own list count.
        cycle_threshold: How many times a task may come up.
        max_time_s: Seconds that the run may take, without pauses; `None` for no limit.
        stop_after_failures: Number of failed sub-agents after which nothing new begins; `None` for
            no limit.

    Raises:
        ValueError: A limit is out of its range.
    """

    def __init__(
        self,
        *,
        max_depth: int = 3,
        max_agents: int = 1000,
        cycle_threshold: int = 3,
        max_time_s: float | None = None,
        stop_after_failures: int | None = None,
    ) -> None:
        _check_count(MAX_DEPTH, max_depth, least=0)
        _check_count(MAX_AGENTS, max_agents, least=0)
        if stop_after_failures is not None:
            _check_count(STOP_AFTER_FAILURES, stop_after_failures, least=1)
        if max_time_s is not None:
            _check_seconds(MAX_TIME, max_time_s)
        self.max_depth = max_depth
        self.max_agents = max_agents
        self.cycles = CycleDetector(cycle_threshold)
        self._max_time_s = max_time_s
        self._stop_after_failures = stop_after_failures
        self._started = self._failed = 0
        self._lock = threading.Lock()
        self._reached: Refusal | None = None
        self._on_reached: Callable[[Refusal], None] = _ignore
        self._time: _Stopwatch | None = None
        self._used_s = 0.0
        """Seconds of its time limit that the run had used before its process died."""
        self._held_by: set[str] = set()
        """Reasons why the run's time does not count now; empty if it does."""

    # -- questions --------------------------------------------------------------------------------

    def admit(
        self,
        task: str,
        depth: int,
        lineage: Sequence[str],
        *,
        above: Collection[str] = (),
        in_plan: bool = False,
    ) -> Refusal | None:
        """Count a task that is about to start.

        Args:
            task: The task, or another key that detects its repetition.
            depth: The depth of its agent.
            lineage: The tasks of the agents above it, including the delegating one.
            above: The marks of the tasks of other runs that led to this one.
            in_plan: Whether the task is from a person's own list.

        Returns:
            Why it must not start; `None` if it may.
        """
        # Depth, cycles and number of agents bound what models ask for, not a person's own list.
        if self._reached is not None or in_plan:
            return self._reached
        if (refusal := self.too_deep(depth)) is not None:
            return refusal
        if (cycle := self.cycles.check_and_register(task, depth, lineage, above)) is not None:
            return Refusal(CYCLE, cycle, self.cycles.threshold)
        with self._lock:
            if self._started < self.max_agents:
                self._started += 1
                return None
        why = f"the run has all of its {self.max_agents} sub-agents"
        return Refusal(MAX_AGENTS, why, self.max_agents)

    def admit_again(self, task: str, *, refused_by: str | None) -> None:
        """Count a task again that was admitted or refused before the process died.

        Args:
            task: As in `admit`.
            refused_by: The limit that refused it; `None` if it was admitted.
        """
        if refused_by not in (None, CYCLE, MAX_AGENTS):
            return  # nothing was counted
        self.cycles.check_and_register(task, 0)
        if refused_by is None:
            with self._lock:
                self._started += 1

    def give_back(self, tasks: Iterable[str]) -> None:
        """Take back the counts of tasks that were admitted but do not start."""
        for task in tasks:
            self.cycles.give_back(task)
            with self._lock:
                self._started = max(0, self._started - 1)

    def too_deep(self, depth: int) -> Refusal | None:
        """Why no agent may be started at a depth; `None` if one may."""
        if depth <= self.max_depth:
            return None
        why = f"sub-agents at depth {depth} are not allowed (the deepest is {self.max_depth})"
        return Refusal(MAX_DEPTH, why, self.max_depth)

    def may_call(self, *, for_root_synthesis: bool = False) -> Refusal | None:
        """Why no further call may be made; always `None` for the root's synthesis."""
        return None if for_root_synthesis else self._reached

    # -- counts and times -------------------------------------------------------------------------

    def lower_depth(self, max_depth: int) -> None:
        """Apply a second depth limit: the lower of the two counts."""
        self.max_depth = min(self.max_depth, max_depth)

    def begin(self, clock: Clock, on_reached: Callable[[Refusal], None]) -> None:
        """Start the run's time, on the running loop.

        Args:
            clock: The run's clock.
            on_reached: Called once, with the first limit that ends the run's work.
        """
        self._on_reached = on_reached
        if self._max_time_s is not None:
            left_s = max(0.0, self._max_time_s - self._used_s)
            self._time = _Stopwatch(clock, left_s, self._time_is_over)
            self._go_on_unless_held()

    @property
    def has_time(self) -> bool:
        """Whether the run's time is limited."""
        return self._max_time_s is not None

    def follow(self, used_s: float) -> None:
        """Stop the run's time until `go_on`. Call it before `begin`.

        Args:
            used_s: Seconds that the run has used before.
        """
        self._used_s = used_s
        self.pause(_DONE_AGAIN)

    def go_on(self) -> None:
        """The run has repeated its record: continue its time, if any is left."""
        if self._time is not None and self._used_s >= (self._max_time_s or 0.0):
            self._time_is_over()
        self.resume(_DONE_AGAIN)

    def end(self) -> None:
        """The run is over: no limit is reached from now on."""
        self._on_reached = _ignore
        self.stop_time()

    def stop_time(self) -> None:
        """The run's work is over: stop its time for good, even if a pause ends later."""
        if self._time is not None:
            self._time.stop()
        self._time = None

    def pause(self, why: str) -> None:
        """Stop the run's time until `resume`. Several reasons may hold it at once."""
        self._held_by.add(why)
        if self._time is not None:
            self._time.stop()

    def resume(self, why: str) -> None:
        """Remove a reason of `pause`; the time continues when none is left."""
        self._held_by.discard(why)
        self._go_on_unless_held()

    def _go_on_unless_held(self) -> None:
        if self._time is not None and not self._held_by:
            self._time.go_on()

    def agent_failed(self) -> None:
        """Count a sub-agent that failed for good."""
        self._failed += 1
        limit = self._stop_after_failures
        if limit is not None and self._failed >= limit:
            self._reach(_too_many_failures(limit))

    def _time_is_over(self) -> None:
        assert self._max_time_s is not None
        self._reach(_no_time_left(self._max_time_s))

    def reached_before(self, reason: str) -> None:
        """Reach a limit again that ended the run's work before its process died.

        Args:
            reason: The limit's reason, as recorded. Does nothing if it is not that of a limit which
                this run has, with the same value.
        """
        for limit, value in (
            (MAX_TIME, self._max_time_s),
            (STOP_AFTER_FAILURES, self._stop_after_failures),
        ):
            if value is not None and (reached := _REFUSALS[limit](value)).reason == reason:
                self._reach(reached)

    def _reach(self, refusal: Refusal) -> None:
        if self._reached is None:
            self._reached = refusal
            self._on_reached(refusal)


def _too_many_failures(limit: float) -> Refusal:
    why = f"the run's limit of {counted(int(limit), 'failed sub-agent')} was reached"
    return Refusal(STOP_AFTER_FAILURES, why, limit)


def _no_time_left(limit: float) -> Refusal:
    return Refusal(
        MAX_TIME, f"the run's time of {limit:g} s was over", limit, stops_open_calls=True
    )


_REFUSALS: Mapping[str, Callable[[float], Refusal]] = {
    MAX_TIME: _no_time_left,
    STOP_AFTER_FAILURES: _too_many_failures,
}


def reason_of(limit: str, value: float) -> str:
    """The reason that a limit gives when it ends a run's work.

    Args:
        limit: `max_time_s` or `stop_after_failures`.
        value: The limit's value.
    """
    return _REFUSALS[limit](value).reason


class _Stopwatch:
    """Calls back once when it has run for `left_s` seconds in all."""

    def __init__(self, clock: Clock, left_s: float, on_over: Callable[[], None]) -> None:
        self._clock = clock
        self._left_s = left_s
        self._on_over = on_over
        self._timer: TimerHandle | None = None
        self._since_s = 0.0

    def go_on(self) -> None:
        if self._timer is None:
            self._since_s = self._clock.now()
            self._timer = self._clock.call_later(self._left_s, self._on_over)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._left_s = max(0.0, self._left_s - (self._clock.now() - self._since_s))


def _ignore(_: Refusal) -> None:
    return


def _check_count(name: str, limit: object, *, least: int) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < least:
        raise ValueError(
            f"`{name}` must be a whole number, at least {least}, not {literal(limit)}."
        )
    if limit > MOST:
        raise ValueError(f"`{name}` must be at most {float(MOST):g}.")


def _check_seconds(name: str, limit: object) -> None:
    is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if not is_number or not limit > 0:  # type: ignore[operator]  # so that NaN is refused
        raise ValueError(f"`{name}` must be a number of seconds above 0, not {literal(limit)}.")
