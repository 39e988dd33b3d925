"""The cells that a run's agents ran, as texts to be run again."""

from __future__ import annotations

from collections.abc import Iterable

from agentnb.core.records import ToolCallRecord
from agentnb.core.shown import Listed

PYTHON = "python"
"""The tool that runs code."""


class CodeCell(str):
    """The source of one cell; `exec` takes it as it is."""

    path: str
    """Of the agent that ran it."""
    is_error: bool
    """Whether it raised, or was stopped."""

    def __new__(cls, source: str, *, path: str, is_error: bool) -> CodeCell:
        """Make a cell of its source."""
        cell = super().__new__(cls, source)
        cell.path, cell.is_error = path, is_error
        return cell


class CodeCells(Listed[CodeCell]):
    """Cells, in the order in which they began. `str` is one script of them all."""

    __slots__ = ()
    noun = "cell"

    def __str__(self) -> str:
        return "\n\n".join(f"# %% {cell.path}\n{cell}" for cell in self)


def cells_of(calls: Iterable[tuple[str, ToolCallRecord]]) -> CodeCells:
    """The cells among tool calls, each with its agent's path, by their beginning."""
    found = [
        (call.at_s, CodeCell(source, path=path, is_error=call.is_error))
        for path, call in calls
        if call.name == PYTHON and isinstance(source := call.input.get("code"), str)
    ]
    found.sort(key=lambda each: each[0])
    return CodeCells(cell for _, cell in found)
