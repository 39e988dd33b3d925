"""Sends one reply, step by step, with the faults of the connection."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from tests.loopback import http11
from tests.loopback.said import Act, Cut, Dialect, Drip, Reply, Step, encoded

_GZIP = 16 + zlib.MAX_WBITS
_DRIPS_TO_COUNT = 3
_DRIP_PAUSE_S = 0.002
"""So that a drip does not use a whole processor. Nothing depends on the time."""


class Sender:
    """Sends one reply.

    Args:
        stall: Waits until a test ends all stalls.
        hold: Waits until a test sets this event.
    """

    def __init__(
        self,
        writer: asyncio.StreamWriter,
        dialect: Dialect,
        *,
        stall: Callable[[], Awaitable[None]],
        hold: Callable[[threading.Event], Awaitable[None]],
    ) -> None:
        self._writer = writer
        self._dialect = dialect
        self._stall = stall
        self._hold = hold

    async def send(self, reply: Reply, asked: Mapping[str, Any], *, number: int) -> bool:
        """Answer `asked`, the server's request of this `number`.

        Returns:
            Whether the connection can take another request.
        """
        for step in reply.before:
            if not await self._take(step, bytes):
                return False
        headers = {"request-id": f"req_{number}", **reply.headers}
        if reply.body is not None or reply.status != 200:
            self._writer.write(_whole_response(reply, headers, self._dialect))
            await self._writer.drain()
            return True
        return await self._stream(reply, headers, self._dialect.steps(reply, asked, number=number))

    async def _stream(
        self, reply: Reply, headers: Mapping[str, str], steps: Iterator[Step]
    ) -> bool:
        coding = zlib.compressobj(wbits=_GZIP) if reply.is_gzipped else None
        head = {"content-type": "text/event-stream; charset=utf-8", **headers}
        if coding:
            head["content-encoding"] = "gzip"
        head["transfer-encoding"] = "chunked"

        def chunk(content: bytes) -> bytes:
            if coding:
                content = coding.compress(content) + coding.flush(zlib.Z_SYNC_FLUSH)
            return http11.chunk(content)

        unsent = http11.response_head(200, head)
        for step in steps:
            self._writer.write(unsent)
            await self._writer.drain()
            unsent = b""
            match step:
                case bytes():
                    unsent = chunk(step)
                case (_, _):
                    unsent = chunk(encoded(step, reply.line_end))
                case _:
                    if not await self._take(step, chunk):
                        return False
        # In one piece, so that a client that gets the last event also gets the end.
        end = http11.chunk(coding.flush()) if coding else b""
        self._writer.write(unsent + end + http11.LAST_CHUNK)
        await self._writer.drain()
        return True

    async def _take(self, step: Step, framed: Callable[[bytes], bytes]) -> bool:
        """Do a step that is not an event; return false if the connection is gone."""
        match step:
            case bytes():
                self._writer.write(framed(step))
                await self._writer.drain()
            case threading.Event():
                await self._hold(step)
            case Act.STALL:
                await self._stall()
            case Drip(content):
                await self._drip(lambda: framed(content))
            case Cut(content):
                self._writer.write(f"{len(content) + 1:x}\r\n".encode() + content)
                return False
            case Act.HANG_UP:
                return False
            case Act.RESET:
                connection = self._writer.get_extra_info("socket")
                no_waiting = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_waiting)
                self._writer.transport.abort()
                return False
        return True

    async def _drip(self, drop: Callable[[], bytes]) -> None:
        for _ in range(_DRIPS_TO_COUNT):
            await self._drop(drop())
        stalled = asyncio.ensure_future(self._stall())
        try:
            while not stalled.done():
                await self._drop(drop())
        finally:
            stalled.cancel()

    async def _drop(self, content: bytes) -> None:
        self._writer.write(content)
        await self._writer.drain()
        await asyncio.sleep(_DRIP_PAUSE_S)


def _whole_response(reply: Reply, headers: Mapping[str, str], dialect: Dialect) -> bytes:
    head = {"content-type": "application/json", **headers}
    body = reply.body
    if body is None and head["content-type"] == "application/json":
        error = dialect.error_body(reply.status, reply.error_type, reply.message)
        body = json.dumps(error).encode()
    if body is None:
        body = reply.message.encode()
    return http11.whole_response(reply.status, head, body)
