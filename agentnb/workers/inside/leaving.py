"""Writes what a worker leaves into a file that can be read without running any code.

Not a pickle: a pickle is a program. The file is a table of plain values and of buffers, and its
reader (`agentnb.workers.returned`) makes each object by a constructor that it chose itself. What
has no form here is left out, with the reason.

    16 bytes    MAGIC
    8 bytes     length of the header, little endian
    header      JSON: {"names": {name: node}, "left_out": {name: reason}, "buffers": [[at, size]]}
    buffers     each begins at a multiple of 64 from the end of the header

A node is `null`, `true`, `false`, a number, a text, or an object whose `t` says what it is.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentnb.workers.inside.leaving_frames import FRAMES
from agentnb.workers.inside.leaving_models import MODELS
from agentnb.workers.inside.leaving_values import VALUES, CannotLeave, Maker

MAGIC = b"agentnb-left-01\n"
ALIGNMENT = 64
MOST_NODES = 500_000
DEEPEST = 40
MOST_IN_HEADER = 8_000_000
_MOST_NAMES = 200
_NOTHING_TO_LEAVE = (
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    type,
)


def leave(names: Mapping[str, Any], file: Path, *, most: int) -> None:
    """Write the values of `names` that can be written, at most `most` bytes in all."""
    nodes: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    writer = _Writer(most)
    for name, value in names.items():
        if isinstance(value, _NOTHING_TO_LEAVE) or not isinstance(name, str):
            continue
        if len(nodes) + len(left_out) >= _MOST_NAMES:
            break
        before = writer.mark()
        try:
            nodes[name] = writer.node(value)
        except CannotLeave as why:
            left_out[name] = str(why)
        except (Exception, RecursionError) as error:
            left_out[name] = f"{type(error).__name__}: {error}"[:300]
        if name in left_out:
            writer.back_to(before)
    _write(file, nodes, left_out, writer.buffers)


def _write(
    file: Path, nodes: dict[str, Any], left_out: dict[str, str], buffers: list[memoryview]
) -> None:
    places, at = [], 0
    for buffer in buffers:
        places.append([at, len(buffer)])
        at += -(-len(buffer) // ALIGNMENT) * ALIGNMENT
    head = {"names": nodes, "left_out": left_out, "buffers": places}
    header = json.dumps(head, allow_nan=False).encode()
    if len(header) > MOST_IN_HEADER:
        reason = "together, the plain values are too large to come back: put them into arrays"
        head = {"names": {}, "left_out": dict.fromkeys(nodes, reason) | left_out, "buffers": []}
        header, buffers = json.dumps(head).encode(), []
    with file.open("wb") as out:
        out.write(MAGIC + len(header).to_bytes(8, "little") + header)
        for buffer in buffers:
            out.write(buffer)
            out.write(b"\0" * (-len(buffer) % ALIGNMENT))


class _Writer:
    def __init__(self, most: int) -> None:
        self._room = most
        self._count = 0
        self.buffers: list[memoryview] = []

    def mark(self) -> tuple[int, int, int]:
        return len(self.buffers), self._room, self._count

    def back_to(self, mark: tuple[int, int, int]) -> None:
        count, self._room, self._count = mark
        del self.buffers[count:]

    def buffer(self, content: Any) -> int:
        view = memoryview(content).cast("B") if not isinstance(content, memoryview) else content
        self._room -= len(view) + ALIGNMENT
        if self._room < 0:
            raise CannotLeave("what comes back would be larger than the memory of a worker")
        self.buffers.append(view)
        return len(self.buffers) - 1

    def node(self, value: Any, depth: int = 0) -> Any:
        """The node of a value; what it holds is one level deeper."""
        self._count += 1
        if self._count > MOST_NODES:
            raise CannotLeave(
                f"it has more than {MOST_NODES:,} plain values: put them into an array or a frame"
            )
        if depth > DEEPEST:
            raise CannotLeave(f"it is nested more than {DEEPEST} levels deep, or holds itself")
        plain = VALUES.get(type(value))
        if plain is not None:
            return plain(self, value, depth + 1)
        for library, write in _LIBRARIES.items():
            if library in sys.modules:
                written = write(self, value, depth + 1)
                if written is not None:
                    return written
        kind = type(value)
        raise CannotLeave(
            f"values of the type {kind.__module__}.{kind.__qualname__} cannot come back"
        )


_LIBRARIES: Mapping[str, Maker] = {**FRAMES, **MODELS}
