"""Arrays of numpy: what they are, their first values, and exact figures on all of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from agentnb.core.text import visible
from agentnb.objects.room import Room
from agentnb.objects.short import cut, is_a, short, tried
from agentnb.objects.tables import counted, part_of

_FIRST = 12
"""Values that a first look shows."""
_MOST_FIELDS = 20
_MOST_SORTED = 20_000_000
"""Values up to which the different ones are counted, for which they are copied and sorted."""


def is_array(value: object) -> bool:
    """Whether it is an array of numpy; a scalar of numpy is none."""
    return is_a(value, "numpy", "ndarray")


def shape_of(array: Any) -> str:
    """`shape (1000, 3), float64`."""
    return f"shape {tuple(array.shape)}, {dtype_of(array)}"


def dtype_of(array: Any) -> str:
    """The dtype as numpy writes it; for a structured one how many fields it has."""
    names = array.dtype.names
    if names is None:
        return visible(str(array.dtype), 80)
    return f"structured, {counted(len(names), 'field')}"


def add_array(room: Room, array: Any) -> None:
    """Describe an array below its first line."""
    names = array.dtype.names
    for at, name in enumerate(names or ()):
        if at == _MOST_FIELDS:
            room.add(f"({_MOST_FIELDS} of {len(names):,} fields shown)")
            break
        room.add(f"- {short(name)}: {visible(str(array.dtype[name]), 80)}")
    total = int(array.size)
    if not total:
        room.add("No values.")
        return
    values = [short(each, 60) for each in first_values(array, _FIRST)]
    in_order = ", in row order" if array.ndim > 1 else ""
    while values:
        said = part_of(len(values), total, "value")
        if room.add(f"Values ({said}{in_order}): {', '.join(values)}"):
            return
        values.pop()


def first_values(array: Any, most: int) -> list[Any]:
    """The first values in row order, without a copy of the array."""
    if array.ndim == 0:
        return [array[()]]
    found: list[Any] = []
    flat = array.flat
    for at in range(min(most, int(array.size))):
        found.append(flat[at])
    return found


def rows_of(array: Any, start: int, stop: int, limit: int) -> Iterator[str]:
    """Entries along the first axis, a line each."""
    for at in range(start, stop):
        row = array[at]
        if is_array(row) and row.ndim:
            total = int(row.size)
            most = max(1, min(total, limit // 8))
            shown = ", ".join(short(each, 40) for each in first_values(row, most))
            if len(shown) > limit:
                shown = cut(shown, limit)
                yield f"{at} | {shown} (cut; {total:,} values in all)"
            elif total > most:
                yield f"{at} | {shown}, … (first {most:,} of {total:,} values)"
            else:
                yield f"{at} | {shown}"
        else:
            yield f"{at} | {short(row, limit)}"


def statistics_of(array: Any) -> str:
    """Exact figures on all values of an array, on one line."""
    numpy: Any = sys.modules["numpy"]
    with numpy.errstate(all="ignore"):  # a warning would be printed into a person's cell
        return _statistics(array, numpy)


def _statistics(array: Any, numpy: Any) -> str:
    kind = array.dtype.kind
    # As what it is, whatever its class makes of an operation: `median` passes over a mask.
    is_masked = is_a(array, "numpy.ma", "MaskedArray")
    values = array.compressed() if is_masked else numpy.asarray(array)
    left_out = [f"masked {int(array.size) - int(values.size):,}"] if is_masked else []
    if kind in "fmM":
        missing = numpy.isnan(values) if kind == "f" else numpy.isnat(values)
        gone = int(missing.sum())
        left_out.append(f"{'nan' if kind == 'f' else 'NaT'} {gone:,}")
        if gone:
            values = values[~missing]
    figures = [f"count {int(values.size):,}", *left_out]
    if kind not in "biufmM" and values.size:
        return f"{', '.join(figures)}; no figures on values of {dtype_of(array)}"
    if not values.size:
        return ", ".join(figures)
    if values.size <= _MOST_SORTED:
        unique = tried(lambda: f"unique {len(numpy.unique(values)):,}", "")
        figures += [unique] if unique else []
    else:
        figures.append(f"unique not counted (more than {_MOST_SORTED:,} values)")
    if kind == "b":
        true = int(values.sum())
        return ", ".join([*figures, f"true {true:,}", f"false {int(values.size) - true:,}"])
    figures.append(f"min {short(values.min())}")
    if kind in "iuf":
        figures.append(f"mean {short(values.mean(dtype=numpy.float64))}")
        figures.append(f"median {short(numpy.median(values))}")
    figures.append(f"max {short(values.max())}")
    if kind in "iuf":
        figures.append(f"std {short(values.std(dtype=numpy.float64))}")
    return ", ".join(figures)
