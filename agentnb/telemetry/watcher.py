"""One thread that reads the events of all observed runs, and has spans made of them.

It looks at the runs a few times a second, and at once when one has ended: so it costs the runs' own
thread nothing but the sharing of the processor.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.context import get_current
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.util.genai.completion_hook import load_completion_hook
from opentelemetry.util.genai.environment_variables import OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT
from opentelemetry.util.genai.handler import TelemetryHandler

from agentnb.core.types import AgentStatus
from agentnb.telemetry.event_time import EventTime, TimedTracerProvider
from agentnb.telemetry.light import LightHandler
from agentnb.telemetry.spans import RunSpans

if TYPE_CHECKING:
    from agentnb.core.bus import EventBus
    from agentnb.core.records import RunHead
    from agentnb.core.request import RequestContext

LOOK_EVERY_S = 0.25
"""Seconds between two looks at the runs that go on."""
PATIENCE_S = 5.0
"""Longest wait for the thread when it is to end: an exporter may block it."""

_log = logging.getLogger("agentnb")


def _library(provider: trace.TracerProvider) -> TelemetryHandler:
    return TelemetryHandler(
        tracer_provider=provider,
        # It measures how long it takes to be called, and that is not how long a call took.
        meter_provider=NoOpMeterProvider(),
        completion_hook=load_completion_hook(),
        instrumentation_scope_name="agentnb",
        instrumentation_scope_version=getattr(sys.modules.get("agentnb"), "__version__", None),
    )


class Watcher:
    """Observes runs. See `agentnb.core.observers.Observer`.

    Args:
        provider: Takes the spans; the process's own when left out, whenever that is set.
    """

    def __init__(self, provider: trace.TracerProvider | None) -> None:
        self._provider = provider
        self._time = EventTime()
        self._handler: TelemetryHandler | LightHandler | None = None
        self._lock = threading.Lock()
        self._runs: list[tuple[RunSpans, Callable[[], None]]] = []
        """Those that go on, and what their end calls."""
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._last: AgentStatus | None = None
        """Set when it is to end: what becomes of the runs that go on."""

    # -- the runs' side ---------------------------------------------------------------------------

    def begin(
        self, bus: EventBus, head: RunHead, request: RequestContext
    ) -> Callable[[], Awaitable[object]] | None:
        """See `Observer`. A process without a tracer provider is not observed, which costs."""
        handler = self._handler or self._new_handler()
        if handler is None:
            return None
        self._handler = handler
        began_ns = time.time_ns() - round(bus.now_s * 1e9)
        loop = asyncio.get_running_loop()
        is_read = asyncio.Event()

        def ended() -> None:
            loop.call_soon_threadsafe(is_read.set)

        async def wait() -> None:
            self._wake.set()
            await is_read.wait()

        spans = RunSpans(bus, head, request, handler, self._time, get_current(), began_ns)
        with self._lock:
            if self._last is not None:
                return None
            self._runs.append((spans, ended))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._go, name="agentnb-telemetry", daemon=True
                )
                self._thread.start()
        self._wake.set()
        return wait

    def _new_handler(self) -> TelemetryHandler | LightHandler | None:
        provider = self._provider or trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
            return None
        timed = TimedTracerProvider(provider, self._time)
        library = _library(timed)
        wants_events = os.environ.get(OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT, "").strip().lower()
        if library.should_capture_content() or wants_events == "true":
            return library
        return LightHandler(timed, _library)

    def forget(self) -> None:
        """In a forked process: the runs are the other one's, and so is the thread."""
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._runs, self._thread = [], None

    # -- its end ----------------------------------------------------------------------------------

    def end(self, status: AgentStatus) -> None:
        """End the spans that are open, and make no more. Blocks until that is done.

        Args:
            status: What becomes of the runs that go on.
        """
        with self._lock:
            self._last = status
            thread = self._thread
        self._wake.set()
        if thread is not None:
            thread.join(PATIENCE_S)

    # -- the thread -------------------------------------------------------------------------------

    def _go(self) -> None:
        while True:
            with self._lock:
                last, runs = self._last, self._runs.copy()
            for each in runs:
                self._read(each, last)
            if last is not None:
                return
            self._wake.wait(LOOK_EVERY_S if self._runs else None)
            self._wake.clear()

    def _read(self, run: tuple[RunSpans, Callable[[], None]], last: AgentStatus | None) -> None:
        spans, ended = run
        try:
            spans.read()
            if last is not None and not spans.done:
                spans.end(last)
        except Exception:
            # An uncaught error would be printed into some cell.
            _log.exception("The spans of a run could not be made.")
            spans.done = True
        if spans.done:
            with self._lock:
                self._runs.remove(run)
            try:
                ended()
            except RuntimeError:
                pass  # its loop is closed
