"""The numbers of agents' children: one counter per agent, which continues from run to run."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from agentnb.core.text import literal


class ChildNumbers:
    """The next number of each agent's child. Thread-safe.

    Numbers begin at 1, also for an unknown agent. A run on a thread that had earlier runs continues
    where they stopped: `start` says where. `pass_over` skips numbers that are taken elsewhere.
    """

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self._given: dict[str, frozenset[int]] = {}
        self._lock = threading.Lock()

    def take(self, agent_id: str, count: int = 1) -> tuple[int, ...]:
        """The next `count` numbers of an agent, each given only once."""
        with self._lock:
            given = self._given.get(agent_id, frozenset())
            numbers: list[int] = []
            number = self._next.get(agent_id, 1)
            while len(numbers) < count:
                if number not in given:
                    numbers.append(number)
                number += 1
            if numbers:
                self._next[agent_id] = number
        return tuple(numbers)

    def next(self, agent_id: str) -> int:
        """The number that `take` would return next, unless `pass_over` excludes it."""
        with self._lock:
            return self._next.get(agent_id, 1)

    def start(self, agent_id: str, first: int) -> None:
        """Start an agent's numbers at `first`. Call it before the run begins.

        Raises:
            ValueError: `first` is below 1, or that number was taken already.
        """
        if isinstance(first, bool) or not isinstance(first, int) or first < 1:
            raise ValueError(f"`first` must be a whole number, at least 1, not {literal(first)}.")
        with self._lock:
            upcoming = self._next.get(agent_id, 1)
            if first < upcoming:
                raise ValueError(f"The number {first} was given already: the next is {upcoming}.")
            self._next[agent_id] = first

    def pass_over(self, agent_id: str, numbers: Iterable[int]) -> None:
        """Never return these numbers: other children have them. Call it before the run begins."""
        with self._lock:
            self._given[agent_id] = self._given.get(agent_id, frozenset()).union(numbers)

    def all(self) -> dict[str, int]:
        """The next number by agent id, for each agent with a call of `take` or `start`."""
        with self._lock:
            return dict(self._next)
