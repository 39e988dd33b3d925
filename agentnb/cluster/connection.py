"""A session's end of the connection to one worker.

It runs on the Dask client's own loop; a call belongs to the loop of its run, and each batch of
entries is handed over once. Orders wait in an outbox and are sent together, one message at a time,
so that they arrive in order and many stops are one message. It asks for entries as long as more of
a call may follow.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

from agentnb.cluster import host
from agentnb.cluster.wire import (
    FORGET_S,
    LAST,
    LONGEST_POLL_S,
    Ended,
    Entries,
    Failed,
    ModelCall,
    NoRecipe,
    Order,
    Recipe,
    Result,
    Stop,
    ToolCall,
)
from agentnb.core.clock import Clock, MonotonicClock
from agentnb.core.errors import ForeignError, WorkerLost, in_words

Ask = Callable[..., Awaitable[Any]]
"""Runs a function of `agentnb.cluster.host` on the worker: `await ask(function, *arguments)`."""

ASKS = 3
"""How often a message is sent before the worker counts as lost."""
_PAUSE_S = 0.2
_METERED_IN_S = 0.05
"""How long to wait for a reply to be metered before asking the worker for other entries."""


class Connection:
    """One worker, as one engine knows it.

    `begin`, `metered`, `dropped`, `stop` and `ended` are called on the loop of a run, all else on
    the client's.

    Args:
        worker: The worker's name in messages.
        ask: Runs a function on the worker.
        loop: The client's loop.
        clock: Measures how long the worker was silent.
    """

    def __init__(
        self,
        worker: str,
        ask: Ask,
        loop: asyncio.AbstractEventLoop,
        clock: Clock | None = None,
    ) -> None:
        self.worker = worker
        self.attempts = 0
        """Number of attempts placed here; written by the engine."""
        self.lost = ""
        """Why it can no longer be reached, in words; empty while it can."""
        self.lost_at = 0.0
        """When it was lost, by `clock`."""
        self.clock = clock or MonotonicClock()
        self.ask = ask
        self._loop = loop
        self._outbox: deque[Order] = deque()
        self._known: set[str] = set()
        """Digests of the recipes that it has, as far as this end knows."""
        self._is_woken = False
        self._calls: dict[int, Call] = {}
        self._awaited: set[int] = set()
        """Numbers of the calls for which more entries may follow."""
        self._lock = threading.Lock()
        """Around what is counted: runs may be on several loops."""
        self._all_metered = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._renew()

    def _renew(self) -> None:
        """Start talking to a new host."""
        self._id = uuid4().hex
        self._host = ""
        """Id of the host; empty until it has answered."""
        self._sent = 0
        """Messages of orders."""
        self._newest = 0
        """Number of the newest received entry."""
        self._received = self._metered = self._dropped = 0
        """Bytes of replies: all that came; those that runs have metered, or that were dropped; and
        those that were dropped since the last message of orders."""
        self._asked_at = self.clock.now()
        self._known.clear()

    def __repr__(self) -> str:
        return f"Connection({self.worker}, {len(self._calls)} calls)"

    # -- on a run's loop --------------------------------------------------------------------------

    def begin(self, order: ModelCall | ToolCall, *recipes: Recipe) -> Call:
        """Order a call, which must be left by `Call.close`.

        Args:
            order: The call.
            recipes: What it needs; sent if the worker does not have it.
        """
        call = self._calls[order.call] = Call(self, order, recipes)
        self._awaited.add(order.call)
        for recipe in recipes:
            if recipe.digest not in self._known:
                self._known.add(recipe.digest)
                self._outbox.append(recipe)
        self._outbox.append(order)
        if self.lost:  # otherwise `lose` reaches this call, too
            call.lose(self._loss)
        self._wake()
        return call

    def ended(self, call: Call, *, by_worker: bool) -> None:
        """Forget a call; stop it if it may still run on the worker."""
        self._awaited.discard(call.number)
        if self._calls.pop(call.number, None) is not None and not by_worker:
            self._outbox.append(Stop(call.number))
            self._wake()

    def stop(self, call: Call) -> None:
        """Stop a tool call; the worker reports when its function has ended."""
        self._outbox.append(Stop(call.number))
        self._wake()

    def dropped(self, size: int) -> None:
        """Count bytes of a reply that are not metered, since its call was left.

        They count as metered only when the worker has the order to stop: else it would read on.
        """
        if size:
            with self._lock:
                self._dropped += size
            self._wake()

    def metered(self, size: int) -> None:
        """Count bytes of a reply that have been metered."""
        if not size:
            return
        with self._lock:
            self._metered += size
            has_more = self._metered < self._received
        if not has_more:
            with suppress(RuntimeError):  # the client is closed
                self._loop.call_soon_threadsafe(self._all_metered.set)

    def _wake(self) -> None:
        if self._is_woken or self.lost:
            return
        self._is_woken = True
        try:
            self._loop.call_soon_threadsafe(self._ensure_tasks)
        except RuntimeError:
            self.lose("its Dask client is closed")

    # -- on the client's loop ---------------------------------------------------------------------

    @property
    def _loss(self) -> str:
        return f"The worker {self.worker} was lost ({self.lost})."

    async def check(self, recipe: Recipe) -> str:
        """Why the worker cannot make a provider, in words; empty if it can."""
        self._asked_at = self.clock.now()
        words: str = await self.ask(host.check, self._id, recipe)
        return words

    def lose(self, why: str) -> None:
        """Mark the worker as lost: all its calls fail."""
        if not self.lost:
            self.lost_at = self.clock.now()
            self.lost = why
            for call in list(self._calls.values()):
                with suppress(RuntimeError):  # its loop is closed
                    call.loop.call_soon_threadsafe(call.lose, self._loss)

    def _ensure_tasks(self) -> None:
        """Make sure that a task sends the outbox and asks for entries."""
        self._is_woken = False
        is_idle = _has_ended(self._sending) and _has_ended(self._reading)
        if is_idle and self.clock.now() - self._asked_at > FORGET_S / 2:
            self._renew()
        if _has_ended(self._sending):
            self._sending = self._loop.create_task(self._send())
            self._sending.add_done_callback(self._lose_by_end)
        if _has_ended(self._reading):
            self._reading = self._loop.create_task(self._read())
            self._reading.add_done_callback(self._lose_by_end)

    def _lose_by_end(self, task: asyncio.Task[None]) -> None:
        """Lose the worker if a task ended by cancellation or a bug, so that no call hangs."""
        if task.cancelled():
            self.lose("its Dask client is closed")
        elif (error := task.exception()) is not None:
            self.lose(_words(error))

    async def _send(self) -> None:
        while (self._outbox or self._dropped) and not self.lost:
            # First these: what is dropped after now may belong to an order that is not in `orders`.
            with self._lock:
                dropped, self._dropped = self._dropped, 0
            orders = [self._outbox.popleft() for _ in range(len(self._outbox))]
            if orders:
                self._sent += 1
                await self._reach(host.take, self._sent, pickle.dumps(orders))
            self.metered(dropped)

    async def _read(self) -> None:
        while self._awaited and not self.lost:
            # The worker reads on only after its bytes are metered: ask again soon if some are not.
            with self._lock:
                metered, has_more = self._metered, self._metered < self._received
            wait_s = _METERED_IN_S if has_more else LONGEST_POLL_S
            answer = await self._reach(host.entries, self._newest, metered, wait_s)
            if answer is None:
                return
            self._all_metered.clear()
            self._take(pickle.loads(answer))
            if self._metered < self._received:
                await host.set_within(self._all_metered, _METERED_IN_S)

    def _take(self, came: Entries) -> None:
        """Hand entries to their calls, each call's together."""
        self._host = self._host or came.host
        if came.host != self._host:  # the calls that were open are not known there
            self.lose("it was restarted")
            return
        of_calls = defaultdict[int, list[tuple[int, Any]]](list)
        for place, (number, size, packed) in enumerate(came.entries, came.first):
            if place > self._newest:  # otherwise it has been received before
                self._newest = place
                item = packed if isinstance(packed, str) else _unpacked(packed)
                of_calls[number].append((size, item))
        for number, items in of_calls.items():
            size = sum(size for size, _ in items)
            with self._lock:
                self._received += size
            last = items[-1][1]
            call = self._calls.get(number)
            if call is None:
                self.dropped(size)
            elif isinstance(last, NoRecipe) and not call.is_stopped:
                self._outbox.extend((*call.recipes, call.order))
                self._ensure_tasks()
            else:
                if isinstance(last, LAST):
                    self._awaited.discard(number)
                call.deliver(items)

    async def _reach(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function on the worker; `None` if it cannot be reached, and then it is lost."""
        for left in reversed(range(ASKS)):
            self._asked_at = self.clock.now()
            try:
                return await self.ask(function, self._id, *arguments)
            except Exception as error:  # of Dask, of the network, of an interpreter that ends
                if not left:
                    self.lose(_words(error))
            if self.lost:
                return None
            await self.clock.sleep(_PAUSE_S)
        return None


class Call:
    """One call on a worker. Iterates over the worker's entries about it.

    Args:
        connection: To the worker.
        order: The call.
        recipes: What it needs.
    """

    def __init__(
        self, connection: Connection, order: ModelCall | ToolCall, recipes: Sequence[Recipe] = ()
    ) -> None:
        self.number, self.order, self.recipes = order.call, order, recipes
        self.loop = asyncio.get_running_loop()
        self._connection = connection
        self._items: deque[tuple[int, Any]] = deque()
        """The items that wait to be read, each after its size in bytes."""
        self._loss = ""
        """Why no more entries follow; empty while some may."""
        self._news = asyncio.Event()
        self._ended_there = False
        self._is_closed = False
        self.is_stopped = False
        """Whether a tool was stopped: its end is awaited, but its result is not wanted."""
        self._when_over: Callable[[], None] | None = None

    def deliver(self, items: list[tuple[int, Any]]) -> None:
        """Take items of the worker, each after its size in bytes; called on another loop."""
        try:
            self.loop.call_soon_threadsafe(self._take, items)
        except RuntimeError:  # its loop is closed, and with it whatever waited
            self._items.extend(items)
            if self.is_stopped:
                self._find_end()
            else:
                self.close()

    def _take(self, items: list[tuple[int, Any]]) -> None:
        self._items.extend(items)
        if self.is_stopped:
            self._find_end()
        self._news.set()
        if self._is_closed:
            self._drop()

    def lose(self, why: str) -> None:
        """Fail the call: no more entries follow."""
        self._loss = why
        self._news.set()
        if self.is_stopped:
            self._find_end()

    # -- a tool that is stopped: implements `agentnb.core.threads.BlockingCall` -------------------

    def stop(self) -> None:
        """Tell the worker to stop the tool. Its later entries are dropped."""
        self.is_stopped = True
        self._find_end()
        if not self.has_ended:
            self._connection.stop(self)

    @property
    def has_ended(self) -> bool:
        """Whether it no longer runs, as far as is known."""
        return self._ended_there or bool(self._loss)

    async def wait(self) -> None:
        """See `agentnb.core.threads.BlockingCall`."""
        while not self.has_ended:
            self._news.clear()
            await self._news.wait()

    def abandon(self, when_over: Callable[[], None] | None = None) -> None:
        """See `agentnb.core.threads.BlockingCall`. Its entries are dropped already."""
        if not self.has_ended:
            self._when_over = when_over

    def _find_end(self) -> None:
        """Drop a stopped tool's items, and forget the call if it has ended."""
        self._ended_there = self._ended_there or any(isinstance(i, LAST) for _, i in self._items)
        self._drop()
        if not self.has_ended:
            return
        self._connection.ended(self, by_worker=True)
        if self._when_over is not None:
            self._when_over()
            self._when_over = None

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        """The next item.

        Raises:
            BaseException: The call failed on the worker.
            WorkerLost: The worker is gone.
        """
        while not self._items:
            if self._loss:
                raise WorkerLost(self._loss)
            self._news.clear()
            await self._news.wait()
        size, item = self._items.popleft()
        self._connection.metered(size)
        if isinstance(item, Ended | Failed | Result):
            self._ended_there = True
        if isinstance(item, Failed):
            raise item.raised()
        if isinstance(item, _Unreadable):
            raise ForeignError(item.why)
        return item

    def close(self) -> None:
        """Leave the call: the worker stops it unless it has ended.

        A tool that was stopped and still runs is known until it has ended.
        """
        if not self._is_closed:
            self._is_closed = True
            if not self.is_stopped:
                self._connection.ended(self, by_worker=self._ended_there)
            self._drop()

    def _drop(self) -> None:
        dropped = sum(size for size, _ in self._items)
        self._items.clear()
        self._connection.dropped(dropped)


class _Unreadable:
    """Replaces an item that cannot be unpickled here."""

    def __init__(self, error: Exception) -> None:
        self.why = f"The worker's message cannot be read ({_words(error)})."


def _unpacked(packed: bytes) -> Any:
    try:
        return pickle.loads(packed)
    except Exception as error:  # its class is not here
        return _Unreadable(error)


def _has_ended(task: asyncio.Task[None] | None) -> bool:
    return task is None or task.done()


def _words(error: BaseException) -> str:
    return in_words(error) or type(error).__name__
