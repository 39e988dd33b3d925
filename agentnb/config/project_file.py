"""Read text files of a project: small, UTF-8, and inside the project folder.

Files that the settings name go into prompts, and so to a provider. A name must not lead out of the
project folder, by `..`, an absolute path or a link.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentnb.core.text import literal

MAX_BYTES = 100_000
_SETTLED_AFTER_NS = 3_000_000_000
"""A file written more recently than this before it is read may change again with the same stamp:
file systems round their times by a few milliseconds up to 2 s."""

Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WatchedFile:
    """A file as it was when it was read, to notice a later change."""

    path: Path
    read: Callable[[], str]
    """Raises `ValueError` if the file cannot be read."""
    stamp: Stamp | None
    """Times, size and inode; `None` if they cannot prove that nothing changed."""
    said: str
    """Its text, or why it could not be read."""

    @classmethod
    def now(cls, path: Path, read: Callable[[], str]) -> WatchedFile:
        """Record a file's present state. Call it before using the text, to miss no change."""
        stamp = _stamp(path)
        is_settled = stamp is not None and time.time_ns() - max(stamp[:2]) > _SETTLED_AFTER_NS
        return cls(path, read, stamp if is_settled else None, _outcome(read))

    def has_changed(self) -> bool:
        """Whether the text has changed. Reads the file only if its stamp proves nothing."""
        if self.stamp is not None and _stamp(self.path) == self.stamp:
            return False
        return _outcome(self.read) != self.said


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except (OSError, ValueError):  # ValueError: a zero byte in its name
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _outcome(read: Callable[[], str]) -> str:
    try:
        return read()
    except ValueError as error:
        return str(error)


def read_project_file(folder: Path, name: str) -> tuple[str, str]:
    """Read a file of the project.

    Args:
        folder: The project folder, absolute, without links.
        name: A path relative to the project folder.

    Returns:
        The file's path relative to the folder, written with `/`, and its text.

    Raises:
        ValueError: The file is outside the folder, missing, not a text, or too large; the message
            says what to do.
    """
    if not name.strip():
        raise ValueError("The name of a file is blank. Name a file of the project folder.")
    try:
        path = (folder / name).resolve()
        named = folder / name
        if not path.is_relative_to(folder):
            raise ValueError(
                f"The file {literal(name)} is outside the project folder, where the settings "
                "file is. Copy it into the folder, and name it from there."
            )
        text = read_text(path)
    except FileNotFoundError:
        raise ValueError(
            f"There is no file {literal(name)} in the project folder. Create it, or correct the "
            "name."
        ) from None
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(
            f"The file {literal(name)} cannot be read ({reason}): check its path and permissions."
        ) from error
    except NoText as error:
        raise ValueError(f"The file {literal(name)} {error}") from None
    # The name as given, not the target of a link in the folder.
    inside = named if named.is_relative_to(folder) and ".." not in named.parts else path
    return inside.relative_to(folder).as_posix(), text


class NoText(Exception):
    """A file is not read. The message is the rest of a sentence, and says what to do."""


def read_text(path: Path) -> str:
    """The text of a file, without a byte order mark.

    Raises:
        NoText: It is not a regular file, not UTF-8, or larger than `MAX_BYTES`.
        OSError: It is missing or cannot be read.
    """
    if path.exists() and not path.is_file():  # a pipe would never end
        raise NoText("is a folder or a device. Name a text file.")
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise NoText(f"is larger than {MAX_BYTES // 1000} kB. Shorten it.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NoText(f"is not UTF-8 (byte {error.start}). Save it as UTF-8 text.") from None
    if "\0" in text:
        raise NoText("is not text (it contains a zero byte). Name a text file.")
    return text
