"""What only Linux has: `prctl`. Elsewhere these do nothing, and `IS_LINUX` is false."""

from __future__ import annotations

import sys

IS_LINUX = sys.platform == "linux"

_SET_PDEATHSIG, _SET_DUMPABLE, _SET_CHILD_SUBREAPER = 1, 4, 36


def die_with_parent(number: int) -> None:
    """Get a signal when the parent dies. A child of this process has to ask for itself."""
    _prctl(_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Become the parent of each descendant whose own parent ends."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def allow_inspection(is_allowed: bool) -> None:
    """Whether other processes of this user may read this one's memory and environment."""
    _prctl(_SET_DUMPABLE, int(is_allowed))


def _prctl(option: int, value: int) -> None:
    if IS_LINUX:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
