"""What a class of a person's own says of an object to a model: `_repr_llm_()` or `__llm__`."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from agentnb.objects.short import tried

_HOOKS = ("_repr_llm_", "__llm__")


def own_text(value: object) -> str | None:
    """The text of an object's own description; `None` if it has none, or that raises.

    Each of the two names is a method without arguments, a property, or a text. An object that
    answers to every name (a mock) has none, and so has a class itself.
    """
    for name in _HOOKS:
        text = tried(partial(_text, value, name), None)
        if text is not None:
            return text
    return None


def has_own_text(value: object) -> bool:
    """Whether an object has a description of its own, without asking for it."""
    return any(_has(value, name) for name in _HOOKS)


def _has(value: object, name: str) -> bool:
    if isinstance(value, type):
        return False  # its instances have one
    # Static: an object may make up attributes when it is asked for them.
    return tried(lambda: inspect.getattr_static(value, name, None) is not None, False)


def _text(value: Any, name: str) -> str | None:
    if not _has(value, name):
        return None
    found = getattr(value, name)
    if callable(found):
        found = found()
    if inspect.iscoroutine(found):
        found.close()
        return None
    return str.__str__(found) if isinstance(found, str) else None
