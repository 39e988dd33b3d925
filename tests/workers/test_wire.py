"""A worker may write to its socket itself: what is no message, or a large one, ends the call."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import struct
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agentnb.workers.wire import MOST_IN_MESSAGE, MOST_IN_TEXTS, BadMessage, Channel, open_channel

KEY = "key"
GREETING = b"\xff" + b"\0" * 8 + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" * 32
READY = b"\x04\x06\x05READY"
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def kernel(answer: Answer) -> AsyncIterator[Channel]:
    """A channel to a kernel that answers in its own way."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GREETING + READY)
        try:
            await reader.readexactly(64)
            await answer(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    with tempfile.TemporaryDirectory(prefix="w") as folder:
        socket = Path(folder) / "s"
        async with await asyncio.start_unix_server(serve, str(socket)):
            channel = await open_channel(socket, KEY)
            try:
                yield channel
            finally:
                channel.close()


async def request(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The header of the request, which is the third part after the client's READY."""
    parts: list[bytes] = []
    while True:
        flags, size = await reader.readexactly(2)
        if flags & 2:
            size = struct.unpack(">Q", bytes([size]) + await reader.readexactly(7))[0]
        part = await reader.readexactly(size)
        if not flags & 4:
            parts.append(part)
            if not flags & 1:
                header: dict[str, Any] = json.loads(parts[2])
                return header


def message(parts: Sequence[bytes]) -> bytes:
    frames = b""
    for i, part in enumerate(parts):
        more = int(i < len(parts) - 1)
        frames += bytes([more | 2]) + struct.pack(">Q", len(part)) + part
    return frames


def signed(parent: Any, content: Any, *buffers: bytes, key: str = KEY) -> bytes:
    texts = [b"{}", json.dumps(parent).encode(), b"{}"]
    texts.append(content if isinstance(content, bytes) else json.dumps(content).encode())
    signature = hmac.new(key.encode(), b"".join(texts), hashlib.sha256).hexdigest().encode()
    return message([b"<IDS|MSG>", signature, *texts, *buffers])


async def test_reply_to_the_request_is_taken_and_others_are_not() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parent = await request(reader)
        writer.write(signed({"msg_id": "another"}, {"a": 1}))
        writer.write(signed(parent, {"a": 2}, b"one", b"two"))
        await reader.read()

    async with kernel(answer) as channel:
        reply = await channel.ask("agentnb_run", {"code": "x" * 1_000})

    assert (reply.content, reply.buffers) == ({"a": 2}, [b"one", b"two"])


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"\x03" + struct.pack(">Q", 1_000_000) + b"x" * 1_000_000)
        await writer.drain()


async def many_small(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"\x01\x00" * 1_000)
        await writer.drain()


def at_once(content: bytes) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(content)
        await reader.read()

    return answer


BAD: dict[str, tuple[Answer, str]] = {
    "endless parts": (endless, f"larger than {MOST_IN_MESSAGE:,} bytes"),
    "endless empty parts": (many_small, "more than 32 parts"),
    "a part of any size": (at_once(b"\x02" + b"\xff" * 8), "larger than"),
    "no mark": (at_once(message([b"a", b"b"])), "no mark"),
    "no signature": (at_once(message([b"<IDS|MSG>", b"", b"{}", b"{}", b"{}", b"{}"])), "signed"),
    "another key": (at_once(signed({}, {}, key="other")), "not signed"),
    "too few parts": (at_once(message([b"<IDS|MSG>", b"", b"{}"])), "not signed"),
    "no JSON": (at_once(signed({}, b"{")), "not JSON"),
    "deep JSON": (at_once(signed({}, b"[" * 500_000)), "not JSON"),
    "large JSON": (at_once(signed({}, "x" * MOST_IN_TEXTS)), "texts of a message are larger"),
    "a list": (at_once(signed({}, [])), "not the form of one"),
}


@pytest.mark.parametrize("name", BAD)
async def test_message_that_is_none_or_too_large_is_refused(name: str) -> None:
    answer, said = BAD[name]

    async with kernel(answer) as channel:
        with pytest.raises(BadMessage, match=said):
            await channel.ask("agentnb_run", {"code": ""})


async def test_socket_of_another_protocol_is_refused() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request".ljust(64))
        writer.close()

    with tempfile.TemporaryDirectory(prefix="w") as folder:
        socket = Path(folder) / "s"
        async with await asyncio.start_unix_server(serve, str(socket)):
            with pytest.raises(BadMessage, match="does not speak ZMTP 3"):
                await open_channel(socket, KEY)
