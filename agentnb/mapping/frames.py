"""Makes frames of columns: of the library of the input's frame, else of pandas.

In pandas a column of whole numbers is `Int64` and one of truth values `boolean` (both have missing
values, so that a failed row does not turn a 1 into `1.0`), one of numbers `float64`, one of texts
pandas' type for texts (`str` from pandas 3 on); all others are `object`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentnb.mapping.rows import Table

_INT64 = range(-(2**63), 2**63)
NO_PANDAS = (
    "The table of a list is a pandas frame, and pandas is not installed: `pip install "
    "pandas`, or use `out.to_records()`."
)


def make_frame(
    columns: Mapping[str, Sequence[Any]],
    table: Table,
    *,
    kinds: Mapping[str, str],
    rows: Sequence[int] | None = None,
) -> Any:
    """Make a frame of the input's kind.

    Args:
        columns: Values by column name, `None` for a missing one.
        table: The input; its index is kept.
        kinds: See `kind_of`; by name, for columns whose values may all be missing.
        rows: Positions in the table of these values; by default all rows.

    Raises:
        ImportError: The input is a list, and pandas is not installed.
    """
    import narwhals as nw

    implementation = nw.Implementation.PANDAS
    if table.frame is not None:
        implementation = table.frame.implementation
    of = {name: kinds.get(name) or kind_of(values) for name, values in columns.items()}
    if not implementation.is_pandas():
        series = {
            name: _new_series(name, values, of[name], implementation)
            for name, values in columns.items()
        }
        return nw.from_dict(series).to_native()
    try:
        pandas: Any = implementation.to_native_namespace()
    except ImportError:
        raise ImportError(NO_PANDAS) from None
    text = pandas.Series([""]).dtype
    dtypes = {"text": text, "int": "Int64", "bool": "boolean", "float": "float64"}
    index = table.index
    if index is not None and rows is not None:
        index = index.take(list(rows))
    elif index is None and rows is not None:
        index = list(rows)
    series = {
        name: pandas.Series(list(values), dtype=dtypes.get(of[name], "object")).array
        for name, values in columns.items()
    }
    return pandas.DataFrame(series, index=index)


def _new_series(name: str, values: Sequence[Any], kind: str, implementation: Any) -> Any:
    import narwhals as nw

    dtypes: dict[str, Any] = {
        "text": nw.String,
        "int": nw.Int64,
        "bool": nw.Boolean,
        "float": nw.Float64,
    }
    if kind in dtypes:
        return nw.new_series(name, list(values), dtypes[kind], backend=implementation)
    try:
        return nw.new_series(name, list(values), backend=implementation)
    except (TypeError, ValueError, OverflowError):  # values of several types
        return nw.new_series(name, list(values), nw.Object, backend=implementation)


def kind_of(values: Sequence[Any]) -> str:
    """`text`, `int`, `float` or `bool` if all values are of that type or missing; else `other`."""
    types = {type(value) for value in values if value is not None}
    if types == {bool}:
        return "bool"
    if types == {str}:
        return "text"
    if types == {int}:
        is_short = all(value is None or value in _INT64 for value in values)
        return "int" if is_short else "other"
    return "float" if types and types <= {int, float} else "other"


def selected(frame: Any, keep: Sequence[bool]) -> Any:
    """The rows of a frame for which `keep` is true, as a frame of the same kind."""
    import narwhals as nw

    return nw.from_native(frame).filter(list(keep)).to_native()
