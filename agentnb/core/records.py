"""The records of a run, as plain values: calls, tool calls, orders, verdicts, ends.

Together with the events, these are all that a reader needs to show, recover or replay the run. A
call and a tool call are recorded twice: when they start (`status` is `started`) and when they end;
the second record replaces the first. (run, path, number) identifies each of them.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NotRequired, SupportsIndex, TypedDict, cast, overload

from agentnb.core.errors import PERMANENT_STATUSES, AgentnbError, InternalError, LlmError, in_words
from agentnb.core.events import Entry, TextRow
from agentnb.core.money import TOKENS, Rate, rate_of
from agentnb.core.types import AgentStatus, CompletionRequest, MediaBlock, Message, Usage

STARTED, FINISHED = "started", "finished"
"""`status` of a record: started, or with its result."""

DONE = "done"
"""Kind of the verdict by which a store says that a tool call was done."""

Piece = tuple[float, str]
"""A piece of a reply's text: `at_s`, text."""


class Pieces(Sequence[Piece]):
    """The text of a reply as it arrived, made of rows of the record.

    Equal to any sequence of the same pieces. A piece is created when it is read; most never are.

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
        "permanent": NotRequired[bool],
        "base": NotRequired[str | None],
        "words": NotRequired[str | None],
    },
)
"""An error as a plain value.

`message` is one line, or the class's name for an error without a message; `words` is the whole
message if it differs. `status` is the HTTP status. `base` is the agentnb class that decides about
retries and failover: the error's own class or its nearest base, among `LlmError`, its subclasses
and `InternalError`; `None` for any other error. Older records lack the last three.
"""


def error_record(error: BaseException) -> ErrorRecord:
    """An error as a plain value, even a foreign one."""
    ours = error if isinstance(error, LlmError) else None
    said = in_words(error)
    message = said or type(error).__name__
    # Only one line of a foreign error is published.
    words = str(error) if isinstance(error, LlmError | InternalError) else said
    return {
        "class": type(error).__name__,
        "message": message,
        "retryable": ours is not None and ours.retryable,
        "retry_after_s": ours.retry_after_s if ours is not None else None,
        "status": ours.status_code if ours is not None else None,
        "permanent": ours is not None and ours.permanent,
        "base": next(
            (c.__name__ for c in type(error).__mro__ if _BASES.get(c.__name__) is c), None
        ),
        "words": None if words == message else words,
    }


def error_of(record: ErrorRecord) -> BaseException:
    """An error that retries, failover and messages treat like the recorded one.

    A class that is not agentnb's own is recreated with the same name.
    """
    name, words = record["class"], record.get("words")
    if name == CANCELLED["class"] and record["message"] == CANCELLED["message"]:
        return CancelledError()
    if words is None:
        words = record["message"]
    # In an older record, without `base`, the name of the class decides.
    base = _BASES.get(record.get("base", name) or "")
    if base is None:
        return cast("type[Exception]", type(name, (Exception,), {}))(words)
    kind = base if name == base.__name__ else cast("type[AgentnbError]", type(name, (base,), {}))
    error = kind(words)
    error.args = (words,)  # the constructor may have composed another message
    if isinstance(error, LlmError):
        error.retryable, error.status_code = record["retryable"], record["status"]
        error.retry_after_s = _seconds(record["retry_after_s"])
        is_permanent = error.permanent or error.status_code in PERMANENT_STATUSES
        error.permanent = record.get("permanent", is_permanent)
    return error


def _seconds(value: Any) -> Any:
    """A number; those that JSON does not have are text: see `agentnb.core.codec.plain`."""
    return float(value) if value in ("inf", "-inf", "nan") else value


def _with_those_below(kind: type[AgentnbError]) -> Iterator[type[AgentnbError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == kind.__module__:
            yield from _with_those_below(below)


_BASES: Mapping[str, type[AgentnbError]] = {
    kind.__name__: kind for kind in (*_with_those_below(LlmError), InternalError)
}


CANCELLED: ErrorRecord = {
    "class": "CancelledError",
    "message": "cancelled",
    "retryable": False,
    "retry_after_s": None,
    "status": None,
    "permanent": False,
    "base": None,
    "words": None,
}
"""The error of a cancelled call."""


UNIT = "unit"
"""Key of the budget's unit in a run's settings; tokens if missing."""
PRICES = "prices"
"""Key of a run's prices, by `provider/model`, in its settings: see `Rate.as_plain`."""


@dataclass(frozen=True, slots=True)
class RunHead:
    """A run's data at its start."""

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
    first_child: int = 0
    """The number of the first task that the root asks for: above 1 in a thread that had children; 0
    in older records."""

    @property
    def unit(self) -> str:
        """The budget's unit: `tokens` or `usd`."""
        return str(self.settings.get(UNIT, TOKENS))

    @property
    def rates(self) -> dict[str, Rate]:
        """Prices of tokens, by `provider/model`; empty if no budget counts dollars."""
        return {model: rate_of(each) for model, each in self.settings.get(PRICES, {}).items()}

    version: str = field(default="", compare=False)
    """The version of agentnb that recorded the run; empty if its journal does not store it."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One model call. Each transport attempt is a separate call."""

    path: str
    """The agent's."""
    number: int
    """Position among its agent's calls, from 1."""
    attempt: int
    """Transport attempt, from 1."""
    key: str
    """The call's key: see `agentnb.core.keys`."""
    request: CompletionRequest
    """The request as sent."""
    pieces: Sequence[Piece] = ()
    """The reply's text as it arrived."""
    message: Message | None = None
    """The reply, as it is sent back to the model; only its text if it was cut off. `None` while the
    call is open, and if nothing arrived."""
    stop_reason: str | None = None
    """`None` if the reply is not complete."""
    usage: Usage | None = None
    """`None` while the call is open."""
    error: ErrorRecord | None = None
    at_s: float = 0.0
    """The time when it was sent, in seconds since the run began."""
    duration_ms: int | None = None
    """`None` while the call is open."""
    status: str = STARTED
    """`started` or `finished`."""
    model: str = ""
    """`provider/model`."""
    is_synthesis: bool = False
    estimate_error: int = 0
    """See `agentnb.core.events.ModelCallFinished`."""
    not_closed: str | None = None
    """What a person should know of a complete reply, which is not an `error`: that its stream was
    not closed, or a note of its provider's."""

    @property
    def limits(self) -> tuple[int, int]:
        """`max_tokens` and `cache_prefix` of the request."""
        return self.request.max_tokens, self.request.cache_prefix

    @property
    def texts(self) -> Sequence[str]:
        """The pieces of the reply's text, without their times."""
        return [text for _, text in self.pieces]

    @property
    def text(self) -> str:
        """The reply's text so far."""
        return "".join(self.texts)


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
    """Position among its agent's tool calls, from 1, in the order of the model's replies."""
    effects: bool = True
    """Whether it may change something outside the run: then it is not repeated without consent."""
    at_s: float = 0.0
    """Its start, in seconds since the run began."""
    duration_ms: int | None = None
    """`None` while the call is open."""
    status: str = FINISHED
    """`started` or `finished`."""
    ended: int = 0
    """Position among its agent's tool calls, from 1, in the order in which they ended; 0 while the
    call is open, and in older records."""
    media: tuple[MediaBlock, ...] = ()
    """The images and PDFs in its result, whole."""
    unseen: tuple[int, ...] = ()
    """Places in `media`, from 1, of files that the model does not accept: it got a line instead."""


@dataclass(frozen=True, slots=True)
class OrderRecord:
    """An order of a person, or of code that acts for one."""

    kind: str
    """`cancel`, `budget` (a new total), `answer` (to a question), `pause`, `resume` or `tell`."""
    by: str
    """`panel`, `code`, `gate`, `limit` or `agent`."""
    path: str
    """Place of the order, with `number`: the path of the cancelled, paused or resumed agent, of the
    agent that gets a note, or of the one that asks; if the order concerns the run, the path of the
    agent whose call had begun last."""
    number: int
    """How many calls the agent at `path` had begun when the order arrived."""
    at_s: float
    """Its arrival, in seconds since the run began."""
    value: Any
    """`cancel`: `{"agent": its path or None for the run, "reason": …}`; `budget`: the total;
    `answer`: for the budget's question, the answer; for any other, `{"question": its id, "answer":
    …, "value": …, "reason": …}`; `pause` and `resume`: `{"agent": its path or None for the run}`;
    `tell`: `{"agent": its path, "text": …}`."""


REUSED, SAMPLED = "reused", "sampled"
"""Kinds of the verdicts on a row that makes no call, and on the rest of a table after a sample."""


@dataclass(frozen=True, slots=True)
class VerdictRecord:
    """An answer of the run's shared state to one agent."""

    path: str
    """The agent's."""
    number: int
    """Position among its agent's verdicts, from 1."""
    kind: str
    """What the verdict decides, with its `value`:

    - `admitted`: `{"numbers": […], "refused": [{"number", "limit", "reason"}]}`: tasks that may
      start, except the refused ones; for a task for another thread, `{"assigned": task, "refused":
      [{"limit", "reason"}]}`;
    - `skipped`: `{"numbers": […], "why"}`: the tasks of a sequence that an exhausted run did not
      start;
    - `waited`: `{"call"}`: a call waited for the answer to the budget's question; with `"for":
      "paused"`, a person's pause held it until now;
    - `held`: `{"tool_call", "told", "wait", "ended", "place"}`: a tool call that a person's pause
      held, or that waited for approval, begins. `told`: whether its wait was published, with its
      place `wait`. `ended`: how many tool calls of its agent had ended, `None` if the call never
      began; `place`: its place among the answers (`approved`), waits and such beginnings of its
      agent;
    - `clamped`: `{"call", "max_tokens", "limited_by"}`: a call's lower `max_tokens`, and the name
      of the budget that left no more;
    - `halted`: `{"call", "why", "ended_by"}`: why an open call was ended, and which limit ended the
      run's work, both in words;
    - `exhausted`: `{"call", "why", "ended_by"}`: the same for a call that was not made. Its number
      is that of the agent's next call, if it makes one;
    - `fitted`: `{"fits", "tool_limit", "body_limit"}`: whether the root's last call fits into the
      budget, and to how many characters each tool result and each sub-agent's result is cut in it;
      `None`: uncut;
    - `asked`: `{"path", "number"}`: the budget's question is open, until the next `warned`;
    - `warned`: `{"decision", "why", "answer", "by", "path", "number"}`: whether the run continues
      after a warning (`continue` or `stop`), why it stops, the answer to the question and who gave
      it; both are empty if none was asked;
    - `told`: `{"call", "texts": […], "notes": [{"text", "by"}]}`: the texts from the inbox and the
      notes from persons that the agent read with a call; `notes` is missing if there are none;
    - `approved`: `{"tool_call", "digest", "question", "answer", "by", "reason", "value", "ended",
      "place"}`: the answer to the question whether this tool call may run; `ended` if the question
      became void. `digest`: of the tool's name and the model's arguments, so that the answer counts
      for no other call; `value`: other arguments for it, or `None`; `ended` and `place`: as in
      `held`;
    - `planned`: `{"numbers", "digest", "tokens", "cost_usd", "question", "answer", "by", "reason",
      "value"}`: the plan that was published before the agent delegated, and the answer to it;
      `question` is empty if no person was asked. `digest`: of the tasks;
    - `sampled`: `{"numbers", "about", "question", "answer", "by", "reason", "value"}`: for a mapped
      table, the figures of the sample and the estimate for the tasks that had not started (see
      `agentnb.core.questions.Question.value`), and the answer, as in `planned`;
    - `reused`: `{"key", "run", "text"}`: the answer of a row that made no call, the key of its
      first call, and the run that gave the answer; with `"foreign": true`, another model gave it;
    - `recalled`: `[{"id", "text"}]`: the root's memories of earlier runs;
    - `lost`: `{"number", "tokens"}`: a call that was open when the process died, and the estimate
      of what it had spent, in the budget's unit. With the number 0, of the root: all calls that a
      recovery with a larger budget has removed;
    - `went_on`: `{"used_s", "at_s"}`: new work begins in a recovered run with a time limit: the
      seconds that it had used, and the time from which on more are used;
    - `job`: `{"number", "id"}`: the id of the job for the task with this number;
    - `wrong_answer`: `{"call", "why"}`: what was wrong with a typed answer;
    - `done`: `{"tool_call", "mark"}`: a tool call of ours that changed the store and has no end. It
      is written together with the change, and `number` is the call's, negative.

    `call` is the number of the call that it concerns, in `told` that of the call with which the
    agent reads the texts. `asked`, `warned` and `went_on` concern the run and belong to the root;
    their `path` and `number` name the call that had begun last.
    """
    value: Any


@dataclass(frozen=True, slots=True)
class EndRecord:
    """The end of an agent, or of the run."""

    path: str | None
    """The agent's; `None` for the run."""
    status: AgentStatus
    text: str = ""
    """The answer, complete or partial."""
    error: str | None = None
    """Why it did not complete; `None` if it did."""
    cut: bool = False
    tokens_used: int = 0
    duration_ms: int = 0
    at_s: float = 0.0
    """Its time, in seconds since the run began."""
    attempt: int = 1
    """The number of the agent's last attempt."""
    by: str = ""
    """Who cancelled it; empty if not cancelled."""


Kept = CallRecord | ToolCallRecord | OrderRecord | VerdictRecord | EndRecord
"""The records that a journal stores besides the events."""


@dataclass(frozen=True, slots=True)
class RunJournal:
    """Everything that a journal stored of one run."""

    head: RunHead
    entries: Sequence[Entry]
    """The entries before the last commit, in order. The last records may lack their events, if the
    process died: see `agentnb.core.reading`."""
    calls: tuple[CallRecord, ...] = ()
    """Ordered by path, then number."""
    tool_calls: tuple[ToolCallRecord, ...] = ()
    """Ordered by path, then number."""
    orders: tuple[OrderRecord, ...] = ()
    """In order of arrival."""
    verdicts: tuple[VerdictRecord, ...] = ()
    """Ordered by path, then number."""
    ends: tuple[EndRecord, ...] = ()
    """In order of the agents' ends; the run's end is last."""
