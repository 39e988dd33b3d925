"""A session's runs, once more: which recording answers a run, and where it is recorded.

`Repeat` is what a session knows of its mode and its cassette; `Take` is one run's part in that.
"""

from __future__ import annotations

import os
import shlex
import string
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentnb.core.errors import NotRecorded, OrchestratorError
from agentnb.core.keys import CallKeys
from agentnb.core.past import Miss, Past
from agentnb.core.protocols import links_of
from agentnb.core.records import CallRecord, RunHead, RunJournal, error_record
from agentnb.core.replay import Replay
from agentnb.core.request import new_run_id, new_thread_id
from agentnb.core.shown import counted, listed
from agentnb.core.text import LONGEST_LINE, literal, visible
from agentnb.core.types import ROOT_PATH, path_key
from agentnb.errors import BadCassette, ModeChanged, NoCassette
from agentnb.modes import (
    AUTO,
    BY_CODE,
    CASSETTE_VARIABLE,
    LIVE,
    MODE_VARIABLE,
    RECORD,
    REPLAY,
    THE_ONLY_ONE,
    ByFile,
    Labels,
    Mode,
    cassette_of,
    label_of,
    mode_of,
    notebook_of,
    nothing_at,
    recorded_label,
)
from agentnb.runtime import at_exit
from agentnb.trust import check_mode

if TYPE_CHECKING:
    from agentnb.cassette.cassette import Cassette
    from agentnb.config import Config
    from agentnb.core.protocols import Provider, SupportsCommit
    from agentnb.core.types import CompletionRequest
    from agentnb.settings import Settings

_SIGNS = string.digits + string.ascii_lowercase
_labels = Labels()
"""Of this process: a label is counted since the kernel began, or since `%agentnb mode`."""
_sessions = count(1)
_said: str | None = None
"""What `%agentnb mode` said last."""
_how_to_record = ""
"""Of a lesson that is run by `record` or `check`, as a clause; empty in any other process."""
_noted: set[tuple[Path, str]] = set()
"""The notes of cassettes that this process has told."""
_unkept: dict[str, None] = {}
"""Of these notes, those on calls that are in no cassette, with its name."""
_pass = 0
"""How often `%agentnb mode` was said: from there a notebook is run once more."""
_SINCE = "the kernel began, or `%agentnb mode` was set"
_MOST_TOLD = 5
"""Most runs, and calls, listed one by one."""


def say_mode(mode: str) -> None:
    """Set the mode of the sessions that are made from now on, unless code sets theirs.

    The notebook is run once more from there: runs and sessions are counted from the start again.
    """
    global _said, _pass, _sessions
    _said = mode
    _pass += 1
    _sessions = count(1)
    _labels.forget()


def asked_labels() -> dict[str, list[str]]:
    """The labels of this process's runs by their cassette, in each mode that a notebook sets."""
    return _labels.ever()


def unkept() -> list[str]:
    """What was said of calls of this process that are in no cassette."""
    return list(_unkept)


def begin_lesson(how_to_record: str) -> None:
    """Run a lesson in this process, for `record` or `check`.

    Notes on cassettes are told there. Where the lesson's cassette is not there, its runs are live,
    since its model may be a script; one over the network is refused.

    Args:
        how_to_record: The command.
    """
    global _how_to_record
    _how_to_record = how_to_record


@dataclass(frozen=True, slots=True)
class Tally:
    """Calls that a run in mode `auto` asked again, and recorded calls not used, so far."""

    label: str
    asked: Sequence[str]
    """Paths of the agents that ask: one for each call. It grows."""
    used: Sized
    """The recorded calls that answered. It grows."""
    recorded: int
    """How many calls were recorded."""

    @property
    def has_new(self) -> bool:
        """Whether a model was asked."""
        return bool(self.asked) or not self.recorded

    def __str__(self) -> str:
        """One line."""
        if not self.recorded:
            return "nothing was recorded before, so all calls are new"
        asked = "no new calls"
        if self.asked:
            paths = listed(sorted(set(self.asked), key=path_key), most=_MOST_TOLD)
            asked = f"{counted(len(self.asked), 'new call')} ({paths})"
        parts = [asked, f"{len(self.used):,} answered from the cassette"]
        if unused := self.recorded - len(self.used):
            parts.append(f"{counted(unused, 'recorded call')} not used")
        return ", ".join(parts)


@contextmanager
def counted_anew() -> Iterator[None]:
    """As if the process began now: its runs and sessions are counted from the start, for a test.

    Afterwards they go on from where they were.
    """
    global _labels, _sessions, _said
    before = _labels, _sessions, _said
    _labels, _sessions, _said = Labels(), count(1), None
    try:
        yield
    finally:
        _labels, _sessions, _said = before


@dataclass(frozen=True, slots=True)
class Take:
    """One run's part in a cassette."""

    label: str
    """Of the recording that it reads, else its own."""
    thread_id: str
    """The id of its root: the same each time, since texts may have it."""
    past: Replay | None
    """What is recorded of it; `None` if nothing answers."""
    journal: SupportsCommit | None
    """Records it; `None` if nothing is recorded."""
    tally: Tally | None
    """What it asks again; `None` except in mode `auto`."""
    run_id: str = ""
    """Of a replayed run: its time is the day of the recording, whose prices hold. Empty for a new
    one."""


class Repeat:
    """The mode of a session, and its cassette.

    Args:
        mode: How its runs go.
        speed: The pace of recorded calls.
        config: The settings file.
    """

    def __init__(self, mode: Mode, speed: float, config: Config) -> None:
        self.mode, self._config = mode, config
        self._speed = speed
        self._lock = threading.Lock()
        self._read: tuple[object, Cassette] | None = None
        """The cassette as it was read, and by what a change of the file shows."""
        self._notes: tuple[tuple[Path, str], ...] = ()
        """Its notes, until they are shown."""
        self._has_begun = False
        """Whether a run has begun."""
        self._tallies: list[Tally] = []
        """Of its runs in mode `auto`, the newest last."""
        self._pass = _pass

    @classmethod
    def of(cls, settings: Settings, config: Config) -> Repeat:
        """The mode and the cassette that are in force now.

        Raises:
            ValueError: The environment names no mode.
        """
        cwd = _cwd()
        notebook = notebook_of(os.environ, _variables(), cwd)
        named = None if config.cassette is None else config.folder / config.cassette
        by_file = ByFile(Path(config.source).name, config.mode, named)
        cassette = cassette_of(settings.cassette, os.environ, notebook, cwd, by_file)
        mode = mode_of(settings.mode, _said, os.environ, cassette, cwd, by_file)
        if _how_to_record and mode.name == REPLAY and mode.why == MODE_VARIABLE and cassette:
            if cassette.origin != BY_CODE and not cassette.path.exists():
                why = f"There is no recording: {nothing_at(cassette.path)} ({_how_to_record})."
                mode = Mode(LIVE, mode.why, cassette, why)
        return cls(mode, settings.replay_speed, config)

    @property
    def name(self) -> str:
        """`live`, `record`, `auto` or `replay`."""
        return self.mode.name

    @property
    def name_but_live(self) -> str:
        """The mode; empty for `live`."""
        return "" if self.name == LIVE else self.name

    def goes_on(self, before: Repeat) -> bool:
        """Whether the threads of a session before stay. Those of a cassette have its labels."""
        if self.name == before.name == LIVE:
            return True
        cassettes = [each.mode.cassette and each.mode.cassette.path for each in (self, before)]
        return (self.name, self._pass, cassettes[0]) == (before.name, before._pass, cassettes[1])

    def session_id(self) -> str:
        """The id of a new session. Texts may have it: but for `live` it is no chance."""
        return new_thread_id() if self.name == LIVE else f"nb_00000000_{next(_sessions):06}"

    def check(self, provider: Provider) -> None:
        """Check that a run of a provider can go so.

        Raises:
            NoCassette: Nothing names the cassette that it needs, or it cannot be written.
            UntrustedSettings: A settings file that is not trusted has models asked.
        """
        cassette = self.mode.cassette
        says = [self.mode.why, cassette.origin if cassette and self.mode.uses_cassette else ""]
        if self._config.source and Path(self._config.source).name in says:
            check_mode(self._config, self.name)
        trouble = self.mode.trouble or (self.read_only() if self.name == RECORD else None)
        if trouble is not None and (self.name != LIVE or _uses_network(provider)):
            raise NoCassette(trouble)

    def read_only(self) -> str | None:
        """What follows if the cassette may only be read, as a sentence; `None` if it is written."""
        from agentnb.cassette.writer import why_read_only

        if self.name not in (RECORD, AUTO) or self.mode.cassette is None:
            return None
        path = self.mode.cassette.path
        is_known = self.mode.cassette.origin != THE_ONLY_ONE
        why = why_read_only(path) if is_known else "it may be another notebook's"
        if not why:
            return None
        means = "new calls are answered, and not kept" if self.name == AUTO else "no call is made"
        return (
            f"{literal(path.name, 60)} cannot be written, since {why}: {means}. Work in a copy of "
            f"the folder, or set {CASSETTE_VARIABLE} to a file that you may write to."
        )

    def check_current(self) -> None:
        """Check that `%agentnb mode` has named no other mode since, unless code set this one.

        Raises:
            ModeChanged: It has.
        """
        is_older = self._pass != _pass and self.mode.why != BY_CODE
        if is_older and _said is not None and _said != self.name:
            raise ModeChanged(self.name, _said)

    def take(self, name: str, task: str, thread_id: str) -> Take | None:
        """A run's part in the cassette; `None` for a live run.

        Args:
            name: What the person calls the run; empty for nothing.
            task: Its task.
            thread_id: The id of its root; empty for a new one.

        Raises:
            BadCassette: The file is damaged, or there is none to replay.
        """
        if self.name == LIVE:
            return None
        assert self.mode.cassette is not None
        path = self.mode.cassette.path
        label = _labels.next(path, label_of(name, task))
        thread_id = thread_id or _id_of(label)
        past = None
        if self.name != RECORD:
            label, past = self._past(label, thread_id)
        self._has_begun = True
        if self.name == REPLAY:
            recorded_at = 0.0 if past is None else past.journal.head.started_at
            run_id = new_run_id(recorded_at) if recorded_at else ""
            return Take(label, thread_id, past, None, None, run_id)
        tally = self._tally(label, past) if self.name == AUTO else None
        return Take(label, thread_id, past, self._recorder(path, label, tally), tally)

    def _tally(self, label: str, past: Replay | None) -> Tally:
        tally = Tally(label, (), (), 0)
        if past is not None:
            tally = Tally(label, past.asked, past.used, past.recorded)
        self._tallies = [*self._tallies, tally][-_MOST_TOLD:]
        return tally

    # -- what a person is told --------------------------------------------------------------------

    def tell_notes(self) -> None:
        """Write the notes of the cassette that was read to the error output, each once.

        Call it on the person's own thread, as `RunStore.tell_trouble`.
        """
        notes, self._notes = self._notes, ()
        for path, note in notes:
            if (path, note) not in _noted and not _how_to_record:
                _noted.add((path, note))
                with suppress(Exception):  # a process may have no error output
                    sys.stderr.write(visible(f"{path.name}: {note}.", LONGEST_LINE) + "\n")

    def about(self) -> list[str]:
        """What there is to say of the cassette and of the runs so far, in lines."""
        told = [line] if (line := self.read_only()) is not None else []
        try:
            cassette = self.recorded()
        except BadCassette as error:
            return [*told, str(error)]
        if cassette is None:
            return told
        path = cassette.path
        is_quiet = _how_to_record or (self.name == AUTO and self._has_begun)
        notes = () if is_quiet else cassette.notes
        lines = [*told, *(f"{path.name}: {note}." for note in notes)]
        _noted.update((path, note) for note in notes)
        if self.name == AUTO:
            lines += [f"Run {literal(each.label, 60)}: {each}." for each in self._tallies]
            lines += _about_unused(cassette)
        if self._has_begun and (left := not_asked(cassette, _labels.given(path))):
            runs = listed([literal(label, 60) for label in left], most=_MOST_TOLD)
            lines.append(
                f"Recorded, and not asked for since {_SINCE}: {runs}. `python -m agentnb cassette "
                "prune --notebook FILE` removes the runs that no cell asks for."
            )
        return lines

    # -- its cassette -----------------------------------------------------------------------------

    def _recorder(self, path: Path, label: str, tally: Tally | None = None) -> SupportsCommit:
        from agentnb.cassette.journal import CassetteJournal, UnkeptJournal

        if tally is not None and self.read_only() is not None:
            return UnkeptJournal(lambda: tally.has_new, lambda note: self._note(path, note))
        tell = partial(self._note, path, is_said_again=True)
        return CassetteJournal(path, label, self.name, tell)

    def _note(self, path: Path, note: str, *, is_said_again: bool = False) -> None:
        with self._lock:
            if is_said_again:
                _noted.discard((path, note))
            self._notes = (*self._notes, (path, note))
            _unkept[f"{path.name}: {note}"] = None
        at_exit(self.tell_notes)  # of a script that starts no further run, which would tell them

    def recorded(self) -> Cassette | None:
        """The cassette that its runs read; `None` if they read none.

        Raises:
            BadCassette: The file is damaged, or there is none to replay.
        """
        if self.name not in (AUTO, REPLAY) or self.mode.cassette is None:
            return None
        path = self.mode.cassette.path
        return None if self.name == AUTO and not path.exists() else self._cassette(path)

    def check_cassette(self) -> None:
        """Check the file that its runs read or write. Changes nothing.

        Raises:
            BadCassette: As for `take`.
        """
        self.recorded()
        if self.name in (RECORD, AUTO) and self.mode.cassette is not None:
            self._recorder(self.mode.cassette.path, "")

    def _past(self, label: str, thread_id: str) -> tuple[str, Replay | None]:
        """The recording that a run reads, and its label; the run's own if there is none."""
        cassette = self.recorded()
        if cassette is None:
            return label, None
        recorded = recorded_label(label, cassette.lines)
        if recorded is None:
            nothing = None if self.name == AUTO else _nothing(self._explain(cassette, label))
            return label, nothing
        from agentnb.cassette.unanswered import answered

        calls = cassette.calls(recorded)
        past = Replay(
            cassette.journal(recorded),
            calls=answered(calls) if self.name == AUTO else calls,
            explain=None if self.name == AUTO else self._explain(cassette, recorded),
            other_key=_other_keys(calls, thread_id),
            speed=self._speed,
        )
        return recorded, past

    def _cassette(self, path: Path) -> Cassette:
        """The file, read again if it has changed."""
        from agentnb.cassette.cassette import Cassette

        with self._lock:
            try:
                found = path.stat()
                stamp: object = (path, found.st_mtime_ns, found.st_size, found.st_ino)
            except OSError:
                stamp = None  # `read` says what is wrong
            if self._read is None or stamp is None or self._read[0] != stamp:
                self._read = stamp, Cassette.read(path)
                if self.name == REPLAY or not self._has_begun:  # no note on a run that goes on here
                    self._notes += tuple((path, note) for note in self._read[1].notes)
            return self._read[1]

    def _explain(self, cassette: Cassette, label: str) -> Callable[[Miss], OrchestratorError]:
        return lambda miss: _not_recorded(cassette, label, miss, self._config.not_recorded)


def not_asked(cassette: Cassette, asked: Collection[str]) -> list[str]:
    """The labels of a cassette that no run asked for.

    Args:
        cassette: The cassette.
        asked: The labels of all runs of its notebook.
    """
    read = {recorded_label(label, cassette.lines) for label in asked}
    return [label for label in cassette.labels if label not in read]


def note_recorded(error: OrchestratorError, past: Past | None) -> None:
    """Note the day of its recording on an error that ends a run, for the one who sees it.

    Its text stays, since outputs are compared with the saved ones.

    Args:
        error: The error.
        past: What is recorded of the run, or what it did before.
    """
    if not isinstance(past, Replay) or ROOT_PATH in past.asked:
        return  # a model gave it now
    root = [each for each in past.journal.calls if each.path == ROOT_PATH]
    calls = [each for each in root if (each.path, each.number, each.key) in past.used]
    if error_record(error)["message"] in [each.error["message"] for each in calls if each.error]:
        day = datetime.fromtimestamp(past.journal.head.started_at, UTC).date()
        error.add_note(f"It was recorded on {day}: no model was asked now.")


def _about_unused(cassette: Cassette) -> Iterator[str]:
    """The calls that `prune` would take out."""
    from agentnb.cassette.unused import unused

    if not (gone := unused(cassette)):
        return
    calls = "1 recorded call is" if len(gone) == 1 else f"{len(gone):,} recorded calls are"
    name = shlex.quote(cassette.path.name)
    yield f"{calls} unused (`python -m agentnb cassette prune {name}` removes them):"
    yield from (f"- {call}" for call in gone[:_MOST_TOLD])
    if len(gone) > _MOST_TOLD:
        yield f"- and {len(gone) - _MOST_TOLD:,} more"


def _id_of(label: str) -> str:
    """A thread id that is the same each time.

    Six of 36 signs: with as many hex digits one notebook in thirty of a thousand runs had two
    that shared one, and the second failed.
    """
    number, signs = int(label_of("", label), 16), ""
    for _ in range(6):
        number, place = divmod(number, len(_SIGNS))
        signs += _SIGNS[place]
    return f"nb_00000000_{signs}"


def _not_recorded(cassette: Cassette, label: str, miss: Miss, advice: str) -> NotRecorded:
    from agentnb.cassette.miss import explain, how_to_record

    if miss.tool is not None:
        advice = advice or how_to_record(cassette.path.name)
        return NotRecorded(f"{_tool_in_words(miss)} {advice}")
    assert miss.request is not None
    place = label, miss.path, miss.number
    told = explain(cassette, *place, miss.request, model=miss.model, key=miss.key, advice=advice)
    return NotRecorded(str(told), miss=told)


def _tool_in_words(miss: Miss) -> str:
    tool = miss.tool
    assert tool is not None
    what = f"The tool call {miss.number} of agent {miss.path} ({tool.name!r})"
    if miss.was is None:
        return f"{what} is not recorded."
    if (tool.result, tool.is_error) == (miss.was.result, miss.was.is_error):
        return f"{what} was run again and returned other pictures than those recorded."
    return (
        f"{what} was run again and returned {literal(tool.result, 200)}, not the "
        f"recorded {literal(miss.was.result, 200)}."
    )


def _nothing(explain: Callable[[Miss], OrchestratorError]) -> Replay:
    """The recording of a run of which nothing is recorded."""
    return Replay(RunJournal(RunHead("", "", "", ""), ()), explain=explain)


def _other_keys(
    calls: Sequence[CallRecord], thread_id: str
) -> Callable[[str, CompletionRequest, str], str]:
    """Finds the key by which a cassette has a call: its request may name its own thread.

    A person may have edited recorded requests, whose keys stay as they were.
    """
    from agentnb.cassette.relative import relative_key

    known = {call.key for call in calls}

    @cache
    def edited() -> Mapping[str, str]:
        return {CallKeys().key_of(call.model, call.request): call.key for call in calls}

    def other(model: str, request: CompletionRequest, key: str) -> str:
        own = relative_key(model, request, key, thread_id)
        return own if own in known else edited().get(own, own)

    return other


def _uses_network(provider: Provider) -> bool:
    return any(getattr(link.provider, "uses_network", False) for link in links_of(provider, ""))


def _variables() -> Mapping[str, Any]:
    """The person's variables: in a kernel those of the notebook."""
    return vars(sys.modules["__main__"])


def _cwd() -> Path:
    try:
        return Path.cwd()
    except OSError:  # the working directory is gone
        return Path()
