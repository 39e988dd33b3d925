"""A small table as a page and a terminal show it: every cell one line, whatever it holds."""

from __future__ import annotations

from collections.abc import Sequence

from agentnb.core.text import visible
from agentnb.views.markdown import text_html

CELL_WIDTH = 60
"""Characters, where a table says nothing else; what is longer is cut."""
ROWS = 20
"""The first rows are shown, and how many more there are."""

# A cell of an HTML output is aligned to the right in JupyterLab, unless it says otherwise; it
# keeps this property also in a notebook that is not trusted.
_LEFT = 'style="text-align:left"'


class Table:
    """Columns and rows of texts.

    Args:
        columns: Their names.
        rows: Each with a text for each column.
        length: How many rows there would be; `rows` may hold the first `ROWS` only.
        cell_width: Characters of a cell at most.
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
        """For a terminal: columns by blanks."""
        widths = [max(map(len, column)) for column in zip(*self._lines, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in self._lines
        ]
        return "\n".join([*lines, *self._rest])

    @property
    def html(self) -> str:
        """For a page."""
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
