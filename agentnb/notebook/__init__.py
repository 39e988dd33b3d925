"""The notebook side: the magics, the cell transform, and what a cell shows.

The only package that imports IPython.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agentnb.errors import NotebookError
from agentnb.notebook.completion import install, uninstall
from agentnb.notebook.display import preload_widgets
from agentnb.notebook.errors import ONE_LINE_ERRORS, show_error
from agentnb.notebook.magics import AgentMagics, spawn_cell
from agentnb.notebook.task_magic import TaskMagics
from agentnb.notebook.transform import rewrite_spawn_cell
from agentnb.providers.anthropic import preload

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load", "spawn_cell", "unload"]


def load(shell: InteractiveShell) -> None:
    """Register the magics, their completion, the error display and the `%%spawn` transform.

    The transform is registered only in a kernel, whose loop can await a cell.
    """
    shell.register_magics(AgentMagics, TaskMagics)
    transforms = shell.input_transformers_cleanup
    if hasattr(shell, "kernel") and rewrite_spawn_cell not in transforms:
        transforms.append(rewrite_spawn_cell)
    if shell.Completer is not None:
        install(shell.Completer)
    if not shell.custom_exceptions:  # keep a person's own handler
        _set_handler(shell, ONE_LINE_ERRORS, show_error)
    # Load in the background while the person writes their first cell.
    with suppress(NotebookError):  # that cell will report a wrong display setting
        preload_widgets()
    preload()


def unload(shell: InteractiveShell) -> None:
    """Undo `load`."""
    transforms = shell.input_transformers_cleanup
    if rewrite_spawn_cell in transforms:
        transforms.remove(rewrite_spawn_cell)
    if shell.Completer is not None:
        uninstall(shell.Completer)
    if shell.custom_exceptions == ONE_LINE_ERRORS:
        _set_handler(shell, (), None)
    for name in ("spawn", "agentnb", "task"):
        for kind in ("line", "cell"):
            shell.magics_manager.magics[kind].pop(name, None)
        shell.magics_manager.lazy_magics.pop(name, None)


def _set_handler(shell: InteractiveShell, kinds: tuple[type[Exception], ...], handler: Any) -> None:
    shell.set_custom_exc(kinds, handler)  # type: ignore[no-untyped-call]  # has no types there
