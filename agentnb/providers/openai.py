"""Chat completions, of OpenAI or of any server that speaks like it, through OpenAI's own SDK.

What is sent and what is read is the business of `openai_wire`; what the other SDK does alike is in
`sdk`. Servers differ in what they take: one that refuses a field which it can do without is asked
again without it, and remembered for the model.

The SDK is an extra. It is imported on a thread that nobody has to wait for: by the first call, or
before it where there is a key or a base URL.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from agentnb.core.errors import MissingExtra
from agentnb.core.secrets import note, note_address, note_variable, without_user
from agentnb.core.text import literal
from agentnb.core.types import CompletionRequest, StreamEvent
from agentnb.providers.client_pool import ClientPool, Settings, settings_of
from agentnb.providers.error_mapping import as_words
from agentnb.providers.json_values import without_surrogates
from agentnb.providers.openai_address import base_url_in_force, is_public
from agentnb.providers.openai_hints import Names, hints_on, missing_key
from agentnb.providers.openai_wire import ReplyReader, Way, body_of, event_in
from agentnb.providers.reply import ReplyStream
from agentnb.providers.sdk import SdkClient, sdk_import, stream_reply

if TYPE_CHECKING:
    import httpx2
    import openai

_NO_KEY = "no-key"
"""What a server of one's own is sent, where there is no key: it takes any."""
_Ways = dict[tuple[str, str], Way]
"""By base URL and model, how to ask: what one model refuses, another of its server may need."""


def _load_sdk() -> None:
    import openai  # noqa: F401


_sdk = sdk_import(_load_sdk)


def preload() -> None:
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

    def stream(self, request: CompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Make one call: see `stream_reply`."""
        settings = settings_of("OPENAI_", self._key_variable)
        return stream_reply(request, _sdk, self._clients, settings)

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


class _Client(SdkClient):
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

        note_address("base_url", base_url)
        is_openai = is_public(base_url)
        super().__init__(
            openai,
            partial(openai.AsyncOpenAI, base_url=base_url, api_key=key or _NO_KEY),
            base_error=openai.OpenAIError,
            unnamed="the server",
            timeout_s=timeout_s,
            hints=hints_on(names, is_public=is_openai),
        )
        self._ways, self._base_url = ways, base_url
        self._first_way = Way("max_completion_tokens" if is_openai else "max_tokens")
        # A key may also stand among the headers that a person has set for all calls.
        has_header = "authorization" in os.environ.get("OPENAI_CUSTOM_HEADERS", "").lower()
        self._needs_key = is_openai and not key and not has_header

    async def ask(self, request: CompletionRequest) -> ReplyStream:
        """Send the request; the reply has begun."""
        if self._needs_key:
            raise missing_key()
        with self.llm_errors():
            response = await self._response_to(request)
        return ReplyStream(response, ReplyReader(request), event_in, self.errors)

    async def _response_to(self, request: CompletionRequest) -> httpx2.Response:
        """Ask as the server is known to want it, and in another way if it says so."""
        import openai

        asked = self._base_url, request.model
        way, tried = self._ways.get(asked, self._first_way), set[Way]()
        extra = without_surrogates(request.extra)
        while True:
            tried.add(way)
            try:
                response = await self.post("/chat/completions", {**body_of(request, way), **extra})
            except openai.APIStatusError as error:
                way = way.after(_complaint(error))
                if way in tried:
                    raise
            else:
                self._ways[asked] = way
                return response

    def kind_and_message(self, error: openai.APIStatusError) -> tuple[object, object]:
        """See `SdkClient`."""
        message = error.body.get("message") if isinstance(error.body, dict) else None
        return _kind(error), message


def _complaint(error: openai.APIStatusError) -> str:
    """What a server says against the form of a request; nothing where it says something else."""
    return as_words(error.body) if error.status_code in (400, 422, 500) else ""


def _kind(error: openai.APIStatusError) -> str | None:
    """The code where it is a word, as it says more than the type; some send the status as one.

    Its declared type holds for newer SDKs only: older ones leave it as it came from the server.
    """
    code = "" if error.code is None else as_words(error.code)
    return code if code and not code.isdigit() else error.type
