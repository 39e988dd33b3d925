"""From messages to runs: the data that a run starts with, and its start.

That data is read in the transaction that queued the message, or took it over. The start itself then
needs nothing from the store, so that it does not block the loop.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from agentnb.core.durable import MessageKind
from agentnb.core.errors import SessionClosed
from agentnb.core.threads import run_in_thread
from agentnb.runtime import get_runtime
from agentnb.store import adoption, claims, queue, task_runs, threads
from agentnb.store.trouble import StoreTrouble
from agentnb.tasks import ends
from agentnb.tasks.order import Order, Standing

if TYPE_CHECKING:
    from sqlite3 import Connection

    from agentnb.run_store import RunStore
    from agentnb.store.queue import Queued
    from agentnb.store.transactions import Transactions
    from agentnb.tasks.at_work import AtWork
    from agentnb.tasks.news import News
    from agentnb.tasks.order import RunStarter

_PATIENCE_S = 10.0
"""Most seconds to wait for runs that are being started."""


class Starter:
    """Starts the runs of a session's messages, in this process.

    Args:
        session_id: The session.
        store: The store of its threads.
        runs: Starts and finds runs.
        at_work: The session's working runs.
        news: Messages for their agents.
    """

    def __init__(
        self, session_id: str, store: RunStore, runs: RunStarter, at_work: AtWork, news: News
    ) -> None:
        self._session_id = session_id
        self._store = store
        self._runs_ref = weakref.ref(runs)
        self._at_work = at_work
        self._news = news
        self._starting: set[Future[None]] = set()
        """Starts that wait for the loop."""
        self.is_closed = False
        """Whether no further run is started."""

    @property
    def runs(self) -> RunStarter:
        """Starts and finds runs.

        Raises:
            SessionClosed: The session does not exist any more.
        """
        # A working run keeps the session alive; its desk alone does not, so that both go together.
        runs = self._runs_ref()
        if runs is None:
            raise SessionClosed
        return runs

    @property
    def transactions(self) -> Transactions:
        """The database of the session's threads and tasks."""
        return self._store.transactions()

    # -- what a run starts with -------------------------------------------------------------------

    def orders(self, db: Connection, queued: Iterable[Queued]) -> list[Order]:
        """See `agentnb.tasks.task_desk.TaskDesk`."""
        orders = []
        for each in queued:
            try:
                orders.append(self._order_for(each, db))
            except Exception as error:  # from another version, say: the others must still start
                ends.refuse(db, each, _why(error))
        return orders

    def _order_for(self, queued: Queued, db: Connection) -> Order:
        row = threads.thread_row(db, queued.thread_id)
        return Order(
            queued,
            None if row is None else row.metadata,
            None if queued.pot is None else self._at_work.pot(db, queued.pot),
            task_runs.marks_above(db, queued.thread_id, queued.task),
            task_runs.name_of(db, queued.task, is_told=queued.kind is MessageKind.TASK_COMPLETION),
            claims.cancel_of(db, queued.pot)
            if queued.pot is not None and _is_work(queued)
            else None,
            self._at_work.standing(db, queued.run_id or "") if queued.goes_on else None,
        )

    def take_up(self, run_id: str, thread_id: str) -> tuple[Order | None, Standing]:
        """Take over a run that this process has claimed, with the message that began it. Blocks.

        Raises:
            CannotRecover: Another run has begun on its thread, or its message begins a new run.
            StoreTrouble: The queue cannot be read or written.
        """
        transactions = self.transactions
        process, is_alive = transactions.process, transactions.is_alive

        def work(db: Connection) -> tuple[Order | None, Standing]:
            queued = adoption.take_up(db, thread_id, run_id, process=process, is_alive=is_alive)
            order = None if queued is None else self._order_for(queued, db)
            return order, self._at_work.standing(db, run_id)

        self._news.expect()
        return transactions.do(work)

    def leave(self, run_id: str) -> None:
        """Release a claimed run until the session is opened again. Blocks."""
        process = self.transactions.process
        self.transactions.do(partial(queue.leave, run_id=run_id, process=process))

    # -- its start --------------------------------------------------------------------------------

    async def start(self, orders: Iterable[Order]) -> None:
        """See `agentnb.tasks.task_desk.TaskDesk`."""
        unstarted: list[Callable[[Connection], None]] = []
        for order in orders:
            try:
                await self._start(order)
            except Exception as error:  # settings of another version, say
                unstarted.append(self._given_up(order.queued, error))
            await asyncio.sleep(0)  # there may be thousands: let working runs continue in between
        if unstarted:
            with suppress(StoreTrouble):
                await self.transactions.done(lambda db: [give_up(db) for give_up in unstarted])

    async def _start(self, order: Order) -> None:
        self._news.expect()
        queued = order.queued
        if queued.goes_on:
            try:
                assert queued.run_id is not None
                run = self.runs.start_order(await self._with_past(order, queued.run_id))
            except SessionClosed:
                raise
            except Exception as error:  # its record, or its settings, cannot be used any more
                order = await self.begin_once_more(order, _why(error))
                run = self.runs.start_order(order)
        else:
            run = self.runs.start_order(order)
        if queued.pot is None:
            return
        above = self._at_work.cancellation_of(queued.pot)
        # Work that a cancelled run assigned ends immediately; a completion still has to arrive.
        if _is_work(queued) or above.root_reason is None:
            run.stop_with(above)
        if order.stopped_by is not None:
            run.stop_soon(order.stopped_by)

    async def _with_past(self, order: Order, run_id: str) -> Order:
        """The order with the past of its run, which this process has claimed."""
        read = partial(self._store.past_of, run_id, changed="refuse")
        return replace(order, recovering=await run_in_thread(read))

    async def begin_once_more(self, order: Order, why: str) -> Order:
        """Let the message of a run that cannot continue begin a new one."""
        process = self.transactions.process
        queued = order.queued
        await self.transactions.done(
            partial(ends.drop_run, queued=queued, why=why, process=process)
        )
        return replace(order, queued=replace(queued, goes_on=False), standing=None, recovering=None)

    def _given_up(self, queued: Queued, error: Exception) -> Callable[[Connection], None]:
        """The work in the store for a message whose run did not start."""
        if isinstance(error, SessionClosed) or not get_runtime().is_alive:
            # No session or, as the process ends, no loop: leave it until the session is reopened.
            return lambda db: ends.leave(db, queued, process=self.transactions.process)
        return partial(ends.refuse, queued=queued, why=_why(error))

    def _start_soon(self, orders: Iterable[Order]) -> Future[None]:
        """Start runs on the loop. From any thread."""

        async def start(_: RunStarter = self.runs) -> None:  # keeps the session until all started
            await self.start(orders)

        starting = get_runtime().submit(start())
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)
        return starting

    # -- what dead processes left -----------------------------------------------------------------

    def adopt(self) -> None:
        """Start what dead processes left queued. Blocks, unless called on the loop.

        When it returns, the first message of each thread has its run; the others get theirs soon.
        """
        self._news.expect()
        first, behind = _by_turn(self.transactions.do(self.adopted))
        starting = self._start_soon(first)
        try:
            if not get_runtime().is_current_thread:
                starting.result()
        finally:  # an interrupt ends the waiting only
            self._start_soon(behind)

    def adopted(self, db: Connection) -> list[Order]:
        """Take over what dead processes left, and store the ends of their runs that had ended."""
        process, is_alive = self.transactions.process, self.transactions.is_alive
        queued: list[Queued] = []
        for each in adoption.adopt(db, self._session_id, process=process, is_alive=is_alive):
            woken = ends.end_of_dead(db, each, process=process)
            queued += [each] if woken is None else woken
        return self.orders(db, queued)

    # -- its end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Start no further runs, and leave the rest until the session is opened again.

        Blocks until no run is being started, unless called on the loop.
        """
        self.is_closed = True
        is_own = self._store.pid == os.getpid()  # a fork has none of its parent's threads
        if is_own and not get_runtime().is_current_thread:
            wait(self._starting.copy(), timeout=_PATIENCE_S)


def _by_turn(orders: Iterable[Order]) -> tuple[list[Order], list[Order]]:
    """Divide orders into the first one of each thread, and the later ones."""
    first: dict[str, Order] = {}
    behind = []
    for order in orders:
        if first.setdefault(order.queued.thread_id, order) is not order:
            behind.append(order)
    return [*first.values()], behind


def _is_work(queued: Queued) -> bool:
    return queued.kind is MessageKind.TASK_ASSIGNMENT


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__
