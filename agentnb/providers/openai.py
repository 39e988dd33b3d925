"""Provider for chat completions of OpenAI or any compatible server, through OpenAI's own SDK.

`openai_wire` writes requests and reads replies; `sdk` holds what both SDKs share, `forms` what
servers refuse.

The SDK is an extra. It is imported on a background thread: by the first call, or earlier where
there is a key or a base URL.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from agentnb.core.errors import MissingExtra
from agentnb.core.media import MEDIA_TYPES
from agentnb.core.secrets import note, note_address, note_variable, without_user
from agentnb.core.text import literal
from agentnb.core.types import CompletionRequest, StreamEvent
from agentnb.providers.client_pool import ClientPool, Settings, settings_of
from agentnb.providers.error_mapping import as_words
from agentnb.providers.forms import MAX_TOKENS
from agentnb.providers.openai_address import base_url_in_force, is_public
from agentnb.providers.openai_hints import Names, hints_on, missing_key
from agentnb.providers.openai_wire import USUAL, ReplyReader, body_of, event_in, parts_sent
from agentnb.providers.reply import ReplyStream
from agentnb.providers.sdk import SdkClient, ready, sdk_import, stream_reply
from agentnb.providers.servers import server_of

if TYPE_CHECKING:
    import openai

_NO_KEY = "no-key"
"""The key sent to a local server if none is set: it accepts any."""


def _load_sdk() -> None:
    import openai  # noqa: F401


_sdk = sdk_import(_load_sdk)


def preload() -> None:
    """Begin to import the SDK in the background if a key or a base URL is set."""
    if any(os.environ.get(name) for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL")):
        _sdk.begin()


class OpenAIProvider:
    """Any server of chat completions: Ollama, vLLM, llama.cpp, LM Studio, or OpenAI itself.

    Defaults come from the SDK's own environment variables. Only OpenAI itself needs a key; a
    server with another base URL is called without one.

    Args:
        base_url: The server's address, with its `/v1`; replaces `OPENAI_BASE_URL`.
        api_key: Replaces `OPENAI_API_KEY`.
        api_key_env: The environment variable that holds the key, in place of `OPENAI_API_KEY`. It
            is read at each call.
        timeout_s: How long the server may be silent, before and within a reply. A slow reply never
            reaches it: the caller sets the deadline of a whole turn.

    Raises:
        MissingExtra: The SDK is not installed.
    """

    name = "openai"
    uses_network = True

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

    def __repr__(self) -> str:
        shown = self._base_url and without_user(self._base_url)
        return f"OpenAIProvider(base_url={literal(shown)})"

    async def ready(self) -> None:
        """Wait until the SDK is imported, once, and until it is the call's turn."""
        await ready(_sdk, self._clients, self._settings())

    async def check_key(self) -> None:
        """See `agentnb.core.protocols.SupportsKeyCheck`."""
        await _sdk.wait()
        async with self._clients.borrowed(self._settings()) as client:
            client.check_key()

    def _settings(self) -> Settings:
        return settings_of("OPENAI_", self._key_variable)

    def stream(self, request: CompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Make one call: see `stream_reply`."""
        return stream_reply(request, _sdk, self._clients, self._settings())

    def supports_media(self, model: str, media_type: str) -> bool:
        """The API has a form for each. Whether a server's model reads it, the server says."""
        return media_type in MEDIA_TYPES

    async def aclose(self) -> None:
        """Close the clients of the running loop. A later call makes new ones."""
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
        )


class _Client(SdkClient):
    """The SDK's client for one loop, one server and one key."""

    path = "/chat/completions"
    reader = ReplyReader
    event_in = staticmethod(event_in)
    body_of = staticmethod(body_of)
    parts_sent = staticmethod(parts_sent)

    def __init__(
        self,
        base_url: str,
        key: str | None,
        *,
        names: Names,
        timeout_s: float,
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
        self.server = server_of("openai", str(self.sdk.base_url), is_vendors=is_openai)
        self.usual_form = USUAL.leaving_out(MAX_TOKENS) if is_openai else USUAL
        # The key may also be in the headers that the user sets for all calls.
        has_header = "authorization" in os.environ.get("OPENAI_CUSTOM_HEADERS", "").lower()
        self._needs_key = is_openai and not key and not has_header

    def check_key(self) -> None:
        """Raise `MissingKey` if the server is OpenAI's own and there is no key."""
        if self._needs_key:
            raise missing_key()

    async def ask(self, request: CompletionRequest) -> ReplyStream:
        """See `SdkClient`."""
        self.check_key()
        return await super().ask(request)

    def kind_and_message(self, error: openai.APIStatusError) -> tuple[object, object]:
        """See `SdkClient`."""
        message = error.body.get("message") if isinstance(error.body, dict) else None
        return _kind(error), message


def _kind(error: openai.APIStatusError) -> str | None:
    """The error's code if it is a word, since it says more than the type; else the type.

    Some servers send the status as the code. Older SDKs leave its type as the server sent it.
    """
    code = "" if error.code is None else as_words(error.code)
    return code if code and not code.isdigit() else error.type
