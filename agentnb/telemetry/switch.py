"""`instrument`: spans of all runs of the process, from now on."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from agentnb.core import observers
from agentnb.core.errors import MissingExtra
from agentnb.core.types import AgentStatus

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from agentnb.telemetry.watcher import Watcher

_lock = threading.Lock()
_on: tuple[Watcher, Callable[[], None]] | None = None


def instrument(tracer_provider: TracerProvider | None = None) -> Callable[[], None]:
    """Emit spans for all later runs of this process. A second call changes nothing.

    A run is `invoke_workflow`; below it are `invoke_agent {name}`, `chat {model}` and
    `execute_tool {name}`. A separate thread emits them; a run's spans have ended when its result
    is there. Replayed calls have none. Spans contain the text of tasks, persons and models only if
    OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says so.

    Args:
        tracer_provider: Receives the spans; by default the process's global one, even one set
            later. The first call decides, until its function ends the spans.

    Returns:
        A function that ends open spans and emits no more.

    Raises:
        MissingExtra: The extra `otel` is not installed.
    """
    global _on
    try:
        from agentnb.telemetry.watcher import Watcher
    except ImportError as error:
        raise MissingExtra("The package `opentelemetry-util-genai`", extra="otel") from error
    with _lock:
        if _on is None:
            watcher = Watcher(tracer_provider)
            _on = watcher, partial(_end, watcher)
            observers.add(watcher)
            # Newest first: a tracer provider that is there closes itself after this.
            atexit.register(_end_at_exit)
        return _on[1]


def _end(watcher: Watcher, status: AgentStatus = AgentStatus.RUNNING) -> None:
    """End it; what becomes of the runs that go on is that they do, unless `status` says more."""
    global _on
    observers.remove(watcher)
    watcher.end(status)
    with _lock:
        if _on is not None and _on[0] is watcher:
            _on = None
            atexit.unregister(_end_at_exit)


def _end_at_exit() -> None:
    if _on is not None:
        with suppress(KeyboardInterrupt):  # ends the wait for an exporter
            _end(_on[0], AgentStatus.INTERRUPTED)


def _begin_anew_after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    if _on is not None:
        _on[0].forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew_after_fork)
