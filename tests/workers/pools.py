"""A pool on a loop of its own thread, as a run has it, for tests that call it from outside."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from agentnb.runtime import Runtime
from agentnb.workers.inside.descendants import marked
from agentnb.workers.pool import Workers
from agentnb.workers.ran import Ran
from agentnb.workers.returned import Returned
from agentnb.workers.worker import Limits

T = TypeVar("T")

LONG_S = 60.0
"""Only against a hang."""


class Pool:
    def __init__(
        self,
        given: Mapping[str, object] | None = None,
        *,
        runtime: Runtime | None = None,
        **options: Any,
    ) -> None:
        self.runtime = runtime or Runtime()
        self.workers: Workers = self.runtime.call(lambda: Workers(given, **options))
        self.reports: list[str] = []
        self.waits: list[str] = []

    @property
    def mark(self) -> str:
        return self.workers.mark

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runtime.submit(work).result(LONG_S)

    def run(self, code: str, agent: str = "a") -> Ran:
        return self.wait(self.running(code, agent))

    def running(self, code: str, agent: str = "a") -> Coroutine[Any, Any, Ran]:
        return self.workers.run(agent, code, report=self.reports.append, on_wait=self.waits.append)

    def limit(self, limits: Limits) -> None:
        """Limit the workers that live. Those that start later have the pool's first limits."""
        self.workers.limits = limits  # for the words that an agent is told
        for seat in self.workers._seats.values():
            if seat.worker is not None:
                seat.worker._limits = limits

    def end(self, agent: str = "a") -> Returned:
        return self.wait(self.workers.end(agent))

    def close(self) -> None:
        self.wait(self.workers.close())
        self.runtime.close()


def quick(**limits: Any) -> Limits:
    return Limits(**{"memory": 400_000_000, "time_s": LONG_S, **limits})


def in_the_end(is_so: Callable[[], object]) -> bool:
    """Whether something comes to be so. The time is only against a hang."""
    until = time.monotonic() + LONG_S
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def resident(pid: int | str = "self") -> int:
    """Bytes of a process that are in memory."""
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    return int(pages[1]) * 4096


__all__ = ["LONG_S", "Pool", "in_the_end", "marked", "quick", "resident"]
