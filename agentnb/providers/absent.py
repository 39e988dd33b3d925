"""Replaces a provider in a replay: it has a name and answers nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

from agentnb.core.errors import LlmError
from agentnb.core.media import MEDIA_TYPES
from agentnb.core.types import CompletionRequest, StreamEvent


class AbsentProvider:
    """Stands for a provider that is not created: no SDK, no key, no connection.

    Args:
        name: The provider's name.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def supports_media(self, model: str, media_type: str) -> bool:
        """True: recorded files were accepted by the real provider."""
        return media_type in MEDIA_TYPES

    def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        """Fail: a replay answers calls from its cassette, before a provider is asked."""
        raise LlmError(f"A replay asks no model of {self.name}.", retryable=False)
