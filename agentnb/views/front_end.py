"""The front end in which the program runs, and what a cell should show there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from agentnb.core.text import literal
from agentnb.errors import NotebookError

DISPLAY_VARIABLE = "AGENTNB_DISPLAY"
ALL = "all"
_PARTS = ("widget", "static", "text", "none")


def wanted_display() -> str:
    """What a cell shows, from `AGENTNB_DISPLAY`; `all` by default.

    `widget` is the live view alone, `static` the rest, `text` the rest as plain text, and `none`
    nothing.

    Raises:
        NotebookError: The variable has another value.
    """
    wanted = os.environ.get(DISPLAY_VARIABLE, "").strip().lower() or ALL
    if wanted not in (*_PARTS, ALL):
        raise NotebookError(
            f"The environment variable {DISPLAY_VARIABLE} is {literal(wanted)}: set it to one of "
            f"{', '.join(_PARTS)}, or remove it."
        )
    return wanted


def is_interactive() -> bool:
    """Whether it runs in IPython: a notebook, or its terminal."""
    return shell_at_hand() is not None


def is_notebook() -> bool:
    """Whether it runs in a kernel, whose front end shows widgets."""
    return hasattr(shell_at_hand(), "kernel")


def after_each_cell(function: Callable[..., object]) -> None:
    """Call `function` before each cell is idle, never in a script. Once more does nothing."""
    if (shell := shell_at_hand()) is not None:
        shell.events.register("post_run_cell", function)


def shell_at_hand() -> Any:
    """The IPython that this process runs in; `None` in a script."""
    # Without an import: a script must not load IPython only to find that it is not used.
    ipython = sys.modules.get("IPython")
    return None if ipython is None else getattr(ipython, "get_ipython", lambda: None)()
