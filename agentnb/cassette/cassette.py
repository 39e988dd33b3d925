"""`Cassette`: the recorded runs of one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from agentnb.cassette.decode import calls_of, journal_of
from agentnb.cassette.fold import runs_in
from agentnb.cassette.lines import MOST_BYTES, Content, Line, notes_of, read_content
from agentnb.core.collector import without_collector
from agentnb.core.records import CallRecord, RunJournal
from agentnb.core.shown import counted
from agentnb.core.text import literal


class Cassette:
    """The runs of one file when it was read. Records are created on access.

    Use `Cassette.read`.
    """

    def __init__(self, path: Path, content: Content) -> None:
        self.path = path
        with without_collector():
            self._runs = runs_in(content.lines)
        self._journals: dict[str, RunJournal] = {}
        self._calls: dict[str, dict[Line, CallRecord]] = {}
        self.notes = notes_of(content)
        """Notes for a person on a readable file, such as a cut last line; each is a clause."""

    @classmethod
    def read(cls, path: str | Path, *, max_bytes: int = MOST_BYTES) -> Cassette:
        """Read and check a file. It is not changed.

        Args:
            path: The file.
            max_bytes: Largest size to read.

        Raises:
            BadCassette: There is no such file, it is not a cassette that this version can read, or
                it is damaged; the error names the line.
        """
        path = Path(path)
        return cls(path, read_content(path, max_bytes=max_bytes))

    def __repr__(self) -> str:
        return f"Cassette({literal(str(self.path))}, {counted(len(self._runs), 'run')})"

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of its runs, in the order in which they were first recorded."""
        return tuple(self._runs)

    def __contains__(self, label: object) -> bool:
        return label in self._runs

    def journal(self, label: str) -> RunJournal:
        """The finished records of a run, without events.

        Ids begin with `root`, which is also `head.thread_id`; `head.run_id` is empty. Times are
        rounded to a millisecond. If several calls have the same number, the one that the newest run
        used is included.

        Raises:
            KeyError: No run has this label.
        """
        if label not in self._journals:
            with without_collector():
                self._journals[label] = journal_of(self._runs[label], self._calls_of(label))
        return self._journals[label]

    def calls(self, label: str) -> tuple[CallRecord, ...]:
        """All calls of a run in file order, perhaps several with one path and number.

        Raises:
            KeyError: No run has this label.
        """
        with without_collector():
            return tuple(self._calls_of(label).values())

    def _calls_of(self, label: str) -> dict[Line, CallRecord]:
        if label not in self._calls:
            self._calls[label] = calls_of(self._runs[label])
        return self._calls[label]

    @property
    def lines(self) -> Mapping[str, Sequence[Line]]:
        """The lines of each run by label, in the order of an ordered file."""
        return self._runs
