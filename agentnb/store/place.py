"""The place of the store: its file, its folder, and whether that is on a network.

The place is decided when a session is created. A folder that a person named is created at once,
`.agentnb` only at the first run, so that reading creates nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from agentnb.core.text import literal

AUTO, NONE = "auto", "none"
VARIABLE = "AGENTNB_STORE"
"""The environment variable that replaces `auto`: `none`, or a path."""
FOLDER, FILE_NAME = ".agentnb", "agentnb.db"

_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = re.compile(r"(?:nfs|cifs|smb|fuse(?!blk)|lustre|gpfs|afs|9p|ceph|beegfs)")
"""Network file systems, by the beginning of their type. `fuseblk` is a local disk."""
_ESCAPE = re.compile(r"\\([0-7]{3})")


def place_of(
    setting: str | os.PathLike[str] | None,
    *,
    config_folder: Path | None,
    environment: Mapping[str, str],
    cwd: Path,
) -> Path | None:
    """The path of the store's file; `None` for memory only.

    Args:
        setting: `auto`: the value of `AGENTNB_STORE`, else `.agentnb/agentnb.db` in the project
            folder. `none` or `None`: memory only. Otherwise a path: of the file, or of a folder in
            which it is `agentnb.db`. A path is a folder's if it exists as one, or ends in a
            separator.
        config_folder: The folder of `agentnb.yaml`; `None` if there is no such file.
        environment: The environment variables.
        cwd: The working directory, from which relative paths start.

    Raises:
        ValueError: `setting` is neither text, nor a path, nor `None`.
    """
    if setting == AUTO:
        setting = environment.get(VARIABLE, "").strip() or AUTO
    if setting is None or (isinstance(setting, str) and setting.strip().lower() == NONE):
        return None
    if setting == AUTO:
        return (config_folder or cwd) / FOLDER / FILE_NAME
    try:
        given = os.fspath(setting)
        if not isinstance(given, str) or not given.strip() or "\0" in given:
            raise TypeError
    except TypeError:
        raise ValueError(
            f"`store` must be 'auto', the path of a file or a folder, or None for memory only, not "
            f"{literal(setting)}."
        ) from None
    path = cwd / os.path.expanduser(given)  # noqa: PTH111 - leaves an unknown user's `~name` alone
    is_folder = given.endswith(("/", os.sep)) or path.is_dir()
    return path / FILE_NAME if is_folder else path


def make_named_folder(path: Path) -> None:
    """Create the folder of a store that a person named; `.agentnb` is left to the first run.

    Ignores failures: the first run reports them.
    """
    if path.parent.name != FOLDER:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)


def make_folder(path: Path) -> None:
    """Create the folder of a store; a new `.agentnb` gets a `.gitignore` for all of its content.

    Args:
        path: The store's file.

    Raises:
        OSError: The folder, or the `.gitignore`, cannot be created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.name == FOLDER:
        # An existing file or link is a person's choice.
        with suppress(FileExistsError), (path.parent / ".gitignore").open("x") as file:
            file.write("*\n")


def is_network_home(path: Path) -> bool:
    """Whether a path, which need not exist, is on a file system that other machines share.

    False where that cannot be known (on any system but Linux).
    """
    try:
        mounts = _MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:
        return False
    return is_network(file_system_of(os.path.realpath(path), mounts.splitlines()))


def is_network(file_system: str) -> bool:
    """Whether a type of file system, such as `nfs4` or `fuse.sshfs`, is a network file system."""
    return _NETWORK.match(file_system) is not None


def file_system_of(path: str, mounts: Iterable[str]) -> str:
    """The type of the file system that a path is on; empty if no mount contains it.

    Args:
        path: Absolute, without links.
        mounts: Lines of `/proc/self/mountinfo`: ids, device, root, mount point, options, optional
            fields, ` - `, type, source, options (see proc(5)).
    """
    longest, found = "", ""
    for line in mounts:
        before, _, after = line.partition(" - ")
        fields, types = before.split(" "), after.split(" ")
        if len(fields) < 6 or not types[0]:
            continue
        point = _ESCAPE.sub(lambda octal: chr(int(octal[1], 8)), fields[4])
        # Of several mounts at one point, the last is on top.
        if _lies_in(path, point) and len(point) >= len(longest):
            longest, found = point, types[0]
    return found


def _lies_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
