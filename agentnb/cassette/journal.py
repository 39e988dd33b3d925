"""`CassetteJournal` records a run into a cassette; `TeeJournal` passes a run to two journals."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentnb.cassette.encode import RunEncoder
from agentnb.cassette.fold import Recording, has_same, names_of, runs_in
from agentnb.cassette.lines import Line, checked, with_recording
from agentnb.cassette.unanswered import Answers
from agentnb.cassette.writer import file_at
from agentnb.core.collector import without_collector
from agentnb.core.events import Entry
from agentnb.core.protocols import SupportsCommit
from agentnb.core.records import (
    FINISHED,
    CallRecord,
    EndRecord,
    Kept,
    RunHead,
    RunJournal,
    ToolCallRecord,
)
from agentnb.core.secrets import known_secrets
from agentnb.core.text import literal
from agentnb.core.threads import run_in_thread

MODES = ("record", "auto")
_new: Counter[str] = Counter()
"""How many calls this process has recorded, by the real path of their cassette."""


def recorded_now() -> dict[str, int]:
    """How many calls this process has recorded, by the real path of their cassette."""
    return dict(_new)


class CassetteJournal:
    """Implements `agentnb.core.protocols.Journal` except `load`, for one run and one file.

    When a commit returns, everything that has finished is in the file. Before the run's first
    finished call, the file keeps what it has under the label; then `record` replaces that, and
    `auto` adds what was missing. The commit after the run's end puts the file into order. Events
    are not stored, nor is a call that no model answered, nor an end that came of it: with one,
    `record` leaves the old run.

    Args:
        path: The file. It is created with the first finished call; its folder must exist.
        label: The run's label.
        mode: `record` or `auto`.
        tell: Called with what a person should know of the recording, as a clause; also of a file
            that cannot be written any more. The run then goes on without it, since it is paid for.

    Raises:
        BadCassette: The file is not a cassette, or damaged. It is not changed.
    """

    def __init__(
        self,
        path: str | Path,
        label: str,
        mode: str = "record",
        tell: Callable[[str], None] | None = None,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"`mode` must be one of {', '.join(MODES)}, not {literal(mode)}.")
        self.path, self.label, self.mode, self._tell = Path(path), label, mode, tell
        self._file = file_at(path)
        self._file.check()
        self._one = threading.Lock()
        self._head: RunHead | None = None
        self._encoder: RunEncoder | None = None
        self._answers = Answers()
        self._waiting: list[Kept] = []
        self._lines: list[Line] = []
        """All lines of the run so far, its own line first."""
        self._unwritten: list[Line] = []
        self._known: dict[Any, Line] | None = None
        self._has_begun = self._has_ended = False
        """Whether a line of the run is in the file; whether the file is in order again."""
        self._was_there = False
        """Whether the file had a recording of the run before this one."""
        self._recording = ""

    def __repr__(self) -> str:
        return f"CassetteJournal({literal(str(self.path))}, {literal(self.label)}, {self.mode!r})"

    def begin(self, head: RunHead) -> None:
        """A run begins."""
        self._head, self._encoder = head, RunEncoder(self.label, head.thread_id)
        self._answers = Answers()
        self._waiting, self._lines, self._unwritten = [], [], []
        self._known, self._has_begun, self._has_ended = None, False, False
        self._recording = secrets.token_hex(4)

    def intend(self, record: CallRecord | ToolCallRecord) -> None:
        """Do nothing: unfinished work is not stored."""

    def keep(self, record: Kept) -> None:
        """Store a record with the next commit, if it is a finished one."""
        if self._encoder is None:
            raise RuntimeError("`begin` comes before anything else of a run.")
        if getattr(record, "status", FINISHED) == FINISHED or isinstance(record, EndRecord):
            self._waiting.append(record)

    def published(self, entries: Sequence[Entry]) -> None:
        """Do nothing: events are not stored, since a replay creates them again."""

    async def commit(self) -> None:
        """Wait until all finished work is in the file.

        Raises:
            BadCassette: The file was damaged meanwhile. It is not changed.
            OSError: The file cannot be written, and `tell` is not given.
            ValueError: A record is malformed, so the file could not be read any more. Nothing of
                this commit is in it.
        """
        if self._waiting:
            await run_in_thread(self._write)

    def close(self) -> None:
        """Write what arrived without a commit. Blocks."""
        self._write()
        self._encoder = None

    def _write(self) -> None:
        with self._one:
            waiting, self._waiting = self._waiting, []
            if not waiting or self._encoder is None or self._head is None:
                return
            known = known_secrets()
            if not self._lines:
                self._lines.append(self._encoder.head(self._head, known))
            with without_collector():
                kept = [each for record in waiting for each in self._answers.part_of(record)]
                new = [checked(self._encoder.line(record, known)) for record in kept]
            self._lines += new
            new = [line for line in new if not self._is_there(line)]
            self._unwritten += new
            _new[str(self._file.path)] += sum(line.kind == "call" for line in new)
            try:
                if any(isinstance(record, EndRecord) and record.path is None for record in waiting):
                    self._finish()
                    self._lines, self._has_ended = [], True
                elif not self._has_ended:
                    self._append()
            except OSError as error:
                if self._tell is None:
                    raise
                self._head = None  # nothing more of this run
                why = error.strerror or type(error).__name__
                self._say(f"it cannot be written ({why}): calls are answered, and not kept")

    def _finish(self) -> None:
        """Put the file into order, with the run or without it."""
        failed = self._answers.left_out
        if not failed:
            self._file.finish(Recording(self.label, self.mode, self._lines), self._recording)
            return
        if self.mode == "record" and self._is_old_there():
            kept = "the recording of before stays as it was"
            if self._has_begun:
                self._file.leave(self._recording)
        else:
            kept = "that is not recorded, and mode `auto` asks again"
            if any(line.kind == "call" for line in self._lines):
                self._file.finish(Recording(self.label, self.mode, self._lines), self._recording)
        self._say(f"{self._answers.in_words()}: {kept}")

    def _say(self, clause: str) -> None:
        if self._tell is not None:
            self._tell(f"run {literal(self.label, 60)}: {clause}")

    def _is_old_there(self) -> bool:
        """Whether the file had the run before; known as long as nothing of this one is in it."""
        if not self._has_begun:
            self._was_there = self.label in runs_in(self._file.content().lines)
        return self._was_there

    def _append(self) -> None:
        """Append what is new, once a call has finished; until then, the old lines stay."""
        is_call = any(line.kind == "call" for line in self._unwritten)
        if not self._unwritten or not (self._has_begun or is_call):
            return
        written = [with_recording(line.raw, self._recording) for line in self._unwritten]
        if not self._has_begun:
            self._is_old_there()
            head = self._lines[0].raw
            written.insert(0, with_recording(head, self._recording, self.mode))
        self._file.append(b"".join(written), self._recording)
        self._has_begun, self._unwritten = True, []

    def _is_there(self, line: Line) -> bool:
        """Whether the file has an equal line; never in mode `record`, which replaces all lines."""
        if self.mode == "record":
            return False
        if self._known is None:
            self._known = names_of(runs_in(self._file.content().lines).get(self.label, ()))
        return has_same(self._known, line)


class UnkeptJournal:
    """Stands for a cassette that may only be read: says at a run's end that new calls are not kept.

    Args:
        has_new: Whether the run has made calls that are not in the cassette.
        tell: Called with that as a clause.
    """

    def __init__(self, has_new: Callable[[], bool], tell: Callable[[str], None]) -> None:
        self._has_new, self._tell = has_new, tell

    def keep(self, record: Kept) -> None:
        """Take a record."""
        if isinstance(record, EndRecord) and record.path is None and self._has_new():
            self._tell("new calls are answered, and not kept")

    async def commit(self) -> None:
        """Do nothing: nothing is stored."""


class TeeJournal:
    """Passes a run to two journals. Both get everything, even if one fails.

    Args:
        one: The first journal. It also loads runs, and provides all other methods.
        other: The second journal. Its errors are raised after the first one got its part.
    """

    def __init__(self, one: SupportsCommit, other: SupportsCommit) -> None:
        self.one, self.other = one, other

    def __repr__(self) -> str:
        return f"TeeJournal({self.one!r}, {self.other!r})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("one", "other"):
            raise AttributeError(name)
        return getattr(self.one, name)

    def _both(self, name: str, *values: object) -> None:
        errors: list[BaseException] = []
        for journal in (self.one, self.other):
            method: Callable[..., object] | None = getattr(journal, name, None)
            if method is not None:
                try:
                    method(*values)
                except BaseException as error:  # the other journal gets its part first
                    errors.append(error)
        if errors:
            raise errors[0]

    def begin(self, head: RunHead) -> None:
        """A run begins."""
        self._both("begin", head)

    def intend(self, record: CallRecord | ToolCallRecord) -> None:
        """Pass on the record of a call, or a tool with effects, that is about to start."""
        self._both("intend", record)

    def keep(self, record: Kept) -> None:
        """Keep a record."""
        self._both("keep", record)

    def published(self, entries: Sequence[Entry]) -> None:
        """Take the entries published since the last call."""
        self._both("published", entries)

    async def commit(self) -> None:
        """Wait until both have stored everything so far."""
        try:
            await self.one.commit()
        finally:
            await self.other.commit()

    def load(self, run_id: str) -> RunJournal:
        """Everything that the first journal stored of a run."""
        return self.one.load(run_id)  # type: ignore[attr-defined, no-any-return]

    def close(self) -> None:
        """Close both."""
        self._both("close")
