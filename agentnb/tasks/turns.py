"""A run's turn on its thread: it waits, begins with the conversation before it, and ends.

A run waits here until every earlier message of its thread is done, in this process and in others.
Turns belong to the runtime's loop.
"""

from __future__ import annotations

import asyncio
import bisect
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from agentnb.core.durable import MessageKind
from agentnb.core.errors import OrchestratorError, RunCancelled, RunChanged
from agentnb.core.past import NO_LONGER_FITS
from agentnb.core.types import OrchestratorResult
from agentnb.store import pots, queue, task_runs, threads
from agentnb.store.queue import Begun, NotQueued
from agentnb.store.trouble import StoreTrouble
from agentnb.tasks import ends

if TYPE_CHECKING:
    from sqlite3 import Connection

    from agentnb.core.request import RequestContext
    from agentnb.store.queue import Queued
    from agentnb.store.transactions import Transactions
    from agentnb.tasks.at_work import AtWork
    from agentnb.tasks.news import News
    from agentnb.tasks.order import Order, Work
    from agentnb.tasks.starting import Starter

_POLL_S = 0.2
"""Seconds between two checks whether another process has released a message's thread."""
_WITHDRAWN = "its message was withdrawn"


class Turns:
    """The lines of waiting messages of a session's threads in this process.

    Args:
        session_id: The session.
        starter: Starts the runs of messages that an end wakes, or that a dead process left.
        at_work: The session's working runs.
        news: Messages for their agents.
    """

    def __init__(self, session_id: str, starter: Starter, at_work: AtWork, news: News) -> None:
        self._session_id = session_id
        self._starter = starter
        self._at_work = at_work
        self._news = news
        self._lines: dict[str, list[_Waiting]] = {}
        """By thread: the messages of this process that wait or have begun, in order."""

    @property
    def transactions(self) -> Transactions:
        """The database of the session's threads and tasks."""
        return self._starter.transactions

    async def in_turn(
        self,
        work: Work,
        request: RequestContext,
        execute: Callable[[Begun | None], Awaitable[OrchestratorResult]],
    ) -> OrchestratorResult:
        """Wait for a run's turn, run it, and store its end.

        Args:
            work: The run's work.
            request: The run's shared state.
            execute: Runs it, with the conversation before it; `None` for a run that is not on its
                thread.
        """
        waiting = _Waiting(work.queued.message if work.queued is not None else 0, request)
        line = self._lines.setdefault(work.thread_id, [])
        bisect.insort(line, waiting)
        try:
            begun = await self._begin(work, request, waiting, line)
            if begun is None:
                return await execute(None)
            request.numbers.start(work.thread_id, begun.first_child)
            for agent_id, numbers in begun.given.items():
                request.numbers.pass_over(agent_id, numbers)
            self._at_work.begin(request)
            for agent_id in begun.told:
                self._news.tell(agent_id)
            self._news.keep_watch()
            try:
                return await self._run(work, request, execute, begun)
            finally:
                self._at_work.end(request)
                self._news.forget(work.thread_id)
        finally:
            line.remove(waiting)
            if line:
                line[0].news.set()
            elif self._lines.get(work.thread_id) is line:
                del self._lines[work.thread_id]

    def drop(self, message: int) -> None:
        """Drop the run of a message that was removed from its queue."""
        for line in self._lines.values():
            for waiting in line:
                if waiting.message == message:
                    waiting.is_dropped = True
                    waiting.request.cancellation.cancel(None, _WITHDRAWN, by="agent")

    # -- its beginning ----------------------------------------------------------------------------

    async def _begin(
        self, work: Work, request: RequestContext, waiting: _Waiting, line: list[_Waiting]
    ) -> Begun | None:
        """Begin, as soon as it is this run's turn.

        Returns:
            The conversation before it; `None` for a run that is not on its thread: it was cancelled
            before its turn, or nothing can be stored any more.
        """
        if work.queued is None and work.recovering is None:
            try:
                return await self._begin_unqueued(work, request)
            except StoreTrouble:  # the store reports it; the run continues in memory
                return None
        try:
            if (begun := await self._wait_for_turn(work, request, waiting, line)) is not None:
                return begun
            if waiting.is_dropped:
                await self._let_go(work, request)
            else:
                why = str(RunCancelled(request.cancellation.root_reason))
                await self.transactions.done(partial(self._do_not_begin, work, request, why))
        except NotQueued:  # in another process, or by another session with the same id
            request.cancellation.cancel(None, _WITHDRAWN, by="agent")
            await self._let_go(work, request)
        except StoreTrouble as trouble:  # the conversation so far cannot be read
            request.cancellation.cancel(None, str(trouble), by="limit")
        return None

    async def _wait_for_turn(
        self,
        work: Work,
        request: RequestContext,
        waiting: _Waiting,
        line: list[_Waiting],
    ) -> Begun | None:
        """Begin a queued message, or continue a recovered run, when its turn has come.

        Returns:
            The conversation before it; `None` if its run is cancelled first.

        Raises:
            NotQueued: It was removed from the queue, or another run has begun on its thread.
            StoreTrouble: The queue cannot be read.
        """
        try_to = partial(self._try_to_resume, request.run_id, work.thread_id)
        if work.queued is not None:
            try_to = partial(self._try_to_begin, work.queued, request.run_id)
        cancelled = asyncio.ensure_future(request.cancellation.root_cancelled())
        try:
            while request.cancellation.root_reason is None:
                waiting.news.clear()
                # A closing session stops its runs one by one: a later one must not begin because an
                # earlier one has ended.
                is_first = line[0] is waiting and not self._starter.is_closed
                if is_first:
                    begun, adopted = await self.transactions.done(try_to)
                    await self._starter.start(adopted)
                    if begun is not None:
                        return begun
                news = asyncio.ensure_future(waiting.news.wait())
                await asyncio.wait(
                    (cancelled, news),
                    timeout=_POLL_S if is_first else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                news.cancel()
        finally:
            cancelled.cancel()
        return None

    async def _begin_unqueued(self, work: Work, request: RequestContext) -> Begun | None:
        """Begin on a new thread, as soon as no other process works in the session's budget."""
        cancelled = asyncio.ensure_future(request.cancellation.root_cancelled())
        try:
            while True:
                begun = await self.transactions.done(partial(self._begin_new, work, request))
                if begun is not None:
                    return begun
                await asyncio.wait((cancelled,), timeout=_POLL_S)
                if request.cancellation.root_reason is not None:
                    return None
        finally:
            cancelled.cancel()

    def _begin_new(self, work: Work, request: RequestContext, db: Connection) -> Begun | None:
        if self._is_elsewhere(db):
            return None
        self._at_work.take_over_session(db, process=self.transactions.process)
        now = time.time()
        threads.open_session(db, self._session_id, now=now)
        threads.new_thread(db, work.thread_id, self._session_id, now=now, begins_with=work.text)
        return queue.begin_new(
            db,
            work.thread_id,
            work.text,
            request.run_id,
            process=self.transactions.process,
            now=now,
        )

    def _try_to_resume(
        self, run_id: str, thread_id: str, db: Connection
    ) -> tuple[Begun | None, list[Order]]:
        """Continue a recovered run that no message began, if that is possible now."""
        transactions = self.transactions
        process = transactions.process
        if pots.is_elsewhere(db, run_id, process=process, is_alive=transactions.is_alive):
            return None, []
        if self._is_elsewhere(db):
            return None, []
        begun = queue.resume(db, thread_id, run_id, process=process)
        if begun is None:
            raise NotQueued(f"Another run than {run_id} has begun on its thread.")
        self._catch_up(db, run_id, None)
        return begun, []

    def _is_elsewhere(self, db: Connection) -> bool:
        """Whether another process works in the session's budget."""
        of = self.transactions
        return self._at_work.session_is_elsewhere(db, process=of.process, is_alive=of.is_alive)

    def _catch_up(self, db: Connection, run_id: str, pot: str | None) -> None:
        """Count what other processes have spent in the budgets above a run's."""
        self._at_work.take_over_session(db, process=self.transactions.process)
        top = run_id if pot is None and pots.has_below(db, run_id) else pot
        if top is not None:
            self._at_work.catch_up(db, top, process=self.transactions.process)

    def _try_to_begin(
        self, queued: Queued, run_id: str, db: Connection
    ) -> tuple[Begun | None, list[Order]]:
        transactions = self.transactions
        begun = None
        if not self._is_elsewhere(db):
            begun = queue.begin(
                db,
                queued.message,
                run_id,
                process=transactions.process,
                is_alive=transactions.is_alive,
                goes_on=queued.goes_on,
            )
        if begun is not None:
            self._catch_up(db, run_id, queued.pot)
        else:
            # Looking for what dead processes left scans the whole queue: only if there is any.
            is_left = queue.is_held_up_by_dead(db, queued.message, is_alive=transactions.is_alive)
            return None, self._starter.adopted(db) if is_left else []
        if queued.task is not None and queued.kind is MessageKind.TASK_ASSIGNMENT:
            task_runs.begin_work(db, queued.task, queued.thread_id, now=time.time())
        return begun, []

    async def _let_go(self, work: Work, request: RequestContext) -> None:
        """Release a run that was to be recovered, as it was."""
        if work.recovering is not None:
            process = self.transactions.process
            with suppress(StoreTrouble):
                await self.transactions.done(
                    partial(queue.let_go, run_id=request.run_id, process=process)
                )

    def _do_not_begin(self, work: Work, request: RequestContext, why: str, db: Connection) -> None:
        process = self.transactions.process
        if work.recovering is not None:
            queue.let_go(db, request.run_id, process=process)
        if work.queued is None:
            return
        if self._starter.is_closed:
            ends.leave(db, work.queued, process=process)
        else:
            ends.withdraw(db, work.queued, why)

    # -- its work and its end ---------------------------------------------------------------------

    async def _run(
        self,
        work: Work,
        request: RequestContext,
        execute: Callable[[Begun | None], Awaitable[OrchestratorResult]],
        begun: Begun,
    ) -> OrchestratorResult:
        try:
            result = await execute(begun)
        except OrchestratorError as error:
            await self._keep_end(work, request, error.partial_result, str(error))
            raise
        # A task is cancelled from outside when the process ends: the next process recovers the run.
        await self._keep_end(work, request, result, "")
        return result

    async def _keep_end(
        self,
        work: Work,
        request: RequestContext,
        result: OrchestratorResult | None,
        error: str,
    ) -> None:
        """Store a run's end, and start the runs of messages that it wakes."""
        if work.recovering is not None and work.recovering.is_undone:
            with suppress(StoreTrouble):
                await self._keep_refusal(work, request)
            return

        def end(db: Connection) -> list[Order]:
            process = self.transactions.process
            woken = ends.end(db, work, request, result, error, process=process)
            return self._starter.orders(db, woken)

        with suppress(StoreTrouble):
            await self._starter.start(await self.transactions.done(end))

    async def _keep_refusal(self, work: Work, request: RequestContext) -> None:
        """Release a run that no longer fits its record: nothing of it has changed."""
        assert work.recovering is not None
        run_id = request.run_id
        is_stopped = request.cancellation.root_reason != NO_LONGER_FITS
        if work.order is None or work.is_by_hand or self._starter.is_closed:
            await self.transactions.done(partial(self._leave, work, run_id))
        elif is_stopped:  # meanwhile, by a person or with the run above
            why = str(RunCancelled(request.cancellation.root_reason))
            await self.transactions.done(partial(self._do_not_begin, work, request, why))
        else:
            why = str(RunChanged(run_id, work.recovering.past.misfits))
            await self._starter.start([await self._starter.begin_once_more(work.order, why)])

    def _leave(self, work: Work, run_id: str, db: Connection) -> None:
        """Undo `resume`: leave the run as it was."""
        queue.leave(db, run_id, process=self.transactions.process)
        if work.recovering is not None and work.recovering.was_exhausted:
            queue.put_back(db, work.thread_id, run_id)


class _Waiting:
    """A message's place in its thread's line."""

    def __init__(self, message: int, request: RequestContext) -> None:
        self.message = message
        self.request = request
        self.news = asyncio.Event()
        self.is_dropped = False
        """Whether its message was removed from the queue."""

    def __lt__(self, other: _Waiting) -> bool:
        return self.message < other.message
