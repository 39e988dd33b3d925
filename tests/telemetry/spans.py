"""The spans that a test's runs make, as trees and as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


@dataclass
class Seen:
    """A tracer provider that keeps what has ended."""

    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    provider: TracerProvider = field(default_factory=lambda: TracerProvider(shutdown_on_exit=False))
    end: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def all(self) -> list[ReadableSpan]:
        """In the order in which they began."""
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def of(self, operation: str) -> list[ReadableSpan]:
        return [span for span in self.all if attributes(span).get(OPERATION) == operation]

    def one(self, operation: str) -> ReadableSpan:
        (span,) = self.of(operation)
        return span

    def agent(self, path: str) -> ReadableSpan:
        (span,) = [each for each in self.of(AGENT) if attributes(each)["agentnb.path"] == path]
        return span

    def below(self, parent: ReadableSpan | None) -> list[ReadableSpan]:
        above = None if parent is None else context_of(parent).span_id
        return [
            each for each in self.all if (each.parent.span_id if each.parent else None) == above
        ]

    def walk(self, parent: ReadableSpan | None = None, level: int = 0) -> Iterator[Any]:
        """Level and span, in the order in which they began."""
        for span in self.below(parent):
            yield level, span
            yield from self.walk(span, level + 1)

    def words(self) -> str:
        """Everything that is exported, as text."""
        return "\n".join(str(span.to_json()) for span in self.all)


OPERATION = "gen_ai.operation.name"
RUN, AGENT, CHAT, TOOL = "invoke_workflow", "invoke_agent", "chat", "execute_tool"


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def context_of(span: ReadableSpan) -> Any:
    assert span.context is not None
    return span.context


def total(spans: Sequence[ReadableSpan], name: str) -> int:
    return sum(attributes(span).get(f"gen_ai.usage.{name}", 0) for span in spans)


def error_of(span: ReadableSpan) -> str | None:
    """The `error.type` of a span that ended in an error; `None` for any other."""
    said = attributes(span).get("error.type")
    assert span.status.is_ok is (said is None)
    return said
