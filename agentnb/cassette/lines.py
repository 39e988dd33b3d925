"""The lines of a cassette, read and checked, but not decoded yet.

A line keeps its bytes, so unchanged lines are written back exactly.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from agentnb.cassette.schema import FORMAT, VERSION, can_be_read, read_line
from agentnb.core.collector import without_collector
from agentnb.core.shown import counted
from agentnb.core.text import escaped_for_json, literal
from agentnb.core.types import CompletionRequest
from agentnb.errors import UPDATE, BadCassette
from agentnb.files import read_file
from agentnb.modes import SUFFIX

MOST_BYTES = 1 << 30
"""Bytes of the largest cassette that is read."""
HEAD = f'{{"{FORMAT}": {VERSION}}}'.encode()
_MARKS = ("recording", "mode", "unused")
"""Fields about the line instead of the run; they come last in a line."""
_CONFLICT = (b"<<<<<<<", b">>>>>>>", b"|||||||", b"=======")
_RESOLVE = (
    "Keep one side of each conflict, as whole lines, and delete the markers; or keep one of the "
    "two files, and record the missing runs: `%agentnb mode auto`."
)
_COPY = re.compile(r" ?\(\d+\)$|-Copy\d*$")
"""How a download, or JupyterLab, marks a copy."""
_NOT_THIS = "Give the path of a file that agentnb recorded: `NAME.cassette.jsonl`."


def encode_json(value: Any) -> str:
    """Plain values as JSON on one line.

    Raises:
        ValueError: A text contains a lone surrogate.
    """
    return to_json(value).decode()


def dumped(fields: Mapping[str, Any]) -> bytes:
    """A line without its line end, from plain values without lone surrogates."""
    return escaped_for_json(encode_json(fields)).encode()


@dataclass(slots=True, eq=False)
class Line:
    """One line of a cassette."""

    raw: bytes
    """The bytes without the line end."""
    fields: dict[str, Any]
    """The values, without the marks."""
    place: int = 0
    """Line number in the file, from 1; 0 for a new line."""
    base: Line | None = None
    """The same agent's call that this call's request continues; `None` for a whole request."""
    recording: str = ""
    """The recording under way that wrote it; empty for a line in its place."""
    mode: str = ""
    """`record` or `auto`, in the first line of a recording under way; else empty."""
    is_unused: bool = False
    """Whether the newest run of its label did not use it."""
    messages: int = 0
    """Number of messages of a call's request."""
    request: CompletionRequest | None = field(default=None, repr=False)
    """A call's request, once it was created."""
    order: tuple[Any, ...] | None = field(default=None, repr=False)
    """Its sort key in file order, once it was computed: see `agentnb.cassette.fold`."""

    @property
    def kind(self) -> str:
        """One of `agentnb.cassette.schema.KINDS`."""
        return self.fields["kind"]  # type: ignore[no-any-return]

    @property
    def label(self) -> str:
        """The label of its run."""
        return self.fields["run"]  # type: ignore[no-any-return]

    @property
    def identity(self) -> tuple[Any, ...]:
        """What the line is about: of two lines of a run with the same identity, only one is kept.

        The identity of a call includes its key, that of a tool call its input. Orders may repeat.
        """
        fields = self.fields
        kind = fields["kind"]
        if kind == "call":
            return kind, fields["path"], fields["number"], fields["key"]
        if kind == "tool_call":
            given = json.dumps(fields["input"], sort_keys=True)
            return kind, fields["path"], fields["number"], fields["name"], given
        if kind == "verdict":
            return kind, fields["path"], fields["number"]
        return kind, fields.get("path")

    def marked(self, *, unused: bool) -> Line:
        """The line in its place, marked as unused or not; the same object if nothing changes."""
        if not self.recording and not self.mode and unused == self.is_unused:
            return self
        fields = json.loads(self.raw)
        for name in _MARKS:
            fields.pop(name, None)
        raw = dumped(fields | ({"unused": True} if unused else {}))
        return Line(
            raw, self.fields, 0, self.base, "", "", unused, self.messages, self.request
        )  # fmt: skip


def checked(line: Line) -> Line:
    """Check a new line, and return it.

    Raises:
        ValueError: The line could not be read back.
    """
    if can_be_read(line.fields):
        return line
    try:
        read_line(line.raw, checks_values=False)
    except ValueError as error:
        kind = line.fields["kind"].replace("_", " ")
        raise ValueError(f"This {kind} cannot be recorded: {error}.") from None
    return line


def with_recording(raw: bytes, recording: str, mode: str = "") -> bytes:
    """A line as a recording under way appends it: raw bytes without marks, then its own marks."""
    first = f',"mode":"{mode}"' if mode else ""
    return raw[:-1] + first.encode() + _end_of(recording) + b"\n"


def _end_of(recording: str) -> bytes:
    return f',"recording":"{recording}"}}'.encode()


def are_appended(data: bytes) -> bool:
    """Whether some bytes are whole lines that a recording under way appended."""
    *lines, rest = data.split(b"\n")
    try:
        return not rest and all(
            "recording" in read_line(line, checks_values=False) for line in lines
        )
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Content:
    """All lines of a file after its head, and notes on them."""

    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()
    end: int = 0
    """Number of bytes up to the end of the last complete line."""


def read_content(path: Path, *, max_bytes: int = MOST_BYTES) -> Content:
    """Read and check a cassette.

    Raises:
        BadCassette: The file cannot be read, or is damaged.
    """
    return content_of(read_bytes(path, max_bytes=max_bytes), str(path))


def read_bytes(path: Path, *, max_bytes: int = MOST_BYTES) -> bytes:
    """The bytes of a cassette.

    Raises:
        BadCassette: There is no such file, or it cannot be read.
    """
    try:
        return read_file(path, max_bytes=max_bytes)
    except FileNotFoundError:
        raise BadCassette(str(path), None, "there is no such file", fix=_fix_for(path)) from None
    except (OSError, ValueError) as error:  # `ValueError`: an impossible file name
        why = (getattr(error, "strerror", None) or str(error)).rstrip(".")
        why = why[:1].lower() + why[1:]
        raise BadCassette(str(path), None, why, fix=_NOT_THIS) from None


def _fix_for(path: Path) -> str:
    """What to do about a file that is not there."""
    stem = path.name.removesuffix(SUFFIX)
    plain = _COPY.sub("", stem)
    if plain != stem and path.with_name(plain + SUFFIX).is_file():
        original, there = (literal(plain + end, 60) for end in (".ipynb", SUFFIX))
        return f"Rename this copy of the notebook to {original}: its cassette is {there}."
    return (
        "Record it: `%agentnb mode record`, or set AGENTNB_MODE=record; if you renamed the "
        "notebook, rename its cassette, too."
    )


def content_of(
    data: bytes, source: str, *, without: str = "", checks_values: bool = True
) -> Content:
    """Check the bytes of a cassette.

    Args:
        data: The whole file.
        source: The file's name, for the error.
        without: A recording of this process, whose lines are left out.
        checks_values: Whether to check also what a replay reads of verdicts and orders. A journal
            must keep any.

    Raises:
        BadCassette: The bytes are not a cassette, or damaged.
    """
    lines = data.split(b"\n")
    reader = _Reader(source, is_cut=bool(lines[-1]), checks_values=checks_values)
    if not lines[-1]:
        lines.pop()
    reader.read_head(lines[0] if lines else b"", is_only=len(lines) < 2)
    with without_collector():
        _read_all(reader, lines, without)
        reader.check_runs()
    end = data.rfind(b"\n") + 1 if reader.has_cut_line else len(data)
    return Content(tuple(reader.lines), tuple(reader.notes), end)


def _read_all(reader: _Reader, lines: Sequence[bytes], without: str) -> None:
    own = _end_of(without) if without else b"\n"
    for place, raw in enumerate(lines[1:], 2):
        if not raw.endswith(own):
            reader.read(place, raw, is_last=place == len(lines))


class _Reader:
    """Reads one file, line by line."""

    def __init__(self, source: str, *, is_cut: bool, checks_values: bool) -> None:
        self._source = source
        self._checks_values = checks_values
        self._is_cut = is_cut
        self.has_cut_line = False
        self.lines: list[Line] = []
        self.notes: list[str] = []
        self._calls: dict[tuple[str, ...], Line] = {}
        self._there: dict[tuple[Any, ...], Line] = {}

    def bad(self, place: int, why: str, fix: str = "") -> BadCassette:
        return BadCassette(self._source, place, why, fix=fix)

    def read_head(self, raw: bytes, *, is_only: bool) -> None:
        if not raw.strip():
            why = "the file is empty" if is_only else "the first line is empty"
            raise self.bad(1, why)
        if raw.startswith(_CONFLICT):
            raise self.bad(1, "git left a conflict in it", _RESOLVE)
        try:
            head = json.loads(raw)
        except (ValueError, RecursionError):
            if HEAD.startswith(raw):
                raise self.bad(1, "it is cut in its first line") from None
            head = None
        version = head.get(FORMAT) if isinstance(head, dict) else None
        if version is None:
            raise self.bad(1, "it is not a cassette of agentnb", _NOT_THIS)
        if type(version) is not int or version < 1:
            raise self.bad(1, f"the version {literal(version, 60)} does not exist")
        if version > VERSION:
            why = (
                f"it has version {literal(version, 60)} of the format, and this agentnb reads up "
                f"to version {VERSION}"
            )
            raise self.bad(1, why, UPDATE)

    def read(self, place: int, raw: bytes, *, is_last: bool) -> None:
        if not (raw := raw.rstrip(b"\r")):
            return
        try:
            fields = read_line(raw, checks_values=self._checks_values)
        except ValueError as error:
            if raw.startswith(_CONFLICT):
                raise self.bad(place, "git left a conflict in it", _RESOLVE) from None
            if is_last and self._is_cut:
                self.has_cut_line = True
                self.notes.append(f"line {place:,}, the last one, is cut off and ignored")
                return
            raise self.bad(place, _why(raw, str(error))) from None
        line = Line(raw, fields, place)
        line.recording, line.mode = fields.pop("recording", ""), fields.pop("mode", "")
        line.is_unused = fields.pop("unused", False)
        if fields["kind"] == "call":
            self._link(line)
        if line.recording or line.kind == "order" or self._is_new(line):
            self.lines.append(line)

    def check_runs(self) -> None:
        """Check that each run has its line of the kind `run`."""
        begun = {line.label for line in self.lines if line.kind == "run"}
        for line in self.lines:
            if line.label not in begun:
                why = f'its run {literal(line.label, 60)} has no line of the kind "run"'
                raise self.bad(line.place, why, _NO_RUN)

    def _link(self, line: Line) -> None:
        """Find the call that a call's request continues."""
        fields = line.fields
        request = fields["request"]
        own = (fields["run"], fields["path"])
        if (after := request.get("after")) is not None:
            base = self._calls.get((line.recording, *own, after)) or self._calls.get((*own, after))
            if base is None:
                why = f"its request continues the call {after}, which does not precede it"
                raise self.bad(line.place, why)
            if request.get("kept", 0) > base.messages:
                raise self.bad(line.place, "its request keeps more messages than there were")
            if "reply" in request["new"] and "reply" not in base.fields:
                raise self.bad(line.place, f"the call {after} has no reply")
            line.base = base
        line.messages = request.get("kept", 0) + len(request["new"])
        name = f"{fields['number']}:{fields['key'][:12]}"
        self._calls[(*own, name)] = line
        if line.recording:
            self._calls[(line.recording, *own, name)] = line

    def _is_new(self, line: Line) -> bool:
        """Whether a line has a record that no earlier line has."""
        other = self._there.setdefault((line.label, *line.identity), line)
        if other is line:
            return True
        if other.fields != line.fields:
            why = f"it contradicts line {other.place:,} about the same record"
            raise self.bad(line.place, why, _RECORD_AGAIN)
        self.notes.append(f"line {line.place:,} repeats line {other.place:,}")
        return False


_RECORD_AGAIN = "Delete one of the two lines, or record the run again: `%agentnb mode record`."
_NO_RUN = "Put that line back, or record the run again: `%agentnb mode record`."


def _why(raw: bytes, why: str) -> str:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return "it is not UTF-8"
    return why if raw.endswith(b"}") else f"it was cut or edited: {why}"


def notes_of(content: Content) -> tuple[str, ...]:
    """Notes for a person on a readable file: sentences without a full stop."""
    begun = dict.fromkeys(line.label for line in content.lines if line.mode)
    ended = {line.label for line in content.lines if line.recording and is_run_end(line)}
    open_ones = [label for label in begun if label not in ended]
    notes = list(content.notes)
    if open_ones:
        which = ", ".join(literal(label, 40) for label in open_ones[:3])
        which += ", …" if len(open_ones) > 3 else ""
        notes.append(f"{counted(len(open_ones), 'run')} did not end: {which}")
    return tuple(notes)


def is_run_end(line: Line) -> bool:
    """Whether a line records the end of its run."""
    return line.fields["kind"] == "end" and line.fields["path"] is None
