"""Blocking functions on daemon threads, with the caller's context variables.

Starting a thread takes longer than most tools, so an idle thread waits a second for more work.
`asyncio.to_thread` and `concurrent.futures` do the same, but the interpreter joins their threads at
exit: one function that blocks would keep a kernel from closing.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")

_IDLE_S = 1.0


class BlockingCall(Protocol):
    """A call of a blocking function, which cannot be killed: wait for it, or abandon it."""

    @property
    def has_ended(self) -> bool: ...

    async def wait(self) -> None:
        """Wait until the function has ended. May be awaited again after a cancel."""
        ...

    def abandon(self, when_over: Callable[[], None] | None = None) -> None:
        """Drop the function's result or error, now or later.

        Args:
            when_over: Called on the loop when the function has ended, if it still runs.
        """
        ...


async def run_in_thread(function: Callable[[], T]) -> T:
    """Await `function()` on a daemon thread.

    If this is cancelled, the thread keeps running, and its result or error is dropped.
    """
    call = ThreadCall(function)
    call.start()
    try:
        await call.wait()
    except asyncio.CancelledError:
        call.abandon()
        raise
    return call.result()


class ThreadCall(Generic[T]):
    """A `BlockingCall` on a thread of this process, awaited on a loop.

    The thread stores the function's result; everything else happens on the loop.
    """

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] | None = None
        self._value: T
        self._error: BaseException | None = None
        self._has_returned = False
        self._is_abandoned = False
        self.has_ended = False
        self._when_over: Callable[[], None] | None = None

    def start(self) -> None:
        """Start the function on a thread."""
        _start(self._run)

    def _run(self) -> None:
        try:
            self._value = self._context.run(self._function)
        except BaseException as error:  # raised again on the loop
            self._error = as_loops_take_it(error)
        self._has_returned = True
        if self._is_abandoned:
            self._drop()
        try:
            self._loop.call_soon_threadsafe(self._finish)
        except RuntimeError:  # the loop is closed, so nothing awaits the result
            self._drop()

    def _finish(self) -> None:
        self.has_ended = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
        if self._when_over is not None:
            self._when_over()

    def abandon(self, when_over: Callable[[], None] | None = None) -> None:
        """See `BlockingCall`."""
        # The loop may close before it learns of the end, so the thread checks, too. Each side sets
        # its own flag before it reads the other's: at least one of them drops the result.
        self._when_over = when_over
        self._is_abandoned = True
        if self._has_returned:
            self._drop()

    def _drop(self) -> None:
        # The function may have returned a coroutine (a lambda around an `async def`). Close it, or
        # Python warns that it was never awaited, in unrelated code.
        if self._error is None and inspect.iscoroutine(self._value):
            self._value.close()

    async def wait(self) -> None:
        if not self.has_ended:
            self._waiting = self._loop.create_future()
            await self._waiting

    def result(self) -> T:
        """Return what the function returned, or raise what it raised."""
        error, self._error = self._error, None
        if error is None:
            return self._value
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame


def as_loops_take_it(error: BaseException) -> Exception:
    """An error of another thread that is safe to raise on a loop: itself, or a `RuntimeError`."""
    # In a task `SystemExit` ends the loop, and `CancelledError` looks like a cancel of the task; a
    # future never ends with `StopIteration`.
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError(f"{type(error).__name__} was raised on a worker thread: {error}")
    wrapped.__cause__ = error
    return wrapped


class _Worker:
    """One thread, which runs calls one after another."""

    def __init__(self) -> None:
        self.orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._main, name="agentnb-worker", daemon=True).start()

    def _main(self) -> None:
        while True:
            try:
                work = self.orders.get(timeout=_IDLE_S)
            except queue.Empty:
                with _lock:
                    if self in _idle:
                        _idle.remove(self)
                        return
                continue  # `_start` has just taken it from `_idle`, and is about to add work
            work()
            del work  # an idle thread must not keep the run in memory
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
