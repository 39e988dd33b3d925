"""Reads an object page by page: rows, columns, statistics, text, keys.

A page has at most 8,000 characters. Nothing is sampled: figures are those of the whole data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from agentnb.objects.arrays import is_array, rows_of, statistics_of
from agentnb.objects.describe import describe
from agentnb.objects.kinds import is_path, is_sequence, is_text_value
from agentnb.objects.opened import as_table
from agentnb.objects.own import own_text
from agentnb.objects.paging import (
    COLUMNS,
    KEYS,
    MOST_AT_ONCE,
    OVERVIEW,
    ROWS,
    STATISTICS,
    TEXT,
    Part,
    page_of,
    stop_of,
)
from agentnb.objects.paths import FILE, FOLDER, kind_of_path
from agentnb.objects.short import (
    cut,
    fields_of,
    has_plain_repr,
    is_mapping,
    short,
    sorted_items,
    text_of,
    type_name,
    without_addresses,
)
from agentnb.objects.steps import CannotRead, places_of
from agentnb.objects.tables import Table, counted
from agentnb.objects.text_pages import entries_page, file_page, text_page

_MOST_COLUMNS = 40
"""Of the rows of a page."""
_DEFAULT_COLUMNS = 20
_SHORTEST_CELL, _LONGEST_CELL = 40, 6_000
_Reader = Callable[[Part], str]


def read_part_of(value: object, part: Part) -> str:
    """Read a part of an object, at most 8,000 characters.

    Raises:
        CannotRead: The object has no such part; the message says what it has.
    """
    asks_for_part = bool(part.columns or part.start or part.count)
    if part.what == OVERVIEW or not (part.what or asks_for_part):
        return describe(part.name, value)
    readers = _readers(value)
    what = part.what or next((each for each in (ROWS, TEXT, KEYS) if each in readers), "")
    read = readers.get(what)
    if read is None:
        there = ", ".join(f"`{each}`" for each in (OVERVIEW, *readers))
        raise CannotRead(
            f"{f'No `{what}`' if what else 'No part'} can be read of {part.name}, which is of type "
            f"{type_name(type(value))}: give `what` as one of {there}."
        )
    if part.columns and COLUMNS not in readers:
        raise CannotRead(f"{part.name} has no columns: leave `columns` out.")
    return read(part)


def _readers(value: Any) -> Mapping[str, _Reader]:
    """What can be read of an object beside its overview."""
    text = own_text(value)
    own: dict[str, _Reader] = {} if text is None else {TEXT: partial(text_page, text)}
    return {**_readers_of_data(value), **own}


def _readers_of_data(value: Any) -> dict[str, _Reader]:
    table = as_table(value)
    if table is not None:
        if table.rows is None:
            return {COLUMNS: partial(_columns, table)}
        return {
            COLUMNS: partial(_columns, table),
            ROWS: partial(_rows, table),
            STATISTICS: partial(_statistics, table),
        }
    if is_array(value):
        figures: dict[str, _Reader] = {STATISTICS: partial(_figures, value)}
        return {ROWS: partial(_array_rows, value), **figures} if value.ndim else figures
    if is_mapping(value):
        return {KEYS: partial(_keys, value)}
    if is_sequence(value):
        return {ROWS: partial(_items, value)}
    if is_text_value(value):
        return {TEXT: partial(text_page, text_of(value))}
    if is_path(value):
        return _readers_of_path(Path(value))
    fields = fields_of(value)
    if fields is not None:
        return {KEYS: partial(_fields, fields)}
    if has_plain_repr(type(value)):
        return {}
    return {TEXT: lambda part: text_page(without_addresses(str(repr(value))), part)}


def _readers_of_path(path: Path) -> dict[str, _Reader]:
    kind = kind_of_path(path)
    if kind == FILE:
        return {TEXT: partial(file_page, path)}
    return {KEYS: partial(entries_page, path)} if kind == FOLDER else {}


# -- tables ---------------------------------------------------------------------------------------


def _places(part: Part, table: Table) -> list[int]:
    if part.columns:
        return places_of(part.name, table, part.columns)
    return list(range(len(table.columns)))


def _columns(table: Table, part: Part) -> str:
    places = _places(part, table)
    total = len(places)
    chosen = places[part.start : stop_of(part, total, usual=200)]
    counts = table.rows is not None

    def lines() -> Iterator[str]:
        for at in chosen:
            nulls = f", {table.nulls(at):,} nulls" if counts else ""
            yield f"- {short(table.columns[at], 200)}: {table.dtype(at)}{nulls}"

    return page_of(part, "column", total, lines())


def _rows(table: Table, part: Part) -> str:
    total = table.rows or 0
    places = _places(part, table)
    chosen = places[: _MOST_COLUMNS if part.columns else _DEFAULT_COLUMNS]
    stop = stop_of(part, total, usual=20)
    if not chosen:
        return f"{part.name} has {counted(total, 'row')}, but no columns."
    if part.start >= stop:
        return page_of(part, "row", total, [])
    limit = 5_000 // ((stop - part.start) * len(chosen))
    limit = max(_SHORTEST_CELL, min(limit, _LONGEST_CELL))
    labels = table.labels(part.start, stop)
    cells = [table.cells(at, part.start, stop) for at in chosen]

    def lines() -> Iterator[str]:
        for at in range(stop - part.start):
            label = part.start + at if labels is None else labels[at]
            row = [short(column[at], limit) for column in cells]
            yield " | ".join([short(label, _SHORTEST_CELL), *row])

    names = [short(table.columns[at], _SHORTEST_CELL) for at in chosen]
    first = " | ".join(["[row]" if labels is None else "[index]", *names])
    note = ""
    if len(chosen) < len(table.columns):
        note = f"; {len(chosen):,} of {len(table.columns):,} columns, name others in `columns`"
    page = page_of(part, "row", total, lines(), note=note, first=first)
    if "…" in page:
        page += "\n(a cell that ends in … is cut: ask for fewer rows or columns to see more of it)"
    return page


def _statistics(table: Table, part: Part) -> str:
    places = _places(part, table)
    total = len(places)
    chosen = places[part.start : stop_of(part, total, usual=MOST_AT_ONCE)]

    def lines() -> Iterator[str]:
        for at in chosen:
            name = short(table.columns[at], 200)
            yield cut(f"- {name} ({table.dtype(at)}): {table.statistics(at)}", 2_000)

    rows = counted(table.rows or 0, "row")
    return page_of(part, "column", total, lines(), note=f"; figures on all {rows}")


# -- arrays, dicts, lists -------------------------------------------------------------------------


def _array_rows(array: Any, part: Part) -> str:
    total = len(array)
    stop = stop_of(part, total, usual=20)
    limit = 6_000 // max(1, stop - part.start)
    lines = rows_of(array, part.start, stop, max(_SHORTEST_CELL, min(limit, _LONGEST_CELL)))
    return page_of(part, "row", total, lines, note=f"; the array has shape {tuple(array.shape)}")


def _figures(array: Any, part: Part) -> str:
    """Exact figures on all values, and on each column or field if there are such."""
    names = array.dtype.names
    if names is None and array.ndim != 2:
        size = counted(int(array.size), "value")
        return f"{part.name}: figures on all {size}\n{statistics_of(array)}"
    total = len(names) if names is not None else array.shape[1]
    stop = stop_of(part, total, usual=MOST_AT_ONCE)

    def lines() -> Iterator[str]:
        for at in range(part.start, stop):
            column = array[:, at] if names is None else array[names[at]]
            name = at if names is None else names[at]
            yield cut(f"- {short(name)}: {statistics_of(column)}", 2_000)

    first = "" if names is not None else f"- all columns: {statistics_of(array)}"
    rows = counted(len(array), "row") if array.ndim else counted(1, "value")
    note = f"; figures on all {rows}"
    return page_of(part, "column", total, lines(), note=note, first=first)


def _limit(part: Part, stop: int) -> int:
    """Characters for an item, so that all that were asked for fit."""
    return max(_SHORTEST_CELL, min(6_000 // max(1, stop - part.start) - 40, _LONGEST_CELL))


def _keys(value: Any, part: Part) -> str:
    total = len(value)
    items = dict.items(value) if issubclass(type(value), dict) else value.items()
    return _pairs(islice(items, part.start, None), total, part, "key")


def _fields(fields: Sequence[tuple[str, Any]], part: Part) -> str:
    return _pairs(fields[part.start :], len(fields), part, "field")


def _pairs(pairs: Iterable[tuple[Any, Any]], total: int, part: Part, noun: str) -> str:
    stop = stop_of(part, total, usual=50)
    limit = _limit(part, stop)

    def lines() -> Iterator[str]:
        for key, each in islice(pairs, max(0, stop - part.start)):
            yield f"- {short(key, 200)}: {type_name(type(each))}, {short(each, limit)}"

    return page_of(part, noun, total, lines())


def _items(value: Any, part: Part) -> str:
    total = len(value)
    stop = stop_of(part, total, usual=50)
    limit = _limit(part, stop)
    if issubclass(type(value), set | frozenset):
        in_order = sorted_items(value, limit)[part.start : stop]
        return page_of(part, "item", total, (f"- {each}" for each in in_order), note="; sorted")
    found = islice(iter(value), part.start, stop)
    lines = (f"{at}: {short(each, limit)}" for at, each in enumerate(found, part.start))
    return page_of(part, "item", total, lines)
