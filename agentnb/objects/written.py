"""A value as whole text in a prompt, the same in every kernel.

Python orders the items of a set by a random seed, and a `repr` may have a memory address. A prompt
with either is another one in each kernel, and no recording of it is found.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pprint import PrettyPrinter
from typing import Any

from agentnb.objects.short import without_addresses

_WITHIN_ITSELF: dict[type, str] = {list: "[...]", dict: "{...}", tuple: "(...)"}


def written(value: object) -> str:
    """The `str` of a value, with sets in the order of their texts and without memory addresses.

    Both are found in lists, tuples, plain dicts, dataclasses and pydantic models; a class derived
    from a container is as its own `repr` has it. A text is never changed.
    """
    kind = type(value)
    if isinstance(value, str):
        return str(value)
    if kind.__str__ is not object.__str__ and not _fields_of(kind):
        return without_addresses(str(value))
    return _Steady(sort_dicts=False).format(value, {}, 0, 0)[0]


class _Steady(PrettyPrinter):
    """Python's own writes containers on one line, each item by `format`."""

    def format(
        self, value: Any, context: dict[int, int], maxlevels: int, level: int
    ) -> tuple[str, bool, bool]:
        kind = type(value)
        if id(value) in context:
            return _WITHIN_ITSELF.get(kind, "..."), False, True
        if kind in _WITHIN_ITSELF or isinstance(value, str):
            return super().format(value, context, maxlevels, level)
        within = {**context, id(value): 1}

        def text_of(each: Any) -> str:
            return self.format(each, within, maxlevels, level + 1)[0]

        if kind in (set, frozenset):
            inner = f"{{{', '.join(sorted(map(text_of, value)))}}}" if value else ""
            text = inner if inner and kind is set else f"{kind.__name__}({inner})"
        elif names := _fields_of(kind):
            pairs = (f"{name}={text_of(getattr(value, name))}" for name in names)
            text = f"{kind.__qualname__}({', '.join(pairs)})"
        else:
            text = without_addresses(repr(value))
        return text, False, False


def _fields_of(kind: Any) -> list[str]:
    """The fields of a dataclass or a pydantic model in its `repr`; none if that is its own."""
    if is_dataclass(kind):
        is_made = hasattr(kind.__repr__, "__wrapped__") and kind.__str__ is object.__str__
        return [each.name for each in fields(kind) if each.repr] if is_made else []
    is_model = getattr(kind.__repr__, "__module__", "") == "pydantic.main"
    return [name for name, each in kind.model_fields.items() if each.repr] if is_model else []
