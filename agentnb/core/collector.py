"""A pause of the garbage collector, for work that makes very many objects that stay."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_inside = 0
"""How many, in whatever thread, are at such work."""
_was_on = False


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause the garbage collector: it would walk through each of the many new objects.

    None waits for another: the last that is done lets the collector go on.
    """
    global _inside, _was_on
    with _lock:
        if not _inside:
            _was_on = gc.isenabled()
            gc.disable()
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and _was_on:
                gc.enable()
