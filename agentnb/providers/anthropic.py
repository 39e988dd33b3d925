"""The Messages API of Anthropic, through its own SDK.

What is sent and what is read is the business of `anthropic_wire`, what is told of an error that of
`anthropic_errors`; here are the client, its life, and the door at which whatever goes wrong
becomes an `LlmError`.

The SDK is imported by the first call, on a thread that nobody has to wait for: it takes most of
a second. Its client belongs to the loop on which it was made; it is replaced when the environment
variables that it was made from have changed, or when the API did not take its credentials.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING

from agentnb.core.errors import AuthenticationFailed, InvalidRequest, LlmError, MissingKey
from agentnb.core.types import CompletionRequest, StreamEvent
from agentnb.providers.anthropic_errors import ErrorTeller, missing_key, unsendable_key
from agentnb.providers.anthropic_wire import (
    ReplyReader,
    body_of,
    event_in,
    without_surrogates,
)
from agentnb.providers.sse import EventLines

if TYPE_CHECKING:
    import httpx2

_CONNECT_S = 10.0
_LAST_BYTES_S = 0.05
_SDK_VARIABLES = "ANTHROPIC_"
_TRANSPORT_VARIABLES = (
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "ssl_cert_dir",
    "ssl_cert_file",
)
_SECRETS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_IDENTITY_TOKEN")

_Settings = tuple[tuple[str, str], ...]
"""The environment variables that a client is made from, sorted."""


class AnthropicProvider:
    """Claude, with key, base URL and the rest from the SDK's own environment variables.

    Args:
        timeout_s: How long the API may be silent, before and within a reply. A slow drip never
            reaches it: the deadline of a whole turn is the caller's.
    """

    name = "anthropic"

    def __init__(self, *, timeout_s: float = 600.0) -> None:
        self._timeout_s = timeout_s
        self._clients: dict[tuple[asyncio.AbstractEventLoop, _Settings], _Client] = {}
        self._lock = threading.Lock()  # two loops are two threads

    async def ready(self) -> None:
        """Load the SDK: once, for most of a second."""
        await _sdk_imported()

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Make one call.

        Leave before its end only through `contextlib.aclosing`, or by being cancelled: that
        hangs up, so that the API stops writing.

        Raises:
            LlmError: The subclass says what happened, the message what to do.
        """
        await _sdk_imported()
        async with self._borrowed_client() as client:
            response = await client.open(request)
            async with contextlib.aclosing(client.read(response, request)) as events:
                async for event in events:
                    yield event

    async def aclose(self) -> None:
        """Close what was opened on the running loop. A later call opens it anew."""
        running = asyncio.get_running_loop()
        with self._lock:
            own = [self._clients.pop(key) for key in list(self._clients) if key[0] is running]
        for client in own:
            await client.sdk.close()

    @contextlib.asynccontextmanager
    async def _borrowed_client(self) -> AsyncIterator[_Client]:
        key = asyncio.get_running_loop(), _settings()
        with self._lock:
            for gone in [other for other in self._clients if other[0].is_closed()]:
                del self._clients[gone]
            if key not in self._clients:
                self._clients[key] = _Client(key[1], timeout_s=self._timeout_s)
            client = self._clients[key]
            client.calls += 1
            replaced = [
                self._clients.pop(other)
                for other in list(self._clients)
                if other[0] is key[0] and other != key and not self._clients[other].calls
            ]
        try:
            for old in replaced:  # the variables that it was made from have changed
                with contextlib.suppress(Exception):
                    await old.sdk.close()
            yield client
        except (MissingKey, AuthenticationFailed):
            # A login may also change files that the SDK reads once, when a client is made.
            client.is_rejected = True
            with self._lock:
                if self._clients.get(key) is client:
                    del self._clients[key]
            raise
        finally:
            client.calls -= 1
            if client.is_rejected and not client.calls:
                await client.sdk.close()


class _Client:
    """The SDK's client for one loop and one set of environment variables."""

    def __init__(self, settings: _Settings, *, timeout_s: float) -> None:
        import anthropic

        from agentnb.providers.aio_transport import AioClient

        secrets = tuple(value.strip() for name, value in settings if name in _SECRETS)
        self._teller = ErrorTeller("the API", secrets, timeout_s)
        self.calls = 0
        self.is_rejected = False
        with self._as_llm_errors():
            self.sdk = anthropic.AsyncAnthropic(
                max_retries=0,
                timeout=timeout_s,
                default_headers={"Accept-Encoding": "gzip"},
                http_client=AioClient(connect_s=_CONNECT_S, silence_s=timeout_s),
            )
        host = self.sdk.base_url.netloc.decode("ascii")  # with the port, without a password
        self._teller = ErrorTeller(host, secrets, timeout_s)

    async def open(self, request: CompletionRequest) -> httpx2.Response:
        """Send the request; the response that comes back has begun and holds a reply."""
        body, extra = body_of(request), without_surrogates(request.extra)
        with self._as_llm_errors():
            raw = await self.sdk.messages.with_raw_response.create(**body, extra_body=extra)
        response: httpx2.Response = raw.http_response
        return response

    async def read(
        self, response: httpx2.Response, request: CompletionRequest
    ) -> AsyncGenerator[StreamEvent, None]:
        """The reply to `request`, to its end mark. The response is closed in any case."""
        from agentnb.providers.aio_transport import bytes_of

        reply = ReplyReader(request)
        lines = EventLines(response.headers.get("content-encoding", ""))
        body = bytes_of(response)
        newest = ""
        try:
            while chunk := await body.read():
                for newest in lines.feed(chunk):
                    data = event_in(newest)
                    if data["type"] == "error":
                        raise self._teller.broke_off(data.get("error"))
                    for event in reply.read(data):
                        yield event
                    newest = ""
                    if reply.is_complete:
                        break
                if reply.is_complete:
                    break
            stopped = reply.stopped()
            if stopped is not None and not body.has_ended:
                # With the few bytes that come with the end mark read, too, the connection can
                # be used again. Where they do not come, or are bad, only the connection is lost.
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(_LAST_BYTES_S):
                        while await body.read():
                            pass
        except LlmError:
            raise
        except Exception as error:  # of the transport, or of the data
            raise self._teller.broken(error, response, lines.begun, newest) from error
        finally:
            await body.aclose()
        if stopped is None:
            raise self._teller.broken(None, response, lines.begun)
        yield stopped

    # -- errors ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def _as_llm_errors(self) -> Iterator[None]:
        """Translate what the SDK raises before a reply begins."""
        import anthropic
        import httpx2

        try:
            yield
        except anthropic.APIStatusError as error:
            if error.response.is_redirect:
                raise self._teller.redirected(error.response) from error
            raise self._teller.answered(
                error.response, kind=error.type, message=error.api_message, body=error.body
            ) from error
        except (anthropic.APIConnectionError, httpx2.HTTPError, httpx2.InvalidURL) as error:
            is_wrapped = isinstance(error, anthropic.APIConnectionError)
            cause = (is_wrapped and error.__cause__) or error
            if isinstance(cause, httpx2.LocalProtocolError):
                raise unsendable_key() from None  # its message quotes the header
            raise self._teller.unanswered(cause) from error
        except anthropic.CredentialsError as error:
            raise missing_key(f" (the SDK says: {self._teller.words(error)})") from error
        except anthropic.AnthropicError as error:
            raise AuthenticationFailed(
                f"The credentials could not be used: {self._teller.words(error)}. Set "
                "`ANTHROPIC_API_KEY`, or log in again."
            ) from error
        except UnicodeEncodeError:
            raise unsendable_key() from None
        except (TypeError, ValueError) as error:
            if "resolve authentication" in str(error):
                raise missing_key() from None
            raise InvalidRequest(
                f"The request could not be written: {self._teller.words(error)}. Look at its "
                "`extra` and at the schemas of its tools."
            ) from error


# -- what a client is made from -----------------------------------------------------------


def _settings() -> _Settings:
    names = [
        name
        for name in os.environ
        if name.startswith(_SDK_VARIABLES) or name.lower() in _TRANSPORT_VARIABLES
    ]
    return tuple((name, os.environ.get(name, "")) for name in sorted(names))


_import_lock = threading.Lock()
_import: Future[None] | None = None


async def _sdk_imported() -> None:
    global _import
    with _import_lock:
        if _import is None or (_import.done() and _import.exception() is not None):
            _import = Future()
            # Not `asyncio.to_thread`: the interpreter would wait for its threads at exit.
            threading.Thread(
                target=_import_sdk, args=(_import,), name="agentnb-import", daemon=True
            ).start()
        imported = _import
    if not imported.done():
        # A shield, since one waiting call that is cancelled must not cancel it for the others.
        await asyncio.shield(asyncio.wrap_future(imported))
    imported.result()


def _import_sdk(imported: Future[None]) -> None:
    try:
        import anthropic  # noqa: F401

        import agentnb.providers.aio_transport  # noqa: F401
    except BaseException as error:
        imported.set_exception(error)
    else:
        imported.set_result(None)
