"""Reads what a worker left, without running anything of it.

A worker runs unchecked code, so its file is hostile until proven otherwise. It is not a pickle,
and none is read here, however restricted: a pickle can set the flags of a data type and the state
of any allowed class, and can crash the interpreter by its depth alone. The file is a table of
plain values (see `agentnb.workers.inside.leaving`); each object is made by a constructor that is
chosen here, from parts that were checked first. What is not in the table below is left out.

All is bounded: the file's size, each place in it, the number and the depth of the values, the time.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentnb.workers.inside.leaving import DEEPEST, MAGIC, MOST_IN_HEADER, MOST_NODES
from agentnb.workers.returned_frames import FRAMES
from agentnb.workers.returned_models import MODELS
from agentnb.workers.returned_values import VALUES, NotReadable

_MOST_NAMES = 1_000
_MOST_IN_REASON = 500


@dataclass(frozen=True, slots=True)
class Returned:
    """What came back from a worker."""

    objects: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    """By name: why its object did not come back."""


def read_returned(path: Path, *, most: int, until: float) -> Returned:
    """Read a file that a worker wrote. Never raises for anything that is in it.

    Args:
        path: The file. A link, a device or a pipe is refused.
        most: Most bytes of the file.
        until: When to stop, on `time.monotonic`; what is not read by then is left out.
    """
    try:
        content = _content(path, most)
        header, start = _header(content)
        reader = Reader(content, start, header.get("buffers"), until)
    except (NotReadable, OSError) as error:
        return Returned(left_out={"*": f"what the worker left could not be read: {error}"})
    objects: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    names, reasons = header.get("names"), header.get("left_out")
    for name, node in list(names.items() if isinstance(names, dict) else ())[:_MOST_NAMES]:
        if not name.isidentifier() or name.startswith("_"):
            continue
        try:
            objects[name] = reader.value(node)
        except NotReadable as why:
            left_out[name] = str(why)[:_MOST_IN_REASON]
        # A constructor of a foreign library may raise anything; polars' panics are no `Exception`.
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
                raise
            left_out[name] = f"it could not be read: {type(error).__name__}"
    for name, reason in list(reasons.items() if isinstance(reasons, dict) else ())[:_MOST_NAMES]:
        if name.isidentifier() and name not in objects:
            left_out.setdefault(name, str(reason)[:_MOST_IN_REASON])
    return Returned(objects, left_out)


class Reader:
    """Makes values of the nodes of one file."""

    def __init__(self, content: bytearray, start: int, places: Any, until: float) -> None:
        self._content = memoryview(content)
        self._places = _checked_places(places, start, len(content))
        self._until = until
        self._count = 0
        self._depth = 0

    def value(self, node: Any) -> Any:
        """The value of a node.

        Raises:
            NotReadable: It has none, or a bound is passed.
        """
        self._count += 1
        if self._count > MOST_NODES:
            raise NotReadable(f"it has more than {MOST_NODES:,} plain values")
        if self._count % 256 == 0:
            self.check_time()
        if type(node) in (type(None), bool, int, float, str):
            return node
        if type(node) is not dict or type(node.get("t")) is not str:
            raise NotReadable("it is not in the form that a worker writes")
        make = _MAKERS.get(node["t"])
        if make is None:
            raise NotReadable(f"values of the type {node['t'][:60]!r} cannot come back")
        self._depth += 1
        try:
            if self._depth > DEEPEST + 5:
                raise NotReadable(f"it is nested more than {DEEPEST} levels deep")
            return make(self, node)
        finally:
            self._depth -= 1

    def buffer(self, number: Any) -> memoryview:
        """A buffer of the file, by its number."""
        if type(number) is not int or not 0 <= number < len(self._places):
            raise NotReadable("it names a buffer that is not there")
        at, size = self._places[number]
        return self._content[at : at + size]

    def check_time(self) -> None:
        """Raises `NotReadable` when the time is over."""
        if time.monotonic() > self._until:
            raise NotReadable("there was no time left to read it")


def _content(path: Path, most: int) -> bytearray:
    """The whole file. Read, not mapped: a process that shortens a mapped file kills its readers."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(file, "rb") as stream:
        facts = os.fstat(file)
        if not stat.S_ISREG(facts.st_mode):
            raise NotReadable("it is not a file")
        if facts.st_size > most:
            raise NotReadable(f"it has {facts.st_size:,} bytes, and may have {most:,}")
        content = bytearray(facts.st_size)
        read = stream.readinto(content)
        del content[read:]
        return content


def _header(content: bytearray) -> tuple[dict[str, Any], int]:
    begin = len(MAGIC) + 8
    if content[: len(MAGIC)] != MAGIC:
        raise NotReadable("it does not begin as what a worker leaves")
    size = int.from_bytes(content[len(MAGIC) : begin], "little")
    if size > MOST_IN_HEADER or begin + size > len(content):
        raise NotReadable(f"its header would have {size:,} bytes")
    try:
        header = json.loads(content[begin : begin + size])
    except (ValueError, RecursionError):
        raise NotReadable("its header is not JSON") from None
    if not isinstance(header, dict):
        raise NotReadable("its header is not a table")
    return header, begin + size


def _checked_places(places: Any, start: int, size: int) -> list[tuple[int, int]]:
    """Where each buffer is. They may not overlap: two arrays would share their memory."""
    checked, end = [], start
    for place in places if isinstance(places, list) else ():
        if not isinstance(place, list) or len(place) != 2 or {*map(type, place)} != {int}:
            raise NotReadable("its buffers have no places")
        at, length = start + place[0], place[1]
        if length < 0 or at < end or at + length > size:
            raise NotReadable("its buffers are not within the file, one after the other")
        checked.append((at, length))
        end = at + length
    return checked


_MAKERS: Mapping[str, Callable[[Any, dict[str, Any]], Any]] = {**VALUES, **FRAMES, **MODELS}
