"""The run's status line and notices, above the tree, and the footer below it.

The status has a widget of its own, so that a screen reader announces only its changes. Time is
shown in whole seconds: if only time passes, an update is sent once a second at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipywidgets import Box, Layout

from agentnb.core.money import TOKENS, share_in_words
from agentnb.core.types import AgentStatus
from agentnb.views.figures.words import cache_words, counted
from agentnb.views.outline import GLYPHS
from agentnb.views.panel.clock import clock
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.person import PAUSED
from agentnb.views.panel.widgets import ClosableWidget, HtmlPart, text
from agentnb.views.panel.wire import Frame, Summary

SHOWN_NOTICES = 6
"""Most lines that are shown, the newest. Lines are short, too, so that the tree stays in sight."""
_PAUSED_GLYPH = "◫"
"""Differs from the glyph of `waiting`, which ends by itself."""


class Header(ClosableWidget, Box):
    """Status, time, agents, tokens, cached share, cost, and what the run waits for.

    Args:
        publisher: The run's frames.
    """

    def __init__(self, publisher: FramePublisher, **traits: Any) -> None:
        layout = Layout(flex="1 1 20em", flex_flow="row wrap", overflow="visible", min_width="0")
        status = _Status(publisher, layout=Layout(flex="0 0 auto", margin="0 10px 0 0"))
        facts = _Facts(publisher, layout=Layout(flex="1 1 22em", min_width="0"))
        super().__init__([status, facts], **{"layout": layout, **traits})
        self.add_class("agentnb-header")


class _Status(HtmlPart):
    def markup(self, summary: Summary) -> str:
        """The status as a glyph and a word."""
        glyph, word = _glyph_and_word(summary)
        return (
            '<div role="status" class="agentnb-run-status" '
            'style="line-height:1.6;white-space:nowrap">'
            f'<span aria-hidden="true">{glyph}</span> <strong>{word}</strong></div>'
        )


class _Facts(HtmlPart):
    def matters(self, summary: Summary) -> tuple[object, ...]:
        # The tree shows these at once, so the header must not lag behind.
        return *super().matters(summary), summary.by_status, summary.doing

    def markup(self, summary: Summary) -> str:
        return facts_markup(summary)


def status_in_words(summary: Summary) -> str:
    """`✓ completed`."""
    return " ".join(_glyph_and_word(summary))


def _glyph_and_word(summary: Summary) -> tuple[str, str]:
    if summary.is_paused and not summary.done:
        return _PAUSED_GLYPH, PAUSED
    return GLYPHS[summary.status], str(summary.status)


def facts_markup(summary: Summary) -> str:
    """The rest of the header: facts in a row that wraps in a narrow cell."""
    facts = (
        ("asked", counted(summary.questions, "question") if summary.questions else ""),
        ("time", clock(summary.at_s)),
        ("agents", agents_in_words(summary)),
        ("tokens", used_in_words(summary)),
        ("cache", cache_words(summary.usage)),
        ("cost", _short(summary.cost)),
        ("doing", summary.doing),
    )
    # Always two lines, so that changes do not move the widgets below.
    lines = "0" if summary.done else "3.2em"
    shown = [f'<span class="agentnb-{name}">{text(words)}</span>' for name, words in facts if words]
    return (
        '<div class="agentnb-facts" style="display:flex;flex-wrap:wrap;gap:0 14px;line-height:1.6;'
        f'min-height:{lines};align-content:flex-start;overflow-wrap:anywhere">{"".join(shown)}</div>'
    )


def used_in_words(summary: Summary) -> str:
    """What of the budget is used."""
    if summary.unit == TOKENS:
        return counted(summary.tokens_used, "token")
    return share_in_words(summary.tokens_used, summary.budget_total, summary.unit)


def _short(cost: str) -> str:
    """The cost for the header; an agent's details say why it is unpriced."""
    return "unpriced" if cost.startswith("unpriced") else cost


def agents_in_words(summary: Summary) -> str:
    """`5 agents: 2 running, 3 completed`, in the order of the statuses."""
    counts = [(status, summary.by_status.get(status, 0)) for status in AgentStatus]
    listed = ", ".join(f"{count:,} {status}" for status, count in counts if count)
    agents = counted(summary.agents, "agent")
    return f"{agents}: {listed}" if listed else agents


class Notices(HtmlPart):
    """The newest notices of a run; hidden while there are none.

    Args:
        publisher: The run's frames.
    """

    def show(self, frame: Frame) -> None:
        """Show the newest notices."""
        self.layout.display = "" if frame.summary.notices else "none"
        if frame.is_kept:
            self.layout.send_state("display")
        super().show(frame)

    def markup(self, summary: Summary) -> str:
        """One line per notice, oldest first."""
        return notices_markup(summary.notices) if summary.notices else ""


class Footer(HtmlPart):
    """One line that says where the run is stored.

    Args:
        publisher: The run's frames.
    """

    @property
    def _line(self) -> str:
        return "" if self.publisher.kept is None else self.publisher.kept.footer

    def matters(self, summary: Summary) -> tuple[object, ...]:
        """Updated when the run, or its storage, has ended."""
        return summary.done, self._line

    def markup(self, summary: Summary) -> str:
        """The line, in small letters."""
        return (
            '<div class="agentnb-footer" style="line-height:1.4;font-size:var(--jp-ui-font-size0,'
            f'0.83em);overflow-wrap:anywhere">{text(self._line)}</div>'
        )


def notices_markup(notices: Sequence[str]) -> str:
    """The newest lines, oldest first, after the number of earlier ones."""
    left_out = len(notices) - SHOWN_NOTICES
    lines = [f"{left_out:,} earlier, left out here"] if left_out > 0 else []
    lines += notices[-SHOWN_NOTICES:]
    return (
        # The tree view announces new lines: a live region here would announce them all again.
        '<div class="agentnb-notices" style="line-height:1.4;padding:2px 0 2px 10px;'
        'border-left:3px solid var(--jp-border-color0,#757575);overflow-wrap:anywhere">'
        + "".join(f"<div>{text(line)}</div>" for line in lines)
        + "</div>"
    )
