"""A small table for a page and a terminal, with one line per cell."""

from __future__ import annotations

from collections.abc import Sequence

from agentnb.core.text import visible
from agentnb.views.markdown import text_html

CELL_WIDTH = 60
"""Default width of a cell in characters; longer text is cut."""
ROWS = 20
"""Most rows that are shown, followed by the number of further ones."""

# JupyterLab aligns cells of HTML outputs to the right by default. It keeps this property in an
# untrusted notebook.
_LEFT = 'style="text-align:left"'


class Table:
    """Columns and rows of texts.

    Args:
        columns: The names of the columns.
        rows: A text for each column, per row.
        length: The number of all rows; `rows` may hold only the first `ROWS`.
        cell_width: Most characters of a cell.
    """

    def __init__(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        length: int | None = None,
        cell_width: int = CELL_WIDTH,
    ) -> None:
        shown = (columns, *rows[:ROWS])
        self._lines = [tuple(visible(cell, cell_width) for cell in row) for row in shown]
        self._left_out = (len(rows) if length is None else length) - len(shown[1:])

    @property
    def plain(self) -> str:
        """The table for a terminal, aligned with blanks."""
        widths = [max(map(len, column)) for column in zip(*self._lines, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in self._lines
        ]
        return "\n".join([*lines, *self._rest])

    @property
    def html(self) -> str:
        """The table for a page."""
        head, *rows = self._lines
        lines = ["<table>", "<thead>", _row("th", head), "</thead>", "<tbody>"]
        lines += [_row("td", row) for row in rows]
        lines += ["</tbody>", "</table>", *(f"<p>{line}</p>" for line in self._rest)]
        return "\n".join(lines)

    @property
    def _rest(self) -> list[str]:
        return [f"… and {self._left_out:,} more"] if self._left_out > 0 else []


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag} {_LEFT}>{text_html(cell)}</{tag}>' for cell in cells)}</tr>"
