"""Any value on one short line, in bounded time and memory, the same in every kernel.

A container is read only as far as it is shown. Memory addresses are left out, and sets are sorted:
a recorded prompt has to be the same the next time. Only the `repr` of a foreign class is called as
a whole, since nothing can bound it from outside.
"""

from __future__ import annotations

import functools
import re
import sys
import types
from array import array
from collections import ChainMap, UserDict, UserList, UserString, deque
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, ValuesView
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any, TypeVar

from agentnb.core.text import literal, sendable, visible

T = TypeVar("T")

MOST_ITEMS = 8
"""Of a container on one line."""
_MOST_SORTED = 200
"""Items of a set up to which it is sorted for one line; of a larger one none is shown."""
_MOST_LEVELS = 3
_MOST_BITS = 10_000
"""Of a whole number: to write a longer one in decimal takes long, and may be an error."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+| id='[0-9]+'")
_PLAIN = (bool, float, complex, type(None), type(Ellipsis), type(NotImplemented), range)
_DATES = (date, datetime, time, timedelta, Decimal)


def tried(read: Callable[[], T], otherwise: T) -> T:
    """What foreign code returns, or something else if it raises.

    `BaseException` is caught, too: a panic of polars is one.
    """
    try:
        return read()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return otherwise


def loaded(module: str, name: str) -> type | None:
    """A class of a module that is imported already; else `None`."""
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) else None


def is_a(value: object, module: str, name: str) -> bool:
    """Whether a value is of a class, without importing its module.

    Looks at its type: an object may say of itself that it is of another class.
    """
    known = loaded(module, name)
    return known is not None and tried(lambda: issubclass(type(value), known), False)


def type_name(kind: type) -> str:
    """A class as a person would import it: `int`, `pandas.DataFrame`, `shop.model.Order`."""
    return visible(tried(lambda: _type_name(kind), "object"), 100) or "object"


def _type_name(kind: type) -> str:
    module, name = str(kind.__module__), str(kind.__qualname__)
    if module in ("builtins", "__main__"):
        return name
    top = module.partition(".")[0]
    if getattr(sys.modules.get(top), name, None) is kind:
        return f"{top}.{name}"
    return f"{module}.{name}"


def short(value: object, limit: int = 60) -> str:
    """A value on one visible line, at most `limit` characters and the quotes of a text.

    What is left out shows as `…`. Never raises.
    """
    shown = tried(lambda: _short(value, limit, 0), "")
    if not shown:
        shown = f"<{type_name(type(value))}>"
    # A text is a literal, and cut already; its quotes do not count.
    return shown if tried(lambda: issubclass(type(value), str), False) else cut(shown, limit)


def cut(line: str, limit: int) -> str:
    """A line that is visible already, in at most `limit` characters. White space stays."""
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def text_of(value: str) -> str:
    """A text without what a class of its own makes of it."""
    return str.__str__(value)


def without_addresses(text: str) -> str:
    """A `repr` without memory addresses."""
    return _ADDRESS.sub("", text)


def _short(value: Any, limit: int, level: int) -> str:
    """A value on one line that is visible already; it may be longer than the limit."""
    kind = type(value)
    if issubclass(kind, str):
        return _short_text(str.__str__(value), limit)
    if kind in _PLAIN:
        return repr(value)
    if kind is int:
        bits = value.bit_length()
        return repr(value) if bits <= _MOST_BITS else f"<int of {bits:,} bits>"
    if kind in _DATES:
        return str(value)
    if issubclass(kind, bytes | bytearray):
        more = f"… ({len(value):,} bytes)" if len(value) > limit else ""
        return repr(bytes(value[:limit])) + more
    for shorten in (_short_container, _short_of_libraries, _short_fields, _short_code):
        shown = shorten(value, limit, level)
        if shown is not None:
            return shown
    if has_plain_repr(kind):
        return f"<{type_name(kind)}>"
    return visible(without_addresses(str(repr(value))), limit)


def has_plain_repr(kind: Any) -> bool:
    """Whether the `repr` of a class is the one of `object`, with a memory address."""
    return kind.__repr__ is object.__repr__


def _short_text(value: str, limit: int) -> str:
    # A margin, so that a secret at the cut is seen whole and masked.
    beginning = sendable(value[: 8 * limit + 1_000])
    shown = literal(beginning, limit)
    is_cut = len(value) > 8 * limit + 1_000
    return f"{shown[:-1]}…{shown[-1]}" if is_cut and "…" not in shown[-3:] else shown


def _short_container(value: Any, limit: int, level: int) -> str | None:
    kind = type(value)
    # The methods of the builtin class: one of a class derived from it may do anything.
    if issubclass(kind, dict):
        return _braced(dict.items(value), dict.__len__(value), limit, level)
    if kind in (types.MappingProxyType, ChainMap, UserDict):
        return _braced(value.items(), len(value), limit, level)
    if issubclass(kind, tuple):
        if hasattr(kind, "_fields"):
            pairs = zip(kind._fields, tuple.__iter__(value), strict=False)
            return _called(type_name(kind), pairs, tuple.__len__(value), limit, level)
        items, count = tuple.__iter__(value), tuple.__len__(value)
        return _bracketed("()", items, count, limit, level, is_tuple=True)
    if issubclass(kind, list):
        return _bracketed("[]", list.__iter__(value), list.__len__(value), limit, level)
    if issubclass(kind, set | frozenset):
        return _short_set(value, limit, level)
    if kind in (deque, UserList, array, memoryview):
        return type_name(kind) + _bracketed("[]", iter(value), len(value), limit, level)
    if issubclass(kind, KeysView | ValuesView | ItemsView) and kind.__module__ == "builtins":
        return type_name(kind) + _bracketed("()", iter(value), len(value), limit, level)
    if kind is UserString:
        return _short_text(value.data, limit)
    return None


def _short_set(value: Any, limit: int, level: int) -> str:
    base = set if issubclass(type(value), set) else frozenset
    count = base.__len__(value)
    if not count:
        return "set()"
    if count > _MOST_SORTED or level >= _MOST_LEVELS:
        return f"{{… {count:,} items}}"
    return _listed("{}", sorted_items(value, limit, level), count, limit)


def sorted_items(value: Any, limit: int = 60, level: int = 0) -> list[str]:
    """The items of a set on a line each, in the same order in every kernel."""
    base = set if issubclass(type(value), set) else frozenset
    return sorted(_item(each, limit, level + 1) for each in base.__iter__(value))


def _short_of_libraries(value: Any, limit: int, level: int) -> str | None:
    kind = type(value)
    if is_a(value, "numpy.ma.core", "MaskedConstant"):
        return "masked"
    if is_a(value, "numpy", "generic"):
        plain = value.item()
        return str(value) if type(plain) is kind or kind.__name__ in _TIMES else short(plain, limit)
    if kind.__module__.partition(".")[0] == "pandas" and kind.__name__ in _PANDAS_SCALARS:
        return visible(str(value), limit)
    if hasattr(kind, "shape") and hasattr(kind, "__len__"):  # a frame or an array in a cell
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple):
            sides = [side for side in shape if isinstance(side, int)]
            return f"<{type_name(kind)} of shape {tuple(sides)}>"
    return None


_TIMES = ("datetime64", "timedelta64")
_PANDAS_SCALARS = ("Timestamp", "Timedelta", "Period", "Interval", "NaTType", "NAType")


def fields_of(value: Any) -> list[tuple[str, Any]] | None:
    """The fields of a dataclass or a pydantic model that its `repr` would show; else `None`."""
    kind = type(value)
    if is_dataclass(kind):
        return [(f.name, _field(value, f.name)) for f in fields(kind) if f.repr]
    known = getattr(kind, "model_fields", None)
    if isinstance(known, dict) and hasattr(kind, "__pydantic_serializer__"):
        return [(str(n), _field(value, n)) for n, f in known.items() if getattr(f, "repr", True)]
    return None


class _Missing:
    def __repr__(self) -> str:
        return "<not there>"


def _field(value: Any, name: str) -> Any:
    return tried(lambda: getattr(value, name), _Missing())


def _short_fields(value: Any, limit: int, level: int) -> str | None:
    kind = type(value)
    found = fields_of(value)
    if found is not None:
        return _called(type_name(kind), found, len(found), limit, level)
    if kind is types.SimpleNamespace:
        pairs = vars(value)
        return _called("SimpleNamespace", pairs.items(), len(pairs), limit, level)
    if issubclass(kind, BaseException) and kind.__repr__ is BaseException.__repr__:
        return type_name(kind) + _bracketed("()", value.args, len(value.args), limit, level)
    return None


def _short_code(value: Any, limit: int, level: int) -> str | None:
    if isinstance(value, type):
        return f"<class {type_name(value)}>"
    if type(value) is types.ModuleType:
        return f"<module {visible(value.__name__, 60)}>"
    if type(value) is functools.partial:
        return f"<partial of {_short(value.func, limit, level + 1)}>"
    if type(value) in _CODE:
        return f"<function {visible(getattr(value, '__qualname__', ''), 60)}>"
    return None


_CODE = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
)


def _item(value: object, limit: int, level: int) -> str:
    """An item of a container. Never raises."""
    fallback = f"<{type_name(type(value))}>"
    return cut(tried(lambda: _short(value, limit, level), fallback), limit + 2)


def _bracketed(
    marks: str,
    items: Iterable[Any],
    count: int,
    limit: int,
    level: int,
    *,
    is_tuple: bool = False,
) -> str:
    if level >= _MOST_LEVELS:
        return f"{marks[0]}… {count:,} items{marks[1]}" if count else marks
    shown = [_item(each, limit, level + 1) for each in islice(items, MOST_ITEMS)]
    return _listed(marks, shown, count, limit, is_tuple=is_tuple)


def _braced(items: Iterable[tuple[Any, Any]], count: int, limit: int, level: int) -> str:
    if level >= _MOST_LEVELS:
        return f"{{… {count:,} keys}}" if count else "{}"
    shown = [
        f"{_item(key, limit, level + 1)}: {_item(each, limit, level + 1)}"
        for key, each in islice(items, MOST_ITEMS)
    ]
    return _listed("{}", shown, count, limit)


def _called(name: str, pairs: Iterable[tuple[str, Any]], count: int, limit: int, level: int) -> str:
    if level >= _MOST_LEVELS:
        return f"{name}(…)"
    shown = [
        f"{visible(key, 60)}={_item(each, limit, level + 1)}"
        for key, each in islice(pairs, MOST_ITEMS)
    ]
    return name + _listed("()", shown, count, limit)


def _listed(marks: str, shown: list[str], count: int, limit: int, *, is_tuple: bool = False) -> str:
    """The first items that fit, and the number of the others: `[1, 2, … 98 more]`."""
    kept: list[str] = []
    left = limit - len(" … 1,000,000 more]")
    for each in shown[:MOST_ITEMS]:
        left -= len(each) + 2
        if left < 0 and kept:
            break
        kept.append(each)
    more = count - len(kept)
    if more > 0:
        kept.append(f"… {more:,} more")
    return f"{marks[0]}{', '.join(kept)}{',' if is_tuple and count == 1 else ''}{marks[1]}"


def is_mapping(value: object) -> bool:
    """Whether it has keys and values."""
    return tried(lambda: issubclass(type(value), Mapping), False)
