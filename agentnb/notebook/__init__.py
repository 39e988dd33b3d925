"""What a notebook gets: the magics, the cell transform, and what a cell shows.

The only floor that knows IPython.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agentnb.errors import NotebookError
from agentnb.notebook.completion import install, uninstall
from agentnb.notebook.display import warm_up_widgets
from agentnb.notebook.errors import TOLD_ERRORS, show_error
from agentnb.notebook.magics import AgentMagics, spawn_cell
from agentnb.notebook.transform import rewrite_spawn_cell
from agentnb.providers.anthropic import preload

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load", "spawn_cell", "unload"]


def load(shell: InteractiveShell) -> None:
    """Register the magics, what Tab offers behind them, and the transform of `%%spawn` cells.

    The last only where a kernel's loop runs.
    """
    shell.register_magics(AgentMagics)
    transforms = shell.input_transformers_cleanup
    if hasattr(shell, "kernel") and rewrite_spawn_cell not in transforms:
        transforms.append(rewrite_spawn_cell)
    if shell.Completer is not None:
        install(shell.Completer)
    if not shell.custom_exceptions:  # a person's own handler stays
        _set_handler(shell, TOLD_ERRORS, show_error)
    # While the person writes their first cell:
    with suppress(NotebookError):  # a display setting that is wrong is told by that cell
        warm_up_widgets()
    preload()


def unload(shell: InteractiveShell) -> None:
    """Take back what `load` did."""
    transforms = shell.input_transformers_cleanup
    if rewrite_spawn_cell in transforms:
        transforms.remove(rewrite_spawn_cell)
    if shell.Completer is not None:
        uninstall(shell.Completer)
    if shell.custom_exceptions == TOLD_ERRORS:
        _set_handler(shell, (), None)
    for kind, name in (("cell", "spawn"), ("line", "spawn"), ("line", "agentnb")):
        shell.magics_manager.magics[kind].pop(name, None)
        shell.magics_manager.lazy_magics.pop(name, None)


def _set_handler(shell: InteractiveShell, kinds: tuple[type[Exception], ...], handler: Any) -> None:
    shell.set_custom_exc(kinds, handler)  # type: ignore[no-untyped-call]  # has no types there
