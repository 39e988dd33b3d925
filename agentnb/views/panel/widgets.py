"""A widget that shows one run, from when it is made until it is closed."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from html import escape
from typing import Any

from ipywidgets import HTML, Box, DOMWidget, Widget

from agentnb.core.text import visible
from agentnb.views.panel.frames import TICK_S, FramePublisher
from agentnb.views.panel.messages import Guarded
from agentnb.views.panel.show import Live
from agentnb.views.panel.wire import Frame, Summary

_LINE_LENGTH = 300


class ClosableWidget(Live, Guarded, DOMWidget):
    """A widget that is closed with all that belongs to it, and prints the same in every run."""

    def close(self) -> None:
        """Take it from all screens; it costs nothing from then on."""
        _close_parts(self)
        super().close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _close_parts(widget: Widget) -> None:
    """Close what the kernel would keep for good: what is in a widget, its layout, its style."""
    children = widget.children if isinstance(widget, Box) else ()
    for part in (*children, getattr(widget, "layout", None), getattr(widget, "style", None)):
        if isinstance(part, Widget):
            _close_parts(part)
            part.close()


class RunWidget(ClosableWidget):
    """A widget that is shown the frames of a run. To stand before a class of ipywidgets."""

    publisher: FramePublisher | None = None

    def attach(self, publisher: FramePublisher) -> None:
        """Begin to show a run, everything so far at once. The widget is made by then."""
        self.publisher = publisher
        publisher.attach(self)

    def refuse(self, reason: str) -> None:
        """Count a message of a page that made no sense, and tell of the first."""
        if self.publisher is not None:
            self.publisher.refuse(reason)

    def fail(self, error: Exception) -> None:
        """Tell a person what went wrong with a message of a page."""
        if self.publisher is not None:
            self.publisher.tell(str(error) or type(error).__name__)

    @property
    def page_lock(self) -> AbstractContextManager[object]:
        """No frame may come in the middle of what a page changes."""
        return nullcontext() if self.publisher is None else self.publisher.lock

    def show(self, frame: Frame) -> None:
        """Show what is new. Called by one thread at a time."""
        raise NotImplementedError

    @property
    def is_read(self) -> bool:
        """No text of an agent is in it: `show` alone tells it everything."""
        return False

    def read_on(self) -> None:
        """Nothing, since it is not read."""

    def close(self) -> None:
        """Take it from all screens; it costs nothing from then on."""
        # A widget closes again when it is collected, on any thread: that one must not wait here.
        if self.publisher is not None and self.comm is not None:
            self.publisher.detach(self)
        super().close()


class GuardedPart(Guarded):
    """For a widget within a run's widget, which answers for it. To stand before its base class."""

    def __init__(self, whole: RunWidget, **traits: Any) -> None:
        self._whole = whole
        super().__init__(**traits)

    def refuse(self, reason: str) -> None:
        """Count a message of a page that made no sense, and tell of the first."""
        self._whole.refuse(reason)

    def fail(self, error: Exception) -> None:
        """Tell a person what went wrong with a message of a page."""
        self._whole.fail(error)

    @property
    def page_lock(self) -> AbstractContextManager[object]:
        """No frame may come in the middle of what a page changes."""
        return self._whole.page_lock


class HtmlPart(RunWidget, HTML):
    """Markup of ours, made anew from every summary, and sent where it has changed.

    Every text in it that is not ours goes through `text`: it is shown, and never markup.
    """

    value: str
    _matters: tuple[object, ...] = ()
    _shown_s = 0.0

    def __init__(self, publisher: FramePublisher, **traits: Any) -> None:
        with publisher.lock:  # no frame may come before it can show it
            super().__init__(**traits)
            self.attach(publisher)

    def show(self, frame: Frame) -> None:
        """Show a summary: what matters at once, and numbers that grow at their own pace."""
        summary = frame.summary
        matters = self.matters(summary)
        if matters == self._matters and summary.at_s < self._shown_s + TICK_S:
            return
        markup = self.markup(summary)
        if markup != self.value:
            self._matters, self._shown_s = matters, summary.at_s
            self.value = markup

    def matters(self, summary: Summary) -> tuple[object, ...]:
        """What is shown at once when it changes."""
        return summary.status, summary.done, summary.question, summary.budget_total

    def markup(self, summary: Summary) -> str:
        """What it shows of a run."""
        raise NotImplementedError


def text(words: str) -> str:
    """Words of anybody, as one line of markup that shows them."""
    return escape(visible(words, _LINE_LENGTH))


def clock(seconds: float) -> str:
    """A time of a run as `0:07`, `12:30` or `1:02:03`."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
