"""Widgets that control a run's budget and cancel it.

A control shows the run's state, and turns a change by the user, in the browser or in Python, into
a command. Its own changes are never commands. Both happen on any thread, under the lock of the
frames. The run's own thread never takes that lock here, so a control never delays the run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import anywidget
from ipywidgets import Button, DOMWidget, IntSlider, Layout, VBox
from traitlets import Bool, Int, Unicode

from agentnb.core.money import (
    TOKENS,
    NotMoney,
    in_words,
    looks_like_money,
    micros_in,
    money_text,
    share_in_words,
)
from agentnb.views.panel.comm import hear
from agentnb.views.panel.commands import PendingValue
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.limits import (
    UnclearNumber,
    allowed_total,
    ceiling,
    highest_total,
    slider_end,
    slider_step,
    tokens_of,
)
from agentnb.views.panel.module import joined_module, source
from agentnb.views.panel.rules import rules_of
from agentnb.views.panel.widgets import (
    ClosableWidget,
    GuardedPart,
    HtmlPart,
    Markup,
    RunWidget,
    hide_until_live,
    text,
)
from agentnb.views.panel.wire import FieldState, Frame, NewestMessage, SliderState, Summary


class _Thread(threading.local):
    is_ours = False
    """Whether changes on this thread are the control's own, not the user's."""


_thread = _Thread()


@contextmanager
def _own_change() -> Iterator[None]:
    """Mark changes made here, and those they cause in linked controls, as not the user's."""
    before = _thread.is_ours
    _thread.is_ours = True
    try:
        yield
    finally:
        _thread.is_ours = before


class Keeper(ClosableWidget, anywidget.AnyWidget):
    """Is beside a control in a page without a tree, and is never shown.

    The control is a widget of ipywidgets, which Python cannot reach in a saved page: a little
    JavaScript shows it (see `hide_until_live`) while a kernel would hear it. It also names a
    slider's handle: a screen reader would only say "slider, 50000", and forced colours would hide
    it.
    """

    _esm = Unicode().tag(sync=True)
    _css = Unicode().tag(sync=True)
    control = Unicode().tag(sync=True)
    """The class of the control's elements."""

    def __init__(self, control: DOMWidget) -> None:
        name = f"agentnb-control-{control.model_id}"
        control.add_class(name)
        module, css = joined_module("keeper.js"), source("controls.css")
        super().__init__(_esm=module, _css=css, control=name)

    def take(self, content: Mapping[str, Any]) -> None:
        """Answer a page that asks whether a kernel is there."""
        if content.get("type") in ("hello", "sync"):
            self.send(NewestMessage(type="newest"))


class _Control(RunWidget):
    """A control of a run, in a panel or alone in a page."""

    _keeper: Keeper | None = None

    def _begin_hidden(self, *, is_alone: bool) -> None:
        hide_until_live(self)
        if is_alone:
            self._keeper = Keeper(self)

    def close(self) -> None:
        """Remove it from all pages and stop updating it."""
        if self._keeper is not None:
            self._keeper.close()
        super().close()


class _BudgetControl(_Control):
    """A control that shows and sets the run's total.

    Raises:
        NotebookError: `AGENTNB_BUDGET_CEILING` is not a number of tokens.
    """

    value: int
    max: int
    disabled: bool
    _may_stop = False
    """Whether it may lower the total to what is used, which ends the run."""

    def _begin(self, publisher: FramePublisher) -> int:
        """Prepare before the widget is made, under the publisher's lock; returns the total."""
        summary = publisher.whole().summary
        self._unit = summary.unit
        # The teacher's ceiling is a number of tokens.
        self.ceiling = ceiling() if self._unit == TOKENS else None
        self.publisher = publisher
        total = summary.budget_total
        self._pending = PendingValue(total)
        return total

    def show(self, frame: Frame) -> None:
        """Show the run's total, unless the user has set one that is still pending."""
        summary = frame.summary
        if summary.done:
            self._pending.forget()
        self._put(self._pending.heard(summary.budget_total))
        self.disabled = summary.done or self.publisher is None or self.publisher.commands is None

    def _put(self, total: int) -> None:
        """Show a total. Send only changes, so as not to disturb a user who is typing."""
        raise NotImplementedError

    def _say(self, line: str) -> None:
        """Tell the user if the run's total is not the one they set."""
        if self.publisher is not None and self.publisher.commands is not None:
            self.publisher.commands.tell(line)

    def _changed(self, change: Mapping[str, Any]) -> None:
        if _thread.is_ours or self.publisher is None:
            return
        try:
            with self.publisher.lock:
                self._set_total(self.publisher, change["new"])
        except Exception as error:
            self.fail(error)

    def _set_total(self, publisher: FramePublisher, wanted: int) -> None:
        """Set the run's total to the nearest allowed one."""
        summary, commands = publisher.whole().summary, publisher.commands
        if commands is None or summary.done:
            self._put(summary.budget_total)
            return
        highest = highest_total(summary.budget_total, self.ceiling)
        total = allowed_total(wanted, used=summary.tokens_used, highest=highest)
        if wanted < summary.tokens_used and not self._may_stop:
            self._put(self._pending.shown)
            self._say(_below_used(summary.tokens_used, self._pending.shown, self._unit))
            return
        if total != self._pending.shown:
            self._pending.give(total)
            commands.set_budget(total, made=self._pending.made)
        self._put(self._pending.shown)
        if total > wanted:
            many = "that many are" if self._unit == TOKENS else "that much is"
            self._say(f"The budget is set to {in_words(total, self._unit)}: {many} already used.")
        elif total < wanted:
            self._say(f"The budget is set to {in_words(total, self._unit)}: that is the maximum.")

    def fail(self, error: Exception) -> None:
        """Show an error: raised from a widget's callback, it would be printed into some cell."""
        if self.publisher is not None and self.publisher.commands is not None:
            self.publisher.commands.tell_error(error)


def _below_used(used: int, total: int, unit: str) -> str:
    of_it = f"{used:,} are" if unit == TOKENS else f"{in_words(used, unit)} is"
    return (
        f"The budget stays at {in_words(total, unit)}: {of_it} already used, and a total below "
        "that would end the run. To end the run, cancel it."
    )


class BudgetSlider(_BudgetControl, IntSlider):
    """The total as a slider, which ends at about twice the total and grows with it.

    Args:
        publisher: The run's frames.
        is_alone: Whether it is in no panel, which would name its handle.
        traits: Of `ipywidgets.IntSlider`.
    """

    _may_stop = True
    from_page = rules_of(SliderState)

    def __init__(self, publisher: FramePublisher, *, is_alone: bool = True, **traits: Any) -> None:
        # The readout is parsed as shown: with commas, 50,000 would be read as 50.
        traits = {"description": "Budget", "readout_format": "d", **traits}
        with publisher.lock, _own_change():
            total = self._begin(publisher)
            bounds = self._bounds(total, 0)
            if self._unit != TOKENS:  # its value is in micro-dollars: the label says dollars
                traits |= {"readout": False, "description": self._label(total)}
            super().__init__(min=0, value=total, continuous_update=False, **bounds, **traits)
            self.attach(publisher)
        hear(self)
        self.observe(self._changed, "value")
        self.add_class("agentnb-budget-slider")
        if self._unit != TOKENS:
            self.add_class("agentnb-in-dollars")  # its handle speaks of dollars
        self._begin_hidden(is_alone=is_alone)

    def _put(self, total: int) -> None:
        with _own_change(), self.hold_sync():
            for name, bound in self._bounds(total, self.max).items():
                setattr(self, name, bound)
            self.value = total
            if self._unit != TOKENS:
                self.description = self._label(total)

    def _label(self, total: int) -> str:
        return f"Budget {in_words(total, self._unit)}"

    def _bounds(self, total: int, end: int) -> dict[str, int]:
        """The slider's end and step for `total`, when it ended at `end` before."""
        end = slider_end(total, end=end, ceiling=self.ceiling)
        return {"max": end, "step": slider_step(end)}


class BudgetNumber(_BudgetControl, VBox):
    """The total as a number, up to the ceiling, in many notations.

    A text field, since a browser's number field drops characters that it does not know: `2e5` would
    become 25. A line below it shows errors, and the number that was read if it is written
    differently.

    Args:
        publisher: The run's frames.
        is_alone: Whether it is in no panel, which would bring its style.
        traits: Of its field: `layout`, `description`.
    """

    value = Int().tag(sync=False)
    """The total, in tokens or micro-dollars. Python code can set and observe it."""
    max = Int().tag(sync=False)
    """The largest allowed total."""
    disabled = Bool(False).tag(sync=False)

    def __init__(self, publisher: FramePublisher, *, is_alone: bool = True, **traits: Any) -> None:
        with publisher.lock, _own_change():
            total = self._begin(publisher)
            css = source("parts.css") if is_alone else ""
            label = "Total tokens" if self._unit == TOKENS else "Total dollars"
            traits = {"description": label, "layout": Layout(width="15em"), **traits}
            shown = self._shown(total)
            self.field = _Field(self, value=shown, _css=css, **traits)
            self.line = Markup(layout=Layout(display="none", max_width="24em"))
            self._said_at = total
            layout = Layout(overflow="visible", flex="0 1 auto")
            super().__init__([self.field, self.line], layout=layout)
            self._put(total)
            self.attach(publisher)
        hear(self.field)
        self.field.observe(self._typed, "value")
        self.observe(self._changed, "value")
        self.observe(lambda change: self._rest(change["new"]), "disabled")
        self._rest(self.disabled)
        self.add_class("agentnb-budget-number")
        self._begin_hidden(is_alone=is_alone)

    def _put(self, total: int) -> None:
        if total != self._said_at:
            self._answer("")
        with _own_change():
            self.max = highest_total(total, self.ceiling)
            changed, self.value = total != self.value, total
            # Keep text that the user is correcting, until the total changes.
            if changed or not self.line.value:
                self.field.value = self._shown(total)

    def _shown(self, total: int) -> str:
        return str(total) if self._unit == TOKENS else money_text(total)

    def _read(self, typed: str) -> int:
        """A total as it was typed: tokens, or dollars with or without their sign."""
        if self._unit == TOKENS:
            return tokens_of(typed)
        try:
            return micros_in(typed if looks_like_money(typed) else f"${typed.strip()}")
        except NotMoney as error:
            raise UnclearNumber(str(error)) from None

    def _typed(self, change: Mapping[str, Any]) -> None:
        """The user has finished typing: set the total if the text is clear."""
        if _thread.is_ours or self.publisher is None:
            return
        typed = change["new"]
        with self.publisher.lock:
            self._answer("")
            if not typed.strip():
                self._put(self._pending.shown)
                return
            try:
                total = self._read(typed)
            except UnclearNumber as error:
                self._answer(f"{error} The total stays as it is.")
                return
            before = self._pending.shown
            if total == self.value:
                self._put(before)
            else:
                self.value = total
            is_taken = self._pending.shown == total and not self.line.value
            if is_taken and typed.strip() != self._shown(total):
                self._answer(f"{typed.strip()} is {in_words(total, self._unit)}.", role="status")

    def _say(self, line: str) -> None:
        self._answer(line)

    def _answer(self, line: str, *, role: str = "alert") -> None:
        """Show a line below the field, announced by screen readers; an empty one hides it."""
        self._said_at = self._pending.shown
        # Show the element before its text: an alert is announced when it appears.
        self.line.layout.display = "" if line else "none"
        shown = f'<div role="{role}" style="line-height:1.4">{text(line)}</div>'
        self.line.value = shown if line else ""

    def _rest(self, is_disabled: bool) -> None:
        self.field.disabled = is_disabled


class _Field(GuardedPart, anywidget.AnyWidget):
    """The text field of `BudgetNumber`."""

    _esm = Unicode().tag(sync=True)
    _css = Unicode().tag(sync=True)
    value = Unicode().tag(sync=True)
    description = Unicode().tag(sync=True)
    disabled = Bool(False).tag(sync=True)
    from_page = rules_of(FieldState)

    def __init__(self, whole: RunWidget, **traits: Any) -> None:
        super().__init__(whole, _esm=joined_module("text_field.js"), **traits)


class CancelButton(_Control, Button):
    """Stops the whole run, once.

    Args:
        publisher: The run's frames.
        is_alone: Whether it is in no panel.
        traits: Of `ipywidgets.Button`.
    """

    def __init__(self, publisher: FramePublisher, *, is_alone: bool = True, **traits: Any) -> None:
        with publisher.lock:
            super().__init__(**{"description": "Cancel run", **traits})
            self.add_class("agentnb-cancel-run")
            self.attach(publisher)
        hear(self)
        self.on_click(lambda _: self._pressed())
        self._begin_hidden(is_alone=is_alone)

    def show(self, frame: Frame) -> None:
        """Disable the button when the run has ended."""
        if frame.summary.done or self.publisher is None or self.publisher.commands is None:
            self._say("The run has ended", disabled=True)

    def _pressed(self) -> None:
        # Without the publisher's lock: a click must not wait until a frame is made.
        if not self.disabled and self.publisher is not None and self.publisher.commands is not None:
            self._say("Cancelling…", disabled=True)
            self.publisher.commands.cancel(made=self._made)

    def _made(self, worked: bool) -> None:
        if not worked:
            self._say(None, disabled=False)

    def _say(self, tooltip: str | None, *, disabled: bool) -> None:
        self.tooltip, self.disabled = tooltip, disabled


class PauseButton(_Control, Button):
    """Pauses or resumes the whole run.

    Args:
        publisher: The run's frames.
        is_alone: Whether it is in no panel.
        traits: Of `ipywidgets.Button`.
    """

    def __init__(self, publisher: FramePublisher, *, is_alone: bool = True, **traits: Any) -> None:
        self._is_paused = False
        self._is_given = False
        """Whether its last command was not executed yet."""
        with publisher.lock:
            super().__init__(**{"description": _PAUSE, **traits})
            self.add_class("agentnb-pause-run")
            self.attach(publisher)
        hear(self)
        self.on_click(lambda _: self._pressed())
        self._begin_hidden(is_alone=is_alone)

    def show(self, frame: Frame) -> None:
        """Name what the button does now; disable it when the run has ended."""
        self._is_paused = frame.summary.is_paused
        self.description = _RESUME if self._is_paused else _PAUSE
        is_over = frame.summary.done or self.publisher is None or self.publisher.commands is None
        self.tooltip = "The run has ended" if is_over else _TOOLTIP
        self.disabled = is_over or self._is_given

    def _pressed(self) -> None:
        # Without the publisher's lock: see `CancelButton`.
        if self.disabled or self.publisher is None or self.publisher.commands is None:
            return
        commands = self.publisher.commands
        self._is_given = self.disabled = True
        (commands.resume if self._is_paused else commands.pause)(made=self._made)

    def _made(self, worked: bool) -> None:
        self._is_given = self.disabled = False


_PAUSE, _RESUME = "Pause run", "Resume run"
_TOOLTIP = "No new call or tool starts while the run is paused; open ones finish"


class BudgetBar(HtmlPart):
    """How much of the budget is used, in colour, length and words.

    Args:
        publisher: The run's frames.
    """

    def markup(self, summary: Summary) -> str:
        """A progress bar, and the same in words."""
        return bar_markup(summary.tokens_used, summary.budget_total, summary.unit)


def bar_markup(used: int, total: int, unit: str = TOKENS) -> str:
    """The budget as a bar: below 80 %, running low, or used up."""
    percent, word, colour = _level(used, total)
    tokens, share = share_in_words(used, total, unit), f"({percent} %)"
    level = f", {word}" if word else ""
    filled = min(percent, 100)
    return (
        # Side by side, or one above the other in a narrow cell.
        '<div class="agentnb-budget-bar" style="display:flex;flex-wrap:wrap;align-items:center;'
        'gap:0 10px;line-height:1.4">'
        f'<div role="progressbar" aria-label="Budget used" aria-valuemin="0" aria-valuemax="100" '
        f'aria-valuenow="{filled}" aria-valuetext="{tokens} {share}{level}" '
        'style="flex:1 1 8em;box-sizing:border-box;height:10px;overflow:hidden;'
        'border:1px solid var(--jp-border-color0,#757575);border-radius:4px">'
        # Forced colours remove a background; the style sheet sets one that stays.
        f'<div style="width:{filled}%;height:100%;forced-color-adjust:none;'
        f'background:var(--agentnb-used,{colour})"></div></div>'
        f'<div aria-hidden="true">{tokens} <span style="white-space:nowrap">{share}{level}</span>'
        "</div></div>"
    )


def _level(used: int, total: int) -> tuple[int, str, str]:
    """Per cent, a word and a colour. Never rounded up across a limit."""
    percent = (200 * used + total) // (2 * total) if total else 100
    if used >= total:
        return max(percent, 100), "used up", "var(--jp-error-color1,#d32f2f)"
    if 100 * used >= 80 * total:
        return min(percent, 99), "running low", "var(--jp-warn-color1,#f57c00)"
    return min(percent, 79), "", "var(--jp-brand-color1,#1976d2)"
