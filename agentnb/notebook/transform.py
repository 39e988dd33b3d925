"""Rewrites a `%%spawn` cell into a top-level `await`.

A kernel waits for an awaiting cell like for any other, so Run All keeps its order; meanwhile the
kernel's loop is free for clicks, widgets and other code. Code that a running cell executes
(`%%capture`, `%%time`, `%run`) cannot be awaited; there the magic stays a magic and blocks.

A terminal front end asks whether a cell is complete before it sends it. That check sees the cell
as typed, not rewritten: IPython calls a cell magic incomplete until a blank line ends it, and an
`await` complete at once.
"""

from __future__ import annotations

import re
import sys
from types import FrameType

from IPython.core.interactiveshell import InteractiveShell

_MAGIC = "%%spawn"
_FORM = re.compile(r"(?:[ \t]*# ?@(?:title|markdown)\b[^\n]*\n?)+")
"""Lines at the beginning of a cell that Colab shows as a form."""


def without_form(text: str) -> str:
    """A cell's text without the lines of Colab's form above it: they are no part of a task."""
    found = _FORM.match(text)
    return text[found.end() :] if found else text


def rewrite_spawn_cell(lines: list[str]) -> list[str]:
    """Rewrite the lines of a `%%spawn` cell; return other cells unchanged.

    Leaves `%%spawn?` to IPython, which shows the help.
    """
    cell = without_form("".join(lines))
    if not cell.startswith(_MAGIC):
        return lines
    first, _, task = cell.partition("\n")
    rest = first[len(_MAGIC) :]
    if (rest and not rest[0].isspace()) or _inside_a_cell():
        return lines
    line = rest.strip()
    # `__import__`, since the person may have rebound any name in the notebook.
    call = f"await __import__('agentnb.notebook').notebook.spawn_cell({line!r}, {task!r})"
    return [call + "\n"]


# IPython leaves a transform with this mark out of its check for complete input.
rewrite_spawn_cell.has_side_effects = True  # type: ignore[attr-defined]


def _inside_a_cell() -> bool:
    """Whether a cell is executing on this thread, and this cell's code is nested in it."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is InteractiveShell.run_code.__code__:
            return True
        frame = frame.f_back
    return False
