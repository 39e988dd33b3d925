"""Detects cycles in a run: the same task, asked for again and again.

Two tasks are the same if they differ only in case and white space. One detector counts all
sightings in a run, so it finds a cycle through several agents like one of a single agent.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Collection, Iterable

from agentnb.core.text import literal, one_line


class CycleDetector:
    """Counts the tasks of one run. Safe to call from any thread.

    Args:
        threshold: How many times a task may come up in a run, at least 1. The next sighting
            is a cycle.

    Raises:
        ValueError: `threshold` is less than 1.
    """

    def __init__(self, threshold: int = 3) -> None:
        if threshold < 1:
            raise ValueError(
                f"The threshold is {literal(threshold)}, and then no task could ever start. "
                "Give it at least 1."
            )
        self.threshold = threshold
        self._sightings: Counter[str] = Counter()
        self._lock = threading.Lock()

    def check_and_register(
        self, task: str, depth: int, ancestors: Iterable[str] = (), above: Collection[str] = ()
    ) -> str | None:
        """Count a task that is about to start, and check whether it is a cycle.

        A refused sighting counts, too, so a cycle stays one.

        Args:
            task: The task.
            depth: The depth at which it would run.
            ancestors: The tasks of the agents above it, the asking one included.
            above: The marks of the tasks of other runs that led to this one.

        Returns:
            A description, as part of a sentence, with the normalised task, the number of its
            sightings and the threshold; `None` if the task may start.
        """
        known_as = signature(task)
        with self._lock:
            self._sightings[known_as] += 1
            count = self._sightings[known_as]
        shown = f'the task "{one_line(known_as)}" at depth {depth}'
        seen = f"came up {count} {'time' if count == 1 else 'times'} in this run"
        if is_among(task, ancestors, above):
            return (
                f"{shown} is the task of an agent above it "
                f"(it {seen}; the threshold is {self.threshold})"
            )
        if count > self.threshold:
            return f"{shown} {seen}, more often than the threshold of {self.threshold} allows"
        return None

    def give_back(self, task: str) -> None:
        """Take back the count of a task that was admitted but does not start."""
        known_as = signature(task)
        with self._lock:
            self._sightings[known_as] = max(0, self._sightings[known_as] - 1)


def is_among(task: str, ancestors: Iterable[str], above: Collection[str] = ()) -> bool:
    """Whether a task is among `ancestors`, tasks of its run, or `above`, marks of other runs'."""
    known_as = signature(task)
    if any(signature(ancestor) == known_as for ancestor in ancestors):
        return True
    return bool(above) and mark(task) in above  # most runs have none: then no digest is made


def mark(task: str) -> str:
    """A digest by which a run recognises a task of another run: 32 hexadecimal characters."""
    return hashlib.sha256(signature(task).encode("utf-8", "replace")).hexdigest()[:32]


def signature(task: str) -> str:
    """The task for comparison: lower case, white space folded."""
    return " ".join(task.lower().split())
