"""What stands for a provider in a replay: it has a name, and nobody asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from agentnb.core.errors import LlmError
from agentnb.core.types import CompletionRequest, StreamEvent


class AbsentProvider:
    """A provider that is not made: no SDK, no key, no connection.

    Args:
        name: The provider's.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        """Fail: a replay answers calls from its cassette, before a provider is asked."""
        raise LlmError(f"A replay asks no model of {self.name}.", retryable=False)
