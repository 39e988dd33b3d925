"""A table of pandas: a frame, a series or an index. See `agentnb.objects.tables`.

Everything goes by position: names may be there twice, be tuples, or be anything else.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from agentnb.core.text import visible
from agentnb.objects.short import cut, short, tried
from agentnb.objects.tables import MOST_COUNTED, TOP, counted


class PandasTable:
    """See `agentnb.objects.tables.Table`.

    Args:
        value: The object.
        kind: `DataFrame`, `Series` or `Index`: the class of pandas that it is of.
    """

    def __init__(self, value: Any, kind: str) -> None:
        self._value, self._kind = value, kind
        self.rows: int | None = len(value)
        if kind == "DataFrame":
            self._labels: Any = value.index
            names = value.columns
            self.columns: Sequence[Any] = list(names)
            self._dtypes: Sequence[Any] = list(value.dtypes)
            self.shape = f"{counted(len(value), 'row')}, {counted(len(self.columns), 'column')}"
        elif kind == "Series":
            self._labels = value.index
            self.columns, self._dtypes = [value.name], [value.dtype]
            self.shape = counted(len(value), "value")
        else:
            self._labels = None
            self.columns = list(value.names)
            levels = getattr(value, "levels", None)
            self._dtypes = [value.dtype] if levels is None else [each.dtype for each in levels]
            self.shape = counted(len(value), "entry")
            if levels is not None:
                self.shape += f", {counted(len(levels), 'level')}"

    def dtype(self, at: int) -> str:
        """See `Table`."""
        return _dtype(self._dtypes[at])

    def nulls(self, at: int) -> int:
        """See `Table`."""
        codes = getattr(self._value, "codes", None) if self._kind == "Index" else None
        if codes is not None and len(self.columns) > 1:
            return int((codes[at] == -1).sum())
        return int(self.column(at).isna().sum())

    def counts_quickly(self, columns: int) -> bool:
        """See `Table`."""
        return (self.rows or 0) * columns <= MOST_COUNTED

    def cells(self, at: int, start: int, stop: int) -> Sequence[Any]:
        """See `Table`."""
        if self._kind == "DataFrame":
            return list(self._value.iloc[start:stop, at].array)
        if self._kind == "Series":
            return list(self._value.iloc[start:stop].array)
        return list(self._value[start:stop].get_level_values(at))

    def labels(self, start: int, stop: int) -> Sequence[Any] | None:
        """See `Table`."""
        return None if self._labels is None else list(self._labels[start:stop])

    def index(self) -> str:
        """See `Table`."""
        index = self._labels
        if index is None:
            return ""
        kind = type(index).__name__
        if hasattr(index, "levels"):
            levels = zip(index.names, index.levels, strict=True)
            named = ", ".join(f"{short(name)} ({_dtype(each.dtype)})" for name, each in levels)
            return cut(f"Index: {kind}, {counted(index.nlevels, 'level')}: {named}", 300)
        name = f" {short(index.name)}" if index.name is not None else ""
        said = f"Index: {kind}{name}, {_dtype(index.dtype)}"
        if len(index):
            said += f", first {short(index[0])}, last {short(index[-1])}"
        return said

    def column(self, at: int) -> Any:
        """See `Table`."""
        if self._kind == "DataFrame":
            return self._value.iloc[:, at]
        return self._value if self._kind == "Series" else self._value.get_level_values(at)

    def statistics(self, at: int) -> str:
        """See `Table`."""
        series = self.column(at)
        if self._kind == "Index":  # it has fewer methods than a series
            series = series.to_series()
        nulls = self.nulls(at)
        figures = [f"count {len(series) - nulls:,}", f"nulls {nulls:,}"]
        unique = tried(lambda: int(series.nunique()), None)
        if unique is None:
            return ", ".join([*figures, "its values cannot be compared, so none are counted"])
        figures.append(f"unique {unique:,}")
        if len(series) > nulls:
            figures += _measures(series, self._dtypes[at], unique)
        return ", ".join(figures)


def _measures(series: Any, dtype: Any, unique: int) -> list[str]:
    """Figures on the values themselves; there is at least one that is not missing."""
    types = sys.modules["pandas"].api.types
    if types.is_numeric_dtype(dtype) and not (
        types.is_bool_dtype(dtype) or types.is_complex_dtype(dtype)
    ):
        names = ("min", "mean", "median", "max", "std")
        with sys.modules["numpy"].errstate(all="ignore"):  # else it prints into a person's cell
            return [f"{name} {short(getattr(series, name)())}" for name in names]
    if types.is_datetime64_any_dtype(dtype) or types.is_timedelta64_dtype(dtype):
        return [f"min {short(series.min())}", f"max {short(series.max())}"]
    counts = series.value_counts()
    shown = counts[counts > 0].iloc[:TOP]  # a category may be there without a value
    pairs = [
        f"{short(label)} ({count:,})"
        for label, count in zip(shown.index, shown.tolist(), strict=True)
    ]
    return top_values(pairs, unique, most=shown.tolist()[0])


def top_values(pairs: Sequence[str], unique: int, *, most: int) -> list[str]:
    """The most frequent values, as far as any is more frequent than another."""
    if most == 1 and unique > TOP:
        return ["each value stands there once"]
    note = "" if unique <= len(pairs) else f" ({len(pairs)} of {unique:,} shown)"
    return [f"top values{note}: {', '.join(pairs)}"]


def _dtype(dtype: Any) -> str:
    name = type(dtype).__name__
    if name == "CategoricalDtype":
        order = ", ordered" if dtype.ordered else ""
        return f"category ({len(dtype.categories):,} categories{order})"
    return visible(str(dtype), 80)
