"""The Messages API of Anthropic, through its own SDK.

What is sent and what is read is the business of `anthropic_wire`; here are the client, its life,
and the translation of whatever goes wrong: it leaves as an `LlmError` whose message holds no key.

The SDK is imported by the first call, on a thread that nobody has to wait for: it takes most of
a second. Its client belongs to the loop on which it was made; it is replaced when the environment
variables that it was made from have changed, or when the API did not take its credentials.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import json
import math
import os
import re
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from agentnb.core.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    InvalidRequest,
    LlmError,
    MissingKey,
    ModelNotFound,
    Overloaded,
    RateLimited,
    ServerFailed,
    StreamBroken,
)
from agentnb.core.types import CompletionRequest, StreamEvent, one_line
from agentnb.providers.anthropic_wire import ReplyReader, body_of, without_surrogates

if TYPE_CHECKING:
    import httpx2

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
            async with contextlib.aclosing(response):
                async with contextlib.aclosing(client.read(response)) as events:
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
        for old in replaced:  # the variables that it was made from have changed
            await old.sdk.close()
        try:
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
        import httpx2

        self._secrets = [value.strip() for name, value in settings if name in _SECRETS]
        self._timeout_s = timeout_s
        self.calls = 0
        self.is_rejected = False
        timeout = httpx2.Timeout(timeout_s, connect=min(timeout_s, 10.0))
        # How many calls may be open at once is the gate's to say.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
        with self._as_llm_errors("the API"):
            self.sdk = anthropic.AsyncAnthropic(
                max_retries=0,
                timeout=timeout,
                http_client=anthropic.DefaultAsyncHttpxClient(timeout=timeout, limits=limits),
            )

    @property
    def host(self) -> str:
        return self.sdk.base_url.netloc.decode("ascii")  # with the port, without a password

    async def open(self, request: CompletionRequest) -> httpx2.Response:
        """Send the request; the response that comes back has begun and holds a reply."""
        body, extra = body_of(request), without_surrogates(request.extra)
        with self._as_llm_errors(self.host):
            raw = await self.sdk.messages.with_raw_response.create(**body, extra_body=extra)
        response: httpx2.Response = raw.http_response
        return response

    async def read(self, response: httpx2.Response) -> AsyncGenerator[StreamEvent, None]:
        from anthropic import AsyncStream

        reply = ReplyReader()
        events = AsyncStream.raw_events(response)
        try:
            async for sse in events:
                if not sse.data:
                    continue
                data = json.loads(sse.data)
                if data["type"] == "error":
                    raise self._error_within(data)
                for event in reply.read(data):
                    yield event
                if reply.is_complete:
                    break
            stopped = reply.stopped()
        except LlmError:
            raise
        # Whatever a broken connection or bad data raises in the transport, the SDK or the
        # reader: from httpx2's errors over JSONDecodeError to KeyError and AssertionError.
        except Exception as error:
            raise self._broken(error, response) from error
        if stopped is None:
            raise self._broken(None, response)
        await _read_to_end(events)
        yield stopped

    # -- errors ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def _as_llm_errors(self, host: str) -> Iterator[None]:
        """Translate what the SDK raises before a reply begins."""
        import anthropic
        import httpx2

        try:
            yield
        except anthropic.APIStatusError as error:
            raise _status_error(
                error.status_code,
                f"{host} answered {error.status_code}"
                + (f" ({error.type})" if error.type else "")
                + f": {self._words(error.api_message or error.message)}",
                status_code=error.status_code,
                retry_after_s=_retry_after_s(error.response.headers),
            ) from error
        except (anthropic.APIConnectionError, httpx2.HTTPError, httpx2.InvalidURL) as error:
            cause = error.__cause__ or error
            if isinstance(cause, httpx2.LocalProtocolError):
                raise _unsendable_key() from None  # its message quotes the header
            if isinstance(cause, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
                raise ConnectionFailed(
                    f"The base URL is no address of a server: {self._words(cause)}. Set "
                    "`ANTHROPIC_BASE_URL` to one that begins with `https://`, or remove it.",
                    retryable=False,
                ) from error
            raise ConnectionFailed(
                f"{host} could not be reached: {self._told(cause)}. Check the network, and "
                "`ANTHROPIC_BASE_URL` if it is set."
            ) from error
        except anthropic.CredentialsError as error:
            raise _missing_key(f" (the SDK says: {self._words(error)})") from error
        except anthropic.AnthropicError as error:
            raise AuthenticationFailed(
                f"The credentials could not be used: {self._words(error)}. Set "
                "`ANTHROPIC_API_KEY`, or log in again."
            ) from error
        except UnicodeEncodeError:
            raise _unsendable_key() from None
        except (TypeError, ValueError) as error:
            if "resolve authentication" in str(error):
                raise _missing_key() from None
            raise InvalidRequest(
                f"The request could not be written: {self._words(error)}. Look at its `extra` "
                "and at the schemas of its tools."
            ) from error

    def _error_within(self, data: Mapping[str, Any]) -> LlmError:
        """An error that the API sends after it began to reply, under the status 200."""
        error = data["error"]
        status = _STATUS_OF_TYPE.get(error["type"], 500)
        words = self._words(error.get("message") or "no message")
        return _status_error(status, f"{self.host} broke off its reply ({error['type']}): {words}")

    def _broken(self, error: Exception | None, response: httpx2.Response) -> StreamBroken:
        import httpx2

        kind = response.headers.get("content-type", "no content type")
        if not kind.startswith("text/event-stream"):
            return StreamBroken(
                f"{self.host} answered with {self._words(kind)} where a stream of events was "
                "asked for. Check `ANTHROPIC_BASE_URL`.",
                retryable=False,
            )
        if error is None:
            what = "ended its reply without the end mark"
        elif isinstance(error, httpx2.HTTPError):
            what = f"was lost within its reply: {self._told(error)}"
        else:
            what = f"sent what cannot be read: {self._told(error)}"
        return StreamBroken(f"{self.host} {what}. Try again.")

    def _told(self, error: BaseException) -> str:
        import httpx2

        if isinstance(error, httpx2.ReadTimeout):
            return f"nothing came for {self._timeout_s:g} s"
        return f"{type(error).__name__}: {self._words(error)}".removesuffix(": ")

    def _words(self, said: object) -> str:
        """What the other side said, on one line, without keys and without its full stop."""
        if str(said).lstrip().startswith("<"):
            words = one_line(re.sub(r"<[^>]*>", " ", str(said)), limit=80)
            return f"a web page ({words}), which is no answer of the API"
        text = re.sub(r"sk-ant-[\w-]+", "…", str(said))
        for secret in self._secrets:
            text = text.replace(secret, "…") if secret else text
        return one_line(text, limit=300).removesuffix(".")


_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}


def _status_error(status: int, what: str, **fields: Any) -> LlmError:
    kind: type[LlmError]
    match status:
        case 401 | 403:
            kind = AuthenticationFailed
            advice = (
                "Set `ANTHROPIC_API_KEY` to a key that is valid there, and check "
                "`ANTHROPIC_BASE_URL` if it is set; the next run uses them"
            )
        case 404:
            kind = ModelNotFound
            advice = "Check the model's name, and `ANTHROPIC_BASE_URL` if it is set"
        case 429:
            kind, advice = RateLimited, "Wait a little, or run fewer agents at a time"
        case 529:
            kind, advice = Overloaded, "Try again in a while, or use another model"
        case 408 | 409:
            kind, advice = ServerFailed, "Try again"
        case _ if status >= 500:
            kind, advice = ServerFailed, "Try again in a while"
        case _:
            kind = InvalidRequest
            advice = "The same request would be refused again: change what it asks for"
    return kind(f"{what}. {advice}.", **fields)


def _missing_key(detail: str = "") -> MissingKey:
    return MissingKey(
        f"There is no key for the Anthropic API{detail}: set the environment variable "
        '`ANTHROPIC_API_KEY`, or use `--model demo` (`model="demo"`), which needs none.'
    )


def _unsendable_key() -> AuthenticationFailed:
    return AuthenticationFailed(
        "The key holds characters that cannot be sent. Set `ANTHROPIC_API_KEY` anew, without "
        "spaces and line breaks."
    )


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The wait that a response asks for: in milliseconds, in seconds, or until a date."""
    asked = headers.get("retry-after", "")
    wait_s = None
    if (date := email.utils.parsedate_tz(asked)) is not None:
        wait_s = email.utils.mktime_tz(date) - time.time()
    with contextlib.suppress(ValueError):
        wait_s = float(asked)
    with contextlib.suppress(ValueError):
        wait_s = float(headers.get("retry-after-ms", "")) / 1000
    return max(0.0, wait_s) if wait_s is not None and math.isfinite(wait_s) else None


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
    except BaseException as error:
        imported.set_exception(error)
    else:
        imported.set_result(None)


async def _read_to_end(events: AsyncIterator[object]) -> None:
    """Take what stands behind the end mark, so that the connection can be used again.

    It is a few bytes that came with the mark. Where they do not come, or are bad, the reply is
    complete all the same, and only the connection is lost.
    """
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_LAST_BYTES_S):
            async for _ in events:
                pass
