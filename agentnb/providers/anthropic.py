"""Provider for Anthropic's Messages API, through its own SDK.

`anthropic_wire` writes requests and reads replies; `sdk` holds what both SDKs share, `forms` what
servers refuse.

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
from agentnb.providers.anthropic_wire import USUAL, ReplyReader, body_of, event_in, parts_sent
from agentnb.providers.client_pool import ClientPool, Settings, settings_of
from agentnb.providers.error_mapping import Hints
from agentnb.providers.sdk import SdkClient, ready, sdk_import, stream_reply
from agentnb.providers.servers import server_of

if TYPE_CHECKING:
    import anthropic

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
        """Wait until the SDK is imported, once, and until it is the call's turn."""
        await ready(_sdk, self._clients, settings_of("ANTHROPIC_"))

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

    path = "/v1/messages"
    usual_form = USUAL
    reader = ReplyReader
    event_in = staticmethod(event_in)
    body_of = staticmethod(body_of)
    parts_sent = staticmethod(parts_sent)

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
        is_vendors = f".{self.sdk.base_url.host}".endswith(".anthropic.com")
        self.server = server_of("anthropic", str(self.sdk.base_url), is_vendors=is_vendors)

    def check_key(self) -> None:
        """Raise `MissingKey` unless the SDK has found credentials."""
        headers = os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "").lower()
        sources = self.sdk.api_key, self.sdk.auth_token, self.sdk.credentials
        if not any(sources) and "authorization" not in headers and "x-api-key" not in headers:
            raise missing_key()

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
