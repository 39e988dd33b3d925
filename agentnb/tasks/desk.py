"""The desk of a session: messages are queued, get their runs, have their turn, and end.

The path of a message: `Desk.enqueue`, or a change of the board, queues it; `starting` starts its
run; `turns` lets that run wait for its turn, begin and end; `ends` updates the queue and the
message's task. `news` has the messages for running agents, `at_work` the runs that are working.

Messages are queued and started on any thread; everything else belongs to the runtime's loop.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from agentnb.core.errors import NoSuchThread, SessionClosed, ToolError
from agentnb.core.types import OrchestratorResult, path_of
from agentnb.runtime import get_runtime
from agentnb.store import queue, threads
from agentnb.store.trouble import StoreTrouble
from agentnb.tasks.at_work import AtWork
from agentnb.tasks.news import News
from agentnb.tasks.starting import Starter
from agentnb.tasks.thread import add_own_agents
from agentnb.tasks.turns import Turns

if TYPE_CHECKING:
    from sqlite3 import Connection

    from agentnb.agent_view import AgentView
    from agentnb.core.budget import RequestBudget
    from agentnb.core.money import Rate
    from agentnb.core.request import RequestContext
    from agentnb.run_store import RunStore
    from agentnb.store.queue import Begun, Queued
    from agentnb.store.transactions import Transactions
    from agentnb.tasks.assignment import NewAgent
    from agentnb.tasks.order import Order, RunStarter, Standing, Work
    from agentnb.tasks.session_pot import SessionPot

T = TypeVar("T")


class Desk:
    """One session's messages, and the runs that work on them in this process.

    Implements `agentnb.tasks.task_desk.TaskDesk`.

    Args:
        session_id: The session.
        store: The store of the session's threads.
        runs: Starts and finds runs.
    """

    def __init__(self, session_id: str, store: RunStore, runs: RunStarter) -> None:
        self.session_id = session_id
        self._store = store
        self._at_work = AtWork()
        self.news = News(self._at_work, store.transactions)
        """Messages for running agents."""
        self._starter = Starter(session_id, store, runs, self._at_work, self.news)
        self._turns = Turns(session_id, self._starter, self._at_work, self.news)

    @property
    def transactions(self) -> Transactions:
        """The database of the session's threads and tasks."""
        return self._store.transactions()

    # -- the session's budget ---------------------------------------------------------------------

    def limit(self, pot: SessionPot | None, rate_for: Callable[[str], Rate | None]) -> None:
        """Limit what the session's runs may spend together.

        Args:
            pot: The session's budget; `None` for no limit.
            rate_for: Returns the prices of a model; `None` if it has none.
        """
        self._at_work.session, self._at_work.rate_for = pot, rate_for

    @property
    def session_budget(self) -> RequestBudget | None:
        """The session's budget, above those of its runs."""
        pot = self._at_work.session
        return None if pot is None else pot.budget

    def check_budget(self) -> None:
        """Raise `SessionBudgetUsedUp` if the session's runs have spent its budget. May block."""
        if (pot := self._at_work.session) is not None:
            self._look()
            pot.check()

    def share(self) -> str:
        """How much of the session's budget is spent, in words; empty without one. May block."""
        self._look()
        return "" if self._at_work.session is None else str(self._at_work.session)

    def _look(self) -> None:
        """Count what other processes have spent, unless that would block the loop."""
        at_work = self._at_work
        if at_work.session is None or get_runtime().is_current_thread:
            return  # a run that begins counts it
        with suppress(StoreTrouble):
            process = self.transactions.process
            self.transactions.do(partial(at_work.look_at_session, process=process))

    # -- for the session --------------------------------------------------------------------------

    def enqueue(self, thread_id: str, text: str, given: Mapping[str, Any]) -> Queued:
        """Queue a person's message. Blocks until it is on disk.

        Raises:
            NoSuchThread: The session has no such thread.
            StoreTrouble: It cannot be stored.
        """
        queued: Queued | None = None

        def work(db: Connection) -> Queued:
            nonlocal queued
            if not threads.has_thread(db, thread_id, self.session_id):
                raise NoSuchThread(thread_id)
            queued = queue.enqueue(
                db,
                thread_id,
                text,
                process=transactions.process,
                now=time.time(),
                settings=given,
            )
            return queued

        transactions = self.transactions
        try:
            return transactions.do(work)
        except KeyboardInterrupt:
            # The message may be, or soon be, on disk: without a run it would block its thread.
            transactions.do(lambda db: queued and queue.withdraw(db, queued.message))
            raise

    def open_thread(self, thread_id: str, text: str) -> str:
        """Ensure the thread that a started run is about to begin with `text`.

        Returns:
            Its id; empty if the run has begun.
        """
        if self._at_work.run_of(thread_id) is not None:
            return ""

        def work(db: Connection) -> None:
            now = time.time()
            threads.open_session(db, self.session_id, now=now)
            threads.new_thread(db, thread_id, self.session_id, now=now, begins_with=text)

        self.transactions.do(work)
        return thread_id

    def withdraw(self, queued: Queued) -> None:
        """Take back a message whose run could not be started."""
        with suppress(StoreTrouble):
            self.transactions.do(lambda db: queue.withdraw(db, queued.message))

    def take_up(self, run_id: str, thread_id: str) -> tuple[Order | None, Standing]:
        """Take over a run that is recovered by hand. See `Starter.take_up`."""
        return self._starter.take_up(run_id, thread_id)

    def leave(self, run_id: str) -> None:
        """Release a run that was taken over. See `Starter.leave`."""
        with suppress(StoreTrouble):
            self._starter.leave(run_id)

    async def in_turn(
        self,
        work: Work,
        request: RequestContext,
        execute: Callable[[Begun | None], Awaitable[OrchestratorResult]],
    ) -> OrchestratorResult:
        """Wait for a run's turn, run it, and store its end. See `Turns.in_turn`."""
        return await self._turns.in_turn(work, request, execute)

    def adopt(self) -> None:
        """Start what a dead process left queued. See `Starter.adopt`."""
        self._starter.adopt()

    def go_on(self, before: Desk) -> None:
        """Take over the state of an earlier desk of the same session: see `AtWork.go_on`."""
        self._at_work.go_on(before._at_work)

    def close(self) -> None:
        """Start nothing more. See `Starter.close`."""
        self._starter.close()
        self._at_work.close()

    # -- for the board of tasks -------------------------------------------------------------------

    def check_open(self) -> None:
        """See `agentnb.tasks.task_desk.TaskDesk`, like the following methods."""
        if self._starter.is_closed:
            raise SessionClosed

    def check_current(self) -> None:
        """Check that a person may start a run in the session's mode."""
        self._starter.runs.check_current()

    def check_new(self, new: NewAgent) -> None:
        """Check the names of an agent to be created."""
        self._starter.runs.check_new(new)

    def run_of(self, agent_id: str) -> str | None:
        """The id of the run in this process that an agent belongs to."""
        self.news.expect()
        run = self._at_work.run_of(agent_id)
        return None if run is None else run.run_id

    def admit(self, agent_id: str, prompt: str) -> None:
        """Count an agent to be created by another one as a sub-agent of that one's run."""
        run = self._at_work.run_of(agent_id)
        refusal = None if run is None else run.admit_assignment(agent_id, prompt)
        if refusal is not None:
            raise ToolError(f"No agent was made: {refusal.reason}.")

    def orders(self, db: Connection, queued: Iterable[Queued]) -> list[Order]:
        """Read what the runs of queued messages start with."""
        return self._starter.orders(db, queued)

    async def start(self, orders: Iterable[Order]) -> None:
        """Start runs that wait for their turns."""
        await self._starter.start(orders)

    def marks_below(self, agent_id: str) -> Collection[str]:
        """Marks of the tasks that led to an assignment by an agent that runs here."""
        run = self._at_work.run_of(agent_id)
        return () if run is None else run.marks_below(agent_id)

    def gated_for(self, agent_id: str) -> Collection[str]:
        """Names of the tools that need approval when an agent here, or one below it, calls them."""
        run = self._at_work.run_of(agent_id)
        return () if run is None else run.gated_for(agent_id)

    def drop(self, message: int) -> None:
        """Drop the run of a message that was removed from its queue."""
        self._turns.drop(message)

    def tell(self, thread_id: str) -> None:
        """Note that an agent may have got a message."""
        self.news.tell(thread_id)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and block until it has ended."""
        runtime = get_runtime()
        if runtime.is_current_thread:
            work.close()
            raise RuntimeError(
                "On the runtime's own thread, as in an `async def` tool, a task cannot be changed "
                "at once: `await asyncio.to_thread(session.tasks.create, …)`, or make the tool a "
                "plain function."
            )
        return runtime.submit(work).result()

    def take_child(self, db: Connection, thread_id: str) -> int:
        """Take the number of a thread's next child, from its run if one works here."""
        run = self._at_work.run_of(thread_id)
        if run is None:
            return threads.take_child(db, thread_id)
        (number,) = run.numbers.take(thread_id)
        return number

    def ensure_thread(self, db: Connection, thread_id: str) -> None:
        """Ensure rows for an agent that runs here, and for its ancestors."""
        request = self._at_work.run_of(thread_id)
        if request is None or threads.has_thread(db, thread_id):
            return
        run = self._starter.runs.find_run(request.run_id)
        assert run is not None  # it is working
        missing: list[AgentView] = []
        at = thread_id
        while at != request.thread_id and not threads.has_thread(db, at):
            missing.insert(0, run.agent(path_of(at, request.thread_id)))
            at = at.rpartition(".")[0]
        add_own_agents(db, self.session_id, missing)
        for view in missing:
            queue.take_over(db, view.agent_id, request.run_id, process=self.transactions.process)
