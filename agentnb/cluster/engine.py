"""`DaskEngine`: a session's runs on the workers of a Dask cluster.

The session's process takes the turns of an attempt, so the tree, its events, budget, journal,
pauses and questions are the same as without a cluster. The attempt's worker does what takes time:
calls to the model, and tools. See `docs/decisions/0031`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from time import monotonic
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary

from agentnb.cluster.connection import Connection
from agentnb.cluster.recipes import recipe_of_provider, recipe_of_tool
from agentnb.cluster.remote import RemoteTool, on_workers
from agentnb.cluster.wire import Recipe
from agentnb.cluster.workers import LOOK_S, Workers
from agentnb.core.errors import ClusterFailed, MissingExtra
from agentnb.core.events import AgentWaiting
from agentnb.core.orchestrator import InProcessEngine
from agentnb.core.protocols import AgentOutcome, AgentWork, Provider, RunServices, Tool, links_of
from agentnb.core.text import literal, visible
from agentnb.tools.function import FunctionTool

WORKER_PATIENCE_S = 60.0
"""How long a call waits for a worker if there is none: a cluster may be starting them."""


class DaskEngine:
    """Runs attempts on the workers of a Dask cluster: `Session(engine=DaskEngine(client))`.

    Workers call the models, with the keys in their environments; a provider object passed as
    `Session(provider=…)` stays in this process. Tools that are plain functions run on the workers;
    `async def` functions, agentnb's own tools and MCP servers stay in this process.

    Args:
        client: A `distributed.Client` of any cluster.
        local_tools: Names of tools that stay in this process because they use `context.workspace`,
            or something that cannot be pickled.

    Raises:
        MissingExtra: Dask is not installed.
        ValueError: `client` is not a client, or is asynchronous; or `local_tools` is not a list of
            names.
    """

    def __init__(self, client: Any, *, local_tools: Sequence[str] = ()) -> None:
        if find_spec("distributed") is None:
            raise MissingExtra("Dask", extra="dask")
        if not callable(getattr(client, "scheduler_info", None)) or not hasattr(client, "loop"):
            raise ValueError(
                f"`client` must be a `distributed.Client`, not {literal(client)}: "
                "`DaskEngine(Client())` starts workers on this machine."
            )
        if getattr(client, "asynchronous", False):
            raise ValueError(
                "`client` uses this thread's loop, which stops while a cell waits for a run: "
                "create it without `asynchronous=True`."
            )
        if isinstance(local_tools, str) or not all(isinstance(name, str) for name in local_tools):
            raise ValueError(
                f"`local_tools` must be a list of tool names, not {literal(local_tools)}."
            )
        self.client = client
        self.local_tools = frozenset(local_tools)
        self._workers = Workers(client)
        self._recipes: WeakKeyDictionary[FunctionTool[Any, Any], Recipe] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"DaskEngine({visible(str(self.client), 200)})"

    async def open(self, provider: Provider, tools: Sequence[Tool]) -> None:
        """Check that every worker can do what a run needs.

        Raises:
            ClusterFailed: A worker cannot; something cannot be sent; or there is no worker.
        """
        for tool in tools:
            if self._goes_out(tool):  # as it is now: it may refer to what has changed since
                self._recipes[tool] = recipe_of_tool(tool)
        recipes = [self._recipe_of_provider(each.provider) for each in links_of(provider, "")]
        await self._some_worker(monotonic(), lambda: None)
        await self._workers.check_all([recipe for recipe in recipes if recipe is not None])

    async def run(
        self,
        work: AgentWork,
        *,
        provider: Provider,
        tools: Mapping[str, Tool],
        services: RunServices,
    ) -> AgentOutcome:
        """See `agentnb.core.protocols.Engine`."""
        connection: Connection | None = None

        async def place(needed: Recipe | None) -> Connection:
            nonlocal connection
            recipes = () if needed is None else (needed,)
            since = monotonic()
            while connection is None or not await self._workers.check(connection, recipes):
                found = await self._some_worker(since, lambda: services.publish(_waiting(work)))
                leave()
                connection = found
                self._workers.begin_attempt(connection)
            return connection

        def leave() -> None:
            nonlocal connection
            if connection is not None:
                self._workers.end_attempt(connection)
                connection = None

        try:
            recipes = {
                name: self._recipe_of(tool) for name, tool in tools.items() if self._goes_out(tool)
            }
            provider = on_workers(provider, self._recipe_of_provider, place)
        except ClusterFailed as error:  # of an agent whose tools or models are not the root's
            return AgentOutcome(work.request.messages, error=error, link=work.link)
        try:
            return await InProcessEngine().run(
                work,
                provider=provider,
                tools={
                    name: RemoteTool(tool, recipes[name], place) if self._goes_out(tool) else tool
                    for name, tool in tools.items()
                },
                services=services,
            )
        finally:
            leave()

    def _goes_out(self, tool: Tool) -> TypeGuard[FunctionTool[Any, Any]]:
        """Whether a tool runs on a worker."""
        return (
            isinstance(tool, FunctionTool)
            and tool.blocks
            and tool.spec.name not in self.local_tools
        )

    def _recipe_of(self, tool: FunctionTool[Any, Any]) -> Recipe:
        if tool not in self._recipes:
            self._recipes[tool] = recipe_of_tool(tool)
        return self._recipes[tool]

    def _recipe_of_provider(self, provider: Provider) -> Recipe | None:
        return recipe_of_provider(provider)

    async def _some_worker(self, since: float, on_wait: Callable[[], object]) -> Connection:
        """Return the least busy worker; wait for one if there is none.

        Args:
            since: When the search for one started, by `monotonic`.
            on_wait: Called if it has to wait.

        Raises:
            ClusterFailed: No worker came in time.
        """
        await self._workers.refresh()
        found = self._workers.least_busy()
        if found is None:
            on_wait()
        while found is None:
            if monotonic() - since > WORKER_PATIENCE_S:
                raise ClusterFailed(
                    "The cluster has had no usable worker for "
                    f"{WORKER_PATIENCE_S:.0f} s: start some, as with `client.cluster.scale(4)`."
                )
            await asyncio.sleep(LOOK_S / 4)
            await self._workers.refresh()
            found = self._workers.least_busy()
        return found


def _waiting(work: AgentWork) -> AgentWaiting:
    return AgentWaiting(agent_id=work.agent_id, reason="a worker of the cluster")
