"""Files as a worker leaves them: honest ones, and ones that it made up."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentnb.workers.inside.leaving import ALIGNMENT, MAGIC, leave
from agentnb.workers.returned import Returned, read_returned

MOST = 100_000_000


def left_and_read(folder: Path, names: Mapping[str, Any], most: int = MOST) -> Returned:
    file = folder / "left"
    leave(names, file, most=most)
    return read(file)


def came_back(folder: Path, value: Any) -> Any:
    returned = left_and_read(folder, {"value": value})
    assert returned.left_out == {}
    return returned.objects["value"]


def forged(folder: Path, node: Any, buffers: Sequence[bytes] = ()) -> Returned:
    """What is read of a file with one node, `value`, that a worker made up."""
    places, content, at = [], b"", 0
    for buffer in buffers:
        places.append([at, len(buffer)])
        content += buffer + b"\0" * (-len(buffer) % ALIGNMENT)
        at = len(content)
    return forged_header(folder, {"names": {"value": node}, "buffers": places}, content)


def forged_header(folder: Path, header: Any, content: bytes = b"") -> Returned:
    return read(forge(folder, header, content))


def forge(folder: Path, header: Any, content: bytes = b"") -> Path:
    said = json.dumps(header).encode()
    file = folder / "left"
    file.write_bytes(MAGIC + len(said).to_bytes(8, "little") + said + content)
    return file


def read(file: Path, *, seconds: float = 60.0, most: int = MOST) -> Returned:
    return read_returned(file, most=most, until=time.monotonic() + seconds)
