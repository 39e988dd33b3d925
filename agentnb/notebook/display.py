"""What a cell shows of a run that has ended: a picture of its tree, then an outline and the answer.

The outputs are new and final, hold no ids and no times, and are the same in every replay, so
that a saved notebook reads well and can be compared. The picture is for those who see it in a
notebook: a terminal gets none, and matplotlib is not even loaded there.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache

from IPython.core.getipython import get_ipython
from IPython.display import display

from agentnb.core.errors import NotebookError
from agentnb.core.types import AgentNode, OrchestratorResult, one_line
from agentnb.views.static import picture_bundle, static_bundle

DISPLAY_VARIABLE = "AGENTNB_DISPLAY"
_PARTS = ("static", "text", "none")


def wanted_display() -> str:
    """`static` (rich and plain), `text` (plain only) or `none`, from `AGENTNB_DISPLAY`.

    Raises:
        NotebookError: The variable holds something else.
    """
    wanted = os.environ.get(DISPLAY_VARIABLE, "").strip().lower() or "static"
    if wanted not in _PARTS:
        raise NotebookError(
            f"The environment variable {DISPLAY_VARIABLE} is {wanted!r}: set it to one of "
            f"{', '.join(_PARTS)}, or remove it."
        )
    return wanted


def show_result(
    result: OrchestratorResult, *, notes: Mapping[str, Sequence[str]], quiet: bool = False
) -> None:
    """Display how a run ended, also when it ended early."""
    wanted = wanted_display()
    if wanted == "none":
        return
    bundle = static_bundle(result.agent_tree, result.final_response, notes=notes, quiet=quiet)
    if wanted == "text":
        bundle = {"text/plain": bundle["text/plain"]}
    try:
        if has_picture(quiet=quiet):
            _show_picture(result.agent_tree)
    finally:  # an interrupt must not take the answer away, either
        display(bundle, raw=True)  # type: ignore[no-untyped-call]  # IPython has no types here


def has_picture(*, quiet: bool) -> bool:
    """Whether a run that ends in this cell is shown with a picture."""
    is_notebook = hasattr(get_ipython(), "kernel")
    return is_notebook and not quiet and wanted_display() == "static"


def _show_picture(root: AgentNode) -> None:
    """Display the tree. What keeps it from being drawn is told in a line, and that is all."""
    try:
        _warming_up().join()  # two threads in the same half-made module could see it half made
        data, about = picture_bundle(root)
    except Exception as error:
        why = one_line(f"{type(error).__name__}: {error}", limit=160)
        sys.stderr.write(f"There is no picture of the tree ({why}).\n")
        return
    display(data, raw=True, metadata=about)  # type: ignore[no-untyped-call]


def warm_up() -> None:
    """Begin to load what draws the picture, while the cell waits for its run."""
    _warming_up()


@cache
def _warming_up() -> threading.Thread:
    # A daemon: an interpreter that ends meanwhile does not wait for it.
    thread = threading.Thread(target=_load, name="agentnb-figures", daemon=True)
    thread.start()
    return thread


def _load() -> None:
    # What is wrong with it is told by the drawing.
    with contextlib.suppress(Exception):
        import agentnb.views.figures.tree  # noqa: F401


def has_something_to_show(result: OrchestratorResult) -> bool:
    """Whether a run that ended early had reached anything beyond its error."""
    return bool(result.sub_agent_results or result.total_tokens_used)
