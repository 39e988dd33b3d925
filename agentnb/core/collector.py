"""A pause of the garbage collector, for work that makes very many objects that stay."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_one = threading.Lock()


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause the garbage collector: it would walk through each of the many new objects."""
    with _one:
        was_on = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if was_on:
                gc.enable()
