"""The state that all agents of one run share, and the ids of runs and threads."""

from __future__ import annotations

import secrets
import string
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from agentnb.core.budget import RequestBudget
from agentnb.core.cancel import Cancellation
from agentnb.core.clock import Clock, MonotonicClock
from agentnb.core.cycles import CycleDetector, mark
from agentnb.core.errors import NoOpenQuestion, NoPrice
from agentnb.core.handles import Handles
from agentnb.core.limits import Refusal, RunLimits
from agentnb.core.money import TOKENS, USD, Amount, Rate
from agentnb.core.numbers import ChildNumbers
from agentnb.core.pauses import Pauses
from agentnb.core.protocols import Delegation, Engine, Gate, Inbox, MemoryKeeper, Provider, Tool
from agentnb.core.text import literal
from agentnb.core.types import Usage
from agentnb.core.words import Words

if TYPE_CHECKING:
    from agentnb.core._budget.meter import Meter
    from agentnb.core.bus import EventBus
    from agentnb.core.events import SpawnPlanned
    from agentnb.core.journal import Recorder
    from agentnb.core.past import Past
    from agentnb.core.questions import Question, Questions

_ID_ALPHABET = string.ascii_lowercase + string.digits


def new_thread_id() -> str:
    """A fresh `nb_YYYYMMDD_xxxxxx`."""
    tail = "".join(secrets.choice(_ID_ALPHABET) for _ in range(6))
    return f"nb_{date.today():%Y%m%d}_{tail}"


def new_run_id(at_s: float | None = None) -> str:
    """A fresh UUIDv7 as 32 hexadecimal characters, so that runs sort by time.

    Args:
        at_s: The time in the id, in seconds since 1970; by default now.

    Source: RFC 9562, section 5.7.
    """
    milliseconds = time.time_ns() // 1_000_000 if at_s is None else int(at_s * 1000)
    value = (milliseconds & (1 << 48) - 1) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return f"{value:032x}"


class OpenGate:
    """A gate that limits nothing."""

    @asynccontextmanager
    async def acquire(
        self, model: str, *, on_wait: Callable[[str, float | None], None]
    ) -> AsyncIterator[None]:
        yield

    def throttle(self, model: str, seconds: float) -> None:
        return


def _by_price(
    price: Callable[[str, int, int], Decimal | None], model: str, usage: Usage
) -> Decimal | None:
    return price(model, usage.total_tokens - usage.output_tokens, usage.output_tokens)


def _no_price(model: str, input_tokens: int, output_tokens: int) -> Decimal | None:
    return None


class RequestContext:
    """One run's shared state: its budget, cancel tree and limits.

    Args:
        budget: The budget that all agents use.
        max_depth: Depth of the deepest sub-agent; the root has 0.
        max_agents: Most sub-agents that agents may start in the whole run. Neither the root nor
            the tasks of a person's own list count.
        run_id: The run's id; by default a new one.
        thread_id: The root agent's id; by default a new one.
        clock: The run's clock; by default the real time.
        gate: Limits how many calls are open at a time; by default unlimited.
        call_timeout_s: Seconds that one call to a model may take.
        on_budget_warning: `ask`, `continue` or `stop`.
        pause_timeout_s: Seconds without an answer after which a question is denied.
        is_attended: Returns whether a person watches the run; if not, the budget asks nothing.
        patience: For the run's questions: see `agentnb.core.questions.Questions`.
        approve: A person's own function that approves tool calls; `None` for none.
        gated: Names of tools that need approval, whatever the tools themselves say.
        on_plan: What happens before an agent delegates: `go`, `ask`, or a person's own function.
        ask_above: Numbers of agents and of dollars above which a person is asked before an agent
            delegates; `None` for no such limit.
        price: Returns the list price in US dollars of a call to a model (`provider/model`), from
            its input and output tokens; `None` for a model without a price. Must not raise.
        price_usage: The same for a usage; by default `price` without regard to the cache.
        rates: Prices of tokens during the whole run, by `provider/model`. Required if the budget,
            or one above it, counts money: calls to other models then fail.
        workspace: Shared by a person's tools in the run. It does not hold the agents' notes.
        cycle_threshold: How many times a task may come up.
        max_time_s, stop_after_failures: See `agentnb.core.limits.RunLimits`.
        numbers: Numbers of the agents' children; by default they begin at 1.
        above: Marks (`agentnb.core.cycles.mark`) of the tasks of other runs that led to this one: a
            task that comes up again is a cycle.
        inbox: Texts for the run's agents while they run; `None` for none.
        memory: Stores memories; `None` for no memory.
        recall: Most memories that the root's prompt recalls by the words of its task.
        handles: Objects that agents refer to by name; `None` for none.

    Raises:
        ValueError: A limit is out of its range, or the warning policy is unknown.
    """

    def __init__(
        self,
        budget: RequestBudget,
        *,
        max_depth: int = 3,
        max_agents: int = 1000,
        run_id: str = "",
        thread_id: str = "",
        clock: Clock | None = None,
        gate: Gate | None = None,
        call_timeout_s: float = 600.0,
        on_budget_warning: str = "ask",
        pause_timeout_s: float = 600.0,
        is_attended: Callable[[], bool] = lambda: False,
        patience: Callable[[], float | None] = lambda: None,
        approve: Callable[[Question], object] | None = None,
        gated: Collection[str] = (),
        on_plan: str | Callable[[SpawnPlanned], object] = "go",
        ask_above: tuple[float, float] | None = None,
        price: Callable[[str, int, int], Decimal | None] = _no_price,
        price_usage: Callable[[str, Usage], Decimal | None] | None = None,
        rates: Mapping[str, Rate] = MappingProxyType({}),
        workspace: dict[str, Any] | None = None,
        cycle_threshold: int = 3,
        max_time_s: float | None = None,
        stop_after_failures: int | None = None,
        numbers: ChildNumbers | None = None,
        above: Collection[str] = (),
        inbox: Inbox | None = None,
        memory: MemoryKeeper | None = None,
        recall: int = 0,
        handles: Handles | None = None,
    ) -> None:
        self.limits = RunLimits(
            max_depth=max_depth,
            max_agents=max_agents,
            cycle_threshold=cycle_threshold,
            max_time_s=max_time_s,
            stop_after_failures=stop_after_failures,
        )
        if on_budget_warning not in ("ask", "continue", "stop"):
            raise ValueError(
                "`on_budget_warning` must be 'ask', 'continue' or 'stop', or a callable that "
                f"answers one of the last two; not {literal(on_budget_warning)}."
            )
        self.budget = budget
        self.run_id = run_id or new_run_id()
        self.thread_id = thread_id or new_thread_id()
        self.depth = 0
        self.cancellation = Cancellation()
        self.words = Words(self.thread_id)
        self.workspace: dict[str, Any] = {} if workspace is None else workspace
        self.notes: dict[str, str] = {}
        """Notes that agents write for each other with `workspace_write`, by key."""
        self.clock = clock or MonotonicClock()
        self.gate = gate or OpenGate()
        self.call_timeout_s = call_timeout_s
        self.on_budget_warning = on_budget_warning
        self.pause_timeout_s = pause_timeout_s
        self.is_attended = is_attended
        self.patience = patience
        self.approve = approve
        self.gated = frozenset(gated)
        """Names of tools that need approval when agents at this place or below call them."""
        self.on_plan = on_plan
        self.ask_above = ask_above
        self.price = price
        self.price_usage = price_usage or partial(_by_price, price)
        self.rates = rates
        self.counts_money = USD in budget.units
        """Whether its budget, or one above it, is in dollars."""
        self.inbox = inbox
        self.memory = memory
        self.recall = recall
        self.handles = handles
        self.abandoned = AbandonedTools()
        self.pauses = Pauses(self.thread_id, self.limits)
        self.numbers = numbers or ChildNumbers()
        self.above = frozenset(above)
        self._meter: Meter | None = None
        self._assignments: AdmitsAssignments | None = None
        self._questions: Questions | None = None

    @property
    def meter(self) -> Meter | None:
        """The run's meter; `None` before the run begins."""
        return self._meter

    def begin(
        self, meter: Meter, assignments: AdmitsAssignments, questions: Questions | None = None
    ) -> None:
        """The run starts: answers and assignments go to these objects."""
        self._meter, self._assignments, self._questions = meter, assignments, questions

    def end(self) -> None:
        """The run is over. Breaks a reference cycle that would keep the record in memory."""
        self._assignments = None

    def rate_of(self, model: str) -> Rate | None:
        """The prices of a model's tokens; `None` if no budget counts dollars.

        Raises:
            NoPrice: The model has no known price.
        """
        if not self.counts_money:
            return None
        found = self.rates.get(model)
        if found is None:
            raise NoPrice.of(model)
        return found

    def amount_of_lost(self, spent: int) -> int | Amount:
        """The amount to count for a call whose end is unknown.

        Args:
            spent: Its estimate, in the budget's unit. For a budget above of the other unit it is
                converted as if it were input alone, at the price that gives more.
        """
        if not self.counts_money:
            return spent
        rates = self.rates.values()
        if self.budget.unit == TOKENS:
            return Amount(spent, max((rate.of_input(spent) for rate in rates), default=0))
        return Amount(max((rate.input_for(spent) for rate in rates), default=0), spent)

    def answer_budget(self, answer: str, by: str = "code") -> None:
        """Answer the budget's question. Call it on the run's loop.

        Args:
            answer: `continue` or `stop`.
            by: Who answers; as in all orders, `panel`, `code`, `gate`, `limit` or `agent`.

        Raises:
            ValueError: `answer` is neither.
            NoOpenQuestion: The budget's question is not open.
        """
        if self._meter is None:
            raise NoOpenQuestion
        self._meter.answer(answer, by)

    @property
    def open_questions(self) -> tuple[Question, ...]:
        """The open questions, in the order in which they were asked. From any thread."""
        return () if self._questions is None else self._questions.open

    def answer(
        self,
        question_id: str,
        answer: str,
        *,
        value: Any = None,
        reason: str | None = None,
        by: str = "code",
    ) -> None:
        """Answer an open question. Call it on the run's loop.

        Raises:
            ValueError: The question does not take this answer.
            NoOpenQuestion: It is not open.
        """
        if self._questions is None:
            raise NoOpenQuestion(question_id)
        self._questions.answer(question_id, answer, value=value, reason=reason, by=by)

    def admit_assignment(self, agent_id: str, task: str) -> Refusal | None:
        """Count the new agent to which an agent of this run is about to assign a task.

        It counts as a sub-agent for `max_agents`, `max_depth` and cycles. Its level is that of its
        thread, the number of dots in its id. Call it on the run's loop.

        A refusal is published for the assigning agent: as `DepthLimitReached` or `SpawnIgnored`
        without tasks, or as `CycleDetected` with the number 0, since the task has no number among
        the tasks of the run.

        Args:
            agent_id: The agent that assigns the task.
            task: The task.

        Returns:
            Why it must not be assigned; `None` if it may.

        Raises:
            KeyError: No agent of this run has that id, or the run is over.
        """
        if self._assignments is None:
            raise KeyError(agent_id)
        return self._assignments.admit_assignment(agent_id, task)

    def marks_below(self, agent_id: str) -> frozenset[str]:
        """Marks of the tasks that led to an assignment by an agent of this run, its own included.

        Raises:
            KeyError: No agent of this run has that id, or the run is over.
        """
        if self._assignments is None:
            raise KeyError(agent_id)
        return self.above.union(map(mark, self._assignments.lineage_of(agent_id)))

    def gated_for(self, agent_id: str) -> Collection[str]:
        """Names of the tools that need approval when an agent, or one below it, calls them.

        Raises:
            KeyError: No agent of this run has that id, or the run is over.
        """
        if self._assignments is None:
            raise KeyError(agent_id)
        return self._assignments.gated_for(agent_id)

    def child(self, gated: Collection[str] = ()) -> RequestContext:
        """The same state, one level deeper: everything except `depth` and `gated` is shared.

        Args:
            gated: Names of further tools that need approval.
        """
        deeper = RequestContext.__new__(type(self))
        all_gated = self.gated.union(gated) if gated else self.gated
        deeper.__dict__.update(self.__dict__, depth=self.depth + 1, gated=all_gated)
        return deeper

    @property
    def max_depth(self) -> int:
        return self.limits.max_depth

    @property
    def max_agents(self) -> int:
        return self.limits.max_agents

    @property
    def cycle_detector(self) -> CycleDetector:
        return self.limits.cycles


class AdmitsAssignments(Protocol):
    """What the context needs of the running run."""

    def admit_assignment(self, agent_id: str, task: str) -> Refusal | None:
        """See `RequestContext.admit_assignment`."""
        ...

    def gated_for(self, agent_id: str) -> Collection[str]:
        """See `RequestContext.gated_for`."""
        ...

    def lineage_of(self, agent_id: str) -> Sequence[str]:
        """The task of an agent, then those of its ancestors in the run."""
        ...


class AbandonedTools:
    """Agents with an abandoned tool whose thread still runs. Thread-safe."""

    def __init__(self) -> None:
        self._tools: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, agent_id: str) -> Callable[[], None]:
        """Add one tool of an agent. Returns a function to call when the tool has ended."""
        with self._lock:
            self._tools[agent_id] += 1
        return lambda: self._end(agent_id)

    def _end(self, agent_id: str) -> None:
        with self._lock:
            self._tools[agent_id] -= 1

    @property
    def agent_ids(self) -> set[str]:
        with self._lock:
            return set(+self._tools)


@dataclass(frozen=True, slots=True, eq=False)
class RunState:
    """The parts of one run: complete when created, never replaced."""

    request: RequestContext
    bus: EventBus
    meter: Meter
    recorder: Recorder
    questions: Questions
    engine: Engine
    provider: Provider
    """Answers the calls of agents that have no model of their own."""
    tools: tuple[Tool, ...]
    """Tools that agents may call, without the spawn tools."""
    delegation: Delegation
    inherit_memory: bool
    max_turns: int
    """Most model calls of one agent."""
    past: Past | None = None
    """The run's past, if it is recovered or replayed; else `None`."""

    @property
    def limits(self) -> RunLimits:
        return self.request.limits
