"""Rewrites a `%%spawn` cell into a top-level `await`.

A kernel waits for an awaiting cell like for any other, so Run All keeps its order; meanwhile the
kernel's loop is free for clicks, widgets and other code. Code that a running cell executes
(`%%capture`, `%%time`, `%run`) cannot be awaited; there the magic stays a magic and blocks.

A terminal front end asks whether a cell is complete before it sends it. That check sees the cell
as typed, not rewritten: IPython calls a cell magic incomplete until a blank line ends it, and an
`await` complete at once.
"""

from __future__ import annotations

import sys
from types import FrameType

from IPython.core.interactiveshell import InteractiveShell

_MAGIC = "%%spawn"


def rewrite_spawn_cell(lines: list[str]) -> list[str]:
    """Rewrite the lines of a `%%spawn` cell; return other cells unchanged.

    Leaves `%%spawn?` to IPython, which shows the help.
    """
    if not lines or not lines[0].startswith(_MAGIC):
        return lines
    rest = lines[0][len(_MAGIC) :]
    if (rest and not rest[0].isspace()) or _inside_a_cell():
        return lines
    line, task = rest.strip(), "".join(lines[1:])
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
