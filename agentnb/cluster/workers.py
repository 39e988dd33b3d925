"""The workers of a cluster: which exist, which can be used, and which is the least busy.

It runs on the Dask client's own loop, in another thread; `on_loop` runs work there.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from agentnb.cluster import host
from agentnb.cluster.connection import Connection
from agentnb.cluster.wire import Recipe, versions
from agentnb.core.cancel import is_own_cancellation, shielded
from agentnb.core.errors import ClusterFailed, in_words
from agentnb.core.shown import listed

T = TypeVar("T")

LOOK_S = 1.0
"""How old the list of workers may be."""
_CLOSED = "The Dask client is closed: make a new one, and a new `DaskEngine` with it."
LOST_FOR_S = 30.0
"""How long a worker that could not be reached is not used, if the scheduler still lists it."""


class Worker(NamedTuple):
    """A worker that the scheduler knows."""

    connection: Connection
    threads: int
    takes_work: bool
    """False if it is paused, or about to end."""


class Workers:
    """The workers of one client's cluster, for one engine.

    Args:
        client: A `distributed.Client`.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._pid = os.getpid()
        self._there: Mapping[str, Worker] = {}
        """The workers at the last look, by address."""
        self._looked_at = -LOOK_S
        self._looking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._lock = threading.Lock()
        """Around what is counted: runs may be on several loops."""
        self._attempts = 0
        self._fit: dict[tuple[Connection, str], asyncio.Task[str]] = {}

    # -- on any loop ------------------------------------------------------------------------------

    async def on_loop(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await something on the client's loop.

        Raises:
            ClusterFailed: That loop has ended, or is another process's.
        """
        if os.getpid() != self._pid:
            raise ClusterFailed(
                "The Dask client belongs to the process that this one was forked from: make a new "
                "one, and a new `DaskEngine` with it."
            )
        begun = _wrapped(work)
        try:
            future = asyncio.run_coroutine_threadsafe(begun, self._client.loop.asyncio_loop)
        except RuntimeError:
            begun.close()
            raise ClusterFailed(_CLOSED) from None
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError as error:
            if is_own_cancellation(error):
                raise
            raise ClusterFailed(_CLOSED) from None  # that loop ended meanwhile

    async def refresh(self) -> None:
        """Update the list of workers, unless it is less than `LOOK_S` old.

        Raises:
            ClusterFailed: The scheduler cannot be reached.
        """
        if monotonic() - self._looked_at > LOOK_S:
            await self.on_loop(self._look)

    def least_busy(self) -> Connection | None:
        """The worker with the fewest attempts for its threads; `None` if there is none."""
        usable = [
            each for each in self._there.values() if each.takes_work and not each.connection.lost
        ]
        best = min(usable, key=lambda each: each.connection.attempts / each.threads, default=None)
        return None if best is None else best.connection

    def begin_attempt(self, connection: Connection) -> None:
        """Count an attempt on a worker. While any attempt runs, lost workers are looked for."""
        with self._lock:
            connection.attempts += 1
            self._attempts += 1
            is_first = self._attempts == 1  # the watching task may be ending, as it saw none
        if is_first or self._watching is None or self._watching.done():
            with suppress(RuntimeError):  # the client is closed: the connection finds that out, too
                self._client.loop.asyncio_loop.call_soon_threadsafe(self._begin_to_watch)

    def end_attempt(self, connection: Connection) -> None:
        """Undo `begin_attempt`, when the attempt has ended or leaves the worker."""
        with self._lock:
            connection.attempts -= 1
            self._attempts -= 1

    async def check_all(self, recipes: Sequence[Recipe]) -> None:
        """Check that every worker can be used, and can make providers.

        Raises:
            ClusterFailed: One cannot; the message names it.
        """
        usable = [each.connection for each in self._there.values() if each.takes_work]
        await asyncio.gather(*(self.check(connection, recipes) for connection in usable))

    async def check(self, connection: Connection, recipes: Sequence[Recipe]) -> bool:
        """Check that a worker can be used, and can make providers.

        Args:
            connection: The worker.
            recipes: The recipes of the providers.

        Returns:
            False if it is lost, so that another one should be used.

        Raises:
            ClusterFailed: It cannot; the message names it.
        """
        needed = (None, *recipes)
        if not all(self._is_fit(connection, recipe) for recipe in needed):
            for recipe in needed:
                if connection.lost:
                    break
                if why := await self.on_loop(partial(self._unfit, connection, recipe)):
                    raise ClusterFailed(why)
        return not connection.lost

    # -- on the client's loop ---------------------------------------------------------------------

    def _begin_to_watch(self) -> None:
        if self._watching is None or self._watching.done():
            self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while self._attempts:
            try:
                await self._look()
            except ClusterFailed:  # all workers are lost now, which fails the attempts' calls
                return
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        """Read the list of workers; concurrent callers share one reading."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._read())
        await shielded(self._looking)

    async def _read(self) -> None:
        try:
            known = await self._client.scheduler.identity(n_workers=-1)
        except Exception as error:  # of Dask or of the network
            for each in self._there.values():
                each.connection.lose("the scheduler does not answer")
            self._there = {}
            raise ClusterFailed(
                f"The Dask scheduler cannot be reached ({in_words(error) or type(error).__name__}):"
                " make a new client, and a new `DaskEngine` with it."
            ) from None
        there: dict[str, Worker] = {}
        for address, about in known["workers"].items():
            connection = self._there[address].connection if address in self._there else None
            if connection is None or (
                connection.lost and monotonic() - connection.lost_at > LOST_FOR_S
            ):
                connection = Connection(address, self._asker(address), asyncio.get_running_loop())
            threads, status = max(1, int(about["nthreads"])), about.get("status", "running")
            there[address] = Worker(connection, threads, takes_work=status == "running")
        for address, each in self._there.items():
            if address not in there:
                each.connection.lose("the scheduler no longer knows it")
        self._there = there
        connections = {each.connection for each in there.values()}
        self._fit = {key: fit for key, fit in self._fit.items() if key[0] in connections}
        self._looked_at = monotonic()

    def _asker(self, address: str) -> Callable[..., Awaitable[Any]]:
        async def ask(function: Callable[..., Any], *arguments: Any) -> Any:
            found = await self._client.run(function, *arguments, workers=[address])
            return found[address]

        return ask

    def _is_fit(self, connection: Connection, recipe: Recipe | None) -> bool:
        found = self._fit.get((connection, "" if recipe is None else recipe.digest))
        if found is None or not found.done() or found.cancelled():
            return False
        return found.exception() is None and not found.result()

    async def _unfit(self, connection: Connection, recipe: Recipe | None) -> str:
        """Why a worker cannot be used, in one sentence; empty if it can. Asked once.

        Args:
            connection: The worker.
            recipe: Of a provider that it has to make; `None` for what holds for every run.
        """
        key = connection, "" if recipe is None else recipe.digest
        if key not in self._fit:
            self._fit[key] = asyncio.get_running_loop().create_task(
                self._complaint(connection, recipe)
            )
        try:
            why = await shielded(self._fit[key])
        except ClusterFailed:
            self._fit.pop(key, None)
            raise
        if why:
            self._fit.pop(key, None)  # it may be mended before the next run
        return why

    async def _complaint(self, connection: Connection, recipe: Recipe | None) -> str:
        """Why a worker cannot be used; empty if it can, or is lost."""
        try:
            if recipe is None:
                return _difference(connection.worker, await connection.ask(host.its_versions))
            why = await connection.check(recipe)
        except Exception as error:  # of Dask, of the network
            # Dask hands on what kept the function from being read, as it is or in words.
            if "No module named 'agentnb" in str(error):
                return (
                    f"The worker {connection.worker} has no agentnb: install version "
                    f"{versions().agentnb} where the workers run, from the folder or the file of "
                    "this one."
                )
            await self._look()  # it may be gone since the last look
            why = in_words(error) or type(error).__name__
            connection.lose(why)
            return ""
        return why and f"The worker {connection.worker} cannot be used: {why}"


async def _wrapped(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return await work()


def _difference(worker: str, found: Sequence[str]) -> str:
    """The packages whose versions differ on a worker; empty if none."""
    differ = [
        f"{name} {there} and this session {here}"
        for name, there, here in zip(("Python", "agentnb"), found, versions(), strict=True)
        if there != here
    ]
    return (
        f"The worker {worker} has {listed(differ)}: give both the same version." if differ else ""
    )
