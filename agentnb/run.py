"""The handle that a person holds of one running or finished tree.

A run lives on the runtime thread; a `Run` may be asked and ordered from any thread and any
loop. What it tells is in `agentnb.record`. Waiting for it never ends it: only `cancel`, and the
waits that own their run (`%%spawn`, `run_sync`), do.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from agentnb.core.budget import RequestBudget
from agentnb.core.bus import EventBus
from agentnb.core.errors import UnknownAgent
from agentnb.core.events import Entry
from agentnb.core.request import RequestContext
from agentnb.core.types import (
    ROOT_PATH,
    CancelReceipt,
    OrchestratorResult,
    is_at_or_below,
    path_key,
    path_of,
)
from agentnb.record import RunRecord
from agentnb.runtime import GONE, Runtime
from agentnb.views.panel.viewers import Viewers

if TYPE_CHECKING:
    from agentnb.views.panel.controls import BudgetNumber, BudgetSlider, CancelButton
    from agentnb.views.panel.frames import FramePublisher

SLICE_S = 0.1
"""Whoever waits wakes so often: a loop delivers an interrupt only then, and a thread that an
interrupt meets on its way to sleep would sleep on with it."""
STOP_PATIENCE_S = 10.0
"""A cancel waits so long for what does not stop, and then says that it still runs."""


class Run(RunRecord):
    """One execution of a tree, from one task. Made by `Session.spawn`."""

    def __init__(
        self,
        task: str,
        execution: Coroutine[Any, Any, OrchestratorResult],
        *,
        request: RequestContext,
        bus: EventBus,
        runtime: Runtime,
        viewers: Viewers | None = None,
    ) -> None:
        super().__init__(request.run_id, task, bus)
        self._request = request
        self._runtime = runtime
        self._viewers = viewers or Viewers()
        self._future = runtime.submit(execution)
        self._waiting = waiting = set[Callable[[], None]]()
        # By the set: a future keeps its callbacks, so of those who gave up waiting none is one.
        self._future.add_done_callback(lambda _: [wake() for wake in waiting.copy()])

    # -- waiting ------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, None, OrchestratorResult]:
        return self._wait().__await__()

    async def _wait(self) -> OrchestratorResult:
        """Wait on the caller's own loop, in slices that let an interrupt through."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the waiting loop is closed: nobody waits any more
                loop.call_soon_threadsafe(done.set)

        self._waiting.add(wake)
        try:
            while not self._future.done():
                self._check_alive()
                with suppress(TimeoutError):
                    async with asyncio.timeout(SLICE_S):
                        await done.wait()
        finally:
            self._waiting.discard(wake)
        return self._outcome()

    def _outcome(self) -> OrchestratorResult:
        try:
            return self._future.result()
        except concurrent.futures.CancelledError:  # the runtime was closed under it
            raise RuntimeError(GONE) from None

    def _check_alive(self) -> None:
        if not self._future.done() and not self._runtime.is_alive:
            raise RuntimeError(GONE)

    def result(self, timeout: float | None = None) -> OrchestratorResult:
        """Block until the run has ended.

        Args:
            timeout: Seconds to wait at most; the run goes on afterwards.

        Raises:
            TimeoutError: The run has not ended in time.
            LlmError, NoAnswer, RunCancelled, InternalError: How the run ended, with
                `partial_result`.
            RuntimeError: Called on the runtime thread itself, which would wait for itself; or the
                run's loop is gone.
        """
        if self._runtime.is_current_thread and not self._future.done():
            raise RuntimeError(
                "On the runtime's own thread a run can only be awaited: `await run`."
            )
        if not self._has_ended_within(timeout):
            raise TimeoutError(f"The run has not ended after {timeout:g} s; it goes on.")
        return self._outcome()

    def _has_ended_within(self, timeout: float | None) -> bool:
        """Block on the caller's own thread, in slices that let an interrupt through."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        done = threading.Event()
        self._waiting.add(done.set)
        try:
            while not self._future.done():
                self._check_alive()
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                done.wait(min(SLICE_S, left))
        finally:
            self._waiting.discard(done.set)
        return True

    def result_or_cancel(self) -> OrchestratorResult:
        """Block as the run's owner: the first interrupt cancels it, the second gives up waiting."""
        try:
            return self.result()
        except KeyboardInterrupt:
            if not self.stop_soon("interrupted"):
                raise
        return self.result()

    def stop_soon(self, reason: str) -> bool:
        """Order the whole run to stop, without waiting; false when that was ordered before."""
        cancellation = self._request.cancellation
        return cancellation.cancel(None, reason) is cancellation.root_order

    async def wait_or_cancel(self) -> OrchestratorResult:
        """Await as the run's owner: the first interrupt cancels it, the second gives up waiting."""
        try:
            return await self._wait()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._future.done() or task is None:
                raise
            task.uncancel()
        self.stop_soon("interrupted")
        with _interrupts_cancel(task):
            return await self._wait()

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return self._future.done()

    # -- looking ------------------------------------------------------------------------------

    async def stream(self) -> AsyncIterator[Entry]:
        """Every entry from the beginning to the end, as it happens, on the caller's loop.

        What is past when it begins comes entry by entry; of what happens then, a reader that
        falls far behind gets deltas joined. See `agentnb.core.bus`.

        Raises:
            RuntimeError: The run's loop is gone before the run has ended.
        """
        entries = self._bus.subscribe()
        while True:
            try:
                # In slices that let an interrupt through, and see that the loop of the run is gone.
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
        """The root agent's id, and so its thread's; known before the run has begun."""
        return self._request.thread_id

    @property
    def budget(self) -> RequestBudget:
        """The pot that all agents of the run draw on."""
        return self._request.budget

    # -- steering -----------------------------------------------------------------------------

    def cancel(self, agent: str | None = None, reason: str | None = None) -> CancelReceipt:
        """Stop one agent with all below it, or the whole run, and wait until it has stopped.

        What does not stop within 10 s is named in the receipt's `still_running`, and so is an
        agent with a synchronous tool that outlived its 2 s. A second cancel stops nothing more,
        and says what is left of it. On the runtime's own thread the order is given and not
        waited for.

        Args:
            agent: A path (`1.2`), an agent's id, or nothing for everything.
            reason: What the tree and the error will say.

        Raises:
            UnknownAgent: The run has no such agent.
            RuntimeError: The run's loop is gone.
        """
        agent_id = None if agent is None or self._is_root(agent) else self._id_of(agent)
        if self.done:
            return CancelReceipt((), 0, self._abandoned(agent_id))
        self._check_alive()
        started = time.monotonic()
        cancellation = self._request.cancellation
        order = cancellation.cancel(agent_id, reason or "cancelled by hand")
        if not self._runtime.is_current_thread:
            self._wait_until_stopped(agent_id)
        agents = [scope.agent_id for scope in order]
        still = [s.agent_id for s in cancellation.cancelled(agent_id) if not s.ended.is_set()]
        still += {*self._abandoned(agent_id)} - {*still}
        if not cancellation.agent_ids and cancellation.root_order is order:
            agents = still = [self.thread_id]  # the root comes to be, and is stopped, soon
        duration_ms = round((time.monotonic() - started) * 1000)
        in_order = self._in_path_order
        return CancelReceipt(in_order(agents), duration_ms, in_order(still))

    def _wait_until_stopped(self, agent_id: str | None) -> None:
        """Wait for what was ordered, by this order or by one before it."""

        async def stopped() -> None:
            for scope in self._request.cancellation.cancelled(agent_id):
                await scope.ended.wait()

        waiting = self._runtime.submit(stopped())
        # The run of a root that was stopped is over as soon as it has told so.
        ends: list[concurrent.futures.Future[Any]] = [waiting]
        if agent_id is None:
            ends.append(self._future)
        try:
            concurrent.futures.wait(ends, timeout=STOP_PATIENCE_S)
        finally:
            waiting.cancel()

    def _abandoned(self, agent_id: str | None) -> tuple[str, ...]:
        """Of an agent and all below it, or of all, those whose tools go on without them."""
        left = self._request.abandoned.agent_ids
        if agent_id is not None:
            left = {name for name in left if is_at_or_below(name, agent_id)}
        return self._in_path_order(left)

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

    def set_budget(self, total: int) -> None:
        """Set the total of the running request, up or down; in force when this returns.

        Raises:
            ValueError: `total` is not a whole number of tokens, at least 0.
            RuntimeError: The run's loop is gone.
        """
        if not self.done:
            self._check_alive()
        self._request.budget.set_total(total)
        if not self._runtime.is_current_thread:
            self._runtime.call(lambda: None)  # behind the news of the new total on the loop

    def answer_budget(self, answer: str) -> None:
        """Answer the question that a paused run asks: `continue` or `stop`.

        Raises:
            ValueError: It is neither.
            NoOpenQuestion: Nothing was asked.
            RuntimeError: The run's loop is gone.
        """
        self._runtime.call(lambda: self._request.answer_budget(answer))

    # -- live views ---------------------------------------------------------------------------

    def budget_slider(self) -> BudgetSlider:
        """The panel's slider for the total, for a dashboard of your own."""
        from agentnb.views.panel.controls import BudgetSlider  # widgets: only for those who look

        return BudgetSlider(self._live())

    def budget_number(self) -> BudgetNumber:
        """The panel's number for the total, for a dashboard of your own."""
        from agentnb.views.panel.controls import BudgetNumber

        return BudgetNumber(self._live())

    def cancel_button(self) -> CancelButton:
        """The panel's button that stops the whole run, for a dashboard of your own."""
        from agentnb.views.panel.controls import CancelButton

        return CancelButton(self._live())

    def _new_feed(self) -> FramePublisher:
        from agentnb.views.panel.commands import Commands
        from agentnb.views.panel.frames import FramePublisher

        budget = self._request.budget
        feed = FramePublisher(
            self._bus,
            pot=lambda: (budget.tokens_used, budget.total),
            cost=self._cost_so_far,
            viewers=self._viewers,
        )
        feed.commands = Commands(self, self._runtime.call_soon, feed.tell)
        return feed


@contextmanager
def _interrupts_cancel(task: asyncio.Task[object]) -> Iterator[None]:
    """Have an interrupt cancel a task that waits: ipykernel does so for the first one only."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals belong to the main thread
        return
    loop = asyncio.get_running_loop()

    def cancel(*_: object) -> None:
        loop.call_soon_threadsafe(task.cancel)

    before = signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        # `None` stands for a handler that Python did not set and cannot put back.
        signal.signal(signal.SIGINT, signal.default_int_handler if before is None else before)
