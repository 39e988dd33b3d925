"""The HTTP client that the SDKs use.

aiohttp only makes it faster: without it, calls use `httpx2`'s own transport.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from http.cookiejar import CookieJar
from typing import Any

import httpx2

from agentnb.core.secrets import note_headers
from agentnb.providers.limits import CUT, MOST_IN_ERROR, BadReply, TooLarge
from agentnb.providers.unpacking import Unpacking

_THIS_MACHINE = ("all://localhost", "all://127.0.0.1", "all://127.0.0.0/8", "all://[::1]")


class ApiClient(httpx2.AsyncClient):
    """HTTP client over aiohttp if it can be imported, else over `httpx2`'s own transport.

    Proxies use `httpx2`'s transport too. Addresses of this machine bypass the proxy, which would
    resolve them to itself and receive the key.

    Args:
        connect_s: Longest time to connect, in seconds.
        silence_s: How long the server may be silent, before and within a reply, in seconds.
    """

    def __init__(self, *, connect_s: float, silence_s: float) -> None:
        self._connect_s, self._silence_s = connect_s, silence_s
        super().__init__(
            timeout=httpx2.Timeout(silence_s, connect=connect_s),
            # The gate limits open calls.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100),
            # The APIs never redirect; following one would send the conversation elsewhere.
            follow_redirects=False,
            cookies=_NoCookies(),
            mounts=dict.fromkeys(_THIS_MACHINE),
            event_hooks={"request": [_note_secrets]},
        )

    # The SDK sets its transport through this hook too. Without it calls are only slower.
    def _init_transport(self, *args: Any, **kwargs: Any) -> httpx2.AsyncBaseTransport:
        try:
            from agentnb.providers.aio_transport import AioTransport
        except ImportError:  # aiohttp is missing, or broken
            return super()._init_transport(*args, **kwargs)
        return AioTransport(connect_s=self._connect_s, silence_s=self._silence_s)

    async def send(
        self, request: httpx2.Request, *, stream: bool = False, **how: Any
    ) -> httpx2.Response:
        """Send a request; of an error response only the beginning can be read.

        The SDK would read its whole body, however large.
        """
        response = await super().send(request, stream=True, **how)
        if not response.is_success:
            _bound(response)
        if not stream:
            await response.aread()
        return response


def _bound(response: httpx2.Response) -> None:
    """Limit the size of a response's body, after decompression."""
    encoding = response.headers.pop("content-encoding", "")
    unpacking = Unpacking(encoding, most=MOST_IN_ERROR, what="an error")
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Beginning(response.stream, unpacking, response.extensions)
    # The server may name any Python codec as its charset, and some of those decompress.
    response.encoding = "utf-8"


class _Beginning(httpx2.AsyncByteStream):
    """The beginning of an error's body. The response's extension `CUT` says what was left out."""

    def __init__(
        self, stream: httpx2.AsyncByteStream, unpacking: Unpacking, extensions: dict[str, Any]
    ) -> None:
        self._stream, self._unpacking, self._extensions = stream, unpacking, extensions

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = self._stream.__aiter__()
        try:
            async for chunk in chunks:
                for piece in self._unpacking.pieces(chunk):
                    yield piece
        except TooLarge:
            self._extensions[CUT] = f"only the first {MOST_IN_ERROR:,} bytes of it were read"
        except BadReply as error:
            self._extensions[CUT] = f"it cannot be read: {error}"
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    async def aclose(self) -> None:
        await self._stream.aclose()


class _NoCookies(CookieJar):
    """Stores no cookies: a server could add new ones with every response."""

    def extract_cookies(self, *_: object) -> None:
        """Ignore the response's cookies."""

    def add_cookie_header(self, *_: object) -> None:
        """Send no cookies."""


async def _note_secrets(request: httpx2.Request) -> None:
    """Register the keys in the headers as secrets; a password is in a header by now."""
    note_headers(request.headers)
    if request.url.userinfo:
        request.url = request.url.copy_with(userinfo=b"")  # else a log would show it
