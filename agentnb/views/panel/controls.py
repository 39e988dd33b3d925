"""What a person steers a run's budget and end with: standard widgets that know one run.

A control shows what the run says, and turns what a person changes, in the browser or in Python,
into an order. What it changes itself is never an order. Both come on any thread: the feed's lock
keeps them apart. The run's own thread never takes it here, so nothing holds up the run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ipywidgets import BoundedIntText, Button, IntSlider, Layout

from agentnb.views.panel.attached import Attached, Page
from agentnb.views.panel.comm import hear
from agentnb.views.panel.feed import Feed
from agentnb.views.panel.limits import (
    allowed_total,
    ceiling,
    highest_total,
    slider_end,
    slider_step,
)
from agentnb.views.panel.news import News, Summary
from agentnb.views.panel.wish import Wish

_thread = threading.local()


@contextmanager
def _no_order() -> Iterator[None]:
    """What is changed here is no person's doing, nor what changes with it in linked controls."""
    before = getattr(_thread, "is_ours", False)
    _thread.is_ours = True
    try:
        yield
    finally:
        _thread.is_ours = before


class _BudgetControl(Attached):
    """A number that is the run's total.

    Raises:
        NotebookError: `AGENTNB_BUDGET_CEILING` holds no number of tokens.
    """

    _may_stop = False
    """Whether it may set the total to what is used, which ends the run."""

    def __init__(self, feed: Feed, **traits: Any) -> None:
        self.ceiling = ceiling()
        self.feed = feed
        with feed.lock, _no_order():
            total = feed.whole().summary.budget_total
            self._wish = Wish(total)
            super().__init__(min=0, value=total, **self._bounds(total, 0), **traits)
            self.attach(feed)
        hear(self)
        self.observe(self._changed, "value")

    def _bounds(self, total: int, end: int) -> dict[str, int]:
        """How far the control goes when it shows `total`, and went to `end` until now."""
        raise NotImplementedError

    def show(self, news: News) -> None:
        """Follow the run, but for what a person ordered and it does not have yet."""
        summary = news.summary
        if summary.done:
            self._wish.forget()
        self._put(self._wish.heard(summary.budget_total))
        self.disabled = summary.done or self.feed is None or self.feed.orders is None

    def _put(self, total: int) -> None:
        """Show a total. What stays as it is is not sent: somebody may be about to change it."""
        with _no_order(), self.hold_sync():
            for name, bound in self._bounds(total, self.max).items():
                setattr(self, name, bound)
            self.value = total

    def set_state(self, sync_data: Mapping[str, Any]) -> None:
        """Take what a front end says; what makes no sense is told, and put right there."""
        assert self.feed is not None
        with self.feed.lock:
            try:
                super().set_state(sync_data)
            except Exception as error:
                self._tell(error)
                self.send_state()

    def _changed(self, change: Mapping[str, Any]) -> None:
        if getattr(_thread, "is_ours", False) or self.feed is None:
            return
        try:
            with self.feed.lock:
                self._order(self.feed, change["new"])
        except Exception as error:
            self._tell(error)

    def _order(self, feed: Feed, wanted: int) -> None:
        """Have the run take a total, or the nearest one that it may have."""
        summary, orders = feed.whole().summary, feed.orders
        if orders is None or summary.done:
            self._put(summary.budget_total)
            return
        highest = highest_total(summary.budget_total, self.ceiling)
        total = allowed_total(wanted, used=summary.tokens_used, highest=highest)
        if wanted < summary.tokens_used and not self._may_stop:
            self._put(self._wish.shown)
            orders.tell(_below_used(summary.tokens_used, self._wish.shown))
            return
        if total != self._wish.shown:
            self._wish.give(total)
            orders.set_budget(total, made=self._wish.made)
        self._put(self._wish.shown)
        if total > wanted:
            orders.tell(f"The budget is set to {total:,} tokens: so many are used already.")
        elif total < wanted:
            orders.tell(f"The budget is set to {total:,} tokens: it may not be larger.")

    def _tell(self, error: Exception) -> None:
        """A widget's callback has nobody to raise to: its traceback would land in some cell."""
        if self.feed is not None and self.feed.orders is not None:
            self.feed.orders.tell_error(error)


def _below_used(used: int, total: int) -> str:
    return (
        f"The budget stays at {total:,} tokens: {used:,} are used already, and a total below that "
        "would end the run. Type it without points or commas; to end the run, cancel it."
    )


class BudgetSlider(_BudgetControl, IntSlider):
    """The total as a slider, which ends at about twice the total and grows with it.

    Args:
        feed: The run's frames.
        traits: Of `ipywidgets.IntSlider`.
    """

    _may_stop = True

    def __init__(self, feed: Feed, **traits: Any) -> None:
        # The readout is read as it is shown: with commas in it, 50,000 would be taken for 50.
        traits = {"description": "Budget", "readout_format": "d", **traits}
        super().__init__(feed, continuous_update=False, **traits)
        self.add_class("agentnb-budget-slider")

    def _bounds(self, total: int, end: int) -> dict[str, int]:
        end = slider_end(total, end=end, ceiling=self.ceiling)
        return {"max": end, "step": slider_step(end)}


class BudgetNumber(_BudgetControl, BoundedIntText):
    """The total as a number: any that is wanted, up to the ceiling.

    Args:
        feed: The run's frames.
        traits: Of `ipywidgets.BoundedIntText`.
    """

    def __init__(self, feed: Feed, **traits: Any) -> None:
        traits = {"description": "Total tokens", "layout": Layout(width="15em"), **traits}
        traits = {"style": {"description_width": "initial"}, **traits}
        super().__init__(feed, **traits)
        self.add_class("agentnb-budget-number")

    def _bounds(self, total: int, end: int) -> dict[str, int]:
        return {"max": highest_total(total, self.ceiling)}


class CancelButton(Attached, Button):
    """Stops the whole run, once.

    Args:
        feed: The run's frames.
        traits: Of `ipywidgets.Button`.
    """

    def __init__(self, feed: Feed, **traits: Any) -> None:
        with feed.lock:
            super().__init__(**{"description": "Cancel run", **traits})
            self.add_class("agentnb-cancel-run")
            self.attach(feed)
        hear(self)
        self.on_click(lambda _: self._pressed())

    def show(self, news: News) -> None:
        """There is nothing to cancel any more when the run is done."""
        if news.summary.done or self.feed is None or self.feed.orders is None:
            self._say("The run has ended", disabled=True)

    def _pressed(self) -> None:
        # Without the feed's lock: a click must not wait until a frame is made.
        if not self.disabled and self.feed is not None and self.feed.orders is not None:
            self._say("Cancelling…", disabled=True)
            self.feed.orders.cancel(made=self._made)

    def _made(self, worked: bool) -> None:
        if not worked:
            self._say(None, disabled=False)

    def _say(self, tooltip: str | None, *, disabled: bool) -> None:
        self.tooltip, self.disabled = tooltip, disabled


class BudgetBar(Page):
    """How much of the budget is used, in colour, length and words.

    Args:
        feed: The run's frames.
    """

    def markup(self, summary: Summary) -> str:
        """A bar that a screen reader reads as one, and the same in words."""
        return bar_markup(summary.tokens_used, summary.budget_total)


def bar_markup(used: int, total: int) -> str:
    """The pot as a bar: below 80 %, running low, or used up."""
    percent, word, colour = _level(used, total)
    tokens, share = f"{used:,} of {total:,} tokens", f"({percent} %)"
    level = f", {word}" if word else ""
    filled = min(percent, 100)
    return (
        '<div class="agentnb-budget-bar" style="line-height:1.4">'
        f'<div role="progressbar" aria-label="Budget used" aria-valuemin="0" aria-valuemax="100" '
        f'aria-valuenow="{filled}" aria-valuetext="{tokens} {share}{level}" '
        'style="height:8px;overflow:hidden;'
        'border:1px solid var(--jp-border-color0,#757575);border-radius:4px">'
        f'<div style="width:{filled}%;height:100%;background:{colour}"></div></div>'
        f'<div aria-hidden="true">{tokens} <span style="white-space:nowrap">{share}{level}</span>'
        "</div></div>"
    )


def _level(used: int, total: int) -> tuple[int, str, str]:
    """Per cent, a word and a colour. Rounded, but never up to what is not reached."""
    percent = (200 * used + total) // (2 * total) if total else 100
    if used >= total:
        return max(percent, 100), "used up", "var(--jp-error-color1,#d32f2f)"
    if 100 * used >= 80 * total:
        return min(percent, 99), "running low", "var(--jp-warn-color1,#f57c00)"
    return min(percent, 79), "", "var(--jp-brand-color1,#1976d2)"
