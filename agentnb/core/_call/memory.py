"""The memories that one agent stores for later runs, and recalls from earlier ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from agentnb.core.cancel import retrieve_error, wait_shielded
from agentnb.core.durable import MemoryEntry
from agentnb.core.events import Event, MemoryCreated
from agentnb.core.protocols import MemoryKeeper
from agentnb.core.request import RunState


class AgentMemory:
    """Implements `agentnb.core.protocols.Memory`.

    Args:
        agent_id: The agent's id.
        run_id: The run's id.
        keeper: Stores the facts.
        publish: Publishes an event of the run.
    """

    def __init__(
        self,
        agent_id: str,
        run_id: str,
        keeper: MemoryKeeper,
        publish: Callable[[Event], object],
    ) -> None:
        self._agent_id = agent_id
        self._run_id = run_id
        self._keeper = keeper
        self._publish = publish

    @classmethod
    def of(cls, agent_id: str, run: RunState) -> AgentMemory | None:
        """The memory of an agent; `None` without a store for memories."""
        keeper = run.request.memory
        if keeper is None:
            return None
        return cls(agent_id, run.request.run_id, keeper, run.bus.publish)

    async def remember(self, fact: str) -> MemoryEntry:
        """See `Memory`. A cancel meanwhile is raised after the event."""
        keeping = asyncio.create_task(self._keep(fact))
        cancelled = await wait_shielded([keeping])
        if cancelled is not None:
            retrieve_error(keeping)
            raise cancelled
        return keeping.result()

    async def _keep(self, fact: str) -> MemoryEntry:
        entry = await self._keeper.remember(self._agent_id, self._run_id, fact)
        self._publish(
            MemoryCreated(
                agent_id=self._agent_id,
                fact=entry.text,
                memory_id=entry.id,
                created_at=entry.created_at.timestamp(),
            )
        )
        return entry

    async def recall(self, query: str, limit: int) -> Sequence[MemoryEntry]:
        """See `Memory`."""
        return await self._keeper.recall(query, limit)
