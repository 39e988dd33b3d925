"""A text file of the project: inside its folder, small, and read as it is.

What a settings file names goes into prompts, and so to a provider. A name must not lead out of
the project folder, by `..`, by an absolute path or by a link.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentnb.core.text import literal

MAX_BYTES = 100_000
_SETTLED_AFTER_NS = 3_000_000_000
"""A file that was written to less than this before it was read may be written to again without a
change of its stamp: file systems round their times, by a few milliseconds or by up to 2 s."""

Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WatchedFile:
    """A file as it was when it was read, so that a later change is noticed."""

    path: Path
    read: Callable[[], str]
    """Raises `ValueError` when it cannot be read."""
    stamp: Stamp | None
    """Times, size and inode; `None` where they do not tell enough."""
    said: str
    """Its text, or why it could not be read."""

    @classmethod
    def now(cls, path: Path, read: Callable[[], str]) -> WatchedFile:
        """Look at a file. Comes before its text is used, so that no change is missed."""
        stamp = _stamp(path)
        is_settled = stamp is not None and time.time_ns() - max(stamp[:2]) > _SETTLED_AFTER_NS
        return cls(path, read, stamp if is_settled else None, _outcome(read))

    def has_changed(self) -> bool:
        """Whether it says something else by now. Reads it only where its stamp is not enough."""
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
        name: A path, from the project folder on.

    Returns:
        The file's path from the folder on, written with `/`, and its text.

    Raises:
        ValueError: It is outside, missing, no text, or too large; says what to do.
    """
    if not name.strip():
        raise ValueError("The name of a file is blank. Name a file of the project folder.")
    try:
        path = (folder / name).resolve()
        named = folder / name
        if not path.is_relative_to(folder):
            raise ValueError(
                f"The file {literal(name)} lies outside the project folder, the one that "
                "settings are read in. Copy it into the folder, and name it from there."
            )
        text = read_text(path)
    except FileNotFoundError:
        raise ValueError(
            f"There is no file {literal(name)} in the project folder. Write it, or correct the "
            "name."
        ) from None
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"The file {literal(name)} cannot be read ({reason}).") from error
    except NoText as error:
        raise ValueError(f"The file {literal(name)} {error}") from None
    # As it is named, and not what a link in the folder leads to.
    inside = named if named.is_relative_to(folder) and ".." not in named.parts else path
    return inside.relative_to(folder).as_posix(), text


class NoText(Exception):
    """Why a file is not read, as the rest of a sentence, and what to do."""


def read_text(path: Path) -> str:
    """The text of a file, without a byte order mark.

    Raises:
        NoText: It is no file, no UTF-8, or larger than `MAX_BYTES`.
        OSError: It is not there, or cannot be read.
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
        raise NoText("is no text (it holds a zero byte). Name a text file.")
    return text
