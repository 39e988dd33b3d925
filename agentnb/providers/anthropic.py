"""The Messages API of Anthropic, through its own SDK.

What is sent and what is read is the business of `anthropic_wire`, what is told of an error that of
`anthropic_errors`; here are the client, its life, and the door at which whatever goes wrong
becomes an `LlmError`.

The SDK is imported on a thread that nobody has to wait for: by the first call, or before it where
there is a key. Its client belongs to the loop on which it was made; it is replaced when the
environment variables that it was made from have changed, or when the API did not take its
credentials.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, cast

from agentnb.core.errors import AuthenticationFailed, InvalidRequest, LlmError, MissingKey
from agentnb.core.types import CompletionRequest, Stopped, StreamEvent
from agentnb.providers.anthropic_errors import ErrorTeller, missing_key, unsendable_key
from agentnb.providers.anthropic_wire import (
    ReplyReader,
    body_of,
    event_in,
    without_surrogates,
)
from agentnb.providers.late_import import LateImport
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
_Key = tuple[asyncio.AbstractEventLoop, _Settings]


def _load_sdk() -> None:
    import anthropic  # noqa: F401

    with contextlib.suppress(ImportError):  # calls then go on without it
        import agentnb.providers.aio_transport  # noqa: F401


_sdk = LateImport(_load_sdk)


def warm_up() -> None:
    """Begin to import the SDK, where a key says that it will be used; nobody waits for it.

    Without one most people have come for what needs none, and an import would only slow that.
    """
    if any(os.environ.get(name) for name in _SECRETS):
        _sdk.begin()


class AnthropicProvider:
    """Claude, with key, base URL and the rest from the SDK's own environment variables.

    Args:
        timeout_s: How long the API may be silent, before and within a reply. A slow drip never
            reaches it: the deadline of a whole turn is the caller's.
    """

    name = "anthropic"

    def __init__(self, *, timeout_s: float = 600.0) -> None:
        self._timeout_s = timeout_s
        self._clients: dict[_Key, _Client] = {}
        self._lock = threading.Lock()  # two loops are two threads

    async def ready(self) -> None:
        """Load the SDK: once, for most of a second."""
        await _sdk.wait()

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Make one call.

        Leave before its end only through `contextlib.aclosing`, or by being cancelled: that
        hangs up, so that the API stops writing.

        Raises:
            LlmError: The subclass says what happened, the message what to do.
        """
        await _sdk.wait()
        async with self._borrowed_client() as client, client.replying(request) as reply:
            while not reply.is_complete and (chunk := await reply.body.read()):
                for event in reply.events_in(chunk):
                    yield event
            stopped = await reply.end()
        yield stopped

    async def aclose(self) -> None:
        """Close what was opened on the running loop. A later call opens it anew."""
        running = asyncio.get_running_loop()
        await self._close_where(lambda key, _: key[0] is running)

    async def _close_where(self, is_unwanted: Callable[[_Key, _Client], bool]) -> None:
        """Close clients one by one: those that a cancel leaves are still there to be closed."""
        while True:
            with self._lock:
                unwanted = (key for key, each in self._clients.items() if is_unwanted(key, each))
                if (key := next(unwanted, None)) is None:
                    return
                client = self._clients.pop(key)
            with contextlib.suppress(Exception):
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
        try:
            # Of others, the variables that they were made from have changed.
            await self._close_where(
                lambda other, old: other[0] is key[0] and other != key and not old.calls
            )
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

        from agentnb.providers.http_client import ApiClient

        secrets = tuple(value.strip() for name, value in settings if name in _SECRETS)
        self._teller = ErrorTeller("the API", secrets, timeout_s)
        self.calls = 0
        self.is_rejected = False
        with self._as_llm_errors():
            self.sdk = anthropic.AsyncAnthropic(
                max_retries=0,
                timeout=timeout_s,
                default_headers={"Accept-Encoding": "gzip"},
                http_client=ApiClient(connect_s=_CONNECT_S, silence_s=timeout_s),
            )
        host = self.sdk.base_url.netloc.decode("ascii")  # with the port, without a password
        self._teller = ErrorTeller(host, secrets, timeout_s)

    @contextlib.asynccontextmanager
    async def replying(self, request: CompletionRequest) -> AsyncIterator[_Reply]:
        """Send the request; the reply has begun, and is hung up on at the end if it goes on."""
        reply = _Reply(request, await self._open(request), self._teller)
        try:
            yield reply
        except LlmError:
            raise
        except Exception as error:  # of the transport, or of the data
            raise reply.broken(error) from error
        finally:
            await reply.body.aclose()

    async def _open(self, request: CompletionRequest) -> httpx2.Response:
        import anthropic
        import httpx2

        body = {**body_of(request), **without_surrogates(request.extra)}
        with self._as_llm_errors():
            # What `messages.create` does besides is to look through the whole body for what
            # `body_of` does not use: half of the SDK's part of a call.
            response: object = await self.sdk.post(
                "/v1/messages",
                body=body,
                cast_to=httpx2.Response,
                stream=True,
                stream_cls=anthropic.AsyncStream[object],
            )
        return cast("httpx2.Response", response)

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


class _Reply:
    """A reply that has begun."""

    def __init__(
        self, request: CompletionRequest, response: httpx2.Response, teller: ErrorTeller
    ) -> None:
        from agentnb.providers.http_client import bytes_of

        self.body = bytes_of(response)
        self._response, self._teller = response, teller
        self._lines = EventLines(response.headers.get("content-encoding", ""))
        self._reader = ReplyReader(request)
        self._newest = ""
        """What was read last and not understood yet."""

    @property
    def is_complete(self) -> bool:
        """Whether the end mark was seen: nothing is read after it."""
        return self._reader.is_complete

    def events_in(self, chunk: bytes) -> Iterator[StreamEvent]:
        """What the next bytes of the reply say, to its end mark.

        Raises:
            LlmError: The API says that it broke off.
            BadReply: They are no such reply.
        """
        reader = self._reader
        for newest in self._lines.feed(chunk):
            self._newest = newest
            data = event_in(newest)
            if data["type"] == "error":
                raise self._teller.broke_off(data.get("error"))
            yield from reader.read(data)
            self._newest = ""
            if reader.is_complete:
                return

    async def end(self) -> Stopped:
        """The end of the turn.

        Raises:
            LlmError: The reply ended without its end mark.
        """
        stopped = self._reader.stopped()
        if stopped is None:
            raise self.broken(None)
        if not self.body.has_ended:
            # With the few bytes that come with the end mark read, too, the connection can be
            # used again. Where they do not come, or are bad, only the connection is lost.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_LAST_BYTES_S):
                    while await self.body.read():
                        pass
        return stopped

    def broken(self, error: Exception | None) -> LlmError:
        """The error for a reply that began and did not end."""
        return self._teller.broken(error, self._response, self._lines.begun, self._newest)


# -- what a client is made from -----------------------------------------------------------


def _settings() -> _Settings:
    names = [
        name
        for name in os.environ
        if name.startswith(_SDK_VARIABLES) or name.lower() in _TRANSPORT_VARIABLES
    ]
    return tuple((name, os.environ.get(name, "")) for name in sorted(names))
