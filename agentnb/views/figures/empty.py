"""The figure of a run without events."""

from __future__ import annotations

from agentnb.views.figures.figure import RunFigure
from agentnb.views.figures.sheet import Sheet
from agentnb.views.figures.theme import MARGIN, theme


def empty_figure(kind: str, words: str, *, dark: bool) -> RunFigure:
    """A figure that says why it is empty."""
    width = 420
    sheet = Sheet(width, 56, theme(dark), name=f"{kind}, empty", alt_text=words)
    sheet.text(MARGIN, 32, words, room=width - 2 * MARGIN, colour=sheet.theme.muted)
    return sheet.figure
