"""Displays a live view in its own output, which can be removed again.

The output has no text: a saved text would have to be the same in every replay, while tools that
compare notebooks skip outputs with only a view.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import Any

from ipywidgets import DOMWidget

from agentnb.views.freeze import IN_WORDS, LIVE_VIEW, WIDGET_VIEW
from agentnb.views.front_end import is_interactive, is_notebook, wanted_display

_shown: dict[str, str] = {}
"""The model ids of this process's live views, by display id, in order."""
_numbers: Iterator[int] = count(1)


def show_live(widget: DOMWidget) -> None:
    """Display a widget in the running cell; a terminal, which shows none, says so."""
    from IPython.display import display

    show: Any = display
    if is_interactive() and not is_notebook():
        words = "A live view needs a notebook; in a terminal `%spawn status` shows a run."
        show({"text/plain": words}, raw=True)
        return
    data = {WIDGET_VIEW: {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}}
    display_id = f"agentnb-live-{next(_numbers)}"
    _shown[display_id] = widget.model_id
    show(data, raw=True, metadata=LIVE_VIEW, display_id=display_id)


def show_beside(bundle: Mapping[str, str]) -> None:
    """Display in the running cell the content of a live view as an output that stays.

    Call it after `show_live`. In JupyterLab it is hidden while the board before it is displayed
    (`boards.css`).
    """
    from IPython.display import display

    html = f'<div class="agentnb-repeats-board">{bundle["text/html"]}</div>'
    show: Any = display
    show({**bundle, "text/html": html}, raw=True)


def show_in_words(bundle: Mapping[str, str], display_id: str | None) -> str:
    """Display the words beside a live view, or replace them; on any thread.

    Args:
        bundle: The words.
        display_id: Of the output to replace; `None` for a new one in the running cell.

    Returns:
        The output's display id.
    """
    from IPython.display import display, update_display

    is_new = display_id is None
    display_id = display_id or f"agentnb-words-{next(_numbers)}"
    if wanted_display() == "text":
        bundle = {name: bundle[name] for name in bundle if name == "text/plain"}
    show: Any = display if is_new else update_display
    show(bundle, raw=True, metadata=IN_WORDS, display_id=display_id)
    return display_id


def is_any_displayed() -> bool:
    """Whether this kernel displayed a live view that was not removed."""
    return bool(_shown)


def take_back(model_id: str | None = None) -> int:
    """Remove the live views of a model, by default all of this kernel; returns their number."""
    from IPython.display import update_display

    replace: Any = update_display
    taken = 0
    for display_id in [each for each, shown in _shown.items() if model_id in (None, shown)]:
        with suppress(KeyError):
            del _shown[display_id]
            replace({}, raw=True, display_id=display_id)
            taken += 1
    return taken


class Live:
    """Mixin for widgets: as a cell's value it shows the view and no text."""

    def _ipython_display_(self) -> None:
        show_live(self)
