"""The present text and activity of a conversation's agent, from the frames of its run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentnb.views.boards.wire import LiveMessage
from agentnb.views.panel.details import Details
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.wire import Frame

_PARTS = ("text", "add", "tools")
"""The parts of an agent's details that are sent: the rest is in the conversation or the panel."""


class LiveReply:
    """The root of a working run, for one view of a conversation. A view of the run's frames.

    The run's publisher calls it under its own lock, on its own thread; it takes no other lock.

    Args:
        frames: The run's frames.
        say: Sends a message to the page.
        view: The view that reads the conversation.
        thread: The conversation's thread.
    """

    def __init__(
        self, frames: FramePublisher, say: Callable[[LiveMessage], None], view: str, thread: str
    ) -> None:
        self.frames = frames
        self._say = say
        self._view, self._thread = view, thread
        self._details = Details("root", whole=frames.bus.whole_tool_calls)
        self._doing = ""
        self._n = -1

    def begin(self) -> None:
        """Show everything so far, and from now on what is new."""
        self.frames.attach(self)

    def end(self, *, is_over: bool) -> None:
        """Stop. With `is_over`, tell the page that the answer is a message now."""
        self.frames.detach(self)
        if is_over:
            self._tell({"over": True, "reset": False})

    # -- `agentnb.views.panel.frames.View` --------------------------------------------------------

    def show(self, frame: Frame) -> None:
        """Show what changed."""
        row = frame.rows.get("root", {})
        if row.get("doing", self._doing) != self._doing:
            self._doing = row["doing"]
            self._tell({"reset": False, "doing": self._doing})
        self.read_on()

    @property
    def is_read(self) -> bool:
        """Whether its text is growing."""
        return self._details.is_live(self.frames.fold)

    def renew(self) -> None:
        """Do nothing: its board sends what it holds."""

    def read_on(self) -> None:
        """Show the new part of the text."""
        more = self._details.more(self.frames.fold, lambda path: "")
        if more is None:
            return
        parts: dict[str, Any] = {name: more[name] for name in _PARTS if name in more}  # type: ignore[literal-required]
        if more["reset"]:
            self._tell({**parts, "reset": True, "doing": self._doing})
        elif parts:
            self._tell({**parts, "reset": False})

    def _tell(self, parts: dict[str, Any]) -> None:
        self._n += 1
        head: LiveMessage = {
            "type": "live",
            "view": self._view,
            "thread": self._thread,
            "n": self._n,
            "over": False,
            "reset": False,
        }
        self._say({**head, **parts})  # type: ignore[typeddict-item]
