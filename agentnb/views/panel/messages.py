"""Validates messages from a page to a run's widgets, and never raises.

Anyone with access to the page or the kernel can send anything, in any amount. `wire` and `rules`
define the valid messages and values; others are refused and counted, and the first is shown to the
user. Errors are shown too: raised ones would be printed into some other cell.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar

from agentnb.views.panel.rules import MessageRefused, Rules, as_object, checked_state

MOST_AT_ONCE = 200
MOST_PER_S = 50
"""Most messages per second to one widget on average. A dragged slider sends about as many."""


class Intake:
    """Rate limit for messages: a burst at once, and `MOST_PER_S` on average."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.monotonic
        self._room = float(MOST_AT_ONCE)
        self._at_s = self._clock()

    def take(self) -> None:
        """Count one message.

        Raises:
            MessageRefused: There were too many.
        """
        now_s = self._clock()
        self._room = min(MOST_AT_ONCE, self._room + (now_s - self._at_s) * MOST_PER_S)
        self._at_s = now_s
        if self._room < 1:
            raise MessageRefused(f"there were more than {MOST_PER_S} messages a second")
        self._room -= 1


class Guarded:
    """Mixin, before a widget's class: validates the messages from a page."""

    from_page: ClassVar[Rules] = {}
    """The state that a page may change."""
    _intake: Intake | None = None

    def refuse(self, reason: str) -> None:
        """Count and show a refused message, if the widget has a run."""

    def fail(self, error: Exception) -> None:
        """Show an error in handling a message, if the widget has a run."""

    @property
    def page_lock(self) -> AbstractContextManager[object]:
        """Held while a page changes the widget's state."""
        return nullcontext()

    def take(self, content: Mapping[str, Any]) -> None:
        """Handle a custom message, such as a click."""
        super()._handle_custom_msg(content, None)  # type: ignore[misc]

    # ipywidgets calls these three. All messages pass `_never_raising`.

    def _handle_msg(self, msg: Any) -> None:
        with self._never_raising():
            data = as_object(as_object(as_object(msg).get("content")).get("data"))
            match data.get("method"):
                case "update":
                    self.set_state(as_object(data.get("state")))
                case "custom":
                    self._handle_custom_msg(data.get("content"), None)
                case "request_state":
                    self._count()
                    self.send_state()  # type: ignore[attr-defined]
                case _:
                    raise MessageRefused("there is no such method")

    def _handle_custom_msg(self, content: object, buffers: object) -> None:
        with self._never_raising():
            self._count()
            self.take(as_object(content))

    def set_state(self, sync_data: Mapping[str, Any]) -> None:
        """Apply allowed changes from a page; otherwise send the page the true state."""
        with self._never_raising():
            try:
                self._count()
                if state := checked_state(sync_data, self.from_page):
                    with self.page_lock:
                        super().set_state(state)  # type: ignore[misc]
            except Exception:
                self.send_state()  # type: ignore[attr-defined]
                raise

    @contextmanager
    def _never_raising(self) -> Iterator[None]:
        try:
            yield
        except MessageRefused as refused:
            self.refuse(str(refused))
        except Exception as error:  # ipywidgets would print it into some cell
            self.fail(error)

    def _count(self) -> None:
        self._intake = self._intake or Intake()
        self._intake.take()
