"""A session's end of the talk with one worker.

It lives on the Dask client's own loop; calls belong to the loop of their run, and each batch of
entries crosses over once. Orders wait in an outbox and go out together, one message at a time, so
that they arrive in order and many stops are one message. Entries are asked for as long as a call is
open.
"""

from __future__ import annotations

import asyncio
import pickle
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Any
from uuid import uuid4

from agentnb.cluster import host
from agentnb.cluster.wire import (
    LONGEST_POLL_S,
    Ended,
    Entries,
    Failed,
    ModelCall,
    Order,
    Recipe,
    Result,
    Stop,
    ToolCall,
    text_size,
)
from agentnb.core.errors import WorkerLost

Ask = Callable[..., Awaitable[Any]]
"""Runs a function of `agentnb.cluster.host` on the worker: `await ask(function, *arguments)`."""

ASKS = 3
"""How often a message that did not get through is sent."""
_PAUSE_S = 0.2
_METERED_IN_S = 0.05
"""How long a reply may take to be metered before the worker is asked for more of others."""


class Link:
    """One worker, as one engine knows it.

    `begin`, `metered` and `ended` are called on the loop of a run, all else on the client's.

    Args:
        worker: The worker, for messages.
        ask: How to reach it.
        loop: The client's.
    """

    def __init__(self, worker: str, ask: Ask, loop: asyncio.AbstractEventLoop) -> None:
        self.worker = worker
        self.attempts = 0
        """Attempts that are placed here. Written by their engine."""
        self.lost = ""
        """Why it cannot be reached any more, in words; empty while it can."""
        self.lost_at = 0.0
        self.ask = ask
        self._id, self._loop = uuid4().hex, loop
        self._outbox: deque[Order] = deque()
        self._known: set[str] = set()
        """Digests of the recipes that it has."""
        self._is_woken = False
        self._sent = 0
        self._calls: dict[int, Call] = {}
        self._awaited: set[int] = set()
        """Numbers of the calls of which the worker has more to say."""
        self._newest = 0
        """Number of the newest entry that came."""
        self._came = self._metered = self._dropped = 0
        """Bytes of replies: all, those that runs have metered, those that none wants any more."""
        self._all_metered = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"Link({self.worker}, {len(self._calls)} calls)"

    # -- on a run's loop --------------------------------------------------------------------------

    def begin(self, order: ModelCall | ToolCall, *recipes: Recipe) -> Call:
        """Order a call. Leave it by `Call.close`.

        Args:
            order: The call.
            recipes: What it needs; sent if the worker does not have it.
        """
        call = self._calls[order.call] = Call(self, order.call)
        for recipe in recipes:
            if recipe.digest not in self._known:
                self._known.add(recipe.digest)
                self._outbox.append(recipe)
        self._awaited.add(order.call)
        self._outbox.append(order)
        if self.lost:
            call.take([WorkerLost(self._loss)])
        self._wake()
        return call

    def ended(self, call: Call, *, by_worker: bool) -> None:
        """Forget a call; stop it if the worker may still be at it."""
        self._awaited.discard(call.number)
        if self._calls.pop(call.number, None) is not None and not by_worker:
            self._outbox.append(Stop(call.number))
            self._wake()

    def metered(self, size: int) -> None:
        """Bytes of a reply have been metered, or are not wanted any more."""
        self._metered += size
        if size and self._unread <= 0:
            with suppress(RuntimeError):  # the client is closed
                self._loop.call_soon_threadsafe(self._all_metered.set)

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # the client is closed: its engine sees that, too
                self._loop.call_soon_threadsafe(self._go_on)

    # -- on the client's loop ---------------------------------------------------------------------

    @property
    def _unread(self) -> int:
        return self._came - self._metered - self._dropped

    @property
    def _loss(self) -> str:
        return f"The worker {self.worker} was lost ({self.lost})."

    async def check(self, recipe: Recipe) -> str:
        """Why the worker cannot make a provider, in words; empty if it can."""
        words: str = await self.ask(host.check, self._id, recipe)
        return words

    def lose(self, why: str) -> None:
        """The worker is gone: all its calls fail."""
        if not self.lost:
            self.lost, self.lost_at = why, monotonic()
            for call in list(self._calls.values()):
                call.take_soon([WorkerLost(self._loss)])

    def _go_on(self) -> None:
        """See that somebody sends what is in the outbox, and asks for entries."""
        self._is_woken = False
        if self._sending is None or self._sending.done():
            self._sending = self._loop.create_task(self._send())
        if self._reading is None or self._reading.done():
            self._reading = self._loop.create_task(self._read())

    async def _send(self) -> None:
        while self._outbox and not self.lost:
            orders = [self._outbox.popleft() for _ in range(len(self._outbox))]
            self._sent += 1
            await self._reach(host.take, self._sent, pickle.dumps(orders))

    async def _read(self) -> None:
        while self._awaited and not self.lost:
            # The worker reads on only what has been metered: ask soon again if that is not all.
            wait_s = _METERED_IN_S if self._unread > 0 else LONGEST_POLL_S
            metered = self._metered + self._dropped
            answer = await self._reach(host.entries, self._newest, metered, wait_s)
            if answer is None:
                return
            self._all_metered.clear()
            self._take(pickle.loads(answer))
            if self._unread > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._all_metered.wait(), _METERED_IN_S)

    def _take(self, came: Entries) -> None:
        """Hand entries to their calls, each call's together."""
        of_calls = defaultdict[int, list[Any]](list)
        for place, (number, item) in enumerate(came.entries, came.first):
            if place <= self._newest:
                continue  # it came before; its message was lost on the way back
            self._newest = place
            self._came += text_size(item)
            of_calls[number].append(item)
            if isinstance(item, Ended | Failed | Result):
                self._awaited.discard(number)
        for number, items in of_calls.items():
            call = self._calls.get(number)
            if call is None or not call.take_soon(items):
                self._dropped += sum(map(text_size, items))

    async def _reach(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Ask the worker; one that cannot be reached is lost. Returns `None` then."""
        for left in reversed(range(ASKS)):
            try:
                return await self.ask(function, self._id, *arguments)
            except Exception as error:  # of Dask, of the network, of an interpreter that ends
                if not left and not self.lost:
                    self.lose(str(error) or type(error).__name__)
                if self.lost:
                    return None
            await asyncio.sleep(_PAUSE_S)
        return None


class Call:
    """One call on a worker. Iterates over what the worker says of it."""

    def __init__(self, link: Link, number: int) -> None:
        self.number = number
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._items: deque[Any] = deque()
        self._news = asyncio.Event()
        self._ended_there = False
        self._is_closed = False

    def take_soon(self, items: list[Any]) -> bool:
        """Take what the worker says, from another loop; false if this one is closed."""
        try:
            self._loop.call_soon_threadsafe(self.take, items)
        except RuntimeError:
            return False
        return True

    def take(self, items: list[Any]) -> None:
        """Take what the worker says."""
        if self._is_closed:
            self._link.metered(sum(map(text_size, items)))
            return
        self._items.extend(items)
        self._news.set()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        """The next item.

        Raises:
            BaseException: The call failed on the worker.
            WorkerLost: The worker is gone.
        """
        while not self._items:
            self._news.clear()
            await self._news.wait()
        item = self._items.popleft()
        self._link.metered(text_size(item))
        if isinstance(item, Failed | WorkerLost):
            self._ended_there = True
            raise item.raised() if isinstance(item, Failed) else item
        return item

    def close(self, *, ended_there: bool = False) -> None:
        """Leave the call: the worker stops it, unless it has ended it."""
        if not self._is_closed:
            self._is_closed = True
            self._link.metered(sum(map(text_size, self._items)))
            self._items.clear()
            self._link.ended(self, by_worker=ended_there or self._ended_there)
