"""One run's frames, made once for all its live views.

A view that is attached gets everything at once and then what changes, at most ten times a
second, until the run's last event: the last frame always comes. What only grows, as the tokens of
an agent that speaks, comes once a second: most of all events say no more than that. While nobody
is attached, and after the run's end, nothing runs here. Views are shown them one at a time, under
one lock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any, Protocol

from agentnb.core.bus import EventBus
from agentnb.core.secrets import known_secrets
from agentnb.core.text import visible
from agentnb.views.panel.commands import Commands
from agentnb.views.panel.fold import PanelFold
from agentnb.views.panel.viewers import Viewers
from agentnb.views.panel.wire import AgentRow, Frame, Summary, changed_fields

FRAME_S = 0.15
"""Between two frames at least: a person sees no difference to more of them, a run does."""
TICK_S = 1.0
"""How often what only grows is shown, the time and tokens: it is read, not watched. Silence is
noticed by that, too."""
_COST_EVERY_S = 2.0
"""A cost is added up anew at most so often: it looks at every call of the run."""

_MOST_SAID = 5

_log = logging.getLogger("agentnb")
# Without a handler of a person's own, Python would print the traceback into whatever cell runs.
_log.addHandler(logging.NullHandler())


class View(Protocol):
    """Something that shows frames. It is shown them by one thread at a time, never by two."""

    def show(self, frame: Frame) -> None:
        """Show what changed; everything, the first time."""
        ...

    @property
    def is_read(self) -> bool:
        """Whether somebody reads in it what an agent is just saying."""
        ...

    def read_on(self) -> None:
        """Show more of the texts that somebody reads: between two frames."""
        ...


class CostLine(Protocol):
    """What a run costs, in words (`str`), and by path."""

    @property
    def by_agent(self) -> Mapping[str, Any]:
        """Each agent's part, by path."""
        ...


class FramePublisher:
    """The frames of one run, for any number of views.

    Args:
        bus: Where the run tells what happens.
        pot: Asks the pot itself for tokens used and the total; left out for a run from a file.
        cost: What the run costs so far.
        viewers: Who really looks.
    """

    def __init__(
        self,
        bus: EventBus,
        *,
        pot: Callable[[], tuple[int, int]] | None = None,
        cost: Callable[[], CostLine] | None = None,
        viewers: Viewers | None = None,
    ) -> None:
        self.bus = bus
        self.commands: Commands | None = None
        """What a person can order; stays `None` for a run from a file."""
        self.viewers = viewers or Viewers()
        self.refused = 0
        """How many messages of pages made no sense."""
        self.lock = threading.RLock()
        """Held while a view is shown something. Whoever answers a front end takes it, too."""
        self.fold = PanelFold()
        self._pot = pot
        self._cost = cost
        self._cost_words = ""
        self._costs: CostLine | None = None
        self._cost_of = -1
        self._cost_at_s = float("-inf")
        self._position = 0
        self._changes_known = 0
        self._seq = 0
        self._sent: dict[str, AgentRow] = {}
        self._views: list[View] = []
        self._said: list[str] = []
        self._said_shown = self._said
        self._counted_s = float("-inf")
        """When the numbers that grow were shown last."""
        self._has_grown = False
        self._is_half_done = False
        self._thread: threading.Thread | None = None
        self._replay = _Replay(bus)

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        return self.bus.closed and self._position >= len(self.bus)

    # -- views ------------------------------------------------------------------------------------

    def attach(self, view: View) -> None:
        """Show a view everything so far, and from now on what changes."""
        with self.lock:
            self._tick()
            view.show(self.whole())
            self._views.append(view)
            if self._thread is None and not self.done:
                self._thread = threading.Thread(target=self._go, name="agentnb-panel", daemon=True)
                self._thread.start()

    def detach(self, view: View) -> None:
        """Show it nothing any more. One that is not attached is left alone."""
        with self.lock:
            self._views = [other for other in self._views if other is not view]

    def tell(self, line: str) -> None:
        """Tell a person something beside what the events say: an order that failed, say.

        While the run goes on it is shown with the next frame, a second from now at the latest: the
        run's own thread, on which orders fail, must not wait here for a view.
        """
        self._said = [*self._said, visible(line, 300)][-_MOST_SAID:]
        if self.done:
            with self.lock:
                self._show({})

    def refuse(self, reason: str) -> None:
        """Count a message of a page that was refused, and tell a person of the first."""
        with self.lock:
            self.refused += 1
            if self.refused == 1:
                self.tell(f"A message of a page was refused: {reason}. Others are only counted.")

    def whole(self) -> Frame:
        """Everything as it was in the newest frame. Under the lock."""
        return Frame(self._seq, self._sent, self._summary())

    def cost_of(self, path: str) -> str:
        """What an agent has cost so far, in words; empty while that is unknown. Under the lock."""
        cost = self._costs.by_agent.get(path) if self._costs is not None else None
        return "" if cost is None else str(cost)

    def at(self, at_s: float) -> PanelFold:
        """The same fold, as it was at a time of the run."""
        return self._replay.fold_at(at_s)

    # -- frames -----------------------------------------------------------------------------------

    def _go(self) -> None:
        while True:
            self._wait()
            with self.lock:
                if self._views:
                    self._tick_or_stop()
                if self.done or not self._views:
                    self._thread = None
                    return
            time.sleep(FRAME_S)

    def _wait(self) -> None:
        """Sleep until there is something to show; through text that nobody reads, for a while."""
        with self.lock:
            is_read = any(view.is_read for view in self._views)
        if is_read:
            self.bus.wait_past(self._position, timeout_s=TICK_S)
        else:
            self.bus.wait_for_change(self._changes_known, timeout_s=TICK_S)

    def _tick_or_stop(self) -> None:
        try:
            self._tick()
        except Exception:
            # Not into some cell, as a thread's end would print it, and not again and again.
            _log.exception("The live views of a run failed and are not kept up to date any more.")
            self._views = []

    def _tick(self) -> None:
        """Bring everything up to now, and show the views what changed."""
        if self._is_half_done:  # an interrupt came in between: what was missed is not known
            self.fold, self._position, self._sent = PanelFold(), 0, {}
        self._is_half_done = True
        self._bring_up_to_now()
        self._is_half_done = False

    def _bring_up_to_now(self) -> None:
        known_secrets()  # what is shown is masked by what is known
        self._changes_known = self.bus.changes
        rows = self.bus.rows_since(self._position)
        self._position += len(rows)
        self.fold.feed(rows)
        now_s = self.now_s
        if not self.fold.done:
            self.fold.notice_silence(now_s)
        self._has_grown |= bool(rows)
        is_to_count = self.fold.done or now_s >= self._counted_s + TICK_S
        if (
            self.fold.take_news()
            or (is_to_count and (self._has_grown or not self.done))
            or self._said is not self._said_shown
        ):
            if is_to_count:
                self._counted_s, self._has_grown = now_s, False
            self._show(self._changes(with_growth=is_to_count))
        elif rows:
            self._tell_views(lambda view: view.read_on())

    def _show(self, changes: Mapping[str, AgentRow]) -> None:
        self._seq += 1
        self._said_shown = self._said
        frame = Frame(self._seq, changes, self._summary())
        self._tell_views(lambda view: view.show(frame))

    def _tell_views(self, tell: Callable[[View], None]) -> None:
        for view in self._views.copy():
            try:
                tell(view)
            except Exception:
                # A broken view must not take the others with it, nor this thread.
                _log.exception("A live view failed and is not kept up to date any more.")
                self.detach(view)
                self._said = [
                    *self._said,
                    f"A view ({type(view).__name__}) failed and stands still.",
                ]

    def _changes(self, *, with_growth: bool) -> dict[str, AgentRow]:
        changes = self._tokens_that_grew() if with_growth else {}
        for agent_id in self.fold.take_touched():
            known = self._sent.get(path := self.fold.tree.agents[agent_id].path)
            if known is None:
                changes[path] = self.fold.row(agent_id)
                self._sent[path] = changes[path].copy()
                continue
            if changed := changed_fields(self.fold.changing_row(agent_id), known):
                known.update(changed)
                changes[path] = changed
        return changes

    def _tokens_that_grew(self) -> dict[str, AgentRow]:
        """What more text changes, which is most of all changes: a number, and nothing else."""
        fold, changes = self.fold, dict[str, AgentRow]()
        for agent_id in fold.said_more - fold.touched:
            known = self._sent.get(fold.tree.agents[agent_id].path)
            if known is None or not known["estimated"] or known["stalled"]:
                fold.touched.add(agent_id)  # it has just begun to speak, or does again
                continue
            known["tokens"] = fold.tokens_of(agent_id)
            changes[known["path"]] = {"tokens": known["tokens"]}
        fold.said_more.clear()
        return changes

    @property
    def now_s(self) -> float:
        """Seconds since the run began, as far as its record goes."""
        return self.fold.newest_s if self.bus.closed else self.bus.now_s

    def _summary(self) -> Summary:
        self._add_up()
        pot = self._pot() if self._pot is not None else None
        summary = self.fold.summary(self.now_s, cost=self._cost_words, pot=pot)
        return replace(summary, notices=(*summary.notices, *self._said)) if self._said else summary

    def _add_up(self) -> None:
        calls, now = self.fold.calls_ended, time.monotonic()
        is_early = now < self._cost_at_s + _COST_EVERY_S and not self.fold.done
        if self._cost is None or not calls or calls == self._cost_of or is_early:
            return
        self._cost_of, self._cost_at_s = calls, now
        self._costs = self._cost()
        self._cost_words = str(self._costs)


class _Replay:
    """The same fold, stopped at a time. Going on from there is cheap, going back begins anew."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._fold = PanelFold()
        self._position = 0
        self._at_s = 0.0

    def fold_at(self, at_s: float) -> PanelFold:
        if at_s < self._at_s:
            self._fold, self._position = PanelFold(), 0
        self._at_s = at_s
        rows = list(takewhile(lambda row: row[0] <= at_s, self._bus.rows_since(self._position)))
        self._position += len(rows)
        self._fold.feed(rows)
        self._fold.notice_silence(at_s)
        return self._fold
