"""Invocations as the library makes them, without its work for each one.

The library takes 30 µs for a span beside the SDK's own 30: for texts, metrics and events that are
mostly not asked for. So for each kind of span, model and name it makes one, whose tracer writes
down what it does: the span's name, its kind, which attribute has which value. Those that follow
are made from that. Where texts are asked for, the library itself makes each one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    NoOpTracer,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
    set_span_in_context,
)
from opentelemetry.util.genai.handler import TelemetryHandler
from opentelemetry.util.genai.types import Error
from opentelemetry.util.types import Attributes, AttributeValue

_NUMBERS = (
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_write_input_tokens",
)
_ERROR, _CONVERSATION, _ID, _REASON = "(error)", "(conversation)", "(id)", "(reason)"
"""Values by which an attribute is recognised. Those of the numbers are 1001, 1002 and so on."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the spans of one kind, model and name have in common."""

    name: str
    kind: SpanKind
    start: Mapping[str, AttributeValue]
    """Attributes that it begins with."""
    end: Mapping[str, AttributeValue]
    """Attributes that it always ends with."""
    fields: tuple[tuple[str, str], ...]
    """Fields of the invocation, and the attributes that they become."""
    error_type: str
    """The attribute that has an error's type."""


class LightInvocation:
    """A span that is open: what `RunSpans` uses of the library's invocations."""

    agent_name: str | None = None

    def __init__(
        self, shape: _Shape, tracer: Tracer, context: Context | None, conversation_id: str | None
    ) -> None:
        self.attributes: dict[str, Any] = {}
        self.conversation_id = conversation_id
        self._shape = shape
        self._span = tracer.start_span(shape.name, context, shape.kind, shape.start)
        self.context = set_span_in_context(self._span, context)

    def suspend(self) -> None:
        """It was never current."""

    def stop(self) -> None:
        """End the span."""
        values, shape = self.__dict__, self._shape
        attributes = {**shape.end}
        for field, name in shape.fields:
            if (value := values.get(field)) is not None:
                attributes[name] = value
        attributes.update(self.attributes)
        self._span.set_attributes(attributes)
        self._span.end()

    def fail(self, error: Error) -> None:
        """End the span as an error."""
        self._span.set_status(Status(StatusCode.ERROR, error.message))
        self.attributes[self._shape.error_type] = error.type
        self.stop()


class LightHandler:
    """Makes spans as a `TelemetryHandler` does, without texts.

    What it makes is used as if it were the library's, so it has no type of its own.

    Args:
        provider: Takes the spans, at the time of the event that is being read.
        library: Makes the library's handler for a provider.
    """

    def __init__(
        self,
        provider: TracerProvider,
        library: Callable[[TracerProvider], TelemetryHandler],
    ) -> None:
        self._recorder = _Recorder()
        self._library = library(self._recorder)
        self._tracer = provider.get_tracer(*self._recorder.scope)
        self._shapes: dict[tuple[str | None, ...], _Shape] = {}

    def should_capture_content(self) -> bool:
        """Never."""
        return False

    def workflow(self, *, context: Context, conversation_id: str) -> Any:
        """See `TelemetryHandler`."""
        shape = self._shapes.get(("run",)) or self._learn(
            ("run",), lambda library: library.workflow(conversation_id=_CONVERSATION)
        )
        return LightInvocation(shape, self._tracer, context, conversation_id)

    def invoke_local_agent(
        self, *, request_model: str | None, agent_name: str, context: Context, conversation_id: str
    ) -> Any:
        """See `TelemetryHandler`."""
        key = "agent", agent_name, request_model
        shape = self._shapes.get(key) or self._learn(
            key,
            lambda library: library.invoke_local_agent(
                request_model=request_model, agent_name=agent_name, conversation_id=_CONVERSATION
            ),
        )
        made = LightInvocation(shape, self._tracer, context, conversation_id)
        made.agent_name = agent_name
        return made

    def inference(
        self, provider: str, *, request_model: str, context: Context, conversation_id: str
    ) -> Any:
        """See `TelemetryHandler`."""
        key = "chat", provider, request_model
        shape = self._shapes.get(key) or self._learn(
            key,
            lambda library: library.inference(
                provider, request_model=request_model, conversation_id=_CONVERSATION
            ),
        )
        return LightInvocation(shape, self._tracer, context, conversation_id)

    def tool(self, name: str, *, tool_type: str, agent_name: str | None, context: Context) -> Any:
        """See `TelemetryHandler`."""
        key = "tool", name, tool_type, agent_name
        shape = self._shapes.get(key) or self._learn(
            key, lambda library: library.tool(name, tool_type=tool_type, agent_name=agent_name)
        )
        return LightInvocation(shape, self._tracer, context, None)

    def _learn(
        self, key: tuple[str | None, ...], make: Callable[[TelemetryHandler], Any]
    ) -> _Shape:
        """Let the library make one span with values that are recognised."""
        invocation = make(self._library)
        invocation.suspend()
        values: dict[str, Any] = {
            name: number for number, name in enumerate(_NUMBERS, 1001) if hasattr(invocation, name)
        }
        for field, value in (("finish_reasons", [_REASON]), ("tool_call_id", _ID)):
            if hasattr(invocation, field):
                values[field] = value
        for field, value in values.items():
            setattr(invocation, field, value)
        if hasattr(invocation, "request_stream"):
            invocation.request_stream = True
        invocation.fail(Error(message=None, type=_ERROR))
        values["conversation_id"] = _CONVERSATION
        span = self._recorder.tracer.newest
        found = {
            field: name
            for name, value in span.set.items()
            for field, known in values.items()
            if value == known and type(value) is type(known)
        }
        (error_type,) = [name for name, value in span.set.items() if value == _ERROR]
        varying = {*found.values(), error_type}
        end = {name: value for name, value in span.set.items() if name not in varying}
        shape = _Shape(span.name, span.kind, span.start, end, (*found.items(),), error_type)
        self._shapes[key] = shape
        return shape


class _RecordedSpan(NonRecordingSpan):
    """Writes down what is set."""

    def __init__(self, name: str, kind: SpanKind, start: Attributes) -> None:
        super().__init__(SpanContext(1, 1, is_remote=False))
        self.name, self.kind, self.start = name, kind, dict(start or {})
        self.set: dict[str, AttributeValue] = {}

    def set_attributes(self, attributes: Mapping[str, AttributeValue]) -> None:
        self.set.update(attributes)


class _RecordingTracer(NoOpTracer):
    newest: _RecordedSpan

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes = None,
        *args: Any,
        **options: Any,
    ) -> Span:
        self.newest = _RecordedSpan(name, kind, attributes)
        return self.newest


class _Recorder(TracerProvider):
    """Writes down what the library asks of a provider."""

    def __init__(self) -> None:
        self.tracer = _RecordingTracer()
        self.scope: tuple[Any, ...] = ()

    def get_tracer(
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        schema_url: str | None = None,
        attributes: Attributes = None,
    ) -> Tracer:
        self.scope = instrumenting_module_name, instrumenting_library_version, schema_url
        return self.tracer
