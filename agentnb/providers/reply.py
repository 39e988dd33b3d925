"""A reply that has begun, of whatever API: its bytes read to its end mark, or told why not.

What its events mean is a `Reader`'s to say. Here it is held that nothing is read after the end
mark, that a reply without one is an error, and that it is hung up on however it is left.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from agentnb.core.errors import LlmError
from agentnb.core.types import Stopped, StreamEvent
from agentnb.providers.body import bytes_of
from agentnb.providers.sse import EventLines

if TYPE_CHECKING:
    import httpx2

    from agentnb.providers.error_mapping import ErrorMapping

_PACKED_AT_ONCE = 256
"""Compressed bytes that are read at once: unpacked they are a thousand times as many at most, and
between two readings the loop has its turn."""
_LAST_BYTES_S = 0.05
_BOOKS_S = 5.0


class BrokeOff(Exception):
    """An event says that the server broke off its reply.

    Args:
        said: What stands in it as the error, of whatever shape.
    """

    def __init__(self, said: object) -> None:
        super().__init__(said)
        self.said = said


class Reader(Protocol):
    """Reads the events of one reply into ours."""

    is_complete: bool
    """Whether the end mark was seen: nothing is read after it."""
    is_whole: bool
    """Whether all that is said has come; books may follow."""

    def read(self, data: Mapping[str, Any]) -> Iterable[StreamEvent]:
        """What one event means.

        Raises:
            BadReply: It has the wrong shape, or cannot come where it came.
        """
        ...

    def finish(self) -> Iterable[StreamEvent]:
        """What is left to tell when nothing more comes. Called once."""
        ...

    def stopped(self) -> Stopped | None:
        """The end of the turn; `None` when there was no end mark."""
        ...


class ReplyStream:
    """A reply that has begun.

    Args:
        event_in: The event that stands in the data of one; raises `BadReply` and `BrokeOff`.
    """

    def __init__(
        self,
        response: httpx2.Response,
        reader: Reader,
        event_in: Callable[[str], Mapping[str, Any]],
        errors: ErrorMapping,
    ) -> None:
        self._body = bytes_of(response)
        self._response, self._errors = response, errors
        self._lines = EventLines(response.headers.get("content-encoding", ""))
        self._is_packed = self._lines.is_packed
        self._left = b""
        """What came packed, and was not unpacked yet."""
        self._reader, self._event_in = reader, event_in
        self._newest = ""
        """What was read last and not understood yet."""
        self._books_until_s: float | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the end mark was seen: nothing is read after it."""
        return self._reader.is_complete

    async def read(self) -> bytes:
        """What has come by now, or the next that comes; nothing at the end."""
        if self._is_packed:
            return await self._read_packed()
        if self._reader.is_whole:
            return await self._read_books()
        return await self._body.read()

    async def _read_packed(self) -> bytes:
        """A little of it at a time."""
        if self._left:
            await asyncio.sleep(0)
        elif self._reader.is_whole:
            self._left = await self._read_books()
        else:
            self._left = await self._body.read()
        piece, self._left = self._left[:_PACKED_AT_ONCE], self._left[_PACKED_AT_ONCE:]
        return piece

    async def _read_books(self) -> bytes:
        """What comes after all words have come.

        A server that then keeps the rest to itself, or is lost, takes nothing from them: what may
        be missing is its count, and that can be estimated.
        """
        loop = asyncio.get_running_loop()
        self._books_until_s = self._books_until_s or loop.time() + _BOOKS_S
        with contextlib.suppress(Exception):
            async with asyncio.timeout_at(self._books_until_s):
                return await self._body.read()
        return b""

    def events_in(self, chunk: bytes) -> Iterator[StreamEvent]:
        """What the next bytes of the reply say, to its end mark.

        Raises:
            LlmError: The API says that it broke off.
            BadReply: They are no such reply.
        """
        reader = self._reader
        for newest in self._lines.feed(chunk):
            self._newest = newest
            try:
                data = self._event_in(newest)
            except BrokeOff as error:
                raise self._errors.broke_off(error.said) from None
            yield from reader.read(data)
            self._newest = ""
            if reader.is_complete:
                return

    def last_events(self) -> Iterable[StreamEvent]:
        """What is left to tell when nothing more comes."""
        return self._reader.finish()

    async def end(self) -> Stopped:
        """The end of the turn.

        Raises:
            LlmError: The reply ended without its end mark.
        """
        stopped = self._reader.stopped()
        if stopped is None:
            raise self.broken(None)
        if not self._body.has_ended:
            # With the few bytes that come with the end mark read, too, the connection can be
            # used again. Where they do not come, or are bad, only the connection is lost.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_LAST_BYTES_S):
                    while await self._body.read():
                        pass
        return stopped

    def broken(self, error: Exception | None) -> LlmError:
        """The error for a reply that began and did not end."""
        return self._errors.broken(error, self._response, self._lines.begun, self._newest)

    async def hang_up(self) -> None:
        """Close the connection, unless the whole reply has come."""
        await self._body.aclose()


@contextlib.asynccontextmanager
async def replying(reply: ReplyStream) -> AsyncIterator[ReplyStream]:
    """Errors of a reply are told as ours, and it is hung up on at the end if it goes on."""
    try:
        yield reply
    except LlmError:
        raise
    except Exception as error:  # of the transport, or of the data
        raise reply.broken(error) from error
    finally:
        await reply.hang_up()
