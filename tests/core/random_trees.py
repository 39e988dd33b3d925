"""Trees at random: what may happen, a provider that does as it is told, and parts that are watched.

Every open call of `Stage` waits for orders, so whoever gives them decides in which order things
happen in a tree, and what goes wrong in it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from agentnb.core.budget import RequestBudget, Reservation
from agentnb.core.clock import Clock
from agentnb.core.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    InvalidRequest,
    LlmError,
    ModelNotFound,
    Overloaded,
    RateLimited,
    ServerFailed,
    StreamBroken,
)
from agentnb.core.events import (
    AgentSpawned,
    Entry,
    ModelCallFinished,
    ModelCallStarted,
    is_terminal,
)
from agentnb.core.money import Amount, Rate
from agentnb.core.protocols import Delegation, ToolContext
from agentnb.core.tree import TreeFold
from agentnb.core.types import (
    BudgetStatus,
    CompletionRequest,
    SpawnInstruction,
    SpawnMode,
    Stopped,
    StreamEvent,
    TextDelta,
    ToolSpec,
    ToolUse,
    Usage,
    assistant_message,
)
from agentnb.providers.gate import ConcurrencyGate
from tests.support import spawn

FAULTS: Mapping[str, Callable[[], BaseException]] = {
    "overloaded": lambda: Overloaded("too much to do", status_code=529),
    "server": lambda: ServerFailed("it broke", status_code=500),
    "connection": lambda: ConnectionFailed("hung up"),
    "rate limit": lambda: RateLimited("too many", retry_after_s=7.0, status_code=429),
    "rate limit without a time": lambda: RateLimited("too many", status_code=429),
    "rate limit for an hour": lambda: RateLimited("too many", retry_after_s=3600.0),
    "broken": lambda: StreamBroken("garbled"),
    "not retryable": lambda: LlmError("no"),
    "key": lambda: AuthenticationFailed("no such key", status_code=401),
    "request": lambda: InvalidRequest("not understood", status_code=400),
    "model": lambda: ModelNotFound("no such model", status_code=404),
    "bug": lambda: ValueError("a bug"),
    "own cancellation": lambda: asyncio.CancelledError("of the provider's own making"),
    "stop iteration": lambda: StopAsyncIteration(),
    "exit": lambda: SystemExit(1),
    "interrupt": lambda: KeyboardInterrupt(),
    "timeout": lambda: TimeoutError("its own"),
}
"""By name, so that a failing example reads well. Each call makes a fresh error."""


# -- what a model may do ------------------------------------------------------------------------

WHICH = st.integers(0, 5)
TASKS = st.lists(
    st.sampled_from(["a", "b", "c", "d", "the task", "two\nlines & <more>", spawn("e")]),
    min_size=1,
    max_size=5,
)
PLANS = st.builds(SpawnInstruction, st.sampled_from(SpawnMode), TASKS.map(tuple))
MODES = st.sampled_from(["parallel", "sequential"])
PIECES = st.sampled_from(["", "word ", "\N{SNOWMAN}", "long " * 250, "<spawn_agents mode=", "\n"])
ODD_ENDS = st.sampled_from(
    [
        "",
        "  \n",
        "```\n" + spawn("an example") + "\n```",
        "before <spawn_agents mode='parallel'><agent task='cut",
        "<spawn_agents></spawn_agents>",
        '<spawn_agents mode="parallel"><agent task="a" />',
        spawn("a", "b") + spawn("c"),
    ]
)
COUNTS = st.builds(Usage, *[st.sampled_from([0, 1, 40, 700, 20_000])] * 4) | st.just(Usage(-1, 5))
ORDERS = st.lists(
    st.sampled_from(["look", "wait", "thread", "report", *FAULTS]), min_size=1, max_size=3
)
"""What a turn's tools do."""
TOTALS = st.sampled_from([0, 900, 1500, 3000, 6000, 20_000, 1_000_000])


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How a run begins."""

    total: int
    upper: int | None
    """Total of a budget above, which others draw on, too; `None` for none."""
    max_concurrency: int
    max_depth: int
    max_agents: int
    max_time_s: float | None
    stop_after_failures: int | None
    max_output: int
    policy: str
    is_attended: bool
    keeps_slowly: bool
    has_tools: bool
    timeout_s: float | None
    """Of its tools."""
    thinks: bool
    is_chain: bool
    closing_rounds: int
    plan: SpawnInstruction | None
    synthesis: bool
    limit: int
    shape: list[tuple[int, str]]
    """What the first agents delegate, level by level: how many tasks each, and in which mode."""
    delegation: Delegation


_STARTS: Mapping[str, st.SearchStrategy[Any]] = {
    "total": st.sampled_from([20_000, 1_000_000, 6000, 60_000, 3000, 900, 0]),
    "upper": st.sampled_from([None, None, 20_000, 1_000_000, 3000]),
    "max_concurrency": st.integers(1, 4),
    "max_depth": st.sampled_from([3, 2, 3, 1, 0]),
    "max_agents": st.sampled_from([30, 30, 3, 0]),
    "max_time_s": st.sampled_from([None, None, None, 0.05, 5.0, 700.0]),
    "stop_after_failures": st.sampled_from([None, None, None, 1, 3]),
    "max_output": st.sampled_from([30, 500, 4000]),
    "policy": st.sampled_from(["ask", "ask", "continue", "stop", "gate"]),
    "is_attended": st.booleans(),
    "keeps_slowly": st.booleans(),
    "has_tools": st.booleans(),
    "timeout_s": st.sampled_from([None, 20.0]),
    "thinks": st.booleans(),
    "is_chain": st.booleans(),
    "closing_rounds": st.sampled_from([0, 3]),
    "plan": st.none() | st.none() | PLANS,
    "synthesis": st.booleans(),
    "limit": st.integers(1, 6),
    "shape": st.lists(st.tuples(st.integers(1, 3), MODES), max_size=3),
    "delegation": st.just(Delegation()),
}


def starts(**others: st.SearchStrategy[Any]) -> st.SearchStrategy[Start]:
    """Beginnings at random, `others` in place of what is drawn for every run."""
    return st.builds(Start, **{**_STARTS, **others})


# -- a provider under orders --------------------------------------------------------------------


class Call:
    """One open call, waiting for orders: a piece of the reply, an error, or `None` for its end."""

    def __init__(self, request: CompletionRequest) -> None:
        self.request = request
        self.text = ""
        self._orders: deque[StreamEvent | BaseException | None] = deque()
        self._news = asyncio.Event()

    def order(self, *orders: StreamEvent | BaseException | None) -> None:
        for order in orders:
            if isinstance(order, TextDelta):
                self.text += order.text
        self._orders.extend(orders)
        self._news.set()

    def finish(self, text: str, reason: str = "end_turn") -> None:
        """Say `text` and come to a good end."""
        self.order(TextDelta(text))
        self.order(Stopped(reason, assistant_message(self.text)))

    async def next(self) -> StreamEvent | BaseException | None:
        while not self._orders:
            self._news.clear()
            await self._news.wait()
        return self._orders.popleft()


class Stage:
    """A provider whose calls do nothing but by order.

    Args:
        closing_rounds: Rounds of the loop that a call takes to be closed.
    """

    name = "stage"

    def __init__(self, closing_rounds: int = 0) -> None:
        self.open: list[Call] = []
        self.heard: list[tuple[CompletionRequest, ToolUse]] = []
        """The tool calls that were streamed, and for which request."""
        self._closing_rounds = closing_rounds

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        call = Call(request)
        self.open.append(call)
        try:
            while (order := await call.next()) is not None:
                if isinstance(order, BaseException):
                    raise order
                if isinstance(order, ToolUse):
                    self.heard.append((request, order))
                yield order
        finally:
            try:
                for _ in range(self._closing_rounds):
                    await asyncio.sleep(0)
            finally:
                self.open.remove(call)


class SlowJournal:
    """Keeps what happened only when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[None]] = []

    async def commit(self) -> None:
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(kept)
        await kept

    def let_commits_end(self) -> None:
        waiting, self.waiting = self.waiting, []
        for kept in waiting:
            if not kept.done():
                kept.set_result(None)


class AnyTool:
    """Does what its input says."""

    def __init__(self, clock: Clock, timeout_s: float | None) -> None:
        self.spec = ToolSpec("any", "Does anything.", {"type": "object"})
        self.timeout_s = timeout_s
        self._clock = clock

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str:
        match input.get("do"):
            case "wait":
                await self._clock.sleep(30.0)
            case "thread":
                return await context.on_thread(lambda: self._on_thread(context))
            case "report":
                for part in range(3):
                    context.report(f"part {part}")
                    await asyncio.sleep(0)
                await self._clock.sleep(0.05)
                context.report("all of it")
            case str(fault):
                raise FAULTS[fault]()
        return "looked"

    @staticmethod
    def _on_thread(context: ToolContext) -> str:
        context.report("from a thread")
        return "too late" if context.cancelled else "looked"


# -- parts that are watched -----------------------------------------------------------------------


class WatchedBudget(RequestBudget):
    """A pot that looks at each promise that it makes."""

    def __init__(self, total: int, *, below: RequestBudget | None = None) -> None:
        super().__init__(total, below=below)
        self.highest_total = total
        self.overdrawn = 0
        """The most by which used and reserved together ever passed the total."""
        self.too_low = 0
        """Tokens by which closed calls took more than had been metered for them."""
        self.beyond_held = 0
        """Tokens that calls metered beyond what they held, before they were stopped for it."""
        self.held_for_input = 0
        """Tokens that were held since an input was larger than its estimate."""
        self.broken: list[str] = []
        """Promises of more than there was: a run would take what is raised here for a bug."""

    def set_total(self, n: int, *, by: str = "code") -> None:
        self.highest_total = max(self.highest_total, n)
        super().set_total(n, by=by)

    def reserve(
        self, n: int | Amount, *, leave: int = 0, rate: Rate | None = None
    ) -> Reservation | None:
        held = super().reserve(n, leave=leave, rate=rate)
        if held is None:
            return None
        self.look_at_promise(leave)
        return _WatchedReservation(self, n, rate)

    def _spend(self, n: int) -> BudgetStatus:
        status = super()._spend(n)
        self.overdrawn = max(self.overdrawn, self._used + self._reserved - self.total)
        return status

    def look_at_promise(self, leave: int = 0) -> None:
        promised = self.tokens_used + self.reserved + leave
        if promised > self.total:
            self.broken.append(f"{promised} promised of {self.total}")


class _WatchedReservation(Reservation):
    def extend(self, n: int | Amount, *, leave: int = 0) -> bool:
        fits = super().extend(n, leave=leave)
        if fits and isinstance(self._budget, WatchedBudget):
            self._budget.look_at_promise(leave)
        return fits

    def extend_by_what_fits(self, n: int | Amount) -> None:
        before = self.held
        super().extend_by_what_fits(n)
        if isinstance(self._budget, WatchedBudget):
            self._budget.held_for_input += self.held - before
            if self.held > before:
                self._budget.look_at_promise()

    def _take_from_held(self, *amounts: int) -> None:
        if isinstance(self._budget, WatchedBudget):
            self._budget.beyond_held += max(0, amounts[0] - self._held)
        super()._take_from_held(*amounts)

    def settle(self, actual: int | Amount) -> BudgetStatus:
        if isinstance(self._budget, WatchedBudget) and isinstance(actual, int):
            self._budget.too_low += max(0, actual - self.metered)
        return super().settle(actual)


class WatchedGate(ConcurrencyGate):
    """A gate that counts who is inside."""

    def __init__(self, max_concurrency: int, clock: Clock) -> None:
        super().__init__(max_concurrency, clock=clock)
        self.inside: Counter[str] = Counter()
        self.most_inside = 0
        """Calls to one model that were open at once, at most."""

    @asynccontextmanager
    async def acquire(
        self, model: str, *, on_wait: Callable[[str, float | None], None]
    ) -> AsyncIterator[None]:
        async with super().acquire(model, on_wait=on_wait):
            self.inside[model] += 1
            self.most_inside = max(self.inside[model], self.most_inside)
            try:
                yield
            finally:
                self.inside[model] -= 1


@dataclass
class Watch:
    """What must hold at any moment of a run, looked at as its record grows."""

    budget: WatchedBudget
    upper: WatchedBudget | None = None
    fold: TreeFold = field(default_factory=TreeFold)
    seen: int = 0
    open_calls: Counter[str] = field(default_factory=Counter)
    children: Counter[str] = field(default_factory=Counter)
    """Per agent, how many of its sub-agents have not ended."""
    spawned: dict[str, AgentSpawned] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)

    def look(self, news: Sequence[Entry]) -> None:
        for entry in news:
            assert entry.seq == self.seen
            self.seen += 1
            self.fold.apply(entry)
            self._take(entry.event)
        root = self.fold.root()
        assert (root is None) == (not self.spawned)
        if root is not None:
            assert {node.agent_id for node in root.walk()} == set(self.spawned)

    def _take(self, event: Any) -> None:
        agent_id = getattr(event, "agent_id", None)
        if agent_id is None:
            return
        assert agent_id not in self.ended, f"{event} after the agent's end"
        match event:
            case AgentSpawned():
                assert agent_id not in self.spawned
                self.spawned[agent_id] = event
                if event.parent_id is not None:
                    assert event.parent_id not in self.ended
                    self.children[event.parent_id] += 1
            case ModelCallStarted():
                assert self.open_calls[agent_id] == 0, "two calls of one agent at once"
                assert 1 <= event.attempt <= 4
                assert event.request.max_tokens >= 1
                self.open_calls[agent_id] += 1
            case ModelCallFinished():
                self.open_calls[agent_id] -= 1
                assert self.open_calls[agent_id] == 0, "an end of a call that had not begun"
        if is_terminal(event):
            assert self.open_calls[agent_id] == 0, "an agent ended while its call was open"
            assert self.children[agent_id] == 0, "a parent ended before a child"
            self.ended.add(agent_id)
            parent = self.spawned[agent_id].parent_id
            if parent is not None:
                self.children[parent] -= 1

    def check_books(self) -> None:
        """Check the pot between two steps."""
        budget = self.budget
        assert budget.broken == []
        assert budget.tokens_used >= 0
        assert budget.reserved >= 0
        wrong = budget.too_low + budget.beyond_held
        assert budget.tokens_used + budget.reserved <= budget.highest_total + wrong
        if (upper := self.upper) is not None:
            assert upper.broken == []
            assert upper.tokens_used_below == budget.tokens_used
            wrong += upper.too_low + upper.beyond_held
            assert upper.tokens_committed <= upper.highest_total + wrong
