"""A desk that starts nothing, and notes what it was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable
from sqlite3 import Connection
from typing import Any, TypeVar

from agentnb.core.durable import AgentKind, AgentMetadata, ThreadMessage
from agentnb.core.errors import SessionClosed, ToolError
from agentnb.store import queue, threads
from agentnb.store.queue import Queued
from agentnb.store.transactions import MemoryTransactions, Transactions
from agentnb.tasks.assignment import NewAgent, check_assignment
from agentnb.tasks.board import Board, Tasks
from agentnb.tasks.order import Order
from tests.tasks.some_tasks import SESSION

T = TypeVar("T")


class FakeDesk:
    """Fulfils `TaskDesk`. `begin` and `end` do what a run would."""

    session_id = SESSION

    def __init__(self, transactions: Transactions | None = None) -> None:
        self.transactions: Transactions = transactions or MemoryTransactions()
        self.started: list[Queued] = []
        self.dropped: list[int] = []
        self.told: list[str] = []
        self.admitted: list[tuple[str, str]] = []
        self.most_admitted = 100
        self.is_closed = False
        self.runs = dict[str, str]()
        """Runs at work, by the thread of the agent."""
        self.board = Board(self)
        self.tasks = Tasks(self, self.board)
        self.do(lambda db: threads.open_session(db, SESSION, now=1))

    # -- TaskDesk ---------------------------------------------------------------------------------

    def check_open(self) -> None:
        if self.is_closed:
            raise SessionClosed

    def check_current(self) -> None:
        pass

    def check_new(self, new: NewAgent) -> None:
        check_assignment(new, providers=["demo", "openai"], profiles=["careful"])

    def run_of(self, agent_id: str) -> str | None:
        return self.runs.get(agent_id)

    def admit(self, agent_id: str, prompt: str) -> None:
        if len(self.admitted) == self.most_admitted:
            raise ToolError("the run has all of its sub-agents")
        self.admitted.append((agent_id, prompt))

    def marks_below(self, agent_id: str) -> Collection[str]:
        return ()

    def gated_for(self, agent_id: str) -> Collection[str]:
        return ()

    def take_child(self, db: Connection, thread_id: str) -> int:
        return threads.take_child(db, thread_id)

    def ensure_thread(self, db: Connection, thread_id: str) -> None:
        if not threads.has_thread(db, thread_id):
            threads.new_thread(db, thread_id, SESSION, now=1)

    def orders(self, db: Connection, queued: Iterable[Queued]) -> list[Order]:
        return [Order(each, None, None, frozenset()) for each in queued]

    async def start(self, orders: Iterable[Order]) -> None:
        self.started += [order.queued for order in orders]

    def drop(self, message: int) -> None:
        self.dropped.append(message)

    def tell(self, thread_id: str) -> None:
        self.told.append(thread_id)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(work)

    # -- for tests --------------------------------------------------------------------------------

    def do(self, work: Any) -> Any:
        return self.transactions.do(work)

    def agent(self, thread_id: str, *, run_id: str = "run") -> str:
        """An agent at work in a run of this process."""
        self.runs[thread_id] = run_id
        self.do(lambda db: self.ensure_thread(db, thread_id))
        return thread_id

    def begin(self, queued: Queued, run_id: str = "begun") -> None:
        """Begin the run of a message."""
        process, is_alive = self.transactions.process, self.transactions.is_alive
        begun = self.do(
            lambda db: queue.begin(db, queued.message, run_id, process=process, is_alive=is_alive)
        )
        assert begun is not None

    def end(self, queued: Queued, run_id: str = "begun") -> None:
        """End the run of a message."""
        self.do(
            lambda db: queue.end(
                db,
                queued.thread_id,
                run_id,
                "done",
                message=queued.message,
                next_children={},
                process=self.transactions.process,
                now=2,
            )
        )

    def messages(self, thread_id: str) -> list[ThreadMessage]:
        found: list[ThreadMessage] = self.do(lambda db: threads.messages_of(db, thread_id))
        return found

    def agents(self, kind: AgentKind | None = None) -> list[AgentMetadata]:
        found: list[AgentMetadata] = self.do(lambda db: threads.list_agents(db, SESSION, kind))
        return found

    def queued(self) -> list[Queued]:
        found: list[Queued] = self.do(lambda db: queue.queued_of(db, self.transactions.process))
        return found

    def count(self) -> dict[str, int]:
        """The rows of each table that a task touches."""
        names = ("threads", "messages", "tasks", "task_notes", "agent_metadata", "queue")

        def counted(db: Connection) -> dict[str, int]:
            return {
                name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names
            }

        found: dict[str, int] = self.do(counted)
        return found
