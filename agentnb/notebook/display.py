"""What a cell shows of a run: a live view at once, and at the end answer, outline and picture.

The last three are new and final outputs, hold no ids and no times, and are the same in every
replay, so that a saved notebook reads well and can be compared. The live view and the picture
are for those who see them in a notebook: a terminal gets neither, and what draws them is not even
loaded there.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from IPython.core.getipython import get_ipython
from IPython.display import display

from agentnb.core.secrets import masked_words
from agentnb.core.text import literal, visible
from agentnb.core.types import AgentNode, OrchestratorResult
from agentnb.errors import NotebookError
from agentnb.run import Run
from agentnb.views.panel.limits import ceiling
from agentnb.views.static import picture_bundle, static_bundle

DISPLAY_VARIABLE = "AGENTNB_DISPLAY"
_ALL = "all"
_PARTS = ("widget", "static", "text", "none")


def wanted_display() -> str:
    """What a cell shows, from `AGENTNB_DISPLAY`; `all` where that is not set.

    `widget` is the live view alone, `static` what stays without it, `text` the plain text of that,
    and `none` nothing.

    Raises:
        NotebookError: The variable holds something else.
    """
    wanted = os.environ.get(DISPLAY_VARIABLE, "").strip().lower() or _ALL
    if wanted not in (*_PARTS, _ALL):
        raise NotebookError(
            f"The environment variable {DISPLAY_VARIABLE} is {literal(wanted)}: set it to one of "
            f"{', '.join(_PARTS)}, or remove it."
        )
    return wanted


def show_result(
    result: OrchestratorResult,
    *,
    notes: Mapping[str, Sequence[str]],
    quiet: bool = False,
    untold: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Display how a run ended, also when it ended early.

    Args:
        result: What it came to.
        notes: Further lines for the outline, by the path of an agent.
        quiet: Show the answer alone.
        untold: Of a run that this cell shows live, too: those of `notes` that the live view does
            not tell. The output is the same whether there is a live view or not.
    """
    wanted = wanted_display()
    if wanted in ("widget", "none"):
        return
    bundle = static_bundle(
        result.agent_tree, result.final_response, notes=notes, quiet=quiet, untold=untold
    )
    if wanted == "text":
        bundle = {"text/plain": bundle["text/plain"]}
    picture = None
    try:
        # Drawn before the answer is shown: `cell.css` knows the picture by its place, right below.
        if has_picture(quiet=quiet):
            picture = _drawn(result.agent_tree)
    finally:  # an interrupt must not take the answer away
        display(bundle, raw=True)  # type: ignore[no-untyped-call]  # IPython has no types here
    if picture is not None:
        data, about = picture
        display(data, raw=True, metadata=about)  # type: ignore[no-untyped-call]


def has_picture(*, quiet: bool) -> bool:
    """Whether a run that ends in this cell is shown with a picture."""
    return _is_notebook() and not quiet and wanted_display() in (_ALL, "static")


def has_live_view(*, quiet: bool) -> bool:
    """Whether a run of this cell is shown while it goes on."""
    return _is_notebook() and not quiet and wanted_display() in (_ALL, "widget")


def _is_notebook() -> bool:
    return hasattr(get_ipython(), "kernel")


def check_settings() -> None:
    """See that what a cell will show can be shown: it is said before a run spends anything.

    Raises:
        NotebookError: A variable of the environment holds what makes no sense.
    """
    if wanted_display() in (_ALL, "widget"):
        ceiling()


def show_live_view(run: Run) -> None:
    """Display the panel. What keeps it from being made is told in a line, and that is all."""
    try:
        _loading_widgets().join()
        from agentnb.views.panel.show import show_live

        show_live(run.panel())
    except Exception as error:
        _tell_missing("live view of the run", error)


def take_live_views_back() -> int:
    """Replace this kernel's live views by nothing; how many there were."""
    if "agentnb.views.panel.show" not in sys.modules:
        return 0
    from agentnb.views.panel.show import take_back

    return take_back()


def _tell_missing(what: str, error: Exception) -> None:
    why = visible(masked_words(f"{type(error).__name__}: {error}"), 160)
    sys.stderr.write(f"There is no {what} ({why}).\n")


def _drawn(root: AgentNode) -> tuple[dict[str, str], dict[str, Any]] | None:
    """The picture of the tree; in place of one that cannot be drawn, a line that says why."""
    try:
        _warming_up().join()  # two threads in the same half-made module could see it half made
        return picture_bundle(root)
    except Exception as error:
        _tell_missing("picture of the tree", error)
        return None


def warm_up() -> None:
    """Begin to load what draws the picture, while the cell waits for its run."""
    _warming_up()


def warm_up_widgets() -> None:
    """Begin to load what makes live views, while the person writes their first cell."""
    if has_live_view(quiet=False):
        _loading_widgets()


@cache
def _warming_up() -> threading.Thread:
    return _loading("agentnb.views.figures.tree", name="agentnb-figures")


@cache
def _loading_widgets() -> threading.Thread:
    return _loading("agentnb.views.panel.panel", name="agentnb-widgets")


def _loading(module: str, *, name: str) -> threading.Thread:
    def load() -> None:
        with contextlib.suppress(Exception):  # what is wrong with it is told by whoever needs it
            importlib.import_module(module)

    # A daemon: an interpreter that ends meanwhile does not wait for it.
    thread = threading.Thread(target=load, name=name, daemon=True)
    thread.start()
    return thread


def has_something_to_show(result: OrchestratorResult) -> bool:
    """Whether a run that ended early had reached anything beyond its error."""
    return bool(result.sub_agent_results or result.total_tokens_used)
