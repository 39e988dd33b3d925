"""Who looks: front ends that really show a run. A budget's question is asked only then.

A page that is closed takes no leave. So a view counts as long as it says, from time to time, that
it is there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

GONE_AFTER_S = 100.0
"""A page says it every ten seconds, and once a minute where its tab is in the background."""


class Viewers:
    """The views on screens, of all panels of one run. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard_at_s: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def seen(self, model: str, view: str) -> None:
        """A front end shows a view of a widget."""
        with self._lock:
            self._heard_at_s[model, view] = self._clock()

    def gone(self, model: str, view: str | None = None) -> None:
        """A view was taken away; without its name, all of that widget."""
        with self._lock:
            for key in list(self._heard_at_s):
                if key[0] == model and view in (None, key[1]):
                    del self._heard_at_s[key]

    def any(self) -> bool:
        """Whether somebody is there to answer."""
        since_s = self._clock() - GONE_AFTER_S
        with self._lock:
            return any(heard_at_s > since_s for heard_at_s in self._heard_at_s.values())
