"""The Messages API of Anthropic, through its own SDK.

What is sent and what is read is the business of `anthropic_wire`; what the other SDK does alike
stands in `sdk`.

The SDK is imported on a thread that nobody has to wait for: by the first call, or before it where
there is a key.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING

from agentnb.core.errors import MissingKey
from agentnb.core.secrets import note_address
from agentnb.core.types import CompletionRequest, StreamEvent
from agentnb.providers.anthropic_wire import ReplyReader, body_of, event_in
from agentnb.providers.client_pool import ClientPool, Settings, settings_of
from agentnb.providers.error_mapping import Hints
from agentnb.providers.json_values import without_surrogates
from agentnb.providers.reply import ReplyStream
from agentnb.providers.sdk import SdkClient, sdk_import, stream_reply

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
"""What a person can set for this API, as the sentences about its errors name it."""


def _load_sdk() -> None:
    import anthropic  # noqa: F401


_sdk = sdk_import(_load_sdk)


def preload() -> None:
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

    def stream(self, request: CompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Make one call: see `stream_reply`."""
        return stream_reply(request, _sdk, self._clients, settings_of("ANTHROPIC_"))

    async def aclose(self) -> None:
        """Close what was opened on the running loop. A later call opens it anew."""
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

    async def ask(self, request: CompletionRequest) -> ReplyStream:
        """Send the request; the reply has begun."""
        body = {**body_of(request), **without_surrogates(request.extra)}
        with self.llm_errors():
            response = await self.post("/v1/messages", body)
        return ReplyStream(response, ReplyReader(request), event_in, self.errors)

    def kind_and_message(self, error: anthropic.APIStatusError) -> tuple[object, object]:
        """See `SdkClient`."""
        return error.type, error.api_message

    @contextlib.contextmanager
    def llm_errors(self) -> Iterator[None]:
        """See `SdkClient`; a key that is missing is told by this SDK in ways of its own."""
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
    """Nothing was found that could be sent as a key."""
    return MissingKey(
        f"There is no key for the Anthropic API{detail}: set the environment variable "
        '`ANTHROPIC_API_KEY`, or use `--model demo` (`model="demo"`), which needs none.'
    )
