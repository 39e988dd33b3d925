"""When what a saved page has of a run is sent again, and how much it has."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from agentnb.core.types import AgentStatus
from agentnb.views.panel.wire import Summary

SAVE_EVERY_S = 30.0
"""How often it is renewed while a run is running; at its beginning after 5, 10, 20 and 40 s."""
_FIRST_S = 5.0
"""How often at most, but for what is renewed at once."""
MOST_SAVED = 1_000
"""Most agents, or rows of a map or a board, that a saved page has."""


class Renewal:
    """Tells when a run has changed enough: a page may be saved any time.

    At once when it has its first agent, and when it has ended or is held; soon when there are more
    or fewer questions to a person; otherwise from time to time.
    """

    def __init__(self) -> None:
        self._sent: tuple[AgentStatus | None, bool, bool] | None = None
        self._asked = 0
        self._begun_s = time.monotonic()
        self.is_newest = False
        """Whether what was sent is as of the newest summary."""
        self._at_s = 0.0
        """When it was sent last, by the clock of `time.monotonic`."""

    def is_due(self, summary: Summary) -> bool:
        """Whether to send it with this summary; counts as sent then."""
        state = (summary.status if summary.done else None, summary.is_paused, summary.agents > 0)
        now_s, asked = time.monotonic(), summary.questions
        age_s = 0.0 if asked != self._asked else self._at_s - self._begun_s
        every_s = min(SAVE_EVERY_S, max(_FIRST_S, age_s))
        self.is_newest = state != self._sent or (not summary.done and now_s >= self._at_s + every_s)
        if self.is_newest:
            self._sent, self._at_s, self._asked = state, now_s, asked
        return self.is_newest


def left_out(what: str, statuses: Iterable[str]) -> str:
    """What a saved page does not hold: `200 more agents: 190 completed, 10 failed`."""
    counts = [f"{count:,} {status}" for status, count in Counter(statuses).most_common()]
    return f"{what}: {', '.join(counts)}"
