"""What all agents of one run share, and how deep one of them stands.

Ids are made here: a thread's, a run's, and each agent's from its parent's.
"""

from __future__ import annotations

import secrets
import string
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from agentnb.core.budget import RequestBudget
from agentnb.core.cancel import Cancellation
from agentnb.core.clock import Clock, MonotonicClock
from agentnb.core.cycles import CycleDetector
from agentnb.core.errors import NoOpenQuestion
from agentnb.core.limits import RunLimits
from agentnb.core.protocols import Delegation, Engine, Gate, Provider, Tool
from agentnb.core.text import literal

if TYPE_CHECKING:
    from agentnb.core._budget.meter import Meter
    from agentnb.core.bus import EventBus
    from agentnb.core.journal import ShieldedJournal

_ID_ALPHABET = string.ascii_lowercase + string.digits


def new_thread_id() -> str:
    """A fresh `nb_YYYYMMDD_xxxxxx`."""
    tail = "".join(secrets.choice(_ID_ALPHABET) for _ in range(6))
    return f"nb_{date.today():%Y%m%d}_{tail}"


def new_run_id() -> str:
    """A fresh UUIDv7 as 32 hexadecimal characters, so that runs sort by time.

    Source: RFC 9562, section 5.7.
    """
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & (1 << 48) - 1) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return f"{value:032x}"


class OpenGate:
    """A gate that lets everything through."""

    @asynccontextmanager
    async def acquire(
        self, model: str, *, on_wait: Callable[[str, float | None], None]
    ) -> AsyncIterator[None]:
        yield

    def throttle(self, model: str, seconds: float) -> None:
        return


class RequestContext:
    """One run's shared state: its pot, its cancel tree, its cycle counts, its limits.

    Args:
        budget: The pot that all agents draw on.
        max_depth: Depth of the deepest sub-agent; the root has 0.
        max_agents: Most sub-agents that agents may start in the whole run. Neither the root nor
            the tasks of a person's own list count.
        thread_id: The root agent's id.
        gate: Lets calls through, so many at a time; all at once when left out.
        on_budget_warning: `ask`, `continue` or `stop`.
        is_attended: Whether a person is there to answer.
        workspace: What a person's tools share in the run. The agents' notes are not in it.
        cycle_threshold: How many times a task may come up.
        max_time_s, stop_after_failures: See `agentnb.core.limits.RunLimits`.

    Raises:
        ValueError: A limit is below what makes sense, or the warning policy is unknown.
    """

    def __init__(
        self,
        budget: RequestBudget,
        *,
        max_depth: int = 3,
        max_agents: int = 1000,
        run_id: str = "",
        thread_id: str = "",
        clock: Clock | None = None,
        gate: Gate | None = None,
        call_timeout_s: float = 600.0,
        on_budget_warning: str = "ask",
        pause_timeout_s: float = 600.0,
        is_attended: Callable[[], bool] = lambda: False,
        workspace: dict[str, Any] | None = None,
        cycle_threshold: int = 3,
        max_time_s: float | None = None,
        stop_after_failures: int | None = None,
    ) -> None:
        self.limits = RunLimits(
            max_depth=max_depth,
            max_agents=max_agents,
            cycle_threshold=cycle_threshold,
            max_time_s=max_time_s,
            stop_after_failures=stop_after_failures,
        )
        if on_budget_warning not in ("ask", "continue", "stop"):
            raise ValueError(
                "`on_budget_warning` must be 'ask', 'continue' or 'stop', or a callable that "
                f"answers one of the last two; not {literal(on_budget_warning)}."
            )
        self.budget = budget
        self.run_id = run_id or new_run_id()
        self.thread_id = thread_id or new_thread_id()
        self.depth = 0
        self.cancellation = Cancellation()
        self.workspace: dict[str, Any] = {} if workspace is None else workspace
        self.notes: dict[str, str] = {}
        """What agents write for each other with `workspace_write`, by key."""
        self.clock = clock or MonotonicClock()
        self.gate = gate or OpenGate()
        self.call_timeout_s = call_timeout_s
        self.on_budget_warning = on_budget_warning
        self.pause_timeout_s = pause_timeout_s
        self.is_attended = is_attended
        self.abandoned = AbandonedTools()
        self._meter: Meter | None = None

    @property
    def meter(self) -> Meter | None:
        """Of the run that this is the context of; `None` before it begins."""
        return self._meter

    def begin(self, meter: Meter) -> None:
        """The run begins: a person's answer to its budget's question goes to this meter."""
        self._meter = meter

    def answer_budget(self, answer: str) -> None:
        """Answer the question that a paused run asks. On the run's own loop.

        Raises:
            ValueError: It is neither `continue` nor `stop`.
            NoOpenQuestion: Nothing was asked.
        """
        if self._meter is None:
            raise NoOpenQuestion
        self._meter.answer(answer)

    def child(self) -> RequestContext:
        """The same run, one level deeper: all but `depth` is shared."""
        deeper = RequestContext.__new__(type(self))
        deeper.__dict__.update(self.__dict__, depth=self.depth + 1)
        return deeper

    @property
    def max_depth(self) -> int:
        return self.limits.max_depth

    @property
    def max_agents(self) -> int:
        return self.limits.max_agents

    @property
    def cycle_detector(self) -> CycleDetector:
        return self.limits.cycles


class AbandonedTools:
    """Which agents have tools that go on though nobody waits for them. Thread-safe."""

    def __init__(self) -> None:
        self._tools: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, agent_id: str) -> Callable[[], None]:
        """One more tool of an agent. What is returned is called when it has ended."""
        with self._lock:
            self._tools[agent_id] += 1
        return lambda: self._end(agent_id)

    def _end(self, agent_id: str) -> None:
        with self._lock:
            self._tools[agent_id] -= 1

    @property
    def agent_ids(self) -> set[str]:
        with self._lock:
            return set(+self._tools)


@dataclass(frozen=True, slots=True, eq=False)
class RunState:
    """What all that works on one run shares: complete when it is made, and never changed."""

    request: RequestContext
    bus: EventBus
    meter: Meter
    journal: ShieldedJournal
    engine: Engine
    provider: Provider
    """Answers where an agent has no model of its own."""
    tools: tuple[Tool, ...]
    """What agents may call, but for the tools that start sub-agents."""
    delegation: Delegation
    inherit_memory: bool
    max_turns: int
    """Most model calls of one agent."""

    @property
    def limits(self) -> RunLimits:
        return self.request.limits
