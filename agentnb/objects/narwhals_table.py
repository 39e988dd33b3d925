"""A table of polars, or of any other library that narwhals reads. See `agentnb.objects.tables`.

Only made for an object of such a library, so narwhals is imported for it. A lazy table is never
computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals as nw

from agentnb.core.text import visible
from agentnb.objects.pandas_table import top_values
from agentnb.objects.short import short, tried
from agentnb.objects.tables import TOP, counted


class NarwhalsTable:
    """See `agentnb.objects.tables.Table`."""

    def __init__(self, value: nw.DataFrame[Any] | nw.LazyFrame[Any] | nw.Series[Any]) -> None:
        self._value = value
        if isinstance(value, nw.Series):
            self.columns: Sequence[Any] = [value.name]
            self._schema: Sequence[Any] = [value.dtype]
        else:
            schema = value.collect_schema()
            self.columns, self._schema = list(schema.names()), list(schema.dtypes())
        width = counted(len(self.columns), "column")
        if isinstance(value, nw.LazyFrame):
            self.rows: int | None = None
            self.shape = f"lazy: its rows are not computed, {width}"
        elif isinstance(value, nw.Series):
            self.rows = len(value)
            self.shape = counted(self.rows, "value")
        else:
            self.rows = len(value)
            self.shape = f"{counted(self.rows, 'row')}, {width}"

    def dtype(self, at: int) -> str:
        """See `Table`."""
        native = tried(lambda: self._native_dtype(at), None)
        return visible(str(native if native is not None else self._schema[at]), 80)

    def _native_dtype(self, at: int) -> object:
        native: Any = self._value.to_native()
        if isinstance(self._value, nw.Series):
            return native.dtype
        if isinstance(self._value, nw.DataFrame) and self._value.implementation.is_polars():
            return native.schema[self.columns[at]]
        return None

    def nulls(self, at: int) -> int:
        """See `Table`."""
        return int(self._series(at).null_count())

    def counts_quickly(self, columns: int) -> bool:
        """See `Table`."""
        return self.rows is not None  # these libraries keep count

    def column(self, at: int) -> Any:
        """See `Table`."""
        return self._series(at).to_native()

    def _series(self, at: int) -> nw.Series[Any]:
        if isinstance(self._value, nw.LazyFrame):
            raise ValueError("it is lazy")
        if isinstance(self._value, nw.Series):
            return self._value
        return self._value.get_column(self.columns[at])

    def cells(self, at: int, start: int, stop: int) -> Sequence[Any]:
        """See `Table`."""
        return list(self._series(at)[start:stop].to_list())

    def labels(self, start: int, stop: int) -> Sequence[Any] | None:
        """See `Table`."""
        return None

    def index(self) -> str:
        """See `Table`."""
        return ""

    def statistics(self, at: int) -> str:
        """See `Table`."""
        series: nw.Series[Any] = self._series(at)
        dtype = series.dtype
        nulls = int(series.null_count())
        series = series.drop_nulls()
        figures = [f"count {len(series):,}", f"nulls {nulls:,}"]
        if dtype.is_float():
            no_numbers = int(series.is_nan().sum())
            if no_numbers:
                series = series.filter(~series.is_nan())
                figures = [f"count {len(series):,}", f"nulls {nulls:,}", f"nan {no_numbers:,}"]
        unique = tried(lambda: int(series.n_unique()), None)
        if unique is None:
            return ", ".join([*figures, "its values cannot be compared, so none are counted"])
        figures.append(f"unique {unique:,}")
        if len(series):
            figures += _measures(series, dtype, unique)
        return ", ".join(figures)


def _measures(series: nw.Series[Any], dtype: Any, unique: int) -> list[str]:
    if dtype.is_numeric():
        names = ("min", "mean", "median", "max", "std")
        return [f"{name} {short(getattr(series, name)())}" for name in names]
    if dtype.is_temporal():
        return [f"min {short(series.min())}", f"max {short(series.max())}"]
    counts = series.alias("value").value_counts(name="times")
    # By value, too, where that has an order: which of two equals comes first would be chance.
    ordered = tried(
        lambda: counts.sort("times", "value", descending=[True, False]),
        counts.sort("times", descending=True),
    )
    shown = ordered.head(TOP)
    values, times = shown["value"].to_list(), shown["times"].to_list()
    pairs = [f"{short(value)} ({count:,})" for value, count in zip(values, times, strict=True)]
    return top_values(pairs, unique, most=times[0])
