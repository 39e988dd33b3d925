"""How an error looks in a cell: one line for the person, below the run's partial result.

A traceback through threads and event loops explains nothing about a failed task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from agentnb.bundles import notes_of
from agentnb.core.errors import (
    AgentnbError,
    InternalError,
    NotRecorded,
    OrchestratorError,
    show_as_line,
)
from agentnb.core.types import OrchestratorResult
from agentnb.errors import wrong_settings_as_line
from agentnb.notebook.display import has_something_to_show, show_result

ONE_LINE_ERRORS = (AgentnbError,)
"""Errors that are shown as one line. `InternalError`, a bug, still shows its traceback."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Show a magic's errors as one line."""
    try:
        with wrong_settings_as_line():
            yield
    except (asyncio.CancelledError, KeyboardInterrupt) as interrupt:
        line = "The cell no longer waits for the run; `%spawn status` shows whether it has ended."
        show_as_line(interrupt, f"Interrupted: {line}")
        raise


def partial_result_of(error: BaseException) -> OrchestratorResult | None:
    """The partial result that a cell shows above the error of a run; `None` for none.

    The error for an unrecorded call is shown alone, since the rest is as recorded.
    """
    if not isinstance(error, OrchestratorError) or isinstance(error, NotRecorded):
        return None
    reached = error.partial_result
    return reached if reached is not None and has_something_to_show(reached) else None


def show_error(
    shell: InteractiveShell,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType,
    tb_offset: int | None = None,
) -> None:
    """Show one of our errors that ended a cell. For `InteractiveShell.set_custom_exc`."""
    is_shown_already = hasattr(error, "_render_traceback_")
    if not is_shown_already and not isinstance(error, InternalError):
        reached = partial_result_of(error)
        if reached is not None:
            show_result(reached, notes=notes_of(reached))
        show_as_line(error)
    show: Any = shell.showtraceback
    show((kind, error, trace), tb_offset=tb_offset)
