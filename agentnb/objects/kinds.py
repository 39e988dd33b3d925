"""What kind of object something is, and whether a description says more of it than its `str`."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from agentnb.objects.arrays import is_array
from agentnb.objects.opened import as_table
from agentnb.objects.own import has_own_text
from agentnb.objects.short import tried
from agentnb.objects.things import is_estimator, is_figure, is_image


def is_sequence(value: object) -> bool:
    """Whether it is a list, a tuple or a set."""
    return tried(lambda: issubclass(type(value), list | tuple | set | frozenset), False)


def is_text_value(value: object) -> bool:
    """Whether it is a text."""
    return tried(lambda: issubclass(type(value), str), False)


def is_path(value: object) -> bool:
    """Whether it is a path."""
    return tried(lambda: issubclass(type(value), PurePath), False)


def has_description(value: Any) -> bool:
    """Whether a description says more of an object than its `str`.

    So it is for tables, arrays, figures, images, estimators, and classes with `_repr_llm_` or
    `__llm__`; texts, numbers, dicts and lists say all by themselves.
    """
    return tried(lambda: _has_description(value), False)


def _has_description(value: Any) -> bool:
    if has_own_text(value):
        return True
    if is_array(value):
        return bool(value.ndim)
    if is_figure(value) or is_image(value) or is_estimator(value):
        return True
    return as_table(value) is not None
