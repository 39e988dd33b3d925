"""How an error looks in a cell: one line that speaks to the person, and what a run had reached.

A traceback through threads and loops tells nothing about a task that failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from agentnb.bundles import notes_of
from agentnb.core.errors import AgentnbError, InternalError, OrchestratorError, show_as_line
from agentnb.errors import wrong_settings_as_line
from agentnb.notebook.display import has_something_to_show, show_result

TOLD_ERRORS = (AgentnbError,)
"""What speaks to the person. A bug (`InternalError`) keeps its traceback all the same."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Have what a magic raises shown in one line."""
    try:
        with wrong_settings_as_line():
            yield
    except (asyncio.CancelledError, KeyboardInterrupt) as interrupt:
        line = "Nothing waits for the run any more; `%spawn status` shows whether it has ended."
        show_as_line(interrupt, f"Interrupted: {line}")
        raise


def show_error(
    shell: InteractiveShell,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType,
    tb_offset: int | None = None,
) -> None:
    """Show an error of ours that ended a cell. For `InteractiveShell.set_custom_exc`."""
    told_already = hasattr(error, "_render_traceback_")
    if not told_already and not isinstance(error, InternalError):
        reached = error.partial_result if isinstance(error, OrchestratorError) else None
        if reached is not None and has_something_to_show(reached):
            show_result(reached, notes=notes_of(reached))
        show_as_line(error)
    show: Any = shell.showtraceback
    show((kind, error, trace), tb_offset=tb_offset)
