"""The tree of a run with the details of an agent, drawn in the browser.

Python holds the truth and the JavaScript draws it: frames go out numbered, each built on the one
before; a front end that missed one asks for everything anew. What each view on a screen looks at
is kept here, so that the text of an agent is sent only to those who read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import anywidget
import traitlets

from agentnb.core.types import AgentStatus
from agentnb.views.panel.comm import hear
from agentnb.views.panel.feed import Feed
from agentnb.views.panel.fold import HALF_A_STEP_S
from agentnb.views.panel.look import Look
from agentnb.views.panel.module import joined_module, style
from agentnb.views.panel.news import News
from agentnb.views.panel.show import Live


class TreeView(Live, anywidget.AnyWidget):
    """A live picture of a run: its tree, one agent's details, and a scrubber when it is done.

    Args:
        feed: The run's frames.
        height: Of the tree in pixels; 0 for what fits most cells.
    """

    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)
    snapshot = traitlets.Any().tag(sync=True, to_json=lambda _, view: view._full_frame())
    """A full frame, made whenever a front end asks for the state: a page that is reloaded needs
    nothing else. In Python it has no value."""
    controls = traitlets.Bool(True).tag(sync=True)
    """Whether agents can be cancelled from here."""
    height = traitlets.Int(0).tag(sync=True)

    def __init__(self, feed: Feed, *, height: int = 0) -> None:
        self._feed = feed
        self._seq: int | None = None
        self._status: AgentStatus | None = None
        self._told: tuple[str, ...] = ()
        self._looks: dict[str, Look] = {}
        with feed.lock:  # no frame may come between the state that goes out and the next one
            feed.attach(self)
            super().__init__(
                _esm=joined_module(), _css=style(), controls=feed.orders is not None, height=height
            )
        hear(self)
        self.on_msg(self._heard)

    def __repr__(self) -> str:
        return "TreeView()"

    def close(self) -> None:
        """Take it from all screens; it costs nothing from then on."""
        self._feed.detach(self)
        if self.comm is not None:  # else it was closed before
            self._feed.viewers.went(self.model_id)
        super().close()

    # -- out --------------------------------------------------------------------------------------

    def show(self, news: News) -> None:
        """Send a frame, and what is new to those who look at an agent."""
        base, status = self._seq, news.summary.status
        if base is None or news.rows or status is not self._status:
            self._seq, self._status = news.seq, status
            if base is not None:  # else everything so far is in the snapshot
                self.send(self._frame(news, base=base))
        told, self._told = self._told, news.summary.notices
        if base is not None and (lines := [line for line in self._told if line not in told]):
            self.send({"type": "told", "lines": lines})  # for those who hear the page
        feed = self._feed
        for view, look in self._looks.items():
            message = look.more(feed.bus, feed.fold.tree, feed.cost_of)
            if message is not None:
                self.send({**message, "view": view})

    def _full_frame(self) -> dict[str, Any]:
        with self._feed.lock:
            return self._frame(self._feed.whole(), base=None)

    def _frame(self, news: News, *, base: int | None) -> dict[str, Any]:
        # A row that is only changed does not hold its path, which is how the front end knows it.
        rows = [{"path": path, **row} for path, row in news.rows.items()]
        return {
            "type": "frame",
            "seq": news.seq,
            "base": base,
            "at": round(news.summary.at_s, 3),
            "done": news.summary.done,
            "status": str(news.summary.status),
            "agents": rows,
        }

    # -- in ---------------------------------------------------------------------------------------

    def _heard(self, _: object, content: Mapping[str, Any], buffers: object) -> None:
        """A front end speaks: on any thread. What makes no sense is passed over."""
        kind, view = content.get("type"), str(content.get("view", ""))
        with self._feed.lock, suppress(LookupError, TypeError, ValueError):
            match kind:
                case "hello":
                    self._feed.viewers.came(self.model_id, view)
                    self.send(self._full_frame())
                    self._look_at(view, self._looks.get(view) or Look("root"))
                case "bye":
                    self._feed.viewers.went(self.model_id, view)
                    self._looks.pop(view, None)
                case "resend":
                    self.send(self._full_frame())
                case "sync" if content.get("seq") != self._seq:
                    self.send(self._full_frame())
                case "look":
                    self._look(view, content)
                case "cancel" if self._feed.orders is not None:
                    self._feed.orders.cancel(str(content["agent"]))

    def _look(self, view: str, content: Mapping[str, Any]) -> None:
        call, at = content.get("call"), content.get("at")
        # A replay goes to the times that rows tell, which are rounded: with what they tell of.
        at_s = None if at is None else float(at) + HALF_A_STEP_S
        look = Look(str(content.get("agent", "root")), call=call and int(call), at_s=at_s)
        if at_s is not None:
            rows = self._feed.replayed(at_s)
            self.send({"type": "replay", "view": view, "n": 0, "at": at, "agents": rows})
        self._look_at(view, look)

    def _look_at(self, view: str, look: Look) -> None:
        feed = self._feed
        self._looks[view] = look
        self.send({**look.whole(feed.bus, feed.fold.tree, feed.cost_of), "view": view})
