"""Wraps a journal: its failures never fail an agent, and no cancel interrupts a commit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agentnb.core.cancel import is_own_cancellation, wait_shielded
from agentnb.core.errors import InternalError
from agentnb.core.protocols import (
    Journal,
    ToolCallRecord,
    supports_entries,
    supports_tool_calls,
)

if TYPE_CHECKING:
    from agentnb.core.bus import EventBus


class ShieldedJournal:
    """A journal whose failures never fail an agent, and whose commits no cancellation interrupts.

    Args:
        journal: What keeps the events; `None` where nothing is kept.
        bus: Where they are published.
    """

    def __init__(self, journal: Journal | None, bus: EventBus) -> None:
        self._journal = journal
        self._bus = bus
        self._handed = 0
        """How many entries the journal was handed."""
        self.error: InternalError | None = None
        """The first failure; the run tells of it at its end."""

    def keep_tool_call(self, record: ToolCallRecord) -> None:
        """Hand a whole tool call on, where the journal takes such."""
        if not supports_tool_calls(self._journal):
            return
        try:
            self._journal.keep_tool_call(record)
        except BaseException as error:  # it is no coroutine: nothing here is a task's own end
            self._failed(error)

    def hand_entries(self) -> None:
        """Hand on what was published since the last time, where the journal takes such."""
        if not supports_entries(self._journal):
            return
        entries = self._bus.since(self._handed)
        self._handed += len(entries)
        try:
            self._journal.published(entries)
        except BaseException as error:  # it is no coroutine: nothing here is a task's own end
            self._failed(error)

    async def commit(self) -> None:
        """Keep what was published. A cancel that comes meanwhile is passed on once it is kept."""
        if self._journal is None:
            return
        self.hand_entries()
        keeping = asyncio.create_task(self._keep(self._journal))
        if (cancelled := await wait_shielded([keeping])) is not None:
            raise cancelled

    async def _keep(self, journal: Journal) -> None:
        try:
            await journal.commit()
        except BaseException as error:
            if is_own_cancellation(error):
                raise
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        self.error = self.error or InternalError.wrapping(error, where="the journal")
