"""A journal in memory: for tests, and for runs that are not stored on disk.

It behaves like a journal on disk. What came after the last commit is not loaded, as if the process
had died; secrets are masked, and values that JSON does not have become text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from agentnb.core.codec import plain, rows_without_secrets
from agentnb.core.errors import NoSuchRun
from agentnb.core.events import Entry, Row, RowEntries, rows_of
from agentnb.core.records import (
    CallRecord,
    EndRecord,
    Kept,
    OrderRecord,
    Piece,
    RunHead,
    RunJournal,
    ToolCallRecord,
    VerdictRecord,
)
from agentnb.core.secrets import Secrets, known_secrets
from agentnb.core.shown import counted
from agentnb.core.types import path_key

R = TypeVar("R")
_Item = RunHead | Kept | list[Row]


class MemoryJournal:
    """Implements `agentnb.core.protocols.Journal`, for several runs, one after another."""

    def __init__(self) -> None:
        self._runs: dict[str, _KeptRun] = {}
        """By id: the committed part of each run."""
        self._waiting: list[tuple[_KeptRun, _Item]] = []
        """What came since the last commit, with its run."""
        self._run: _KeptRun | None = None

    def __repr__(self) -> str:
        return f"MemoryJournal({counted(len(self._runs), 'run')})"

    def begin(self, head: RunHead) -> None:
        """Begin a run's record; what comes from now on belongs to it."""
        self._run = _KeptRun(head)
        self._take(head)

    def replace(self, head: RunHead, things: Sequence[Kept | Sequence[Entry]]) -> None:
        """Replace a run's record with the next commit: all of it, or nothing."""
        self.begin(head)
        for thing in things:
            self._take(rows_of(thing) if isinstance(thing, Sequence) else thing)

    def intend(self, record: CallRecord | ToolCallRecord) -> None:
        """Take what is about to happen."""
        self._take(record)

    def keep(self, record: Kept) -> None:
        """Take what has happened."""
        self._take(record)

    def published(self, entries: Sequence[Entry]) -> None:
        """Take events."""
        self._take(rows_of(entries))

    def _take(self, item: _Item) -> None:
        if self._run is None:
            raise RuntimeError("`begin` comes before anything else of a run.")
        self._waiting.append((self._run, item))

    async def commit(self) -> None:
        """Keep all that was taken."""
        self._keep_waiting()

    def _keep_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for run, item in waiting:
            if isinstance(item, RunHead):
                self._runs[item.run_id] = run
            else:
                run.add(item)

    def load(self, run_id: str) -> RunJournal:
        """What was kept of a run.

        Raises:
            NoSuchRun: Nothing was.
        """
        if run_id not in self._runs:
            raise NoSuchRun(run_id)
        return _as_read(self._runs[run_id].snapshot(), known_secrets())

    def close(self) -> None:
        """Keep all that was taken."""
        self._keep_waiting()

    def reopened(self) -> MemoryJournal:
        """A journal with what was committed, as a new process would find it after this one died."""
        journal = type(self)()
        journal._runs = self._runs
        return journal


class _KeptRun:
    """The committed part of one run."""

    def __init__(self, head: RunHead) -> None:
        self._head = head
        self._rows: list[Row] = []
        self._calls: dict[tuple[str, int], CallRecord] = {}
        self._tool_calls: dict[tuple[str, int], ToolCallRecord] = {}
        self._orders: list[OrderRecord] = []
        self._verdicts: dict[tuple[str, int], VerdictRecord] = {}
        self._ends: dict[str | None, EndRecord] = {}

    def add(self, item: Kept | list[Row]) -> None:
        match item:
            case CallRecord():
                self._calls[item.path, item.number] = item
            case ToolCallRecord():
                self._tool_calls[item.path, item.number] = item
            case OrderRecord():
                self._orders.append(item)
            case VerdictRecord():
                self._verdicts[item.path, item.number] = item
            case EndRecord():
                self._ends[item.path] = item
            case _:
                self._rows += item

    def snapshot(self) -> RunJournal:
        return RunJournal(
            head=self._head,
            entries=RowEntries(self._head.run_id, 0, self._rows.copy()),
            calls=_in_order(self._calls),
            tool_calls=_in_order(self._tool_calls),
            orders=tuple(self._orders),
            verdicts=_in_order(self._verdicts),
            ends=tuple(self._ends.values()),
        )


def _in_order(records: Mapping[tuple[str, int], R]) -> tuple[R, ...]:
    """The records by path, then number."""
    keys = sorted(records, key=lambda key: (path_key(key[0]), key[1]))
    return tuple([records[key] for key in keys])


# -- as a journal on disk returns it --------------------------------------------------------------


def _as_read(journal: RunJournal, secrets: Secrets) -> RunJournal:
    read = partial(_value, text=secrets.mask)
    rows = [
        row if len(row) == 3 else (row[0], read(row[1]))
        for row in rows_without_secrets(rows_of(journal.entries), secrets)
    ]
    calls = [read(replace(call, pieces=_masked(call.pieces, secrets))) for call in journal.calls]
    return RunJournal(
        head=read(journal.head),
        entries=RowEntries(journal.head.run_id, 0, rows),
        calls=tuple(calls),
        tool_calls=read(journal.tool_calls),
        orders=read(journal.orders),
        verdicts=read(journal.verdicts),
        ends=read(journal.ends),
    )


def _masked(pieces: Sequence[Piece], secrets: Secrets) -> tuple[Piece, ...]:
    """The pieces without secrets, which may span several of them."""
    texts = secrets.mask_pieces([text for _, text in pieces])
    return tuple([(at_s, text) for (at_s, _), text in zip(pieces, texts, strict=True)])


def _value(value: Any, text: Callable[[str], str]) -> Any:
    """A value of ours with `text` applied to its texts, and foreign values in it made plain."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, tuple):
        return tuple([_value(item, text) for item in value])
    if is_dataclass(value) and not isinstance(value, type):
        values = {f.name: _value(getattr(value, f.name), text) for f in fields(value)}
        return type(value)(**values)
    return plain(value, text)
