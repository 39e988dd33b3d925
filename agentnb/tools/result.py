"""What a function returned, as the text that a model is told."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

NOTHING = "(no output)"


def as_text(value: Any) -> str:
    """`value` as text.

    Text stays as it is, nothing is `(no output)`; dicts, lists, tuples, sets, dataclasses and
    pydantic models become JSON, and whatever stands in them that JSON does not have, text. All
    else is what `str` makes of it.
    """
    if isinstance(value, str):
        return str.__str__(value)
    if value is None:
        return NOTHING
    if _has_parts(value):
        from pydantic_core import PydanticSerializationError, to_json  # heavy: for who has tools

        try:
            return to_json(value, fallback=str, inf_nan_mode="strings").decode()
        except (PydanticSerializationError, ValueError):
            pass  # it holds itself, or what is no text in any encoding: `str` says what it can
    return str(value)


def _has_parts(value: Any) -> bool:
    if isinstance(value, dict | list | tuple | set | frozenset):
        return True
    return not isinstance(value, type) and (
        is_dataclass(value) or hasattr(type(value), "__pydantic_serializer__")
    )
