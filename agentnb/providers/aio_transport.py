"""HTTP for many streams at once: aiohttp, below the client that the SDK asks for.

The SDK talks to an `httpx2` client; of that, only what is below it is replaced. A reply's bytes
do not come up through the layers of that client: they are read where they arrive, from the `Body`
that stands in the response's extensions, as many at a time as there are.

Errors are those of `httpx2`, so that whoever tells them need not know what is below. Nothing is
closed by a task of anybody's own: `Body.close` hangs up at once, on the spot.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import math
import os
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import aiohttp
import httpx2
from yarl import URL

from agentnb.core.secrets import without_user
from agentnb.providers.body import BODY

_LARGE_BYTES = 2**20
"""aiohttp writes a body that is longer piece by piece, if it is given as a file."""
_LONGEST_HEADER = 2**16
_KEEP_ALIVE_S = 15.0
_UNSENDABLE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""In a header. Bytes above are sent by aiohttp as UTF-8, and the client lets none through."""

_in_use: ContextVar[list[asyncio.Transport]] = ContextVar("_in_use")
"""What the request that is being sent in this context was given to go over."""


class AioTransport(httpx2.AsyncBaseTransport):
    """Connections to servers, kept for a while when a reply was read to its end.

    Belongs to the loop on which its first request is made.
    """

    def __init__(self, *, connect_s: float, silence_s: float) -> None:
        # The look-up of the name and TLS have their time besides: of a thousand connections that
        # are made at once, the last one's handshake waits for all the others'.
        self._timeout = aiohttp.ClientTimeout(
            total=None, connect=3 * connect_s, sock_connect=connect_s
        )
        self._silence_s = silence_s
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; the response that comes back has begun, and its body can be read."""
        content = await request.aread()
        session = self._session_for(request.url)
        headers = _as_text(request.headers.raw)
        try:
            url = URL(str(request.url), encoded=True)
            async with asyncio.timeout(self._silence_s):
                with _hanging_up_unless_answered():
                    response = await session.request(
                        request.method,
                        # A password in it stands in a header by now, and must not stand twice.
                        url if url.raw_user is None else url.with_user(None),
                        headers=headers,
                        data=content if len(content) < _LARGE_BYTES else io.BytesIO(content),
                        allow_redirects=False,
                    )
        except Exception as error:
            raise _before_reply(error) from error
        body = Body(response, silence_s=self._silence_s)
        return httpx2.Response(
            response.status,
            headers=response.raw_headers,
            stream=body,
            extensions={"http_version": b"HTTP/1.1", BODY: body},
        )

    def _session_for(self, url: httpx2.URL) -> aiohttp.ClientSession:
        if url.scheme not in ("http", "https") or not url.host:
            raise httpx2.UnsupportedProtocol(
                f"{without_user(str(url))!r} does not begin with `http://` or `https://` and a host"
            )
        if (session := self._sessions.get(url.scheme)) is None:
            # Certificates take tens of milliseconds to read, and are needed for https only.
            context = httpx2.create_ssl_context() if url.scheme == "https" else False
            session = self._sessions[url.scheme] = aiohttp.ClientSession(
                connector=_Connector(limit=0, keepalive_timeout=_KEEP_ALIVE_S, ssl=context),
                timeout=self._timeout,
                auto_decompress=False,
                max_field_size=_LONGEST_HEADER,
                cookie_jar=aiohttp.DummyCookieJar(),  # nor does the client above take any
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            )
        return session

    async def aclose(self) -> None:
        """Close all connections."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    def __del__(self) -> None:
        for session in self._sessions.values():
            # Or it would complain aloud, where a process ends or forks in the middle of a run.
            session.detach()


@contextlib.contextmanager
def _hanging_up_unless_answered() -> Iterator[None]:
    """Leave nothing of a request that failed, or was cancelled, before its reply began.

    aiohttp only closes: a connection would stay until all that was written to it was sent, which
    is for ever if the server does not read.
    """
    transports: list[asyncio.Transport] = []
    token = _in_use.set(transports)
    try:
        yield
    except BaseException:
        for transport in transports:
            transport.abort()
        raise
    finally:
        _in_use.reset(token)


class _Connector(aiohttp.TCPConnector):
    async def connect(self, *args: Any, **kwargs: Any) -> aiohttp.connector.Connection:
        connection = await super().connect(*args, **kwargs)
        if connection.transport is not None:
            _in_use.get().append(connection.transport)
        return connection

    def __del__(self, _: object = None) -> None:
        """Nothing, where aiohttp closes and complains.

        Whoever drops it may be another thread, or a forked process that shares the selector with
        its parent: to close a connection there would take it from the parent.
        """


class Body(httpx2.AsyncByteStream):
    """The body of one reply, as its bytes arrive."""

    def __init__(self, response: aiohttp.ClientResponse, *, silence_s: float) -> None:
        self._response = response
        self._content = response.content
        connection = response.connection  # none, when all of the reply has come already
        self._protocol = getattr(connection, "protocol", None)
        self._silence_s = silence_s
        self._loop = asyncio.get_running_loop()
        self._waits_since_s = math.inf
        self._watch = self._loop.call_later(silence_s, self._look)

    @property
    def has_ended(self) -> bool:
        """Whether all of it has come: its connection is free for another request."""
        return self._content.is_eof()

    async def read(self) -> bytes:
        """What has come by now, or the next that comes; nothing at the end.

        Raises:
            httpx2.TransportError: The connection broke, or was silent for too long.
        """
        # Noted here and looked at now and then: a timer for each piece would cost more than
        # reading it.
        self._waits_since_s = self._loop.time()
        try:
            return await self._content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(error) from error
        finally:
            self._waits_since_s = math.inf

    def _look(self) -> None:
        """Find out whether the server is silent; else look again when it could be at last."""
        now_s = self._loop.time()
        due_s = min(self._waits_since_s, now_s) + self._silence_s
        if due_s <= now_s:
            self._content.set_exception(httpx2.ReadTimeout("the server is silent"))
        else:
            self._watch = self._loop.call_at(due_s, self._look)

    def _broken(self, error: Exception) -> httpx2.TransportError:
        """An end in the middle, or a connection that broke: aiohttp's error says both in one."""
        # What it says is not aiohttp's public interface; without it, only the words are others.
        told = getattr(self._protocol, "exception", None)
        ending = told() if callable(told) else None
        if isinstance(ending, aiohttp.ClientOSError):
            return httpx2.ReadError(str(ending))
        if isinstance(ending, aiohttp.ServerDisconnectedError):
            return httpx2.RemoteProtocolError("the server closed the connection")
        return httpx2.RemoteProtocolError(str(error))

    def close(self) -> None:
        """Hang up, unless the whole reply has come: then the connection stays for another."""
        self._watch.cancel()
        connection = self._response.connection
        transport = connection.transport if connection is not None else None
        self._response.close()
        if transport is not None and not self._loop.is_closed():
            transport.abort()  # to be closed, it would wait for a request that is still being sent

    async def aclose(self) -> None:
        """See `close`."""
        self.close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while chunk := await self.read():
            yield chunk


def _as_text(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    if any(_UNSENDABLE.search(part) for header in headers for part in header):
        raise httpx2.LocalProtocolError("")  # without the header, which may be a key
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def _before_reply(error: Exception) -> Exception:
    """What went wrong before a reply began, in the words of `httpx2`."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return httpx2.ConnectTimeout("")
        case TimeoutError():
            return httpx2.ReadTimeout("")
        case aiohttp.ClientConnectorCertificateError():
            return httpx2.ConnectError(str(error.certificate_error))
        case aiohttp.ClientConnectorError():
            return httpx2.ConnectError(_reason(error.os_error))
        case aiohttp.ClientConnectionError():
            return httpx2.ReadError(str(error))
        case aiohttp.ClientResponseError():
            return httpx2.RemoteProtocolError(error.message.partition(":")[0])
        case aiohttp.InvalidURL():
            return httpx2.InvalidURL(str(error))
        case aiohttp.ClientError():
            return httpx2.NetworkError(str(error))
        case ValueError():  # yarl, or the look-up of the name, makes nothing of the address
            return httpx2.ConnectError(str(error))
    return error


def _reason(error: OSError) -> str:
    """Why there is no connection, without the address: whoever tells it knows that."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)
