"""HTTP for many streams at once: aiohttp, below the client that the SDK asks for.

Replaces only the transport of the SDK's `httpx2` client. A reply's bytes skip that client's layers:
they are read as they arrive, from the `Body` in the response's extensions.

Errors are `httpx2` errors, so that `error_mapping` need not know the transport. No task closes
anything: `Body.close` aborts the connection at once.
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
"""aiohttp writes a longer body piece by piece, if it is passed as a file."""
_LONGEST_HEADER = 2**16
_KEEP_ALIVE_S = 15.0
_UNSENDABLE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""Bytes that a header cannot hold. aiohttp sends those above as UTF-8; the client refuses them."""

_in_use: ContextVar[list[asyncio.Transport]] = ContextVar("_in_use")
"""The transports of the request that this context is sending."""


class AioTransport(httpx2.AsyncBaseTransport):
    """Connections to servers, kept alive for a while after a complete reply.

    Belongs to the loop on which its first request is made.
    """

    def __init__(self, *, connect_s: float, silence_s: float) -> None:
        # DNS and TLS take time too: with a thousand connections at once, the last handshake waits
        # for all the others.
        self._timeout = aiohttp.ClientTimeout(
            total=None, connect=3 * connect_s, sock_connect=connect_s
        )
        self._silence_s = silence_s
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return the response once its headers are there; its body streams."""
        content = await request.aread()
        session = self._session_for(request.url)
        headers = _as_text(request.headers.raw)
        try:
            url = URL(str(request.url), encoded=True)
            async with asyncio.timeout(self._silence_s):
                with _abort_unless_answered():
                    response = await session.request(
                        request.method,
                        # The client has moved the password into a header already.
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
            # Reading certificates takes tens of milliseconds, and only https needs them.
            context = httpx2.create_ssl_context() if url.scheme == "https" else False
            session = self._sessions[url.scheme] = aiohttp.ClientSession(
                connector=_Connector(limit=0, keepalive_timeout=_KEEP_ALIVE_S, ssl=context),
                timeout=self._timeout,
                auto_decompress=False,
                max_field_size=_LONGEST_HEADER,
                cookie_jar=aiohttp.DummyCookieJar(),  # the client above takes none either
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
            # Avoids aiohttp's warning when a process ends or forks in the middle of a run.
            session.detach()


@contextlib.contextmanager
def _abort_unless_answered() -> Iterator[None]:
    """Abort the connections of a request that failed or was cancelled before its reply began.

    aiohttp only closes: the connection would stay until all written bytes are sent, which is
    for ever if the server does not read.
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
        """Do nothing, where aiohttp closes connections and warns.

        The last reference may go in another thread, or in a forked process that shares the
        selector with its parent: closing a connection there would close the parent's.
        """


class Body(httpx2.AsyncByteStream):
    """The body of one reply, read as its bytes arrive."""

    def __init__(self, response: aiohttp.ClientResponse, *, silence_s: float) -> None:
        self._response = response
        self._content = response.content
        connection = response.connection  # `None` when the whole reply has arrived
        self._protocol = getattr(connection, "protocol", None)
        self._silence_s = silence_s
        self._loop = asyncio.get_running_loop()
        self._waits_since_s = math.inf
        self._watch = self._loop.call_later(silence_s, self._check_silence)

    @property
    def has_ended(self) -> bool:
        """Whether the whole body has arrived: its connection is free for another request."""
        return self._content.is_eof()

    async def read(self) -> bytes:
        """Return the bytes that have arrived, or wait for the next; empty at the end.

        Raises:
            httpx2.TransportError: The connection broke, or was silent for too long.
        """
        # Only noted here and checked now and then: a timer for each piece would cost more than
        # reading it.
        self._waits_since_s = self._loop.time()
        try:
            return await self._content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise self._broken(error) from error
        finally:
            self._waits_since_s = math.inf

    def _check_silence(self) -> None:
        """Fail the pending read if the server is silent; else check again when it could be."""
        now_s = self._loop.time()
        due_s = min(self._waits_since_s, now_s) + self._silence_s
        if due_s <= now_s:
            self._content.set_exception(httpx2.ReadTimeout("the server is silent"))
        else:
            self._watch = self._loop.call_at(due_s, self._check_silence)

    def _broken(self, error: Exception) -> httpx2.TransportError:
        """Separate a reply that ended early from a broken connection: aiohttp mixes them."""
        # `exception` is not public in aiohttp; without it, only the error's words differ.
        get_exception = getattr(self._protocol, "exception", None)
        ending = get_exception() if callable(get_exception) else None
        if isinstance(ending, aiohttp.ClientOSError):
            return httpx2.ReadError(str(ending))
        if isinstance(ending, aiohttp.ServerDisconnectedError):
            return httpx2.RemoteProtocolError("the server closed the connection")
        return httpx2.RemoteProtocolError(str(error))

    def close(self) -> None:
        """Abort the connection, unless the whole reply has arrived: then it is kept alive."""
        self._watch.cancel()
        connection = self._response.connection
        transport = connection.transport if connection is not None else None
        self._response.close()
        if transport is not None and not self._loop.is_closed():
            transport.abort()  # `close` would wait for a request that is still being sent

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
    """Return the `httpx2` error for what went wrong before a reply began."""
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
        case ValueError():  # yarl or the DNS look-up cannot parse the address
            return httpx2.ConnectError(str(error))
    return error


def _reason(error: OSError) -> str:
    """Why there is no connection, without the address, which the error message has already."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)
