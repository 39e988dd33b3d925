"""Counts what a process holds: threads, files, work on the runtime's loop, agentnb's objects.

For tests and benchmarks that check for leaks. Call `settled` first: a run that has ended may still
have callbacks on the loop, and garbage that a collection frees is not a leak.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from agentnb.runtime import Runtime
from tests.core.clock import everyone_waits
from tests.support import DEADLINE_S

_OPEN_FILES = Path("/proc/self/fd")


@dataclass(frozen=True)
class Census:
    """The counts at one moment."""

    threads: int
    """Without those of a loop's own pool, which makes a few at most, as needed."""
    files: int | None
    """Open file descriptors; `None` if the system does not list them."""
    tasks: int
    """Open tasks on the runtime's loop."""
    timers: int
    """Timers on the runtime's loop, without cancelled ones."""
    objects: dict[str, int] = field(default_factory=dict)
    """Live instances of the package's classes that the garbage collector tracks, by class."""


def census(runtime: Runtime) -> Census:
    """Count now."""
    tasks, timers = runtime.submit(_on_loop()).result(DEADLINE_S)
    files = len(os.listdir(_OPEN_FILES)) if _OPEN_FILES.exists() else None  # noqa: PTH208
    threads = [t for t in threading.enumerate() if not t.name.startswith("asyncio_")]
    return Census(len(threads), files, tasks, timers, live_objects())


async def _on_loop() -> tuple[int, int]:
    loop = asyncio.get_running_loop()
    # Private, but the only way to find a timer that was not cancelled.
    timers = [handle for handle in loop._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
    return len(asyncio.all_tasks()) - 1, len(timers)


def live_objects() -> dict[str, int]:
    """Instances of the package's classes, by class."""
    # Some types of other libraries have a `__module__` that is not a string.
    kinds = (type(thing) for thing in gc.get_objects())
    return dict(Counter(k.__qualname__ for k in kinds if str(k.__module__).startswith("agentnb.")))


def settled(runtime: Runtime) -> None:
    """Wait until ended work has left the loop, and collect garbage."""
    for thread in threading.enumerate():
        if thread.name.startswith(("agentnb-worker", "test-")):
            thread.join(DEADLINE_S)
    for _ in range(2):  # a collection may close streams, which is work for the loop
        runtime.submit(everyone_waits()).result(DEADLINE_S)
        gc.collect()
