"""A `%%spawn` cell becomes a top-level `await`.

A kernel waits for an awaiting cell as it waits for any other, so Run All keeps its order; and
while the cell awaits, the kernel's loop is free for clicks, widgets and other people's code. What
a running cell executes in its turn (`%%capture`, `%%time`, `%run`) has nobody to await it, so
there the magic stays what it is and blocks.

A front end for the terminal asks whether the cell is complete before it sends it. That question
meets the cell as the person typed it: IPython calls a cell magic incomplete until a blank line
ends it, and an `await` complete at once.
"""

from __future__ import annotations

import sys
from types import FrameType

from IPython.core.interactiveshell import InteractiveShell

_MAGIC = "%%spawn"


def rewrite_spawn_cell(lines: list[str]) -> list[str]:
    """A cell's lines, with `%%spawn` rewritten; other cells as they are.

    Leaves `%%spawn?` to IPython, which shows the help.
    """
    if not lines or not lines[0].startswith(_MAGIC):
        return lines
    rest = lines[0][len(_MAGIC) :]
    if (rest and not rest[0].isspace()) or _inside_a_cell():
        return lines
    line, task = rest.strip(), "".join(lines[1:])
    # `__import__`, since a name in the notebook may have been taken for something else.
    call = f"await __import__('agentnb.notebook').notebook.spawn_cell({line!r}, {task!r})"
    return [call + "\n"]


# IPython's name for a transform that its check for complete input leaves out.
rewrite_spawn_cell.has_side_effects = True  # type: ignore[attr-defined]


def _inside_a_cell() -> bool:
    """Whether a cell is being executed on this thread, and asks for this one's code."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is InteractiveShell.run_code.__code__:
            return True
        frame = frame.f_back
    return False
