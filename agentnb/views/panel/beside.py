"""A run in words, in an output beside its live view: for a page that shows no live view.

A saved notebook without the state of widgets, and a front end that cannot load them, have this. It
is hidden while the live view before it is alive (`cell.css`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from agentnb.views.figures.words import counted
from agentnb.views.front_end import is_notebook, wanted_display
from agentnb.views.markdown import text_html
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.header import agents_in_words, status_in_words, used_in_words
from agentnb.views.panel.show import show_in_words
from agentnb.views.panel.wire import Frame, Summary
from agentnb.views.table import Table

MEANWHILE = "agentnb-meanwhile"
"""The class of the words in a cell that waits for its run."""
_LIVE = (
    "It does not move here, and a reloaded page keeps it: while its kernel runs, `%spawn status` "
    "and `run.panel()` show it live."
)
_WAITS = (
    "It does not move here, and a reloaded page keeps it: there the live view is back when the "
    "cell has ended. `agentnb.runs()` lists the run, also if its kernel is gone."
)
_LOADED = "It had not ended when it was loaded: load it again for what came since."


class Beside:
    """Shows a run as a line, and perhaps a table, until it has ended.

    Args:
        publisher: The run's frames.
        table: What is shown below the line; `None` for nothing.
        kind: A further class of its HTML.
    """

    is_read = False
    """It shows no text of an agent."""

    def __init__(
        self,
        publisher: FramePublisher,
        table: Callable[[], Table | None] = lambda: None,
        kind: str = "",
    ) -> None:
        self._publisher, self._table, self._kind = publisher, table, kind
        self._display_id: str | None = None
        if is_notebook() and wanted_display() not in ("widget", "none"):
            publisher.attach(self)

    def show(self, frame: Frame) -> None:
        """Show the run as it is now, if enough has changed."""
        if frame.is_kept:
            self._tell(frame.summary)

    def read_on(self) -> None:
        """Do nothing: it shows no text of an agent."""

    def renew(self) -> None:
        """Show the run again."""
        self._tell(self._publisher.whole().summary)

    def take_back(self) -> None:
        """Show nothing more: what follows in the cell says it."""
        self._publisher.detach(self)
        if self._display_id is not None:
            show_in_words({}, self._display_id)

    def _tell(self, summary: Summary) -> None:
        as_of = time.localtime(self._publisher.as_of)
        now = time.strftime("%H:%M:%S %z, %Y-%m-%d", as_of)
        how = _LOADED if self._publisher.done else _WAITS if self._kind == MEANWHILE else _LIVE
        bundle = bundle_of(summary, self._table(), now, how, self._kind)
        self._display_id = show_in_words(bundle, self._display_id)


def bundle_of(
    summary: Summary, table: Table | None, now: str, how: str = _LIVE, kind: str = ""
) -> Mapping[str, str]:
    """A run in words. The same in every replay, once the run has ended.

    Args:
        summary: The run.
        table: What is shown below the line.
        now: The time with its zone, and the day: nobody knows when and where a saved page is read.
        how: How to see more, of a run that had not ended.
        kind: A further class of its HTML.
    """
    status = status_in_words(summary)
    if not summary.done:
        status = f"{status}, as of {now}"
    asked = f"; {counted(summary.questions, 'question')}" if summary.questions else ""
    line = f"{status}: {agents_in_words(summary)}{asked}; {used_in_words(summary)}."
    lines = [line] if summary.done else [line, how]
    html = "".join(f"<div>{text_html(each)}</div>" for each in lines)
    classes = ("agentnb-beside", kind, "" if summary.done else "agentnb-open")
    if table is not None:
        lines.append(table.plain)
        html += table.html
    return {
        "text/plain": "\n".join(lines),
        "text/html": f'<div class="{" ".join(filter(None, classes))}">{html}</div>',
    }
