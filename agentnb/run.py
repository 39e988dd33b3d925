"""`Run`: a person's handle on one running or finished tree.

A run executes on the runtime thread; its `Run` may be used from any thread and any loop.
`agentnb.record` reads it. Waiting never ends a run: only `cancel` does, or an interrupt of a wait
that owns its run (`%%spawn`, `run_sync`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import threading
import time
import weakref
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
)
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, cast

from typing_extensions import TypeVar

from agentnb.core.budget import RequestBudget
from agentnb.core.bus import EventBus
from agentnb.core.cancel import Cancellation
from agentnb.core.errors import AgentEnded, OrchestratorError, UnknownAgent
from agentnb.core.events import Entry
from agentnb.core.money import amount_in
from agentnb.core.protocols import RunControls
from agentnb.core.request import RequestContext
from agentnb.core.types import (
    ROOT_PATH,
    CancelReceipt,
    OrchestratorResult,
    is_at_or_below,
    path_key,
    path_of,
)
from agentnb.core.words import checked_words
from agentnb.given import GivenObjects, Objects
from agentnb.interrupts import INTERRUPTS
from agentnb.main_thread import MAIN
from agentnb.modes import LIVE
from agentnb.prices import NO_PRICES, Price
from agentnb.record import RunRecord
from agentnb.runtime import GONE, Runtime, at_exit, before_exit
from agentnb.views.panel.viewers import Viewers

if TYPE_CHECKING:
    from agentnb.core.questions import Question
    from agentnb.recovery import Recovering, RecoveryReceipt
    from agentnb.run_store import RunStore
    from agentnb.views.panel.controls import BudgetNumber, BudgetSlider, CancelButton, PauseButton
    from agentnb.views.panel.frames import FramePublisher

SLICE_S = 0.1
"""Every wait wakes after this time: a loop delivers an interrupt only when it wakes, and a thread
interrupted on its way to sleep would sleep on."""
STOP_PATIENCE_S = 10.0
"""Longest wait of a cancel for agents that do not stop; the receipt then names them."""

R = TypeVar("R", default=OrchestratorResult)


class Run(RunRecord, Generic[R]):
    """One execution of a tree of agents, from one task. Created by `Session.spawn`.

    `R` is the type of its result: a table for a map, else the result of its tree.
    """

    def __init__(
        self,
        task: str,
        execution: Coroutine[Any, Any, OrchestratorResult],
        *,
        request: RequestContext,
        bus: EventBus,
        runtime: Runtime,
        viewers: Viewers | None = None,
        kept: RunStore | None = None,
        among: MutableMapping[str, Run[Any]] | None = None,
        mode: str = LIVE,
        tally: object = None,
        of_file: Mapping[str, Price] = NO_PRICES,
        given: GivenObjects | None = None,
    ) -> None:
        super().__init__(request.run_id, task, bus, of_file)
        self._given = given
        self._request = request
        self._runtime = runtime
        self._viewers = viewers or Viewers()
        self.mode = mode
        """`live`, `record`, `auto` or `replay`: see the setting."""
        self._tally = tally
        """In mode `auto`: one line about what was not replayed."""
        self.recovering: Recovering | None = None
        """The past of a run that is recovered, until its receipt was made from it."""
        self._receipt: RecoveryReceipt | None = None
        self._kept = kept
        if among is not None:  # before its start: its code may look for it
            among[self.id] = self
        self._future = runtime.submit(execution)
        self._waiting = waiting = set[Callable[[], None]]()
        self._was_awaited = False
        """Whether a caller waited for it when it ended."""
        self._owner_waits = self._has_heard_owner = False
        """Whether a wait that owns it goes on, and whether that has stopped it while code ran."""
        self._was_interrupted = False
        """Whether the code that ran last on the main thread was interrupted by the person."""
        # One callback for all waiters: a future keeps its callbacks, and waiters come and go.
        self._future.add_done_callback(lambda _: [wake() for wake in waiting.copy()])

    # -- waiting ------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, R]:
        return self._wait().__await__()

    async def _wait(self) -> R:
        """Wait on the caller's own loop, in slices that let an interrupt through."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the waiting loop has been closed
                loop.call_soon_threadsafe(done.set)

        self._waiting.add(wake)
        try:
            with MAIN.waits(self.id, wake):
                while not self._future.done():
                    self._check_alive()
                    if self._serves_code():
                        await asyncio.sleep(0)
                        continue
                    with suppress(TimeoutError):
                        async with asyncio.timeout(SLICE_S):
                            await done.wait()
                    done.clear()
        finally:
            self._no_longer_waits(wake)
        return self._outcome()

    def _serves_code(self) -> bool:
        """Run the next code of an agent that waits for the main thread; false if there is none.

        An interrupt of that code stops the run's owner, too, who may hear of it a moment later: so
        no other code begins in between.
        """
        if self._was_interrupted or self._request.cancellation.root_reason is not None:
            self._was_interrupted = False
            return False
        call = MAIN.serve(self.id, heard=self._stops_for_its_owner)
        self._was_interrupted = call is not None and call.was_interrupted
        return call is not None and not call.was_interrupted

    def _stops_for_its_owner(self) -> bool:
        """Stop the run, if its owner waits and has interrupted code: no agent goes on before."""
        if self._owner_waits:
            self._has_heard_owner = self.stop_soon("interrupted")
        return self._has_heard_owner

    def _outcome(self) -> R:
        return cast("R", self._tree_result())

    def _tree_result(self) -> OrchestratorResult:
        """The result of the tree of an ended run, or what it raised."""
        self._give_record()
        if self._publisher is not None:
            self._publisher.show_end()
        try:
            return self._future.result()
        except concurrent.futures.CancelledError:  # the runtime was closed during the run
            raise RuntimeError(GONE) from None

    def _give_record(self) -> None:
        """Let the result lead to what happened, before anyone gets it."""
        reached = self._reached()
        if reached is None:
            return
        with self._fold_lock:
            if reached.record is None:
                # Not `self`, which has the result: such a circle would keep runs in memory.
                reached.give_record(RunRecord(self.id, self.task, self._bus, self.prices))

    def _check_alive(self) -> None:
        if not self._future.done() and not self._runtime.is_alive:
            raise RuntimeError(GONE)

    def result(self, timeout: float | None = None) -> R:
        """Block until the run has ended.

        Args:
            timeout: Most seconds to wait; the run continues afterwards.

        Raises:
            TimeoutError: The run has not ended in time.
            LlmError, NoAnswer, RunCancelled, InternalError: The run failed or was cancelled; each
                has `partial_result`.
            RuntimeError: Called on the runtime thread, which would wait for itself; or the run's
                event loop no longer exists.
        """
        if self._runtime.is_current_thread and not self._future.done():
            raise RuntimeError(
                "On the runtime's own thread a run can only be awaited: `await run`."
            )
        if not self._has_ended_within(timeout):
            raise TimeoutError(f"The run has not ended after {timeout:g} s; it continues.")
        return self._outcome()

    def _has_ended_within(self, timeout: float | None) -> bool:
        """Block on the caller's own thread, in slices that let an interrupt through."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        done = threading.Event()
        self._waiting.add(done.set)
        try:
            with MAIN.waits(self.id, done.set):
                while not self._future.done():
                    self._check_alive()
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return False
                    if self._serves_code():
                        continue
                    done.wait(min(SLICE_S, left))
                    done.clear()
        finally:
            self._no_longer_waits(done.set)
        return True

    def _no_longer_waits(self, wake: Callable[[], None]) -> None:
        self._was_awaited |= self._future.done()
        self._waiting.discard(wake)

    def result_or_cancel(self) -> R:
        """Block as the run's owner: the first interrupt cancels it, the second stops waiting."""
        self._owner_waits = True
        try:
            return self.result()
        except KeyboardInterrupt:
            if not self.stop_soon("interrupted"):
                raise
        return self.result()

    def stop_soon(self, reason: str, *, at_once: bool = False) -> bool:
        """Order the whole run to stop, without waiting. False if already ordered.

        Args:
            reason: Why.
            at_once: Also while a recovered run repeats its record. It then stays as it was, and
                can be recovered.
        """
        cancellation = self._request.cancellation
        return cancellation.cancel(None, reason, at_once=at_once) is cancellation.root_order

    def stop_with(self, above: Cancellation) -> None:
        """Stop when the whole parent run is cancelled, now or later."""
        above.add_below(self._request.cancellation)

    async def wait_or_cancel(self) -> R:
        """Await as the run's owner: the first interrupt cancels it, the second stops waiting."""
        self._owner_waits = True
        try:
            return await self._wait()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._future.done() or task is None or self._has_heard_owner:
                raise
            task.uncancel()
        self.stop_soon("interrupted")
        with interrupts_cancel(task):
            return await self._wait()

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return self._future.done()

    @property
    def reached(self) -> OrchestratorResult | None:
        """The result, or the partial result of a run that raised; `None` until it ends."""
        self._give_record()
        return self._reached()

    def _reached(self) -> OrchestratorResult | None:
        if not self._future.done() or self._future.cancelled():
            return None
        error = self._future.exception()
        if error is None:
            return self._future.result()
        return error.partial_result if isinstance(error, OrchestratorError) else None

    # -- looking ------------------------------------------------------------------------------

    @property
    def receipt(self) -> RecoveryReceipt | None:
        """What a recovery reused, what is uncertain and what changed; `None` for other runs."""
        recovering = self.recovering
        if recovering is not None and recovering.is_settled.is_set():
            self._receipt, self.recovering = recovering.receipt(self.prices), None
        return self._receipt

    @property
    def objects(self) -> Objects:
        """The objects that ended agents' code bound, by name (`code="worker"`).

        The root's objects, and names that only one agent bound, are bare names; others are `name
        (path)`. `.left_out` says, by name, why an object did not come back.
        """
        return Objects() if self._given is None else self._given.came_back

    async def stream(self) -> AsyncIterator[Entry]:
        """Every entry from beginning to end, as it happens, on the caller's loop.

        Past entries come one by one. A reader that falls far behind gets joined text deltas; see
        `agentnb.core.bus`.

        Raises:
            RuntimeError: The run's event loop disappeared before the run ended.
        """
        entries = self._bus.subscribe()
        while True:
            try:
                # In slices, to let an interrupt through and to notice that the run's loop is gone.
                async with asyncio.timeout(None if entries.has_news else SLICE_S):
                    entry = await anext(entries)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if not self._bus.closed and (self.done or not self._runtime.is_alive):
                    raise RuntimeError(GONE) from None
            else:
                yield entry

    @property
    def thread_id(self) -> str:
        """Id of the root agent and of its thread; known before the run starts."""
        return self._request.thread_id

    @property
    def budget(self) -> RequestBudget:
        """The budget that all agents of the run share."""
        return self._request.budget

    # -- steering -----------------------------------------------------------------------------

    def cancel(self, agent: str | None = None, reason: str | None = None) -> CancelReceipt:
        """Stop one agent with its subtree, or the whole run, and wait until it has stopped.

        The receipt's `still_running` names agents that do not stop within 10 s, and agents with a
        synchronous tool still running after 2 s. A second cancel stops nothing more; its receipt
        says what still runs. On the runtime thread it does not wait.

        Args:
            agent: A path (`1.2`) or an agent's id; by default the whole run.
            reason: Shown in the tree and in the error.

        Raises:
            UnknownAgent: The run has no such agent.
            RuntimeError: The run's event loop no longer exists.
        """
        return self._cancel(agent, reason, by="code")

    def _cancel(self, agent: str | None, reason: str | None, *, by: str) -> CancelReceipt:
        agent_id = None if agent is None or self._is_root(agent) else self._id_of(agent)
        cancellation = self._request.cancellation
        if self.done:
            if agent_id is None:  # work that its agents have assigned may continue
                cancellation.cancel(None, reason or "cancelled by hand", by=by)
            return CancelReceipt((), 0, self._abandoned(agent_id))
        self._check_alive()
        started = time.monotonic()
        order = cancellation.cancel(agent_id, reason or "cancelled by hand", by=by)
        if not self._runtime.is_current_thread:
            self._wait_until_stopped(agent_id)
        agents = [scope.agent_id for scope in order]
        still = [s.agent_id for s in cancellation.cancelled(agent_id) if not s.ended.is_set()]
        still += {*self._abandoned(agent_id)} - {*still}
        if not cancellation.agent_ids and cancellation.root_order is order:
            agents = still = [self.thread_id]  # the root is not created yet; it stops at once then
        duration_ms = round((time.monotonic() - started) * 1000)
        in_order = self._in_path_order
        return CancelReceipt(in_order(agents), duration_ms, in_order(still))

    def _wait_until_stopped(self, agent_id: str | None) -> None:
        """Wait until all cancelled agents have stopped, those of earlier cancels included."""

        async def stopped() -> None:
            await self._request.cancellation.gone_on()
            for scope in self._request.cancellation.cancelled(agent_id):
                await scope.ended.wait()

        waiting = self._runtime.submit(stopped())
        # When the root is stopped, the end of the run is enough.
        ends: list[concurrent.futures.Future[Any]] = [waiting]
        if agent_id is None:
            ends.append(self._future)
        try:
            concurrent.futures.wait(ends, timeout=STOP_PATIENCE_S)
        finally:
            waiting.cancel()

    def _abandoned(self, agent_id: str | None) -> tuple[str, ...]:
        """Agents of a subtree, or of the run, that ended while a tool of theirs still runs."""
        left = self._request.abandoned.agent_ids
        if agent_id is not None:
            left = {name for name in left if is_at_or_below(name, agent_id)}
        return self._in_path_order(left)

    def pause(self, agent: str | None = None) -> None:
        """Hold new calls and tools of an agent and its subtree, or of the whole run.

        In force when this returns. Open calls and tools finish. While the whole run is paused, its
        `max_time_s` does not count. Pausing twice changes nothing.

        Args:
            agent: A path (`1.2`) or an agent's id; by default the whole run.

        Raises:
            UnknownAgent: The run has no such agent.
            AgentEnded: The agent, or the run, has ended.
            RuntimeError: The run's event loop no longer exists.
        """
        self._pause(agent, by="code")

    def _pause(self, agent: str | None, *, by: str) -> None:
        agent_id = self._to_steer(agent, "paused")
        self._runtime.call(lambda: self._request.pauses.pause(agent_id, by))

    def resume(self, agent: str | None = None) -> None:
        """End the pauses of an agent and its subtree, or all pauses of the run.

        An agent below a paused one stays held. Calls start again as fast as `max_concurrency`
        allows.

        Args:
            agent: A path (`1.2`) or an agent's id; by default the whole run.

        Raises:
            UnknownAgent: The run has no such agent.
            AgentEnded: The agent, or the run, has ended.
            RuntimeError: The run's event loop no longer exists.
        """
        self._resume(agent, by="code")

    def _resume(self, agent: str | None, *, by: str) -> None:
        agent_id = self._to_steer(agent, "resumed")
        self._runtime.call(lambda: self._request.pauses.resume(agent_id, by))

    @property
    def paused(self) -> tuple[str, ...]:
        """Paths of the agents that a person paused; `root` for the whole run."""
        return self._request.pauses.paused

    def _to_steer(self, agent: str | None, order: str) -> str | None:
        """The id of the agent that is to be paused or so; `None` for the whole run."""
        agent_id = None if agent is None or self._is_root(agent) else self._id_of(agent)
        if self.done:
            raise AgentEnded(path_of(agent_id or self.thread_id, self.thread_id), order)
        self._check_alive()
        return agent_id

    def _is_root(self, agent: str) -> bool:
        return agent in (ROOT_PATH, self.thread_id)

    def _id_of(self, agent: str) -> str:
        known = self._request.cancellation.agent_ids
        for agent_id in known:
            if agent in (agent_id, path_of(agent_id, self.thread_id)):
                return agent_id
        paths = sorted((path_of(agent_id, self.thread_id) for agent_id in known), key=path_key)
        raise UnknownAgent(agent, known=paths)

    def _in_path_order(self, agent_ids: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(agent_ids, key=lambda each: path_key(path_of(each, self.thread_id))))

    def set_budget(self, total: int | str | Decimal) -> None:
        """Set the budget's total, up or down. In force when this returns.

        Args:
            total: Tokens; dollars, as in `"$6"`, for a run with a budget in dollars.

        Raises:
            ValueError: `total` is neither, or not in the unit of the run's budget.
            RuntimeError: The run's event loop no longer exists.
        """
        self._set_budget(self._amount(total), by="code")

    def _amount(self, total: int | str | Decimal) -> int:
        """A total in the unit of the run's budget."""
        amount: int = amount_in(total, self.budget.unit)
        return amount

    def _set_budget(self, total: int, *, by: str) -> None:
        if not self.done:
            self._check_alive()
        self._request.budget.set_total(total, by=by)
        if not self._runtime.is_current_thread:
            self._runtime.call(lambda: None)  # returns after the loop has handled the new total

    def tell(self, agent: str, text: str) -> None:
        """Send an agent a note, which it reads with its next call. Returns immediately.

        An agent that waits for its sub-agents reads it with their results; one about to end takes
        one more turn. Agents above and beside it do not read it.

        Args:
            agent: A path (`1.2`, `root`) or an agent's id.
            text: At most 100,000 characters.

        Raises:
            UnknownAgent: The run has no such agent.
            AgentEnded: The agent, or the run, has ended.
            ValueError: The text is blank, or too long.
            RuntimeError: The run's event loop no longer exists.
        """
        self._tell(agent, text, by="code")

    def _tell(self, agent: str, text: str, *, by: str) -> None:
        words = checked_words(text)
        agent_id = self.thread_id if self._is_root(agent) else self._id_of(agent)
        if self.done:
            raise AgentEnded(path_of(agent_id, self.thread_id))
        self._check_alive()
        self._runtime.call(lambda: self._request.words.tell(agent_id, words, by))

    def answer_budget(self, answer: str) -> None:
        """Answer the budget's question.

        Args:
            answer: `continue` or `stop`.

        Raises:
            ValueError: The answer is neither.
            NoOpenQuestion: No question of the budget is open.
            RuntimeError: The run's event loop no longer exists.
        """
        self._answer_budget(answer, by="code")

    def _answer_budget(self, answer: str, *, by: str) -> None:
        self._runtime.call(lambda: self._request.answer_budget(answer, by))

    @property
    def questions(self) -> tuple[Question, ...]:
        """The open questions of the run, oldest first."""
        return self._request.open_questions

    def answer(
        self, question_id: str, answer: str, *, value: Any = None, reason: str | None = None
    ) -> None:
        """Answer an open question; the first answer counts.

        Args:
            question_id: `q1`, `q2`: see `questions`.
            answer: One of the question's options: `approve` or `deny`; for a plan `go`, `stop` or
                `fewer`; for the budget `continue` or `stop`.
            value: With `approve`: changed arguments for the tool, by name. With `fewer`: the
                number of tasks that may start.
            reason: With `deny`: the reason that the model reads.

        Raises:
            NoOpenQuestion: The question is not open: answered, void, or never asked.
            ValueError: The question does not take this answer or this value.
            RuntimeError: The run's event loop no longer exists.
        """
        self._answer(question_id, answer, value=value, reason=reason, by="code")

    def _answer(
        self, question_id: str, answer: str, *, value: Any, reason: str | None, by: str
    ) -> None:
        request = self._request
        self._runtime.call(
            lambda: request.answer(question_id, answer, value=value, reason=reason, by=by)
        )

    # -- live views ---------------------------------------------------------------------------

    def budget_slider(self) -> BudgetSlider:
        """The panel's slider for the total, for your own dashboard."""
        from agentnb.views.panel.controls import BudgetSlider  # loads the widgets only when needed

        return BudgetSlider(self._live())

    def budget_number(self) -> BudgetNumber:
        """The panel's number for the total, for your own dashboard."""
        from agentnb.views.panel.controls import BudgetNumber

        return BudgetNumber(self._live())

    def cancel_button(self) -> CancelButton:
        """The panel's button that cancels the whole run, for your own dashboard."""
        from agentnb.views.panel.controls import CancelButton

        return CancelButton(self._live())

    def pause_button(self) -> PauseButton:
        """The panel's button that pauses the whole run, for your own dashboard."""
        from agentnb.views.panel.controls import PauseButton

        return PauseButton(self._live())

    def _new_publisher(self) -> FramePublisher:
        from agentnb.views.panel.commands import Commands
        from agentnb.views.panel.frames import FramePublisher, interrupt_open, show_ends

        before_exit(interrupt_open)  # a page that is saved then has what the store has
        at_exit(show_ends)  # and how the others ended
        budget = self._request.budget
        return FramePublisher(
            self._bus,
            budget=lambda: (budget.tokens_used, budget.total, budget.unit),
            cost=self._cost_so_far,
            viewers=self._viewers,
            commands=lambda tell: Commands(_ByPanel(self), self._runtime.call_soon, tell),
            kept=self._kept,
            receipt=lambda: self.receipt,
            at_end=self._told_at_end,
            is_awaited=lambda: bool(self._waiting) or self._was_awaited,
        )

    def _told_at_end(self) -> str:
        """What the panel tells when the run has ended; the cell's outputs do not have it."""
        line = "" if self._tally is None else f"{self._tally}."
        return line[:1].upper() + line[1:]


_newest: weakref.ref[Run[Any]] | None = None
"""The run that a person started last in this process, in any session."""


def note_newest(run: Run[Any]) -> None:
    """Note that a person has started a run."""
    global _newest
    _newest = weakref.ref(run)


def newest_run() -> Run[Any] | None:
    """The run that was started last in this process.

    `None` before the first, and if nothing references it: a session keeps its own newest one.
    """
    return None if _newest is None else _newest()


class _ByPanel(RunControls):
    """A run's controls for its panels: their orders are recorded as the panel's."""

    def __init__(self, run: Run[Any]) -> None:
        self._run = run

    def cancel(self, agent: str | None = None, reason: str | None = None) -> CancelReceipt:
        return self._run._cancel(agent, reason, by="panel")

    def set_budget(self, total: int) -> None:
        self._run._set_budget(total, by="panel")

    def answer_budget(self, answer: str) -> None:
        self._run._answer_budget(answer, by="panel")

    @property
    def questions(self) -> tuple[Question, ...]:
        return self._run.questions

    def answer(
        self, question_id: str, answer: str, *, value: Any = None, reason: str | None = None
    ) -> None:
        self._run._answer(question_id, answer, value=value, reason=reason, by="panel")

    def tell(self, agent: str, text: str) -> None:
        self._run._tell(agent, text, by="panel")

    def pause(self, agent: str | None = None) -> None:
        self._run._pause(agent, by="panel")

    def resume(self, agent: str | None = None) -> None:
        self._run._resume(agent, by="panel")


@contextmanager
def interrupts_cancel(task: asyncio.Task[object]) -> Iterator[None]:
    """Let an interrupt cancel a waiting task: ipykernel does so for the first interrupt only."""
    loop = asyncio.get_running_loop()
    with INTERRUPTS.heard_by(lambda: loop.call_soon_threadsafe(task.cancel), alone=True):
        yield
