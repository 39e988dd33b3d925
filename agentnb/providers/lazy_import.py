"""A heavy import, made on a thread that nobody has to wait for.

A module that takes most of a second to import must stop neither a kernel nor the loop of the runs,
and an interpreter that ends in the middle of it must not be held up. What goes wrong in it is told
to whoever needs the module, each time anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future

_FORK_PATIENCE_S = 10.0
_SMALL_HEAP_BLOCKS = 3_000_000
"""A few hundred MiB. Where there is more, a whole collection would take longer than it saves."""


class LazyImport:
    """One import.

    Args:
        load: Makes it; its error is raised to whoever waits, and the next one tries again.
    """

    def __init__(self, load: Callable[[], object]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._loaded: Future[None] | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._wait_before_fork, after_in_child=self._forget_after_fork
            )

    def begin(self) -> Future[None]:
        """Begin, unless that was done; nothing waits.

        Raises:
            RuntimeError: There can be no more threads now. The next one tries again.
        """
        with self._lock:
            loaded = self._loaded
            if loaded is None or (loaded.done() and loaded.exception() is not None):
                loaded = Future()
                # Not `asyncio.to_thread`: the interpreter would wait for its threads at exit.
                threading.Thread(
                    target=self._run, args=(loaded,), name="agentnb-import", daemon=True
                ).start()
                self._loaded = loaded  # not before: nobody may wait for what never began
            return loaded

    async def wait(self) -> None:
        """Return when it is made."""
        loaded = self.begin()
        if not loaded.done():
            # A shield: one waiting call that is cancelled must not cancel it for the others.
            await asyncio.shield(asyncio.wrap_future(loaded))
        loaded.result()

    def _run(self, loaded: Future[None]) -> None:
        try:
            self._load()
            if sys.getallocatedblocks() < _SMALL_HEAP_BLOCKS:
                # What it made is looked through once, here, and not in the middle of the first
                # streams. Nothing more: a frozen heap, or a threshold set higher, would be for
                # all of this process, where what a person drops must be freed as ever.
                gc.collect()
        except BaseException as error:
            loaded.set_exception(error)
        else:
            loaded.set_result(None)

    def _wait_before_fork(self) -> None:
        """A forked process could neither go on with an import that is half made nor begin anew."""
        if self._loaded is not None:
            with contextlib.suppress(TimeoutError):
                self._loaded.exception(_FORK_PATIENCE_S)

    def _forget_after_fork(self) -> None:
        # Threads that are not in this process may have held the locks of both. What was imported
        # is imported here, too: to begin again is then soon done.
        self._lock, self._loaded = threading.Lock(), None
