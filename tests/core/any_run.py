"""A run to which anything may happen, and what must hold after every step of it.

Hypothesis is the provider, the person and the time: it chooses what each open call says next, what
goes wrong, who is cancelled, how large the budget is.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentnb.core import threads
from agentnb.core._call.tool_call import THREAD_PATIENCE_S
from agentnb.core.budget import Reservation
from agentnb.core.context import AgentContext
from agentnb.core.errors import AgentEnded, OrchestratorError
from agentnb.core.events import BudgetWarning, Entry
from agentnb.core.orchestrator import AgentOrchestrator
from agentnb.core.plan import Plan
from agentnb.core.protocols import FallbackModel
from agentnb.core.types import (
    AgentConfig,
    Block,
    Message,
    OrchestratorResult,
    Role,
    Stopped,
    TextBlock,
    TextDelta,
    ThinkingDelta,
    ToolUse,
    ToolUseBlock,
    Usage,
)
from agentnb.providers.fallback import FallbackProvider
from tests.core.clock import ManualClock, everyone_waits
from tests.core.pausing import check_pauses
from tests.core.random_trees import (
    COUNTS,
    FAULTS,
    MODES,
    ODD_ENDS,
    ORDERS,
    PIECES,
    TASKS,
    TOTALS,
    WHICH,
    AnyTool,
    Call,
    SlowJournal,
    Stage,
    Start,
    Watch,
    WatchedBudget,
    WatchedGate,
    starts,
)
from tests.core.run_ends import check_end, check_reading, check_size, check_views, check_words
from tests.support import Tree, make_tree, spawn

while_called = precondition(lambda machine: bool(machine.stage.open))


class AnyRun(RuleBasedStateMachine):
    """One run, from its start to its end."""

    @initialize(start=starts())
    def begin(self, start: Start) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.stage = Stage(start.closing_rounds)
        self.journal = SlowJournal()
        self.upper = WatchedBudget(start.upper) if start.upper is not None else None
        self.budget = WatchedBudget(start.total, below=self.upper)
        self.calls_of_others: list[Reservation] = []
        self.gate = WatchedGate(start.max_concurrency, self.clock)
        self.watch = Watch(self.budget, self.upper)
        self.said: dict[str, str] = {}
        """What agents were told and did not refuse: text and agent."""
        self.asked: list[asyncio.Future[str]] = []
        self.on_threads: list[Callable[[], None]] = []
        """What would be done on threads: it is done by order, too."""
        self.no_threads = patch.object(threads, "_start", self.on_threads.append)
        self.no_threads.start()
        self.read: list[Entry] = []
        self.is_cancelled_from_outside = False
        extra = {"thinking": {"type": "enabled"}} if start.thinks else {}
        config = AgentConfig(model="stage/any", max_output_tokens=start.max_output, extra=extra)
        chain = FallbackProvider(
            [FallbackModel(self.stage, "stage/any"), FallbackModel(self.stage, "stage/other")]
        )
        self.tree: Tree = make_tree(
            chain if start.is_chain else self.stage,
            budget=self.budget,
            context=AgentContext(config),
            orchestrator=AgentOrchestrator(max_depth=10, delegation=start.delegation),
            budget_gate=self._ask if start.policy == "gate" else None,
            tools=[AnyTool(self.clock, start.timeout_s)] if start.has_tools else [],
            journal=self.journal if start.keeps_slowly else None,
            plan=start.plan,
            synthesis=start.synthesis,
            clock=self.clock,
            gate=self.gate,
            max_depth=start.max_depth,
            max_agents=start.max_agents,
            max_time_s=start.max_time_s,
            stop_after_failures=start.stop_after_failures,
            on_budget_warning="ask" if start.policy == "gate" else start.policy,
            is_attended=lambda: start.is_attended,
        )
        self.reader = self.tree.bus.subscribe(limit=start.limit)
        self.sleeper = self.tree.bus.subscribe(limit=start.limit)
        self.run = self.loop.create_task(self._execute())
        self.go_on()
        self.keep_all()
        for width, mode in start.shape:
            self.delegate_everywhere(["e", "f", "g"][:width], mode)
            self.keep_all()

    def keep_all(self) -> None:
        """Let the journal keep what it was given."""
        while self.journal.waiting:
            self.journal.let_commits_end()
            self.go_on()

    async def _execute(self) -> OrchestratorResult:
        tree = self.tree
        return await tree.orchestrator.execute(
            tree.provider,
            tree.context,
            "the task",
            tree.request,
            tree.bus,
            budget_gate=tree.budget_gate,
            tools=tree.tools,
            journal=tree.journal,
            plan=None if tree.plan is None else Plan(tree.plan, tree.synthesis),
        )

    async def _ask(self, warning: BudgetWarning) -> str:
        answer: asyncio.Future[str] = self.loop.create_future()
        self.asked.append(answer)
        return await answer

    def go_on(self) -> None:
        """Let everyone go on until all wait for orders, and look at what happened."""
        before = -1
        while before != len(self.tree.bus):
            before = len(self.tree.bus)
            self.loop.run_until_complete(everyone_waits())
        self.watch.look(self.tree.bus.since(self.watch.seen))

    # -- what a model does ----------------------------------------------------------------------

    def _call(self, which: int) -> Call:
        return self.stage.open[which % len(self.stage.open)]

    @while_called
    @rule(which=WHICH, text=PIECES)
    def say(self, which: int, text: str) -> None:
        self._call(which).order(TextDelta(text))
        self.go_on()

    @while_called
    @rule(which=WHICH, text=PIECES)
    def think(self, which: int, text: str) -> None:
        self._call(which).order(ThinkingDelta(text))
        self.go_on()

    @while_called
    @rule(which=WHICH, usage=COUNTS)
    def count(self, which: int, usage: Usage) -> None:
        self._call(which).order(usage)
        self.go_on()

    @while_called
    @rule(which=WHICH, tasks=TASKS, mode=MODES, before=st.sampled_from(["", "A plan."]))
    def delegate(self, which: int, tasks: list[str], mode: str, before: str) -> None:
        self._call(which).finish(spawn(*tasks, mode=mode, before=before))
        self.go_on()

    @while_called
    @rule(tasks=TASKS, mode=MODES)
    def delegate_everywhere(self, tasks: list[str], mode: str) -> None:
        for call in self.stage.open:
            call.finish(spawn(*(f"{task} of {len(self.tree.bus)}" for task in tasks), mode=mode))
        self.go_on()

    @while_called
    @rule(which=WHICH, text=st.just("An answer.") | ODD_ENDS)
    def finish(self, which: int, text: str) -> None:
        self._call(which).finish(text)
        self.go_on()

    @while_called
    @rule(
        which=WHICH,
        text=st.sampled_from(["Half an", "<spawn_agents mode=", spawn("a")]),
        reason=st.sampled_from(["max_tokens", "refusal", "pause_turn"]),
    )
    def stop_early(self, which: int, text: str, reason: str) -> None:
        self._call(which).finish(text, reason)
        self.go_on()

    @while_called
    @rule(which=WHICH, orders=ORDERS)
    def use_tools(self, which: int, orders: list[str]) -> None:
        call = self._call(which)
        blocks: list[Block] = [TextBlock(call.text)] if call.text else []
        for number, order in enumerate(orders):
            given = {} if order == "look" else {"do": order}
            call.order(ToolUse(str(number), "any", given))
            blocks.append(ToolUseBlock(str(number), "any", given))
        call.order(Stopped("tool_use", Message(Role.ASSISTANT, tuple(blocks))))
        self.go_on()

    @while_called
    @rule(which=WHICH, fault=st.sampled_from(["no end mark", *FAULTS]))
    def fail(self, which: int, fault: str) -> None:
        self._call(which).order(FAULTS[fault]() if fault in FAULTS else None)
        self.go_on()

    @while_called
    @rule(
        fault=st.sampled_from(["overloaded", "rate limit", "connection"]), times=st.integers(1, 4)
    )
    def storm(self, fault: str, times: int) -> None:
        for _ in range(times):
            for call in self.stage.open:
                call.order(FAULTS[fault]())
            self.go_on()
            self.loop.call_soon(self.clock.advance, 12.0)
            self.go_on()

    # -- what a person does ---------------------------------------------------------------------

    def _from_anywhere(self, order: Callable[[], object], from_thread: bool) -> None:
        """Give an order from this thread, inside the loop, or from a thread of its own."""
        if from_thread:
            thread = threading.Thread(target=order)
            thread.start()
            thread.join()
        else:
            self.loop.call_soon(order)
        self.go_on()

    @rule(which=st.integers(0, 12), from_thread=st.booleans())
    def cancel_agent(self, which: int, from_thread: bool) -> None:
        cancellation = self.tree.request.cancellation
        ids = cancellation.agent_ids
        agent_id = ids[-1 - which % len(ids)]
        self._from_anywhere(lambda: cancellation.cancel(agent_id, "not needed"), from_thread)
        if self.on_threads:  # one that is at work on a thread may take so long to see it
            self.pass_time(THREAD_PATIENCE_S)
        self.keep_all()
        below = {name for name in self.watch.spawned if name.startswith(f"{agent_id}.")}
        assert self.watch.ended >= {agent_id, *below}, "something of a cancelled agent goes on"

    @rule(which=st.integers(0, 12))
    def tell(self, which: int) -> None:
        ids = self.tree.request.cancellation.agent_ids
        agent_id, text = ids[-1 - which % len(ids)], f"note {len(self.said)} <&>"

        def say() -> None:
            with suppress(AgentEnded):
                self.tree.request.words.tell(agent_id, text, "code")
                self.said[text] = agent_id

        self.loop.call_soon(say)  # as `Run` does: on the run's own loop
        self.go_on()

    @precondition(lambda self: len(self.tree.bus) > 12)
    @rule(from_thread=st.booleans())
    def cancel_run(self, from_thread: bool) -> None:
        cancellation = self.tree.request.cancellation
        self._from_anywhere(lambda: cancellation.cancel(None, "enough"), from_thread)

    @precondition(lambda self: len(self.tree.bus) > 12)
    @rule()
    def cancel_from_outside(self) -> None:
        self.is_cancelled_from_outside = True
        self.run.cancel()
        self.go_on()

    @rule(which=st.integers(0, 12))
    def pause(self, which: int) -> None:
        self._steer(self.tree.request.pauses.pause, which)

    @rule(which=st.integers(0, 12))
    def resume(self, which: int) -> None:
        self._steer(self.tree.request.pauses.resume, which)

    def _steer(self, order: Callable[[str | None, str], None], which: int) -> None:
        """Pause or resume an agent, or with 0 the run."""
        ids = self.tree.request.cancellation.agent_ids
        agent_id = ids[-1 - which % len(ids)] if which else None

        def act() -> None:
            with suppress(AgentEnded):
                order(agent_id, "code")

        self.loop.call_soon(act)  # as `Run` does: on the run's own loop
        self.go_on()

    @rule(total=TOTALS | st.integers(0, 10_000), from_thread=st.booleans())
    def set_total(self, total: int, from_thread: bool) -> None:
        is_raised = total > self.budget.total
        self._from_anywhere(lambda: self.budget.set_total(total), from_thread)
        assert not (is_raised and self.is_asked), "a raise is an answer"

    @rule(beyond=st.sampled_from([-100, 0, 1, 300, 2000]))
    def set_total_near_what_is_used(self, beyond: int) -> None:
        self.budget.set_total(max(0, self.budget.tokens_used + beyond))
        self.go_on()

    @while_called
    @rule(which=WHICH, room=st.sampled_from([0, 100, 300, 600, 2000]))
    def say_more_than_there_is_room_for(self, which: int, room: int) -> None:
        self.budget.set_total(self.budget.tokens_used + self.budget.reserved + room)
        self._call(which).order(TextDelta("long " * 900))
        self.go_on()

    @precondition(lambda self: self.is_asked)
    @rule(answer=st.sampled_from(["continue", "stop", "perhaps"]))
    def answer(self, answer: str) -> None:
        self._answer(answer)
        self.go_on()

    @property
    def is_asked(self) -> bool:
        meter = self.tree.request.meter
        return meter is not None and meter.is_paused and not self.run.done()

    def _answer(self, answer: str) -> None:
        meter = self.tree.request.meter
        open_ = [asked for asked in self.asked if not asked.done()]
        if open_:
            open_[-1].set_result(answer)
        elif answer != "perhaps" and self.is_asked and meter is not None:
            self.loop.call_soon(
                partial(meter.answer, answer)
            )  # as `Run` does: on the run's own loop

    # -- what the rest of the world does --------------------------------------------------------

    @rule(seconds=st.sampled_from([0.05, 0.5, 3.0, 8.0, 61.0, 601.0, 4000.0]))
    def pass_time(self, seconds: float) -> None:
        self.loop.call_soon(self.clock.advance, seconds)
        self.go_on()

    @precondition(lambda self: bool(self.on_threads))
    @rule(which=WHICH)
    def finish_on_thread(self, which: int) -> None:
        self.on_threads.pop(which % len(self.on_threads))()
        self.go_on()

    @precondition(lambda self: bool(self.journal.waiting))
    @rule()
    def keep(self) -> None:
        self.journal.let_commits_end()
        self.go_on()

    @rule()
    def read_along(self) -> None:
        self.loop.run_until_complete(self._read())

    async def _read(self) -> None:
        while True:
            coming = asyncio.ensure_future(anext(self.reader, None))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if not coming.done():
                coming.cancel()
                await asyncio.wait([coming])
                return
            entry = coming.result()
            if entry is None:
                return
            self.read.append(entry)

    # -- what other runs do that share a budget above -------------------------------------------

    @precondition(lambda self: self.upper is not None)
    @rule(tokens=st.integers(0, 4000), kept=st.sampled_from([0, 0, 500]))
    def call_of_another(self, tokens: int, kept: int) -> None:
        assert self.upper is not None
        self.upper.keep(lambda: kept)
        call = self.upper.reserve(min(tokens, self.upper.available))
        if call is not None:
            self.calls_of_others.append(call)
        self.go_on()

    @precondition(lambda self: bool(self.calls_of_others))
    @rule(which=WHICH, actual=st.integers(0, 4000), from_thread=st.booleans())
    def settle_of_another(self, which: int, actual: int, from_thread: bool) -> None:
        call = self.calls_of_others.pop(which % len(self.calls_of_others))
        self._from_anywhere(lambda: call.settle(min(actual, call.held)), from_thread)

    @precondition(lambda self: self.upper is not None)
    @rule(total=TOTALS | st.integers(0, 10_000), from_thread=st.booleans())
    def set_total_above(self, total: int, from_thread: bool) -> None:
        assert self.upper is not None
        upper = self.upper
        self._from_anywhere(lambda: upper.set_total(total), from_thread)

    # -- what must hold -------------------------------------------------------------------------

    @invariant()
    def nothing_begins_of_what_is_paused(self) -> None:
        check_pauses(self.tree.bus.entries)

    @invariant()
    def books_balance(self) -> None:
        self.watch.check_books()

    @invariant()
    def gate_lets_through_no_more_than_it_may(self) -> None:
        assert len(self.stage.open) <= self.gate.inside.total()
        assert self.gate.most_inside <= self.gate.max_concurrency

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        try:
            self._let_end()
            self._check_end()
        finally:
            self._clear_away()

    def _let_end(self) -> None:
        """Give every wait its way out, for as many rounds as an orderly run may need."""
        for _ in range(400):
            if self.run.done():
                return
            self.journal.let_commits_end()
            self.resume(0)
            while self.calls_of_others:
                self.settle_of_another(0, 0, False)
            if self.stage.open:
                for call in list(self.stage.open):
                    call.finish("At last.")
            elif self.on_threads and self.tree.tools[0].timeout_s is None:  # type: ignore[attr-defined]
                self.finish_on_thread(0)
            elif not self.journal.waiting:
                self.loop.call_soon(self.clock.advance, 100.0)
            self.go_on()
        for task in asyncio.all_tasks(self.loop):
            task.print_stack()
        raise AssertionError("the run never ends")

    def _check_end(self) -> None:
        error: BaseException | None = None
        result: OrchestratorResult | None = None
        try:
            result = self.run.result()
        except OrchestratorError as raised:
            error, result = raised, raised.partial_result
            assert result is not None
        except asyncio.CancelledError as raised:
            error = raised
            assert self.is_cancelled_from_outside, "nobody had asked for it"
        self.go_on()
        assert asyncio.all_tasks(self.loop) == set(), "the run left something running"
        self._check_late_threads()
        assert self.stage.open == []
        assert self.gate.inside.total() == 0
        entries = self.tree.entries
        check_end(
            result,
            error,
            entries,
            budget=self.budget,
            clock=self.clock,
            plan=self.tree.plan,
            heard=self.stage.heard,
        )
        limits = self.tree.request
        # A person's own fan-out is one level deep whatever the depth that is allowed.
        max_depth = max(limits.max_depth, 1) if self.tree.plan else limits.max_depth
        has_plan = self.tree.plan is not None
        check_size(entries, max_depth=max_depth, max_agents=limits.max_agents, has_plan=has_plan)
        check_words(entries, self.said)
        check_views(self.tree.bus)
        self.loop.run_until_complete(self._read())
        check_reading(self.read, entries)
        self.loop.run_until_complete(self._check_late_reader(entries))

    def _check_late_threads(self) -> None:
        """What was left behind is known, and what comes of it is dropped."""
        told, left = len(self.tree.bus), self.tree.request.abandoned
        assert bool(self.on_threads) == bool(left.agent_ids)
        while self.on_threads:
            self.finish_on_thread(0)
        assert left.agent_ids == set()
        assert len(self.tree.bus) == told

    async def _check_late_reader(self, entries: list[Entry]) -> None:
        check_reading([entry async for entry in self.sleeper], entries)

    def _clear_away(self) -> None:
        self.no_threads.stop()
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        if left:
            self.journal.let_commits_end()
            self.loop.run_until_complete(everyone_waits())
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()
