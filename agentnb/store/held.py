"""`HeldJournal`: the journal of a recovered run until its old record is replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agentnb.core.events import Entry
from agentnb.core.protocols import Journal
from agentnb.core.records import CallRecord, Kept, RunHead, RunJournal, ToolCallRecord


class Replacing(Journal, Protocol):
    """A journal that can replace a run's record."""

    def replace(self, head: RunHead, things: Sequence[Kept | Sequence[Entry]]) -> None:
        """With the next commit, store this instead of everything that was stored of the run.

        What follows belongs to this run. `things` is not copied, so it must not change any more.
        """
        ...


class HeldJournal:
    """Implements `agentnb.core.protocols.Journal` for one recovered run.

    It holds everything it gets, in order, and its commits return at once. `let_go` stores all of it
    instead of the run's old record, completely or not at all; from then on everything is passed on.
    If the process dies before that, nothing has changed.

    Args:
        journal: A journal of the store that has the run.
    """

    def __init__(self, journal: Replacing) -> None:
        self._journal = journal
        self._head: RunHead | None = None
        self._held: list[Kept | Sequence[Entry]] | None = []

    def __repr__(self) -> str:
        state = "passes on" if self._held is None else f"holds {len(self._held):,}"
        return f"HeldJournal({self._journal!r}, {state})"

    @property
    def holds(self) -> bool:
        """Whether the old record is still in place."""
        return self._held is not None

    def begin(self, head: RunHead) -> None:
        """Begin the run again."""
        if self._head is not None:
            raise RuntimeError("A held journal is for one run.")
        self._head = head

    def keep(self, record: Kept) -> None:
        """Hold a record, or pass it on."""
        if self._held is None:
            self._journal.keep(record)
        else:
            self._held.append(record)

    def intend(self, record: CallRecord | ToolCallRecord) -> None:
        """Hold the record of what is about to start, or pass it on."""
        if self._held is None:
            self._journal.intend(record)
        else:
            self._held.append(record)

    def published(self, entries: Sequence[Entry]) -> None:
        """Hold entries, or pass them on."""
        if self._held is None:
            self._journal.published(entries)
        else:
            self._held.append(entries)

    async def commit(self) -> None:
        """Return at once while everything is held."""
        if self._held is None:
            await self._journal.commit()

    async def let_go(self) -> None:
        """Replace the run's old record, and return when that is on disk. Later calls do nothing.

        If the store cannot be written any more, its `trouble` says so, as for any run, and the old
        record stays.

        Raises:
            CannotRecover: The run no longer belongs to this process. Its old record stays.
        """
        if self._held is None:
            return
        if self._head is None:
            raise RuntimeError("`begin` comes before anything else of a run.")
        held, self._held = self._held, None
        self._journal.replace(self._head, held)
        await self._journal.commit()

    def load(self, run_id: str) -> RunJournal:
        """Everything that was stored of a run: until `let_go`, its old record."""
        return self._journal.load(run_id)

    def close(self) -> None:
        """Close the journal, and drop what is still held."""
        self._journal.close()
