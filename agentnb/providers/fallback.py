"""A chain of models: when one fails, the next is asked.

It moves on only before any text of a reply was shown, so that an answer never mixes two models:
after a fault, and after a refusal.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from agentnb.core.errors import LlmError
from agentnb.core.protocols import FallbackModel, closing
from agentnb.core.text import visible
from agentnb.core.types import CompletionRequest, Stopped, StreamEvent, TextDelta, bare_model


class FallbackProvider:
    """A chain of models.

    The core's engine reads `links` and asks the models itself, one after another, each with its own
    transport retries and gate, and publishes `ProviderFailover` when it moves on. An agent that has
    moved on stays with the new model. `stream` is for callers that know only providers.

    Args:
        links: The models in the order in which they are asked, at least one.
    """

    def __init__(self, links: Sequence[FallbackModel]) -> None:
        if not links:
            raise ValueError("A chain needs at least one model.")
        self.links = tuple(links)
        self.name = self.links[0].provider.name

    def __repr__(self) -> str:
        return f"FallbackProvider({', '.join(visible(link.model, 80) for link in self.links)})"

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        """Make one call to each model until one answers."""
        for link in self.links:
            was_shown = is_whole = False
            asked = replace(request, model=bare_model(link.model))
            try:
                async with closing(link.provider.stream(asked)) as events:
                    async for event in events:
                        was_shown = was_shown or (isinstance(event, TextDelta) and bool(event.text))
                        if isinstance(event, Stopped):
                            is_whole = was_shown or not self._moves_on(event, link)
                            if not is_whole:
                                break
                        yield event
                if is_whole or was_shown or link is self.links[-1]:
                    return
            except LlmError:
                if was_shown or link is self.links[-1]:
                    raise

    def _moves_on(self, end: Stopped, link: FallbackModel) -> bool:
        return end.reason == "refusal" and link is not self.links[-1]
