"""How a live view is displayed: its view alone, in an output that can be taken back.

A saved output that also held a text would have to hold the same text in every replay; one that
holds the view alone is skipped by whoever compares notebooks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any

from ipywidgets import DOMWidget

from agentnb.views.freeze import LIVE_VIEW, WIDGET_VIEW

_shown: dict[str, None] = {}
"""Display ids of this process's live views, in their order."""
_numbers: Iterator[int] = count(1)


def show_live(widget: DOMWidget) -> None:
    """Display a widget in the cell that runs. Where nothing displays, nothing happens."""
    from IPython.display import display

    data = {WIDGET_VIEW: {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}}
    display_id = f"agentnb-live-{next(_numbers)}"
    _shown[display_id] = None
    show: Any = display
    show(data, raw=True, metadata=LIVE_VIEW, display_id=display_id)


def take_back() -> int:
    """Replace all live views of this kernel by nothing; how many there were."""
    from IPython.display import update_display

    replace: Any = update_display
    taken = 0
    for display_id in list(_shown):
        with suppress(KeyError):
            del _shown[display_id]
            replace({}, raw=True, display_id=display_id)
            taken += 1
    return taken


class Live:
    """For a widget that a cell may have as its value: it shows the view, and no text."""

    def _ipython_display_(self) -> None:
        show_live(self)
