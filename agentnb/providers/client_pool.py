"""The clients of one provider: one for each loop and each set of environment variables.

A client belongs to the loop on which it was made. It is replaced when the variables that it was
made from have changed, or when the API did not take its credentials, and closed when its last
call has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable
from typing import Generic, Protocol, TypeVar

from agentnb.core.errors import AuthenticationFailed, MissingKey

Settings = tuple[tuple[str, str], ...]
"""The environment variables that a client is made from, sorted."""

_TRANSPORT_VARIABLES = (
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "ssl_cert_dir",
    "ssl_cert_file",
)
_Key = tuple[asyncio.AbstractEventLoop, Settings]


def settings_of(prefix: str, *others: str) -> Settings:
    """The variables that an SDK reads, whose names begin so, those of the transport, and others."""
    names = [
        name
        for name in os.environ
        if name.startswith(prefix) or name in others or name.lower() in _TRANSPORT_VARIABLES
    ]
    return tuple((name, os.environ.get(name, "")) for name in sorted(names))


class Client(Protocol):
    """An SDK's client for one loop and one set of environment variables."""

    calls: int
    """How many are open."""
    is_rejected: bool

    async def close(self) -> None:
        """Close its connections."""
        ...


C = TypeVar("C", bound=Client)


class ClientPool(Generic[C]):
    """Lends clients, and closes those that nobody will want again.

    Args:
        make: Makes one, on the loop that it will belong to.
    """

    def __init__(self, make: Callable[[Settings], C]) -> None:
        self._make = make
        self._clients: dict[_Key, C] = {}
        self._left: list[tuple[asyncio.AbstractEventLoop, C]] = []
        """Those whose closing was cancelled: they may be half closed, and are not lent again."""
        self._lock = threading.Lock()  # two loops are two threads

    async def aclose(self) -> None:
        """Close what was opened on the running loop. A later call opens it anew."""
        running = asyncio.get_running_loop()
        await self._close_where(lambda key, _: key[0] is running)

    async def _close_where(self, is_unwanted: Callable[[_Key, C], bool]) -> None:
        """Close clients one by one: those that a cancel leaves are still there to be closed."""
        while (client := self._taken(is_unwanted)) is not None:
            await self._close(client)

    def _taken(self, is_unwanted: Callable[[_Key, C], bool]) -> C | None:
        """A client that is to be closed, out of the pool's hands; `None` when there is no more."""
        running = asyncio.get_running_loop()
        with self._lock:
            for key, each in self._clients.items():
                if is_unwanted(key, each):
                    return self._clients.pop(key)
            for number, (loop, _) in enumerate(self._left):
                if loop is running:
                    return self._left.pop(number)[1]
        return None

    async def _close(self, client: C) -> None:
        """Close a client that was taken. If a cancel comes between, it is left to the next one."""
        try:
            with contextlib.suppress(Exception):
                await client.close()
        except BaseException:
            with self._lock:
                self._left.append((asyncio.get_running_loop(), client))
            raise

    @contextlib.asynccontextmanager
    async def borrowed(self, settings: Settings) -> AsyncIterator[C]:
        """The running loop's client for these settings, for one call."""
        key = asyncio.get_running_loop(), settings
        with self._lock:
            for gone in [other for other in self._clients if other[0].is_closed()]:
                del self._clients[gone]
            self._left = [each for each in self._left if not each[0].is_closed()]
            if key not in self._clients:
                self._clients[key] = self._make(settings)
            client = self._clients[key]
            client.calls += 1
        try:
            # Of others, the variables that they were made from have changed.
            await self._close_where(
                lambda other, old: other[0] is key[0] and other != key and not old.calls
            )
            yield client
        except (MissingKey, AuthenticationFailed):
            # A login may also change files that the SDK reads once, when a client is made.
            client.is_rejected = True
            with self._lock:
                if self._clients.get(key) is client:
                    del self._clients[key]
            raise
        finally:
            client.calls -= 1
            if client.is_rejected and not client.calls:
                await self._close(client)
