"""`SqliteJournal`: passes what happens in a run to the writer of a store."""

from __future__ import annotations

from collections.abc import Sequence

from agentnb.core.events import Entry
from agentnb.core.records import CallRecord, Kept, RunHead, RunJournal, ToolCallRecord
from agentnb.store.encoding import Replaced, RunEncoder
from agentnb.store.reader import load
from agentnb.store.writer import Writer


class SqliteJournal:
    """Implements `agentnb.core.protocols.Journal`, for several runs, one after another.

    On the run's loop, each call is one append to a queue. With a `trouble` of the writer nothing is
    stored any more, and no method raises. If the store already has another run with the same id,
    the run's commits raise.

    Args:
        writer: The open writer of the store's file.
        version: The version of agentnb, stored with each run.
        is_owner: Whether to close the writer with the journal.
    """

    def __init__(self, writer: Writer, *, version: str = "", is_owner: bool = False) -> None:
        self._writer = writer
        self._version = version
        self._is_owner = is_owner
        self._encoder: RunEncoder | None = None

    def __repr__(self) -> str:
        return f"SqliteJournal({str(self._writer.path)!r})"

    def begin(self, head: RunHead) -> None:
        """Begin a run."""
        self._encoder = RunEncoder(head, self._version)
        self._writer.add(self._encoder, head)

    def replace(self, head: RunHead, things: Sequence[Kept | Sequence[Entry]]) -> None:
        """See `agentnb.store.held.Replacing`. This process has claimed the run (`Store.claim`)."""
        self._encoder = RunEncoder(head, self._version, is_there=True)
        # One item of the queue, so one transaction.
        self._writer.add(self._encoder, Replaced(things))

    def keep(self, record: Kept) -> None:
        """Store a record with the next commit."""
        if self._encoder is None:
            raise RuntimeError("`begin` comes before anything else of a run.")
        self._writer.add(self._encoder, record)

    def intend(self, record: CallRecord | ToolCallRecord) -> None:
        """Store the record of what is about to start with the next commit."""
        self.keep(record)

    def published(self, entries: Sequence[Entry]) -> None:
        """Store entries with the next commit."""
        if self._encoder is None:
            raise RuntimeError("`begin` comes before anything else of a run.")
        self._writer.add(self._encoder, entries)

    async def commit(self) -> None:
        """Wait until everything before is on disk; return at once if nothing is written any more.

        Raises:
            RunIsThere: The store has another run with this one's id.
            CannotRecover: The run is to be replaced, but no longer belongs to this process.
        """
        await self._writer.commit()
        if self._encoder is not None and self._encoder.error is not None:
            raise self._encoder.error

    def load(self, run_id: str) -> RunJournal:
        """Everything that was stored of a run. Blocks."""
        return load(self._writer.path, run_id).journal

    def close(self) -> None:
        """Write what came since the last commit. Blocks until that is done."""
        if self._is_owner:
            self._writer.close()
        else:
            self._writer.flush()
