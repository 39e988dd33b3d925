"""Arrays and frames as nodes of the file that a worker leaves. See `leaving`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from agentnb.workers.inside.leaving_values import CannotLeave, Maker, Writer, zone_of


def _numpy(writer: Writer, value: Any, depth: int) -> Any:
    np = sys.modules["numpy"]
    if type(value) is np.ndarray:
        return array_node(writer, value, depth)
    if isinstance(value, np.generic) and type(value).__module__ == "numpy":
        return {"t": "scalar", "v": array_node(writer, np.asarray(value), depth)}
    return None


def array_node(writer: Writer, array: Any, depth: int) -> Any:
    """The node of an array of numpy."""
    np = sys.modules["numpy"]
    shape = list(array.shape)
    if array.dtype.kind == "O":
        flat = array.ravel().tolist()
        if array.ndim == 1 and (texts := _texts(writer, flat)) is not None:
            return texts
        return {"t": "objects", "s": shape, "v": [writer.node(each, depth) for each in flat]}
    if array.dtype.kind not in "biufcmMSU" or array.dtype.itemsize == 0:
        raise CannotLeave(f"an array of {array.dtype} cannot come back")
    if array.dtype.hasobject or array.dtype.fields:
        raise CannotLeave(f"an array of {array.dtype} cannot come back")
    content = np.ascontiguousarray(array).reshape(-1).view("u1")
    return {"t": "array", "d": array.dtype.str, "s": shape, "b": writer.buffer(content.data)}


def _texts(writer: Writer, values: list[Any]) -> Any:
    """One buffer for a column of texts, and one for their lengths; `None` if it has others."""
    import numpy as np

    pandas = sys.modules.get("pandas")
    na = getattr(pandas, "NA", None)
    lengths, parts = np.empty(len(values), "<i8"), []
    for i, value in enumerate(values):
        if type(value) is str:
            part = value.encode("utf-8", "surrogatepass")
            parts.append(part)
            lengths[i] = len(part)
        elif value is None:
            lengths[i] = -1
        elif type(value) is float and value != value:
            lengths[i] = -2
        elif na is not None and value is na:
            lengths[i] = -3
        else:
            return None
    ends = writer.buffer(lengths.view("u1").data)
    return {"t": "texts", "n": len(values), "l": ends, "b": writer.buffer(b"".join(parts))}


def _scipy(writer: Writer, value: Any, depth: int) -> Any:
    kind = type(value).__name__
    if not type(value).__module__.startswith("scipy.sparse") or not hasattr(value, "tocoo"):
        return None
    if kind not in ("csr_matrix", "csc_matrix", "csr_array", "csc_array", "coo_matrix"):
        raise CannotLeave(f"a {kind} cannot come back: convert it by `tocsr()`")
    if kind == "coo_matrix":
        parts = {"row": value.row, "col": value.col}
    else:
        parts = {"indices": value.indices, "indptr": value.indptr}
    nodes = {name: array_node(writer, part, depth) for name, part in parts.items()}
    data = array_node(writer, value.data, depth)
    return {"t": "sparse", "kind": kind, "s": list(value.shape), "data": data, **nodes}


def _pandas(writer: Writer, value: Any, depth: int) -> Any:
    pd = sys.modules["pandas"]
    kind = type(value)
    if kind is pd.DataFrame:
        columns = [_column(writer, value.iloc[:, i].array, depth) for i in range(value.shape[1])]
        index = _index(writer, value.index, depth)
        names = _index(writer, value.columns, depth)
        return {"t": "frame", "columns": names, "index": index, "v": columns}
    if kind is pd.Series:
        return {
            "t": "series",
            "v": _column(writer, value.array, depth),
            "index": _index(writer, value.index, depth),
            "name": writer.node(value.name, depth),
        }
    if isinstance(value, pd.Index):
        return _index(writer, value, depth)
    if value is pd.NaT or value is pd.NA:
        return {"t": "missing", "v": "NaT" if value is pd.NaT else "NA"}
    if kind is pd.Timestamp:
        zone = None if value.tzinfo is None else zone_of(value.tzinfo)
        plain = value if value.tzinfo is None else value.tz_convert("UTC").tz_localize(None)
        return {
            "t": "Timestamp",
            "v": array_node(writer, plain.asm8.reshape(()), depth),
            "zone": zone,
        }
    if kind is pd.Timedelta:
        return {"t": "Timedelta", "v": array_node(writer, value.asm8.reshape(()), depth)}
    if isinstance(value, pd.api.extensions.ExtensionArray):
        return {"t": "column", "v": _column(writer, value, depth)}
    if kind.__module__.startswith("pandas"):
        raise CannotLeave(f"a pandas {kind.__name__} cannot come back")
    return None


MASKED = re.compile(r"U?Int(8|16|32|64)|Float(32|64)|boolean")


def _index(writer: Writer, index: Any, depth: int) -> Any:
    pd = sys.modules["pandas"]
    if isinstance(index, pd.RangeIndex):
        name = writer.node(index.name, depth)
        return {"t": "range", "v": [index.start, index.stop, index.step], "name": name}
    if isinstance(index, pd.MultiIndex):
        return {
            "t": "levels",
            "v": [_index(writer, level, depth) for level in index.levels],
            "codes": [
                array_node(writer, sys.modules["numpy"].asarray(c), depth) for c in index.codes
            ],
            "names": [writer.node(name, depth) for name in index.names],
        }
    name = writer.node(index.name, depth)
    freq = getattr(index, "freqstr", None) if isinstance(index, pd.DatetimeIndex) else None
    return {"t": "index", "v": _column(writer, index.array, depth), "name": name, "freq": freq}


def _column(writer: Writer, array: Any, depth: int) -> Any:
    pd, np = sys.modules["pandas"], sys.modules["numpy"]
    dtype = array.dtype
    if isinstance(dtype, np.dtype) or type(array) is pd.arrays.NumpyExtensionArray:
        return array_node(writer, np.asarray(array), depth)
    if isinstance(dtype, pd.CategoricalDtype):
        codes = array_node(writer, np.asarray(array.codes), depth)
        categories = _index(writer, array.categories, depth)
        return {"t": "category", "codes": codes, "of": categories, "ordered": bool(array.ordered)}
    if isinstance(dtype, pd.DatetimeTZDtype):
        plain = np.asarray(array.tz_convert("UTC").tz_localize(None))
        return {"t": "zoned", "v": array_node(writer, plain, depth), "zone": zone_of(dtype.tz)}
    if isinstance(dtype, pd.StringDtype):
        texts = _texts(writer, list(array.astype(object)))
        return {"t": "strings", "v": texts, "is_nan": dtype.na_value is not pd.NA}
    if isinstance(dtype, pd.PeriodDtype):
        ordinals = array_node(writer, np.asarray(array.asi8), depth)
        return {"t": "period", "v": ordinals, "freq": str(dtype)[len("period[") : -1]}
    if isinstance(dtype, pd.IntervalDtype):
        sides = [_index(writer, pd.Index(side), depth) for side in (array.left, array.right)]
        return {"t": "interval", "v": sides, "closed": dtype.closed}
    numbers = getattr(dtype, "numpy_dtype", None)
    if isinstance(numbers, np.dtype) and MASKED.fullmatch(str(dtype)):
        mask = np.asarray(array.isna())
        values = array.to_numpy(dtype=numbers, na_value=numbers.type(0))
        nodes = [array_node(writer, part, depth) for part in (values, mask)]
        return {"t": "masked", "d": str(dtype), "v": nodes[0], "mask": nodes[1]}
    raise CannotLeave(f"a column of {dtype} cannot come back: convert it by `astype`")


def _polars(writer: Writer, value: Any, depth: int) -> Any:
    pl = sys.modules["polars"]
    if isinstance(value, pl.LazyFrame):
        raise CannotLeave("a LazyFrame has no rows yet: `collect()` it")
    if isinstance(value, pl.Series):
        return {"t": "polars", "v": [_polars_column(writer, value, depth)], "is_series": True}
    if not isinstance(value, pl.DataFrame):
        return None
    columns = [_polars_column(writer, each, depth) for each in value.get_columns()]
    return {"t": "polars", "v": columns, "is_series": False}


POLARS_NUMBERS = (
    *("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"),
    *("Float32", "Float64", "Boolean", "Date", "Time", "Datetime", "Duration"),
)


def _polars_column(writer: Writer, column: Any, depth: int) -> Any:
    """Not as Arrow's own bytes: those may be packed, and unpack to any size."""
    import numpy as np  # it is there: polars gives its columns as arrays

    pl = sys.modules["polars"]
    dtype, kind = column.dtype, str(column.dtype.base_type())
    node = {"name": writer.node(column.name, depth), "d": kind}
    if kind in ("String", "Categorical"):
        texts = np.array(column.cast(pl.String).to_list(), dtype=object)
        return {**node, "v": _texts(writer, texts.tolist()), "mask": None}
    if kind not in POLARS_NUMBERS:
        raise CannotLeave(f"a column of {dtype} cannot come back: convert it by `cast`")
    unit, zone = getattr(dtype, "time_unit", None), getattr(dtype, "time_zone", None)
    plain = column.to_physical()
    values = plain.fill_null(False if kind == "Boolean" else 0).to_numpy()
    mask = array_node(writer, column.is_null().to_numpy(), depth) if column.null_count() else None
    return {
        **node,
        "v": array_node(writer, values, depth),
        "mask": mask,
        "unit": unit,
        "zone": zone,
    }


FRAMES: Mapping[str, Maker] = {
    "numpy": _numpy,
    "pandas": _pandas,
    "polars": _polars,
    "scipy.sparse": _scipy,
}
"""By the module that must have been imported for such a value to be."""
