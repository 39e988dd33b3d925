"""What a script answers to one request, and how one of its events is encoded.

This is common to all APIs of the server.
"""

from __future__ import annotations

import base64
import enum
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

BYTES_PER_TOKEN = 4

Event = tuple[str, Mapping[str, Any] | str]
"""The name and the data of one server-sent event. An empty name has no line; data that is a `str`
is sent unchanged."""


class Act(enum.Enum):
    """What the connection does to a reply in transit."""

    STALL = "stall"
    """Nothing is sent until the client hangs up or the test calls `let_go`."""
    RESET = "reset"
    """The connection is reset, as by a crashed machine: what was sent may be lost."""
    HANG_UP = "hang up"
    """The connection is closed in order before the reply has ended."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A chunk of which only the beginning is sent; then the connection is closed in order."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Drip:
    """The same bytes again and again: a stall that is never silent."""

    content: bytes


Step = Event | bytes | threading.Event | Act | Cut | Drip
"""What a reply does next: send an event, send bytes unchanged in a chunk of their own, wait until a
test lets go, or do anything else that a connection can."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call in a reply. Unpacks from `(name, input)`."""

    name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    """`None`: a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the script answers to one request."""

    text: str = ""
    thinking: str | None = None
    tool_uses: Sequence[ToolCall | tuple[str, Mapping[str, Any]]] = ()
    chunk: int = 16
    """Characters of text, thinking and tool input in one delta."""
    stop_reason: str | None = None
    """`None`: the one that follows from the reply and `max_tokens`."""
    hold: threading.Event | None = None
    """The stream waits in mid-text, after its first text delta, until this is set."""
    events: Sequence[Step] | None = None
    """The whole stream, in place of all of the above."""
    line_end: str = "\n"
    """The line end of the stream."""
    usage: Mapping[str, int] = field(default_factory=dict)
    """Counts of the input, in place of those from the request's bytes. Messages API only."""
    begun: Callable[[], object] | None = None
    """Called when the first event is sent. Messages API only."""
    is_gzipped: bool = False
    """The stream is compressed, and each step is sent at once."""
    before: Sequence[Step] = ()
    """Steps before the first byte of the response: bytes are sent unchanged, and the response
    follows if the connection is still open."""
    body: bytes | None = None
    """The whole body, sent unchanged with `status` and `headers`, in place of a stream or error."""
    status: int = 200
    error_type: str | None = None
    """`None`: the one that belongs to the status."""
    message: str = "a scripted error"
    """The error's message; the whole body if `headers` has a `content-type` other than JSON."""
    headers: Mapping[str, str] = field(default_factory=dict)


class Refusal(Exception):
    """The API refuses the request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


def output_tokens(text: str) -> int:
    return len(text.encode()) // BYTES_PER_TOKEN


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def parse_body(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
        as_json(body).encode()  # a lone surrogate passes `loads`, but cannot be encoded
    except ValueError as error:
        raise Refusal(400, f"The request body is not valid JSON: {error}") from error
    if not isinstance(body, dict):
        raise Refusal(400, "The request body is not an object")
    return body


def system_of(body: Mapping[str, Any]) -> str:
    """The system prompt of a request, in either dialect and in any number of blocks."""
    first = body["messages"][0]
    system = body.get("system", first["content"] if first["role"] == "system" else "")
    return system if isinstance(system, str) else "".join(block["text"] for block in system)


def is_base64(data: object) -> bool:
    """Whether `data` is a file in base64."""
    try:
        return isinstance(data, str) and bool(base64.b64decode(data, validate=True))
    except ValueError:
        return False


def need(condition: object, message: str) -> None:
    if not condition:
        raise Refusal(400, message)


def encoded(event: Event, line_end: str = "\n") -> bytes:
    """The event as it is sent."""
    name, data = event
    line = data if isinstance(data, str) else as_json(data)
    lines = (*((f"event: {name}",) if name else ()), f"data: {line}", "", "")
    return line_end.join(lines).encode("utf-8", "surrogatepass")


class Steps(Protocol):
    def __call__(self, reply: Reply, body: Mapping[str, Any], *, number: int) -> Iterator[Step]:
        """The stream that answers `body`, the server's request of this `number`."""
        ...


@dataclass(frozen=True, slots=True)
class Dialect:
    """One API of the server."""

    path: str
    """The path of its requests."""
    check_headers: Callable[[Mapping[str, str], frozenset[str] | None], None]
    """Raises `Refusal`; so does `check_body`."""
    check_body: Callable[[Mapping[str, Any]], None]
    steps: Steps
    error_body: Callable[[int, str | None, str], dict[str, Any]]
    """Takes status, type and message."""
