"""The line on stderr with a map's progress, for scripts."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

from agentnb.core.bus import EventBus
from agentnb.views.panel.map_fold import MapProgress, MapWatch, pace_words

_EVERY_S = 0.1
"""Seconds between two updates at least."""
_TICK_S = 1.0
"""Seconds between two updates at most, and between checks whether the run still exists."""
_PATIENCE_S = 2.0
"""Most seconds to wait for the last update, which a blocked terminal may delay."""

_log = logging.getLogger("agentnb")


class ProgressLine:
    """Draws a map's progress with `tqdm` from its own thread, until the map ends.

    An error in drawing never fails the map: it is logged, and the line ends.

    Args:
        bus: The events of the map's run.
        watch: The map's progress.
        cost: Returns the cost so far in words; empty if unknown.
        always: Draw it even if stderr is not a terminal.
    """

    def __init__(
        self, bus: EventBus, watch: MapWatch, *, cost: Callable[[], str], always: bool
    ) -> None:
        self._bus, self._watch, self._cost = bus, watch, cost
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None
        if not (always or _is_terminal(sys.stderr)):
            return
        self._thread = threading.Thread(target=self._go, name="agentnb-progress", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Draw the final state, and end the thread. To be called when the run has ended."""
        if self._thread is None:
            return
        self._is_over.set()
        self._bus.notify()
        self._thread.join(_PATIENCE_S)

    def _go(self) -> None:
        try:
            with _bar(self._watch.progress().rows) as bar:
                while not (self._bus.closed or self._is_over.is_set()):
                    self._draw(bar)
                    changes = self._bus.changes
                    self._is_over.wait(_EVERY_S)
                    self._bus.wait_for_change(changes, timeout_s=_TICK_S)
                self._draw(bar)
        except Exception:
            _log.exception("The progress line of a map failed; the map goes on without it.")

    def _draw(self, bar: Any) -> None:
        progress = self._watch.progress()
        words = [*pace_words(progress), *_counts(progress)]
        if cost := self._cost():
            words.append(cost)
        bar.n = progress.ended
        bar.set_postfix_str(", ".join(words), refresh=False)
        bar.refresh()


def _counts(progress: MapProgress) -> list[str]:
    counts = [
        (progress.failed, "failed"),
        (progress.stopped, "stopped"),
        (progress.reused, "reused"),
    ]
    return [f"{count:,} {word}" for count, word in counts if count]


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except Exception:  # `None` without a console, closed, or a foreign object
        return False


def _bar(rows: int) -> Any:
    from tqdm import tqdm  # loaded only where the line is drawn

    class Bar(tqdm):  # type: ignore[misc]  # it has no types
        monitor_interval = 0
        """0 starts no monitor thread, which would outlive the bar."""

    Bar.set_lock(threading.RLock())  # tqdm's own is shared between processes, and leaves files
    return Bar(
        total=rows,
        file=sys.stderr,
        desc="Rows",
        unit="row",
        dynamic_ncols=True,
        # Without tqdm's rate, which would count reused rows.
        bar_format="{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}{postfix}",
    )
