"""A widget that shows one run, from when it is made until it is closed."""

from __future__ import annotations

from html import escape
from typing import Any

from ipywidgets import HTML, Box, DOMWidget, Widget

from agentnb.core.text import visible
from agentnb.views.panel.feed import TICK_S, Feed
from agentnb.views.panel.messages import Guarded
from agentnb.views.panel.news import News, Summary
from agentnb.views.panel.show import Live

_LINE_LENGTH = 300


class Whole(Live, Guarded, DOMWidget):
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


class Attached(Whole):
    """A widget that is told the news of a run. To stand before a class of ipywidgets."""

    feed: Feed | None = None

    def attach(self, feed: Feed) -> None:
        """Begin to show a run, everything so far at once. The widget is made by then."""
        self.feed = feed
        feed.attach(self)

    def refuse(self, reason: str) -> None:
        """Count a message of a page that made no sense, and tell of the first."""
        if self.feed is not None:
            self.feed.refuse(reason)

    def show(self, news: News) -> None:
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
        if self.feed is not None and self.comm is not None:
            self.feed.detach(self)
        super().close()


class Page(Attached, HTML):
    """Markup of ours, made anew from every summary, and sent where it has changed.

    Every text in it that is not ours goes through `text`: it is shown, and never markup.
    """

    value: str
    _matters: tuple[object, ...] = ()
    _shown_s = 0.0

    def __init__(self, feed: Feed, **traits: Any) -> None:
        with feed.lock:  # no news may come before it can show them
            super().__init__(**traits)
            self.attach(feed)

    def show(self, news: News) -> None:
        """Show a summary: what matters at once, and numbers that grow at their own pace."""
        summary = news.summary
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
