"""What a person should be told beside the tree, in lines: what was stopped, not done, or failed."""

from __future__ import annotations

from collections.abc import Sequence

from agentnb.views.panel.widgets import HtmlPart, text
from agentnb.views.panel.wire import Frame, Summary

SHOWN = 6
"""The newest lines. Each is bounded, too, so that the tree below stays where it can be seen."""


class Notices(HtmlPart):
    """The newest notices of a run; takes no room while there is none.

    Args:
        publisher: The run's frames.
    """

    def show(self, frame: Frame) -> None:
        """Show the newest notices."""
        self.layout.display = "" if frame.summary.notices else "none"
        self.value = self.markup(frame.summary)

    def markup(self, summary: Summary) -> str:
        """A line for each, oldest first."""
        return notices_markup(summary.notices)


def notices_markup(notices: Sequence[str]) -> str:
    """The newest of some lines, oldest first, and how many there were before."""
    left_out = len(notices) - SHOWN
    lines = [f"{left_out:,} earlier, left out here"] if left_out > 0 else []
    lines += notices[-SHOWN:]
    return (
        # A screen reader hears new lines from the tree view: of markup made anew it hears all.
        '<div class="agentnb-notices" style="line-height:1.4;padding:2px 0 2px 10px;'
        'border-left:3px solid var(--jp-border-color0,#757575);overflow-wrap:anywhere">'
        + "".join(f"<div>{text(line)}</div>" for line in lines)
        + "</div>"
    )
