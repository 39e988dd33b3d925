"""Objects that are no data: figures, images, estimators, functions, classes, modules, records.

Each part adds lines below the first one, which has the name and the type.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from agentnb.core.text import one_line, visible
from agentnb.objects.room import Room
from agentnb.objects.short import cut, fields_of, is_a, short, text_of, tried
from agentnb.objects.tables import counted

_MOST_LINES = 30


def add_listed(room: Room, noun: str, lines: Iterable[str], total: int) -> None:
    """Add lines, and say how many of how many were shown if some do not fit."""
    shown = 0
    for line in lines:
        if shown == _MOST_LINES or not room.add(line, leave=60):
            break
        shown += 1
    if shown < total:
        room.add(f"({shown:,} of {counted(total, noun)} shown)")


# -- figures and images ----------------------------------------------------------------------------


def is_figure(value: object) -> bool:
    """Whether it is a figure of matplotlib, or axes in one."""
    return is_a(value, "matplotlib.figure", "FigureBase") or is_axes(value)


def is_axes(value: object) -> bool:
    """Whether it is axes of matplotlib."""
    return is_a(value, "matplotlib.axes", "Axes")


def shape_of_figure(value: Any) -> str:
    """What a figure shows, in a few words."""
    if is_axes(value):
        return "axes in a figure"
    inches = tried(lambda: value.get_size_inches(), None)
    size = "" if inches is None else f", {inches[0]:g} by {inches[1]:g} inches"
    return f"{len(value.axes):,} axes{size}"


def add_figure(room: Room, value: Any) -> None:
    """Describe a figure by the words in it, and what is drawn."""
    if is_axes(value):
        room.add(_axes(value))
        return
    title = tried(lambda: value.get_suptitle(), "")
    if title:
        room.add(f"Title: {short(title, 120)}")
    axes = list(value.axes)
    add_listed(room, "plot", (f"- {_axes(each)}" for each in axes), len(axes))


def _axes(axes: Any) -> str:
    said: list[str] = []
    for name, method in (("title", "get_title"), ("x", "get_xlabel"), ("y", "get_ylabel")):
        text = tried(partial(_asked, axes, method), "")
        if text:
            said.append(f"{name} {short(text, 80)}")
    for noun, attribute in _DRAWN:
        number = tried(partial(_number, axes, attribute), 0)
        if number:
            said.append(f"{number:,} {noun if number == 1 else attribute}")
    labels = tried(lambda: [*axes.get_legend_handles_labels()[1]], list[Any]())
    if labels:
        more = f" … {len(labels) - 8:,} more" if len(labels) > 8 else ""
        said.append(f"labels {', '.join(short(each, 40) for each in labels[:8])}{more}")
    return f"Axes: {', '.join(said) or 'empty'}"


_DRAWN = (
    ("line", "lines"),
    ("patch", "patches"),
    ("collection", "collections"),
    ("image", "images"),
)


def _asked(owner: Any, method: str) -> Any:
    return getattr(owner, method)()


def _number(owner: Any, attribute: str) -> int:
    return len(getattr(owner, attribute))


def is_image(value: object) -> bool:
    """Whether it is an image of Pillow."""
    return is_a(value, "PIL.Image", "Image")


def shape_of_image(value: Any) -> str:
    """The size of an image."""
    width, height = value.size
    kind = f", {visible(str(value.format), 20)}" if value.format else ""
    return f"{width:,} by {height:,} pixels, mode {visible(str(value.mode), 20)}{kind}"


# -- estimators ------------------------------------------------------------------------------------


def is_estimator(value: object) -> bool:
    """Whether it can be fitted, and tells its parameters."""
    kind = type(value)
    has = (callable(inspect.getattr_static(kind, each, None)) for each in ("fit", "get_params"))
    return not isinstance(value, type) and all(has)


def shape_of_estimator(value: Any) -> str:
    """Whether an estimator is fitted."""
    return "estimator, fitted" if _is_fitted(value) else "estimator, not fitted"


def _is_fitted(value: Any) -> bool:
    if hasattr(type(value), "__sklearn_is_fitted__"):
        return bool(tried(lambda: value.__sklearn_is_fitted__(), False))
    return bool(_learned(value))


def _learned(value: Any) -> list[str]:
    """The attributes that `fit` has set, by the naming that scikit-learn asks for."""
    names = tried(lambda: [*vars(value)], list[str]())
    return [n for n in names if n.endswith("_") and not n.startswith("_")]


def add_estimator(room: Room, value: Any) -> None:
    """Describe an estimator by its parameters, and what it has learned."""
    params = tried(lambda: dict(value.get_params(deep=False)), dict[Any, Any]())
    if params:
        room.add("Parameters:")
        lines = (f"- {short_name(n)}: {short(each, 80)}" for n, each in params.items())
        add_listed(room, "parameter", lines, len(params))
    learned = _learned(value)
    if learned:
        room.add("Set by `fit`:")
        lines = (f"- {short_name(n)}: {short(vars(value)[n], 80)}" for n in learned)
        add_listed(room, "attribute", lines, len(learned))


# -- code ------------------------------------------------------------------------------------------


def short_name(name: object) -> str:
    """A name without quotes."""
    return visible(text_of(name), 60) if isinstance(name, str) else short(name, 60)


def first_line(value: object) -> str:
    """The first line of a docstring."""
    doc = tried(lambda: inspect.getattr_static(value, "__doc__", None), None)
    if not isinstance(doc, str):
        doc = tried(lambda: value.__doc__, None)
    return visible(one_line(text_of(doc).strip().partition("\n")[0]), 200) if doc else ""


def is_function(value: object) -> bool:
    """Whether it is a function or a method."""
    return inspect.isroutine(value)


def signature_of(function: Callable[..., Any]) -> str:
    """`(rows, *, limit=10)`, with short defaults and annotations left out."""
    found = tried(lambda: inspect.signature(function), None)
    if found is None:
        return "(…)"
    kinds = inspect.Parameter
    parts: list[str] = []
    for each in found.parameters.values():
        if each.kind is kinds.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        mark = "*" if each.kind is kinds.VAR_POSITIONAL else ""
        mark = "**" if each.kind is kinds.VAR_KEYWORD else mark
        default = "" if each.default is kinds.empty else f"={short(each.default, 40)}"
        parts.append(f"{mark}{each.name}{default}")
    return cut(f"({', '.join(parts)})", 300)


def add_function(room: Room, value: Any) -> None:
    """Describe a function."""
    name = tried(lambda: str(value.__qualname__), "")
    room.add(f"Signature: {visible(name, 100)}{signature_of(value)}")
    _add_doc(room, value)


def add_class(room: Room, value: type) -> None:
    """Describe a class."""
    _add_doc(room, value)
    room.add(f"Signature: {signature_of(value)}")
    names = [n for n in tried(lambda: [*vars(value)], list[str]()) if not n.startswith("_")]
    if names:
        more = f" … {len(names) - 20:,} more" if len(names) > 20 else ""
        room.add(f"Attributes: {', '.join(short_name(n) for n in names[:20])}{more}")


def add_module(room: Room, value: types.ModuleType) -> None:
    """Describe a module."""
    _add_doc(room, value)
    version = tried(lambda: vars(value).get("__version__"), None)
    if isinstance(version, str):
        room.add(f"Version: {visible(text_of(version), 40)}")


def _add_doc(room: Room, value: object) -> None:
    line = first_line(value)
    if line:
        room.add(f"Says: {line}")


# -- records ---------------------------------------------------------------------------------------


def add_fields(room: Room, value: Any) -> None:
    """Describe a dataclass or a pydantic model by its fields."""
    found = fields_of(value) or []
    lines = (f"- {short_name(name)}: {short(each, 100)}" for name, each in found)
    add_listed(room, "field", lines, len(found))
