"""Calls to a server that cuts an open reply short when the next request comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from agentnb.providers.servers import Server


class Turns:
    """The open calls of one client, on one loop.

    llama-cpp-python, as it comes, ends an open stream without a reason when another request
    arrives. Once a server was seen to do so, calls to it wait for each other: before they begin,
    so that the wait takes nothing of their time.
    """

    def __init__(self) -> None:
        self._open = 0
        self._ended = asyncio.Event()
        """Set when a call has ended."""

    async def free(self, server: Server) -> None:
        """Wait until a call may begin.

        Args:
            server: What its replies have shown.
        """
        while self._open >= server.at_once:
            self._ended.clear()
            await self._ended.wait()

    @contextlib.asynccontextmanager
    async def one(self, server: Server) -> AsyncIterator[None]:
        """Hold a call open; waits as `free` if another has begun since."""
        await self.free(server)
        self._open += 1
        server.begun, server.open = server.begun + 1, server.open + 1
        try:
            yield
        finally:
            server.open -= 1
            self._open -= 1
            self._ended.set()
