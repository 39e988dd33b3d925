"""What happened in a run, as plain values.

An event is written once and never changed. Everything a person sees (the tree, the figures,
the record on disk) is computed from the list of events, so a finished run can be looked at
again without a provider. An event is news, not an order: its name is in the past tense.

Ids in events are agent ids; `agentnb.core.types.path_of` gives the path that a person reads, by
the root's id, which `root_id_in` finds. A number is the place of a task among all tasks that its
agent asked for, from 1, skipped ones included: the last part of its agent's id and path.
All `tokens_used` are totals so far, all `duration_ms` run from the agent's spawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex, overload

from agentnb.core.shown import Shown, counted
from agentnb.core.types import AgentStatus, CompletionRequest, SpawnMode, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """First event of every run."""

    kind: Literal["run_started"] = "run_started"
    task_description: str
    model: str
    budget_total: int
    max_depth: int
    thread_id: str = ""
    """The root agent's id; empty in older records."""


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
    """How many tasks that spawn had."""
    model: str = ""
    mode: SpawnMode | None = None
    """How the spawn runs; `None` for the root, and for a sub-agent that a tool started."""
    job_id: str = ""
    """The id of the job by which a tool started it; empty for any other."""
    profile: str = ""
    """The name of the profile that it was made by; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTextDelta:
    """A piece of an agent's reply arrived."""

    kind: Literal["agent_text_delta"] = "agent_text_delta"
    agent_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentWaiting:
    """An agent wants to make a call and cannot yet."""

    kind: Literal["agent_waiting"] = "agent_waiting"
    agent_id: str
    reason: str
    """In words: what it waits for."""
    wait_s: float | None = None
    """How long, where that is known."""
    attempt: int = 1
    """The transport attempt that this wait leads to, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCompleted:
    """Terminal: an agent has answered."""

    kind: Literal["agent_completed"] = "agent_completed"
    agent_id: str
    result_summary: str
    """The beginning of the answer, on one line."""
    text: str
    """The whole answer."""
    tokens_used: int
    duration_ms: int
    cut: bool = False
    """The answer ended at the model's `max_tokens`, at its context window, or at the agent's
    `max_turns`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFailed:
    """An attempt failed; terminal when it will not be tried again."""

    kind: Literal["agent_failed"] = "agent_failed"
    agent_id: str
    error: str
    will_retry: bool
    attempt: int
    text: str = ""
    """What the failed attempt had said."""
    tokens_used: int = 0
    duration_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCancelled:
    """Terminal: an agent was stopped, and nothing of it runs any more."""

    kind: Literal["agent_cancelled"] = "agent_cancelled"
    agent_id: str
    reason: str
    text: str = ""
    tokens_used: int = 0
    duration_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentExhausted:
    """Terminal: the budget ended before the agent's work did; it keeps what it had."""

    kind: Literal["agent_exhausted"] = "agent_exhausted"
    agent_id: str
    reason: str
    text: str = ""
    tokens_used: int = 0
    duration_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInterrupted:
    """Terminal for now: the process died under the agent."""

    kind: Literal["agent_interrupted"] = "agent_interrupted"
    agent_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallStarted:
    """A request goes out, exactly as it stands here."""

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
    """A call ended: with a reply, or with an error."""

    kind: Literal["model_call_finished"] = "model_call_finished"
    agent_id: str
    model: str
    usage: Usage
    """The provider's numbers; estimates where it gave none."""
    duration_ms: int
    stop_reason: str | None = None
    """`None` when the call did not come to its end."""
    error: str | None = None
    """With a `stop_reason`: the reply is whole, and something went wrong after it."""
    estimate_error: int = 0
    """Pot tokens by which the final count differs from what was held and metered for the call."""


TOOL_CANCELLED = "cancelled"
"""The result of a tool call that was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted:
    """A tool that a model ordered begins to run."""

    kind: Literal["tool_call_started"] = "tool_call_started"
    agent_id: str
    tool_use_id: str
    name: str
    input: Any
    """The arguments by name; of long ones the beginning. The whole is in the journal."""
    input_length: int | None = None
    """Characters of the whole input as JSON, where `input` is cut; `None` where it is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallReported:
    """A tool said how far it is: at most ten times a second for each call."""

    kind: Literal["tool_call_reported"] = "tool_call_reported"
    agent_id: str
    tool_use_id: str
    name: str
    text: str
    """On one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallFinished:
    """It has ended, well or badly."""

    kind: Literal["tool_call_finished"] = "tool_call_finished"
    agent_id: str
    tool_use_id: str
    name: str
    result_summary: str
    """The beginning of the result, on one line."""
    is_error: bool
    duration_ms: int
    result: str = ""
    """Of a long one the beginning. The whole is in the journal."""
    result_length: int | None = None
    """Characters of the whole result, where `result` is cut; `None` where it is whole."""

    @property
    def was_cancelled(self) -> bool:
        """Whether it was stopped before it came to a result: no fault of the tool."""
        return self.is_error and self.result_summary == TOOL_CANCELLED


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUpdate:
    """The pot moved: at most ten times a second, and at every change that matters."""

    kind: Literal["budget_update"] = "budget_update"
    tokens_used: int
    budget_total: int
    percentage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetWarning:
    """The pot crossed its warning line, or is about to be told as exhausted below it.

    Once for each time that the line is armed, and always before `BudgetExhausted`.
    """

    kind: Literal["budget_warning"] = "budget_warning"
    tokens_used: int
    budget_total: int
    percentage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPaused:
    """New calls are held until the question after a warning is answered."""

    kind: Literal["budget_paused"] = "budget_paused"
    tokens_used: int
    budget_total: int
    percentage: float
    wait_s: float
    """After so long without an answer the run stops as if the pot were empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetResumed:
    kind: Literal["budget_resumed"] = "budget_resumed"
    reason: str
    """`continue`, `stop`, `raised`, `lowered`, `timeout`, `ended` (the run was over before anyone
    answered), or `stop: ` and what was wrong with the gate's answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetChanged:
    """Somebody set a new total."""

    kind: Literal["budget_changed"] = "budget_changed"
    budget_total: int
    previous_total: int
    tokens_used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetExhausted:
    """Once per run: the first time that something could not go on for want of tokens."""

    kind: Literal["budget_exhausted"] = "budget_exhausted"
    tokens_used: int
    budget_total: int
    percentage: float
    completed_agents: tuple[str, ...]
    incomplete_agents: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitReached:
    """A limit ended the run's work, and what is left is the root's synthesis. Once per run."""

    kind: Literal["limit_reached"] = "limit_reached"
    limit: str
    """`max_time_s` or `stop_after_failures`."""
    value: float
    """What it was set to."""
    completed_agents: tuple[str, ...]
    incomplete_agents: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthLimitReached:
    """An agent at the deepest level asked for sub-agents."""

    kind: Literal["depth_limit_reached"] = "depth_limit_reached"
    agent_id: str
    attempted_depth: int
    max_depth: int
    tasks: tuple[str, ...] = ()
    """The tasks that are not done, where they could be read."""
    numbers: tuple[int, ...] = ()
    """The number of each of them; empty in older records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleDetected:
    """A task was not started since it came up too often, or is its own ancestor's."""

    kind: Literal["cycle_detected"] = "cycle_detected"
    agent_id: str
    """The agent that asked for it."""
    task_description: str
    cycle_description: str
    number: int | None = None
    """The task's number; `None` in older records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnIgnored:
    """A spawn, or some of its tasks, was not followed."""

    kind: Literal["spawn_ignored"] = "spawn_ignored"
    agent_id: str
    """The agent that asked."""
    reason: str
    tasks: tuple[str, ...] = ()
    """The tasks that are not done, where they could be read."""
    numbers: tuple[int, ...] = ()
    """The number of each of them; empty in older records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthesisStarted:
    """An agent has its sub-agents' results and brings them together."""

    kind: Literal["synthesis_started"] = "synthesis_started"
    agent_id: str
    total: int
    """How many results it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCreated:
    kind: Literal["memory_created"] = "memory_created"
    agent_id: str
    fact: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFailover:
    kind: Literal["provider_failover"] = "provider_failover"
    agent_id: str
    from_provider: str
    to_provider: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """Last event of every run."""

    kind: Literal["run_finished"] = "run_finished"
    status: AgentStatus
    tokens_used: int
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
    | DepthLimitReached
    | CycleDetected
    | SpawnIgnored
    | SynthesisStarted
    | MemoryCreated
    | ProviderFailover
    | RunFinished
)
"""The closed union: readers `match` on it and end with `assert_never`."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a run's record: an event and its place. Only the bus makes these."""

    run_id: str
    seq: int
    """Position in the run, from 0, dense and unique. Order by this, never by time."""
    at_s: float
    """Seconds since the run began, monotonic clock."""
    event: Event
    seq_first: int | None = None
    """Set when a slow subscriber got several events joined into one: the first one's `seq`."""


class Entries(list[Entry], Shown):
    """Entries of a run. Its `repr` is one short line; so is that of its slices."""

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
        """`events of 3 agents`. How many events it are depends on the time that a run took."""
        agents = {getattr(entry.event, "agent_id", None) for entry in self} - {None}
        return f"events of {counted(len(agents), 'agent')}"

    def __repr__(self) -> str:
        return f"Entries({self.headline})"


TextRow = tuple[float, str, str]
"""An `AgentTextDelta` and its time, as the record keeps it: `at_s`, `agent_id`, `text`. Most of a
record is these, and most of them nobody ever looks at: the objects are made for whoever does."""

EventRow = tuple[float, Event]
"""Any other event and its time, `at_s`."""

Row = TextRow | EventRow
"""One line of a run's record, as it is kept: its place is its `seq`."""


def entry_of(run_id: str, seq: int, row: Row) -> Entry:
    """What a reader gets for a row."""
    if len(row) == 3:
        return Entry(run_id, seq, row[0], AgentTextDelta(agent_id=row[1], text=row[2]))
    return Entry(run_id, seq, row[0], row[1])


def is_terminal(event: Event) -> bool:
    """Whether the event ends an agent."""
    if isinstance(event, AgentFailed):
        return not event.will_retry
    return isinstance(event, AgentCompleted | AgentCancelled | AgentExhausted | AgentInterrupted)


def root_id_in(event: Event) -> str:
    """The id of the run's root, where an event tells it; else empty.

    Of a record, the first that is told counts: `RunStarted` has it, and in an older record the
    spawn of the agent without a parent.
    """
    match event:
        case RunStarted():
            return event.thread_id
        case AgentSpawned(parent_id=None):
            return event.agent_id
    return ""
