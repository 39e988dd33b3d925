"""What is kept of a run, as plain values: calls, tool calls, orders, verdicts, ends.

With the events these are all that a later reader needs, whether it shows the run, goes on with it
or repeats it. A call and a tool call are kept twice: when they start (`status` is `started`) and
when they end; the second record replaces the first. (run, path, number) identifies each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsIndex, TypedDict, overload

from agentnb.core.errors import LlmError, in_words
from agentnb.core.events import Entry, TextRow
from agentnb.core.types import AgentStatus, CompletionRequest, Message, Usage

STARTED, FINISHED = "started", "finished"
"""`status` of a record: what began, and what has its result."""

Piece = tuple[float, str]
"""A piece of a reply's text: `at_s`, text."""


class Pieces(Sequence[Piece]):
    """The text of a reply as it arrived, made of rows of the record.

    Equal to any sequence of the same pieces. A piece is made when it is read: most never are.

    Args:
        rows: The rows of the call's text, in order.
    """

    __slots__ = ("rows",)

    def __init__(self, rows: Sequence[TextRow]) -> None:
        self.rows = tuple(rows)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: SupportsIndex) -> Piece: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Piece, ...]: ...
    def __getitem__(self, place: SupportsIndex | slice) -> Piece | tuple[Piece, ...]:
        if isinstance(place, slice):
            return tuple([(at_s, text) for at_s, _, text in self.rows[place]])
        at_s, _, text = self.rows[place]
        return at_s, text

    def __iter__(self) -> Iterator[Piece]:
        return ((at_s, text) for at_s, _, text in self.rows)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return self[:] == tuple(other)

    def __hash__(self) -> int:
        return hash(self[:])

    def __repr__(self) -> str:
        return repr(self[:])


ErrorRecord = TypedDict(
    "ErrorRecord",
    {
        "class": str,
        "message": str,
        "retryable": bool,
        "retry_after_s": float | None,
        "status": int | None,
    },
)
"""An error as a plain value. `status` is the HTTP status."""


def error_record(error: BaseException) -> ErrorRecord:
    """An error as a plain value, also one that is not ours."""
    ours = error if isinstance(error, LlmError) else None
    return {
        "class": type(error).__name__,
        "message": in_words(error) or type(error).__name__,
        "retryable": ours is not None and ours.retryable,
        "retry_after_s": ours.retry_after_s if ours is not None else None,
        "status": ours.status_code if ours is not None else None,
    }


CANCELLED: ErrorRecord = {
    "class": "CancelledError",
    "message": "cancelled",
    "retryable": False,
    "retry_after_s": None,
    "status": None,
}
"""The error of a cancelled call."""


@dataclass(frozen=True, slots=True)
class RunHead:
    """What is known of a run when it begins."""

    run_id: str
    thread_id: str
    """The root agent's id."""
    task: str
    model: str
    """`provider/model`."""
    budget_total: int = 0
    max_depth: int = 0
    started_at: float = 0.0
    """Seconds since 1970."""
    name: str = ""
    tags: tuple[str, ...] = ()
    session_id: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The run's settings as plain values."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One model call. Each transport attempt is a call of its own."""

    path: str
    """The agent's."""
    number: int
    """Position among its agent's calls, from 1."""
    attempt: int
    """Transport attempt, from 1."""
    key: str
    """What the call means: see `agentnb.core.keys`."""
    request: CompletionRequest
    """As sent."""
    pieces: Sequence[Piece] = ()
    """The reply's text as it arrived."""
    message: Message | None = None
    """The reply, as it is sent back; `None` while the call is open, and if nothing came. Of a reply
    that was cut off: its text."""
    stop_reason: str | None = None
    """`None` if the reply is not whole."""
    usage: Usage | None = None
    """`None` while the call is open."""
    error: ErrorRecord | None = None
    at_s: float = 0.0
    """When it was sent, in seconds since the run began."""
    duration_ms: int | None = None
    """`None` while the call is open."""
    status: str = STARTED
    """`started` or `finished`."""
    model: str = ""
    """`provider/model`."""
    is_synthesis: bool = False
    estimate_error: int = 0
    """See `agentnb.core.events.ModelCallFinished`."""

    @property
    def text(self) -> str:
        """The reply's text, as far as it has arrived."""
        return "".join([text for _, text in self.pieces])


@dataclass(frozen=True, slots=True)
class ToolCallRecord:
    """One tool call, with its whole input and result."""

    agent_id: str
    tool_use_id: str
    name: str
    input: Mapping[str, Any]
    result: str = ""
    """The whole result, even if the model gets only its beginning; empty while the call is open."""
    is_error: bool = False
    path: str = ""
    """The agent's."""
    number: int = 0
    """Position among its agent's tool calls, from 1, in the order in which they began."""
    effects: bool = True
    """Whether it may change something outside the run, so that it must not be repeated unasked."""
    at_s: float = 0.0
    """When it began, in seconds since the run began."""
    duration_ms: int | None = None
    """`None` while the call is open."""
    status: str = FINISHED
    """`started` or `finished`."""


@dataclass(frozen=True, slots=True)
class OrderRecord:
    """An order of a person, or of who acts for one."""

    kind: str
    """`cancel`, `budget` (a new total) or `answer` (to the budget's question)."""
    by: str
    """`panel`, `code`, `gate`, `limit` or `agent`."""
    path: str
    """The agent whose call was the newest to begin when the order was heard: of the branch that is
    cancelled, else of the run."""
    number: int
    """The number of that call; 0 before the first."""
    at_s: float
    """When it was heard, in seconds since the run began."""
    value: Any
    """`cancel`: `{"agent": its path or None for the run, "reason": …}`; `budget`: the total;
    `answer`: the answer."""


@dataclass(frozen=True, slots=True)
class VerdictRecord:
    """What the state that all agents of a run share answered to one of them."""

    path: str
    """The agent's."""
    number: int
    """Position among its agent's verdicts, from 1."""
    kind: str
    """`admitted` (tasks, some perhaps refused), `clamped` (a call's `max_tokens`), `halted` (an
    open call), `exhausted` (a call that was not made), `warned` (the decision after a warning),
    `recalled` (what the root remembers of earlier runs)."""
    value: Any
    """`admitted`: `{"numbers": […], "refused": [{"number", "limit", "reason"}]}`, or of a task for
    another thread `{"assigned": task, "refused": [{"limit", "reason"}]}`; `clamped`: the
    `max_tokens`; `halted` and `exhausted`: why; `warned`: `continue` or `stop`; `recalled`:
    `[{"id", "text"}]`."""


@dataclass(frozen=True, slots=True)
class EndRecord:
    """The end of an agent, or of the run."""

    path: str | None
    """The agent's; `None` for the run."""
    status: AgentStatus
    text: str = ""
    """The answer, or what there was of one."""
    error: str | None = None
    """Why it did not complete."""
    cut: bool = False
    tokens_used: int = 0
    duration_ms: int = 0
    at_s: float = 0.0
    """In seconds since the run began."""
    attempt: int = 1
    """The agent's attempt that ended."""
    by: str = ""
    """Who cancelled it; empty if nobody did."""


Kept = CallRecord | ToolCallRecord | OrderRecord | VerdictRecord | EndRecord
"""What a journal keeps beside the events."""


@dataclass(frozen=True, slots=True)
class RunJournal:
    """All that a journal kept of one run."""

    head: RunHead
    entries: Sequence[Entry]
    """The entries that were handed over before the last commit, in order. The process may have died
    before the events of the last records: see `agentnb.core.reading`."""
    calls: tuple[CallRecord, ...] = ()
    """By path, then number; so are the tool calls."""
    tool_calls: tuple[ToolCallRecord, ...] = ()
    orders: tuple[OrderRecord, ...] = ()
    """In the order in which they were heard."""
    verdicts: tuple[VerdictRecord, ...] = ()
    """By path, then number."""
    ends: tuple[EndRecord, ...] = ()
    """In the order in which the agents ended; the run's end is the last."""
