"""Chat completions, of OpenAI or of any server that speaks like it, through OpenAI's own SDK.

What is sent and what is read is the business of `openai_wire`; here are the client and the door
at which whatever goes wrong becomes an `LlmError`. Servers differ in what they take: one that
refuses a field which it can do without is asked again without it, and remembered for the model.

The SDK is an extra. It is imported on a thread that nobody has to wait for: by the first call, or
before it where there is a key or a base URL.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from agentnb.core.errors import AuthenticationFailed, InvalidRequest, MissingExtra
from agentnb.core.secrets import note, note_address, note_variable, without_user
from agentnb.core.text import literal
from agentnb.core.types import CompletionRequest, StreamEvent
from agentnb.providers.client_pool import ClientPool, Settings, settings_of
from agentnb.providers.door import Door
from agentnb.providers.error_teller import ErrorTeller, as_words, unsendable_key
from agentnb.providers.late_import import LateImport
from agentnb.providers.openai_address import base_url_in_force, is_public
from agentnb.providers.openai_advice import Names, advice_on, missing_key
from agentnb.providers.openai_wire import ReplyReader, Way, body_of, event_in
from agentnb.providers.reply import Reply, replying
from agentnb.providers.wire_values import without_surrogates

if TYPE_CHECKING:
    import httpx2
    import openai

_CONNECT_S = 10.0
_NO_KEY = "no-key"
"""What a server of one's own is sent, where there is no key: it takes any."""
_Ways = dict[tuple[str, str], Way]
"""By base URL and model, how to ask: what one model refuses, another of its server may need."""


def _load_sdk() -> None:
    import openai  # noqa: F401

    with contextlib.suppress(ImportError):  # calls then go on without it
        import agentnb.providers.aio_transport  # noqa: F401


_sdk = LateImport(_load_sdk)


def warm_up() -> None:
    """Begin to import the SDK, where a key or a base URL says that it will be used."""
    if any(os.environ.get(name) for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL")):
        _sdk.begin()


class OpenAIProvider:
    """Any server of chat completions: Ollama, vLLM, llama.cpp, LM Studio, or OpenAI itself.

    What is not given comes from the SDK's own environment variables. Only OpenAI itself needs a
    key; a server that is told by its base URL is called without one.

    Args:
        base_url: Where the server is, with its `/v1`; in place of `OPENAI_BASE_URL`.
        api_key: In place of `OPENAI_API_KEY`.
        api_key_env: The environment variable that holds the key, in place of that one. It is read
            at each call.
        timeout_s: How long the server may be silent, before and within a reply. A slow drip never
            reaches it: the deadline of a whole turn is the caller's.

    Raises:
        MissingExtra: The SDK is not installed.
    """

    name = "openai"

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        api_key_env: str | None = None,
        timeout_s: float = 600.0,
    ) -> None:
        if find_spec("openai") is None:
            raise MissingExtra("The SDK for OpenAI-compatible servers", extra="openai")
        self._base_url, self._api_key = base_url or None, api_key or None
        self._key_variable = api_key_env or "OPENAI_API_KEY"
        note("api_key", api_key)
        note_variable(api_key_env)
        self._timeout_s = timeout_s
        self._clients = ClientPool(self._new_client)
        self._ways: _Ways = {}

    def __repr__(self) -> str:
        shown = self._base_url and without_user(self._base_url)
        return f"OpenAIProvider(base_url={literal(shown)})"

    async def ready(self) -> None:
        """Load the SDK: once, for most of a second."""
        await _sdk.wait()

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Make one call.

        Leave before its end only through `contextlib.aclosing`, or by being cancelled: that
        hangs up, so that the server stops writing.

        Raises:
            LlmError: The subclass says what happened, the message what to do.
        """
        await _sdk.wait()
        with Door():
            async with (
                self._clients.borrowed(settings_of("OPENAI_", self._key_variable)) as client,
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

    def _new_client(self, settings: Settings) -> _Client:
        variables = dict(settings)
        return _Client(
            base_url_in_force(self._base_url, variables),
            self._api_key or variables.get(self._key_variable) or None,
            names=Names(
                "the `base_url` that you gave" if self._base_url else "`OPENAI_BASE_URL`",
                "the `api_key` that you gave" if self._api_key else f"`{self._key_variable}`",
            ),
            timeout_s=self._timeout_s,
            ways=self._ways,
        )


class _Client:
    """The SDK's client for one loop, one server and one key."""

    def __init__(
        self,
        base_url: str,
        key: str | None,
        *,
        names: Names,
        timeout_s: float,
        ways: _Ways,
    ) -> None:
        import openai

        from agentnb.providers.http_client import ApiClient

        note_address("base_url", base_url)
        is_openai = is_public(base_url)
        self._advice = advice = advice_on(names, is_public=is_openai)
        self._teller = ErrorTeller("the server", timeout_s, advice)
        self._ways, self._base_url = ways, base_url
        self.calls = 0
        self.is_rejected = False
        with self._as_llm_errors():
            self.sdk = openai.AsyncOpenAI(
                base_url=base_url,
                api_key=key or _NO_KEY,
                max_retries=0,
                timeout=timeout_s,
                default_headers={"Accept-Encoding": "gzip"},
                http_client=ApiClient(connect_s=_CONNECT_S, silence_s=timeout_s),
            )
        host = self.sdk.base_url.netloc.decode("ascii")  # with the port, without a password
        self._teller = ErrorTeller(host or "the server", timeout_s, advice)
        self._first_way = Way("max_completion_tokens" if is_openai else "max_tokens")
        # A key may also stand among the headers that a person has set for all calls.
        has_header = "authorization" in os.environ.get("OPENAI_CUSTOM_HEADERS", "").lower()
        self._needs_key = is_openai and not key and not has_header

    async def close(self) -> None:
        """Close its connections."""
        await self.sdk.close()

    async def ask(self, request: CompletionRequest) -> Reply:
        """Send the request; the reply has begun."""
        if self._needs_key:
            raise missing_key()
        with self._as_llm_errors():
            response = await self._response_to(request)
        return Reply(response, ReplyReader(request), event_in, self._teller)

    async def _response_to(self, request: CompletionRequest) -> httpx2.Response:
        """Ask as the server is known to want it, and in another way if it says so."""
        import openai

        asked = self._base_url, request.model
        way, tried = self._ways.get(asked, self._first_way), set[Way]()
        extra = without_surrogates(request.extra)
        while True:
            tried.add(way)
            try:
                response = await self._post({**body_of(request, way), **extra})
            except openai.APIStatusError as error:
                way = way.after(_complaint(error))
                if way in tried:
                    raise
            else:
                self._ways[asked] = way
                return response

    async def _post(self, body: dict[str, Any]) -> httpx2.Response:
        import httpx2
        import openai

        # What `completions.create` does besides is to look through the whole body for what
        # `body_of` does not use.
        response: object = await self.sdk.post(
            "/chat/completions",
            body=body,
            cast_to=httpx2.Response,
            stream=True,
            stream_cls=openai.AsyncStream[object],
        )
        return cast("httpx2.Response", response)

    # -- errors ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def _as_llm_errors(self) -> Iterator[None]:
        """Translate what the SDK raises before a reply begins."""
        import httpx2
        import openai

        try:
            yield
        except openai.APIStatusError as error:
            raise self._teller.answered(
                error.response, kind=_kind(error), message=_message(error), body=error.body
            ) from error
        except (openai.APIConnectionError, httpx2.HTTPError, httpx2.InvalidURL) as error:
            is_wrapped = isinstance(error, openai.APIConnectionError)
            cause = (is_wrapped and error.__cause__) or error
            if isinstance(cause, httpx2.LocalProtocolError):
                raise unsendable_key(self._advice) from None  # its message quotes the header
            raise self._teller.unanswered(cause) from error
        except openai.OpenAIError as error:
            raise AuthenticationFailed(
                f"The credentials could not be used: {self._teller.words(error)}. Set "
                f"{self._advice.key}."
            ) from error
        except UnicodeEncodeError:
            raise unsendable_key(self._advice) from None
        except (TypeError, ValueError) as error:
            raise InvalidRequest(
                f"The request could not be written: {self._teller.words(error)}. Look at its "
                "`extra` and at the schemas of its tools."
            ) from error


def _complaint(error: openai.APIStatusError) -> str:
    """What a server says against the form of a request; nothing where it says something else."""
    return as_words(error.body) if error.status_code in (400, 422, 500) else ""


def _kind(error: openai.APIStatusError) -> str | None:
    """The code where it is a word, as it says more than the type; some send the status as one.

    Its declared type holds for newer SDKs only: older ones leave it as it came from the server.
    """
    code = "" if error.code is None else as_words(error.code)
    return code if code and not code.isdigit() else error.type


def _message(error: openai.APIStatusError) -> object:
    return error.body.get("message") if isinstance(error.body, dict) else None
