"""The Messages API of Anthropic, through its own SDK.

What is sent and what is read is the business of `anthropic_wire`; here are the client and the
door at which whatever goes wrong becomes an `LlmError`.

The SDK is imported on a thread that nobody has to wait for: by the first call, or before it where
there is a key.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, cast

from agentnb.core.errors import AuthenticationFailed, InvalidRequest, MissingKey
from agentnb.core.secrets import note_address
from agentnb.core.types import CompletionRequest, StreamEvent
from agentnb.providers.anthropic_wire import ReplyReader, body_of, event_in
from agentnb.providers.client_pool import ClientPool, Settings, settings_of
from agentnb.providers.door import Door
from agentnb.providers.error_teller import Advice, ErrorTeller, unsendable_key
from agentnb.providers.late_import import LateImport
from agentnb.providers.reply import Reply, replying
from agentnb.providers.wire_values import without_surrogates

if TYPE_CHECKING:
    import httpx2

_CONNECT_S = 10.0
_SECRETS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_IDENTITY_TOKEN")

ADVICE = Advice(
    base_url="`ANTHROPIC_BASE_URL`",
    key="`ANTHROPIC_API_KEY`",
    unreachable="Check the network, and `ANTHROPIC_BASE_URL` if it is set",
    unknown_model="Check the model's name, and `ANTHROPIC_BASE_URL` if it is set",
)
"""What a person can set for this API, as the sentences about its errors name it."""


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
        self._clients = ClientPool(lambda settings: _Client(settings, timeout_s=timeout_s))

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
        with Door():
            async with (
                self._borrowed_client() as client,
                replying(await client.ask(request)) as reply,
            ):
                while not reply.is_complete and (chunk := await reply.read()):
                    for event in reply.events_in(chunk):
                        yield event
                for event in reply.last_events():
                    yield event
                stopped = await reply.end()
        yield stopped

    async def aclose(self) -> None:
        """Close what was opened on the running loop. A later call opens it anew."""
        await self._clients.aclose()

    def _borrowed_client(self) -> AbstractAsyncContextManager[_Client]:
        return self._clients.borrowed(settings_of("ANTHROPIC_"))


class _Client:
    """The SDK's client for one loop and one set of environment variables."""

    def __init__(self, settings: Settings, *, timeout_s: float) -> None:
        import anthropic

        from agentnb.providers.http_client import ApiClient

        for name, value in settings:
            if name == "ANTHROPIC_BASE_URL":
                note_address(name, value)
        self._teller = ErrorTeller("the API", timeout_s, ADVICE)
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
        self._teller = ErrorTeller(host, timeout_s, ADVICE)

    async def close(self) -> None:
        """Close its connections."""
        await self.sdk.close()

    async def ask(self, request: CompletionRequest) -> Reply:
        """Send the request; the reply has begun."""
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
        began = cast("httpx2.Response", response)
        return Reply(began, ReplyReader(request), event_in, self._teller)

    # -- errors ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def _as_llm_errors(self) -> Iterator[None]:
        """Translate what the SDK raises before a reply begins."""
        import anthropic
        import httpx2

        try:
            yield
        except anthropic.APIStatusError as error:
            raise self._teller.answered(
                error.response, kind=error.type, message=error.api_message, body=error.body
            ) from error
        except (anthropic.APIConnectionError, httpx2.HTTPError, httpx2.InvalidURL) as error:
            is_wrapped = isinstance(error, anthropic.APIConnectionError)
            cause = (is_wrapped and error.__cause__) or error
            if isinstance(cause, httpx2.LocalProtocolError):
                raise unsendable_key(ADVICE) from None  # its message quotes the header
            raise self._teller.unanswered(cause) from error
        except anthropic.CredentialsError as error:
            raise missing_key(f" (the SDK says: {self._teller.words(error)})") from error
        except anthropic.AnthropicError as error:
            raise AuthenticationFailed(
                f"The credentials could not be used: {self._teller.words(error)}. Set "
                "`ANTHROPIC_API_KEY`, or log in again."
            ) from error
        except UnicodeEncodeError:
            raise unsendable_key(ADVICE) from None
        except (TypeError, ValueError) as error:
            if "resolve authentication" in str(error):
                raise missing_key() from None
            raise InvalidRequest(
                f"The request could not be written: {self._teller.words(error)}. Look at its "
                "`extra` and at the schemas of its tools."
            ) from error


def missing_key(detail: str = "") -> MissingKey:
    """Nothing was found that could be sent as a key."""
    return MissingKey(
        f"There is no key for the Anthropic API{detail}: set the environment variable "
        '`ANTHROPIC_API_KEY`, or use `--model demo` (`model="demo"`), which needs none.'
    )
