"""Messages for a running agent, which it reads before its next model call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from agentnb.core.types import is_at_or_below
from agentnb.runtime import get_runtime
from agentnb.store import queue
from agentnb.store.trouble import StoreTrouble

if TYPE_CHECKING:
    from agentnb.store.transactions import Transactions
    from agentnb.tasks.at_work import AtWork

_NEWS_S = 1.0
"""Seconds between two looks for messages of other processes to running agents."""


class News:
    """The inbox of a session's running agents in this process. Implements `Inbox`.

    The messages are in the store. This only knows which agents should look there.

    Args:
        at_work: The session's working runs.
        transactions: The database of its threads.
    """

    def __init__(self, at_work: AtWork, transactions: Callable[[], Transactions]) -> None:
        self._at_work = at_work
        self._transactions = transactions
        self._told: set[str] = set()
        """Running agents with new messages."""
        self._watch: asyncio.Task[None] | None = None
        self._may_come = False
        """Whether other processes may send messages to this one's agents."""

    def has_news(self, agent_id: str) -> bool:
        """See `agentnb.core.protocols.Inbox`."""
        return agent_id in self._told

    async def take(self, agent_id: str) -> Sequence[str]:
        """See `agentnb.core.protocols.Inbox`."""
        self._told.discard(agent_id)
        run = self._at_work.run_of(agent_id)
        if run is None:
            return ()
        with suppress(StoreTrouble):
            return await self._transactions().done(
                lambda db: queue.notices(db, agent_id, run.run_id)
            )
        return ()

    def tell(self, thread_id: str) -> None:
        """Note that an agent may have got a message. From any thread."""
        if self._at_work.run_of(thread_id) is not None:
            self._told.add(thread_id)

    def forget(self, thread_id: str) -> None:
        """The run on a thread is over: unread messages now begin runs, or are only stored."""
        self._told -= {each for each in self._told if is_at_or_below(each, thread_id)}

    def expect(self) -> None:
        """Expect messages of other processes to this one's agents. From any thread."""
        if not self._may_come:
            self._may_come = True
            with suppress(RuntimeError):  # the runtime is gone, and so are its runs
                get_runtime().call_soon(self.keep_watch)

    def keep_watch(self) -> None:
        """Look for messages of other processes as long as runs are working. On the loop."""
        if self._may_come and self._at_work and (self._watch is None or self._watch.done()):
            self._watch = asyncio.get_running_loop().create_task(self._watch_for_news())

    async def _watch_for_news(self) -> None:
        with suppress(StoreTrouble):
            while self._at_work:
                await asyncio.sleep(_NEWS_S)
                transactions = self._transactions()
                process = transactions.process
                self._told |= set(await transactions.done(partial(queue.told, process=process)))
