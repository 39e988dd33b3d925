"""Publishes one run's frames to all its live views.

An attached view gets a full frame and then the changes, at most ten times a second, until the
run's last event; the last frame always comes. Numbers that only grow, such as the tokens of an open
reply, come once a second: most events change nothing else. Without views, and after the run's end,
no thread runs. Views are updated one at a time, under one lock.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import Any, Protocol

from agentnb.core.bus import EventBus
from agentnb.core.reading import interrupted_ends
from agentnb.core.secrets import known_secrets
from agentnb.core.text import visible
from agentnb.interrupts import INTERRUPTS
from agentnb.views.front_end import after_each_cell, shell_at_hand
from agentnb.views.panel.commands import Commands
from agentnb.views.panel.fold import PanelFold
from agentnb.views.panel.history import ReceiptOf
from agentnb.views.panel.renewal import Renewal
from agentnb.views.panel.viewers import Viewers, was_any_shown
from agentnb.views.panel.wire import AgentRow, Frame, Summary, changed_fields

FRAME_S = 0.15
"""The shortest time between two frames: more would cost the run time and look the same."""
TICK_S = 1.0
"""How often numbers that only grow (time, tokens) are shown: users read them, and do not watch.
Silence is also checked at this interval."""

_MOST_SAID = 5

NOTIFY_VARIABLE = "AGENTNB_NOTIFY"
"""Environment variable; with `off`, pages show no notice of a run that they show out of sight."""

_log = logging.getLogger("agentnb")
# Without a handler of the user's, Python would print the traceback into the running cell.
_log.addHandler(logging.NullHandler())


_attached: weakref.WeakSet[FramePublisher] = weakref.WeakSet()
"""Those that ever had a view."""


def interrupt_open() -> None:
    """End each run that goes on as its record will have it: its process ends before it."""
    with suppress(Exception):  # other kernels than ipykernel's send in other ways
        # A large message would need a thread of pyzmq, which cannot begin any more.
        shell_at_hand().kernel.session.copy_threshold = sys.maxsize
    _for_each(lambda publisher: publisher.interrupt())


def catch_up(*_: object) -> None:
    """Show what has changed, before a cell is idle: nbclient hears nothing between two cells."""
    with INTERRUPTS.heard_by(lambda: None, alone=True):  # no code is left that it could stop
        _for_each(lambda publisher: publisher.catch_up())


def show_ends() -> None:
    """Show the end of each run that has ended: nothing more is shown afterwards."""
    _for_each(lambda publisher: publisher.show_end(again=False))


def _for_each(call: Callable[[FramePublisher], object]) -> None:
    for publisher in [*_attached]:
        with suppress(Exception):  # it must not take the end of another away
            call(publisher)


class View(Protocol):
    """Shows frames. Called by one thread at a time."""

    def show(self, frame: Frame) -> None:
        """Show what changed; the first frame is full."""
        ...

    @property
    def is_read(self) -> bool:
        """Whether a user reads the growing text of an agent in it."""
        ...

    def read_on(self) -> None:
        """Show new parts of the texts being read, between two frames."""
        ...

    def renew(self) -> None:
        """Send its whole state again, for a front end that may have missed it."""
        ...


class CostLine(Protocol):
    """A run's cost, in words (`str`) and by agent."""

    @property
    def by_agent(self) -> Mapping[str, Any]:
        """Each agent's cost, by path."""
        ...

    def times(self, factor: float) -> str:
        """The cost times `factor`, such as `$0.68`; empty if some tokens have no price."""
        ...


class Kept(Protocol):
    """Where a run is stored, in words."""

    @property
    def footer(self) -> str:
        """Where it is stored, and how to turn that off."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why it is not stored any more; `None` if all is well."""
        ...


class FramePublisher:
    """The frames of one run, for any number of views.

    Args:
        bus: The run's events.
        budget: Returns what is used, the total, and their unit; `None` for a run from a file.
        cost: Returns the run's cost so far; takes time only for the newest calls.
        viewers: The views that pages really show.
        commands: Creates the user's commands, from a function that shows the user one line; `None`
            for a run from a file.
        kept: Where the run is stored; `None` for a run from a file.
        receipt: Returns the run's recovery receipt; `None` for a run from a file.
        at_end: Returns one more notice when the run has ended; empty for none.
        is_awaited: Whether somebody waits for the run, or did when it ended.
    """

    def __init__(
        self,
        bus: EventBus,
        *,
        budget: Callable[[], tuple[int, int, str]] | None = None,
        cost: Callable[[], CostLine] | None = None,
        viewers: Viewers | None = None,
        commands: Callable[[Callable[[str], None]], Commands] | None = None,
        kept: Kept | None = None,
        receipt: ReceiptOf = lambda: None,
        at_end: Callable[[], str] = str,
        is_awaited: Callable[[], bool] = lambda: True,
    ) -> None:
        self.bus = bus
        self.commands = None if commands is None else commands(self.tell)
        """The user's commands; `None` for a run from a file."""
        self.kept = kept
        self.viewers = viewers or Viewers()
        self.refused = 0
        """Number of invalid messages from pages."""
        self.lock = threading.RLock()
        """Held while a view is updated, and while a message from a page is handled."""
        self._receipt = receipt
        self.fold = PanelFold(receipt)
        self._budget = budget
        self._cost = cost
        self._cost_words = ""
        self._costs: CostLine | None = None
        self._cost_of = -1
        self.position = 0
        """How many of the run's events the views show."""
        self._changes_known = 0
        self._seq = 0
        self._sent: dict[str, AgentRow] = {}
        self._views: list[View] = []
        self._renewal = Renewal()
        self._newest: Summary
        """That of the newest frame, once there is a view."""
        self._said: list[str] = []
        self._said_shown = self._said
        self._is_trouble_told = self._is_end_told = False
        self._at_end = at_end
        self._is_awaited = is_awaited
        self._counted_s = float("-inf")
        """When growing numbers were shown last."""
        self._is_end_unseen = False
        """Whether nobody waited for the run when the views heard of its end."""
        self._has_grown = False
        self._is_half_done = False
        self._thread: threading.Thread | None = None
        self._replay = _Replay(bus, receipt)

    @property
    def done(self) -> bool:
        """Whether no more frames follow."""
        return self.bus.closed and self.position >= len(self.bus)

    @property
    def is_unwatched(self) -> bool:
        """Whether no cell waits for the run: a page out of sight may then show a notice."""
        return not self._is_awaited() and os.environ.get(NOTIFY_VARIABLE, "").lower() != "off"

    # -- views ------------------------------------------------------------------------------------

    def attach(self, view: View) -> None:
        """Show a view a full frame, and from now on the changes.

        The frame is the newest that other views have: what a page saves of them has to agree.
        """
        with self.lock:
            if not self._views:
                self._tick()
                after_each_cell(catch_up)
            if not self._views or not self._renewal.is_newest:
                self.keep()
            view.show(Frame(self._seq, self._sent, self._newest, is_kept=True))
            self._views.append(view)
            _attached.add(self)
            if self._thread is None and not self.done:
                self._thread = threading.Thread(target=self._go, name="agentnb-panel", daemon=True)
                self._thread.start()

    def detach(self, view: View) -> None:
        """Stop updating a view. Does nothing if it is not attached."""
        with self.lock:
            self._views = [other for other in self._views if other is not view]

    def keep(self) -> None:
        """Have all views save the run as it is now, once more. Call it under the lock."""
        self._newest, self._renewal = self._summary(), Renewal()
        frame = Frame(self._seq, {}, self._newest, self._renewal.is_due(self._newest))
        self._update_views(lambda view: view.show(frame))

    def catch_up(self) -> None:
        """Show an end that nobody waited for; where no page listens, also what goes on.

        nbclient drops each message that a thread sends for a cell that is idle. So part of a state
        may have been lost, and only what is sent before a cell is idle arrives whole.
        """
        with self.lock:
            self.show_end()
            if self._views and not self.done and not was_any_shown():
                self._tick_or_stop()
                self.keep()

    def show_end(self, *, again: bool = True) -> None:
        """Show the end of a run that has ended. When this returns, all views have it.

        A front end that saves what widgets show hears of a cell's widgets until the cell is idle.
        An end that nobody waited for may have come between two cells, where nbclient hears nothing.

        Args:
            again: Whether to show such an end once more.
        """
        with self.lock:  # the thread may be showing it: wait for that
            if self.bus.closed and self._views and not self.done:
                self._tick_or_stop()
            elif self._is_end_unseen and again:
                for view in self._views:
                    view.renew()
            self._is_end_unseen = False

    def interrupt(self) -> None:
        """End a run that goes on as interrupted, by the last that is known; `show_end` shows it.

        Nothing is sent here: the runs' own loop calls it, and a kernel waits for that to end.
        """
        with self.lock:
            if self.bus.closed or not self._views:
                return
            rows, calls = self.bus.rows_since(0), self.bus.whole_tool_calls
            self.fold.feed(rows[self.position :])
            self.position = len(rows)
            if not self.fold.tree.agents:  # it waits for its turn: no record has it
                return
            # Its own copy: the run is cancelled now, which no record has either.
            ends = interrupted_ends(rows, self.fold.tree.root_id)
            self.bus = EventBus.of_record(self.bus.run_id, [*rows, *ends], calls)
            self._budget = None

    def tell(self, line: str) -> None:
        """Show the user a line that is not from events, such as a failed command.

        While the run is running, it is shown with the next frame, within a second: the run's own
        thread, on which commands fail, must not wait for a view.
        """
        self._said = [*self._said, visible(line, 300)][-_MOST_SAID:]
        if self.done:
            with self.lock:
                self._show({})

    def refuse(self, reason: str) -> None:
        """Count a refused message from a page, and show the user the first one."""
        with self.lock:
            self.refused += 1
            if self.refused == 1:
                self.tell(f"A message of a page was refused: {reason}. Others are only counted.")

    def whole(self) -> Frame:
        """A full frame with the state of the newest one. Call it under the lock."""
        return Frame(self._seq, self._sent, self._summary(), is_kept=True)

    def cost_times(self, factor: float) -> str:
        """The run's cost so far times `factor`, in words; empty if unknown."""
        return self._costs.times(factor) if self._costs is not None else ""

    def cost_of(self, path: str) -> str:
        """An agent's cost so far, in words; empty if unknown. Call it under the lock."""
        cost = self._costs.by_agent.get(path) if self._costs is not None else None
        return "" if cost is None else str(cost)

    def at(self, at_s: float) -> PanelFold:
        """The fold at a time of the run."""
        return self._replay.fold_at(at_s)

    # -- frames -----------------------------------------------------------------------------------

    def _go(self) -> None:
        while True:
            self._wait()
            with self.lock:
                # Before its messages go out: a cell that begins to wait afterwards hears none.
                was_shown = self.done or self._is_awaited()
                if self._views:
                    self._tick_or_stop()
                if self.done or not self._views:
                    self._is_end_unseen = self.done and not was_shown
                    self._thread = None
                    return
            time.sleep(FRAME_S)

    def _wait(self) -> None:
        """Wait for something to show. Text that nobody reads does not wake it before the tick."""
        with self.lock:
            is_read = any(view.is_read for view in self._views)
        if is_read:
            self.bus.wait_past(self.position, timeout_s=TICK_S)
        else:
            self.bus.wait_for_change(self._changes_known, timeout_s=TICK_S)

    def _tick_or_stop(self) -> None:
        try:
            self._tick()
        except Exception:
            # Log it once: an uncaught error would be printed into some cell.
            _log.exception("The live views of a run failed and are no longer updated.")
            self._views = []

    def _tick(self) -> None:
        """Fold in new rows, and show the views what changed."""
        if self._is_half_done:  # an interrupt came in between: start again
            self.fold, self.position, self._sent = PanelFold(self._receipt), 0, {}
        self._is_half_done = True
        self._update()
        self._is_half_done = False

    def _update(self) -> None:
        known_secrets()  # refresh the secrets, by which texts are masked
        if not self._is_trouble_told and self.kept is not None and self.kept.trouble is not None:
            self._is_trouble_told = True
            self.tell(self.kept.trouble)
        self._changes_known = self.bus.changes
        rows = self.bus.rows_since(self.position)
        self.position += len(rows)
        self.fold.feed(rows)
        now_s = self.now_s
        if not self.fold.done:
            self.fold.notice_silence(now_s)
        elif not self._is_end_told:
            self._is_end_told = True
            if line := self._at_end():
                self.tell(line)
        self._has_grown |= bool(rows)
        is_to_count = self.fold.done or now_s >= self._counted_s + TICK_S
        if (
            self.fold.take_changed()
            or (is_to_count and (self._has_grown or not self.done))
            or self._said is not self._said_shown
        ):
            if is_to_count:
                self._counted_s, self._has_grown = now_s, False
            self._show(self._changes(with_growth=is_to_count))
        elif rows:
            self._update_views(lambda view: view.read_on())

    def _show(self, changes: Mapping[str, AgentRow]) -> None:
        self._seq += 1
        self._said_shown = self._said
        self._newest = self._summary()
        frame = Frame(self._seq, changes, self._newest, self._renewal.is_due(self._newest))
        self._update_views(lambda view: view.show(frame))

    def _update_views(self, update: Callable[[View], None]) -> None:
        for view in self._views.copy():
            try:
                update(view)
            except Exception:
                # A broken view must not stop the others, nor this thread.
                _log.exception("A live view failed and is no longer updated.")
                self.detach(view)
                self._said = [
                    *self._said,
                    f"A view ({type(view).__name__}) failed and is no longer updated.",
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
        """Token counts that grew with more text: most changes are only these."""
        fold, changes = self.fold, dict[str, AgentRow]()
        for agent_id in fold.said_more - fold.touched:
            known = self._sent.get(fold.tree.agents[agent_id].path)
            if known is None or not known["estimated"] or known["stalled"]:
                fold.touched.add(agent_id)  # its text begins, or continues after a silence
                continue
            known["tokens"] = fold.tokens_of(agent_id)
            changes[known["path"]] = {"tokens": known["tokens"]}
        fold.said_more.clear()
        return changes

    @property
    def as_of(self) -> float:
        """When the run was as it is shown, in seconds since the epoch: at its loading, or now."""
        is_loaded = self.done and not self.fold.done
        return time.time() - (self.bus.now_s if is_loaded else 0)

    @property
    def now_s(self) -> float:
        """Seconds since the run began, up to its last event."""
        return self.fold.newest_s if self.bus.closed else self.bus.now_s

    def _summary(self) -> Summary:
        self._add_up()
        budget = self._budget() if self._budget is not None else None
        summary = self.fold.summary(self.now_s, cost=self._cost_words, budget=budget)
        return replace(summary, notices=(*summary.notices, *self._said)) if self._said else summary

    def _add_up(self) -> None:
        """Sum up the cost with each frame: its newest calls are few."""
        calls = self.fold.calls_ended
        if self._cost is None or not calls or calls == self._cost_of:
            return
        self._cost_of = calls
        self._costs = self._cost()
        self._cost_words = str(self._costs)


class _Replay:
    """The fold at a chosen time. Moving forward is cheap, moving back starts again."""

    def __init__(self, bus: EventBus, receipt: ReceiptOf) -> None:
        self._bus = bus
        self._receipt = receipt
        self._fold = PanelFold(receipt)
        self._position = 0
        self._at_s = 0.0

    def fold_at(self, at_s: float) -> PanelFold:
        if at_s < self._at_s:
            self._fold, self._position = PanelFold(self._receipt), 0
        self._at_s = at_s
        rows = list(takewhile(lambda row: row[0] <= at_s, self._bus.rows_since(self._position)))
        self._position += len(rows)
        self._fold.feed(rows)
        self._fold.notice_silence(at_s)
        return self._fold
