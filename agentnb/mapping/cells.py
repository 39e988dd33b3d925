"""One cell of a table: whether it is missing, and its text in a prompt."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import date, time
from decimal import Decimal
from enum import Enum
from typing import Any

from agentnb.objects.written import written

MISSING: Any = type("Missing", (), {"__repr__": lambda _: "MISSING"})()
"""For a row without the column: distinct from a cell whose value is `None` or NaN."""


def is_missing(value: object) -> bool:
    """Whether a cell holds nothing: `None`, NaN, NaT or `pandas.NA`."""
    value = plain(value)
    if value is None or value is MISSING:
        return True
    if isinstance(value, Decimal):
        return value.is_nan()
    # By name, so that pandas need not be imported.
    return type(value).__name__ in ("NAType", "NaTType") or (
        isinstance(value, float) and value != value
    )


def plain(value: Any) -> Any:
    """A NumPy number as Python's, a member of an `Enum` as its value; all else unchanged."""
    if type(value).__module__ == "numpy" and hasattr(value, "item") and value.ndim == 0:
        return value.item()
    return value.value if isinstance(value, Enum) else value


def cell_text(value: Any) -> str:
    """A cell's text in a prompt.

    A missing value is an empty text. Numbers and dates print as in Python; lists, dicts and objects
    as JSON; the items of a set are in the order of their texts.

    Raises:
        ValueError: It holds bytes.
    """
    value = plain(value)
    if isinstance(value, str):
        return value
    if is_missing(value):
        return ""
    if isinstance(value, bytes | bytearray):
        raise ValueError("holds bytes: decode them first")
    if isinstance(value, bool | int | float | complex | Decimal | date | time):
        return str(value)
    if isinstance(value, Mapping | list | tuple | set | frozenset) or _has_fields(value):
        return _as_json(_for_json(value))
    return written(value)


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_for_json)


def _has_fields(value: object) -> bool:
    kind = type(value)
    is_array = kind.__module__ == "numpy"
    return is_array or dataclasses.is_dataclass(kind) or hasattr(kind, "model_dump")


def _for_json(value: Any) -> Any:
    """One level of a value in types that JSON has; `json.dumps` calls it for nested values."""
    value = plain(value)
    kind = type(value)
    if isinstance(value, Mapping):
        return {written(key): _for_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_for_json(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(map(_for_json, value), key=_as_json)
    if hasattr(kind, "model_dump"):
        return _in_order(value.model_dump(mode="json"), value.model_dump())
    if dataclasses.is_dataclass(kind):
        return _for_json(dataclasses.asdict(value))
    if kind.__module__ == "numpy":
        return _for_json(value.tolist())
    if is_missing(value):
        return None
    return value if isinstance(value, str | bool | int | float) else written(value)


def _in_order(dumped: Any, value: Any) -> Any:
    """What pydantic dumps as JSON, with the items of sets in the order of their texts.

    Args:
        dumped: As JSON.
        value: As Python's values, which tell what was a set.
    """
    if isinstance(value, set | frozenset) and isinstance(dumped, list):
        return sorted(dumped, key=_as_json)
    if isinstance(value, dict) and isinstance(dumped, dict) and len(value) == len(dumped):
        pairs = zip(dumped.items(), value.values(), strict=True)
        return {name: _in_order(each, was) for (name, each), was in pairs}
    if isinstance(value, list | tuple) and isinstance(dumped, list) and len(value) == len(dumped):
        return [_in_order(each, was) for each, was in zip(dumped, value, strict=True)]
    return dumped
