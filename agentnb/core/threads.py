"""Blocking work on a daemon thread that nobody has to wait for.

`asyncio.to_thread` uses a pool that the interpreter joins at exit, so one blocked call would
hold up the closing of a kernel.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_daemon_thread(function: Callable[[], T], *, name: str = "agentnb-worker") -> T:
    """Await `function()` on a thread of its own. Cancelled, the thread goes on and is ignored."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # None is a T when T allows it

    def work() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = context.run(function)
        except BaseException as caught:  # handed over to the awaiting task, whatever it is
            error = as_loops_take_it(caught)
        try:
            loop.call_soon_threadsafe(deliver, result, error)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    threading.Thread(target=work, name=name, daemon=True).start()
    return await future


def as_loops_take_it(error: BaseException) -> Exception:
    """An error of another thread as a loop can be given it: as it is, or in words."""
    # In a task `SystemExit` ends the loop and `CancelledError` passes for a cancel of the task;
    # a future that is given `StopIteration` stays without an end.
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError(f"{type(error).__name__} was raised on a worker thread: {error}")
    wrapped.__cause__ = error
    return wrapped
