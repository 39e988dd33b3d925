"""Helpers for tests of whole trees: a run of the core, scripts by agent, time, held streams.

`run_tree` checks for each run what must hold for every run: one dense record from `RunStarted` to
`RunFinished`, one terminal event per agent, no parent ended before its children, a tree that equals
the fold of its events, and nothing left running.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from agentnb.core import types
from agentnb.core.budget import RequestBudget
from agentnb.core.bus import EventBus
from agentnb.core.context import AgentContext
from agentnb.core.errors import OrchestratorError
from agentnb.core.events import (
    AgentSpawned,
    BudgetChanged,
    BudgetExhausted,
    BudgetPaused,
    BudgetResumed,
    BudgetWarning,
    CycleDetected,
    DepthLimitReached,
    Entry,
    LimitReached,
    ModelCallFinished,
    ModelCallStarted,
    RunFinished,
    RunStarted,
    SpawnIgnored,
    SynthesisStarted,
    is_terminal,
)
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.past import Past
from agentnb.core.plan import Plan, Rows
from agentnb.core.protocols import BudgetGate, OutputType, Provider, SupportsCommit, Tool
from agentnb.core.request import RequestContext
from agentnb.core.spawn import read_reply
from agentnb.core.tree import TreeFold
from agentnb.core.types import (
    AgentNode,
    AgentStatus,
    CompletionRequest,
    OrchestratorResult,
    Role,
    SpawnInstruction,
    Usage,
)
from agentnb.providers.scripted import AnyReply, ScriptedProvider
from agentnb.run_check import check_possible
from agentnb.runtime import get_runtime

# From `agentnb.testing`; tests import it from here with the other helpers.
from agentnb.testing import Hold as Hold
from agentnb.testing import by_agent as by_agent
from agentnb.testing import requests_of as requests_of
from agentnb.testing import spawn as spawn
from agentnb.testing import task_of as task_of

DEADLINE_S = 120.0
"""Only against hangs: far more than anything here takes on a busy machine."""

E = TypeVar("E")


# -- scripts ------------------------------------------------------------------------------------


def text_of(request: CompletionRequest) -> str:
    """All text of a request."""
    return "\n".join([request.system, *(message.text for message in request.messages)])


def said_by(request: CompletionRequest, role: Role) -> list[str]:
    return [message.text for message in request.messages if message.role is role]


# -- runs ---------------------------------------------------------------------------------------


@dataclass
class Tree:
    """One run of the core: before, during and after it."""

    provider: Provider
    request: RequestContext
    bus: EventBus
    context: AgentContext
    orchestrator: AgentOrchestrator
    budget_gate: BudgetGate | None = None
    tools: Sequence[Tool] = ()
    journal: SupportsCommit | None = None
    plan: SpawnInstruction | None = None
    synthesis: bool = True
    beside_others: bool = False
    """Whether other runs share the loop: then other tasks may be left on it."""
    past: Past | None = None
    output: OutputType | None = None
    """The type of the root's answer."""
    outputs: OutputType | None = None
    """The type of each answer of the plan."""
    rows: Rows | None = None
    error: OrchestratorError | None = None
    """The exception that the run raised."""
    _result: OrchestratorResult | None = field(default=None, repr=False)

    @property
    def result(self) -> OrchestratorResult:
        """The result of the run; its partial result if it raised."""
        assert self._result is not None, "the run has not ended"
        return self._result

    @property
    def entries(self) -> list[Entry]:
        return self.bus.entries

    @property
    def events(self) -> list[Any]:
        return [entry.event for entry in self.bus.entries]

    def of(self, kind: type[E], path: str | None = None) -> list[E]:
        """The events of one kind; of one agent if a path is given."""
        return events_of(self.bus.entries, kind, path)

    def node(self, path: str) -> AgentNode:
        return next(node for node in self.result.agent_tree.walk() if node.path == path)

    def statuses(self) -> dict[str, str]:
        """By path."""
        return {node.path: str(node.status) for node in self.result.agent_tree.walk()}

    def id_of(self, path: str) -> str:
        return self.request.thread_id + ("" if path == "root" else f".{path}")

    def cancel(self, path: str, reason: str = "not needed any more") -> None:
        self.request.cancellation.cancel(self.id_of(path), reason)

    async def run(self, task: str = "the task") -> Tree:
        """Run to the end, and check what holds for every run."""
        others = asyncio.all_tasks()
        first = self.request.numbers.all()
        try:
            async with asyncio.timeout(DEADLINE_S):
                self._result = await self.orchestrator.execute(
                    self.provider,
                    self.context,
                    task,
                    self.request,
                    self.bus,
                    budget_gate=self.budget_gate,
                    tools=self.tools,
                    journal=self.journal,
                    plan=None
                    if self.plan is None
                    else Plan(self.plan, self.synthesis, self.outputs, self.rows),
                    output=self.output,
                    past=self.past,
                )
        except OrchestratorError as error:
            self.error, self._result = error, error.partial_result
        if not self.beside_others:
            assert asyncio.all_tasks() - others == set(), "the run left something running"
        check_record(self.bus.entries, first)
        check_result(self.result, self.bus.entries)
        return self

    def start(self, task: str = "the task") -> asyncio.Task[Tree]:
        return asyncio.create_task(self.run(task))

    async def saw(self, kind: type[E], path: str | None = None) -> E:
        """Wait for the first event of a kind; of one agent if a path is given."""
        async with asyncio.timeout(DEADLINE_S):
            async for entry in self.bus.subscribe():
                for event in events_of([entry], kind, path):
                    return event
        raise AssertionError(f"the run ended without {kind.__name__}")


def make_tree(
    provider: Provider,
    *,
    budget: int | RequestBudget = 1_000_000,
    context: AgentContext | None = None,
    orchestrator: AgentOrchestrator | None = None,
    budget_gate: BudgetGate | None = None,
    tools: Sequence[Tool] = (),
    journal: SupportsCommit | None = None,
    plan: SpawnInstruction | None = None,
    synthesis: bool = True,
    beside_others: bool = False,
    past: Past | None = None,
    output: OutputType | None = None,
    outputs: OutputType | None = None,
    rows: Rows | None = None,
    **limits: Any,
) -> Tree:
    """A run that has not begun. `limits` are arguments of `RequestContext`."""
    pot = RequestBudget(budget) if isinstance(budget, int) else budget
    request = RequestContext(pot, **limits)
    return Tree(
        provider,
        request,
        EventBus(request.run_id, clock=request.clock),
        context or AgentContext(),
        orchestrator or AgentOrchestrator(max_depth=10),
        budget_gate,
        tools,
        journal,
        plan,
        synthesis,
        beside_others,
        past,
        output,
        outputs,
        rows,
    )


async def run_tree(provider: Provider, task: str = "the task", **limits: Any) -> Tree:
    """Run one tree to its end; its exception is in `.error`. Takes the arguments of `make_tree`."""
    return await make_tree(provider, **limits).run(task)


def path_of(agent_id: str) -> str:
    """The path of an agent in a run on a top-level thread, as nearly all runs here are."""
    return types.path_of(agent_id, agent_id.partition(".")[0])


def events_of(entries: Sequence[Entry], kind: type[E], path: str | None = None) -> list[E]:
    return [
        entry.event
        for entry in entries
        if isinstance(entry.event, kind)
        and (path is None or path_of(getattr(entry.event, "agent_id", "") or "") == path)
    ]


async def until(holds: Callable[[], object]) -> None:
    """Let this loop run until a condition holds, which the loop or a thread brings about."""
    async with asyncio.timeout(DEADLINE_S):
        for turn in itertools.count():
            if holds():
                return
            # A loop that never sleeps takes the interpreter's lock back before a woken thread gets
            # it: the thread may starve for half a minute.
            await asyncio.sleep(0 if turn < 1000 else 0.001)


async def reported_by(scene: Callable[[], Awaitable[object]]) -> list[str]:
    """What asyncio reports of a scene, also once everything that it left is collected."""
    reports: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reports.append(context["message"]))
    try:
        await scene()
        gc.collect()
    finally:
        loop.set_exception_handler(None)
    return reports


@contextmanager
def nothing_left_on_the_runtime() -> Iterator[None]:
    """Check that no new task is left on the runtime's loop."""

    async def tasks() -> set[asyncio.Task[Any]]:
        return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}

    before = get_runtime().submit(tasks()).result(DEADLINE_S)
    yield
    assert get_runtime().submit(tasks()).result(DEADLINE_S) - before == set()


# -- what must hold for every run -----------------------------------------------------------------


def check_record(entries: Sequence[Entry], first: Mapping[str, int] = MappingProxyType({})) -> None:
    """Check that the record of a finished run is complete and in order.

    Args:
        entries: The record.
        first: The number of an agent's first task, by agent id; 1 for the others.
    """
    events = [entry.event for entry in entries]
    assert [entry.seq for entry in entries] == list(range(len(entries)))
    assert len({entry.run_id for entry in entries}) == 1
    assert [entry.at_s for entry in entries] == sorted(entry.at_s for entry in entries)
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunFinished)
    assert sum(isinstance(event, RunStarted | RunFinished) for event in events) == 2

    spawned: dict[str, AgentSpawned] = {}
    ended: dict[str, int] = {}
    for place, event in enumerate(events):
        agent_id = getattr(event, "agent_id", None)
        if isinstance(event, AgentSpawned):
            assert event.agent_id not in spawned, f"{agent_id} was spawned twice"
            spawned[event.agent_id] = event
        elif agent_id is not None:
            assert agent_id in spawned, f"{event} of an agent that was not spawned"
            assert agent_id not in ended, f"{event} after the agent's end"
        if is_terminal(event):
            assert agent_id is not None
            ended[agent_id] = place
    assert set(ended) == set(spawned), "an agent has no terminal event"
    for agent_id, event in spawned.items():
        if event.parent_id is not None:
            assert ended[event.parent_id] > ended[agent_id], f"{agent_id} outlived its parent"
            assert event.depth == spawned[event.parent_id].depth + 1
    check_numbers(entries, first)
    _check_budget_events(events)
    check_possible([(entry.at_s, entry.event) for entry in entries])  # its file can be read


def check_numbers(
    entries: Sequence[Entry], first: Mapping[str, int] = MappingProxyType({})
) -> None:
    """Check that the tasks of each agent, started or not, have the numbers 1, 2, 3, … once each.

    `first` has the first number of agents whose tasks begin at another.
    """
    numbers: dict[str, list[int]] = {}
    for event in (entry.event for entry in entries):
        match event:
            case AgentSpawned(parent_id=str(parent_id)):
                number = types.path_of(event.agent_id, parent_id)
                numbers.setdefault(parent_id, []).append(int(number))
            case CycleDetected(number=number) if number != 0:  # an assignment's cycle has number 0
                assert event.number is not None
                numbers.setdefault(event.agent_id, []).append(event.number)
            case SpawnIgnored() | DepthLimitReached():
                assert len(event.numbers) == len(event.tasks)
                numbers.setdefault(event.agent_id, []).extend(event.numbers)
    for agent_id, given in numbers.items():
        begin = first.get(agent_id, 1)
        assert sorted(given) == list(range(begin, begin + len(given)))


def _check_budget_events(events: Sequence[Any]) -> None:
    """Check that exhaustion follows a warning, a pause ends, and a synthesis has its call."""
    is_warned = is_exhausted = is_limited = is_raised = is_paused = False
    for event, following in itertools.zip_longest(events, events[1:]):
        match event:
            case BudgetWarning():
                assert is_raised or not is_exhausted, "a warning after the exhaustion"
                is_warned = True
            case BudgetExhausted():
                assert is_warned, "an exhaustion without a warning before it"
                assert not is_exhausted, "exhaustion was told twice"
                assert not is_limited, "the budget's exhaustion after that of another limit"
                is_exhausted = True
            case LimitReached():
                assert not is_limited, "a limit was told twice"
                is_limited = True
            case BudgetChanged():
                is_raised |= is_exhausted and event.budget_total > event.previous_total
            case BudgetPaused():
                assert not is_paused, "a pause in a pause"
                is_paused = True
            case BudgetResumed():
                assert is_paused, "an end of a pause that had not begun"
                is_paused = False
            case SynthesisStarted():
                assert isinstance(following, ModelCallStarted), "a synthesis without a call"
                assert following.agent_id == event.agent_id
                assert following.is_synthesis
    assert not is_paused, "a pause without an end"


def check_result(result: OrchestratorResult, entries: Sequence[Entry]) -> None:
    """Check that a result agrees with the events, and its answer shows no block."""
    assert result.agent_tree == TreeFold(entries).root()
    spawned = {event.agent_id: event for event in events_of(entries, AgentSpawned)}
    nodes = {node.agent_id: node for node in result.agent_tree.walk()}
    assert set(nodes) == set(spawned)
    for node in nodes.values():
        children = [s.agent_id for s in spawned.values() if s.parent_id == node.agent_id]
        children.sort(key=types.path_key)  # rows with a known answer begin before the others
        assert [child.agent_id for child in node.children] == children
        assert node.task == spawned[node.agent_id].task_description
        assert node.status.is_terminal
    usage = sum((call.usage for call in events_of(entries, ModelCallFinished)), Usage())
    assert result.total_tokens_used == usage.total_tokens
    assert result.total_tokens_used == sum(node.tokens_used for node in nodes.values())
    assert result.final_response, "an answer is never empty"
    assert result.output == result.final_response
    assert not read_reply(result.final_response).has_block
    completed = {node.agent_id for node in nodes.values() if node.status is AgentStatus.COMPLETED}
    assert {memory.agent_id for memory in result.memory_contexts} == completed


# -- one agent at any depth -----------------------------------------------------------------------

NAMES = ("root", "one", "two", "three")
PATHS = ("root", "1", "1.1", "1.1.1")


def chain(
    depth: int,
    replies: AnyReply | Sequence[AnyReply],
    more: Mapping[str, AnyReply | Sequence[AnyReply]] | None = None,
) -> ScriptedProvider:
    """A script in which the agent `NAMES[depth]` gives `replies`; its ancestors delegate to it."""
    above = {NAMES[d]: (spawn(NAMES[d + 1]), f"{NAMES[d]} came back") for d in range(depth)}
    return by_agent({**above, NAMES[depth]: replies, **(more or {})})


# -- processes ------------------------------------------------------------------------------------


NO_WORD_OF_SLOWNESS = "import logging; logging.getLogger('asyncio').setLevel(logging.ERROR)\n"
"""asyncio's development mode warns of slow callbacks: on a busy machine, of any callback."""


def examples(number: int) -> int:
    """The number of examples that a property tries; `PROPERTY_EXAMPLES` overrides it."""
    return int(os.environ.get("PROPERTY_EXAMPLES", number))


def run_python(code: str, *, debug: bool = True) -> str:
    """Run `code` in a fresh process, which must succeed without error output; return its output.

    Args:
        code: The code.
        debug: Whether to use Python's development mode, in which asyncio takes about twice the
            time. Warnings are shown in either case.
    """
    mode = ["-X", "dev"] if debug else ["-W", "default"]
    done = subprocess.run(
        [sys.executable, *mode, "-c", NO_WORD_OF_SLOWNESS + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout
