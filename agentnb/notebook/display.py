"""What a cell shows of a run: first a live view, and at the end answer, outline and pictures.

Answer, outline and pictures are separate outputs without ids and times, equal in every replay, so
that a saved notebook reads well and can be compared. A terminal gets neither live view nor picture,
and does not load the code that draws them.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from IPython.display import display

from agentnb.code_cells import CodeCell
from agentnb.core.records import ToolCallRecord
from agentnb.core.secrets import masked_words
from agentnb.core.text import visible
from agentnb.core.types import AgentNode, OrchestratorResult
from agentnb.modes import REPLAY
from agentnb.run import Run
from agentnb.views.front_end import ALL, is_notebook, wanted_display
from agentnb.views.panel.limits import ceiling
from agentnb.views.static import picture_bundle, static_bundle, tool_pictures
from agentnb.views.typed_answer import answer_of

WORDS_AFTER_S = 10.0
"""Seconds after which a cell that waits for its run also shows the run in words."""


def show_result(
    result: OrchestratorResult,
    *,
    notes: Mapping[str, Sequence[str]],
    quiet: bool = False,
    unreported: Mapping[str, Sequence[str]] | None = None,
    calls: Sequence[ToolCallRecord] = (),
    code: Sequence[CodeCell] = (),
) -> None:
    """Display the result of a run, even one that ended early.

    Args:
        result: The result, complete or partial.
        notes: Further lines for the outline, by path.
        quiet: Show only the answer.
        unreported: If the cell also shows the run live: the `notes` that the live view does not
            show. The output is the same whether there is a live view or not.
        calls: Tool calls of the run, including all that returned pictures; the last ones are shown.
        code: The code that the run's agents ran.
    """
    wanted = wanted_display()
    if wanted in ("widget", "none"):
        return
    bundle = static_bundle(
        result.agent_tree,
        answer_of(result),
        notes=notes,
        quiet=quiet,
        unreported=unreported,
        code=code,
    )
    if wanted == "text":
        bundle = {"text/plain": bundle["text/plain"]}
    picture = None
    try:
        # Draw it before showing the answer: `cell.css` expects the picture right below.
        if has_picture(quiet=quiet):
            picture = _drawn(result.agent_tree)
    finally:  # an interrupt must not take the answer away
        display(bundle, raw=True)  # type: ignore[no-untyped-call]  # IPython has no types here
    if picture is not None:
        data, about = picture
        display(data, raw=True, metadata=about)  # type: ignore[no-untyped-call]
    if has_picture(quiet=quiet):
        for data, about in tool_pictures(calls):
            display(data, raw=True, metadata=about)  # type: ignore[no-untyped-call]


def has_picture(*, quiet: bool) -> bool:
    """Whether this cell shows a picture at the end of a run."""
    return is_notebook() and not quiet and wanted_display() in (ALL, "static")


def has_live_view(*, quiet: bool) -> bool:
    """Whether this cell shows its run live."""
    return is_notebook() and not quiet and wanted_display() in (ALL, "widget")


def check_settings() -> None:
    """Check the display settings before a run spends anything.

    Raises:
        NotebookError: An environment variable has a wrong value.
    """
    if wanted_display() in (ALL, "widget"):
        ceiling()


def show_live_view(run: Run, *, is_all: bool = False) -> None:
    """Display the panel. If it cannot be made, print one line with the reason.

    Args:
        run: The run.
        is_all: Whether the cell shows nothing else of it: then its state in words follows.
    """
    try:
        _loading_widgets().join()
        from agentnb.views.panel.show import show_live

        panel = run.panel()
        if is_all:
            panel._ipython_display_()
        else:
            show_live(panel)
    except Exception as error:
        _report_missing("live view of the run", error)


@contextlib.contextmanager
def in_words_meanwhile(run: Run, *, quiet: bool) -> Iterator[None]:
    """Show the state of a long run in words beside its live view, while the cell awaits its end.

    A page that is saved meanwhile may lose the view, and with its kernel the rest of the cell. Not
    where cells are compared: in a replay, and under pytest.
    """
    words: list[Any] = []

    def begin() -> None:
        try:
            from agentnb.views.panel.beside import MEANWHILE, Beside

            words.append(Beside(run.frames(), kind=MEANWHILE))
        except Exception as error:
            _report_missing("line on the run", error)

    is_compared = run.mode == REPLAY or "PYTEST_CURRENT_TEST" in os.environ
    timer = None
    if has_live_view(quiet=quiet) and not is_compared:
        timer = asyncio.get_running_loop().call_later(WORDS_AFTER_S, begin)
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
        for each in words:
            each.take_back()


def show_in_words(run: Run) -> None:
    """Display a run's state in words, up to its end: of a cell that shows nothing else of it."""
    if not is_notebook() or wanted_display() not in ("static", "text"):
        return
    try:
        from agentnb.views.panel.beside import Beside

        Beside(run.frames())
    except Exception as error:  # such as a kernel without ipywidgets: the run goes on
        _report_missing("line on the run", error)


def take_live_views_back() -> int:
    """Remove this kernel's live views, and return their number."""
    if "agentnb.views.panel.show" not in sys.modules:
        return 0
    from agentnb.views.panel.show import take_back

    return take_back()


def _report_missing(what: str, error: Exception) -> None:
    why = visible(masked_words(f"{type(error).__name__}: {error}"), 160)
    sys.stderr.write(f"There is no {what} ({why}).\n")


def _drawn(root: AgentNode) -> tuple[dict[str, str], dict[str, Any]] | None:
    """Draw the tree. If that fails, print one line with the reason."""
    try:
        _loading_picture().join()  # this thread must not see a half-imported module
        return picture_bundle(root)
    except Exception as error:
        _report_missing("picture of the tree", error)
        return None


def preload_picture() -> None:
    """Start loading the picture's modules, while the cell waits for its run."""
    _loading_picture()


def preload_widgets() -> None:
    """Start loading the widgets, while the person writes their first cell."""
    if has_live_view(quiet=False):
        _loading_widgets()


@cache
def _loading_picture() -> threading.Thread:
    return _loading("agentnb.views.figures.tree", name="agentnb-figures")


@cache
def _loading_widgets() -> threading.Thread:
    return _loading("agentnb.views.panel.panel", name="agentnb-widgets")


def _loading(module: str, *, name: str) -> threading.Thread:
    def load() -> None:
        with contextlib.suppress(Exception):  # the first use raises it again
            importlib.import_module(module)

    # A daemon, so that the interpreter's exit does not wait for it.
    thread = threading.Thread(target=load, name=name, daemon=True)
    thread.start()
    return thread


def has_something_to_show(result: OrchestratorResult) -> bool:
    """Whether a run that ended early has anything to show in addition to its error."""
    return bool(result.sub_agent_results or result.total_tokens_used)
