"""Provider for Anthropic's Messages API, through its own SDK.

`anthropic_wire` writes requests and reads replies; `sdk` holds what both SDKs share.

The SDK is imported on a background thread: by the first call, or earlier where there is a key.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING

from agentnb.core.errors import MissingKey
from agentnb.core.media import MEDIA_TYPES
from agentnb.core.secrets import note_address
from agentnb.core.types import CompletionRequest, StreamEvent
from agentnb.providers.anthropic_wire import ReplyReader, body_of, event_in
from agentnb.providers.client_pool import ClientPool, Settings, settings_of
from agentnb.providers.error_mapping import Hints, as_words
from agentnb.providers.json_values import without_surrogates
from agentnb.providers.message_forms import LearnedForms, RefusedThinking
from agentnb.providers.reply import ReplyStream
from agentnb.providers.sdk import SdkClient, sdk_import, stream_reply

if TYPE_CHECKING:
    import anthropic
    import httpx2

_SECRETS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_IDENTITY_TOKEN")

HINTS = Hints(
    base_url="`ANTHROPIC_BASE_URL`",
    key="`ANTHROPIC_API_KEY`",
    other_credentials=", or log in again",
    unreachable="Check the network, and `ANTHROPIC_BASE_URL` if it is set",
    unknown_model="Check the model's name, and `ANTHROPIC_BASE_URL` if it is set",
)
"""The settings of this API as error messages name them."""


def _load_sdk() -> None:
    import anthropic  # noqa: F401


_sdk = sdk_import(_load_sdk)
_forms = LearnedForms()
_refused_thinking = RefusedThinking()


def preload() -> None:
    """Begin to import the SDK in the background if a key is set.

    Without a key the SDK is probably not needed, and the import would only slow other work.
    """
    if any(os.environ.get(name) for name in _SECRETS):
        _sdk.begin()


class AnthropicProvider:
    """Claude, with key, base URL and the rest from the SDK's own environment variables.

    Args:
        timeout_s: How long the API may be silent, before and within a reply. A slow reply never
            reaches it: the caller sets the deadline of a whole turn.
    """

    name = "anthropic"
    uses_network = True

    def __init__(self, *, timeout_s: float = 600.0) -> None:
        self._clients = ClientPool(lambda settings: _Client(settings, timeout_s=timeout_s))

    async def ready(self) -> None:
        """Wait until the SDK is imported: once, for most of a second."""
        await _sdk.wait()

    async def check_key(self) -> None:
        """See `agentnb.core.protocols.SupportsKeyCheck`."""
        await _sdk.wait()
        async with self._clients.borrowed(settings_of("ANTHROPIC_")) as client:
            client.check_key()

    def stream(self, request: CompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Make one call: see `stream_reply`."""
        return stream_reply(request, _sdk, self._clients, settings_of("ANTHROPIC_"))

    def supports_media(self, model: str, media_type: str) -> bool:
        """Whether the model accepts files of this type; all models read images and PDFs."""
        return media_type in MEDIA_TYPES

    async def aclose(self) -> None:
        """Close the clients of the running loop. A later call creates new ones."""
        await self._clients.aclose()


class _Client(SdkClient):
    """The SDK's client for one loop and one set of environment variables."""

    def __init__(self, settings: Settings, *, timeout_s: float) -> None:
        import anthropic

        for name, value in settings:
            if name == "ANTHROPIC_BASE_URL":
                note_address(name, value)
        super().__init__(
            anthropic,
            anthropic.AsyncAnthropic,
            base_error=anthropic.AnthropicError,
            unnamed="the API",
            timeout_s=timeout_s,
            hints=HINTS,
        )

    def check_key(self) -> None:
        """Raise `MissingKey` unless the SDK has found credentials."""
        headers = os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "").lower()
        sources = self.sdk.api_key, self.sdk.auth_token, self.sdk.credentials
        if not any(sources) and "authorization" not in headers and "x-api-key" not in headers:
            raise missing_key()

    async def ask(self, request: CompletionRequest) -> ReplyStream:
        """Send the request and return its reply once it has begun."""
        with self.llm_errors():
            response = await self._response_to(request)
        return ReplyStream(response, ReplyReader(request), event_in, self.errors)

    async def _response_to(self, request: CompletionRequest) -> httpx2.Response:
        """Send the request in the model's known form, and in another if the API refuses that."""
        import anthropic

        address, extra = str(self.sdk.base_url), without_surrogates(request.extra)
        form, is_mended = _forms.of(address, request.model), False
        while True:
            sent = _refused_thinking.left_out(request)
            body = body_of(sent, form)
            try:
                response = await self.post("/v1/messages", {**body, **extra})
            except anthropic.APIStatusError as error:
                status, complaint = error.status_code, as_words(error.body)
                is_meant = _refused_thinking.is_meant(status, complaint, sent.messages)
                if is_meant and not is_mended:
                    _refused_thinking.add(sent.messages)
                    is_mended = True
                    continue
                other = form.after(status, complaint, body)
                if other == form:
                    raise
                form = other
            else:
                _forms.learn(address, request.model, form)
                return response

    def kind_and_message(self, error: anthropic.APIStatusError) -> tuple[object, object]:
        """See `SdkClient`."""
        return error.type, error.api_message

    @contextlib.contextmanager
    def llm_errors(self) -> Iterator[None]:
        """See `SdkClient`; this SDK reports a missing key in ways of its own."""
        import anthropic

        with super().llm_errors():
            try:
                yield
            except anthropic.CredentialsError as error:
                raise missing_key(f" (the SDK says: {self.errors.words(error)})") from error
            except (TypeError, ValueError) as error:
                if "resolve authentication" not in str(error):
                    raise
                raise missing_key() from None


def missing_key(detail: str = "") -> MissingKey:
    """The error for a call without any credentials."""
    return MissingKey(
        f"There is no key for the Anthropic API{detail}: set the environment variable "
        '`ANTHROPIC_API_KEY`, or use `--model demo` (`model="demo"`), which needs none.'
    )
