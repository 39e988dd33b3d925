"""Base classes of the widgets that show a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from html import escape
from typing import Any

import anywidget
from ipywidgets import Box, DOMWidget, Widget
from traitlets import Unicode

from agentnb.core.text import visible
from agentnb.views.panel.frames import TICK_S, FramePublisher
from agentnb.views.panel.messages import Guarded
from agentnb.views.panel.module import joined_module
from agentnb.views.panel.show import Live, take_back
from agentnb.views.panel.wire import Frame, Summary

_LINE_LENGTH = 300


class ClosableWidget(Live, Guarded, DOMWidget):
    """A widget that closes with all its parts, and has a constant `repr`."""

    def close(self) -> None:
        """Remove it from all pages and stop updating it."""
        if self.comm is not None:  # else garbage collection closes it again
            take_back(self.model_id)
        for part in [*_below(self)]:
            part.close()
        super().close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _below(widget: Widget) -> Iterator[Widget]:
    """A widget's children, layout and style, and theirs: the kernel would keep each for ever."""
    children = widget.children if isinstance(widget, Box) else ()
    for part in (*children, getattr(widget, "layout", None), getattr(widget, "style", None)):
        if isinstance(part, Widget):
            yield from _below(part)
            yield part


def hide_until_live(control: DOMWidget) -> None:
    """Hide a control of ipywidgets until our own code, in the page, shows it.

    So no page offers it where that code is not loaded, as a strict policy forbids, or no kernel
    answers.
    """
    control.layout.visibility = "hidden"
    control.add_class("agentnb-control")


class RunWidget(ClosableWidget):
    """Mixin, before a class of ipywidgets: shows a run's frames until it is closed."""

    publisher: FramePublisher | None = None

    def attach(self, publisher: FramePublisher) -> None:
        """Begin to show a run, with a full frame at once. Call it after the widget is made."""
        self.publisher = publisher
        publisher.attach(self)

    def refuse(self, reason: str) -> None:
        """Count a refused message from a page, and show the first one."""
        if self.publisher is not None:
            self.publisher.refuse(reason)

    def fail(self, error: Exception) -> None:
        """Show an error in handling a message from a page."""
        if self.publisher is not None:
            self.publisher.tell(str(error) or type(error).__name__)

    @property
    def page_lock(self) -> AbstractContextManager[object]:
        """The publisher's lock: no frame may come in the middle of a page's change."""
        return nullcontext() if self.publisher is None else self.publisher.lock

    def show(self, frame: Frame) -> None:
        """Show what changed. Called by one thread at a time."""
        raise NotImplementedError

    @property
    def is_read(self) -> bool:
        """False: it shows no text of an agent."""
        return False

    def read_on(self) -> None:
        """Do nothing: it shows no text of an agent."""

    def renew(self) -> None:
        """Send its whole state again, for a front end that may have missed it."""
        for widget in (self, *_below(self)):
            widget.send_state()

    def close(self) -> None:
        """Remove it from all pages and stop updating it."""
        # Garbage collection closes a widget again, on any thread, which must not wait here.
        if self.publisher is not None and self.comm is not None:
            self.publisher.detach(self)
        super().close()


class GuardedPart(Guarded):
    """Mixin, before a widget's class: a part of a `RunWidget`, which handles its errors."""

    def __init__(self, whole: RunWidget, **traits: Any) -> None:
        self._whole = whole
        super().__init__(**traits)

    def refuse(self, reason: str) -> None:
        """Count a refused message from a page, and show the first one."""
        self._whole.refuse(reason)

    def fail(self, error: Exception) -> None:
        """Show an error in handling a message from a page."""
        self._whole.fail(error)

    @property
    def page_lock(self) -> AbstractContextManager[object]:
        """The publisher's lock: no frame may come in the middle of a page's change."""
        return self._whole.page_lock


class Markup(Guarded, anywidget.AnyWidget):
    """Shows our own markup. All foreign text in it goes through `text`: it is never markup.

    Its style (`parts.css`) is beside it, with the tree or the field: a notebook saves each copy.
    """

    _esm = Unicode().tag(sync=True)
    value = Unicode().tag(sync=True)

    def __init__(self, **traits: Any) -> None:
        super().__init__(_esm=joined_module("markup.js"), **traits)


class HtmlPart(RunWidget, Markup):
    """Shows our own markup, made from each summary and sent if it changed.

    A change is a message; its state, which a notebook saves, is renewed with that of other views.
    """

    publisher: FramePublisher
    value = Unicode().tag(sync=True, to_json=lambda _, part: part._kept)
    _kept = ""
    """The value that a page gets as state: see `TreeView._kept`."""
    _matters: tuple[object, ...] = ()
    _shown_s = 0.0

    def __init__(self, publisher: FramePublisher, **traits: Any) -> None:
        with publisher.lock:  # no frame may come before the widget is made
            super().__init__(**traits)
            self.attach(publisher)

    def show(self, frame: Frame) -> None:
        """Show a summary: at once if `matters` changed, else once per tick."""
        summary, is_kept = frame.summary, frame.is_kept or frame.summary.done
        matters = self.matters(summary)
        if is_kept or matters != self._matters or summary.at_s >= self._shown_s + TICK_S:
            if (markup := self.markup(summary)) != self.value:
                self._matters, self._shown_s = matters, summary.at_s
                self.value = markup
        if is_kept:
            self._kept = self.value
            self.send_state("value")

    def notify_change(self, change: Any) -> None:
        """Send new markup as a message: ipywidgets would send it as state. Nothing observes it."""
        if change["name"] == "value":
            self.send({"value": change["new"]})
        else:
            super().notify_change(change)

    def matters(self, summary: Summary) -> tuple[object, ...]:
        """The values whose changes are shown at once."""
        return (
            summary.status,
            summary.done,
            summary.question,
            summary.budget_total,
            summary.is_paused,
            summary.questions,
            summary.notices,
        )

    def markup(self, summary: Summary) -> str:
        """The markup for a summary."""
        raise NotImplementedError


def text(words: str) -> str:
    """Foreign text as one line of safe markup."""
    return escape(visible(words, _LINE_LENGTH))
