"""Opens a table of any library, as a view that reads it: see `agentnb.objects.tables`."""

from __future__ import annotations

from typing import Any

from agentnb.objects.short import is_a, loaded, tried
from agentnb.objects.tables import Table

_PANDAS = ("DataFrame", "Series", "Index")
_OTHERS = frozenset(
    {"cudf", "dask", "duckdb", "ibis", "modin", "polars", "pyarrow", "pyspark", "sqlframe"}
)
"""Libraries whose frames narwhals reads."""


def as_table(value: Any) -> Table | None:
    """A view of a table; `None` for anything else."""
    if loaded("pandas", "DataFrame") is not None:
        for name in _PANDAS:
            if is_a(value, "pandas", name):
                from agentnb.objects.pandas_table import PandasTable

                return PandasTable(value, name)
    libraries = {str(base.__module__).partition(".")[0] for base in type(value).__mro__}
    if libraries & _OTHERS:
        return tried(lambda: _through_narwhals(value), None)
    return None


def _through_narwhals(value: Any) -> Table | None:
    import narwhals as nw

    found = nw.from_native(value, pass_through=True, allow_series=True)
    if not isinstance(found, nw.DataFrame | nw.LazyFrame | nw.Series):
        return None
    from agentnb.objects.narwhals_table import NarwhalsTable

    return NarwhalsTable(found)
