"""A reply's bytes, read from the connection (aiohttp) or through the HTTP client's layers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import httpx2

BODY = "agentnb.body"
"""Key in a response's extensions for a body that is read directly from the connection."""


class ReplyBody(Protocol):
    """The body of one reply."""

    @property
    def has_ended(self) -> bool:
        """Whether the whole body has arrived: its connection is free for another request."""
        ...

    async def read(self) -> bytes:
        """Return the bytes that have arrived, or wait for the next; empty at the end.

        Raises:
            httpx2.TransportError: The connection broke, or was silent for too long.
        """
        ...

    async def aclose(self) -> None:
        """Close the connection, unless the whole reply has arrived."""
        ...


class LayeredBody:
    """A body read through the client's layers: used without aiohttp."""

    def __init__(self, response: httpx2.Response) -> None:
        self.has_ended = False
        self._response = response
        self._chunks = response.aiter_raw()

    async def read(self) -> bytes:
        """Return the next bytes; empty at the end."""
        chunk = await anext(self._chunks, b"")
        self.has_ended = not chunk
        return chunk

    async def aclose(self) -> None:
        """Close the connection, unless the whole reply has arrived."""
        # The loop would close unfinished generators of the transport in tasks of its own, after
        # this call. With the response closed they run to their end here.
        with contextlib.suppress(Exception):
            await self._response.aclose()
            async for _ in self._chunks:
                pass


def bytes_of(response: httpx2.Response) -> ReplyBody:
    """The body of a reply."""
    body: ReplyBody | None = response.extensions.get(BODY)
    return body or LayeredBody(response)
