"""Pages of texts, text files and folders. A text is counted in characters, a file in bytes."""

from __future__ import annotations

from pathlib import Path

from agentnb.core.text import visible
from agentnb.files import read_part
from agentnb.objects.paging import (
    FOR_OURS,
    MOST_CHARS,
    Part,
    check_start,
    more_lines,
    page_of,
    stop_of,
)
from agentnb.objects.paths import decoded, encoded, entries_of, is_text
from agentnb.objects.room import beginning
from agentnb.objects.short import cut
from agentnb.objects.steps import CannotRead
from agentnb.objects.tables import counted


def text_page(text: str, part: Part) -> str:
    """A page of a text, counted in characters."""
    total = len(text)
    if not total:
        return f"{part.name} is an empty text."
    check_start(part, total, "character")
    count = min(4_000 if part.count is None else part.count, MOST_CHARS)
    asked = text[part.start : part.start + count]
    shown, taken = beginning(asked, MOST_CHARS - FOR_OURS, chars=count)
    return _text_page(part, "character", part.start, part.start + taken, total, shown)


def _text_page(part: Part, noun: str, start: int, end: int, total: int, shown: str) -> str:
    head = f"{part.name}: {noun}s {start:,} to {end - 1:,} of {total:,}, counted from 0"
    if start == 0 and end == total:
        head = f"{part.name}: all {counted(total, noun)}"
    return "\n".join([cut(head, 350), shown, *more_lines(end, total)])


def file_page(path: Path, part: Part) -> str:
    """A page of a text file, counted in bytes."""
    try:
        head, size = read_part(path, start=0, max_bytes=4_096)
        if not size:
            return f"{part.name} is an empty file."
        if not is_text(head):
            raise CannotRead(f"{part.name} is no text file: only its `overview` can be read.")
        check_start(part, size, "byte")
        # At least one whole character.
        count = max(4, min(4_000 if part.count is None else part.count, MOST_CHARS))
        content, size = read_part(path, start=part.start, max_bytes=count)
    except OSError as error:
        raise CannotRead(
            f"{part.name} cannot be read: {visible(str(error.strerror or error), 200)}."
        ) from None
    text, skipped = decoded(content, is_end=part.start + len(content) >= size)
    shown, taken = beginning(text, MOST_CHARS - FOR_OURS, chars=len(text))
    start = part.start + skipped
    end = start + len(encoded(text[:taken]))
    return _text_page(part, "byte", start, end, max(size, end), shown)


def entries_page(path: Path, part: Part) -> str:
    """A page of what is in a folder."""
    try:
        entries = entries_of(path)
    except OSError as error:
        raise CannotRead(
            f"{part.name} cannot be read: {visible(str(error.strerror or error), 200)}."
        ) from None
    stop = stop_of(part, len(entries), usual=200)
    lines = (f"- {each}" for each in entries[part.start : stop])
    return page_of(part, "entry", len(entries), lines)
