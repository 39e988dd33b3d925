"""Daemon threads for the bodies of synchronous tools: kept for a moment, and waited for by nobody.

To start a thread takes longer than most tools, so one that has nothing to do waits a second for
more. `concurrent.futures` would do the same, but the interpreter joins its threads at exit, and
one tool that blocks would hold up the closing of a kernel.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from agentnb.core.threads import as_loops_take_it

T = TypeVar("T")

_IDLE_S = 1.0


class Job(Generic[T]):
    """A function at work on a thread, as the loop that waits for it sees it.

    All but `function` happens on the loop, so whoever waits and whoever gave up never race.
    """

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] | None = None
        self._value: T
        self._error: BaseException | None = None
        self.has_ended = False
        self.when_over: Callable[[], None] | None = None
        """Called when the thread is done with it."""

    def start(self) -> None:
        """Have a thread run it."""
        _start(self._run)

    def _run(self) -> None:
        try:
            self._value = self._function()
        except BaseException as error:  # told on the loop, whatever it is
            self._error = as_loops_take_it(error)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._told)

    def _told(self) -> None:
        self.has_ended = True
        self.wake()
        if self.when_over is not None:
            self.when_over()

    def wake(self) -> None:
        """End the wait, whether the thread is done or not."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def wait(self) -> None:
        """Return when the thread is done, or `wake` was called. May be cancelled and begun anew."""
        if not self.has_ended:
            self._waiting = self._loop.create_future()
            await self._waiting

    def result(self) -> T:
        """What the function returned or raised."""
        error, self._error = self._error, None
        if error is None:
            return self._value
        try:
            raise error
        finally:
            del error  # its traceback holds this frame


class _Worker:
    """One thread, which takes one piece of work after the other."""

    def __init__(self) -> None:
        self.orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._main, name="agentnb-tool", daemon=True).start()

    def _main(self) -> None:
        while True:
            try:
                work = self.orders.get(timeout=_IDLE_S)
            except queue.Empty:
                with _lock:
                    if self in _idle:
                        _idle.remove(self)
                        return
                continue  # it was given work just now
            work()
            del work  # while it waits it holds nothing of the run
            with _lock:
                _idle.append(self)


_idle: list[Any] = []
_lock = threading.Lock()


def _start(work: Callable[[], None]) -> None:
    with _lock:
        worker = _idle.pop() if _idle else None
    (worker or _Worker()).orders.put(work)


def _forget_after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
