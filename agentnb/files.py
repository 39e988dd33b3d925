"""Files of a person, which may have been put where they are by somebody else.

One is read only when it is a file with a bound, and replaced as a whole or not at all: what was
there is not lost to a full disk, and nothing outside its folder is written through a link.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from agentnb.core.text import LONGEST_IN_ERROR, visible

# What is there on no system but some: on Windows nothing blocks, and nobody makes links by stealth.
_NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_BINARY = getattr(os, "O_BINARY", 0)


def read_file(path: Path, *, max_bytes: int, only_own: bool = False) -> bytes:
    """What a file holds. Never waits for a writer, and follows a link: that changes nothing.

    Args:
        path: The file.
        max_bytes: The most that it may hold.
        only_own: Whether it must belong to this user, and nobody else may write to it. (Windows
            tells neither.)

    Raises:
        OSError: It is not there, cannot be read, is no regular file (a folder, a pipe, a device),
            holds more than `max_bytes`, or may be another user's work. A name in it is cut.
    """
    with _names_cut():
        _check_regular(path.stat(), path, max_bytes)  # to open a device may already act
        with os.fdopen(os.open(path, os.O_RDONLY | _NO_WAIT | _BINARY), "rb") as file:
            _check_regular(found := os.fstat(file.fileno()), path, max_bytes)
            if only_own:
                _check_own(found, path)
            content = file.read(max_bytes + 1)  # a file may grow, or not know its size
        if len(content) > max_bytes:
            raise _too_large(path, max_bytes)
        return content


def replace_file(path: Path, text: str, *, mode: int | None = None) -> None:
    """Write a text as UTF-8 in place of what a file holds.

    A link is replaced, and what it points to stays as it is. What is no regular file (a pipe, a
    terminal) is written to, but not by way of a link.

    Args:
        path: The file.
        text: What it is to hold.
        mode: Its permissions from now on; `None` for those that it has, or that new files get.

    Raises:
        OSError: The file cannot be written. It is as it was. A name in it is cut.
    """
    content = text.encode()
    with _names_cut():
        there = _there(path)
        if there is not None and not stat.S_ISREG(there.st_mode):
            with os.fdopen(os.open(path, os.O_WRONLY | _NO_LINK | _BINARY), "wb") as file:
                file.write(content)
            return
        # A name that nobody can foretell, made anew: nobody can have put a link there.
        beside = path.with_name(f".agentnb-{secrets.token_hex(8)}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | _BINARY
        # What a file keeps from others is kept from them while it is written, too.
        is_plain = there is None and mode is None
        made = os.open(beside, flags, 0o666 if is_plain else 0o600)
        try:
            with os.fdopen(made, "wb") as file:
                file.write(content)
            if mode is not None:
                beside.chmod(mode)
            elif there is not None:
                beside.chmod(stat.S_IMODE(there.st_mode))
            beside.replace(path)
        except BaseException:
            with suppress(OSError):
                beside.unlink()
            raise


def _there(path: Path) -> os.stat_result | None:
    """What stands at a path, to be kept or written to; `None` for nothing, and for a link."""
    try:
        found = path.lstat()
        if not stat.S_ISLNK(found.st_mode):
            return found
        behind = path.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(behind.st_mode):
        raise OSError(errno.ELOOP, "It is a link to what is no regular file", str(path))
    return None


def _check_regular(found: os.stat_result, path: Path, max_bytes: int) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "It is a folder", str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "It is no regular file, but a pipe or a device", str(path))
    if found.st_size > max_bytes:
        raise _too_large(path, max_bytes)


def _check_own(found: os.stat_result, path: Path) -> None:
    if os.name == "posix" and (found.st_uid != os.geteuid() or found.st_mode & 0o022):
        raise OSError(errno.EPERM, "It may be another user's work", str(path))


def _too_large(path: Path, max_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"It is larger than {max_bytes:,} bytes", str(path))


@contextmanager
def _names_cut() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        for name in ("filename", "filename2"):
            said = getattr(error, name, None)
            if isinstance(said, str | bytes | os.PathLike):
                setattr(error, name, visible(os.fsdecode(said), LONGEST_IN_ERROR))
        raise
