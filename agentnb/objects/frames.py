"""What a description says of a table: its columns with their types, and its first rows."""

from __future__ import annotations

from agentnb.objects.room import Room
from agentnb.objects.short import short
from agentnb.objects.tables import Table, part_of

_MOST_COLUMNS = 40
_MOST_ROWS = 5
_MOST_WIDE = 12
"""Columns of the rows that are shown."""
_FOR_ROWS = 800
"""Bytes of a description that its columns leave to its rows."""
_CELL = 40
"""Most characters of a cell."""


def add_table(room: Room, table: Table) -> None:
    """Describe a table below the first line."""
    index = table.index()
    if index:
        room.add(index)
    if not table.columns:
        room.add("It has no columns.")
        return
    _add_columns(room, table)
    if table.rows == 0:
        room.add("It has no rows.")
    elif table.rows is not None:
        _add_rows(room, table, table.rows)


def _add_columns(room: Room, table: Table) -> None:
    total = len(table.columns)
    looked_at = min(total, _MOST_COLUMNS)
    counts = table.rows is not None and table.counts_quickly(looked_at)
    # The head is known last, and has to fit: leave room for it.
    lines = Room(room.left - _FOR_ROWS - 120)
    for at in range(looked_at):
        nulls = f", {table.nulls(at):,} nulls" if counts else ""
        if not lines.add(f"- {short(table.columns[at])}: {table.dtype(at)}{nulls}"):
            break
    shown = len(lines.lines)
    note = "" if counts or table.rows is None else "; nulls not counted"
    room.add(f"Columns ({part_of(shown, total, 'column')}{note}):")
    for line in lines.lines:
        room.add(line)


def _add_rows(room: Room, table: Table, total: int) -> None:
    stop = min(total, _MOST_ROWS)
    width = min(len(table.columns), _MOST_WIDE)
    labels = table.labels(0, stop)
    columns = [[short(cell, _CELL) for cell in table.cells(at, 0, stop)] for at in range(width)]
    names = [short(table.columns[at], _CELL) for at in range(width)]
    said_labels = None if labels is None else [short(each, _CELL) for each in labels]
    # As many columns as leave room for three rows, and then as many rows as fit.
    for shown in range(width, 0, -1):
        lines = _lines(names[:shown], columns[:shown], said_labels, stop)
        kept = Room(room.left - 160)
        fitting = sum(kept.add(line) for line in lines) - 1
        if fitting >= min(3, stop) or shown == 1:
            break
    rows = max(fitting, 0)
    of = len(table.columns)
    wide = f", {shown:,} of {of:,} columns shown" if shown < of else ""
    cut = ", cut cells end in …" if any("…" in line for line in lines[: rows + 1]) else ""
    room.add(f"Rows ({part_of(rows, total, 'row')}{wide}{cut}):")
    for line in lines[: rows + 1]:
        room.add(line)


def _lines(
    names: list[str], columns: list[list[str]], labels: list[str] | None, rows: int
) -> list[str]:
    """The line of the names, and one for each row."""
    lines = [" | ".join(names if labels is None else ["[index]", *names])]
    for at in range(rows):
        cells = [column[at] for column in columns]
        lines.append(" | ".join(cells if labels is None else [labels[at], *cells]))
    return lines
