"""Observers of all runs of the process. Each gets the bus of every run when the run begins.

An observer reads the bus at its own pace, on its own thread. The run waits for it only at its end,
so that everything is observed when the caller gets the result.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentnb.core.bus import EventBus
    from agentnb.core.records import RunHead
    from agentnb.core.request import RequestContext

PATIENCE_S = 5.0
"""Longest wait of a run's end for one observer."""

_log = logging.getLogger("agentnb")

Ended = Callable[[], Awaitable[object]]
"""Awaited after the run's last event; returns when everything is observed."""


class Observer(Protocol):
    """Observes runs."""

    def begin(self, bus: EventBus, head: RunHead, request: RequestContext) -> Ended | None:
        """A run begins. Called in the run's task, before its first event; it must be quick.

        Returns:
            A function that the run's end awaits; `None` if this run is not observed.
        """
        ...


_observers: tuple[Observer, ...] = ()


def add(observer: Observer) -> None:
    """Let an observer observe all runs that begin from now on."""
    global _observers
    _observers = (*_observers, observer)


def remove(observer: Observer) -> None:
    """Remove an observer; does nothing if it was not added."""
    global _observers
    _observers = tuple(each for each in _observers if each is not observer)


def begin(bus: EventBus, head: RunHead, request: RequestContext) -> Ended:
    """Begin observing a run. The run awaits the returned function at its end.

    Errors of observers are logged at the beginning and dropped at the end; none fails the run.
    """
    ends: list[Ended] = []
    for observer in _observers:
        try:
            ended = observer.begin(bus, head, request)
        except Exception:
            _log.exception("An observer failed, and does not see this run.")
        else:
            ends += [] if ended is None else [ended]

    async def ended_all() -> None:
        for ended in ends:
            # A cancel that comes now is too late: the run has ended.
            with suppress(Exception, asyncio.CancelledError):
                async with asyncio.timeout(PATIENCE_S):
                    await ended()

    return ended_all
