"""Pauses of the garbage collector, for work that makes very many objects that stay.

While such objects only accumulate, the collector would scan the new ones again and again in vain.
Each pause is for work that ends soon. A pause whose event loop has stopped ends with the next one.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 100
"""Number of tasks that wait for the same moment, from which on a pause pays."""

_lock = threading.Lock()
_pauses: set[_Pause] = set()
"""The pauses of all threads that have not ended."""
_was_on = False


class _Pause:
    """One pause. It begins when it is created."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        global _was_on
        self._loop = loop
        with _lock:
            if not _pauses:
                _was_on = gc.isenabled()
                gc.disable()
            _pauses.add(self)

    def end(self) -> None:
        """End the pause; the last one to end restarts the collector. A second call does nothing."""
        with _lock:
            if self in _pauses:
                _pauses.discard(self)
                # An abandoned loop with waiting tasks ends no pause.
                _pauses.difference_update([each for each in _pauses if each._is_left])
                if not _pauses and _was_on:
                    gc.enable()

    @property
    def _is_left(self) -> bool:
        return self._loop is not None and not self._loop.is_running()


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause the garbage collector. No thread waits for another one's pause."""
    pause = _Pause()
    try:
        yield
    finally:
        pause.end()


class TurnPause(_Pause):
    """Pauses the collector while very many tasks of this loop wait, and in their next turns.

    Most objects that a task makes in one turn on the loop stay until its next turn.
    """

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop())

    def end_behind(self) -> None:
        """End the pause after everything that is ready on the loop now has run."""
        assert self._loop is not None
        self._loop.call_soon(self.end)


def _begin_after_fork() -> None:
    """In a forked child: end all pauses, since the parent's threads and loops do not exist here."""
    global _lock
    _lock = threading.Lock()
    if _pauses:
        _pauses.clear()
        if _was_on:
            gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_after_fork)
