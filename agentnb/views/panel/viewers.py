"""Who looks: front ends that really show a run. A budget's question is asked only then."""

from __future__ import annotations

import threading


class Viewers:
    """The views on screens, of all panels of one run. Thread-safe."""

    def __init__(self) -> None:
        self._views: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def came(self, model: str, view: str) -> None:
        """A front end shows a view of a widget."""
        with self._lock:
            self._views.add((model, view))

    def went(self, model: str, view: str | None = None) -> None:
        """A view was taken away; without its name, all of that widget."""
        with self._lock:
            self._views = {
                (m, v) for m, v in self._views if m != model or (view is not None and v != view)
            }

    def any(self) -> bool:
        """Whether somebody is there to answer."""
        return bool(self._views)
