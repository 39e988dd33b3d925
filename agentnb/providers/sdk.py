"""What the SDK providers share: making one call, and translating the SDK's errors.

Both SDKs come from one generator: their clients take the same arguments, and their errors have
the same names. Only a provider's own module names its SDK.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from agentnb.core.errors import AuthenticationFailed, InvalidRequest
from agentnb.core.types import CompletionRequest, StreamEvent
from agentnb.providers.client_pool import ClientPool, Settings
from agentnb.providers.door import Door
from agentnb.providers.error_mapping import ErrorMapping, Hints, unsendable_key
from agentnb.providers.forms import CONTENT, REFUSED_THINKING, Asking, Complaint, Form
from agentnb.providers.json_values import without_surrogates
from agentnb.providers.lazy_import import LazyImport
from agentnb.providers.reply import Reader, ReplyStream, replying
from agentnb.providers.servers import Server, any_takes_turns
from agentnb.providers.thinking_in_text import ThinkingFilter
from agentnb.providers.turns import Turns

if TYPE_CHECKING:
    import httpx2

_CONNECT_S = 10.0
_FORGOTTEN = (
    "The server refused earlier thinking of this conversation, which is left out from now on."
)
K = TypeVar("K", bound="SdkClient")


def sdk_import(load_sdk: Callable[[], None]) -> LazyImport:
    """The import of an SDK, and of the aiohttp transport if it is installed."""

    def load() -> None:
        load_sdk()
        with contextlib.suppress(ImportError):  # calls then work without it
            import agentnb.providers.aio_transport  # noqa: F401

    return LazyImport(load)


async def ready(sdk: LazyImport, clients: ClientPool[K], settings: Settings) -> None:
    """Wait until a call can begin: see `agentnb.core.protocols.SupportsReady`."""
    await sdk.wait()
    if any_takes_turns():
        async with clients.borrowed(settings) as client:
            await client.turns.free(client.server)


async def stream_reply(
    request: CompletionRequest, sdk: LazyImport, clients: ClientPool[K], settings: Settings
) -> AsyncGenerator[StreamEvent, None]:
    """Make one call and stream its events.

    Leave it early only through `contextlib.aclosing` or by cancellation: both close the
    connection, so that the server stops writing.

    Args:
        request: The request to send.
        sdk: The SDK's import, which is awaited first.
        clients: Lends the client.
        settings: The environment variables that the client is made from.

    Raises:
        LlmError: The subclass says what happened, the message what to do.
    """
    await sdk.wait()
    with Door():
        async with (
            clients.borrowed(settings) as client,
            client.turns.one(client.server),
            replying(await client.ask(request)) as reply,
        ):
            while not reply.is_complete and (chunk := await reply.read()):
                for event in reply.events_in(chunk):
                    yield event
            for event in reply.last_events():
                yield event
            stopped = await reply.end()
    yield stopped


class SdkClient:
    """An SDK's client for one loop and one set of environment variables.

    Args:
        sdk: The SDK's module.
        make: Makes the client from the arguments that both SDKs take.
        base_error: The base class of the SDK's errors.
        unnamed: The server's name in messages if its address has no host.
        timeout_s: How long the server may be silent, before and within a reply.
        hints: What a user can do about its errors.
    """

    path: str
    """Of its calls, below the base URL."""
    usual_form: Form
    """The form of a server that has taught nothing."""
    server: Server
    """What is known of the server."""
    reader: Callable[[CompletionRequest, Server], Reader]
    """Reads the events of a reply."""
    event_in: Callable[[str], Mapping[str, Any]]
    """Parses one: see `ReplyStream`."""
    body_of: Callable[[CompletionRequest, Form, Server], dict[str, Any]]
    """Writes the JSON body of a request."""
    parts_sent: Callable[[CompletionRequest, Form, Server], list[str]]
    """Names the parts of the body that we chose and that a form may leave out."""

    def __init__(
        self,
        sdk: Any,
        make: Callable[..., Any],
        *,
        base_error: type[Exception],
        unnamed: str,
        timeout_s: float,
        hints: Hints,
    ) -> None:
        from agentnb.providers.http_client import ApiClient

        self.calls = 0
        self.is_rejected = False
        self.turns = Turns()
        self._module, self._base_error, self._hints = sdk, base_error, hints
        self.errors = ErrorMapping(unnamed, timeout_s, hints)
        with self.llm_errors():
            self.sdk = make(
                max_retries=0,
                timeout=timeout_s,
                default_headers={"Accept-Encoding": "gzip"},
                http_client=ApiClient(connect_s=_CONNECT_S, silence_s=timeout_s),
            )
        host = self.sdk.base_url.netloc.decode("ascii")  # with the port, without a password
        self.errors = ErrorMapping(host or unnamed, timeout_s, hints)

    async def close(self) -> None:
        """Close its connections."""
        await self.sdk.close()

    async def post(self, path: str, body: Mapping[str, Any]) -> httpx2.Response:
        """Send a request and return its response once it has begun."""
        import httpx2

        # The SDK's own `create` also searches the whole body for types that `body_of` never
        # uses: half of the SDK's time in a call.
        response: object = await self.sdk.post(
            path,
            body=body,
            cast_to=httpx2.Response,
            stream=True,
            stream_cls=self._module.AsyncStream[object],
        )
        return cast("httpx2.Response", response)

    async def ask(self, request: CompletionRequest) -> ReplyStream:
        """Send the request and return its reply once it has begun.

        What the server refuses of our own is sent in another form: see `forms`.
        """
        given = without_surrogates(request.extra)
        home = self.server.home
        asking = Asking((home, request.model), self.usual_form, given)
        may_forget, note = True, ""
        reader, split = self.reader(request, self.server), ThinkingFilter(request, self.server)
        with self.llm_errors():
            while True:
                sent = REFUSED_THINKING.left_out(home, request)
                body = {**self.body_of(sent, asking.form, self.server), **given}
                try:
                    response = await self.post(self.path, body)
                except self._module.APIStatusError as error:
                    complaint = Complaint(error.status_code, _body_of(error))
                    parts = self.parts_sent(sent, asking.form, self.server)
                    if asking.try_another(complaint, parts):
                        if complaint.teaches and CONTENT in parts and not asking.form.has(CONTENT):
                            note = _FORGOTTEN
                        continue
                    if not (may_forget and REFUSED_THINKING.is_meant(complaint, home, sent)):
                        raise
                    REFUSED_THINKING.add(home, sent)
                    may_forget = False
                    note = _FORGOTTEN
                else:
                    break
        return ReplyStream(
            response, reader, self.event_in, self.errors, split, note=note, on_end=asking.succeeded
        )

    def kind_and_message(self, error: Any) -> tuple[object, object]:
        """The kind and message that the SDK found in an error response."""
        raise NotImplementedError

    @contextlib.contextmanager
    def llm_errors(self) -> Iterator[None]:
        """Translate what the SDK raises before a reply begins."""
        import httpx2

        sdk = self._module
        try:
            yield
        except sdk.APIStatusError as error:
            kind, message = self.kind_and_message(error)
            raise self.errors.answered(
                error.response, kind=kind, message=message, body=_body_of(error)
            ) from error
        except (sdk.APIConnectionError, httpx2.HTTPError, httpx2.InvalidURL) as error:
            is_wrapped = isinstance(error, sdk.APIConnectionError)
            cause = (is_wrapped and error.__cause__) or error
            if isinstance(cause, httpx2.LocalProtocolError):
                raise unsendable_key(self._hints) from None  # its message quotes the header
            raise self.errors.unanswered(cause) from error
        except self._base_error as error:
            raise AuthenticationFailed(
                f"The credentials could not be used: {self.errors.words(error)}. Set "
                f"{self._hints.key}{self._hints.other_credentials}."
            ) from error
        except UnicodeEncodeError:
            raise unsendable_key(self._hints) from None
        except (TypeError, ValueError) as error:
            raise InvalidRequest(
                f"The request could not be written: {self.errors.words(error)}. Check its "
                "`extra` and the schemas of its tools."
            ) from error


def _body_of(error: Any) -> object:
    """The body of an error response.

    The SDKs take `error` out of it, which may only be the status in words, with the reason beside.
    """
    if isinstance(error.body, str):
        with contextlib.suppress(ValueError, RecursionError):
            return error.response.json()
    return error.body
