"""The tree of a run with the details of an agent, drawn in the browser.

Python holds the truth and the JavaScript draws it: frames go out numbered, each built on the one
before; a front end that missed one asks for everything anew. What each view on a screen looks at
is kept here, so that the text of an agent is sent only to those who read it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import anywidget
import traitlets

from agentnb.core.types import AgentStatus
from agentnb.views.panel.comm import hear
from agentnb.views.panel.details import Details
from agentnb.views.panel.fold import HALF_A_STEP_S
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.limits import allowed_total, ceiling, highest_total
from agentnb.views.panel.module import joined_module, style
from agentnb.views.panel.viewers import GONE_AFTER_S
from agentnb.views.panel.widgets import RunWidget
from agentnb.views.panel.wire import (
    AgentRow,
    Command,
    DetailsCommand,
    Frame,
    FrameMessage,
    MessageRefused,
    PageMessage,
    checked_command,
)

MOST_VIEWS = 64
"""Of one tree view, on all screens."""


class TreeView(RunWidget, anywidget.AnyWidget):
    """A live picture of a run: its tree, one agent's details, and a scrubber when it is done.

    Args:
        publisher: The run's frames.
        height: Of the tree in pixels; 0 for what fits most cells.
        can_answer: Whether a person who sees it can answer the budget's question beside it.
    """

    publisher: FramePublisher
    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)
    snapshot = traitlets.Any().tag(sync=True, to_json=lambda _, view: view._full_frame())
    """A full frame, made whenever a front end asks for the state: a page that is reloaded needs
    nothing else. In Python it has no value."""
    controls = traitlets.Bool(True).tag(sync=True)
    """Whether agents can be cancelled from here."""
    height = traitlets.Int(0).tag(sync=True)

    def __init__(
        self, publisher: FramePublisher, *, height: int = 0, can_answer: bool = False
    ) -> None:
        self._can_answer = can_answer
        self._seq: int | None = None
        self._status: AgentStatus | None = None
        self._notices: Sequence[str] = ()
        self._details: dict[str, Details] = {}
        self._here_at_s: dict[str, float] = {}
        """Views that said that they are there, and when; who said it last comes last."""
        with publisher.lock:  # no frame may come between the state that goes out and the next one
            self.attach(publisher)
            super().__init__(
                _esm=joined_module(),
                _css=style(),
                controls=publisher.commands is not None,
                height=height,
            )
        hear(self)

    def close(self) -> None:
        """Take it from all screens; it costs nothing from then on."""
        if self.comm is not None:
            self.publisher.viewers.gone(self.model_id)
        super().close()

    # -- out --------------------------------------------------------------------------------------

    def show(self, frame: Frame) -> None:
        """Send a frame, and what is new to those who look at an agent."""
        base, status = self._seq, frame.summary.status
        if base is None or frame.rows or status is not self._status:
            self._seq, self._status = frame.seq, status
            if base is not None:  # else everything so far is in the snapshot
                self._say(self._frame(frame, base=base))
        if frame.summary.notices is not self._notices:
            self._tell(frame.summary.notices, is_first=base is None)
        self.read_on()

    @property
    def is_read(self) -> bool:
        """Whether somebody looks at an agent that is just speaking."""
        fold = self.publisher.fold
        return any(look.is_live(fold) for look in self._details.values())

    def read_on(self) -> None:
        """Send what is new to those who look at an agent."""
        publisher = self.publisher
        for view, look in self._details.items():
            message = look.more(publisher.fold, publisher.cost_of)
            if message is not None:
                self._say({**message, "view": view})

    def _tell(self, notices: Sequence[str], *, is_first: bool) -> None:
        """Send the lines that are new, for those who hear the page."""
        known, self._notices = frozenset(self._notices), notices
        lines = [line for line in notices if line not in known]
        if lines and not is_first:
            self._say({"type": "notices", "lines": lines})

    def _say(self, message: PageMessage) -> None:
        self.send(message)

    def _full_frame(self) -> FrameMessage:
        with self.publisher.lock:
            frame = self._frame(self.publisher.whole(), base=None)
            # Its own number: frames of the publisher without a row are not sent.
            return frame if self._seq is None else {**frame, "seq": self._seq}

    def _frame(self, frame: Frame, *, base: int | None) -> FrameMessage:
        # A row that is only changed does not hold its path, which is how the front end knows it.
        rows: list[AgentRow] = [{**row, "path": path} for path, row in frame.rows.items()]
        return {
            "type": "frame",
            "seq": frame.seq,
            "base": base,
            "at": round(frame.summary.at_s, 3),
            "done": frame.summary.done,
            "status": str(frame.summary.status),
            "agents": rows,
        }

    # -- in ---------------------------------------------------------------------------------------

    def take(self, content: Mapping[str, Any]) -> None:
        """A front end speaks: on any thread."""
        command = checked_command(content)
        with self.publisher.lock:
            self._act_on(command)

    def _act_on(self, command: Command) -> None:
        """Do what a page asks for, as far as it fits this run."""
        match command["type"]:
            case "hello":
                self._is_here(command["view"])
                self._say(self._full_frame())
            case "here":
                self._is_here(command["view"])
            case "bye":
                self._is_gone(command["view"])
            case "resend":
                self._say(self._full_frame())
            case "sync" if command["seq"] != self._seq:
                self._say(self._full_frame())
            case "details":
                if command["view"] not in self._here_at_s:
                    raise MessageRefused("a view that never said it is there asked for details")
                self._look(command)
            case "budget" if self.publisher.commands is not None:
                self.publisher.commands.set_budget(self._allowed(command["total"]))
            case "cancel" if self.publisher.commands is not None:
                if self.publisher.fold.tree.agent_at(command["agent"]) is None:
                    raise MessageRefused("`agent` must be one of this run")
                self.publisher.commands.cancel(command["agent"])

    def _allowed(self, total: int) -> int:
        """The total for the slider's end, which a page asks for."""
        summary = self.publisher.whole().summary
        if total < summary.tokens_used:  # it would end the run, which no page asks for in this way
            raise MessageRefused("`total` must be at least what is used")
        highest = highest_total(summary.budget_total, ceiling())
        return allowed_total(total, used=summary.tokens_used, highest=highest)

    def _is_here(self, view: str) -> None:
        if self._can_answer:
            self.publisher.viewers.seen(self.model_id, view)
        now_s = time.monotonic()
        self._here_at_s.pop(view, None)
        self._here_at_s[view] = now_s
        for other, at_s in self._here_at_s.items():
            # A page that was closed: nobody reads on there. It stays known, since one whose run has
            # ended does not say any more that it is there, and may still ask.
            if at_s < now_s - GONE_AFTER_S:
                self._details.pop(other, None)
        if len(self._here_at_s) > MOST_VIEWS:
            self._is_gone(next(iter(self._here_at_s)))

    def _is_gone(self, view: str) -> None:
        self.publisher.viewers.gone(self.model_id, view)
        self._here_at_s.pop(view, None)
        self._details.pop(view, None)

    def _look(self, command: DetailsCommand) -> None:
        view, call, at = command["view"], command["call"], command["at"]
        # A replay goes to the times that rows tell, which are rounded: with what they tell of.
        at_s = None if at is None else float(at) + HALF_A_STEP_S
        look = Details(command["agent"], call=call, at_s=at_s)
        fold, cost_of = self.publisher.fold, self.publisher.cost_of
        if at_s is not None:
            if fold.root is not None:
                at_s = look.at_s = max(at_s, fold.root.spawned_at_s)  # no time is without it
            fold, cost_of = self.publisher.at(at_s), _no_cost
            rows = [fold.changing_row(agent_id) for agent_id in fold.tree.agents]
            self._say({"type": "replay", "view": view, "n": 0, "at": at, "agents": rows})
        self._details[view] = look
        self.publisher.bus.notify()  # the next words of whoever is looked at are to come at once
        self._say({**look.whole(fold, cost_of), "view": view})


def _no_cost(path: str) -> str:
    """Of the past, what a call cost is not known: it had not ended."""
    return ""
