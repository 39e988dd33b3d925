"""The events of a run, as plain values.

An event is written once and never changed. Everything that a person sees (the tree, the figures,
the record on disk) is computed from the list of events, so a finished run can be shown without a
provider. An event reports what happened, so its name is in the past tense.

Ids in events are agent ids; `agentnb.core.types.path_of` computes an agent's path from its id and
the root's id, which `root_id_in` finds. A task's number counts all tasks that its agent asked for,
from 1, including skipped ones: it is the last part of the id and path of the task's agent. All
`tokens_used` are totals so far. The `duration_ms` of an agent's end counts from its spawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex, overload

from agentnb.core.shown import Shown, counted
from agentnb.core.types import AgentStatus, CompletionRequest, MediaBlock, Message, SpawnMode, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A run began. First event of every run."""

    kind: Literal["run_started"] = "run_started"
    task_description: str
    model: str
    budget_total: int
    max_depth: int
    thread_id: str = ""
    """The root agent's id; empty in older records."""
    recovered: int = 0
    """How many times the run was recovered."""
    unit: str = "tokens"
    """The unit of the amounts: `tokens`, or `usd` for whole micro-dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpawned:
    """An agent was given its task and is about to make its first call. The root has one, too."""

    kind: Literal["agent_spawned"] = "agent_spawned"
    agent_id: str
    parent_id: str | None
    """`None` for the root agent only."""
    task_description: str
    depth: int
    index: int = 0
    """Position among the tasks of the same spawn, from 0."""
    total: int = 1
    """Number of tasks of that spawn."""
    model: str = ""
    mode: SpawnMode | None = None
    """How the spawn runs; `None` for the root, and for a sub-agent that a tool started."""
    job_id: str = ""
    """The id of its job, if a tool started it; else empty."""
    profile: str = ""
    """The name of its profile; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTextDelta:
    """A piece of an agent's reply arrived."""

    kind: Literal["agent_text_delta"] = "agent_text_delta"
    agent_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWaiting:
    """An agent waits before it can make a call."""

    kind: Literal["agent_waiting"] = "agent_waiting"
    agent_id: str
    reason: str
    """What it waits for, in words."""
    wait_s: float | None = None
    """For how many seconds; `None` if unknown."""
    attempt: int = 1
    """The transport attempt after this wait, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCompleted:
    """Terminal: an agent answered."""

    kind: Literal["agent_completed"] = "agent_completed"
    agent_id: str
    result_summary: str
    """The beginning of the answer, on one line."""
    text: str
    """The whole answer."""
    tokens_used: int
    duration_ms: int
    cut: bool = False
    """Whether the answer ended at the model's `max_tokens`, at its context window, or at the
    agent's `max_turns`."""
    typed: bool = False
    """Whether it is a typed answer: its text is compact JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFailed:
    """An attempt failed; terminal unless `will_retry`."""

    kind: Literal["agent_failed"] = "agent_failed"
    agent_id: str
    error: str
    will_retry: bool
    attempt: int
    text: str = ""
    """The failed attempt's text so far."""
    tokens_used: int = 0
    duration_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCancelled:
    """Terminal: an agent was cancelled, and nothing of it runs any more."""

    kind: Literal["agent_cancelled"] = "agent_cancelled"
    agent_id: str
    reason: str
    text: str = ""
    tokens_used: int = 0
    duration_ms: int = 0
    by: str = ""
    """Who ordered it: `panel`, `code`, `gate`, `limit` or `agent`; empty in older records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentExhausted:
    """Terminal: a limit of the run stopped an agent; its partial answer is kept."""

    kind: Literal["agent_exhausted"] = "agent_exhausted"
    agent_id: str
    reason: str
    text: str = ""
    tokens_used: int = 0
    duration_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInterrupted:
    """Terminal for now: the process died while the agent ran."""

    kind: Literal["agent_interrupted"] = "agent_interrupted"
    agent_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallStarted:
    """A request is sent, exactly as it is here."""

    kind: Literal["model_call_started"] = "model_call_started"
    agent_id: str
    request: CompletionRequest
    model: str
    """`provider/model`."""
    attempt: int = 1
    """Transport attempt, from 1."""
    is_synthesis: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallFinished:
    """A call ended, with a reply or with an error."""

    kind: Literal["model_call_finished"] = "model_call_finished"
    agent_id: str
    model: str
    usage: Usage
    """The provider's count, or the estimate if there is none."""
    duration_ms: int
    stop_reason: str | None = None
    """`None` if the reply is not complete."""
    error: str | None = None
    """With a `stop_reason`: the reply is complete, and this is to be known of it."""
    message: Message | None = None
    """The reply, as it is sent back to the model; only its text if it was cut off. `None` if
    nothing arrived, and in older records."""
    estimate_error: int = 0
    """Budget tokens by which the final count exceeds what was reserved and metered before; negative
    if it is less."""


TOOL_CANCELLED = "cancelled"
"""The result of a cancelled tool call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted:
    """A tool that a model called starts to run."""

    kind: Literal["tool_call_started"] = "tool_call_started"
    agent_id: str
    tool_use_id: str
    name: str
    input: Any
    """The arguments by name; long ones are cut here, and whole in the journal."""
    input_length: int | None = None
    """Characters of the whole input as JSON, if `input` is cut; `None` if it is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallReported:
    """A tool reported its progress: at most ten times a second for each call."""

    kind: Literal["tool_call_reported"] = "tool_call_reported"
    agent_id: str
    tool_use_id: str
    name: str
    text: str
    """On one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallFinished:
    """A tool call ended, with a result or with an error."""

    kind: Literal["tool_call_finished"] = "tool_call_finished"
    agent_id: str
    tool_use_id: str
    name: str
    result_summary: str
    """The beginning of the result, on one line."""
    is_error: bool
    duration_ms: int
    result: str = ""
    """A long result is cut here, and whole in the journal."""
    result_length: int | None = None
    """Characters of the whole result, if `result` is cut; `None` if it is whole."""
    media: tuple[MediaBlock, ...] = ()
    """The images and PDFs in the result. They are only named here, and whole in the journal."""

    @property
    def was_cancelled(self) -> bool:
        """Whether the call was cancelled before it had a result."""
        return self.is_error and self.result_summary == TOOL_CANCELLED


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUpdate:
    """The used tokens changed: at most ten times a second, and after each new total."""

    kind: Literal["budget_update"] = "budget_update"
    tokens_used: int
    budget_total: int
    percentage: float
    unit: str = "tokens"
    """Of the amounts: `tokens`, or `usd` for whole micro-dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetWarning:
    """The budget crossed its warning line, or was exhausted below it.

    Once each time the line is armed, and always before `BudgetExhausted`.
    """

    kind: Literal["budget_warning"] = "budget_warning"
    tokens_used: int
    budget_total: int
    percentage: float
    unit: str = "tokens"
    """Of the amounts: `tokens`, or `usd` for whole micro-dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPaused:
    """New calls wait until the question after a warning is answered."""

    kind: Literal["budget_paused"] = "budget_paused"
    tokens_used: int
    budget_total: int
    percentage: float
    wait_s: float
    """Seconds without an answer after which the run stops as if its budget were used up."""
    unit: str = "tokens"
    """Of the amounts: `tokens`, or `usd` for whole micro-dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetResumed:
    """The question after a warning was answered, or is void."""

    kind: Literal["budget_resumed"] = "budget_resumed"
    reason: str
    """`continue`, `stop`, `raised`, `lowered`, `timeout`, `ended` (the run was over before an
    answer), or `stop: ` and what was wrong with the gate's answer."""
    by: str = ""
    """Who ordered it: `panel`, `code`, `gate`, `limit` or `agent`; empty in older records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetChanged:
    """A new total was set."""

    kind: Literal["budget_changed"] = "budget_changed"
    budget_total: int
    previous_total: int
    tokens_used: int
    by: str = ""
    """Who ordered it: `panel`, `code`, `gate`, `limit` or `agent`; empty in older records."""
    unit: str = "tokens"
    """Of the amounts: `tokens`, or `usd` for whole micro-dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetExhausted:
    """The budget was exhausted: for the first time, work could not continue. Once per run."""

    kind: Literal["budget_exhausted"] = "budget_exhausted"
    tokens_used: int
    budget_total: int
    percentage: float
    completed_agents: tuple[str, ...]
    incomplete_agents: tuple[str, ...]
    unit: str = "tokens"
    """Of the amounts: `tokens`, or `usd` for whole micro-dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitReached:
    """A limit ended the run's work; only the root's synthesis is left. Once per run."""

    kind: Literal["limit_reached"] = "limit_reached"
    limit: str
    """`max_time_s` or `stop_after_failures`."""
    value: float
    """The limit's value."""
    completed_agents: tuple[str, ...]
    incomplete_agents: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPaused:
    """A person paused the run, or a branch: no new call or tool of it starts."""

    kind: Literal["run_paused"] = "run_paused"
    agent_id: str | None = None
    """The agent at the top of the branch; `None` for the whole run."""
    by: str = ""
    """Who ordered it: `panel`, `code`, `gate`, `limit` or `agent`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResumed:
    """A person's pause ended."""

    kind: Literal["run_resumed"] = "run_resumed"
    agent_id: str | None = None
    """The agent whose pause ended, as in `RunPaused`."""
    by: str = ""
    """Who ordered it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnPlanned:
    """An agent is about to delegate. Published before the first of its sub-agents; not for jobs."""

    kind: Literal["spawn_planned"] = "spawn_planned"
    agent_id: str
    """The agent that delegates."""
    mode: SpawnMode
    tasks: tuple[str, ...]
    """The tasks that are about to start; in a mapped table, the beginnings of their prompts."""
    estimated_tokens: int
    """Upper bound for the calls that are certain to come: each one's input and whole
    `max_output_tokens`."""
    estimated_cost_usd: float | None = None
    """Upper bound for the cost of those calls at list price; `None` if a model has no price."""
    numbers: tuple[int, ...] = ()
    """The tasks' numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAsked:
    """The run asks a person; only this agent waits. The budget's question is `BudgetPaused`."""

    kind: Literal["question_asked"] = "question_asked"
    agent_id: str
    """The agent that waits for the answer."""
    question_id: str
    """`q1`, `q2`, in the order in which the run asked."""
    question: str
    """What it is about: `approval`, `plan` or `sample`."""
    text: str
    """The question, in words."""
    options: tuple[str, ...]
    """The answers that it takes."""
    wait_s: float = 0.0
    """Seconds without an answer after which it is denied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionAnswered:
    """A question has its answer, or is void. Once for each `QuestionAsked`."""

    kind: Literal["question_answered"] = "question_answered"
    agent_id: str
    question_id: str
    answer: str
    """One of its options; `ended` if its agent ended before an answer."""
    by: str
    """Who answered: `panel`, `code`, `gate` (a person's own function), `limit` (no answer in time)
    or `agent`."""
    reason: str = ""
    """The reason, if given."""
    value: Any = None
    """For a plan: how many tasks may start. Changed arguments of a tool are in its
    `ToolCallStarted`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTold:
    """An agent got a note from a person, with the call that starts next."""

    kind: Literal["agent_told"] = "agent_told"
    agent_id: str
    text: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthLimitReached:
    """An agent at the deepest level asked for sub-agents."""

    kind: Literal["depth_limit_reached"] = "depth_limit_reached"
    agent_id: str
    attempted_depth: int
    max_depth: int
    tasks: tuple[str, ...] = ()
    """The tasks that are not done, as far as they could be read."""
    numbers: tuple[int, ...] = ()
    """Their numbers; empty in older records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleDetected:
    """A task was not started because it came up too often, or is an ancestor's task."""

    kind: Literal["cycle_detected"] = "cycle_detected"
    agent_id: str
    """The agent that asked for it."""
    task_description: str
    cycle_description: str
    number: int | None = None
    """The task's number; 0 for an assignment to another thread, `None` in older records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnIgnored:
    """A spawn, or some of its tasks, was not followed."""

    kind: Literal["spawn_ignored"] = "spawn_ignored"
    agent_id: str
    """The agent that asked for it."""
    reason: str
    tasks: tuple[str, ...] = ()
    """The tasks that are not done, as far as they could be read."""
    numbers: tuple[int, ...] = ()
    """Their numbers; empty in older records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthesisStarted:
    """An agent has its sub-agents' results and combines them."""

    kind: Literal["synthesis_started"] = "synthesis_started"
    agent_id: str
    total: int
    """Number of results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCreated:
    """A fact that an agent remembered was stored."""

    kind: Literal["memory_created"] = "memory_created"
    agent_id: str
    fact: str
    memory_id: int = 0
    """Its number in the store."""
    created_at: float = 0.0
    """Seconds since 1970. 0 in older records; so is `memory_id`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFailover:
    """A model of a chain failed, and the next one is asked."""

    kind: Literal["provider_failover"] = "provider_failover"
    agent_id: str
    from_provider: str
    to_provider: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """A run ended. Last event of every run."""

    kind: Literal["run_finished"] = "run_finished"
    status: AgentStatus
    tokens_used: int
    """Tokens, even with a budget in dollars; without those of runs below this run's budget."""
    duration_ms: int
    error: str | None = None


TerminalEvent = AgentCompleted | AgentFailed | AgentCancelled | AgentExhausted | AgentInterrupted
"""`AgentFailed` is terminal only when `will_retry` is false."""

Event = (
    RunStarted
    | AgentSpawned
    | AgentTextDelta
    | AgentWaiting
    | AgentCompleted
    | AgentFailed
    | AgentCancelled
    | AgentExhausted
    | AgentInterrupted
    | ModelCallStarted
    | ModelCallFinished
    | ToolCallStarted
    | ToolCallReported
    | ToolCallFinished
    | BudgetUpdate
    | BudgetWarning
    | BudgetPaused
    | BudgetResumed
    | BudgetChanged
    | BudgetExhausted
    | LimitReached
    | RunPaused
    | RunResumed
    | SpawnPlanned
    | QuestionAsked
    | QuestionAnswered
    | AgentTold
    | DepthLimitReached
    | CycleDetected
    | SpawnIgnored
    | SynthesisStarted
    | MemoryCreated
    | ProviderFailover
    | RunFinished
)
"""The union of all events: readers `match` on it and end with `assert_never`."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a run's record: an event with its index and time. Only the bus creates these."""

    run_id: str
    seq: int
    """Index in the run, from 0, dense and unique. Order by this, never by time."""
    at_s: float
    """Seconds since the run began, monotonic clock."""
    event: Event
    seq_first: int | None = None
    """For several events joined for a slow subscriber: the `seq` of the first. Else `None`."""


class Entries(list[Entry], Shown):
    """Entries of a run. Its `repr` is one short line, like that of its slices."""

    @overload
    def __getitem__(self, place: SupportsIndex) -> Entry: ...
    @overload
    def __getitem__(self, place: slice) -> Entries: ...
    def __getitem__(self, place: SupportsIndex | slice) -> Entry | Entries:
        if isinstance(place, slice):
            return Entries(super().__getitem__(place))
        return super().__getitem__(place)

    @property
    def headline(self) -> str:
        """`events of 3 agents`. The number of events would differ from run to run."""
        agents = {getattr(entry.event, "agent_id", None) for entry in self} - {None}
        return f"events of {counted(len(agents), 'agent')}"

    def __repr__(self) -> str:
        return f"Entries({self.headline})"


TextRow = tuple[float, str, str]
"""An `AgentTextDelta` in the record: `at_s`, `agent_id`, `text`. Most rows are of this kind, and
most are never read, so objects are created only for readers."""

EventRow = tuple[float, Event]
"""Any other event in the record: `at_s`, event."""

Row = TextRow | EventRow
"""One row of a run's record; its index is its `seq`."""


class RowEntries(Sequence[Entry]):
    """Rows of a record as entries, whose objects are created when they are read.

    Args:
        run_id: The run's id.
        first: The `seq` of the first row.
        rows: The rows. A reader that needs no objects reads these directly.
    """

    __slots__ = ("first", "rows", "run_id")

    def __init__(self, run_id: str, first: int, rows: list[Row]) -> None:
        self.run_id, self.first, self.rows = run_id, first, rows

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: SupportsIndex) -> Entry: ...
    @overload
    def __getitem__(self, place: slice) -> list[Entry]: ...
    def __getitem__(self, place: SupportsIndex | slice) -> Entry | list[Entry]:
        seqs = range(self.first, self.first + len(self.rows))
        if isinstance(place, slice):
            pairs = zip(seqs[place], self.rows[place], strict=True)
            return [entry_of(self.run_id, seq, row) for seq, row in pairs]
        return entry_of(self.run_id, seqs[place], self.rows[place])

    def __repr__(self) -> str:
        return f"RowEntries({len(self)} from {self.first})"


def entry_of(run_id: str, seq: int, row: Row) -> Entry:
    """The entry for a row."""
    if len(row) == 3:
        return Entry(run_id, seq, row[0], AgentTextDelta(agent_id=row[1], text=row[2]))
    return Entry(run_id, seq, row[0], row[1])


def rows_of(entries: Sequence[Entry]) -> list[Row]:
    """Entries as rows. For `RowEntries`, its own list: copy it before you change it."""
    if isinstance(entries, RowEntries):
        return entries.rows
    return [_row_of(entry.at_s, entry.event) for entry in entries]


def _row_of(at_s: float, event: Event) -> Row:
    if isinstance(event, AgentTextDelta):
        return at_s, event.agent_id, event.text
    return at_s, event


def is_terminal(event: Event) -> bool:
    """Whether the event ends an agent."""
    if isinstance(event, AgentFailed):
        return not event.will_retry
    return isinstance(event, AgentCompleted | AgentCancelled | AgentExhausted | AgentInterrupted)


def root_id_in(event: Event) -> str:
    """The id of the run's root, if the event has it; else empty.

    The first in a record counts: from `RunStarted`, or in an older record from the spawn of the
    agent without a parent.
    """
    match event:
        case RunStarted():
            return event.thread_id
        case AgentSpawned(parent_id=None):
            return event.agent_id
    return ""
