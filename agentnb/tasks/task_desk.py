"""The protocol of what the board of tasks needs of its session."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from agentnb.tasks.change import ThreadMaker
from agentnb.tasks.order import ChecksRuns, Order

if TYPE_CHECKING:
    from sqlite3 import Connection

    from agentnb.store.queue import Queued
    from agentnb.store.transactions import Transactions

T = TypeVar("T")


class TaskDesk(ChecksRuns, ThreadMaker, Protocol):
    """What the board needs of its session. `take_child` and `ensure_thread`: on any thread."""

    @property
    def session_id(self) -> str:
        """The session's id, which is also the id of its thread."""
        ...

    @property
    def transactions(self) -> Transactions:
        """The database of its threads and tasks."""
        ...

    def check_open(self) -> None:
        """Raise `SessionClosed` if the session starts no further runs. From any thread."""
        ...

    def run_of(self, agent_id: str) -> str | None:
        """The id of an agent's run in this process; `None` if it has none here. On the loop."""
        ...

    def admit(self, agent_id: str, prompt: str) -> None:
        """Count an agent that another one is about to create, as a sub-agent of that one's run.

        On the loop, before the transaction.

        Args:
            agent_id: The agent that creates it.
            prompt: The task's prompt.

        Raises:
            ToolError: A limit of the run forbids it.
        """
        ...

    def marks_below(self, agent_id: str) -> Collection[str]:
        """Marks of the tasks that led to an assignment by an agent that runs here. On the loop."""
        ...

    def gated_for(self, agent_id: str) -> Collection[str]:
        """Names of the tools that need approval in what an agent here assigns. On the loop."""
        ...

    def orders(self, db: Connection, queued: Iterable[Queued]) -> list[Order]:
        """Read from the store what the runs of queued messages start with, in their order.

        In the transaction that queued them. A message for which this fails is stored without a run,
        and its task is blocked.
        """
        ...

    async def start(self, orders: Iterable[Order]) -> None:
        """Start runs that wait for their turns, in this process. On the loop; never raises.

        A message with a `pot` belongs to the run with that id, and is cancelled with it.
        """
        ...

    def drop(self, message: int) -> None:
        """Drop the run of a message (`messages.id`) that left its queue before it began.

        On the loop; never raises. The task does not change: it is over, or another agent has it.
        """
        ...

    def tell(self, thread_id: str) -> None:
        """An agent got a message: if it runs, it reads that before its next call. On the loop."""
        ...

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and block until it has ended, from any thread but the loop's.

        An interrupt ends the waiting, not the coroutine.

        Raises:
            RuntimeError: Called on the loop.
        """
        ...
