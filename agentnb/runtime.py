"""The background thread whose event loop executes all runs.

A busy or blocked cell never stalls an agent, and the kernel's loop stays unpatched: callers wait
on their own loop or thread. The thread starts when first needed and ends at exit. A forked process
starts its own, since threads do not survive a fork.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, TypeVar, cast

from agentnb.core.errors import MissingExtra
from agentnb.core.threads import run_in_thread

T = TypeVar("T")

_EXIT_PATIENCE_S = 2.0

GONE = (
    "This run's event loop no longer exists: its process has ended, or this process was forked "
    "from it."
)


class _WorkFuture(concurrent.futures.Future[T]):
    """The result of a coroutine on a loop, for other threads.

    Unlike the future of `asyncio.run_coroutine_threadsafe`, it may get its error before the
    coroutine ends: that is then ignored, where asyncio would log it with a traceback.
    """

    def __init__(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._work = work
        self._loop = loop
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        """Start the coroutine, on the loop."""
        if self.cancelled():
            self._work.close()
            self.set_running_or_notify_cancel()  # wakes `concurrent.futures.wait`
            return
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[T]) -> None:
        self._task = None  # a kept result must not keep its task in memory
        with suppress(concurrent.futures.InvalidStateError):
            if task.cancelled():
                super().cancel()
            elif (error := task.exception()) is not None:
                self.set_exception(error)
            else:
                self.set_result(task.result())
        if self.cancelled():
            self.set_running_or_notify_cancel()

    def cancel(self) -> bool:
        """Cancel the coroutine, too."""
        is_cancelled = super().cancel()
        if is_cancelled:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._cancel_task)
        return is_cancelled

    def _cancel_task(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _start(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> _WorkFuture[T]:
    """Start a coroutine on a loop, from any thread."""
    future = _WorkFuture(work, loop)
    loop.call_soon_threadsafe(future.begin)
    return future


class Runtime:
    """A daemon thread that runs one event loop."""

    def __init__(self) -> None:
        self.loop = _new_loop()
        self._closers: list[Callable[[], Awaitable[object]]] = []
        self._is_closing = self._may_end = False
        self._closing = threading.Lock()
        self._unanswered: set[concurrent.futures.Future[Any]] = set()
        self._thread = threading.Thread(target=self._main, name="agentnb-runtime", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            while not self._may_end:
                # A `SystemExit` in a callback ends `run_forever`; it must not end every run.
                with suppress(SystemExit, KeyboardInterrupt):
                    self.loop.run_forever()
        finally:
            with self._closing:
                self._is_closing = True
            self._fail_unanswered()
            self.loop.close()

    def _fail_unanswered(self) -> None:
        """Fail the futures whose work will not finish, so that no caller waits for ever."""
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
        # A forked process takes no lock: it may have been held at the fork, and stays held then.
        with self._closing if self.is_alive else nullcontext():
            if not self.is_alive:
                work.close()
                raise RuntimeError(GONE)
            future = _start(work, self.loop)
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
        """Run a short function on the loop, from any thread, without waiting for it.

        Raises:
            RuntimeError: The loop is gone.
        """

        async def run() -> None:
            function()

        self.submit(run())

    def at_close(self, closer: Callable[[], Awaitable[object]]) -> None:
        """Await `closer` on the loop before it ends; once, even if registered several times."""
        if closer not in self._closers:
            self._closers.append(closer)

    def close(self, before: Callable[[], object] = lambda: None) -> None:
        """Cancel all tasks, await the closers, and end the thread.

        Args:
            before: Called on the loop just before each cancel: no task takes a step in between.
        """
        if not self.is_alive or self.is_current_thread:
            return
        with self._closing:
            # No work is accepted from here on; what was submitted is on the loop before this.
            if self._is_closing:
                return
            self._is_closing = True
            ending = _start(self._wind_down(before), self.loop)
        try:
            has_ended = ending.result(_EXIT_PATIENCE_S)
        except (concurrent.futures.TimeoutError, concurrent.futures.CancelledError):
            has_ended = False
        if not has_ended:
            # Do not stop the loop: it would report each task that does not end, at length. The
            # thread is a daemon and ends with the process, which must not be held up.
            self._fail_unanswered()
            return
        self._may_end = True
        with suppress(RuntimeError):  # the loop may have ended by itself
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_EXIT_PATIENCE_S)

    async def _wind_down(self, before: Callable[[], object]) -> bool:
        """Cancel all tasks and await the closers; false if a task does not end."""
        patience_s = _EXIT_PATIENCE_S / 2
        until = self.loop.time() + patience_s
        # In rounds, since a task may start others until it has ended.
        while (others := _other_tasks()) and self.loop.time() < until:
            # Let each begin first. Cancelled before that, a task of anyio's never awaits the
            # coroutine it wraps, and Python warns of that at the kernel's end.
            await asyncio.sleep(0)
            before()
            for task in others:
                task.cancel()
            await asyncio.wait(others, timeout=patience_s)  # `before` may have taken long
        for closer in self._closers:
            with suppress(Exception):  # an error must not keep the others open
                await closer()
        if not others:
            await self.loop.shutdown_asyncgens()
        return not others


def _other_tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {cast("asyncio.Task[Any]", asyncio.current_task())}


def _new_loop() -> asyncio.AbstractEventLoop:
    """A loop that looks up names on daemon threads.

    The interpreter joins asyncio's own threads at exit: without a network, one look-up would keep
    the process from ending.
    """
    loop = asyncio.new_event_loop()

    def getaddrinfo(
        host: Any, port: Any, *, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> Coroutine[Any, Any, Any]:
        return run_in_thread(lambda: socket.getaddrinfo(host, port, family, type, proto, flags))

    def getnameinfo(sockaddr: Any, flags: int = 0) -> Coroutine[Any, Any, tuple[str, str]]:
        return run_in_thread(lambda: socket.getnameinfo(sockaddr, flags))

    # Not a subclass: the person may have set a policy that makes loops of another class.
    vars(loop).update(getaddrinfo=getaddrinfo, getnameinfo=getnameinfo)
    return loop


def allow_nested_loops() -> None:
    """Let `asyncio.run` work inside a running loop, in the whole process.

    For pasted code with `asyncio.run(...)`; agentnb itself does not need it. Applies
    `nest-asyncio2`, which patches asyncio for every loop: all tasks then take about 1.5 times as
    long, until the process ends. A second call changes nothing.

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
_before_cancel: list[Callable[[], object]] = []
_last: list[Callable[[], object]] = []


def get_runtime() -> Runtime:
    """The runtime of this process, started when there is none."""
    global _runtime
    with _lock:
        if _runtime is None:
            _runtime = Runtime()
        return _runtime


def before_exit(function: Callable[[], object]) -> None:
    """Call `function` when the process ends, just before all runs are cancelled.

    No run takes a step in between, unless the loop is blocked. It may be called more than once.
    """
    if function not in _before_cancel:
        _before_cancel.append(function)


def at_exit(function: Callable[[], object]) -> None:
    """Call `function` when the process ends and the loop has, or is given up; once."""
    if function not in _last:
        _last.append(function)


def _close_at_exit() -> None:
    before = partial(_call_all, _before_cancel)
    closing = [] if _runtime is None else [partial(_runtime.close, before)]
    # The first ones again: without a loop, or if it is blocked, they were not called.
    _call_all([*closing, *_before_cancel, *_last])


def _call_all(functions: Iterable[Callable[[], object]]) -> None:
    for function in functions:
        # Neither an error nor a Ctrl-C, which ends a wait, keeps the others from being called.
        with suppress(Exception, KeyboardInterrupt):
            function()


def _forget_after_fork() -> None:
    global _runtime, _lock
    _runtime = None
    _lock = threading.Lock()


atexit.register(_close_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
