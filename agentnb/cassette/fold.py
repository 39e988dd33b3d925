"""Merges a new recording into a cassette's lines. Pure.

If a new line differs from the old one only in times, the old one stays: so a diff shows what the
run did differently, not that it was repeated.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentnb.cassette.decode import request_of
from agentnb.cassette.encode import request_fields
from agentnb.cassette.lines import HEAD, Line, dumped, is_run_end
from agentnb.cassette.schema import KINDS
from agentnb.core.types import AgentStatus, path_key

_TIMES = ("at_s", "duration_ms", "piece_ms", "date")
_RANKS = {kind: place for place, kind in enumerate(KINDS)}
_MARKED = ("call", "tool_call")
"""Kinds of lines that are kept although unused, since a prompt may be changed back."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The lines of one recording, in the order in which they were written."""

    label: str
    mode: str
    """`record` replaces the old lines; `auto` adds to them."""
    lines: Sequence[Line]


def runs_in(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """The lines of each run by label, in file order, including recordings under way."""
    placed, recordings = split(lines)
    runs = {label: arranged(found) for label, found in placed.items()}
    for recording in recordings:
        runs[recording.label] = merged(runs.get(recording.label, []), recording)
    return {label: found for label, found in runs.items() if found}


def split(lines: Iterable[Line]) -> tuple[dict[str, list[Line]], list[Recording]]:
    """The lines in their places, by label, and the recordings under way.

    If the first line of a recording is gone, because another process put the file into order
    meanwhile, its other lines are added to the existing ones.
    """
    placed: dict[str, list[Line]] = {}
    found: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        if line.recording:
            found.setdefault((line.recording, line.label), []).append(line)
        else:
            placed.setdefault(line.label, []).append(line)
    recordings = [
        Recording(label, next((line.mode for line in each if line.mode), "auto"), each)
        for (_, label), each in found.items()
    ]
    return placed, recordings


def arranged(lines: Iterable[Line]) -> list[Line]:
    """The lines of one run in file order."""
    return sorted(lines, key=_place)


def _place(line: Line) -> tuple[Any, ...]:
    if line.order is None:
        line.order = _place_of(line.fields)
    return line.order


def _place_of(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    kind, path = fields["kind"], fields.get("path")
    if kind == "run":
        return (0,)
    if path is None:
        return (2,)
    if kind == "end":
        return 1, path_key(path), 1
    return 1, path_key(path), 0, fields["number"], _RANKS[kind]


def merged(before: Sequence[Line], recording: Recording) -> list[Line]:
    """The lines of a run after a recording of it, in file order.

    Args:
        before: The old lines.
        recording: The new lines; the mark of the recording is removed from them.
    """
    known = dict(_named(before))
    stand: dict[Line, Line] = {}
    """By old or new line: the line that replaces both."""
    found: dict[Any, Line] = {}
    is_anew = False
    for name, line in _named(arranged(recording.lines)):
        other = known.get(name)
        base = None if line.base is None else stand.get(line.base, line.base)
        if other is not None and other.base is base and _same(other.fields, line.fields):
            found[name] = other.marked(unused=False)
        else:
            found[name] = line.marked(unused=False)
            is_anew = True
        stand[line] = found[name]
        if other is not None:
            stand[other] = found[name]
    if is_anew and recording.mode == "record":
        heads = [(name, new) for name, new in _named(recording.lines) if new.kind == "run"]
        found |= {name: new.marked(unused=False) for name, new in heads}  # with today's date
    if recording.mode != "record":
        kept = _others(known, found, recording.lines)
        stand |= {known[name]: line for name, line in kept.items()}
        found |= kept
    # If a number has several calls, the newest comes last.
    names = dict.fromkeys([*(name for name in known if name in found), *found])
    return _bound(arranged([found[name] for name in names]), stand)


_WHOLE = (AgentStatus.COMPLETED, AgentStatus.CANCELLED)


def _others(
    known: Mapping[Any, Line], found: Mapping[Any, Line], lines: Sequence[Line]
) -> dict[Any, Line]:
    """The old lines that an `auto` run did not repeat, and that are kept.

    A call is unused if the run ended without it, or made another call in its place. All other
    records are dropped once the run has ended. A cancelled run counts as ended: a replay must not
    take what came after the cancel for what came before it.
    """
    end = next((line for line in lines if is_run_end(line)), None)
    is_whole = end is not None and end.fields["status"] in _WHOLE
    places = {name[:3] for name in found if name[0] in _MARKED}
    kept: dict[Any, Line] = {}
    for name, line in known.items():
        if name in found:
            continue
        if line.kind in _MARKED:
            is_unused = line.is_unused or is_whole or name[:3] in places
            kept[name] = line.marked(unused=is_unused)
        elif end is None:
            kept[name] = line
    return kept


def _named(lines: Iterable[Line]) -> Iterable[tuple[Any, Line]]:
    """Each line with its identity; orders at one place are numbered."""
    orders: dict[Any, int] = defaultdict(int)
    for line in lines:
        name = line.identity
        if line.kind == "order":
            fields = line.fields
            name = ("order", fields["path"], fields["number"], fields["what"])
            orders[name] += 1
            name = (*name, orders[name])
        yield name, line


def names_of(lines: Iterable[Line]) -> dict[Any, Line]:
    """The lines of a run by their identities."""
    return dict(_named(lines))


def has_same(known: Mapping[Any, Line], line: Line) -> bool:
    """Whether there is an unmarked line that equals this one except for times."""
    ((name, _),) = _named([line])
    other = known.get(name)
    return other is not None and not other.is_unused and _same(other.fields, line.fields)


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether the values of two lines are equal except for times."""
    return _without_times(one) == _without_times(other)


def _without_times(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in _TIMES}


def _bound(lines: Sequence[Line], stand: Mapping[Line, Line]) -> list[Line]:
    """The lines of a run, with each call's request based on a call that is among them.

    A call whose base is gone, or has another reply now, is rewritten with its whole request.

    Args:
        lines: The lines in file order.
        stand: By replaced line: the line in its place.
    """
    now: dict[Line, Line] = {}
    for line in lines:
        base, written = line.base, line
        if base is not None:
            stands = now.get(base) or now.get(stand.get(base, base))
            if stands is None or not _says_same(stands, base):
                written = _rebased(line)
            elif stands is not base:
                written = replace(line, base=stands)
        now[line] = written
    return list(now.values())


def _says_same(one: Line, other: Line) -> bool:
    """Whether requests based on one call may be based on another one with the same key."""
    if one is other:
        return True
    if one.fields.get("reply") != other.fields.get("reply"):
        return False
    return request_of(one).messages == request_of(other).messages


def _rebased(line: Line) -> Line:
    """The line of a call, rewritten with its whole request."""
    request, fields = request_of(line), json.loads(line.raw)
    for name in ("recording", "mode"):
        fields.pop(name, None)
    fields["request"] = request_fields(request, line.fields["model"])
    kept = {name: value for name, value in fields.items() if name != "unused"}
    return Line(
        dumped(fields), kept, 0, None, "", "", line.is_unused, len(request.messages), request
    )  # fmt: skip


def without(lines: Sequence[Line], gone: Iterable[Line]) -> list[Line]:
    """The lines of a run without some of them."""
    left_out = {id(line) for line in gone}
    return _bound([line for line in lines if id(line) not in left_out], {})


def after_recording(lines: Sequence[Line], own: Recording) -> list[Line]:
    """The lines of a file after the end of one recording.

    The lines of other runs stay unchanged, byte for byte, and so do those of other recordings under
    way, which come last.

    Args:
        lines: The lines of the file, perhaps including those of the recording itself.
        own: The recording.
    """
    placed, recordings = split(lines)
    run = arranged(placed.get(own.label, ()))
    others: list[Line] = []
    for each in recordings:
        if each.label == own.label:
            run = merged(run, each)
        else:
            others += each.lines
    placed[own.label] = merged(run, own)
    return [*(line for each in placed.values() for line in each), *others]


def written(lines: Iterable[Line]) -> bytes:
    """The bytes of a whole file with these lines."""
    return b"\n".join([HEAD, *(line.raw for line in lines), b""])
