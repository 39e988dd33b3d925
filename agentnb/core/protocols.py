"""The core's interfaces to the parts around it.

Each documents what types cannot express: who may call it, from where, and what it may raise. An
optional method is a `Supports...` protocol of its own, with a function that checks for it:
`isinstance` would take microseconds for each call, and miss methods that a wrapper provides
through `__getattr__`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeGuard, TypeVar

if TYPE_CHECKING:
    from agentnb.core.clock import Clock, TimeLimit
    from agentnb.core.durable import MemoryEntry
    from agentnb.core.errors import OrchestratorError
    from agentnb.core.events import (
        BudgetWarning,
        Entry,
        Event,
        ModelCallFinished,
        TextRow,
        ToolCallFinished,
    )
    from agentnb.core.questions import Question
    from agentnb.core.records import (
        CallRecord,
        ErrorRecord,
        Kept,
        RunHead,
        RunJournal,
        ToolCallRecord,
    )
    from agentnb.core.threads import BlockingCall
    from agentnb.core.types import (
        AgentStatus,
        Briefing,
        CancelReceipt,
        CompletionRequest,
        Message,
        StreamEvent,
        SubAgentResult,
        ToolOutput,
        ToolSpec,
        ToolUse,
        ToolUseBlock,
        Usage,
    )

T = TypeVar("T")


class Provider(Protocol):
    """Answers conversations: an API, or a script in a test.

    Implementations are safe to call from many tasks at once, raise only `LlmError` (never
    their SDK's own exceptions), let `asyncio.CancelledError` pass, and end every complete
    turn with one `Stopped`. A stream that ends without it counts as cut. Optional:
    `SupportsReady`, `SupportsKeyCheck`, `SupportsTokenCount`, `SupportsTools`, `SupportsMedia`,
    `SupportsLinks`, `SupportsClose`.
    """

    name: str

    def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        """Make one call, and yield its reply as it arrives."""
        ...


def is_provider(value: object) -> TypeGuard[Provider]:
    if isinstance(value, type) or not isinstance(getattr(value, "name", None), str):
        return False
    return callable(getattr(value, "stream", None))


class SupportsReady(Provider, Protocol):
    """A provider that may have to wait before a call, such as for what it loads."""

    async def ready(self) -> None:
        """Wait for it. Awaited before each call, and before the call's deadline starts."""
        ...


def supports_ready(provider: object) -> TypeGuard[SupportsReady]:
    return getattr(provider, "ready", None) is not None


class SupportsKeyCheck(Provider, Protocol):
    """A provider that can say, without a call, whether it has a key."""

    async def check_key(self) -> None:
        """Raise `MissingKey` if every call would fail because credentials are missing."""
        ...


def supports_key_check(provider: object) -> TypeGuard[SupportsKeyCheck]:
    return getattr(provider, "check_key", None) is not None


class SupportsTokenCount(Provider, Protocol):
    """A provider that counts a request's tokens; for others four bytes count as a token."""

    def count_tokens(self, request: CompletionRequest) -> int:
        """Tokens of the whole input. Called before each call on the run's loop: must be quick."""
        ...


def supports_token_count(provider: object) -> TypeGuard[SupportsTokenCount]:
    return getattr(provider, "count_tokens", None) is not None


class SupportsTools(Provider, Protocol):
    """A provider that says which of its models can call tools; for others all models can."""

    def supports_tools(self, model: str) -> bool:
        """Whether a model (its own name, without the `provider/` part) can call tools."""
        ...


def supports_tools(provider: object, model: str) -> bool:
    """Whether a provider's model can call tools. `model` is its own name."""
    asked = getattr(provider, "supports_tools", None)
    return asked is None or bool(asked(model))


class SupportsMedia(Provider, Protocol):
    """A provider that accepts images or PDFs (`MediaBlock`); others are sent none."""

    def supports_media(self, model: str, media_type: str) -> bool:
        """Whether a model (its own name, without the `provider/` part) accepts such files.

        `media_type` is one of `agentnb.core.media.MEDIA_TYPES`. Must not use the network, since it
        is also called before the first call.
        """
        ...


def supports_media(provider: object, model: str, media_type: str) -> bool:
    """Whether a provider's model accepts files of a type. `model` is its own name."""
    asked = getattr(provider, "supports_media", None)
    return asked is not None and bool(asked(model, media_type))


class SupportsClose(Protocol):
    """A stream or a provider that holds connections."""

    async def aclose(self) -> None:
        """Close the connections. A provider opens new ones when it is called again."""
        ...


def supports_close(value: object) -> TypeGuard[SupportsClose]:
    return getattr(value, "aclose", None) is not None


class closing:
    """`async with closing(stream):` closes a provider's stream at the end, if it can be closed."""

    def __init__(self, stream: AsyncIterator[StreamEvent]) -> None:
        self._stream = stream

    async def __aenter__(self) -> AsyncIterator[StreamEvent]:
        return self._stream

    async def __aexit__(self, *_: object) -> None:
        if supports_close(self._stream):
            await self._stream.aclose()


@dataclass(frozen=True, slots=True)
class FallbackModel:
    """One model of a fallback chain, and its provider."""

    provider: Provider
    model: str
    """`provider/model`."""


class SupportsLinks(Provider, Protocol):
    """A fallback chain: a provider for several models.

    An engine that reads `links` makes each call under that model's own gate and publishes each
    failover; to any other a chain is just a provider.
    """

    @property
    def links(self) -> Sequence[FallbackModel]:
        """The models, in the order in which they are asked."""
        ...


def is_chain(provider: object) -> TypeGuard[SupportsLinks]:
    return bool(getattr(provider, "links", None))


def links_of(provider: Provider, model: str) -> Sequence[FallbackModel]:
    """The models to ask, one after the other: those of a chain, else only `model`."""
    return provider.links if is_chain(provider) else (FallbackModel(provider, model),)


class ToolContext(Protocol):
    """One call of a tool: its agent, the run's shared values, and whether it was cancelled.

    May be used from any thread, except `jobs` and `memory`, which belong to the run's loop, and
    `on_thread`, which the tool itself awaits. A report after the call's end is ignored.
    """

    @property
    def agent_id(self) -> str: ...

    @property
    def path(self) -> str:
        """The agent's path: `root`, `1`, `1.2`."""
        ...

    @property
    def run_id(self) -> str: ...

    @property
    def workspace(self) -> dict[str, Any]:
        """Shared by a person's tools in one run. No model reads or writes it."""
        ...

    @property
    def notes(self) -> dict[str, str]:
        """Notes that the run's agents write for each other with `workspace_write`, by key."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled or timed out. A tool on a thread has to check this."""
        ...

    @property
    def jobs(self) -> Jobs | None:
        """The sub-agents that the agent started by tools; `None` if it may start none."""
        ...

    @property
    def memory(self) -> Memory | None:
        """What agents remember beyond their run; `None` without a store."""
        ...

    def report(self, text: str) -> None:
        """Show the tool's progress in the tree.

        Args:
            text: Shown on one line, cut to 200 characters. At most ten reports a second are
                published; of those in between, only the newest.
        """
        ...

    async def on_thread(self, function: Callable[[], T]) -> T:
        """Await a blocking function on a daemon thread.

        After a cancel, the thread has two seconds to notice it (`cancelled`); then it is abandoned
        and its result dropped.
        """
        ...


class SupportsLeave(ToolContext, Protocol):
    """The context of a tool whose blocking function may run in another process."""

    async def leave(self, call: BlockingCall) -> None:
        """Give a cancelled call two seconds to end; then abandon it, and count it until it ends.

        Args:
            call: The call of the blocking function.
        """
        ...


def supports_leave(context: object) -> TypeGuard[SupportsLeave]:
    return getattr(context, "leave", None) is not None


class Memory(Protocol):
    """The memory of one agent. For the run's loop only."""

    async def remember(self, fact: str) -> MemoryEntry:
        """Store a fact for later runs. It is published as `MemoryCreated` once it is stored."""
        ...

    async def recall(self, query: str, limit: int) -> Sequence[MemoryEntry]:
        """The stored facts that share words with a query: best first, then newest first."""
        ...


class MemoryKeeper(Protocol):
    """Stores facts beyond a run, for all runs of a store. May raise anything."""

    async def remember(self, agent_id: str, run_id: str, fact: str) -> MemoryEntry:
        """Store a fact, and return what was stored: its secrets are masked."""
        ...

    async def recall(self, query: str, limit: int) -> Sequence[MemoryEntry]:
        """See `Memory.recall`."""
        ...


MOST_FOR_MODEL = 100_000
"""Most characters of a tool's result that go to the model: some 25,000 tokens."""


class Tool(Protocol):
    """A tool that a model can call. May have a time limit: `SupportsTimeout`."""

    spec: ToolSpec

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str | ToolOutput:
        """Run the tool.

        May raise anything: an error becomes an error result for the model, never a failure of the
        agent. The text of a `ToolError` reaches the model unchanged.

        Args:
            input: The arguments by name.
            context: The call. See `ToolContext`.

        Returns:
            The result for the model: text, or text with images and PDFs.
        """
        ...


class SupportsTimeout(Tool, Protocol):
    """A tool with a time limit."""

    @property
    def timeout_s(self) -> float:
        """Seconds after which a call is stopped, with an error result."""
        ...


def supports_timeout(tool: object) -> TypeGuard[SupportsTimeout]:
    return getattr(tool, "timeout_s", None) is not None


def approval_of(tool: object) -> bool | Callable[[Question], object]:
    """Whether a tool's calls need approval, or the function that answers.

    An attribute that is neither a callable, `False` nor `None` counts as `True`.
    """
    value = getattr(tool, "approval", None)
    if value is None or value is False:
        return False
    return value if callable(value) else True


@dataclass(frozen=True, slots=True)
class Ruling:
    """The decision on one tool call: its arguments, its record, its approval."""

    call: ToolCallRecord
    """The call with the arguments with which it may run."""
    recorded: ToolCallRecord | None = None
    """The record that answers it; `None` if the call is new, or its record has no end."""
    refusal: str = ""
    """Why it may not run, for the model; empty if it may."""
    note: str = ""
    """A line for the model before the result: which arguments a person changed."""
    may_repeat: bool = True
    """Whether its tool may be called again although a record answers."""
    was_asked: bool = False
    """Whether it waited for approval, so that other calls may have begun before it."""


RECORDED, RUN, AGAIN = "recorded", "run", "again"
"""What a replay does with a recorded tool call. `recorded`: the record answers, and the tool is not
run; `run`: run it, and compare its result with the record; `again`: run it for its changes, while
the record answers."""


def on_replay(tool: object) -> str:
    """What a replay does with a tool's recorded calls."""
    return str(getattr(tool, "on_replay", RECORDED))


class SupportsAgain(Protocol):
    """A tool of ours that changes the run itself.

    When a record answers a call, `again` repeats the call's changes in the run; the result is still
    the record's.
    """

    async def again(self, input: Mapping[str, Any], context: ToolContext) -> object: ...


def supports_again(tool: object) -> TypeGuard[SupportsAgain]:
    """Whether a recorded call of the tool changes the run again."""
    return hasattr(tool, "again")


class SupportsMarks(Protocol):
    """A tool of ours that changes the store, and marks the change with its call.

    So the outcome of a call that was open when the process died is known: with a mark it was done,
    without one it was not, and is made again.
    """

    async def marked_result(self, mark: str, input: Mapping[str, Any], context: ToolContext) -> str:
        """The result of a call that was done before the process died.

        Args:
            mark: The mark of its change.
            input: As in `call`.
            context: As in `call`.
        """
        ...


def supports_marks(tool: object) -> TypeGuard[SupportsMarks]:
    """Whether the tool's changes are marked with their calls."""
    return hasattr(tool, "marked_result")


def has_effects(tool: object) -> bool:
    """Whether a call may change something, so that one with an unknown outcome is not repeated."""
    return bool(getattr(tool, "effects", True))


# -- typed answers ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TypedAnswer:
    """An answer that fits its type."""

    data: Any
    """The value, for a person's code."""
    text: str
    """The value as compact JSON: the parent's model reads it, and it is stored."""


@dataclass(frozen=True, slots=True)
class WrongAnswer:
    """An answer that does not fit its type."""

    why: str
    """What is wrong, for the model; one line per mistake."""


class OutputType(Protocol):
    """The type that an answer must fit. See `agentnb.typed`."""

    name: str
    """The type's name, for messages."""
    schema: Mapping[str, Any]
    """JSON schema of an object: of the answer itself, or of `{"value": answer}`."""

    def __hash__(self) -> int: ...

    def read(self, reply: str | Mapping[str, Any]) -> TypedAnswer | WrongAnswer:
        """Check an answer. Never raises.

        Args:
            reply: A model's text, or the arguments of its `final_answer`.
        """
        ...


# -- sub-agents that are started by tools -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Delegation:
    """How the agents of a run may start sub-agents.

    Args:
        by_block: Whether by a spawn block in a reply.
        spawn_tools: The tools that start and manage sub-agents; empty for no delegation by tools.
        nested: Whether sub-agents get the spawn tools, too, as far as the depth allows.
        profiles: The description of the profiles, for the prompt of an agent with spawn tools.
    """

    by_block: bool = True
    spawn_tools: Sequence[Tool] = ()
    nested: bool = False
    profiles: str = ""

    @property
    def by_tools(self) -> bool:
        return bool(self.spawn_tools)

    def tools_at(self, depth: int, max_depth: int) -> Sequence[Tool]:
        """The spawn tools of an agent at `depth`."""
        may_spawn = depth < max_depth and (self.nested or depth == 0)
        return self.spawn_tools if may_spawn else ()


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A sub-agent's own model, instead of its parent's."""

    provider: Provider
    name: str
    """`provider/model`."""
    gate: Gate


@dataclass(frozen=True, slots=True)
class JobOrder:
    """An agent's order for a sub-agent: everything that the sub-agent gets."""

    task: str
    context: str = ""
    """Precedes the task in its first message."""
    briefings: tuple[Briefing, ...] = ()
    tools: tuple[Tool, ...] = ()
    """Tools that it may call, without the spawn tools."""
    model: ModelChoice | None = None
    """`None` for its parent's."""
    profile: str = ""
    """The name of its profile; empty for none."""
    gated: tuple[str, ...] = ()
    """Names of tools that need approval from it and those below it, besides its parent's."""
    output: OutputType | None = None
    """The type of its answer; `None` for text."""


class NotStarted(Exception):
    """A job was refused. The message says why, as part of a sentence."""

    @property
    def for_model(self) -> str:
        """The error for the model that ordered the job."""
        return f"The sub-agent was not started: {self}."


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job."""

    job_id: str
    path: str
    """Its agent's path."""
    task: str
    status: AgentStatus
    doing: str = ""
    """What its agent is doing or waiting for, in words; empty if its text shows it."""
    said: str = ""
    """Its agent's text so far."""
    result: SubAgentResult | None = None
    """Its result; `None` while it runs."""


class Jobs(Protocol):
    """One agent's own jobs. For the run's loop only; no agent can see another's."""

    @property
    def tools(self) -> Sequence[Tool]:
        """Tools that the agent itself may call, without the spawn tools."""
        ...

    def start(self, order: JobOrder) -> str:
        """Start a sub-agent, and return the id of its job at once.

        Raises:
            NotStarted: A limit of the run forbids it, or the agent is about to end.
        """
        ...

    def ids(self) -> list[str]:
        """The ids of all jobs, in the order in which they were started."""
        ...

    def state(self, job_id: str) -> JobState | None:
        """The state of a job; `None` if it does not exist."""
        ...

    async def wait(self, job_ids: Sequence[str]) -> None:
        """Wait until these jobs have ended. Unknown ids are ignored."""
        ...

    def mark_reported(self, job_ids: Sequence[str]) -> None:
        """Note that the results of these jobs, as far as they have ended, reach the agent."""
        ...

    async def cancel(self, job_ids: Sequence[str]) -> list[str]:
        """Cancel those of these jobs that run, and wait for their end. Returns their ids."""
        ...


# -- journal, gate, budget gate, controls ---------------------------------------------------------


class SupportsCommit(Protocol):
    """The only method that a run requires of a journal. The others are optional: see `Journal`."""

    async def commit(self) -> None:
        """Return once everything that came before is stored.

        Awaited before a call or a tool with effects starts, and before each finished or terminal
        event is published, so that no reader learns of an end that was not stored.
        """
        ...


class Journal(SupportsCommit, Protocol):
    """Stores what happens in a run, one run at a time. All methods but `commit` are optional.

    All but `commit` and `load` return at once, are called on the run's loop, and may come in any
    number before a commit. What a method raises fails the run at its end, and no agent. Texts are
    passed unchanged: a journal that writes them masks their secrets (`agentnb.core.secrets`).
    `agentnb.testing.journal_contract` checks an implementation.
    """

    def begin(self, head: RunHead) -> None:
        """Begin a run: everything that follows belongs to it. Called before any other method."""
        ...

    def intend(self, record: CallRecord | ToolCallRecord) -> None:
        """A call, or a tool with effects, is about to start."""
        ...

    def keep(self, record: Kept) -> None:
        """Store a record. The finished record of a call or a tool call replaces its intent."""
        ...

    def published(self, entries: Sequence[Entry]) -> None:
        """Take the entries published since the last call: each once, in order.

        Called before each commit, which stores them; commits come at least once a second while a
        call is open, and a last time after `RunFinished`.
        """
        ...

    def load(self, run_id: str) -> RunJournal:
        """Everything that was stored of a run.

        Raises:
            NoSuchRun: The journal has no run with this id.
        """
        ...

    def close(self) -> None:
        """Store what came since the last commit, and release all resources.

        A second call does nothing.
        """
        ...


class Gate(Protocol):
    """Limits how many calls to one model are open at a time."""

    def acquire(
        self, model: str, *, on_wait: Callable[[str, float | None], None]
    ) -> AbstractAsyncContextManager[None]:
        """An `async with` around one call. May be `SupportsEnterNow`.

        Args:
            model: `provider/model`.
            on_wait: Called once per wait, with the reason and the seconds; `None` if unknown.
        """
        ...

    def throttle(self, model: str, seconds: float) -> None:
        """Let new calls wait for `seconds`, because the provider asked a call to slow down."""
        ...


class SupportsEnterNow(Protocol):
    """The return value of a gate's `acquire`, if it can be entered without a task switch."""

    def enter_now(self) -> bool:
        """Enter if that needs no wait, and return true; else change nothing and return false."""
        ...


def supports_enter_now(slot: object) -> TypeGuard[SupportsEnterNow]:
    return getattr(slot, "enter_now", None) is not None


class Inbox(Protocol):
    """Texts for running agents. Each agent reads its own before its next call to a model."""

    def has_news(self, agent_id: str) -> bool:
        """Whether there may be texts for an agent. Asked before each call: must be quick."""
        ...

    async def take(self, agent_id: str) -> Sequence[str]:
        """Take all texts for an agent, oldest first. They become part of its conversation."""
        ...


BudgetGate = Callable[["BudgetWarning"], str | Awaitable[str]]
"""Called once per crossing of the warning line; returns `continue` or `stop`."""


def _lacks(name: str) -> NoReturn:
    raise NotImplementedError(f"These controls have no `{name}`.")


class RunControls(Protocol):
    """How a person steers a running tree. Safe from any thread.

    Members with a body here were added later: other implementations need not have them.
    """

    def cancel(self, agent: str | None = None, reason: str | None = None) -> CancelReceipt: ...

    def set_budget(self, total: int) -> None: ...

    def answer_budget(self, answer: str) -> None: ...

    def pause(self, agent: str | None = None) -> None:
        """Start no new call or tool of an agent and all below it, or of the whole run."""
        _lacks("pause")

    def resume(self, agent: str | None = None) -> None:
        """Continue what was paused."""
        _lacks("resume")

    @property
    def questions(self) -> tuple[Question, ...]:
        """The open questions, in the order in which they were asked."""
        _lacks("questions")

    def answer(
        self, question_id: str, answer: str, *, value: Any = None, reason: str | None = None
    ) -> None:
        """Answer an open question."""
        _lacks("answer")

    def tell(self, agent: str, text: str) -> None:
        """Send a note to an agent, which reads it with its next call."""
        _lacks("tell")


# -- where an attempt runs ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AgentWork:
    """One attempt's input: turns until the agent asks for no more tools. Picklable."""

    agent_id: str
    model: str
    """`provider/model`."""
    request: CompletionRequest
    """The next call. Its `max_tokens` is the agent's own limit; the budget may lower it."""
    is_synthesis: bool = False
    is_root: bool = False
    turns_left: int = 50
    link: int = 0
    """Index of the agent's current model in a fallback chain."""
    announcement: Event | None = None
    """Published just before the first call of this work starts, and only then."""


@dataclass(frozen=True, slots=True)
class AgentOutcome:
    """One attempt's output. After a failure `messages` ends before the failed turn."""

    messages: tuple[Message, ...]
    """The whole conversation afterwards."""
    text: str = ""
    """The last turn's text so far."""
    stop_reason: str | None = None
    error: OrchestratorError | None = None
    """The failed turn's error. The orchestrator decides whether to try again."""
    may_retry: bool = False
    exhausted: str | None = None
    """Why the budget ended it, in words; `None` if it did not."""
    turns_used: int = 0
    link: int = 0
    """Index of the agent's current model in a fallback chain: it never goes back."""
    final_answer: ToolUseBlock | None = None
    """The call of `final_answer` in the last reply, if the request asked for a typed answer."""


class CallLease(Protocol):
    """The right to make one call, with its share of the budget reserved."""

    request: CompletionRequest
    """The request to send: the budget may have lowered its `max_tokens`."""
    limited_by: str | None
    """The name of the budget that lowered `request.max_tokens`; `None` if none did."""
    halted: str | None
    """Why the budget ended the call while it was open, in words; `None` if it did not."""
    took_ms: int | None
    """Recorded duration of the call in milliseconds; `None` for a call that is made now."""

    def answered_by(self, provider: Provider) -> Provider:
        """The provider that answers the call: `provider` itself, or the call's record."""
        ...

    def when_halted(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the run's loop as soon as the budget ends the call."""
        ...

    def reply_started(self) -> None:
        """The first event arrived: the input counts as spent."""
        ...

    def input_counted(self, usage: Usage) -> None:
        """The provider counted the input."""
        ...

    def output_grew(self, text: str) -> None:
        """Meter output that arrived."""
        ...

    def settle(self, usage: Usage | None, *, is_complete: bool) -> tuple[Usage, int]:
        """Settle the call with the provider's count.

        Args:
            usage: The provider's count; `None` for the estimate.
            is_complete: Whether the reply is whole. Otherwise output that the provider did not
                count is added by the estimate.

        Returns:
            The usage that counts, and the budget tokens by which it exceeds what was reserved and
            metered before; negative if it is less.
        """
        ...


class RunServices(Protocol):
    """What an attempt uses of its run: events, leases, time, waits.

    Budget, cancellation and the bus stay with the run. An engine on another machine has its own
    `RunServices`, which talks to the run's over the network.
    """

    clock: Clock
    call_timeout_s: float
    run_id: str
    path: str
    """The agent's path, as in `ToolContext`."""
    workspace: dict[str, Any]
    """As in `ToolContext`."""
    notes: dict[str, str]
    """As in `ToolContext`."""
    jobs: Jobs | None
    memory: Memory | None
    """As in `ToolContext`."""
    withheld: Mapping[str, Callable[[Mapping[str, Any]], str]]
    """By name: tools of the run that this agent does not have. Called with a call's input, each
    publishes the refusal and returns why, as an error for the model."""

    def publish(self, event: Event) -> float:
        """Publish an event. Returns its time, in seconds since the run began.

        A `ModelCallStarted` is also recorded as an intent: await `commit` before the call is sent.
        """
        ...

    def take_numbers(self, count: int) -> tuple[int, ...]:
        """Numbers for the next `count` tasks that the agent asks for, started or not."""
        ...

    async def take_news(self, work: AgentWork, request: CompletionRequest) -> Sequence[str]:
        """Take the messages for the agent: from the run's inbox, and notes from persons.

        The inbox is not read before the agent's first reply. Notes are published with the call.

        Args:
            work: The agent's work that the next call belongs to.
            request: The next call without the messages.

        Raises:
            InternalError: The inbox failed.
        """
        ...

    def reply_begins(self, pieces: list[TextRow]) -> None:
        """Take the list to which the caller adds the text of the newest reply, piece by piece."""
        ...

    def reply_started(self) -> None:
        """Note that the model has begun to answer."""
        ...

    def publish_text(self, agent_id: str, text: str) -> TextRow:
        """Publish an `AgentTextDelta` without creating the object. Returns its row."""
        ...

    def note_tool_call(self, order: ToolUse) -> None:
        """Note a tool call of the reply that streams. It may run once the reply has ended."""
        ...

    async def commit(self) -> None:
        """Return once the journal has stored everything so far."""
        ...

    async def call_ended(self, event: ModelCallFinished, error: ErrorRecord | None) -> None:
        """Record the open call with its result, commit, and publish its event.

        Args:
            event: The event of the call's end.
            error: The whole error, of which the event has only the message; `None` without one.
        """
        ...

    async def rule(self, call: ToolCallRecord, tool: Tool | None) -> Ruling:
        """Decide on a tool call by its record, or by the approval that it needs and waits for.

        Args:
            call: The call as the model asked for it, before it begins.
            tool: Its tool; `None` if there is none, or the arguments are malformed: then no
                approval is asked for.
        """
        ...

    def is_unknown(self, now: ToolCallRecord) -> bool:
        """Whether a tool call was open when the process died, and must not be repeated."""
        ...

    def mark_of(self, now: ToolCallRecord) -> str | None:
        """The mark of a call that was open when the process died: see `SupportsMarks`."""
        ...

    async def turn_to_end(self, number: int, recorded: ToolCallRecord) -> None:
        """Wait until a recorded tool call may end: calls end in their recorded order.

        Args:
            number: The call's number.
            recorded: Its record.
        """
        ...

    async def may_call(self, tool: ToolCallRecord, *, was: ToolCallRecord | None = None) -> None:
        """Wait until a tool call that no record answers may be made.

        Args:
            tool: The call.
            was: Its record, if the call was run again and returned something else.
        """
        ...

    @property
    def has_changed_below(self) -> bool:
        """Whether an agent below differs from its record."""
        ...

    @property
    def is_done_again(self) -> bool:
        """Whether a new run repeats a recorded one, so that its changes are made once more."""
        ...

    def next_tool_call(self) -> int:
        """The number of the agent's next tool call, from 1, in the order of its replies."""
        ...

    async def may_begin(self, tool_call: int, *, was_asked: bool) -> None:
        """Wait until the agent's tool call with this number may begin: until no pause holds it.

        The caller then begins it before it awaits anything else.

        Args:
            tool_call: The call's number.
            was_asked: See `Ruling`.
        """
        ...

    def next_tool_start(self) -> int:
        """The place of the tool call that starts now among the agent's started calls, from 1.

        A call that waits for approval starts later than its number says.
        """
        ...

    def next_tool_end(self) -> int:
        """The place of the tool call that ends now among the agent's ended calls, from 1."""
        ...

    def intend(self, record: ToolCallRecord) -> None:
        """Record the intent of a tool with effects: await `commit` before it runs."""
        ...

    def keep_whole(self, record: ToolCallRecord, place: int) -> None:
        """Keep a whole tool call, for readers of the record, if its events hold only a part.

        Args:
            record: The call.
            place: See `next_tool_start`.
        """
        ...

    def tool_is_recorded(self, place: int) -> None:
        """Note that a record answers a tool call, for readers of the events.

        Args:
            place: See `next_tool_start`.
        """
        ...

    async def tool_ended(self, record: ToolCallRecord, event: ToolCallFinished) -> None:
        """Record a tool call with its result, commit, and publish its event."""
        ...

    def ending_with_run(self, limit: TimeLimit) -> AbstractContextManager[None]:
        """Within the block, `limit` expires when a limit of the run stops all calls and tools."""
        ...

    def stopped_by(self) -> str | None:
        """Which limit of the run has stopped all calls and tools, in words; `None` if none has."""
        ...

    def abandon_tool(self) -> Callable[[], None]:
        """Note that a tool's thread keeps running after its call was cancelled.

        Returns:
            A function to call on the same loop when the thread has ended.
        """
        ...

    def lease(
        self, work: AgentWork, request: CompletionRequest
    ) -> AbstractAsyncContextManager[CallLease]:
        """An `async with` around one call: waits for the gate and for room in the budget.

        Raises:
            BudgetExceeded: The budget has no room for the call.
            WordsCame: A note for the agent arrived since `take_news`: call that again.
        """
        ...

    def throttle(self, model: str, seconds: float) -> None:
        """See `Gate.throttle`."""
        ...

    def retry_delay_s(self, attempt: int) -> float:
        """Seconds to wait after the failed attempt with this number, from 1."""
        ...

    async def wait_to_retry(self, work: AgentWork, seconds: float) -> None:
        """Wait before the next attempt; `BudgetExceeded` if the budget ends meanwhile."""
        ...


class Engine(Protocol):
    """Runs attempts: in this process, or on another machine."""

    async def run(
        self,
        work: AgentWork,
        *,
        provider: Provider,
        tools: Mapping[str, Tool],
        services: RunServices,
    ) -> AgentOutcome: ...


class SupportsOpen(Engine, Protocol):
    """An engine that checks its machines before a run's first call."""

    async def open(self, provider: Provider, tools: Sequence[Tool]) -> None:
        """Return once the run may begin.

        Args:
            provider: The root's provider.
            tools: The root's tools.

        Raises:
            OrchestratorError: The machines cannot be used. The run ends with this error.
        """
        ...


def supports_open(engine: object) -> TypeGuard[SupportsOpen]:
    return getattr(engine, "open", None) is not None


def is_engine(value: object) -> TypeGuard[Engine]:
    return not isinstance(value, type) and callable(getattr(value, "run", None))
