"""When what a saved page has of a run is sent again."""

from __future__ import annotations

import time

from agentnb.core.types import AgentStatus
from agentnb.views.panel.wire import Summary

SAVE_EVERY_S = 30.0
"""How often it is renewed while a run is running."""


class Renewal:
    """Tells when a run has changed enough: a page may be saved any time.

    At once when the run has ended or is held, otherwise from time to time.
    """

    def __init__(self) -> None:
        self._sent: tuple[AgentStatus, bool] | None = None
        self._at_s = 0.0
        """When it was sent last, by the clock of `time.monotonic`."""

    def is_due(self, summary: Summary) -> bool:
        """Whether to send it with this summary; counts as sent then."""
        state = (summary.status, summary.done or summary.is_paused)
        now_s = time.monotonic()
        if state == self._sent and (summary.done or now_s < self._at_s + SAVE_EVERY_S):
            return False
        self._sent, self._at_s = state, now_s
        return True
