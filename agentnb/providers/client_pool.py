"""The clients of one provider: one per loop and set of environment variables.

A client belongs to the loop on which it was created. It is replaced when its variables change or
the API rejects its credentials, and closed when its last call has ended.
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
"""The environment variables from which a client is created, sorted."""

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
    """The environment variables that begin with `prefix`, the transport's, and `others`; sorted."""
    names = [
        name
        for name in os.environ
        if name.startswith(prefix) or name in others or name.lower() in _TRANSPORT_VARIABLES
    ]
    return tuple((name, os.environ.get(name, "")) for name in sorted(names))


class Client(Protocol):
    """An SDK's client for one loop and one set of environment variables."""

    calls: int
    """Number of open calls."""
    is_rejected: bool
    """Whether the API refused its credentials."""

    async def close(self) -> None:
        """Close its connections."""
        ...


C = TypeVar("C", bound=Client)


class ClientPool(Generic[C]):
    """Lends clients, and closes those that will not be used again.

    Args:
        make: Creates a client on the running loop.
    """

    def __init__(self, make: Callable[[Settings], C]) -> None:
        self._make = make
        self._clients: dict[_Key, C] = {}
        self._unclosed: list[tuple[asyncio.AbstractEventLoop, C]] = []
        """Clients whose closing was cancelled: they may be half closed, and are not lent again."""
        self._lock = threading.Lock()  # two loops are two threads

    async def aclose(self) -> None:
        """Close the clients of the running loop. A later call creates new ones."""
        running = asyncio.get_running_loop()
        await self._close_where(lambda key, _: key[0] is running)

    async def _close_where(self, is_unwanted: Callable[[_Key, C], bool]) -> None:
        """Close clients one by one: after a cancellation the rest can still be closed."""
        while (client := self._taken(is_unwanted)) is not None:
            await self._close(client)

    def _taken(self, is_unwanted: Callable[[_Key, C], bool]) -> C | None:
        """Remove a client that should be closed from the pool; `None` when there are no more."""
        running = asyncio.get_running_loop()
        with self._lock:
            for key, each in self._clients.items():
                if is_unwanted(key, each):
                    return self._clients.pop(key)
            for number, (loop, _) in enumerate(self._unclosed):
                if loop is running:
                    return self._unclosed.pop(number)[1]
        return None

    async def _close(self, client: C) -> None:
        """Close a client. If that is cancelled, the next `_close_where` closes it."""
        try:
            with contextlib.suppress(Exception):
                await client.close()
        except BaseException:
            with self._lock:
                self._unclosed.append((asyncio.get_running_loop(), client))
            raise

    @contextlib.asynccontextmanager
    async def borrowed(self, settings: Settings) -> AsyncIterator[C]:
        """The running loop's client for these settings, for one call."""
        key = asyncio.get_running_loop(), settings
        with self._lock:
            for gone in [other for other in self._clients if other[0].is_closed()]:
                del self._clients[gone]
            self._unclosed = [each for each in self._unclosed if not each[0].is_closed()]
            if key not in self._clients:
                self._clients[key] = self._make(settings)
            client = self._clients[key]
            client.calls += 1
        try:
            # Other clients of this loop have outdated variables.
            await self._close_where(
                lambda other, old: other[0] is key[0] and other != key and not old.calls
            )
            yield client
        except (MissingKey, AuthenticationFailed):
            # A login may change files that the SDK reads only when a client is made.
            client.is_rejected = True
            with self._lock:
                if self._clients.get(key) is client:
                    del self._clients[key]
            raise
        finally:
            client.calls -= 1
            if client.is_rejected and not client.calls:
                await self._close(client)
