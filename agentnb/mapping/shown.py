"""A map's table as the last line of a cell: a few rows, failures first, and figures in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentnb.bundles import table_bundle
from agentnb.core.shown import Bundle, counted
from agentnb.mapping.answers import COST, PATH, ROW, TOKENS
from agentnb.views.table import Table

if TYPE_CHECKING:
    from agentnb.mapping.agreement import Agreement
    from agentnb.mapping.result import MapResult

ROWS = 10
"""Rows that are shown; a line below them counts the rest."""
_COLUMNS = 8
"""Columns that are shown, besides the row's place. Those of single judges are the first to go."""
_NOTES = 3
"""Notes that are shown, with the number of their rows."""
_FIGURES = frozenset({TOKENS, COST, PATH})
"""Left out: the figures in words have them."""


def result_bundle(result: MapResult) -> Bundle:
    """The rows that did not complete, then the first ones, and the totals."""
    hidden = {result.name_of(name) for name in _FIGURES}
    if len(result.columns) - len(hidden) > _COLUMNS:
        hidden.update(*result.of_judges.values())
    columns = {name: values for name, values in result.columns.items() if name not in hidden}
    below = [f"{counted(rows, 'row')}: {note}" for note, rows in result.notes.most_common(_NOTES)]
    if len(result):
        below.append("All rows and columns are in its `df`.")
    return _bundle(result.in_words, columns, result.places(), below)


def agreement_bundle(agreement: Agreement) -> Bundle:
    """Alpha in words, and the first rows in which the judges differ."""
    columns = dict(agreement.columns)
    numbers = columns.pop(ROW)
    places = range(agreement.differing)
    return _bundle(f"Agreement: {agreement.in_words}", columns, places, (), numbers=numbers)


def _bundle(
    headline: str,
    columns: Mapping[str, Sequence[Any]],
    places: Sequence[int],
    below: Sequence[str],
    *,
    numbers: Sequence[int] | None = None,
) -> Bundle:
    """A headline and the first rows, each behind its number: its place where none are given."""
    if not places:
        return table_bundle(headline, None)
    names = [*columns] if len(columns) <= _COLUMNS else [*columns][: _COLUMNS - 2]
    names += [name for name in [*columns][-2:] if name not in names]
    rows = [
        (str(at if numbers is None else numbers[at]), *(_cell(columns[name][at]) for name in names))
        for at in places[:ROWS]
    ]
    return table_bundle(headline, Table(("", *names), rows, length=len(places)), *below)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
