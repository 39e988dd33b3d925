"""Finds the calls that no run needs any more, and removes them from the file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentnb.cassette.cassette import Cassette
from agentnb.cassette.fold import runs_in, without
from agentnb.cassette.lines import Content, Line
from agentnb.cassette.writer import file_at
from agentnb.core.text import quoted, visible

Place = tuple[str, int, str]
"""Path, number and key of a call."""


@dataclass(frozen=True, slots=True)
class UnusedCall:
    """A call, or a tool call, that the newest run of its label did not use."""

    label: str
    path: str
    number: int
    key: str
    """The key of a model call; empty for a tool call."""
    what: str
    """The model, or the tool."""
    begins: str
    """How the newest message of its request begins, or what the tool was given."""

    def __str__(self) -> str:
        """One line."""
        who = "root" if self.path == "root" else f"agent {self.path}"
        kind = "call" if self.key else "tool call"
        place = f"{visible(self.label, 60)}: {who}, {kind} {self.number} ({visible(self.what, 60)})"
        return f"{place}: {quoted(self.begins, limit=60)}"


def unused(
    cassette: Cassette, used: Mapping[str, Collection[Place]] | None = None
) -> tuple[UnusedCall, ...]:
    """The unused calls of a cassette, in file order.

    Args:
        cassette: The cassette.
        used: By label: path, number and key of each used call. For other labels, and for tool
            calls, those are unused that the newest `auto` run of the label did not use.
    """
    return tuple(
        [
            _as_value(line)
            for label, lines in cassette.lines.items()
            for line in _unused(lines, (used or {}).get(label))
        ]
    )


def _unused(lines: Collection[Line], used: Collection[Place] | None) -> list[Line]:
    places = None if used is None else set(used)

    def is_unused(line: Line) -> bool:
        if places is None or line.kind != "call":
            return line.is_unused
        fields = line.fields
        return (fields["path"], fields["number"], fields["key"]) not in places

    return [line for line in lines if is_unused(line)]


def _as_value(line: Line) -> UnusedCall:
    fields = line.fields
    place = fields["run"], fields["path"], fields["number"]
    if line.kind == "tool_call":
        return UnusedCall(*place, "", fields["name"], str(fields["input"]))
    return UnusedCall(*place, fields["key"], fields["model"], newest_text(line))


def newest_text(line: Line) -> str:
    """The text of the newest message of the new part of a call's request."""
    for message in reversed(line.fields["request"]["new"]):
        if message == "reply":
            continue
        content = message["content"]
        if isinstance(content, str):
            return content
        return " ".join([block["text"] for block in content if "text" in block])
    return ""


def prune(path: str | Path, runs: Collection[str] = ()) -> tuple[UnusedCall, ...]:
    """Remove the unused calls from a file, and some runs, and put the file into order.

    The lines of unfinished recordings get their places, too: call it while nothing records.

    Args:
        path: The cassette.
        runs: Labels of runs to remove altogether.

    Returns:
        The removed calls, in file order. If there are none, the file is unchanged.

    Raises:
        BadCassette: The file cannot be read, or is damaged. It is unchanged.
        OSError: The file cannot be written. It is unchanged.
    """
    gone: list[UnusedCall] = []

    def act(content: Content) -> list[Line] | None:
        left: list[Line] = []
        for label, lines in runs_in(content.lines).items():
            if label in runs:
                gone.extend(_as_value(line) for line in lines if line.kind == "call")
                continue
            taken_out = _unused(lines, None)
            gone.extend(map(_as_value, taken_out))
            left += without(lines, taken_out)
        return left if gone else None

    file_at(path).change(act)
    return tuple(gone)
