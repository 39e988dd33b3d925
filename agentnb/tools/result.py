"""Converts a function's return value to text for a model."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

NOTHING = "(no output)"


def as_text(value: Any) -> str:
    """Return `value` as text.

    A `str` stays as it is, and `None` becomes `(no output)`. Dicts, lists, tuples, sets,
    dataclasses and pydantic models become JSON; values in them that JSON lacks become text.
    Anything else is converted by `str`.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if value is None:
        return NOTHING
    if _has_parts(value):
        from pydantic_core import PydanticSerializationError, to_json  # heavy: only with tools

        try:
            return to_json(value, fallback=str, inf_nan_mode="strings").decode()
        except (PydanticSerializationError, ValueError):
            pass  # it contains itself, or text that cannot be encoded: use `str`
    return str(value)


def _has_parts(value: Any) -> bool:
    if isinstance(value, dict | list | tuple | set | frozenset):
        return True
    return not isinstance(value, type) and (
        is_dataclass(value) or hasattr(type(value), "__pydantic_serializer__")
    )
