"""The panel of a map: the panel of a run, with a line on its progress and a table for its tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from agentnb.views.figures.words import counted
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.map_fold import MapProgress, MapShape, MapWatch, count_words, pace_words
from agentnb.views.panel.map_table import MapTable
from agentnb.views.panel.panel import RunPanel
from agentnb.views.panel.widgets import HtmlPart, text
from agentnb.views.panel.wire import Frame, Summary
from agentnb.views.table import Table


class MapPanel(RunPanel):
    """Shows a map and steers it; `close()` closes the panel and leaves the map alone.

    Args:
        publisher: The frames of the map's run.
        shape: The map's table.
        traits: Traits of `ipywidgets.VBox`.

    Raises:
        NotebookError: `AGENTNB_BUDGET_CEILING` is not a number of tokens.
    """

    def __init__(self, publisher: FramePublisher, shape: MapShape, **traits: Any) -> None:
        with publisher.lock:  # all parts begin with the same frame
            table = MapTable(publisher, shape, can_answer=True)
            line = MapLine(publisher, MapWatch(publisher.bus, shape))
            self._rows = table
            super().__init__(publisher, line, table, **traits)

    def _table(self) -> Table | None:
        return self._rows.first_rows()


class MapLine(HtmlPart):
    """The progress of a map: a bar, its rows in numbers, its pace and its cost.

    Args:
        publisher: The frames of the map's run.
        watch: The map's progress.
    """

    def __init__(self, publisher: FramePublisher, watch: MapWatch, **traits: Any) -> None:
        self._watch = watch
        super().__init__(publisher, **traits)

    def show(self, frame: Frame) -> None:
        """Read the events with each frame, so that no single frame has many to read."""
        self._watch.bus = self.publisher.bus
        self._watch.follow(self.publisher.position)
        super().show(frame)

    def markup(self, summary: Summary) -> str:
        """The bar, with the words below it."""
        progress = self._watch.progress(self.publisher.position)  # the other views know no more
        cost = cost_words(progress, times=self.publisher.cost_times, tokens=summary.tokens_used)
        return progress_markup(progress, cost, pace=pace_words(progress))


def cost_words(progress: MapProgress, *, times: Callable[[float], str], tokens: int) -> list[str]:
    """`$0.41 so far, about $0.68 at the end`; in tokens without a price.

    Args:
        progress: The map's progress.
        times: Returns a multiple of the cost so far, in words; empty if that is unknown.
        tokens: The tokens used so far.
    """
    if not tokens:
        return []
    factor = progress.times_so_far
    so_far = times(1) or counted(tokens, "token")
    if factor is None:
        return [so_far]
    return [
        f"{so_far} so far, about {times(factor) or f'{_rounded(factor * tokens):,}'} at the end"
    ]


def _rounded(tokens: float) -> int:
    """The number rounded to two significant digits, since it is an estimate."""
    whole = round(tokens)
    return round(whole, 2 - len(str(whole)))


def progress_markup(progress: MapProgress, more: list[str], pace: Iterable[str] = ()) -> str:
    """The progress of a map as a bar and in words: those of its pace, then `more`.

    The pace holds for a moment: a page without a kernel hides it.
    """
    share = 100 * progress.ended // progress.rows if progress.rows else 100
    bad = 100 * (progress.failed + progress.stopped) / progress.rows if progress.rows else 0
    counts = count_words(progress)
    facts = "".join(
        f"<span{' class=agentnb-pace' * is_pace}>{text(words)}</span>"
        for is_pace, several in ((False, counts), (True, pace), (False, more))
        for words in several
    )
    return (
        '<div class="agentnb-map-progress" style="line-height:1.5">'
        '<div role="progressbar" aria-label="Rows" aria-valuemin="0" aria-valuemax="100" '
        f'aria-valuenow="{share}" aria-valuetext="{text(", ".join(counts))}" '
        'style="display:flex;box-sizing:border-box;height:8px;overflow:hidden;'
        'border:1px solid var(--jp-border-color0,#757575);border-radius:4px">'
        f"{_part(share - bad, 'var(--jp-success-color1,#388e3c)')}"
        f"{_part(bad, 'var(--jp-error-color1,#d32f2f)')}</div>"
        '<div style="display:flex;flex-wrap:wrap;gap:0 14px;font-variant-numeric:tabular-nums">'
        f"{facts}</div></div>"
    )


def _part(percent: float, colour: str) -> str:
    return (
        f'<div style="width:{max(0.0, percent):.1f}%;height:100%;forced-color-adjust:none;'
        f'background:{colour}"></div>'
    )
