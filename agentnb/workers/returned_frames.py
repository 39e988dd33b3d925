"""Makes frames and sparse matrices from a worker's file. See `returned`.

Only public constructors of the libraries are called, with parts that were checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agentnb.workers.inside.leaving_frames import MASKED, POLARS_NUMBERS
from agentnb.workers.returned_values import (
    Maker,
    NotReadable,
    Source,
    array_in,
    check_hashable,
    library,
    list_in,
    number_in,
    text_in,
    zone_of,
)

_FREQUENCY = re.compile(r"[0-9]{0,9}[A-Za-z]{1,5}(-[A-Z]{3})?")
_SPARSE = ("csr_matrix", "csc_matrix", "csr_array", "csc_array", "coo_matrix")


def _frame(source: Source, node: dict[str, Any]) -> Any:
    pd = library("pandas")
    index, names = _index_in(source, node.get("index")), _index_in(source, node.get("columns"))
    columns = [_column_in(source, each) for each in list_in(node, "v")]
    if len(columns) != len(names) or any(len(each) != len(index) for each in columns):
        raise NotReadable("its columns do not fit its index")
    series = (_own_type(each, index) for each in columns)
    frame = pd.DataFrame(dict(enumerate(series)), index=index, copy=False)
    frame.columns = names
    return frame


def _series(source: Source, node: dict[str, Any]) -> Any:
    index, values = _index_in(source, node.get("index")), _column_in(source, node.get("v"))
    if len(index) != len(values):
        raise NotReadable("its values do not fit its index")
    series = _own_type(values, index)
    series.name = _label(source, node.get("name"))
    return series


def _own_type(values: Any, index: Any) -> Any:
    """A series with the type of its values: pandas would guess another for objects."""
    return library("pandas").Series(values, index=index, dtype=values.dtype, copy=False)


def _index_in(source: Source, node: Any) -> Any:
    pd = library("pandas")
    found = source.value(node)
    if not isinstance(found, pd.Index):
        raise NotReadable("its index is not one")
    return found


def _label(source: Source, node: Any) -> Any:
    found = source.value(node)
    try:
        hash(found)
    except TypeError:
        raise NotReadable("its name cannot be one") from None
    return found


def _range(source: Source, node: dict[str, Any]) -> Any:
    pd = library("pandas")
    parts = list_in(node, "v")
    if len(parts) != 3:
        raise NotReadable("its index is not one")
    start, stop, step = (number_in({"v": each}, "v") for each in parts)
    return pd.RangeIndex(start, stop, step, name=_label(source, node.get("name")))


def _index(source: Source, node: dict[str, Any]) -> Any:
    pd = library("pandas")
    values, name = _column_in(source, node.get("v")), _label(source, node.get("name"))
    # Pandas would guess another type for objects.
    dtype = object if values.dtype == object else None
    index = pd.Index(values, dtype=dtype, name=name, copy=False)
    frequency = node.get("freq")
    if type(frequency) is str and _FREQUENCY.fullmatch(frequency):
        try:
            index.freq = frequency
        except (ValueError, AttributeError):
            pass  # it is only a note of how the values follow each other, and they do not
    return index


def _levels(source: Source, node: dict[str, Any]) -> Any:
    pd = library("pandas")
    levels = [_index_in(source, each) for each in list_in(node, "v")]
    codes = [array_in(source, each, kinds="i") for each in list_in(node, "codes")]
    names = [_label(source, each) for each in list_in(node, "names")]
    for level, code in zip(levels, codes, strict=True):
        if code.min(initial=0) < -1 or code.max(initial=-1) >= len(level):
            raise NotReadable("its index names values that are not there")
        check_hashable(source, level)
    return pd.MultiIndex(levels=levels, codes=codes, names=names, verify_integrity=True)


def _column_in(source: Source, node: Any) -> Any:
    """A column: an array of numpy with one dimension, or one of pandas' own."""
    np, pd = library("numpy"), library("pandas")
    found = source.value(node)
    if isinstance(found, pd.api.extensions.ExtensionArray):
        return found
    if type(found) is np.ndarray and found.ndim == 1:
        return found
    raise NotReadable("a column of it is not one")


def _category(source: Source, node: dict[str, Any]) -> Any:
    pd = library("pandas")
    codes = array_in(source, node.get("codes"), kinds="i")
    categories = _index_in(source, node.get("of"))
    check_hashable(source, categories)
    return pd.Categorical.from_codes(codes, categories, ordered=node.get("ordered") is True)


def _zoned(source: Source, node: dict[str, Any]) -> Any:
    pd = library("pandas")
    plain = pd.DatetimeIndex(array_in(source, node.get("v"), kinds="M"))
    return plain.tz_localize("UTC").tz_convert(zone_of(node.get("zone"))).array


def _strings(source: Source, node: dict[str, Any]) -> Any:
    np, pd = library("numpy"), library("pandas")
    texts = array_in(source, node.get("v"), kinds="O")
    na = np.nan if node.get("is_nan") is True else pd.NA
    return pd.array(texts, dtype=pd.StringDtype(na_value=na))


def _period(source: Source, node: dict[str, Any]) -> Any:
    pd = library("pandas")
    frequency = text_in(node, "freq", most=20)
    if not _FREQUENCY.fullmatch(frequency):
        raise NotReadable(f"the frequency {frequency!r} is not known")
    ordinals = array_in(source, node.get("v"), kinds="i")
    return pd.PeriodIndex.from_ordinals(ordinals, freq=frequency).array


def _interval(source: Source, node: dict[str, Any]) -> Any:
    pd = library("pandas")
    left, right = (_index_in(source, each) for each in list_in(node, "v"))
    closed = text_in(node, "closed", most=10)
    return pd.arrays.IntervalArray.from_arrays(left, right, closed=closed)


def _masked(source: Source, node: dict[str, Any]) -> Any:
    pd = library("pandas")
    name = text_in(node, "d", most=20)
    if not MASKED.fullmatch(name):
        raise NotReadable(f"a column of {name!r} cannot come back")
    values = array_in(source, node.get("v"), kinds="biuf")
    mask = array_in(source, node.get("mask"), kinds="b")
    if len(values) != len(mask):
        raise NotReadable("its values do not fit its mask")
    made = pd.array(values, dtype=name)
    made[mask] = pd.NA
    return made


def _timestamp(source: Source, node: dict[str, Any]) -> Any:
    pd = library("pandas")
    made = pd.Timestamp(array_in(source, node.get("v"), kinds="M", dimensions=0)[()])
    if node.get("zone") is None:
        return made
    return made.tz_localize("UTC").tz_convert(zone_of(node["zone"]))


def _timedelta(source: Source, node: dict[str, Any]) -> Any:
    pd = library("pandas")
    return pd.Timedelta(array_in(source, node.get("v"), kinds="m", dimensions=0)[()])


def _polars(source: Source, node: dict[str, Any]) -> Any:
    pl = library("polars")
    columns = [_polars_column(source, each) for each in list_in(node, "v")]
    if node.get("is_series") is True and len(columns) == 1:
        return columns[0]
    return pl.DataFrame(columns)


def _polars_column(source: Source, node: Any) -> Any:
    pl = library("polars")
    kind, name = text_in(node, "d", most=20), source.value(node.get("name"))
    if type(name) is not str:
        raise NotReadable("a column of it has no name")
    if kind in ("String", "Categorical"):
        texts = array_in(source, node.get("v"), kinds="O").tolist()
        return pl.Series(name, texts, dtype=pl.String).cast(getattr(pl, kind))
    if kind not in POLARS_NUMBERS:
        raise NotReadable(f"a column of {kind!r} cannot come back")
    dtype = getattr(pl, kind)
    if kind in ("Datetime", "Duration"):
        unit = text_in(node, "unit", most=2)
        if unit not in ("ns", "us", "ms"):
            raise NotReadable(f"the unit {unit!r} is not known")
        dtype = dtype(unit)
    column = pl.Series(name, array_in(source, node.get("v"), kinds="biuf")).cast(dtype)
    if kind == "Datetime" and node.get("zone") is not None:
        zone_of(node["zone"])
        column = column.dt.replace_time_zone("UTC").dt.convert_time_zone(node["zone"])
    if node.get("mask") is None:
        return column
    is_missing = array_in(source, node["mask"], kinds="b")
    if len(is_missing) != len(column):
        raise NotReadable("its values do not fit its mask")
    return column.zip_with(~pl.Series(is_missing), pl.Series([None], dtype=column.dtype))


def _sparse(source: Source, node: dict[str, Any]) -> Any:
    kind = text_in(node, "kind", most=20)
    if kind not in _SPARSE:
        raise NotReadable(f"a sparse {kind!r} cannot come back")
    make = getattr(library("scipy.sparse"), kind)
    rows, columns = (number_in({"n": n}, "n") for n in list_in(node, "s"))
    data = array_in(source, node.get("data"), kinds="biufc")
    names = ("row", "col") if kind == "coo_matrix" else ("indices", "indptr")
    first, second = (array_in(source, node.get(name), kinds="i") for name in names)
    if kind == "coo_matrix":
        return make((data, (first, second)), shape=(rows, columns))
    made = make((data, first, second), shape=(rows, columns))
    made.check_format(full_check=True)  # its methods trust the indices
    return made


FRAMES: Mapping[str, Maker] = {
    "frame": _frame,
    "series": _series,
    "range": _range,
    "index": _index,
    "levels": _levels,
    "column": lambda source, node: _column_in(source, node.get("v")),
    "category": _category,
    "zoned": _zoned,
    "strings": _strings,
    "period": _period,
    "interval": _interval,
    "masked": _masked,
    "Timestamp": _timestamp,
    "Timedelta": _timedelta,
    "polars": _polars,
    "sparse": _sparse,
}
