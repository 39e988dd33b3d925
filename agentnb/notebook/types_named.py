"""`--output NAME`: find the type that a person names."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, get_origin, is_typeddict

from agentnb.core.text import literal
from agentnb.errors import NotebookError

_BUILTIN = ("str", "int", "float", "bool")
_MOST_NAMES = 20


def type_named(name: str, notebook: Mapping[str, Any]) -> Any:
    """Look up a type: a name of the notebook, else a builtin one.

    Raises:
        NotebookError: The name is unknown, or not a type's.
    """
    if name in notebook:
        value = notebook[name]
        if _is_type(value):
            return value
        kind = type(value).__name__
        raise NotebookError(f"{literal(name)} is a {kind}: give `--output` the name of a type.")
    if name in _BUILTIN:
        return getattr(builtins, name)
    known = names_of_types(notebook)
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    listed = ", ".join(literal(each) for each in known[-_MOST_NAMES:])
    hint = f": did you mean {literal(close[0])}?" if close else f" (known: {listed})."
    raise NotebookError(
        f"There is no type {literal(name)} in this notebook{hint} "
        "Give a type such as `list[int]` a name first."
    )


def names_of_types(notebook: Mapping[str, Any]) -> list[str]:
    """The names that complete `--output`: types defined in the notebook, then builtin ones."""
    own = [
        name
        for name, value in notebook.items()
        if not name.startswith("_")
        and _is_type(value)
        and (get_origin(value) is not None or value.__module__ == "__main__")
    ]
    return [*own, *_BUILTIN[1:]]


def _is_type(value: object) -> bool:
    return inspect.isclass(value) or is_typeddict(value) or get_origin(value) is not None
