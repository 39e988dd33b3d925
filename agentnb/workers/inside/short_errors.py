"""An error in a few lines: where in the cells, the line itself, the type and the message."""

from __future__ import annotations

import linecache
import re
import traceback
from typing import Any

from agentnb.workers.inside.value_text import cut

_MOST_FRAMES = 4
_MOST_IN_MESSAGE = 3_000
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def short_error(error: BaseException, shell: Any) -> str:
    """The error for a model. Never raises."""
    try:
        lines = _lines(error, shell)
        if (cause := error.__cause__) is not None and _said(cause) != _said(error):
            lines.append(f"Caused by {_said(cause)}")
        return "\n".join(lines)
    except BaseException:  # its `__str__` is foreign code: it may exit, or be interrupted
        return type(error).__name__


def _lines(error: BaseException, shell: Any) -> list[str]:
    if isinstance(error, SyntaxError):
        where = f"line {error.lineno}" if error.lineno else "the cell"
        text = (error.text or "").strip()
        return [f"In {where}: {cut(text, 200)}", f"{type(error).__name__}: {error.msg}"]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_cell(frame.filename, shell)]
    lines = []
    if len(own) > _MOST_FRAMES:
        lines.append(f"… {len(own) - _MOST_FRAMES} outer lines left out …")
    for frame in own[-_MOST_FRAMES:]:
        source = linecache.getline(frame.filename, frame.lineno or 0).strip()
        inside = "" if frame.name == "<module>" else f", in {frame.name}"
        lines.append(f"Line {frame.lineno}{inside}: {cut(source, 200)}")
    if frames and own and frames[-1] is not own[-1]:
        last = frames[-1]
        where = "/".join(last.filename.split("/")[-3:])
        lines.append(f"(raised in {where}, line {last.lineno}, in {last.name})")
    return [*lines, _said(error)]


def _said(error: BaseException) -> str:
    name, message = type(error).__name__, _COLOURS.sub("", str(error))
    return f"{name}: {cut(message, _MOST_IN_MESSAGE)}" if message else name


def _is_cell(filename: str, shell: Any) -> bool:
    names = getattr(getattr(shell, "compile", None), "_filename_map", {})
    return filename in names or "ipykernel_" in filename or filename.startswith("<ipython-input")
