"""Two processes queue messages on the same threads and answer their own, each in its turn.

In every other round one of them is killed at some moment, and another one continues in its place.
Afterwards no message may be lost or answered twice, and all must have the order in which they were
queued. `python -m tests.soak queue` prints the time of a message, from queueing to its answer.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from agentnb.core.durable import ThreadMessage
from agentnb.store import adoption, queue, threads
from agentnb.store.store import store_at
from agentnb.store.transactions import Transactions
from tests.forks import Program

MESSAGES = 10_000
THREADS = 50
SESSION = "nb_20261123_sessio"
SENDERS = ("a", "b")
_PAUSE_S = 0.002
"""Seconds between two checks of a process while others work on all its threads."""


def points(folder: Path, count: int, seed: int) -> Iterator[tuple[str, list[str]]]:
    """Run `count` rounds; yield what was done and what broke, for each."""
    for place in range(count):
        yield one_round(
            folder / f"{place}.db", messages=MESSAGES, seed=seed + place, is_killed=place % 2 == 1
        )


def one_round(
    path: Path, *, messages: int, seed: int, is_killed: bool, spread: int = THREADS
) -> tuple[str, list[str]]:
    """One round on a new file.

    Args:
        path: The file.
        messages: The number of messages that both send together.
        seed: Decides which process sends what to which thread, and when one is killed.
        is_killed: Whether one is killed.
        spread: The number of threads.

    Returns:
        What was done, and what broke.
    """
    _make(path, spread)
    each = messages // len(SENDERS)
    random_ = random.Random(seed)
    dies_after = random_.randrange(each) if is_killed else None
    started = [
        _process(path, name, each, spread, seed, dies_after if name == "a" else None)
        for name in SENDERS
    ]
    faults, costs = list[str](), list[float]()
    if is_killed:
        started[0].end()
        started[0] = _process(path, "a", each, spread, seed, None)
    for process in started:
        end = process.end()
        if end.returncode or end.stderr:
            faults.append(f"a process ended with {end.returncode}: {end.stderr[-500:]}")
        else:
            told = json.loads(end.stdout)
            costs.append(told["seconds"] / max(1, told["messages"]))
            faults += told["faults"]
    faults += _faults_of(path, each)
    cost = f"{1e6 * sum(costs) / max(1, len(costs)):,.0f} µs each"
    killed = f", one process killed after {dies_after}" if is_killed else ""
    return f"{messages:,} messages on {spread} threads{killed}: {cost}", faults


def _make(path: Path, spread: int) -> None:
    def work(db: sqlite3.Connection) -> None:
        threads.open_session(db, SESSION, now=0.0)
        for number in range(1, spread + 1):
            threads.new_thread(db, _thread(number), SESSION, now=0.0, parent_id=SESSION)

    store = store_at(path)
    store.transactions().do(work)
    store.close()


def _thread(number: int) -> str:
    return f"{SESSION}.{number}"


def _process(
    path: Path, name: str, count: int, spread: int, seed: int, dies_after: int | None
) -> Program:
    return Program(
        "import sys; from tests.soak.queue import main; main(*sys.argv[1:])",
        *(path, name, count, spread, seed, dies_after),
    )


def _faults_of(path: Path, each: int) -> Iterator[str]:
    """Yield the faults of the conversations at the end."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        found = [row[0] for row in db.execute("PRAGMA integrity_check")]
        if found != ["ok"]:
            yield f"the file is damaged: {found[:3]}"
        for what in ("queue", "messages WHERE place IS NULL", "threads WHERE process IS NOT NULL"):
            (left,) = db.execute(f"SELECT count(*) FROM {what}").fetchone()
            if left:
                yield f"{left} left: {what}"
        asked = Counter[str]()
        for (thread,) in db.execute("SELECT id FROM threads WHERE parent_id IS NOT NULL"):
            messages = threads.messages_of(db, thread)
            yield from _faults_of_talk(messages)
            asked.update(message.content for message in messages if message.role == "user")
            in_place = db.execute(
                "SELECT id FROM messages WHERE thread_id = ? AND role = 'user' ORDER BY place",
                (thread,),
            ).fetchall()
            if in_place != sorted(in_place):
                yield f"{thread} has another order"
    wanted = Counter(f"{name} {number}" for name in SENDERS for number in range(each))
    if asked != wanted:
        yield f"lost: {[*(wanted - asked)][:5]}, twice: {[*(asked - wanted)][:5]}"


def _faults_of_talk(messages: list[ThreadMessage]) -> Iterator[str]:
    """Yield where a message is not followed by its own answer."""
    pairs = zip(messages[::2], messages[1::2], strict=False)
    for message, answer in pairs:
        is_own = answer.content == f"answer to {message.content}"
        if (message.role, answer.role) != ("user", "assistant") or not is_own:
            yield f"{message.content!r} is followed by {answer.content!r}"
            return
    if len(messages) % 2:
        yield f"{messages[-1].content!r} has no answer"


# -- in the processes -----------------------------------------------------------------------------


@dataclass
class _Sender:
    """Queues its messages one by one, and answers each when its turn has come."""

    transactions: Transactions
    name: str
    count: int
    spread: int
    random: random.Random
    dies_after: int | None
    lines: dict[str, deque[queue.Queued]] = field(default_factory=dict)
    """The queued messages of each thread, in order."""
    faults: list[str] = field(default_factory=list)
    done: int = 0

    def work(self) -> None:
        """Queue and answer all messages."""
        process = self.transactions.process
        is_alive = self.transactions.is_alive
        for queued in self.transactions.do(
            lambda db: adoption.adopt(db, SESSION, process=process, is_alive=is_alive)
        ):
            self.lines.setdefault(queued.thread_id, deque()).append(queued)
        for number in range(self.transactions.do(self._next), self.count):
            self._send(f"{self.name} {number}")
            if self.random.random() < 0.9:  # so that some messages wait
                self._answer_some()
        while any(self.lines.values()):
            if not self._answer_some():
                time.sleep(_PAUSE_S)

    def _next(self, db: sqlite3.Connection) -> int:
        """The number of the first message that is not in the store yet."""
        sent = db.execute(
            "SELECT content FROM messages WHERE role = 'user' AND substr(content, 1, 2) = ?",
            (f"{self.name} ",),
        )
        return 1 + max((int(content[2:]) for (content,) in sent), default=-1)

    def _send(self, text: str) -> None:
        thread = _thread(self.random.randint(1, self.spread))
        queued = self.transactions.do(
            lambda db: queue.enqueue(
                db, thread, text, process=self.transactions.process, now=time.time()
            )
        )
        self.lines.setdefault(thread, deque()).append(queued)

    def _answer_some(self) -> bool:
        """Answer the first message of a thread whose turn it is. Returns whether there was one."""
        waiting = [line for line in self.lines.values() if line]
        self.random.shuffle(waiting)
        return any(self._answer(line) for line in waiting)

    def _answer(self, line: deque[queue.Queued]) -> bool:
        process, is_alive = self.transactions.process, self.transactions.is_alive
        queued, run_id = line[0], f"run {self.name} {self.random.random()}"
        begun = self.transactions.do(
            lambda db: queue.begin(db, queued.message, run_id, process=process, is_alive=is_alive)
        )
        if begun is None:
            return False
        self.faults += _faults_of_talk(list(begun.before))
        if self.done == self.dies_after:
            os.kill(os.getpid(), signal.SIGKILL)
        woken = self.transactions.do(
            lambda db: queue.end(
                db,
                queued.thread_id,
                run_id,
                f"answer to {queued.content}",
                message=queued.message,
                next_children={queued.thread_id: begun.first_child},
                process=process,
                now=time.time(),
            )
        )
        self.faults += [f"{queued.content!r} woke {woken}"] if woken else []
        line.popleft()
        self.done += 1
        return True


def main(path: str, name: str, count: str, spread: str, seed: str, dies_after: str) -> None:
    """Be one of the processes."""
    store = store_at(Path(path))
    sender = _Sender(
        store.transactions(),
        name,
        int(count),
        int(spread),
        random.Random(f"{seed} {name} {dies_after}"),
        None if dies_after == "None" else int(dies_after),
    )
    began_s = time.perf_counter()
    sender.work()
    took_s = time.perf_counter() - began_s
    store.close()
    print(json.dumps({"seconds": took_s, "messages": sender.done, "faults": sender.faults[:5]}))
