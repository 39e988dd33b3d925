"""The run's record, and its subscribers.

The record is an append-only list of entries; `seq` is an entry's index in it. A subscriber is a
position in that list and not a queue that could overflow: publishing costs the same with any
number of readers, and a reader that never reads costs one number. A reader further behind than its
limit gets a joined backlog: the text of one agent in one piece, the newest budget update only, and
every lifecycle event in its place. It takes at most its limit of such entries at a time.

Entries are kept as light rows (`agentnb.core.events.Row`): a text delta costs one tuple and nothing
to the garbage collector. Readers get objects.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentnb.core.clock import Clock, MonotonicClock
from agentnb.core.events import (
    AgentTextDelta,
    BudgetUpdate,
    Entries,
    Entry,
    Event,
    EventRow,
    Row,
    RowEntries,
    RunFinished,
    TextRow,
    entry_of,
)
from agentnb.core.records import ErrorRecord, ToolCallRecord
from agentnb.core.text import literal

_WAKE_PAUSE_S = 0.015
"""Seconds that a reader on another loop sleeps after a wake-up: a call across threads for each
delta would cost a fifth of the run."""


_BUDGET = "budget updates"  # never an agent id, which contains no space


class EventBus:
    """Publishes the events of one run. Safe from any thread; publishing never blocks or fails.

    Args:
        run_id: The run id of every entry; the orchestrator fills it in when it is empty.
        clock: The clock of `Entry.at_s`, in seconds since the bus was created.
    """

    def __init__(self, run_id: str = "", *, clock: Clock | None = None) -> None:
        self.run_id = run_id
        self._now = (clock or MonotonicClock()).now
        self._started_at = self._now()
        self._log: list[Row] = []
        self._lifecycle_rows: list[EventRow] = []
        self._lock = threading.Lock()
        self._waiting: dict[_Waiter | _ThreadWaiter, None] = {}
        self._waiting_for_change: set[_ThreadWaiter] = set()
        self.whole_tool_calls: dict[tuple[str, int], ToolCallRecord] = {}
        """Tool calls whose input or result is cut in their events, by agent id and place."""
        self.data: dict[str, Any] = {}
        """Typed answers as values, by agent id. Empty for a record, where an answer's text has the
        value as JSON."""
        self.recorded_calls: set[tuple[str, int]] = set()
        """Model calls that a record answered instead of a provider: agent id and number of the
        call within its agent. Added before its `ModelCallStarted`."""
        self.recorded_tool_calls: set[tuple[str, int]] = set()
        """Tool calls that a record answered: agent id and place, as in `whole_tool_calls`."""
        self.call_errors: dict[tuple[str, int], ErrorRecord] = {}
        """The errors of failed model calls; their events have only the messages."""
        self.changes = 0
        """Number of entries so far that are neither text nor budget updates, plus the calls of
        `notify`."""
        self.closed = False
        """Whether `RunFinished` was published: no entry comes after it."""

    @classmethod
    def of_record(
        cls,
        run_id: str,
        rows: list[Row],
        whole_tool_calls: Mapping[tuple[str, int], ToolCallRecord] | None = None,
    ) -> EventBus:
        """A closed bus with the rows of a finished run, which it owns from now on."""
        bus = cls(run_id)
        bus.whole_tool_calls = dict(whole_tool_calls or {})
        bus._log = rows
        bus._lifecycle_rows = [row for row in rows if len(row) == 2]
        bus.changes = sum(not isinstance(event, BudgetUpdate) for _, event in bus._lifecycle_rows)
        bus.closed = True
        return bus

    def begin(self, run_id: str) -> None:
        """The run starts: its id goes on every entry, unless the bus was created with one."""
        self.run_id = self.run_id or run_id

    @property
    def now_s(self) -> float:
        """Seconds since the run began, by the clock of `Entry.at_s`."""
        return self._now() - self._started_at

    @property
    def entries(self) -> Entries:
        """All entries so far: dense from 0 and never joined."""
        return Entries(self.since(0))

    def since(self, seq: int) -> list[Entry]:
        """All entries from `seq` on."""
        run_id = self.run_id
        return [entry_of(run_id, place, row) for place, row in enumerate(self._log[seq:], seq)]

    def rows_as_entries(self, seq: int) -> RowEntries:
        """All entries from `seq` on; objects are created on reading."""
        return RowEntries(self.run_id, seq, self._log[seq:])

    def rows_since(self, seq: int) -> list[Row]:
        """All rows from `seq` on."""
        return self._log[seq:]

    @property
    def lifecycle_rows(self) -> list[EventRow]:
        """All rows so far except text: enough to fold an ended run."""
        return self._lifecycle_rows.copy()

    def lifecycle_since(self, place: int) -> list[EventRow]:
        """`lifecycle_rows` from a place on, for incremental readers."""
        return self._lifecycle_rows[place:]

    @property
    def newest(self) -> Event | None:
        """The newest event that is not text."""
        return self._lifecycle_rows[-1][1] if self._lifecycle_rows else None

    def __len__(self) -> int:
        return len(self._log)

    def __getitem__(self, seq: int) -> Entry:
        return entry_of(self.run_id, seq, self._log[seq])

    def keep_whole(self, record: ToolCallRecord, place: int) -> None:
        """Keep a tool call whose event is cut; a later record of the same call replaces it.

        Args:
            record: The call.
            place: Its place among its agent's calls, from 1, in the order in which they started.
        """
        self.whole_tool_calls[record.agent_id, place] = record

    def keep_data(self, agent_id: str, data: Any) -> None:
        """Keep an agent's answer as a value."""
        self.data[agent_id] = data

    def publish(self, event: Event) -> float:
        """Append an event to the record, and wake its readers. Returns its `at_s`."""
        if isinstance(event, AgentTextDelta):
            return self.publish_text(event.agent_id, event.text)[0]
        with self._lock:
            at_s = self._now() - self._started_at
            row = (at_s, event)
            self._log.append(row)
            self._lifecycle_rows.append(row)
            if isinstance(event, RunFinished):
                self.closed = True
            if not isinstance(event, BudgetUpdate):
                self.changes += 1
                for waiter in self._waiting_for_change:
                    waiter.wake()
        if self._waiting:
            self._wake()
        return at_s

    def publish_text(self, agent_id: str, text: str) -> TextRow:
        """Publish an `AgentTextDelta` without creating the object. Returns its row."""
        row = (self._now() - self._started_at, agent_id, text)
        # No lock: appending to a list is atomic, and nothing here depends on the index.
        self._log.append(row)
        if self._waiting:
            self._wake()
        return row

    def _wake(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            waiter.wake()

    def subscribe(self, *, past: bool = True, limit: int = 1000) -> Subscription:
        """A gapless stream of entries, from the beginning or from now on, to the run's end.

        Args:
            past: Whether to begin with the first entry of the record.
            limit: How many entries a reader may be behind before they are joined, and how many
                joined entries it holds at most.
        """
        return Subscription(self, position=0 if past else len(self._log), limit=limit)

    def wait_past(self, position: int, *, timeout_s: float) -> None:
        """Block the calling thread until there may be more than `position` entries, or the timeout.

        Never call it on the run's own thread, which would wait for itself.
        """
        waiter = _ThreadWaiter()
        with self._lock:
            self._waiting[waiter] = None
        if len(self._log) <= position and not self.closed:
            waiter.wait(timeout_s)
        with self._lock:
            self._waiting.pop(waiter, None)

    def wait_for_change(self, changes: int, *, timeout_s: float) -> None:
        """Block the calling thread until there are more than `changes` changes, or the timeout."""
        waiter = _ThreadWaiter()
        with self._lock:
            if self.changes > changes or self.closed:
                return
            self._waiting_for_change.add(waiter)
        waiter.wait(timeout_s)
        with self._lock:
            self._waiting_for_change.discard(waiter)

    def notify(self) -> None:
        """Count a change without an entry, so that waiters look again."""
        with self._lock:
            self.changes += 1
            for waiter in self._waiting_for_change:
                waiter.wake()

    async def _wait_past(self, position: int) -> None:
        """Wait until there may be more than `position` entries, or the record is closed."""
        waiter = _Waiter()
        with self._lock:
            self._waiting[waiter] = None
        try:
            # Check after the waiter is registered: `publish_text` appends without the lock, and
            # then wakes the waiters that it finds.
            if len(self._log) > position or self.closed:
                return
            await waiter.wait()
        finally:
            # A reader with a timeout waits many times in a silent run: do not accumulate waiters.
            with self._lock:
                self._waiting.pop(waiter, None)


class _Waiter:
    """One reader that waits on its own loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._future: asyncio.Future[bool] = self._loop.create_future()

    def wake(self) -> None:
        try:
            if threading.get_ident() == self._thread:
                self._resolve(False)
            else:
                self._loop.call_soon_threadsafe(self._resolve, True)
        except RuntimeError:
            pass  # the reader's loop is closed

    def _resolve(self, from_other_thread: bool) -> None:
        if not self._future.done():
            self._future.set_result(from_other_thread)

    async def wait(self) -> None:
        if await self._future:
            await asyncio.sleep(_WAKE_PAUSE_S)


class _ThreadWaiter:
    """One reader that blocks its own thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.wake = self._event.set
        self.wait = self._event.wait


class Subscription:
    """An async iterator over a run's entries. Works on any loop, in any thread."""

    __slots__ = ("_bus", "_joined", "_limit", "_past_ends", "_position")

    def __init__(self, bus: EventBus, *, position: int, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"`limit` must be at least 1, not {literal(limit)}.")
        self._bus = bus
        self._position = position
        self._limit = limit
        self._past_ends = len(bus)
        self._joined: list[Entry] = []
        """Unread joined entries before `_position`, newest first."""

    def __aiter__(self) -> Subscription:
        return self

    @property
    def has_news(self) -> bool:
        """Whether the next entry is available without waiting."""
        return bool(self._joined) or self._position < len(self._bus)

    async def __anext__(self) -> Entry:
        log = self._bus._log
        while not self._joined:
            # Entries from before the subscription are never joined: the reader did not fall behind.
            is_past = self._position < self._past_ends
            if not is_past and len(log) - self._position > self._limit:
                backlog = (self._bus[seq] for seq in range(self._position, len(log)))
                fewer, taken = _join_some(backlog, self._limit)
                self._position += taken
                self._joined = fewer[::-1]
            elif self._position < len(log):
                self._position += 1
                return self._bus[self._position - 1]
            elif self._bus.closed and self._position == len(log):
                raise StopAsyncIteration
            else:
                await self._bus._wait_past(self._position)
        return self._joined.pop()


def joined(entries: Sequence[Entry]) -> list[Entry]:
    """The same content in fewer entries, ordered by `seq`.

    Deltas of one agent are joined unless a lifecycle event of that agent is between them; of the
    budget updates the newest is kept. All other entries stay as they are.
    """
    return _join_some(entries, len(entries))[0]


def _join_some(entries: Iterable[Entry], limit: int) -> tuple[list[Entry], int]:
    """Join entries until there are `limit`. Returns them, and how many entries went into them."""
    slots: dict[int, list[Entry]] = {}
    open_slot: dict[str, int] = {}
    taken = 0
    for entry in entries:
        event, slot = entry.event, taken
        if isinstance(event, AgentTextDelta | BudgetUpdate):
            key = event.agent_id if isinstance(event, AgentTextDelta) else _BUDGET
            slot = open_slot.setdefault(key, taken)
        else:
            open_slot.pop(getattr(event, "agent_id", ""), None)
        if slot not in slots and len(slots) == limit:
            break
        # An open slot moves to the end, where its newest `seq` belongs.
        pieces = slots.pop(slot, [])
        pieces.append(entry)
        slots[slot] = pieces
        taken += 1
    return [_merged(pieces) for pieces in slots.values()], taken


def _merged(pieces: Sequence[Entry]) -> Entry:
    first, newest = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return newest
    event = newest.event
    if isinstance(event, AgentTextDelta):
        text = "".join(p.event.text for p in pieces if isinstance(p.event, AgentTextDelta))
        event = replace(event, text=text)
    return replace(newest, event=event, seq_first=first.seq)
