"""Reads a reply that has begun, of any API, to its end mark.

A `Reader` gives its events their meaning. This module ensures that nothing is read after the end
mark, that a reply without one is an error, and that the connection is always closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from agentnb.core.errors import LlmError
from agentnb.core.types import Stopped, StreamEvent
from agentnb.providers.body import bytes_of
from agentnb.providers.sse import EventLines
from agentnb.providers.thinking_in_text import ThinkingFilter

if TYPE_CHECKING:
    import httpx2

    from agentnb.providers.error_mapping import ErrorMapping

_PACKED_AT_ONCE = 256
"""Compressed bytes that are read at once. They unpack to at most a thousand times as many; other
tasks of the loop run between two reads."""
_LAST_BYTES_S = 0.05
_USAGE_S = 5.0


class BrokeOff(Exception):
    """An event says that the server broke off its reply.

    Args:
        said: The error in the event, of any shape.
    """

    def __init__(self, said: object) -> None:
        super().__init__(said)
        self.said = said


class Reader(Protocol):
    """Reads the events of one reply into ours."""

    is_complete: bool
    """Whether the end mark was seen: nothing is read after it."""
    is_whole: bool
    """Whether the whole message has arrived; a usage count may follow."""

    def read(self, data: Mapping[str, Any]) -> Sequence[StreamEvent]:
        """Translate one event.

        Raises:
            BadReply: The event has the wrong shape, or came at the wrong place.
        """
        ...

    def finish(self) -> Iterable[StreamEvent]:
        """The last events, when the stream has ended. Called once."""
        ...

    def stopped(self) -> Stopped | None:
        """The end of the turn; `None` without an end mark."""
        ...


class ReplyStream:
    """A reply that has begun.

    Args:
        event_in: Parses an event's data; raises `BadReply` and `BrokeOff`.
        split: Tells thinking in the text from the answer.
        note: What is to be known of the request that it answers, as a sentence.
        on_end: Called when the reply has ended whole.
    """

    def __init__(
        self,
        response: httpx2.Response,
        reader: Reader,
        event_in: Callable[[str], Mapping[str, Any]],
        errors: ErrorMapping,
        split: ThinkingFilter,
        note: str = "",
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._split, self._note, self._on_end = split, note, on_end
        self._stopped: Stopped | None = None
        self._body = bytes_of(response)
        self._response, self._errors = response, errors
        self._lines = EventLines(response.headers.get("content-encoding", ""))
        self._is_packed = self._lines.is_packed
        self._left = b""
        """Compressed bytes that were not unpacked yet."""
        self._reader, self._event_in = reader, event_in
        self._newest = ""
        """The event being read, for an error to quote."""
        self._usage_until_s: float | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the end mark was seen: nothing is read after it."""
        return self._reader.is_complete

    async def read(self) -> bytes:
        """Return the bytes that have arrived, or wait for the next; empty at the end."""
        if self._is_packed:
            return await self._read_packed()
        if self._reader.is_whole:
            return await self._read_usage()
        return await self._body.read()

    async def _read_packed(self) -> bytes:
        """Return a few compressed bytes at a time."""
        if self._left:
            await asyncio.sleep(0)
        elif self._reader.is_whole:
            self._left = await self._read_usage()
        else:
            self._left = await self._body.read()
        piece, self._left = self._left[:_PACKED_AT_ONCE], self._left[_PACKED_AT_ONCE:]
        return piece

    async def _read_usage(self) -> bytes:
        """Read what follows a whole message: its usage.

        Errors and silence end the reply without harm: a missing usage can be estimated.
        """
        loop = asyncio.get_running_loop()
        self._usage_until_s = self._usage_until_s or loop.time() + _USAGE_S
        with contextlib.suppress(Exception):
            async with asyncio.timeout_at(self._usage_until_s):
                return await self._body.read()
        return b""

    def events_in(self, chunk: bytes) -> Iterator[StreamEvent]:
        """The events in the next bytes of the reply, to its end mark.

        Raises:
            LlmError: The server broke off its reply.
            BadReply: The bytes are not a reply.
        """
        reader = self._reader
        for newest in self._lines.feed(chunk):
            self._newest = newest
            try:
                data = self._event_in(newest)
            except BrokeOff as error:
                raise self._errors.broke_off(error.said) from None
            events = reader.read(data)
            yield from events if self._split.is_done else self._split.told_apart(events)
            self._newest = ""
            if reader.is_complete:
                return

    def last_events(self) -> Iterator[StreamEvent]:
        """The last events, when the stream has ended."""
        yield from self._split.told_apart([*self._reader.finish()])
        if (stopped := self._reader.stopped()) is not None:
            yield from self._split.end(stopped.reason)
            stopped = self._split.stopped(stopped)
            if stopped.reason != "refusal":  # its note is the error
                notes = filter(None, (self._note, stopped.note))
                stopped = replace(stopped, note=" ".join(notes))
            self._stopped = stopped

    async def end(self) -> Stopped:
        """The end of the turn, after `last_events`.

        Raises:
            LlmError: The reply ended without its end mark.
        """
        stopped = self._stopped
        if stopped is None:
            raise self.broken(None)
        self._on_end()
        if not self._body.has_ended:
            # Reading the few bytes after the end mark keeps the connection usable. If they are
            # late or bad, only the connection is lost.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_LAST_BYTES_S):
                    while await self._body.read():
                        pass
        return stopped

    def broken(self, error: Exception | None) -> LlmError:
        """The error for a reply that began and did not end."""
        return self._errors.broken(error, self._response, self._lines.begun, self._newest)

    async def hang_up(self) -> None:
        """Close the connection, unless the whole reply has arrived."""
        await self._body.aclose()


@contextlib.asynccontextmanager
async def replying(reply: ReplyStream) -> AsyncIterator[ReplyStream]:
    """Translate a reply's errors to `LlmError`, and close its connection at the end."""
    try:
        yield reply
    except LlmError:
        raise
    except Exception as error:  # of the transport, or of the data
        raise reply.broken(error) from error
    finally:
        await reply.hang_up()
