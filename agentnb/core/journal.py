"""A wrapper around the journal of a run."""

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
    """Wraps a journal: its failures never fail an agent, and a cancel never interrupts a commit.

    Args:
        journal: The journal; `None` if the run has none.
        bus: The bus that the run publishes on.
    """

    def __init__(self, journal: Journal | None, bus: EventBus) -> None:
        self._journal = journal
        self._bus = bus
        self._handed = 0
        """Number of entries that the journal was given."""
        self.error: InternalError | None = None
        """The first failure; the run raises it at its end."""

    def keep_tool_call(self, record: ToolCallRecord) -> None:
        """Pass a whole tool call on, if the journal keeps such."""
        if not supports_tool_calls(self._journal):
            return
        try:
            self._journal.keep_tool_call(record)
        except BaseException as error:  # no await here, so it is never this task's cancellation
            self._failed(error)

    def hand_entries(self) -> None:
        """Pass on the entries published since the last call, if the journal takes them."""
        if not supports_entries(self._journal):
            return
        entries = self._bus.since(self._handed)
        self._handed += len(entries)
        try:
            self._journal.published(entries)
        except BaseException as error:  # no await here, so it is never this task's cancellation
            self._failed(error)

    async def commit(self) -> None:
        """Commit what was published. A cancel during the commit is raised after it."""
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
