"""Imports a heavy module on a daemon thread.

An import of most of a second must not block the kernel or the runs' loop, nor delay the
interpreter's exit. If it fails, each call that needs the module tries again and raises the error.
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

from agentnb.core.cancel import shielded

_FORK_PATIENCE_S = 10.0
_SMALL_HEAP_BLOCKS = 3_000_000
"""A few hundred MiB. On a larger heap a full collection takes longer than it saves."""


class LazyImport:
    """One import.

    Args:
        load: Makes the import. Its error is raised in every waiting call; the next call retries.
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
        """Begin the import unless it has begun, and return its future without waiting.

        Raises:
            RuntimeError: No thread can be started now. The next call tries again.
        """
        with self._lock:
            loaded = self._loaded
            if loaded is None or (loaded.done() and loaded.exception() is not None):
                loaded = Future()
                # Not `asyncio.to_thread`: the interpreter would wait for its threads at exit.
                threading.Thread(
                    target=self._run, args=(loaded,), name="agentnb-import", daemon=True
                ).start()
                self._loaded = (
                    loaded  # only now: a call must not wait for an import that never began
                )
            return loaded

    async def wait(self) -> None:
        """Wait until the import is done; raises its error."""
        loaded = self.begin()
        if not loaded.done():
            # One waiting call that is cancelled must not cancel it for the others.
            await shielded(asyncio.wrap_future(loaded))
        loaded.result()

    def _run(self, loaded: Future[None]) -> None:
        try:
            self._load()
            if sys.getallocatedblocks() < _SMALL_HEAP_BLOCKS:
                # Collect the import's garbage here, not in the middle of the first streams. Do no
                # more: `gc.freeze` or a higher threshold would change the user's whole process.
                gc.collect()
        except BaseException as error:
            loaded.set_exception(error)
        else:
            loaded.set_result(None)

    def _wait_before_fork(self) -> None:
        """Wait for the import: a forked process could neither finish nor restart half of one."""
        if self._loaded is not None:
            with contextlib.suppress(TimeoutError):
                self._loaded.exception(_FORK_PATIENCE_S)

    def _forget_after_fork(self) -> None:
        # Threads of the parent may have held the locks of both. A finished import is finished here
        # too, so beginning again is quick.
        self._lock, self._loaded = threading.Lock(), None
