"""The time to list 10,000 threads of a session, and to open one with 2,000 unanswered messages.

Run by hand from the root of the checkout:
`python -m tests.benchmarks.threads [--threads N] [--left N]`. Half of the threads have an agent's
metadata, some have messages, some of these are queued. The messages that a dead process left are on
50 threads.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from sqlite3 import Connection

from agentnb import ScriptedProvider, Session
from agentnb.core.durable import AgentKind
from agentnb.core.types import Role
from agentnb.store import queue, threads
from agentnb.store.store import store_at
from agentnb.store.transactions import MemoryTransactions, Transactions
from tests.benchmarks.store import took_ms

SESSION = "nb_20261123_sessio"
SPREAD = 50
"""Threads with messages of the dead process."""


def fill(db: Connection, count: int, process: int) -> None:
    """Make a session with `count` threads below its own."""
    threads.open_session(db, SESSION, now=0.0)
    for number in range(1, count):
        thread_id = f"{SESSION}.{number}"
        threads.new_thread(db, thread_id, SESSION, now=float(number), parent_id=SESSION)
        if number % 2:
            threads.add_metadata(
                db,
                thread_id,
                name=f"agent {number}",
                provider="demo",
                model="demo",
                kind=AgentKind.PERSISTENT,
                now=float(number),
                parent_thread_id=SESSION,
            )
        if number % 10 == 0:
            threads.add_message(db, thread_id, Role.USER, "Look at it. " * 20, now=float(number))
        if number % 100 == 0:
            queue.enqueue(db, thread_id, "And again.", process=process, now=float(number))


def listed(where: str, transactions: Transactions, count: int) -> None:
    """Print the time to list the threads."""
    process = transactions.process
    transactions.do(lambda db: fill(db, count, process))

    def listing() -> None:
        rows = transactions.do(lambda db: threads.list_threads(db, SESSION))
        assert len(rows) == count

    print(f"{count:,} threads {where} are listed in {took_ms(listing):.0f} ms")


def leave(db: Connection, count: int, process: int) -> None:
    """Make a session with `count` messages that no process runs."""
    fill(db, SPREAD + 1, process)
    for number in range(count):
        thread_id = f"{SESSION}.{1 + number % SPREAD}"
        queue.enqueue(db, thread_id, f"message {number}", process=process, now=0.0)
    db.execute("UPDATE queue SET process = NULL")


def opened(path: Path, count: int) -> None:
    """Print the times to open a session with messages left, and to answer them all."""
    store = store_at(path)
    process = store.transactions().process
    store.transactions().do(lambda db: leave(db, count, process))
    begun_s = time.perf_counter()
    provider = ScriptedProvider(lambda _: "done", name="demo")
    session = Session(provider=provider, store=path, id=SESSION, config=False)
    opened_s = time.perf_counter() - begun_s
    while session.store.transactions().do(_is_something_queued):
        time.sleep(0.1)
    answered_s = time.perf_counter() - begun_s
    print(
        f"a session with {count:,} messages left is opened in {opened_s:.1f} s; "
        f"they are answered after {answered_s:.1f} s"
    )
    session.close()
    store.close()


def _is_something_queued(db: Connection) -> bool:
    return db.execute("SELECT 1 FROM queue LIMIT 1").fetchone() is not None


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=10_000)
    parser.add_argument("--left", type=int, default=2_000)
    given = parser.parse_args()
    count = given.threads
    with tempfile.TemporaryDirectory() as folder:
        store = store_at(Path(folder, "threads.db"))
        listed("in a file", store.transactions(), count)
        store.close()
        opened(Path(folder, "left.db"), given.left)
    listed("in memory", MemoryTransactions(), count)


if __name__ == "__main__":
    main()
