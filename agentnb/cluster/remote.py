"""Providers and tools for the turns of an attempt, whose calls are made on a worker."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from agentnb.cluster.recipes import pickled_value
from agentnb.cluster.wire import ContextHere, Ended, ModelCall, Recipe, Report, Result, ToolCall
from agentnb.core.errors import ToolError, WorkerLost
from agentnb.core.protocols import FallbackModel, Provider, ToolContext, is_chain, supports_leave
from agentnb.core.types import CompletionRequest, StreamEvent, TextDelta, ToolOutput
from agentnb.providers.fallback import FallbackProvider
from agentnb.tools.function import FunctionTool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentnb.cluster.connection import Call, Connection

Place = Callable[["Recipe | None"], Awaitable["Connection"]]
"""Returns the connection to the attempt's worker (another one if it is lost) after a check that it
can make the provider of the recipe, if there is one."""
RecipeOf = Callable[[Provider], "Recipe | None"]
"""How a worker makes a provider; `None` for one that stays here."""

_numbers = count(1)


def on_workers(provider: Provider, recipe_of: RecipeOf, place: Place) -> Provider:
    """A provider, or a chain, whose calls are made on a worker if they can be."""
    if is_chain(provider):
        links = [
            FallbackModel(on_workers(link.provider, recipe_of, place), link.model)
            for link in provider.links
        ]
        return FallbackProvider(links)
    recipe = recipe_of(provider)
    return provider if recipe is None else RemoteProvider(provider, recipe, place)


class RemoteProvider:
    """A provider whose calls are made on a worker; its abilities are those of the local one."""

    def __init__(self, provider: Provider, recipe: Recipe, place: Place) -> None:
        self.name = provider.name
        self._provider, self._recipe, self._place = provider, recipe, place

    def __getattr__(self, name: str) -> Any:
        if name in ("ready", "check_key", "aclose"):  # the worker's business
            raise AttributeError(name)
        return getattr(self._provider, name)

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        """Make one call on the attempt's worker."""
        connection = await self._place(self._recipe)
        order = ModelCall(next(_numbers), self._recipe.digest, pickle.dumps(request))
        with _open(connection, order, self._recipe) as call:
            async for item in call:
                if isinstance(item, Ended):
                    return
                yield TextDelta(item) if type(item) is str else item


class RemoteTool:
    """A tool whose function is called on a worker. Its arguments are checked here."""

    def __init__(self, tool: FunctionTool[Any, Any], recipe: Recipe, place: Place) -> None:
        self.spec = tool.spec
        self.timeout_s, self.approval = tool.timeout_s, tool.approval
        self.effects, self.on_replay = tool.effects, tool.on_replay
        self._tool, self._recipe, self._place = tool, recipe, place

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str | ToolOutput:
        """Call the function on the attempt's worker.

        Raises:
            ToolError: The arguments are wrong; or the worker was lost, and the call could not be
                repeated: a second worker was lost, too, or the tool may have changed something.
        """
        arguments = pickled_value(self._tool.arguments(input, ContextHere()))
        about = {
            "agent_id": context.agent_id,
            "path": context.path,
            "run_id": context.run_id,
        }
        try:
            return await self._called(arguments, about, context)
        except WorkerLost as lost:
            if self.effects:
                raise ToolError(
                    f"{lost} Nobody knows whether the tool did what it was asked for. Look before "
                    "you call it again."
                ) from None
        try:
            return await self._called(arguments, about, context)
        except WorkerLost as lost:
            raise ToolError(
                f"{lost} It is the second worker that this call has lost: it may need more memory "
                "than a worker has."
            ) from None

    async def _called(
        self, arguments: bytes, about: Mapping[str, str], context: ToolContext
    ) -> str | ToolOutput:
        connection = await self._place(None)
        order = ToolCall(next(_numbers), self._recipe.digest, arguments, about)
        with _open(connection, order, self._recipe) as call:
            try:
                async for item in call:
                    if isinstance(item, Report):
                        context.report(item.text)
                    elif isinstance(item, Result):
                        value: str | ToolOutput = item.value
                        return value
            except asyncio.CancelledError:
                call.stop()
                if supports_leave(context):
                    await context.leave(call)
                raise
        raise AssertionError("a call ends by its result or by an error")


@contextmanager
def _open(connection: Connection, order: ModelCall | ToolCall, recipe: Recipe) -> Iterator[Call]:
    call = connection.begin(order, recipe)
    try:
        yield call
    finally:
        call.close()
