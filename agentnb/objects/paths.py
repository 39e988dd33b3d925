"""A path that a person gave: what is there, and its text in parts. Nothing beside it is read.

A file is counted in bytes, since its characters cannot be counted without reading all of it. No
time of a file is told: a recorded prompt has to be the same the next time.
"""

from __future__ import annotations

import os
import stat
from itertools import islice
from pathlib import Path

from agentnb.core.text import literal
from agentnb.files import read_part
from agentnb.objects.room import Room, beginning
from agentnb.objects.tables import counted

_SNIFFED = 4_096
_MOST_ENTRIES = 100_000
"""Of a folder, up to which they are counted."""
_FIRST = 12
_MOST_CHARS = 1_000

FOLDER, FILE, MISSING, OTHER = "folder", "file", "missing", "other"


def kind_of_path(path: Path) -> str:
    """What is at a path: `FOLDER`, `FILE`, `MISSING` or `OTHER`."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    except (OSError, ValueError):
        return OTHER
    if stat.S_ISDIR(mode):
        return FOLDER
    return FILE if stat.S_ISREG(mode) else OTHER


def shape_of_path(path: Path) -> str:
    """What is at a path, as the end of a first line: `'a.csv', a text file of 1,204 bytes`."""
    named = literal(str(path), 200)
    kind = kind_of_path(path)
    if kind == MISSING:
        return f"{named}: there is no such file or folder"
    if kind == OTHER:
        return f"{named}: neither a file nor a folder that can be read"
    if kind == FOLDER:
        entries = entries_of(path)
        if len(entries) > _MOST_ENTRIES:
            return f"{named}, a folder with more than {_MOST_ENTRIES:,} entries"
        return f"{named}, a folder with {counted(len(entries), 'entry')}"
    head, size = read_part(path, start=0, max_bytes=_SNIFFED)
    what = "text" if is_text(head) else "binary"
    return f"{named}, a {what} file of {counted(size, 'byte')}"


def add_path(room: Room, path: Path) -> None:
    """Describe what is at a path below the first line."""
    kind = kind_of_path(path)
    if kind == FOLDER:
        entries = entries_of(path)
        if not entries or len(entries) > _MOST_ENTRIES:
            return
        names = entries[:_FIRST]
        said = f"{len(names):,} of {len(entries):,}" if len(names) < len(entries) else "all"
        head = f"Entries ({said} shown, by name):"
        room.add(head)
        for name in names:
            room.add(f"- {name}", leave=60)
        return
    if kind != FILE:
        return
    content, size = read_part(path, start=0, max_bytes=_SNIFFED)
    if not size or not is_text(content):
        return
    text, _ = decoded(content, is_end=len(content) == size)
    shown, taken = beginning(text, room.left - len(_TEXT_HEAD) - 40, chars=_MOST_CHARS, quoted=True)
    used = len(encoded(text[:taken]))
    what = f"all {size:,}" if used == size else f"first {used:,} of {size:,}"
    room.add(_TEXT_HEAD.format(what))
    room.add(shown)


_TEXT_HEAD = "Text ({} bytes shown):"


def entries_of(path: Path) -> list[str]:
    """The entries of a folder by name, as literals, folders with a slash behind.

    Of a folder with more than 100,000, 100,001 in no order.
    """
    with os.scandir(path) as found:
        entries = list(islice(found, _MOST_ENTRIES + 1))
    if len(entries) <= _MOST_ENTRIES:
        entries.sort(key=lambda entry: entry.name)
    return [
        literal(e.name, 120) + ("/" if e.is_dir(follow_symlinks=False) else "") for e in entries
    ]


def is_text(content: bytes) -> bool:
    """Whether the beginning of a file is text in UTF-8."""
    if b"\0" in content:
        return False
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and error.start > len(content) - 4
    return True


def decoded(content: bytes, *, is_end: bool = False) -> tuple[str, int]:
    """A part of a text file, without characters that are cut at its ends.

    Args:
        content: The part.
        is_end: Whether nothing follows it, so that no character is cut there.

    Returns:
        The text, with a lone surrogate for each byte that is no text; and how many bytes were left
        out before it.
    """
    skipped, end = 0, len(content)
    while skipped < min(3, end) and content[skipped] & 0xC0 == 0x80:
        skipped += 1
    for back in () if is_end else range(1, min(4, end - skipped) + 1):
        lead = content[end - back]
        if lead & 0xC0 == 0x80:
            continue
        needed = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
        # Never nothing: a page has to go on, also over bytes that are no text.
        if back < needed and back < end - skipped:
            end -= back
        break
    return content[skipped:end].decode("utf-8", "surrogateescape"), skipped


def encoded(text: str) -> bytes:
    """The bytes of a text that `decoded` returned."""
    return text.encode("utf-8", "surrogateescape")
