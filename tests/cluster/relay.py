"""Providers of a test's process, called from workers: the calls go out there, and come back here.

So any script of the tests can answer a run whose calls are made on a cluster.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
import threading
from collections.abc import AsyncIterator
from functools import cache, partial
from hashlib import sha256
from itertools import count

from agentnb.cluster.wire import Recipe
from agentnb.core.protocols import Provider, closing
from agentnb.core.types import CompletionRequest, StreamEvent

_END = b""


def _packed(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


async def _unpacked(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack(">I", await reader.readexactly(4))
    return await reader.readexactly(length)


class Relayed:
    """In a worker: asks the process of the tests."""

    def __init__(self, port: int, number: int, name: str) -> None:
        self.name = name
        self._port, self._number = port, number

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(_packed(pickle.dumps((self._number, request))))
            while (payload := await _unpacked(reader)) != _END:
                came = pickle.loads(payload)
                if isinstance(came, BaseException):
                    raise came
                yield came
        finally:
            writer.close()


class Relay:
    """In the process of the tests: lets providers answer what workers ask, on a loop of its own."""

    def __init__(self) -> None:
        self._providers: dict[int, Provider] = {}
        self._numbers = count(1)
        self._has_port = threading.Event()
        self.answered = 0
        """Calls of workers so far."""
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        assert self._has_port.wait(60)

    def recipe_of(self, provider: Provider) -> Recipe:
        """How a worker makes a provider that asks this one."""
        number = next(self._numbers)
        self._providers[number] = provider
        pickled = pickle.dumps(partial(Relayed, self.port, number, provider.name))
        return Recipe(sha256(pickled).hexdigest(), pickled)

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._has_port.set()
        await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number, request = pickle.loads(await _unpacked(reader))
        self.answered += 1
        answering = asyncio.ensure_future(self._stream(number, request, writer))
        hung_up = asyncio.ensure_future(reader.read())
        try:
            await asyncio.wait({answering, hung_up}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (answering, hung_up):
                task.cancel()
            await asyncio.gather(answering, hung_up, return_exceptions=True)
            writer.close()

    async def _stream(
        self, number: int, request: CompletionRequest, writer: asyncio.StreamWriter
    ) -> None:
        try:
            async with closing(self._providers[number].stream(request)) as events:
                async for event in events:
                    writer.write(_packed(pickle.dumps(event)))
                    await writer.drain()
        except Exception as error:
            writer.write(_packed(pickle.dumps(error)))
        writer.write(_packed(_END))
        await writer.drain()


@cache
def relay() -> Relay:
    """The one of this process."""
    return Relay()
