"""One view of every table: frames, series and indexes of pandas, polars and others.

Columns are known by their position, since several may have one name. A view reads what it is asked
for and nothing else; it holds the object, never a copy of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

MOST_COUNTED = 250_000
"""Cells whose nulls are counted for a first look, where that has to read them all."""
TOP = 5
"""Of the most frequent values of a column."""


class Table(Protocol):
    """A table as it is read here. Positions are from 0."""

    shape: str
    """In words: `20,000 rows, 480 columns`."""
    rows: int | None
    """`None` for a lazy table: to count its rows would compute it."""
    columns: Sequence[Any]
    """The names as they are, of any type."""

    def dtype(self, at: int) -> str:
        """The type of a column, as its library writes it."""
        ...

    def nulls(self, at: int) -> int:
        """How many values of a column are missing."""
        ...

    def counts_quickly(self, columns: int) -> bool:
        """Whether the nulls of so many columns are counted in a moment."""
        ...

    def cells(self, at: int, start: int, stop: int) -> Sequence[Any]:
        """Values of a column."""
        ...

    def labels(self, start: int, stop: int) -> Sequence[Any] | None:
        """The labels of rows; `None` if rows have none."""
        ...

    def index(self) -> str:
        """A line on what labels the rows; empty if nothing does."""
        ...

    def statistics(self, at: int) -> str:
        """Exact figures on a whole column, on one line."""
        ...

    def column(self, at: int) -> Any:
        """A column by itself, as its library has it."""
        ...


def counted(number: int, noun: str) -> str:
    """`1 row`, `20,000 rows`, `2 entries`."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """`rows`, `entries`."""
    return f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"


def part_of(shown: int, total: int, noun: str) -> str:
    """`all 3 rows shown`, `first 3 of 20,000 rows shown`."""
    if shown == total:
        return f"all {counted(total, noun)} shown"
    return f"first {shown:,} of {counted(total, noun)} shown"
