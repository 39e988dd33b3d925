"""HTTP/1.1, as much of it as a client of the API uses: requests in, responses out.

Only bytes: this layer does not interpret requests or responses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

LAST_CHUNK = b"0\r\n\r\n"


class BadRequest(Exception):
    """The bytes are not a request that this server can read; the connection is lost."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    """The path without the query."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class Reader(asyncio.StreamReader):
    """Reports when the client hangs up, even while nothing is read."""

    def __init__(self) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self.hung_up = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.hung_up.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.hung_up.set()


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request, or `None` if the client hung up instead."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    try:
        first, *lines = head[:-4].split("\r\n")
        method, target, _ = first.split(" ")
        fields = (line.split(":", 1) for line in lines)
        headers = {name.strip().lower(): value.strip() for name, value in fields}
        length = int(headers.get("content-length", "0"))
    except ValueError as error:
        raise BadRequest(first) from error
    if "transfer-encoding" in headers:
        raise BadRequest("a chunked request")
    try:
        body = await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return Request(method, target.partition("?")[0], headers, body)


def response_head(status: int, headers: Mapping[str, str]) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [
        f"HTTP/1.1 {status} {phrase}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def whole_response(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
    return response_head(status, {**headers, "content-length": str(len(body))}) + body


def chunk(content: bytes) -> bytes:
    """One chunk of a body of unknown length; an empty one would end it."""
    return f"{len(content):x}\r\n".encode() + content + b"\r\n" if content else b""
