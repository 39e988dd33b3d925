"""Converts a function's return value to what a model gets: text, and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import Any

from agentnb.core.types import ToolOutput
from agentnb.tools.pictures import may_be_picture, picture_of

NOTHING = "(no output)"
_MOST_ITEMS = 64
"""A longer list is data, and nobody looks for pictures in it."""


def has_to_draw(value: Any) -> bool:
    """Whether `as_output` may take long, since pictures are made."""
    return any(map(may_be_picture, _items_of(value)))


def as_output(value: Any) -> str | ToolOutput:
    """Return `value` as text, or as text and files.

    A `ToolOutput` stays as it is. A picture (see `agentnb.tools.pictures`) becomes a file, and its
    title the text; so do those in a list or a tuple, beside the texts of its other items. Anything
    else is text: see `as_text`.
    """
    if isinstance(value, ToolOutput):
        return value
    items = _items_of(value)
    found = [picture_of(item) for item in items]
    if not any(found):
        return as_text(value)
    return ToolOutput(
        "\n".join(
            as_text(item) if picture is None else picture.words
            for item, picture in zip(items, found, strict=True)
        ),
        tuple(picture.block for picture in found if picture is not None),
    )


def _items_of(value: Any) -> Sequence[Any]:
    is_list = type(value) in (list, tuple) and len(value) <= _MOST_ITEMS
    return value if is_list else (value,)


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
