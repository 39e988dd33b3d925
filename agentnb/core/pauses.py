"""The pauses that persons order in one run: nothing new begins in what they hold.

A pause of an agent holds it and all below it; a pause of the run holds everything, including the
root's synthesis. Open calls and tools finish. Agents ask here before each call and each tool
(`agentnb.core._call.services`).

Each pause is published and recorded once when it begins and once when a person ends it. When its
agent ends, it ends without an event.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from agentnb.core.errors import AgentEnded
from agentnb.core.events import RunPaused, RunResumed
from agentnb.core.types import ROOT_PATH, id_at, is_at_or_below, path_of

if TYPE_CHECKING:
    from agentnb.core.bus import EventBus
    from agentnb.core.limits import RunLimits
    from agentnb.core.records import OrderRecord

PAUSED = "paused"
"""Reason of an `AgentWaiting`."""
_A_PERSON = "a person's pause"
"""The reason for pausing the run's time limit, as `RunLimits.pause` takes it."""


class KeepsPauses(Protocol):
    """What this module needs of the run's recorder."""

    def order(self, kind: str, by: str, value: Any, path: str = "") -> None: ...


class Pauses:
    """The pauses of one run. For the run's loop only, except `paused`.

    Args:
        thread_id: The root's id.
        limits: The run's limits; its time does not count while the whole run is paused.
    """

    def __init__(self, thread_id: str, limits: RunLimits) -> None:
        self._thread_id = thread_id
        self._limits = limits
        self._tops: tuple[str | None, ...] = ()
        """The ids of the agents that are paused, `None` for the run, in the order of the pauses."""
        self._at_work: set[str] = set()
        self._resumed = asyncio.Event()
        """Set, and then replaced, when the pauses change."""
        self._untold: list[tuple[str, str | None, str]] = []
        """Kind, agent and author of the orders that came too early to be published."""
        self._before: _Before | None = None
        self._is_following = False
        """Whether a recovered run repeats its record, so that nothing needs to be held."""
        self._bus: EventBus | None = None
        self._recorder: KeepsPauses | None = None
        self._is_over = False

    # -- orders -----------------------------------------------------------------------------------

    def pause(self, agent_id: str | None, by: str) -> None:
        """Begin a pause; does nothing if exactly this pause exists already.

        Args:
            agent_id: An agent of the run; `None` for the whole run.
            by: See `agentnb.core.request.RequestContext.answer_budget`.

        Raises:
            AgentEnded: The agent, or the run, has ended.
        """
        self._check_at_work(agent_id, "paused")
        if agent_id not in self._tops:
            self._set((*self._tops, agent_id))
            self._ordered("pause", agent_id, by)

    def resume(self, agent_id: str | None, by: str) -> None:
        """End the pauses of an agent and of all below it; all pauses for the run.

        An agent continues only when no pause holds it any more, including pauses above it.

        Args:
            agent_id: An agent of the run; `None` for the whole run.
            by: As in `pause`.

        Raises:
            AgentEnded: The agent, or the run, has ended.
        """
        self._check_at_work(agent_id, "resumed")
        ended = [each for each in self._tops if _is_in(each, agent_id)]
        self._set(tuple(each for each in self._tops if each not in ended))
        # One order for each pause, so that a record says where each of them ended.
        for each in ended:
            self._ordered("resume", each, by)

    def _check_at_work(self, agent_id: str | None, order: str) -> None:
        if self._is_over or (agent_id is not None and agent_id not in self._at_work):
            raise AgentEnded(self._path_of(agent_id) or ROOT_PATH, order)

    def _set(self, tops: tuple[str | None, ...]) -> None:
        self._tops = tops
        self._take_effect()

    def _take_effect(self) -> None:
        if self._is_following:
            return
        if None in self._tops:
            self._limits.pause(_A_PERSON)
        else:
            self._limits.resume(_A_PERSON)
        # All wake, in the order in which they began to wait; agents that are still held wait again.
        self._resumed.set()
        self._resumed = asyncio.Event()

    def _ordered(self, kind: str, agent_id: str | None, by: str) -> None:
        if self._bus is None or self._is_following:
            self._untold.append((kind, agent_id, by))
        elif self._recorder is not None and self._has_place(agent_id):
            path = self._path_of(agent_id)
            self._recorder.order(kind, by, {"agent": path}, path or "")
            self._tell(kind, agent_id, by)

    def _tell(self, kind: str, agent_id: str | None, by: str) -> None:
        if self._bus is not None and self._has_place(agent_id):
            event = RunPaused if kind == "pause" else RunResumed
            self._bus.publish(event(agent_id=agent_id, by=by))

    def _has_place(self, agent_id: str | None) -> bool:
        """Whether events about an agent may be published: between its first event and its last."""
        return agent_id is None or agent_id in self._at_work

    # -- what they hold ---------------------------------------------------------------------------

    @property
    def paused(self) -> tuple[str, ...]:
        """Paths of the paused agents, `root` for the run. From any thread."""
        return tuple(self._path_of(each) or ROOT_PATH for each in self._tops)

    def is_held(self, agent_id: str) -> bool:
        """Whether a pause holds an agent, so that nothing new of it may begin."""
        if not self._tops or self._is_following:
            return False
        return any(each is None or is_at_or_below(agent_id, each) for each in self._tops)

    async def wait(self, agent_id: str) -> None:
        """Wait until no pause holds an agent."""
        while self.is_held(agent_id):
            await self._resumed.wait()

    def _path_of(self, agent_id: str | None) -> str | None:
        return None if agent_id is None else path_of(agent_id, self._thread_id)

    # -- the run ----------------------------------------------------------------------------------

    def begin(self, bus: EventBus, recorder: KeepsPauses) -> None:
        """The run has begun, and `RunStarted` is published."""
        self._bus, self._recorder = bus, recorder
        self._take_effect()
        if not self._is_following:
            self._tell_untold()

    def _tell_untold(self) -> None:
        untold, self._untold = self._untold, []
        for each in untold:
            self._ordered(*each)

    def agent_began(self, agent_id: str) -> None:
        """An agent has started, and `AgentSpawned` is published."""
        self._at_work.add(agent_id)
        self.came_to(path_of(agent_id, self._thread_id), 0)

    def agent_ended(self, agent_id: str) -> None:
        """An agent's end is about to be published: its pause ends."""
        self._at_work.discard(agent_id)
        if agent_id in self._tops:
            self._set(tuple(each for each in self._tops if each != agent_id))

    def work_ended(self) -> None:
        """All agents have ended: nothing is paused, and nothing can be."""
        self._is_over, self._tops = True, ()

    def end(self) -> None:
        """Drop references before the run's end: cycles would keep the record in memory."""
        self._bus = self._recorder = self._before = None

    # -- a run that repeats its record ------------------------------------------------------------

    def follow(
        self, orders: Iterable[OrderRecord], still_paused: Sequence[str | None], *, holds: bool
    ) -> None:
        """Publish the recorded pauses at their places. Call it before `begin`.

        Args:
            orders: The recorded pause and resume orders, in order.
            still_paused: Paths of the agents that were paused at the end, `None` for the run.
            holds: Whether pauses, recorded or new, hold anything before `go_on`.
        """
        self._before = _Before(orders)
        self._is_following = not holds
        ids = [None if path is None else id_at(path, self._thread_id) for path in still_paused]
        self._tops = tuple(dict.fromkeys((*ids, *self._tops)))

    def came_to(self, path: str, number: int) -> None:
        """Note that an agent has begun its call with this number; 0: that it has started."""
        if self._before is not None:
            for order in self._before.due(path, number):
                self._tell_again(order)

    def go_on(self, *, tells_the_rest: bool) -> None:
        """New work begins: from now on the pauses that are still open hold it.

        Args:
            tells_the_rest: Whether to publish the recorded orders that are left; if not, they are
                dropped.
        """
        if self._before is None:
            return
        if tells_the_rest:
            for order in self._before.rest(self._has_path_begun):
                self._tell_again(order)
        else:
            self._before = None
        self._is_following = False
        self._take_effect()
        self._tell_untold()

    def _has_path_begun(self, path: str) -> bool:
        return id_at(path, self._thread_id) in self._at_work

    def _tell_again(self, order: OrderRecord) -> None:
        path = order.value["agent"]
        self._tell(order.kind, None if path is None else id_at(path, self._thread_id), order.by)


def _is_in(top: str | None, agent_id: str | None) -> bool:
    """Whether a pause of `top` ends with the pauses of an agent and of all below it."""
    return agent_id is None or (top is not None and is_at_or_below(top, agent_id))


class _Before:
    """The recorded orders that were not published again, each with its place.

    Orders for one agent stay in order, and so do orders for the whole run. Between these groups the
    order may change, since the agents reach their places in any order.
    """

    def __init__(self, orders: Iterable[OrderRecord]) -> None:
        self._left: dict[str | None, deque[OrderRecord]] = {}
        self._calls: dict[str, int] = {}
        """By path: the number of its newest call, 0 before the first."""
        self._tells_all = False
        for order in orders:
            self._left.setdefault(order.value["agent"], deque()).append(order)

    def due(self, path: str, number: int) -> Iterator[OrderRecord]:
        """Take the orders that are due now that an agent has begun the call with this number."""
        self._calls[path] = number
        for which in (None, path):
            left = self._left.get(which)
            while left and (self._tells_all or self._is_due(left[0])):
                yield left.popleft()

    def _is_due(self, order: OrderRecord) -> bool:
        return self._calls.get(order.path, -1) >= order.number

    def rest(self, has_begun: Callable[[str], bool]) -> Iterator[OrderRecord]:
        """Take the orders that are due when new work begins; the others wait for their agents."""
        self._tells_all = True
        for which, left in self._left.items():
            while left and (which is None or has_begun(which)):
                yield left.popleft()
