"""Finds all processes below one, and ends them so that none slips away.

A process that forks while the list is read is missed; so all are stopped first, and the list is
read again until it has no new one. Needs Linux's `/proc`; elsewhere nothing is found.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def below(top: int, *, spare: Collection[int] = ()) -> list[int]:
    """The living processes below `top`, without those in or below `spare`."""
    children: dict[int, list[int]] = {}
    for pid, parent in _living():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    waiting = [top]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in spare:
                found.append(child)
                waiting.append(child)
    return found


def has_children(pid: int) -> bool:
    """Whether a process has children. Takes a hundredth of the time of `below`."""
    try:
        threads = list((_PROC / str(pid) / "task").iterdir())
        return any((thread / "children").read_bytes().strip() for thread in threads)
    except FileNotFoundError:
        return True  # the kernel does not keep them, or a thread has just ended: look closely
    except OSError:
        return False


def marked(mark: str) -> list[int]:
    """The living processes that were started with `mark` in their environment or arguments.

    A process that allows no inspection shows its environment to the superuser only.
    """
    sought = mark.encode()
    return [pid for pid, _ in _living() if pid != os.getpid() and _is_marked(pid, sought)]


def _is_marked(pid: int, sought: bytes) -> bool:
    for name in ("cmdline", "environ"):
        with suppress(OSError):
            if sought in (_PROC / str(pid) / name).read_bytes():
                return True
    return False


def end_all(find: Callable[[], list[int]], *, patience_s: float = 2.0) -> bool:
    """Stop, then kill whatever `find` returns, until it returns nothing. False if some remain."""
    until = time.monotonic() + patience_s
    while True:
        stopped: set[int] = set()
        while new := set(find()) - stopped:
            _signal(new, signal.SIGSTOP)
            stopped |= new
            if time.monotonic() > until:
                break
        if not stopped:
            return True
        _signal(stopped, signal.SIGKILL)
        reap()
        if time.monotonic() > until:
            return False
        time.sleep(0.002)


def reap() -> dict[int, int]:
    """Collect this process's dead children: their wait statuses by id."""
    ended: dict[int, int] = {}
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = status
    return ended


def uses_more(pids: Collection[int], most: int) -> bool:
    """Whether processes hold more than `most` bytes in all, each page counted once."""
    # First what costs little to ask; it counts a page again for each process that was forked.
    return sum(map(_resident, pids)) > most and sum(map(_proportional, pids)) > most


def _resident(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        pages = (_PROC / str(pid) / "statm").read_text(encoding="ascii").split()
        return max(0, int(pages[1]) - int(pages[2])) * _PAGE
    return 0


def _proportional(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        for line in (_PROC / str(pid) / "smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _signal(pids: set[int], number: int) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


def _living() -> Iterator[tuple[int, int]]:
    """The id of each process that has not ended, and that of its parent."""
    try:
        names = os.listdir(_PROC)  # noqa: PTH208 - a `Path` for each process would be slow
    except OSError:
        return
    for name in names:
        if name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    # The command's name may contain blanks and brackets.
                    state, parent = file.read().rpartition(b") ")[2].split()[:2]
                if state not in (b"Z", b"X"):
                    yield int(name), int(parent)
