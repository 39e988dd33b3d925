"""Safe reading and atomic replacing of a person's files, which a stranger may have placed.

Only regular files up to a size limit are read. A file is replaced as a whole or not at all: a full
disk loses nothing, and a link never leads a write outside its folder.
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

# Flags that only some systems have. On Windows opening never blocks, and links need privileges.
_NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_BINARY = getattr(os, "O_BINARY", 0)


def read_file(path: Path, *, max_bytes: int, only_own: bool = False) -> bytes:
    """Read a file. Follows links; never waits for a writer.

    Args:
        path: The file.
        max_bytes: Largest size to read.
        only_own: Require that the file belongs to this user and no one else may write to it. (Not
            checked on Windows.)

    Raises:
        OSError: The file is missing, unreadable, not regular (a folder, a pipe, a device), larger
            than `max_bytes`, or may be another user's work. Its name is shortened in the error.
    """
    with _names_cut():
        _check_regular(path.stat(), path, max_bytes)  # opening a device may already have effects
        with os.fdopen(os.open(path, os.O_RDONLY | _NO_WAIT | _BINARY), "rb") as file:
            _check_regular(found := os.fstat(file.fileno()), path, max_bytes)
            if only_own:
                _check_own(found, path)
            content = file.read(max_bytes + 1)  # a file may grow, or report no size
        if len(content) > max_bytes:
            raise _too_large(path, max_bytes)
        return content


def read_part(path: Path, *, start: int, max_bytes: int) -> tuple[bytes, int]:
    """Read a part of a file of any size. Follows links; never waits for a writer.

    Args:
        path: The file.
        start: Where to begin, in bytes from 0.
        max_bytes: Most bytes to read.

    Returns:
        The bytes, and the size of the whole file.

    Raises:
        OSError: The file is missing, unreadable, or not regular. Its name is shortened in the
            error.
    """
    with _names_cut():
        _check_regular(path.stat(), path)
        with os.fdopen(os.open(path, os.O_RDONLY | _NO_WAIT | _BINARY), "rb") as file:
            _check_regular(found := os.fstat(file.fileno()), path)
            file.seek(start)
            return file.read(max_bytes), found.st_size


def replace_file(path: Path, text: str | bytes, *, mode: int | None = None) -> None:
    """Replace a file's content by a text, as UTF-8, or by bytes.

    A link is replaced; its target stays as it is. A pipe or a terminal is written to, but not
    through a link.

    Args:
        path: The file.
        text: The new content.
        mode: The new permissions; `None` keeps the present ones, or the default for a new file.

    Raises:
        OSError: The file cannot be written, and is unchanged. Its name is shortened in the error.
    """
    content = text.encode() if isinstance(text, str) else text
    with _names_cut():
        there = _there(path)
        if there is not None and not stat.S_ISREG(there.st_mode):
            with os.fdopen(os.open(path, os.O_WRONLY | _NO_LINK | _BINARY), "wb") as file:
                file.write(content)
            return
        # An unpredictable name, created exclusively: no one can have put a link there.
        beside = path.with_name(f".agentnb-{secrets.token_hex(8)}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | _BINARY
        # A private file's content stays private while it is written.
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
    """Status of the file at a path; `None` for no file, or a link to a regular file or to nothing.

    Raises:
        OSError: A link to something else, such as a device.
    """
    try:
        found = path.lstat()
        if not stat.S_ISLNK(found.st_mode):
            return found
        behind = path.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(behind.st_mode):
        raise OSError(
            errno.ELOOP, "It is a link to something that is not a regular file", str(path)
        )
    return None


def _check_regular(found: os.stat_result, path: Path, max_bytes: int | None = None) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "It is a folder", str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "It is not a regular file but a pipe or a device", str(path))
    if max_bytes is not None and found.st_size > max_bytes:
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
