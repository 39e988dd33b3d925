"""Work that only the main thread can do, asked for from other threads: one call at a time.

The main thread takes a call where it waits for the run that asks, or between two cells of a kernel;
never in the middle of other code. A call can be stopped, and a stop is raised in that call's own
code or nowhere: the signal handler looks whether the code is on the stack, so a stop that comes too
late, or an interrupt amid our own steps, breaks nothing.
"""

from __future__ import annotations

import _thread
import asyncio
import os
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

STOP_PAUSE_S = 0.5
"""Least seconds between two stops of one call: code that heard one may clean up."""
_DRAIN_S = 1.0
"""Longest wait for the signal of a stop that was sent as the code ended."""


class Guarded(Protocol):
    """`guarded(code)` calls `code`. Only in there a stop or an interrupt is raised."""

    def __call__(self, code: Callable[[], T], /) -> T:
        """Call it and return what it returns."""
        ...


class MainCall:
    """One call for the main thread.

    Args:
        run_id: The run that asks.
        work: Called on the main thread with `guarded`, through which it calls what may be stopped.
    """

    def __init__(self, run_id: str, work: Callable[[Guarded], object]) -> None:
        self.run_id = run_id
        self.work = work
        self.ended = threading.Event()
        self.began_at: float | None = None
        """On the monotonic clock; `None` before it began."""
        self.was_interrupted = False
        """Whether the person interrupted it."""
        self.value: Any = None
        self.error: BaseException | None = None
        """What went wrong in `work` itself."""


class MainThread:
    """The main thread of this process. Any thread may ask it."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything: nothing of it goes on in a forked process."""
        self._lock = threading.Lock()
        self._queue: deque[MainCall] = deque()
        self._waits: list[tuple[str, Callable[[], object]]] = []
        self._waits_in_code: Counter[str] = Counter()
        """Runs that the code of a call waits for: they get no turn before it has ended."""
        self._running: _Running | None = None
        self._cells: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._turns: set[asyncio.Task[None]] = set()

    # -- any thread --------------------------------------------------------------------------------

    def serve_between_cells(self, loop: asyncio.AbstractEventLoop, of_cells: asyncio.Lock) -> None:
        """Take calls between cells, too.

        Args:
            loop: The kernel's, on the main thread.
            of_cells: Held by each cell while it runs.
        """
        self._cells = loop, of_cells

    def put(self, call: MainCall) -> None:
        """Ask for a call."""
        with self._lock:
            self._queue.append(call)
            wakes = [wake for run_id, wake in self._waits if run_id == call.run_id]
        for wake in wakes:
            wake()
        if not wakes:
            self._take_a_turn()

    def withdraw(self, call: MainCall) -> bool:
        """Take back a call. False if it has begun; then it can only be stopped."""
        with self._lock:
            if call in self._queue:
                self._queue.remove(call)
                call.ended.set()
            return call.began_at is None

    def stop(self, call: MainCall) -> None:
        """Raise `KeyboardInterrupt` in the code of a call, if that runs just now."""
        with self._lock:
            if self._running is not None and self._running.call is call:
                self._running.send_stop()

    def may_serve(self, run_id: str) -> bool:
        """Whether the main thread will come to the calls of a run, as things are."""
        with self._lock:
            if any(waits == run_id for waits, _ in self._waits):
                return True
            has_cells = self._cells is not None and self._cells[0].is_running()
            return has_cells and not self._waits_in_code[run_id]

    def never_serves(self, run_id: str) -> bool:
        """Whether it is certain that the main thread does not come to the calls of a run.

        Either it has ended, and other threads go on, or the code of a call holds it until that very
        run has ended.
        """
        return not threading.main_thread().is_alive() or self._waits_in_code[run_id] > 0

    # -- the main thread ---------------------------------------------------------------------------

    @contextmanager
    def waits(self, run_id: str, wake: Callable[[], object]) -> Iterator[None]:
        """Note that the caller waits for a run, and calls `serve` when it is woken.

        On another thread, and in the code of a call, which holds the main thread, it serves nobody.
        """
        if not _is_main_thread():
            yield
        elif self._running is not None:
            self._waits_in_code[run_id] += 1
            try:
                yield
            finally:
                self._waits_in_code[run_id] -= 1
        else:
            wait = run_id, wake
            with self._lock:
                self._waits.append(wait)
            try:
                yield
            finally:
                with self._lock:
                    self._waits.remove(wait)
                    is_left = any(call.run_id == run_id for call in self._queue)
                if is_left:
                    self._take_a_turn()

    def serve(
        self, run_id: str | None = None, *, heard: Callable[[], bool] = lambda: False
    ) -> MainCall | None:
        """Make the next call of a run, and return it; on the main thread only.

        An interrupt of the call is the caller's, too, and goes to the handler of before.

        Args:
            run_id: The run; any if left out, and then an interrupt goes no further.
            heard: Called after an interrupt, before who asked for the call learns of its end.
                Returns whether the interrupt goes no further.

        Raises:
            KeyboardInterrupt: That handler raised it.
        """
        if not _is_main_thread() or self._running is not None or self._next(run_id) is None:
            return None
        running = _Running()
        before = signal.getsignal(signal.SIGINT)
        try:
            # From here on no interrupt is raised in this frame.
            signal.signal(signal.SIGINT, running.handle)
            self._run(running, run_id, heard)
        finally:
            # `None`: the handler was not set by Python, which cannot restore it.
            signal.signal(signal.SIGINT, signal.default_int_handler if before is None else before)
        if running.was_interrupted and run_id is not None:
            signal.raise_signal(signal.SIGINT)
        return running.call

    def _run(self, running: _Running, run_id: str | None, heard: Callable[[], bool]) -> None:
        with self._lock:
            call = self._next(run_id)
            if call is None:  # withdrawn just now
                return
            self._queue.remove(call)
            call.began_at = time.monotonic()
            running.call, self._running = call, running
        try:
            call.value = call.work(running.guarded)
        except BaseException as error:
            call.error = error
        with self._lock:
            self._running = None  # no stop is sent any more
        running.drain()
        call.was_interrupted = running.was_interrupted
        if running.was_interrupted and heard():
            running.was_interrupted = False
        call.ended.set()
        if self._queue:  # a turn that came meanwhile took none
            self._take_a_turn()

    def _next(self, run_id: str | None) -> MainCall | None:
        found = (call for call in self._queue.copy() if run_id in (None, call.run_id))
        return next(found, None)

    # -- between cells -----------------------------------------------------------------------------

    def _take_a_turn(self) -> None:
        if self._cells is None:
            return
        with suppress(RuntimeError):  # the kernel has ended
            self._cells[0].call_soon_threadsafe(self._begin_turn, *self._cells)

    def _begin_turn(self, loop: asyncio.AbstractEventLoop, of_cells: asyncio.Lock) -> None:
        async def turn() -> None:
            async with of_cells:
                self.serve()

        task = loop.create_task(turn())
        self._turns.add(task)
        task.add_done_callback(self._turns.discard)


class _Running:
    """A call that runs, and the handler of SIGINT meanwhile."""

    def __init__(self) -> None:
        self.call: MainCall | None = None
        self.was_interrupted = False
        self._boundary: FrameType | None = None
        """The frame whose callees are the code."""
        self._is_sent = False
        """Whether a stop is on its way."""
        self._sent_at = -STOP_PAUSE_S

    def guarded(self, code: Callable[[], T]) -> T:
        """See `Guarded`."""
        self._boundary = sys._getframe()
        try:
            return code()
        finally:
            self._boundary = None

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Raise in the code, or nowhere."""
        if self._is_sent:
            self._is_sent = False
        else:
            self.was_interrupted = True
        if self._is_in_code(frame):
            raise KeyboardInterrupt

    def _is_in_code(self, frame: FrameType | None) -> bool:
        boundary, innermost = self._boundary, frame
        while boundary is not None and frame is not None:
            if frame is boundary:
                return frame is not innermost
            frame = frame.f_back
        return False

    def send_stop(self) -> None:
        """Send a stop, from any thread, under the lock under which the call ends."""
        if self._boundary is None or self._is_sent:
            return
        if time.monotonic() < self._sent_at + STOP_PAUSE_S:
            return
        self._is_sent, self._sent_at = True, time.monotonic()
        if hasattr(signal, "pthread_kill"):
            # To this very thread: a sleep wakes only if the signal is its own.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            _thread.interrupt_main()

    def drain(self) -> None:
        """Wait until the last stop was handled, so that it does not reach the next handler."""
        if signal.getsignal(signal.SIGINT) != self.handle:  # the code has set one of its own
            signal.signal(signal.SIGINT, self.handle)
        deadline = time.monotonic() + _DRAIN_S
        while self._is_sent and time.monotonic() < deadline:
            time.sleep(0.001)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


MAIN = MainThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=MAIN.begin_anew)
