"""A tracer whose spans begin and end at the time of an event.

`opentelemetry-util-genai` starts and ends its spans when it is called, and takes no times. Ours are
made after the fact, on a thread of their own: between the library and the person's tracer stands
this one, which hands over the time of the event that is being read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
)
from opentelemetry.util.types import Attributes, AttributeValue


class EventTime:
    """The time of the event that is being read. For one thread."""

    def __init__(self) -> None:
        self.ns = 0
        """Nanoseconds since 1970."""


class TimedTracerProvider(TracerProvider):
    """The person's provider, with the time of events."""

    def __init__(self, provider: TracerProvider, time: EventTime) -> None:
        self._provider, self._time = provider, time

    def get_tracer(
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        schema_url: str | None = None,
        attributes: Attributes | None = None,
    ) -> Tracer:
        """See `TracerProvider`."""
        tracer = self._provider.get_tracer(
            instrumenting_module_name, instrumenting_library_version, schema_url, attributes
        )
        return _TimedTracer(tracer, self._time)


class _TimedTracer(Tracer):
    def __init__(self, tracer: Tracer, time: EventTime) -> None:
        self._tracer, self._time = tracer, time

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
    ) -> Span:
        span = self._tracer.start_span(
            name,
            context,
            kind,
            attributes,
            links,
            self._time.ns if start_time is None else start_time,
            record_exception,
            set_status_on_exception,
        )
        return _TimedSpan(span, self._time)

    def start_as_current_span(self, *args: Any, **options: Any) -> Any:
        return self._tracer.start_as_current_span(*args, **options)


class _TimedSpan(Span):
    def __init__(self, span: Span, time: EventTime) -> None:
        self._span, self._time = span, time

    def end(self, end_time: int | None = None) -> None:
        self._span.end(self._time.ns if end_time is None else end_time)

    def get_span_context(self) -> SpanContext:
        return self._span.get_span_context()

    def set_attributes(self, attributes: Mapping[str, AttributeValue]) -> None:
        self._span.set_attributes(attributes)

    def set_attribute(self, key: str, value: AttributeValue) -> None:
        self._span.set_attribute(key, value)

    def add_event(
        self, name: str, attributes: Attributes = None, timestamp: int | None = None
    ) -> None:
        self._span.add_event(name, attributes, self._time.ns if timestamp is None else timestamp)

    def update_name(self, name: str) -> None:
        self._span.update_name(name)

    def is_recording(self) -> bool:
        return self._span.is_recording()

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        self._span.set_status(status, description)

    def record_exception(
        self,
        exception: BaseException,
        attributes: Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        self._span.record_exception(exception, attributes, timestamp, escaped)
