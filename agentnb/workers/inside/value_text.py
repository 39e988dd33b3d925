"""A value as a bounded text for a model, which says what it leaves out."""

from __future__ import annotations

import sys
from typing import Any

MOST_IN_TEXT = 8_000
"""Characters."""
MOST_DISPLAYED = 20
_MOST_ROWS, _MOST_COLUMNS = 10, 30


def text_of(value: Any) -> str:
    """`value` as text. Never raises."""
    try:
        return cut(_text_of(value), MOST_IN_TEXT)
    except Exception as error:
        return f"(a {type(value).__name__} whose text could not be made: {type(error).__name__})"


def cut(text: str, most: int) -> str:
    """`text`, or its beginning and its end."""
    if len(text) <= most:
        return text
    left_out = len(text) - most
    return f"{text[: most // 2]}\n… {left_out:,} characters left out …\n{text[-(most // 2) :]}"


def encodable(value: Any) -> Any:
    """Plain values whose texts are valid UTF-8: a lone surrogate becomes its escape."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {encodable(name): encodable(each) for name, each in value.items()}
    return [encodable(each) for each in value] if isinstance(value, list | tuple) else value


def _text_of(value: Any) -> str:
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    numpy = sys.modules.get("numpy")
    if pandas is not None and isinstance(value, pandas.DataFrame):
        return _frame(value)
    if pandas is not None and isinstance(value, pandas.Series):
        head = value.head(_MOST_ROWS).to_string()
        left = f"\n… {len(value) - _MOST_ROWS:,} more" if len(value) > _MOST_ROWS else ""
        return f"Series {value.name!r}, {len(value):,} values, {value.dtype}\n{head}{left}"
    if numpy is not None and isinstance(value, numpy.ndarray):
        with numpy.printoptions(threshold=60, edgeitems=3):
            return f"array {value.shape}, {value.dtype}\n{value!r}"
    if polars is not None and isinstance(value, polars.DataFrame | polars.Series):
        return str(value)  # it names its shape, and shows ten rows
    if isinstance(value, str) and len(value) > MOST_IN_TEXT:
        return repr(cut(value, MOST_IN_TEXT))
    from IPython.lib import pretty

    show: Any = pretty.pretty
    return str(show(value, max_seq_length=100))


def _frame(frame: Any) -> str:
    rows, columns = frame.shape
    part = frame.iloc[:_MOST_ROWS, :_MOST_COLUMNS]
    kinds = ", ".join(f"{name} {kind}" for name, kind in part.dtypes.items())
    lines = [f"DataFrame, {rows:,} rows x {columns:,} columns ({kinds}"]
    lines[0] += f", … {columns - _MOST_COLUMNS:,} more)" if columns > _MOST_COLUMNS else ")"
    lines.append(part.to_string(max_colwidth=80))
    if rows > _MOST_ROWS:
        lines.append(f"… {rows - _MOST_ROWS:,} more rows")
    return "\n".join(lines)
