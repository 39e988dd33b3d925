"""A value as whole text in a prompt, the same in every kernel.

Python orders the items of a set by a random seed, and a `repr` may have a memory address. A prompt
with either is another one in each kernel, and no recording of it is found.
"""

from __future__ import annotations

from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable, Mapping, MappingView, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pprint import PrettyPrinter
from types import MappingProxyType, SimpleNamespace
from typing import Any

from agentnb.objects.short import without_addresses

_PLAIN: Sequence[Any] = (list.__repr__, dict.__repr__, tuple.__repr__)
_WITHIN_ITSELF = dict(zip(_PLAIN, ("[...]", "{...}", "(...)"), strict=True))
_WRAPPERS: Sequence[Any] = (UserDict.__repr__, UserList.__repr__)
_SETS: Sequence[Any] = (set.__repr__, frozenset.__repr__)
_VIEWS: Sequence[Any] = tuple(map(type, ({}.keys(), {}.values(), {}.items())))
_ARGUMENTS: Mapping[Any, Callable[[Any], Sequence[object]]] = {
    defaultdict.__repr__: lambda of: [of.default_factory, dict(of)],
    deque.__repr__: lambda of: [list(of)],
    ChainMap.__repr__: lambda of: of.maps,
    MappingProxyType.__repr__: lambda of: [dict(of)],
    OrderedDict.__repr__: lambda of: [dict(of)] if of else [],  # as from Python 3.12 on
    Counter.__repr__: lambda of: [dict(of.most_common())] if of else [],
    BaseException.__repr__: lambda of: of.args,
    MappingView.__repr__: lambda of: [of._mapping],
    **dict.fromkeys([each.__repr__ for each in _VIEWS], lambda of: [list(of)]),
}
"""By the `repr` of a container: what it is made of."""


def written(value: object) -> str:
    """The `str` of a value, with sets in the order of their texts and without memory addresses.

    Both are found in the containers of Python, those derived from them, namespaces, enums,
    dataclasses, attrs classes and pydantic models; a class with its own `repr` is as that has it. A
    text is never changed.
    """
    kind = type(value)
    if isinstance(value, str):
        return str(value)
    if kind.__str__ is BaseException.__str__:
        return written(value.args[0] if len(value.args) == 1 else value.args or "")  # type: ignore[attr-defined]
    is_error = isinstance(value, BaseException)
    is_known = _fields_of(kind) or (kind.__repr__ in _ARGUMENTS and not is_error)
    if kind.__str__ is not object.__str__ and not is_known:
        return without_addresses(str(value))
    return _Steady(sort_dicts=False).format(value, {}, 0, 0)[0]


class _Steady(PrettyPrinter):
    """Python's own writes containers on one line, each item by `format`."""

    def format(
        self, value: Any, context: dict[int, int], maxlevels: int, level: int
    ) -> tuple[str, bool, bool]:
        kind: Any = type(value)
        if id(value) in context:
            return _WITHIN_ITSELF.get(kind.__repr__, "..."), False, True
        if kind.__repr__ in _PLAIN or isinstance(value, str):
            return super().format(value, context, maxlevels, level)
        within = {**context, id(value): 1}

        def text_of(each: Any) -> str:
            return self.format(each, within, maxlevels, level + 1)[0]

        if kind.__repr__ in _WRAPPERS:
            text = text_of(value.data)
        elif kind.__repr__ in _SETS:
            inner = f"{{{', '.join(sorted(map(text_of, value)))}}}" if value else ""
            text = inner if inner and kind is set else f"{kind.__name__}({inner})"
        elif arguments := _ARGUMENTS.get(kind.__repr__):
            text = f"{kind.__name__}({', '.join(map(text_of, arguments(value)))})"
        elif kind.__repr__ is SimpleNamespace.__repr__:
            pairs = (f"{name}={text_of(each)}" for name, each in vars(value).items())
            name = "namespace" if kind is SimpleNamespace else kind.__name__
            text = f"{name}({', '.join(pairs)})"
        elif kind.__repr__ is Enum.__repr__ and kind._value_repr_ in (None, repr):
            text = f"<{kind.__name__}.{value.name}: {text_of(value.value)}>"
        elif names := _fields_of(kind):
            pairs = (f"{name}={text_of(getattr(value, name))}" for name in names)
            text = f"{kind.__qualname__}({', '.join(pairs)})"
        else:
            text = without_addresses(repr(value))
        return text, False, False


def _fields_of(kind: Any) -> list[str]:
    """The fields of a dataclass, attrs class or model in its `repr`; none if that is its own."""
    if is_dataclass(kind):
        is_made = hasattr(kind.__repr__, "__wrapped__") and kind.__str__ is object.__str__
        return [each.name for each in fields(kind) if each.repr] if is_made else []
    code = getattr(kind.__repr__, "__code__", None)
    if code is not None and code.co_filename.startswith("<attrs generated"):
        shown = [each for each in kind.__attrs_attrs__ if each.repr]
        return [each.name for each in shown] if all(each.repr is True for each in shown) else []
    by = getattr(kind.__repr__, "__module__", "")
    if by == "collections":  # a named tuple, or one without fields
        return list(getattr(kind, "_fields", ()))
    is_model = by == "pydantic.main"
    return [name for name, each in kind.model_fields.items() if each.repr] if is_model else []
