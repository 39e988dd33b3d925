"""A worker's end of a connection: carries out a session's orders and reports the results.

The functions at the end are run on the worker by Dask, on its own loop; the calls themselves are
tasks on agentnb's runtime loop, so that a slow one never delays Dask's heartbeat.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from agentnb.cluster.wire import (
    FORGET_S,
    GATHER_S,
    MOST_UNREAD,
    SILENCE_S,
    ContextHere,
    Ended,
    Entries,
    Entry,
    ModelCall,
    NoRecipe,
    Order,
    Recipe,
    Report,
    Result,
    Stop,
    ToolCall,
    ToolEnded,
    Versions,
    entry,
    failed,
    versions,
)
from agentnb.core.cancel import is_own_cancellation
from agentnb.core.clock import Clock, MonotonicClock, TimerHandle
from agentnb.core.errors import WorkerLost, in_words
from agentnb.core.protocols import Provider, closing, supports_key_check, supports_ready
from agentnb.core.text import one_line
from agentnb.core.threads import ThreadCall
from agentnb.core.types import TextDelta
from agentnb.providers.registry import close_all
from agentnb.runtime import get_runtime
from agentnb.tools.function import run_function

T = TypeVar("T")

_IDLE_POLL_S = 0.05
"""How long a question waits for an entry while no call is open: its order may be on the way."""
_HEAR_S = 1.0
"""Seconds to read questions that arrived while this process was stopped."""
MOST_RECIPES = 200_000_000
"""Bytes of the recipes that are kept for one session."""
_STOPPED = (
    "The worker stopped this call: it ends, or it heard nothing from the session for "
    f"{SILENCE_S:.0f} s."
)


class Host:
    """The work of one worker for one connection of a session.

    `take`, `entries` and `is_idle` are called on the worker's own loop, everything else on the
    runtime's.

    Args:
        clock: Measures how long the session was silent.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._id = uuid4().hex
        self._clock = clock or MonotonicClock()
        self._recipes: dict[str, bytes] = {}
        """By digest; the most recently used is the last."""
        self._made: dict[str, Provider] = {}
        """The providers made here, by their recipe's digest."""
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._stopped: set[int] = set()
        """Calls of tools that the session has stopped, and that have not ended."""
        self._taken = 0
        """Number of the newest message of orders."""
        self._lock = threading.Lock()
        """Around the entries, which two loops and the threads of tools use."""
        self._entries: deque[Entry] = deque()
        self._first = 1
        """Number of the first entry that is kept."""
        self._reports: dict[int, str] = {}
        """The newest report of each call that is not among the entries yet."""
        self._produced = self._metered = 0
        """Bytes of replies so far: those produced here, and those that the session has metered."""
        self._reader: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        """The loop of the session's question that waits, and the event that it waits for."""
        self._is_urgent = False
        """Whether an entry should not wait for others."""
        self._room = asyncio.Event()
        self._room.set()
        self._heard_at = self._clock.now()
        self._watch: TimerHandle | None = None

    # -- on the worker's loop ---------------------------------------------------------------------

    def take(self, number: int, orders: bytes) -> None:
        """Take a message of orders; a repeated one is ignored."""
        self._heard_at = self._clock.now()
        if number > self._taken:
            get_runtime().call_soon(partial(self._follow, pickle.loads(orders)))
            self._taken = number

    async def entries(self, after: int, metered: int, wait_s: float) -> bytes:
        """The entries after `after`, once there are any; earlier ones are dropped.

        Args:
            after: The number of the newest entry that the session has.
            metered: Bytes of replies that it has metered so far.
            wait_s: How long to wait for an entry.
        """
        self._heard_at = self._clock.now()
        self._drop(after, metered)
        news = asyncio.Event()
        self._reader = asyncio.get_running_loop(), news
        if not self._has_news:
            await set_within(news, wait_s if self._calls else _IDLE_POLL_S)
        if self._has_news and not self._is_urgent:
            news.clear()
            await set_within(news, GATHER_S)
        with self._lock:
            if self._reader is not None and self._reader[1] is news:
                self._reader = None
            self._is_urgent = False
            for call in list(self._reports):
                self._add_report(call)
            return pickle.dumps(Entries(self._id, self._first, tuple(self._entries)))

    def is_idle(self, for_s: float) -> bool:
        """Whether it has no call, and its session was silent for `for_s` seconds."""
        return not self._calls and self._clock.now() - self._heard_at > for_s

    @property
    def _has_news(self) -> bool:
        return bool(self._entries or self._reports)

    def _drop(self, after: int, metered: int) -> None:
        with self._lock:
            self._metered = max(self._metered, metered)
            while self._entries and self._first <= after:
                self._entries.popleft()
                self._first += 1
        if not self._room.is_set():
            get_runtime().call_soon(self._make_room)

    # -- on the runtime's loop --------------------------------------------------------------------

    def _follow(self, orders: list[Order]) -> None:
        for order in orders:
            match order:
                case Recipe():
                    self._keep(order)
                case Stop(call):
                    self._stop(call)
                case ModelCall() | ToolCall():
                    self._begin(order)
        self._watch_session()

    def _stop(self, call: int) -> None:
        if (task := self._calls.get(call)) is not None:
            self._stopped.add(call)
            task.cancel()

    def _keep(self, recipe: Recipe) -> None:
        self._recipes[recipe.digest] = recipe.pickled
        while len(self._recipes) > 1 and sum(map(len, self._recipes.values())) > MOST_RECIPES:
            del self._recipes[next(iter(self._recipes))]

    def _begin(self, order: ModelCall | ToolCall) -> None:
        recipe = self._recipes.pop(order.recipe, None)
        if recipe is None:
            self._add_entry(order.call, NoRecipe(), is_urgent=True)
            return
        self._recipes[order.recipe] = recipe  # it is the newest now
        task = asyncio.get_running_loop().create_task(self._guarded(order, recipe))
        self._calls[order.call] = task
        task.add_done_callback(partial(self._forget, order))

    def _forget(self, order: ModelCall | ToolCall, task: asyncio.Task[None]) -> None:
        """Forget a call whose task has ended; report it if it was cancelled without an order."""
        call = order.call
        if self._calls.get(call) is task:
            del self._calls[call]
            was_stopped = call in self._stopped
            self._stopped.discard(call)
            if task.cancelled() and not was_stopped:
                self._add_entry(call, failed(WorkerLost(_STOPPED)), is_urgent=True)
            elif task.cancelled() and isinstance(order, ToolCall):
                self._add_entry(call, ToolEnded(), is_urgent=True)
        if not self._calls:
            self._wake()

    async def _guarded(self, order: ModelCall | ToolCall, recipe: bytes) -> None:
        """Carry out an order. Reports any error of a call."""
        try:
            if isinstance(order, ModelCall):
                await self._answer(order, recipe)
            else:
                await self._run_tool(order, recipe)
        except BaseException as error:  # also a `SystemExit`, which would end the loop
            if is_own_cancellation(error):
                raise
            self._add_entry(order.call, failed(error), is_urgent=True)

    def _make_room(self) -> None:
        with self._lock:
            if self._produced - self._metered < MOST_UNREAD:
                self._room.set()

    def _add_entry(self, call: int, item: object, *, is_urgent: bool = False) -> None:
        """Add an entry.

        Raises:
            Exception: It cannot be pickled.
        """
        added = entry(call, item)
        with self._lock:
            self._add_report(call)
            self._entries.append(added)
            self._produced += added[1]
            if self._produced - self._metered >= MOST_UNREAD:
                self._room.clear()
                is_urgent = True
            wakes = is_urgent or len(self._entries) == 1
            self._is_urgent = self._is_urgent or is_urgent
        if wakes:
            self._wake()

    def _report(self, call: int, text: str) -> None:
        """On any thread: keep a tool's report, replacing its last one if that is unread."""
        with self._lock:
            wakes = not self._reports
            self._reports[call] = text
        if wakes:
            self._wake()

    def _add_report(self, call: int) -> None:
        """Make an entry of a call's newest report. To be called with the lock held."""
        if (text := self._reports.pop(call, None)) is not None:
            self._entries.append(entry(call, Report(text)))

    def _wake(self) -> None:
        """Let the session's question be answered."""
        if (reader := self._reader) is not None:
            loop, news = reader
            with suppress(RuntimeError):  # the worker ends
                loop.call_soon_threadsafe(news.set)

    async def _answer(self, order: ModelCall, recipe: bytes) -> None:
        """Call a model, and add its reply to the entries piece by piece."""
        provider = self._provider(order.recipe, recipe)
        if supports_ready(provider):
            await provider.ready()
        async with closing(provider.stream(pickle.loads(order.request))) as stream:
            async for event in stream:
                if type(event) is TextDelta and type(event.text) is str:
                    self._add_entry(order.call, event.text)
                else:
                    self._add_entry(order.call, event)
                if not self._room.is_set():
                    await self._room.wait()
        self._add_entry(order.call, Ended(), is_urgent=True)

    async def _run_tool(self, order: ToolCall, recipe: bytes) -> None:
        context = WorkerContext(
            order.about,
            partial(self._report, order.call),
            lambda: order.call in self._stopped,
        )

        def call() -> Any:  # on a thread: to read a function may import what takes seconds
            function, (positional, named) = pickle.loads(recipe), pickle.loads(order.arguments)
            return function(
                *(context if isinstance(v, ContextHere) else v for v in positional),
                **{k: context if isinstance(v, ContextHere) else v for k, v in named.items()},
            )

        try:
            value = await run_function(call, context)
        finally:
            context.cancelled = True
        self._add_entry(order.call, Result(value), is_urgent=True)

    def _provider(self, digest: str, recipe: bytes) -> Provider:
        if digest not in self._made:
            self._made[digest] = pickle.loads(recipe)()
        return self._made[digest]

    async def check(self, recipe: Recipe) -> str:
        """Why this worker cannot use a provider, in words; empty if it can."""
        try:
            self._keep(recipe)
            provider = self._provider(recipe.digest, recipe.pickled)
            if supports_key_check(provider):
                await provider.check_key()
        except BaseException as error:  # a factory is foreign code
            if is_own_cancellation(error):
                raise
            return in_words(error, limit=1_000) or type(error).__name__
        return ""

    async def close(self) -> None:
        """Close its providers."""
        await close_all(self._made.values())

    def _watch_session(self) -> None:
        """Schedule a check whether the session is silent for too long: its process may be gone."""
        if self._watch is None and self._calls:
            silent_s = self._clock.now() - self._heard_at
            self._watch = self._clock.call_later(SILENCE_S - silent_s, self._wait_for_questions)

    def _wait_for_questions(self) -> None:
        # A tool may have held up this whole process, and the session's questions with it.
        self._watch = self._clock.call_later(_HEAR_S, self._stop_if_silent)

    def _stop_if_silent(self) -> None:
        self._watch = None
        if self._clock.now() - self._heard_at >= SILENCE_S:
            for task in self._calls.values():
                task.cancel()
        else:
            self._watch_session()


class WorkerContext:
    """Implements `agentnb.core.protocols.ToolContext` for a tool that runs on a worker.

    It has no access to the session's process.
    """

    jobs = memory = None

    def __init__(
        self,
        about: Mapping[str, str],
        report: Callable[[str], None],
        is_stopped: Callable[[], bool],
    ) -> None:
        self.agent_id, self.path, self.run_id = about["agent_id"], about["path"], about["run_id"]
        self.cancelled = False
        self._report, self._is_stopped = report, is_stopped

    def __repr__(self) -> str:
        return f"ToolContext(on a worker, agent {self.path})"

    @property
    def workspace(self) -> dict[str, Any]:
        """Not here: raises `RuntimeError`."""
        raise _not_on_workers("workspace")

    @property
    def notes(self) -> dict[str, str]:
        """Not here: raises `RuntimeError`."""
        raise _not_on_workers("notes")

    def report(self, text: str) -> None:
        """See `agentnb.core.protocols.ToolContext`; so is `on_thread`."""
        if not self.cancelled:
            self._report(one_line(str(text)))

    async def on_thread(self, function: Callable[[], T]) -> T:
        """Await a blocking function. If the session stops it, signal that and wait for its end."""
        call = ThreadCall(function)
        call.start()
        try:
            await call.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            try:
                if self._is_stopped():  # else the worker ends, or the session is gone
                    await call.wait()
            finally:
                call.abandon()
            raise
        return call.result()


def _not_on_workers(name: str) -> RuntimeError:
    return RuntimeError(
        f"`context.{name}` is in the session's process, and this tool runs on a worker: name the "
        "tool in `DaskEngine(client, local_tools=[…])`, and it runs in that process."
    )


async def set_within(news: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, but not longer than some seconds."""
    # Not `wait_for`: before Python 3.12 it loses a cancel that comes when the event is set.
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await news.wait()


# -- what Dask calls on the worker ----------------------------------------------------------------

_hosts: dict[str, Host] = {}
"""By the id of their connection."""


def _host(connection: str) -> Host:
    if connection not in _hosts:
        for other, idle in list(_hosts.items()):
            if idle.is_idle(FORGET_S):
                get_runtime().submit(_hosts.pop(other).close())
        _hosts[connection] = Host()
    return _hosts[connection]


async def take(connection: str, number: int, orders: bytes) -> None:
    """See `Host.take`."""
    _host(connection).take(number, orders)


async def entries(connection: str, after: int, metered: int, wait_s: float) -> bytes:
    """See `Host.entries`."""
    return await _host(connection).entries(after, metered, wait_s)


async def its_versions() -> Versions:
    """See `agentnb.cluster.wire.versions`."""
    return versions()


async def check(connection: str, recipe: Recipe) -> str:
    """See `Host.check`."""
    return await asyncio.wrap_future(get_runtime().submit(_host(connection).check(recipe)))
