"""The first import of a process that others are forked from: it records exit functions.

From Python 3.13 on, `multiprocessing` drops the functions that modules registered with `atexit` in
each process that it forks, so these modules would not notice its end.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from typing import Any

_register = atexit.register
_recorded: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []


def _recording(function: Callable[..., Any], /, *given: Any, **named: Any) -> Callable[..., Any]:
    _recorded.append((function, given, named))
    return _register(function, *given, **named)


atexit.register = _recording


def restore() -> None:
    """Stop recording, and register the recorded functions again if they were dropped."""
    atexit.register = _register
    if sys.version_info >= (3, 13):
        for function, given, named in _recorded:
            _register(function, *given, **named)
