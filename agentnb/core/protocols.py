"""The seams: what the core asks of the parts that it does not know.

Each is small, and says what types cannot: who may call it, from where, and what it may raise.
What a part may leave out is a `Supports...` protocol of its own, with the function that asks for
it: `isinstance` would take microseconds for each call, and miss what a wrapper hands on by
`__getattr__`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, TypeVar

if TYPE_CHECKING:
    from agentnb.core.clock import Clock, TimeLimit
    from agentnb.core.errors import OrchestratorError
    from agentnb.core.events import BudgetWarning, Entry, Event
    from agentnb.core.types import (
        AgentStatus,
        Briefing,
        CancelReceipt,
        CompletionRequest,
        Message,
        StreamEvent,
        SubAgentResult,
        ToolSpec,
        ToolUse,
        Usage,
    )

T = TypeVar("T")


class Provider(Protocol):
    """Something that can answer a conversation: an API, or a script in a test.

    Implementations are safe to call from many tasks at once, raise only `LlmError` (never
    their SDK's own exceptions), let `asyncio.CancelledError` pass, and end every complete
    turn with one `Stopped`. A stream that ends without it counts as cut. What it may have
    besides: `SupportsReady`, `SupportsTokenCount`, `SupportsLinks`, `SupportsClose`.
    """

    name: str

    def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]: ...


def is_provider(value: object) -> TypeGuard[Provider]:
    if isinstance(value, type) or not isinstance(getattr(value, "name", None), str):
        return False
    return callable(getattr(value, "stream", None))


class SupportsReady(Provider, Protocol):
    """A provider that loads something first."""

    async def ready(self) -> None:
        """Load it. Awaited before each call, and before the time of its turn begins to count."""
        ...


def supports_ready(provider: object) -> TypeGuard[SupportsReady]:
    return getattr(provider, "ready", None) is not None


class SupportsTokenCount(Provider, Protocol):
    """A provider that knows the size of a request; for others four bytes count as a token."""

    def count_tokens(self, request: CompletionRequest) -> int:
        """Tokens of the whole input. Called before each call, on the run's loop: it is quick."""
        ...


def supports_token_count(provider: object) -> TypeGuard[SupportsTokenCount]:
    return getattr(provider, "count_tokens", None) is not None


class SupportsClose(Protocol):
    """A stream that was left early, or a provider that holds connections."""

    async def aclose(self) -> None:
        """Hang up. A provider opens its connections anew when it is called again."""
        ...


def supports_close(value: object) -> TypeGuard[SupportsClose]:
    return getattr(value, "aclose", None) is not None


class closing:
    """Closes a provider's stream that was left early, where it can be closed."""

    def __init__(self, stream: AsyncIterator[StreamEvent]) -> None:
        self._stream = stream

    async def __aenter__(self) -> AsyncIterator[StreamEvent]:
        return self._stream

    async def __aexit__(self, *_: object) -> None:
        if supports_close(self._stream):
            await self._stream.aclose()


@dataclass(frozen=True, slots=True)
class Link:
    """One model of a fallback chain, and who answers for it."""

    provider: Provider
    model: str
    """`provider/model`."""


class SupportsLinks(Provider, Protocol):
    """A provider that stands for several models: a chain.

    An engine that looks at `links` makes each call under its own model's gate and tells of every
    move; to any other a chain is just a provider.
    """

    @property
    def links(self) -> Sequence[Link]:
        """In the order in which they are asked."""
        ...


def is_chain(provider: object) -> TypeGuard[SupportsLinks]:
    return bool(getattr(provider, "links", None))


def links_of(provider: Provider, model: str) -> Sequence[Link]:
    """The models to ask, one after the other: those of a chain, else the one that is named."""
    return provider.links if is_chain(provider) else (Link(provider, model),)


class ToolContext(Protocol):
    """The call that a tool runs in: who called, what may be shared, whether it still matters.

    All of it may be used from any thread, but for `jobs`, which belongs to the run's loop, and for
    `on_thread`, which is awaited where the tool itself is. Once the call has ended, a report is
    passed over.
    """

    @property
    def agent_id(self) -> str: ...

    @property
    def path(self) -> str:
        """What a person reads for the agent: `root`, `1`, `1.2`."""
        ...

    @property
    def workspace(self) -> dict[str, Any]:
        """Shared by a person's tools in one run. No model reads or writes it."""
        ...

    @property
    def notes(self) -> dict[str, str]:
        """What the agents of the run wrote for each other with `workspace_write`, by key."""
        ...

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more. A tool on a thread has to ask."""
        ...

    @property
    def jobs(self) -> Jobs | None:
        """The sub-agents that the agent started by tools; `None` where it may start none."""
        ...

    def report(self, text: str) -> None:
        """Have the tree show how far the tool is.

        On one line, cut to 200 characters, at most ten times a second: of those between, the
        newest is shown.
        """
        ...

    async def on_thread(self, function: Callable[[], T]) -> T:
        """Await a function that blocks, on a daemon thread.

        When the call is stopped, the thread has two seconds to see it (`cancelled`); then it is
        left behind, and what it returns is dropped.
        """
        ...


MOST_FOR_MODEL = 100_000
"""Characters of a tool's result that a model is told: some 25,000 tokens."""


class Tool(Protocol):
    """Something that a model can order to be run.

    `call` may raise anything: what it raises becomes an error result for the model, never a
    failure of the agent. The text of a `ToolError` is told as it is. It may have a time limit:
    `SupportsTimeout`.
    """

    spec: ToolSpec

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str: ...


class SupportsTimeout(Tool, Protocol):
    """A tool with a time limit."""

    @property
    def timeout_s(self) -> float:
        """After so many seconds a call is stopped, with an error result that says so."""
        ...


def supports_timeout(tool: object) -> TypeGuard[SupportsTimeout]:
    return getattr(tool, "timeout_s", None) is not None


# -- sub-agents that are started by tools -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Delegation:
    """How the agents of a run may start sub-agents.

    Args:
        by_block: By a spawn block in a reply.
        spawn_tools: The tools that start sub-agents, and look after them; none for not by tools.
        nested: Whether sub-agents get these tools, too, as far as the depth allows.
        profiles: What an agent that has them is told of the profiles that there are.
    """

    by_block: bool = True
    spawn_tools: Sequence[Tool] = ()
    nested: bool = False
    profiles: str = ""

    @property
    def by_tools(self) -> bool:
        return bool(self.spawn_tools)

    def tools_at(self, depth: int, max_depth: int) -> Sequence[Tool]:
        """The spawn tools of an agent."""
        may_spawn = depth < max_depth and (self.nested or depth == 0)
        return self.spawn_tools if may_spawn else ()


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Who answers a sub-agent, in place of whoever answers its parent."""

    provider: Provider
    name: str
    """`provider/model`."""
    gate: Gate


@dataclass(frozen=True, slots=True)
class JobOrder:
    """What an agent hands to a sub-agent that it starts: all that this one will ever know."""

    task: str
    context: str = ""
    """Stands before the task in its first message."""
    briefings: tuple[Briefing, ...] = ()
    tools: tuple[Tool, ...] = ()
    """What it may call, but for the tools that start sub-agents."""
    model: ModelChoice | None = None
    """`None` for its parent's."""
    profile: str = ""
    """The name of the profile that it was made by."""


class NotStarted(Exception):
    """A job was refused; the message says why, as part of a sentence."""

    @property
    def for_model(self) -> str:
        """What the model that ordered the job reads."""
        return f"The sub-agent was not started: {self}."


@dataclass(frozen=True, slots=True)
class JobState:
    """How a job stands."""

    job_id: str
    path: str
    """Of its agent."""
    task: str
    status: AgentStatus
    doing: str = ""
    """What its agent waits for or is at, in words; empty when its text says it."""
    said: str = ""
    """What its agent has said so far."""
    result: SubAgentResult | None = None
    """What came of it; `None` while it goes on."""


class Jobs(Protocol):
    """One agent's own jobs. For the run's loop only; no agent can see another's."""

    @property
    def tools(self) -> Sequence[Tool]:
        """What the agent itself may call, but for the tools that start sub-agents."""
        ...

    def start(self, order: JobOrder) -> str:
        """Start a sub-agent, and return the id of its job at once.

        Raises:
            NotStarted: A limit of the run forbids it, or the agent is about to end.
        """
        ...

    def ids(self) -> list[str]:
        """All of them, in the order in which they were started."""
        ...

    def state(self, job_id: str) -> JobState | None:
        """How one stands; `None` when there is none of that id."""
        ...

    async def wait(self, job_ids: Sequence[str]) -> None:
        """Return when these have ended. Ids that do not exist are passed over."""
        ...

    def mark_reported(self, job_ids: Sequence[str]) -> None:
        """Note that the agent is told what came of these."""
        ...

    async def cancel(self, job_ids: Sequence[str]) -> list[str]:
        """Stop those of these that go on, wait until they have stopped, and say which."""
        ...


# -- what is kept, let through and asked ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolCallRecord:
    """A tool call that has ended, with all of its input and result: plain values, picklable."""

    agent_id: str
    tool_use_id: str
    name: str
    input: Mapping[str, Any]
    result: str
    """What the tool came to, also where the model is told less of it."""
    is_error: bool


class Journal(Protocol):
    """Keeps what happened. `commit` returns once everything published so far is kept.

    It is awaited before a finished or terminal event is published, so that what anyone is
    told has been kept. It may keep tool calls whole: `SupportsToolCalls`. It may be handed what it
    is to keep: `SupportsEntries`.
    """

    async def commit(self) -> None: ...


class SupportsEntries(Journal, Protocol):
    """A journal that is handed the record, and needs no bus to read it from."""

    def published(self, entries: Sequence[Entry]) -> None:
        """Take the entries published since the last time, in order: each one once.

        Called before each commit, and a last time after `RunFinished`. What came before a commit
        is kept when it returns.
        """
        ...


def supports_entries(journal: object) -> TypeGuard[SupportsEntries]:
    return getattr(journal, "published", None) is not None


class SupportsToolCalls(Journal, Protocol):
    """A journal that keeps every tool call whole: events hold the beginning of what is long."""

    def keep_tool_call(self, record: ToolCallRecord) -> None:
        """Keep it. Called before the commit that its `ToolCallFinished` waits for."""
        ...


def supports_tool_calls(journal: object) -> TypeGuard[SupportsToolCalls]:
    return getattr(journal, "keep_tool_call", None) is not None


class Gate(Protocol):
    """Lets calls to one model through, so many at a time.

    A call holds what `acquire` returns while it is open. `throttle` keeps new calls waiting for
    `seconds`, after the provider asked one of them to slow down. `on_wait` is called once per
    wait: why a call cannot go yet, and for how long where that is known. What `acquire` returns
    may be entered without waiting: `SupportsEnterNow`.
    """

    def acquire(
        self, model: str, *, on_wait: Callable[[str, float | None], None]
    ) -> AbstractAsyncContextManager[None]: ...

    def throttle(self, model: str, seconds: float) -> None: ...


class SupportsEnterNow(Protocol):
    """What a gate's `acquire` returns, where it can be entered without a task switch."""

    def enter_now(self) -> bool:
        """Enter if there is nothing to wait for; else return false, and have changed nothing."""
        ...


def supports_enter_now(slot: object) -> TypeGuard[SupportsEnterNow]:
    return getattr(slot, "enter_now", None) is not None


BudgetGate = Callable[["BudgetWarning"], str | Awaitable[str]]
"""Asked once per crossing of the warning line; answers `continue` or `stop`."""


class RunControls(Protocol):
    """The orders that a person can give to a running tree. Safe from any thread."""

    def cancel(self, agent: str | None = None, reason: str | None = None) -> CancelReceipt: ...

    def set_budget(self, total: int) -> None: ...

    def answer_budget(self, answer: str) -> None: ...


# -- where an attempt runs ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AgentWork:
    """What an agent has to do until it stops asking for tools: plain values, picklable."""

    agent_id: str
    model: str
    """`provider/model`."""
    request: CompletionRequest
    """The next call. Its `max_tokens` is the agent's own limit; the budget may lower it."""
    is_synthesis: bool = False
    is_root: bool = False
    turns_left: int = 50
    link: int = 0
    """Which model of a fallback chain the agent has come to."""
    announcement: Event | None = None
    """Published just before the first call of this work starts, if one does."""


@dataclass(frozen=True, slots=True)
class AgentOutcome:
    """What came of it. On a failure `messages` holds what was finished before the failed turn."""

    messages: tuple[Message, ...]
    """The conversation afterwards: as it was, and what was added."""
    text: str = ""
    """The last turn's text, as far as it came."""
    stop_reason: str | None = None
    error: OrchestratorError | None = None
    """The failed turn's error; whether to try again is the orchestrator's decision."""
    may_retry: bool = False
    exhausted: str | None = None
    """Why the budget ended it, in words; `None` when it did not."""
    turns_used: int = 0
    link: int = 0
    """Which model of a fallback chain the agent has come to: it does not go back."""


class CallLease(Protocol):
    """The right to make one call, with its share of the budget held.

    Output is metered by `output_grew` as it streams. When the budget ends in mid-call,
    `halted` says why in words.
    """

    request: CompletionRequest
    """The request as it may go out."""
    max_tokens_from_budget: bool
    """Whether the pot, and not the agent's own limit, made `request.max_tokens`."""
    halted: str | None

    def when_halted(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when the budget ends the call, at once and on the run's loop."""
        ...

    def reply_started(self) -> None: ...

    def input_counted(self, usage: Usage) -> None:
        """The provider said how large the input was."""
        ...

    def output_grew(self, text: str) -> None: ...

    def settle(self, usage: Usage | None, *, is_complete: bool) -> tuple[Usage, int]:
        """Close the books on this call, on the provider's own count as far as there is one.

        Returns the usage that counted, and by how many pot tokens it differs from what was
        held and metered meanwhile. The count of a reply that was left early is mended by the
        estimate.
        """
        ...


class RunServices(Protocol):
    """What an attempt needs of the run it belongs to: a sink for its facts, and leases.

    Budget, cancellation and the bus stay with the run; an engine elsewhere brings its own
    `RunServices` that speaks to the run's over a wire.
    """

    clock: Clock
    call_timeout_s: float
    path: str
    """What a person reads for the agent."""
    workspace: dict[str, Any]
    notes: dict[str, str]
    """Both are what a `ToolContext` offers under these names."""
    jobs: Jobs | None
    withheld: Mapping[str, Callable[[Mapping[str, Any]], str]]
    """By name: tools of the run that this agent has not. Given its input, each says why, as an
    error for the model, and has it recorded."""

    def publish(self, event: Event) -> None: ...

    def take_numbers(self, count: int) -> tuple[int, ...]:
        """The numbers of the next tasks that the agent asks for, whatever becomes of them."""
        ...

    def publish_text(self, agent_id: str, text: str) -> None:
        """Publish an `AgentTextDelta`, without making one."""
        ...

    def note_tool_call(self, order: ToolUse) -> None:
        """Note a tool call of the reply that is coming in. It may run when the reply has ended."""
        ...

    async def commit_and_publish(self, event: Event) -> None:
        """Publish once the journal has kept what came before."""
        ...

    def keep_tool_call(self, record: ToolCallRecord) -> None:
        """Hand the journal what an event is too short for."""
        ...

    def ending_with_run(self, limit: TimeLimit) -> AbstractContextManager[None]:
        """While in this block, `limit` expires when a limit of the run stops all calls."""
        ...

    def stopped_by(self) -> str | None:
        """Which limit of the run has stopped all calls, in words; `None` when none has."""
        ...

    def abandon_tool(self) -> Callable[[], None]:
        """A tool's thread did not stop when it was told to: it goes on, and is left behind.

        What this returns is called, on the same loop, when it has ended after all.
        """
        ...

    def lease(
        self, work: AgentWork, request: CompletionRequest
    ) -> AbstractAsyncContextManager[CallLease]: ...

    def throttle(self, model: str, seconds: float) -> None: ...

    def retry_delay_s(self, attempt: int) -> float: ...

    async def wait_to_retry(self, work: AgentWork, seconds: float) -> None:
        """Let time pass before another call; `BudgetExceeded` when the budget ends meanwhile."""
        ...


class Engine(Protocol):
    """Runs attempts: in this process, or elsewhere."""

    async def run(
        self,
        work: AgentWork,
        *,
        provider: Provider,
        tools: Mapping[str, Tool],
        services: RunServices,
    ) -> AgentOutcome: ...
