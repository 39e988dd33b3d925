"""A file is replaced as a whole or not at all: what was there is not lost to a full disk."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """Write a text as UTF-8 in place of what a file holds, keeping its permissions.

    What a link points to is replaced, and not the link. What is no regular file (a pipe, a
    terminal) is written to.

    Raises:
        OSError: The file cannot be written. It is as it was.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    beside = path.with_name(f".{path.name[:200]}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        if path.exists():
            beside.chmod(path.stat().st_mode)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
