"""A client whose workers are in this process: all of an engine but Dask, in milliseconds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any


class InProcessClient:
    """What `DaskEngine` uses of a `distributed.Client`.

    Args:
        loop: Of a thread of its own, as a client's.
        workers: How many there are.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: int) -> None:
        self.loop = SimpleNamespace(asyncio_loop=loop)
        self.scheduler = self
        self.status = "running"
        self.workers: dict[str, dict[str, Any]] = {}
        """As the scheduler tells of them, by address."""
        self.asked: list[tuple[str, str]] = []
        """Worker and function of each message."""
        for number in range(workers):
            self.add(f"tcp://w{number}")

    def __repr__(self) -> str:
        return "InProcessClient()"

    def add(self, address: str, *, threads: int = 1, status: str = "running") -> None:
        self.workers[address] = {"id": address, "nthreads": threads, "status": status}

    def scheduler_info(self) -> None:
        """It has one, as a client does."""

    async def identity(self, n_workers: int) -> dict[str, Any]:
        self.asked.append(("", "identity"))
        if self.status != "running":
            raise OSError("closed")
        return {"workers": {address: {**about} for address, about in self.workers.items()}}

    async def run(
        self, function: Callable[..., Any], *arguments: Any, workers: list[str]
    ) -> dict[str, Any]:
        (address,) = workers
        self.asked.append((address, function.__name__))
        if address not in self.workers:
            raise OSError("no route")
        return {address: await function(*arguments)}


@contextmanager
def in_process(workers: int = 2) -> Iterator[InProcessClient]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield InProcessClient(loop, workers)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
