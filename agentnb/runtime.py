"""The one background thread with the one event loop on which all runs live.

A busy or blocked cell never stalls an agent, and nothing of the kernel's own loop is patched:
whoever waits for a run, waits on a loop or a thread of their own. Made when first needed, gone
at exit, and made anew in a forked process, where the parent's thread does not exist.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext, suppress
from typing import Any, TypeVar

from agentnb.core.errors import MissingExtra

T = TypeVar("T")

_EXIT_PATIENCE_S = 2.0

GONE = "The loop of this run is gone: it ended with its process, or lives in the one that forked."


class Runtime:
    """A daemon thread that runs one event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._closers: list[Callable[[], Awaitable[object]]] = []
        self._is_closing = False
        self._closing = threading.Lock()
        self._unanswered: set[concurrent.futures.Future[Any]] = set()
        self._thread = threading.Thread(target=self._main, name="agentnb-runtime", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            while not self._is_closing:
                # A `SystemExit` in some callback ends `run_forever`; it must not end every run.
                with suppress(SystemExit, KeyboardInterrupt):
                    self.loop.run_forever()
        finally:
            with self._closing:
                self._is_closing = True
            self._tell_the_waiting()
            self.loop.close()

    def _tell_the_waiting(self) -> None:
        """Let nobody wait for what will not come any more."""
        for future in self._unanswered.copy():
            with suppress(concurrent.futures.InvalidStateError):
                future.set_exception(RuntimeError(GONE))

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs on the runtime's own thread."""
        return threading.current_thread() is self._thread

    @property
    def is_alive(self) -> bool:
        """Whether anything can run here: not after `close`, and not in a forked process."""
        return self._thread.is_alive() and not self._is_closing

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start `work` on the loop, from any thread.

        Raises:
            RuntimeError: The loop is gone.
        """
        # In a forked process nobody can let go of a lock that was held: no lock there.
        with self._closing if self.is_alive else nullcontext():
            if not self.is_alive:
                work.close()
                raise RuntimeError(GONE)
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
            self._unanswered.add(future)
        future.add_done_callback(self._unanswered.discard)
        return future

    def call(self, function: Callable[[], T]) -> T:
        """Run a short function on the loop and wait for its result, from any thread."""
        if self.is_current_thread:
            return function()

        async def run() -> T:
            return function()

        return self.submit(run()).result()

    def call_soon(self, function: Callable[[], object]) -> None:
        """Have a short function run on the loop, from any thread, and wait for nothing.

        Raises:
            RuntimeError: The loop is gone.
        """

        async def run() -> None:
            function()

        self.submit(run())

    def at_close(self, closer: Callable[[], Awaitable[object]]) -> None:
        """Have `closer` awaited on the loop before it ends; once, however often it is given."""
        if closer not in self._closers:
            self._closers.append(closer)

    def close(self) -> None:
        """End everything that runs, close what was left open, and end the thread."""
        if not self.is_alive or self.is_current_thread:
            return
        with self._closing:
            # Nothing is taken in any more: what came before stands on the loop before this.
            if self._is_closing:
                return
            self._is_closing = True
            ending = asyncio.run_coroutine_threadsafe(self._wind_down(), self.loop)
        try:
            has_ended = ending.result(_EXIT_PATIENCE_S)
        except (concurrent.futures.TimeoutError, concurrent.futures.CancelledError):
            has_ended = False
        if not has_ended:
            # Stopped under a task that does not end, a loop would complain of it at length. The
            # thread is a daemon: it goes with the process, which must not be held up.
            self._tell_the_waiting()
            return
        with suppress(RuntimeError):  # the loop may have ended by itself
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_EXIT_PATIENCE_S)

    async def _wind_down(self) -> bool:
        """End and close everything; false when something of it does not end."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        stuck: set[asyncio.Task[Any]] = set()
        if others:
            _, stuck = await asyncio.wait(others, timeout=_EXIT_PATIENCE_S / 2)
        for closer in self._closers:
            with suppress(Exception):  # the others are to be closed, too
                await closer()
        if not stuck:
            await self.loop.shutdown_asyncgens()
        return not stuck


def allow_nested_loops() -> None:
    """Let `asyncio.run` work inside a running loop, in this whole process.

    For people who paste `asyncio.run(...)` into a cell; agentnb itself needs none of it. Applies
    `nest-asyncio2`, which patches asyncio for every loop: tasks then take about half as long
    again, everywhere, until the process ends. Applying it again changes nothing.

    Raises:
        MissingExtra: `nest-asyncio2` is not installed.
    """
    try:
        import nest_asyncio2
    except ImportError as error:
        raise MissingExtra("nest-asyncio2", extra="nest") from error
    nest_asyncio2.apply()


_runtime: Runtime | None = None
_lock = threading.Lock()


def get_runtime() -> Runtime:
    """The runtime of this process, started when there is none."""
    global _runtime
    with _lock:
        if _runtime is None:
            _runtime = Runtime()
        return _runtime


def _close_at_exit() -> None:
    if _runtime is not None:
        _runtime.close()


def _forget_after_fork() -> None:
    global _runtime, _lock
    _runtime = None
    _lock = threading.Lock()


atexit.register(_close_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
