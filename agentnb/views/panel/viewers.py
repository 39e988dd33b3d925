"""Tracks the views that pages really show. A run asks the budget question only if there is one.

A closed page sends no message. So a view counts as open while it reports from time to time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

GONE_AFTER_S = 100.0
"""A page reports every ten seconds, and once a minute in a background tab."""


class Viewers:
    """The open views of all panels of one run. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard_at_s: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def seen(self, model: str, view: str) -> None:
        """A front end shows a view of a widget."""
        with self._lock:
            self._heard_at_s[model, view] = self._clock()

    def gone(self, model: str, view: str | None = None) -> None:
        """A view was closed; without `view`, all views of that widget."""
        with self._lock:
            for key in list(self._heard_at_s):
                if key[0] == model and view in (None, key[1]):
                    del self._heard_at_s[key]

    def any(self) -> bool:
        """Whether a view is open."""
        since_s = self._clock() - GONE_AFTER_S
        with self._lock:
            return any(heard_at_s > since_s for heard_at_s in self._heard_at_s.values())
