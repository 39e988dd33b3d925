"""What stands where a run keeps nothing, and before whatever keeps it."""

from __future__ import annotations

from agentnb.core.errors import InternalError
from agentnb.core.protocols import Journal


class NoJournal:
    """Keeps nothing."""

    async def commit(self) -> None:
        return


class CarefulJournal:
    """A journal whose failure ends no agent without its terminal event: the run tells of it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.error: InternalError | None = None

    async def commit(self) -> None:
        try:
            await self._journal.commit()
        except Exception as error:
            self.error = self.error or InternalError.wrapping(error, where="the journal")
