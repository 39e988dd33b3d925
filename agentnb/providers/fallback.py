"""Several models for one: the next is asked when one does not answer.

Moves on only while nothing of a reply was shown, so that nobody reads the beginning of one answer
and the end of another; and after a fault only, never because a model declined to answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from agentnb.core.errors import LlmError, Refused
from agentnb.core.protocols import FallbackModel, closing
from agentnb.core.text import visible
from agentnb.core.types import CompletionRequest, Stopped, StreamEvent, TextDelta, bare_model


class FallbackProvider:
    """A chain of models.

    The engine of the core looks at `links` and asks one after the other itself, each with its
    transport attempts and under its own gate, and tells of a move by `ProviderFailover`. An agent
    that has moved on stays there, since its conversation began there. `stream` is for whoever
    knows nothing of chains.

    Args:
        links: In the order in which they are asked, at least one.
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
                        is_whole = is_whole or isinstance(event, Stopped)
                        yield event
                if is_whole or was_shown or link is self.links[-1]:
                    return
            except LlmError as error:
                if was_shown or isinstance(error, Refused) or link is self.links[-1]:
                    raise
