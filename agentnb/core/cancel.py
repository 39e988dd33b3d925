"""A tree of cancel scopes, one for each agent, reachable by agent id from any thread.

A scope is entered by the task that runs the agent. It cancels that task at most once, so clean-up
code is never interrupted by a second cancel. Only its own cancellation becomes `AgentStopped`, with
agent and reason; any other passes through.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from agentnb.core.errors import AgentnbError, InternalError

T = TypeVar("T")


class AgentStopped(AgentnbError):
    """Raised by a scope whose agent was cancelled. Stays inside the orchestrator."""

    def __init__(self, agent_id: str, reason: str) -> None:
        super().__init__(agent_id, reason)
        self.agent_id, self.reason = agent_id, reason


def is_own_cancellation(error: BaseException) -> bool:
    """True for this task's own cancellation, and for the closing of its coroutine.

    False for anything that foreign code raised, even if that is a `CancelledError`.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    # Closing a coroutine raises a new `GeneratorExit` in each of its frames. One that foreign code
    # raised has passed through that code's frame as well.
    trace = error.__traceback__
    return isinstance(error, GeneratorExit) and (trace is None or trace.tb_next is None)


class foreign:
    """`with foreign("the gate"):` around foreign code, which may raise anything.

    Every `BaseException` is caught: a `SystemExit` would end the runtime's loop, and any other the
    run. Code with its own handling calls `is_own_cancellation` itself.

    Args:
        where: Names the code in the error; a function is called only for an error.
        passes: Errors that pass unchanged.

    Raises:
        InternalError: The block raised anything except this task's own cancellation.
    """

    __slots__ = ("_passes", "_where")

    def __init__(
        self, where: str | Callable[[], str], passes: tuple[type[BaseException], ...] = ()
    ) -> None:
        self._where, self._passes = where, passes

    def __enter__(self) -> None:
        return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None or isinstance(error, self._passes) or is_own_cancellation(error):
            return
        where = self._where if isinstance(self._where, str) else self._where()
        wrapped = InternalError.wrapping(error, where=where)
        # The error may contain a key: keep it out of this frame's locals and of the context.
        del error, trace
        try:
            raise wrapped from wrapped.__cause__
        finally:
            wrapped.__context__ = None


async def wait_shielded(
    tasks: Iterable[asyncio.Task[Any]], on_cancel: Callable[[], None] | None = None
) -> asyncio.CancelledError | None:
    """Wait until all of `tasks` have ended, even if the waiting task is cancelled meanwhile.

    Args:
        tasks: Their results and errors are left to the caller.
        on_cancel: Called for each arriving cancellation.

    Returns:
        The newest cancellation, for the caller to raise when it is done; `None` if there was none.
    """
    cancelled: asyncio.CancelledError | None = None
    pending = set(tasks)
    while pending:
        try:
            _, pending = await asyncio.wait(pending)
        except asyncio.CancelledError as error:
            cancelled = error
            if on_cancel is not None:
                on_cancel()
    return cancelled


async def shielded(work: asyncio.Future[T]) -> T:
    """Await work that others may await, too: a cancellation ends this wait, but not the work.

    Not `asyncio.shield`: with that, asyncio reports an error of the work if no wait is left.
    """
    try:
        await asyncio.wait((work,))
    except asyncio.CancelledError:
        work.add_done_callback(retrieve_error)
        raise
    return work.result()


def retrieve_error(done: asyncio.Future[Any]) -> None:
    """Done callback that keeps asyncio from reporting an error that nobody retrieves."""
    if not done.cancelled():
        done.exception()


class CancelScope:
    """One agent's cancel scope, entered by the agent's task."""

    def __init__(self, cancellation: Cancellation, agent_id: str, parent_id: str | None) -> None:
        self.agent_id = agent_id
        self.parent_id = parent_id
        self.reason: str | None = None
        """Why it was cancelled; `None` if it was not."""
        self.by = ""
        """Who cancelled it; empty if not cancelled."""
        self.ended = asyncio.Event()
        """Set when the agent's terminal event is published."""
        self._cancellation = cancellation
        self._task: asyncio.Task[object] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._delivered = False
        self._cancelling = 0
        self.order: list[CancelScope] = []
        """All scopes that the same `Cancellation.cancel` stopped."""
        self.closed = False
        """Whether the agent has left its scope, so that a cancel cannot reach it."""

    async def __aenter__(self) -> CancelScope:
        with self._cancellation.lock:
            if self.reason is not None:
                self.closed = True
                raise AgentStopped(self.agent_id, self.reason)
            self._task = asyncio.current_task()
            self._loop = asyncio.get_running_loop()
            self._cancelling = self._task.cancelling() if self._task is not None else 0
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._cancellation.lock:
            task, self._task = self._task, None
            self.closed = True
        arrived = error if isinstance(error, asyncio.CancelledError) else None
        if self._delivered and task is not None:
            if arrived is None:
                # The task was cancelled after its last await: receive the cancellation here.
                try:
                    await asyncio.sleep(0)
                except asyncio.CancelledError as late:
                    arrived = late
            task.uncancel()
        # Three ways out: the task was cancelled from elsewhere, too, and that cancellation passes;
        # only this scope was cancelled; or neither, and `error` passes.
        if arrived is not None and task is not None and task.cancelling() > self._cancelling:
            raise arrived
        if self.reason is not None:
            raise AgentStopped(self.agent_id, self.reason) from error

    def _deliver(self) -> None:
        """On the scope's own loop: stop the task, unless it has left the scope meanwhile."""
        if self._task is not None and not self._delivered:
            self._delivered = True
            self._task.cancel()


def _deliver_soon(scopes: Iterable[CancelScope]) -> None:
    """Have a cancel delivered on each scope's loop, from any thread."""
    by_loop: dict[asyncio.AbstractEventLoop, list[CancelScope]] = {}
    for scope in scopes:
        if scope._loop is not None:  # a scope that is not entered yet reads its reason on entry
            by_loop.setdefault(scope._loop, []).append(scope)
    for loop, theirs in by_loop.items():
        # One call per loop: each wakes the loop, which takes longer than the rest.
        with suppress(RuntimeError):  # the loop is closed, so its tasks have ended
            loop.call_soon_threadsafe(_deliver, theirs)


def _end_waits(waiting: Mapping[asyncio.Future[None], asyncio.AbstractEventLoop]) -> None:
    for each, loop in waiting.items():
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_end_wait, each)


def _end_wait(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _deliver(scopes: Iterable[CancelScope]) -> None:
    for scope in scopes:
        scope._deliver()


class _Order(NamedTuple):
    """A cancel order and the scopes that it stops."""

    agent_id: str | None
    reason: str
    by: str
    scopes: list[CancelScope]


class Cancellation:
    """All scopes of one run. Thread-safe."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._scopes: dict[str, CancelScope] = {}
        self._children: dict[str, list[str]] = {}
        self._root_reason: str | None = None
        self._root_by = ""
        self._on_order: Callable[[str | None, str, str], None] | None = None
        self.root_order: list[CancelScope] = []
        """All scopes stopped by the cancel of the whole run."""
        self._below: weakref.WeakSet[Cancellation] = weakref.WeakSet()
        """The cancellations of the runs below. Weak, so that ended runs do not stay in memory."""
        self._above: list[Cancellation] = []
        """Those of the runs above. Strong: a cancel reaches this one through them, even after their
        own runs have ended."""
        self._waiting: dict[asyncio.Future[None], asyncio.AbstractEventLoop] = {}
        self._held: list[_Order] | None = None
        """The orders that wait for `go_on`; `None` while orders need not wait."""
        self._gone_on = asyncio.Event()
        self._gone_on.set()

    def scope(self, agent_id: str, parent_id: str | None = None) -> CancelScope:
        """Create the scope of a new agent; already cancelled if its parent is."""
        with self.lock:
            made = CancelScope(self, agent_id, parent_id)
            self._scopes[agent_id] = made
            if parent_id is None:
                made.reason, made.order = self._root_reason, self.root_order
                made.by = self._root_by
            else:
                self._children.setdefault(parent_id, []).append(agent_id)
                parent = self._scopes[parent_id]
                made.reason, made.order = parent.reason, parent.order
                made.by = parent.by
            if made.reason is not None:
                made.order.append(made)
            return made

    @property
    def root_reason(self) -> str | None:
        """Why the whole run was cancelled; `None` if it was not."""
        return self._root_reason

    @property
    def root_by(self) -> str:
        """Who cancelled the whole run; empty if not cancelled."""
        return self._root_by

    async def root_cancelled(self) -> None:
        """Wait until the whole run is cancelled. The cancel may come from any thread."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        with self.lock:
            if self._root_reason is not None:
                return
            self._waiting[waiting] = loop
        try:
            await waiting
        finally:
            with self.lock:
                self._waiting.pop(waiting, None)

    def add_below(self, other: Cancellation) -> None:
        """Let a cancel of this whole run, past or future, cancel the whole run of `other`, too.

        This includes a cancel after this run has ended, and a cancel of a run above this one. The
        cancel of a single agent does not reach `other`.
        """
        with self.lock:
            self._below.add(other)
            other._above.append(self)
            reason, by = self._root_reason, self._root_by
        if reason is not None:
            other.cancel(None, reason, by=by)

    def when_ordered(self, callback: Callable[[str | None, str, str], None] | None) -> None:
        """Call `callback` with agent id, reason and author of each `cancel`, in its thread.

        Also called at once if the run was cancelled before. Not called for cancels by agents.
        `None` removes it.
        """
        with self.lock:
            self._on_order, reason, by = callback, self._root_reason, self._root_by
        if reason is not None and callback is not None:
            callback(None, reason, by)

    def hold(self) -> None:
        """Let orders wait for `go_on`, while a recovered run repeats its record.

        Call it on the run's loop, like `go_on`.
        """
        with self.lock:
            self._held = []
        self._gone_on.clear()

    def go_on(self) -> None:
        """Carry out the orders since `hold`, and stop holding."""
        with self.lock:
            held, self._held = self._held or [], None
        for each in held:
            for deliver in self._order(*each)[1]:
                deliver()
        self._gone_on.set()

    async def gone_on(self) -> None:
        """Wait until orders no longer wait. Call it on the run's loop."""
        await self._gone_on.wait()

    def cancel(
        self,
        agent_id: str | None = None,
        reason: str = "cancelled",
        *,
        by: str = "code",
        at_once: bool = False,
    ) -> list[CancelScope]:
        """Cancel an agent and everything below it, or the whole run. Returns at once.

        Between `hold` and `go_on` an order only waits; its scopes follow later. A second order to
        cancel the whole run does not wait.

        Args:
            agent_id: The agent; `None` for the whole run.
            reason: Recorded in the terminal events.
            by: Who orders it: `panel`, `code`, `gate`, `limit` or `agent`.
            at_once: Whether to ignore `hold`.

        Returns:
            The scopes that this call stopped; empty if nothing was left to stop. `ended` is set on
            each when its agent has ended. Agents started below them meanwhile are stopped, too,
            and their scopes are added to this list. Scopes of runs below, which a cancel of the
            whole run also stops, are not in it.

        Raises:
            KeyError: There is no such agent.
        """
        made = _Order(agent_id, reason, by, [])
        if not at_once and self._is_held(made):
            return made.scopes
        order, deliveries = self._order(*made)
        # All are marked before any stops: else work that waits for one of them would start.
        for deliver in deliveries:
            deliver()
        return order

    def _is_held(self, order: _Order) -> bool:
        """Whether an order must wait for `go_on`; if so, it is queued."""
        with self.lock:
            if self._held is None:
                return False
            if order.agent_id is not None:
                self._scopes[order.agent_id]  # raises for an agent that is not there
            elif any(each.agent_id is None for each in self._held):
                return False  # a person insists: `go_on` may never come
            else:
                self.root_order = order.scopes
            self._held.append(order)
            return True

    def _order(
        self, agent_id: str | None, reason: str, by: str, order: list[CancelScope]
    ) -> tuple[list[CancelScope], list[Callable[[], None]]]:
        """Mark scopes as cancelled, and add them to `order`.

        Returns:
            `order`, and functions that then deliver the cancel to the tasks.
        """
        below: list[Cancellation] = []
        waiting: dict[asyncio.Future[None], asyncio.AbstractEventLoop] = {}
        with self.lock:
            if agent_id is None and self._root_reason is None:
                self._root_reason, self.root_order, self._root_by = reason, order, by
                below, waiting = list(self._below), dict(self._waiting)
            for scope in self._with_all_below(agent_id):
                if not scope.closed and scope.reason is None:
                    scope.reason, scope.order, scope.by = reason, order, by
                    order.append(scope)
            stopped_now = order.copy()
        if stopped_now and by != "agent" and self._on_order is not None:
            self._on_order(agent_id, reason, by)  # before the order has any effect
        deliveries: list[Callable[[], None]] = [
            partial(_deliver_soon, stopped_now),
            partial(_end_waits, waiting),
        ]
        for other in below:  # outside this lock: two runs have no order in which to take locks
            deliveries += other._order(None, reason, by, [])[1]
        return order, deliveries

    def cancelled(self, agent_id: str | None = None) -> list[CancelScope]:
        """The cancelled scopes of an agent and everything below it, or of the whole run."""
        with self.lock:
            return [scope for scope in self._with_all_below(agent_id) if scope.reason is not None]

    @property
    def agent_ids(self) -> list[str]:
        return list(self._scopes)

    def _with_all_below(self, agent_id: str | None) -> Iterator[CancelScope]:
        if agent_id is None:
            stack = [scope.agent_id for scope in self._scopes.values() if scope.parent_id is None]
        else:
            stack = [agent_id]
        while stack:
            current = stack.pop()
            yield self._scopes[current]
            stack.extend(self._children.get(current, ()))
