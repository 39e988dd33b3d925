"""The client that the SDK is given.

aiohttp is faster, and nothing but faster: where it cannot be imported, calls go on without it.
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
    """The client for the SDK: over aiohttp, and over what `httpx2` has where that is not there.

    Through a proxy, too, it goes over what `httpx2` has for that. To this machine's own addresses
    it goes directly: a proxy would find its own there, and be told the key.

    Args:
        connect_s: The longest that a connection may take.
        silence_s: How long the server may be silent, before and within a reply.
    """

    def __init__(self, *, connect_s: float, silence_s: float) -> None:
        self._connect_s, self._silence_s = connect_s, silence_s
        super().__init__(
            timeout=httpx2.Timeout(silence_s, connect=connect_s),
            # How many calls may be open at once is the gate's to say.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=100),
            # The API redirects nobody, and what was asked would go wherever a redirect points.
            follow_redirects=False,
            cookies=_NoCookies(),
            mounts=dict.fromkeys(_THIS_MACHINE),
            event_hooks={"request": [_note_secrets]},
        )

    # The hook by which the SDK, too, sets its transport. Without it all would go on, but slower.
    def _init_transport(self, *args: Any, **kwargs: Any) -> httpx2.AsyncBaseTransport:
        try:
            from agentnb.providers.aio_transport import AioTransport
        except ImportError:  # aiohttp is missing, or broken
            return super()._init_transport(*args, **kwargs)
        return AioTransport(connect_s=self._connect_s, silence_s=self._silence_s)

    async def send(
        self, request: httpx2.Request, *, stream: bool = False, **how: Any
    ) -> httpx2.Response:
        """As ever, but of an answer that is no reply only the beginning will be read.

        The SDK would read it to its end, however much comes of it.
        """
        response = await super().send(request, stream=True, **how)
        if not response.is_success:
            _bound(response)
        if not stream:
            await response.aread()
        return response


def _bound(response: httpx2.Response) -> None:
    """Give a response's body a greatest size, and a form in which it cannot grow once more."""
    encoding = response.headers.pop("content-encoding", "")
    unpacking = Unpacking(encoding, most=MOST_IN_ERROR, what="an error")
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Beginning(response.stream, unpacking, response.extensions)
    # Python's codecs, which a server may name as its charset, take and make anything: some unpack.
    response.encoding = "utf-8"


class _Beginning(httpx2.AsyncByteStream):
    """As much of a body as is read of an error. What was left out is told among its extensions."""

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
    """Takes none: a server could send new ones with every answer, to be kept and sent for ever."""

    def extract_cookies(self, *_: object) -> None:
        """Pass over what an answer sets."""

    def add_cookie_header(self, *_: object) -> None:
        """There is nothing to send."""


async def _note_secrets(request: httpx2.Request) -> None:
    """Learn of the keys that are sent, whoever set them; a password stands in a header by now."""
    note_headers(request.headers)
    if request.url.userinfo:
        request.url = request.url.copy_with(userinfo=b"")  # or a log would show it
