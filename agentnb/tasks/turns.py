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
from agentnb.core.errors import OrchestratorError, RunCancelled
from agentnb.core.types import OrchestratorResult
from agentnb.store import queue, task_runs, threads
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
"""How often a message looks whether another process has let go of its thread, in seconds."""
_WITHDRAWN = "its message was withdrawn"


class Turns:
    """The lines of a session's threads in this process.

    Args:
        session_id: The session.
        starter: Starts what an end wakes, or a dead process left.
        at_work: The session's runs.
        news: What their agents are told.
    """

    def __init__(self, session_id: str, starter: Starter, at_work: AtWork, news: News) -> None:
        self._session_id = session_id
        self._starter = starter
        self._at_work = at_work
        self._news = news
        self._lines: dict[str, list[_Waiting]] = {}
        """By thread: the messages of this process that wait or are at work, in order."""

    @property
    def transactions(self) -> Transactions:
        """The database that the session's threads and tasks are in."""
        return self._starter.transactions

    async def in_turn(
        self,
        work: Work,
        request: RequestContext,
        execute: Callable[[Begun], Awaitable[OrchestratorResult]],
    ) -> OrchestratorResult:
        """Wait for a run's turn, run it, and keep its end.

        Args:
            work: What it works on.
            request: Its shared state.
            execute: Runs it, with the conversation before it.
        """
        waiting = _Waiting(work.queued.message if work.queued is not None else 0, request)
        line = self._lines.setdefault(work.thread_id, [])
        bisect.insort(line, waiting)
        try:
            begun = await self._begin(work, request, waiting, line)
            if begun is None:
                return await execute(Begun((), 1))
            request.numbers.start(work.thread_id, begun.first_child)
            self._at_work.begin(request)
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
        """Drop the run of a message that was taken out of its queue."""
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
            `None` for a run that is not on its thread: it was cancelled before its turn, or nothing
            can be kept any more.
        """
        queued = work.queued
        if queued is None:
            begin = self._begin_new if work.first_child is None else self._resume
            try:
                return await self.transactions.done(partial(begin, work, request))
            except StoreTrouble:  # told by the store; the run goes on in memory
                return None
        try:
            if (begun := await self._wait_for_turn(queued, request, waiting, line)) is not None:
                return begun
            if not waiting.is_dropped:
                why = str(RunCancelled(request.cancellation.root_reason))
                await self.transactions.done(partial(self._do_not_begin, queued, why))
        except NotQueued:  # in another process, or by another session with the same id
            request.cancellation.cancel(None, _WITHDRAWN, by="agent")
        except StoreTrouble as trouble:  # what was said before cannot be read
            request.cancellation.cancel(None, str(trouble), by="limit")
        return None

    async def _wait_for_turn(
        self,
        queued: Queued,
        request: RequestContext,
        waiting: _Waiting,
        line: list[_Waiting],
    ) -> Begun | None:
        """Begin a queued message when its turn has come. `None` if its run is cancelled first.

        Raises:
            NotQueued: It was taken out of the queue.
            StoreTrouble: The queue cannot be read.
        """
        cancelled = asyncio.ensure_future(request.cancellation.root_cancelled())
        try:
            while request.cancellation.root_reason is None:
                waiting.news.clear()
                is_first = line[0] is waiting
                if is_first:
                    begun, adopted = await self.transactions.done(
                        partial(self._try_to_begin, queued, request.run_id)
                    )
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

    def _begin_new(self, work: Work, request: RequestContext, db: Connection) -> Begun:
        now = time.time()
        threads.open_session(db, self._session_id, now=now)
        threads.new_thread(db, work.thread_id, self._session_id, now=now)
        return queue.begin_new(
            db,
            work.thread_id,
            work.text,
            request.run_id,
            process=self.transactions.process,
            now=now,
        )

    def _resume(self, work: Work, request: RequestContext, db: Connection) -> Begun | None:
        process = self.transactions.process
        if not queue.resume(db, work.thread_id, request.run_id, process=process):
            return None
        return Begun((), work.first_child or 1)

    def _try_to_begin(
        self, queued: Queued, run_id: str, db: Connection
    ) -> tuple[Begun | None, list[Order]]:
        transactions = self.transactions
        begun = queue.begin(
            db,
            queued.message,
            run_id,
            process=transactions.process,
            is_alive=transactions.is_alive,
        )
        if begun is not None and queued.pot is not None:
            self._at_work.catch_up(db, queued.pot, process=transactions.process)
        if begun is None:
            # All that the dead left is looked for in all of the queue: only if there is some.
            is_left = queue.is_held_up_by_dead(db, queued.message, is_alive=transactions.is_alive)
            return None, self._starter.adopted(db) if is_left else []
        if queued.task is not None and queued.kind is MessageKind.TASK_ASSIGNMENT:
            task_runs.begin_work(db, queued.task, queued.thread_id, now=time.time())
        return begun, []

    def _do_not_begin(self, queued: Queued, why: str, db: Connection) -> None:
        if self._starter.is_closed:
            ends.leave(db, queued, process=self.transactions.process)
        else:
            ends.withdraw(db, queued, why)

    # -- its work and its end ---------------------------------------------------------------------

    async def _run(
        self,
        work: Work,
        request: RequestContext,
        execute: Callable[[Begun], Awaitable[OrchestratorResult]],
        begun: Begun,
    ) -> OrchestratorResult:
        try:
            result = await execute(begun)
        except OrchestratorError as error:
            await self._keep_end(work, request, error.partial_result, str(error))
            raise
        # A task that is cancelled from outside ends with the process: the next one goes on.
        await self._keep_end(work, request, result, "")
        return result

    async def _keep_end(
        self,
        work: Work,
        request: RequestContext,
        result: OrchestratorResult | None,
        error: str,
    ) -> None:
        """Keep a run's end, and start what it wakes."""

        def end(db: Connection) -> list[Order]:
            process = self.transactions.process
            woken = ends.end(db, work, request, result, error, process=process)
            return self._starter.orders(db, woken)

        with suppress(StoreTrouble):
            await self._starter.start(await self.transactions.done(end))


class _Waiting:
    """A message's place in its thread's line."""

    def __init__(self, message: int, request: RequestContext) -> None:
        self.message = message
        self.request = request
        self.news = asyncio.Event()
        self.is_dropped = False
        """Whether its message was taken out of the queue."""

    def __lt__(self, other: _Waiting) -> bool:
        return self.message < other.message
