"""A publisher whose frames a test makes one by one, and a front end for its widgets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ipywidgets import Widget

from agentnb.core.bus import EventBus
from agentnb.core.protocols import RunControls
from agentnb.core.types import AgentStatus, CancelReceipt
from agentnb.views.panel.commands import Commands
from agentnb.views.panel.frames import FramePublisher, View
from agentnb.views.panel.wire import Frame, Summary


class Stage(FramePublisher, RunControls):  # type: ignore[misc]  # `tell` is the publisher's
    """A publisher without a thread: a test makes each frame.

    Commands wait, as on a run's loop, until the test executes them.
    """

    def __init__(self, *, has_controls: bool = True, **changes: Any) -> None:
        super().__init__(EventBus("a run"))
        self.given: list[tuple[object, ...]] = []
        """The commands that the run got, in order."""
        self.failing: Exception | None = None
        """The error that the run raises for every command."""
        self.is_gone = False
        """Whether the run's thread has ended."""
        self._waiting: list[Callable[[], object]] = []
        self._own_summary = replace(
            Summary(
                status=AgentStatus.RUNNING,
                done=False,
                at_s=0.0,
                agents=1,
                by_status={AgentStatus.RUNNING: 1},
                doing="",
                tokens_used=0,
                budget_total=50_000,
                cost="",
                question=None,
                notices=(),
            ),
            **changes,
        )
        if has_controls:
            self.commands = Commands(self, self._call_soon, self.tell)

    # -- the run ----------------------------------------------------------------------------------

    def cancel(self, agent: str | None = None, reason: str | None = None) -> CancelReceipt:
        self._give("cancel", agent)
        return CancelReceipt((), 0)

    def set_budget(self, total: int) -> None:
        self._give("set_budget", total)
        self._own_summary = replace(self._own_summary, budget_total=total)

    def answer_budget(self, answer: str) -> None:
        self._give("answer_budget", answer)

    def pause(self, agent: str | None = None) -> None:
        self._give("pause", agent)

    def resume(self, agent: str | None = None) -> None:
        self._give("resume", agent)

    def _give(self, *order: object) -> None:
        if self.failing is not None:
            raise self.failing
        self.given.append(order)

    def _call_soon(self, function: Callable[[], object]) -> None:
        if self.is_gone:
            raise RuntimeError("The loop of this run is gone.")
        self._waiting.append(function)

    def work(self) -> None:
        """Let the run execute its commands."""
        while self._waiting:
            self._waiting.pop(0)()

    # -- its frames -------------------------------------------------------------------------------

    def attach(self, view: View) -> None:
        self._newest = self._summary()
        self._renewal.is_due(self._newest)
        view.show(self.whole())
        self._views.append(view)

    def frame(self, **changes: Any) -> None:
        """Publish a frame with changes."""
        self._own_summary = replace(self._own_summary, **changes)
        self._show({})

    def stale_frame(self, **changes: Any) -> None:
        """Publish a frame that was made before the run's present state."""
        for view in self._views.copy():
            view.show(Frame(self._seq, {}, replace(self._own_summary, **changes), is_kept=False))

    def _summary(self) -> Summary:
        return replace(self._own_summary, notices=(*self._own_summary.notices, *self._said))

    @property
    def views(self) -> list[View]:
        return self._views


class FrontEnd:
    """One widget in a page: its state, as the messages make it."""

    def __init__(self, widget: Widget) -> None:
        self._widget = widget
        self.state: dict[str, Any] = widget.get_state()
        self.messages: list[dict[str, Any]] = []
        """All states that the kernel sent since the page was opened, without echoes."""
        widget.comm.send = self._take

    def _take(self, data: dict[str, Any], **_: object) -> None:
        if data["method"] == "update":
            self._hear(data["state"])
        elif "value" in data.get("content", ()):  # new markup, for the page alone
            self._hear(data["content"])

    def _hear(self, state: dict[str, Any]) -> None:
        self.messages.append(state)
        self.state.update(state)

    def moves(self, **state: Any) -> None:
        """The user changes it."""
        self.state.update(state)
        self._speaks({"method": "update", "state": state, "buffer_paths": []})

    def clicks(self) -> None:
        """The user clicks it."""
        self._speaks({"method": "custom", "content": {"event": "click"}})

    def _speaks(self, data: dict[str, Any]) -> None:
        self._widget._handle_msg({"content": {"data": data}, "buffers": []})


def open_widgets() -> set[str]:
    """Ids of the open widgets of this kernel."""
    return set(Widget.get_manager_state()["state"])
