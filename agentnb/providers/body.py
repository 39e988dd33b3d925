"""The bytes of a reply, read where they arrive or through the layers of the client."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import httpx2

BODY = "agentnb.body"
"""The name among a response's extensions of its body, if it is read where its bytes arrive."""


class ReplyBody(Protocol):
    """The body of one reply."""

    @property
    def has_ended(self) -> bool:
        """Whether all of it has come: its connection is free for another request."""
        ...

    async def read(self) -> bytes:
        """Return what has come by now, or the next that comes; nothing at the end.

        Raises:
            httpx2.TransportError: The connection broke, or was silent for too long.
        """
        ...

    async def aclose(self) -> None:
        """Hang up, unless the whole reply has come."""
        ...


class LayeredBody:
    """A body that comes through the layers of the client: where aiohttp is not below it."""

    def __init__(self, response: httpx2.Response) -> None:
        self.has_ended = False
        self._response = response
        self._chunks = response.aiter_raw()

    async def read(self) -> bytes:
        """What came next; nothing at the end."""
        chunk = await anext(self._chunks, b"")
        self.has_ended = not chunk
        return chunk

    async def aclose(self) -> None:
        """Hang up, unless the whole reply has come."""
        # Generators of the transport that are left in the middle would be closed by tasks of the
        # loop's own, after this call. A closed response lets them come to their end.
        with contextlib.suppress(Exception):
            await self._response.aclose()
            async for _ in self._chunks:
                pass


def bytes_of(response: httpx2.Response) -> ReplyBody:
    """The body of a reply that began."""
    body: ReplyBody | None = response.extensions.get(BODY)
    return body or LayeredBody(response)
