"""A worker's end: does what a session orders, and tells what comes of it.

The functions at the end are run on the worker by Dask, on its own loop; the calls themselves are
tasks on agentnb's runtime loop, so that a slow one never delays Dask's heartbeat.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from agentnb.cluster.wire import (
    GATHER_S,
    MOST_UNREAD,
    SILENCE_S,
    ContextHere,
    Ended,
    Entries,
    Entry,
    ModelCall,
    Order,
    Recipe,
    Report,
    Result,
    Stop,
    ToolCall,
    Versions,
    failed,
    text_size,
    versions,
)
from agentnb.core.errors import StreamBroken, in_words
from agentnb.core.protocols import Provider, closing, supports_key_check, supports_ready
from agentnb.core.text import one_line
from agentnb.core.threads import ThreadCall
from agentnb.core.types import TextDelta
from agentnb.runtime import get_runtime
from agentnb.tools.function import run_function

T = TypeVar("T")

_IDLE_POLL_S = 0.05
"""How long a question waits for an entry while no call is open: its order may be on the way."""


class Host:
    """All that one worker does for one link of a session.

    Its public methods are called on the worker's own loop, everything else on the runtime's.
    """

    def __init__(self) -> None:
        self._recipes: dict[str, bytes] = {}
        self._made: dict[str, Any] = {}
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._taken = 0
        """Number of the newest message of orders."""
        self._lock = threading.Lock()
        """Around the entries, which two loops use."""
        self._entries: deque[Entry] = deque()
        self._first = 1
        """Number of the first entry that is kept."""
        self._said = self._read = 0
        """Bytes of replies so far: those that were said, and those that the session has metered."""
        self._reader: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._is_urgent = False
        """Whether an entry should not wait for others."""
        self._room = asyncio.Event()
        self._room.set()
        self._heard_at = monotonic()
        self._watch: asyncio.Task[None] | None = None

    # -- on the worker's loop ---------------------------------------------------------------------

    def take(self, number: int, orders: bytes) -> None:
        """Take a message of orders; one that comes again is ignored."""
        self._heard_at = monotonic()
        if number > self._taken:
            self._taken = number
            get_runtime().call_soon(partial(self._do, pickle.loads(orders)))

    async def entries(self, after: int, read: int, wait_s: float) -> bytes:
        """The entries behind `after`, once there are any; those before are dropped.

        Args:
            after: The number of the newest entry that the session has.
            read: Bytes of replies that it has metered so far.
            wait_s: How long to wait for an entry.
        """
        self._heard_at = monotonic()
        self._drop(after, read)
        news = asyncio.Event()
        self._reader = asyncio.get_running_loop(), news
        if not self._entries:
            await _set_within(news, wait_s if self._calls else _IDLE_POLL_S)
        if self._entries and not self._is_urgent:
            news.clear()
            await _set_within(news, GATHER_S)
        with self._lock:
            if self._reader is not None and self._reader[1] is news:
                self._reader = None
            self._is_urgent = False
            return pickle.dumps(Entries(self._first, tuple(self._entries)))

    def stop_all(self) -> None:
        """Stop all calls: the session does not want them any more."""
        get_runtime().call_soon(self._stop_all)

    def _drop(self, after: int, read: int) -> None:
        with self._lock:
            self._read = max(self._read, read)
            while self._entries and self._first <= after:
                self._entries.popleft()
                self._first += 1
        if not self._room.is_set():
            get_runtime().call_soon(self._make_room)

    # -- on the runtime's loop --------------------------------------------------------------------

    def _do(self, orders: list[Order]) -> None:
        if self._watch is None or self._watch.done():
            self._watch = asyncio.get_running_loop().create_task(self._watch_session())
        for order in orders:
            match order:
                case Recipe(digest, pickled):
                    self._recipes[digest] = pickled
                case ModelCall():
                    self._begin(order.call, self._answer(order))
                case ToolCall():
                    self._begin(order.call, self._run_tool(order))
                case Stop(call):
                    if call in self._calls:
                        self._calls[call].cancel()

    def _begin(self, call: int, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._guarded(call, work))
        self._calls[call] = task
        task.add_done_callback(lambda _: self._forget(call))

    def _forget(self, call: int) -> None:
        del self._calls[call]
        if not self._calls:
            self._wake()

    async def _guarded(self, call: int, work: Coroutine[Any, Any, None]) -> None:
        """A call's error is said, whatever it is; that of a call that was stopped is not."""
        task = asyncio.current_task()
        assert task is not None
        try:
            await work
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and task.cancelling():
                return
            self._say(call, failed(error), is_urgent=True)

    def _make_room(self) -> None:
        with self._lock:
            if self._said - self._read < MOST_UNREAD:
                self._room.set()

    def _say(self, call: int, item: object, *, is_urgent: bool = False) -> None:
        with self._lock:
            self._entries.append((call, item))
            self._said += text_size(item)
            if self._said - self._read >= MOST_UNREAD:
                self._room.clear()
                is_urgent = True
            wakes = is_urgent or len(self._entries) == 1
            self._is_urgent = self._is_urgent or is_urgent
        if wakes:
            self._wake()

    def _wake(self) -> None:
        """Let the session's question be answered."""
        if (reader := self._reader) is not None:
            loop, news = reader
            loop.call_soon_threadsafe(news.set)

    async def _answer(self, order: ModelCall) -> None:
        """Make a call to a model, and say its reply piece by piece."""
        provider = self._provider(order.recipe)
        if supports_ready(provider):
            await provider.ready()
        async with closing(provider.stream(order.request)) as stream:
            async for event in stream:
                item = event.text if isinstance(event, TextDelta) else event
                self._say(order.call, item)
                if not self._room.is_set():
                    await self._room.wait()
        self._say(order.call, Ended(), is_urgent=True)

    async def _run_tool(self, order: ToolCall) -> None:
        function = self._make(order.recipe)
        context = WorkerContext(order.about, partial(self._say, order.call))
        try:
            positional, named = pickle.loads(order.arguments)
            positional = [context if isinstance(v, ContextHere) else v for v in positional]
            named = {k: context if isinstance(v, ContextHere) else v for k, v in named.items()}
            value = await run_function(partial(function, *positional, **named), context)
        finally:
            context.cancelled = True
        self._say(order.call, Result(value), is_urgent=True)

    def _provider(self, digest: str) -> Provider:
        if digest not in self._made:
            self._made[digest] = self._make(digest)()
        made: Provider = self._made[digest]
        return made

    def _make(self, digest: str) -> Any:
        pickled = self._recipes.get(digest)
        if pickled is None:  # this process is not the one that was told
            raise StreamBroken("The worker was started anew in the middle of a call.")
        return pickle.loads(pickled)

    async def check(self, recipe: Recipe) -> None:
        """Raise what keeps this worker from using a provider.

        Raises:
            Exception: It cannot be made here, or has no key.
        """
        self._recipes[recipe.digest] = recipe.pickled
        provider = self._provider(recipe.digest)
        if supports_key_check(provider):
            await provider.check_key()

    async def _watch_session(self) -> None:
        """Stop everything if the session asks nothing for long: its process may be gone."""
        while self._calls:
            await asyncio.sleep(1.0)
            if monotonic() - self._heard_at > SILENCE_S:
                self._stop_all()
                return

    def _stop_all(self) -> None:
        for task in list(self._calls.values()):
            task.cancel()


class WorkerContext:
    """Implements `agentnb.core.protocols.ToolContext` for a tool that runs on a worker.

    What belongs to the session's process is not here.
    """

    jobs = memory = None

    def __init__(self, about: Mapping[str, str], say: Callable[..., None]) -> None:
        self.agent_id, self.path, self.run_id = about["agent_id"], about["path"], about["run_id"]
        self.cancelled = False
        self._say = say
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"ToolContext(on a worker, agent {self.path})"

    @property
    def workspace(self) -> dict[str, Any]:
        """Not here: raises `RuntimeError`."""
        raise _stays("workspace")

    @property
    def notes(self) -> dict[str, str]:
        """Not here: raises `RuntimeError`."""
        raise _stays("notes")

    def report(self, text: str) -> None:
        """See `agentnb.core.protocols.ToolContext`; so is `on_thread`."""
        if not self.cancelled:
            self._say(Report(one_line(str(text))))

    async def on_thread(self, function: Callable[[], T]) -> T:
        """Await a blocking function; one that is cancelled is told so, and abandoned."""
        call = ThreadCall(function)
        call.start()
        try:
            await call.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            call.abandon()
            raise
        return call.result()


def _stays(name: str) -> RuntimeError:
    return RuntimeError(
        f"`context.{name}` is in the session's process, and this tool runs on a worker: name the "
        "tool in `DaskEngine(client, here=[…])`, and it runs in that process."
    )


async def _set_within(news: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(news.wait(), seconds)


# -- what Dask calls on the worker ----------------------------------------------------------------

_hosts: dict[str, Host] = {}
"""By the id of their link."""


def _host(link: str) -> Host:
    return _hosts.setdefault(link, Host())


async def take(link: str, number: int, orders: bytes) -> None:
    """See `Host.take`."""
    _host(link).take(number, orders)


async def entries(link: str, after: int, read: int, wait_s: float) -> bytes:
    """See `Host.entries`."""
    return await _host(link).entries(after, read, wait_s)


async def stop_all(link: str) -> None:
    """See `Host.stop_all`."""
    _host(link).stop_all()


async def its_versions() -> Versions:
    """See `agentnb.cluster.wire.versions`."""
    return versions()


async def check(link: str, recipe: Recipe) -> str:
    """Why this worker cannot use a provider, in words; empty if it can."""
    work = get_runtime().submit(_host(link).check(recipe))
    try:
        await asyncio.wrap_future(work)
    except Exception as error:  # a factory is foreign code
        return in_words(error, limit=1_000) or type(error).__name__
    return ""
