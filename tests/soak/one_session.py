"""Shared by the harnesses in which two processes, or two kernels, share one session.

Each makes half of the agents, and then sends its half of the messages to all of them, so that both
queue on the same threads. The model holds a lock for each thread while it answers: no two processes
may work on one thread. Afterwards no message may be lost, repeated or answered twice, and those of
one sender to one agent must have the order in which they were sent.
"""

from __future__ import annotations

import asyncio
import fcntl
import random
import re
import resource
import sqlite3
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentnb import Session
from agentnb.core.types import CompletionRequest
from agentnb.providers.scripted import Reply
from agentnb.store import threads
from agentnb.store.store import store_at

MESSAGES = 10_000
AGENTS = 100
SESSION = "nb_20261123_shared"
SENDERS = ("a", "b")

_TEXT = re.compile(r"Message (\d+) of ([ab]) to (\S+)\.")


@dataclass(frozen=True, slots=True)
class Round:
    """One round: its folder, and how much each of the two does."""

    folder: Path
    messages: int
    """Messages that both send together."""
    agents: int
    """Agents of both together."""
    seed: int
    """Decides which agent gets which message, and when one process is killed."""
    is_killed: bool

    @property
    def path(self) -> Path:
        """The file of the store."""
        return self.folder / "x.db"

    @property
    def locks(self) -> Path:
        """A folder for the locks of the agents."""
        return self.folder / "locks"

    @property
    def each(self) -> int:
        """Messages that each sends."""
        return self.messages // len(SENDERS)

    @property
    def made(self) -> int:
        """Agents that each makes."""
        return self.agents // len(SENDERS)

    @property
    def dies_after(self) -> int:
        """Messages that `a` has sent when it is killed."""
        return random.Random(self.seed).randrange(self.each)

    def open(self) -> None:
        """Make the file with the session."""
        self.locks.mkdir(parents=True)
        store = store_at(self.path)
        store.transactions().do(lambda db: threads.open_session(db, SESSION, now=time.time()))
        store.close()

    def told(self, reports: Sequence[dict[str, Any]], killed: str) -> tuple[str, list[str]]:
        """What was done, and what broke.

        Args:
            reports: By `Part.report`, from each that came to its end.
            killed: What was killed.
        """
        faults = [fault for report in reports for fault in report["faults"]]
        faults += _faults_of(self.path, self.each, self.agents)
        cpu_s = sum(report["cpu_s"] for report in reports)
        seconds = max(report["seconds"] for report in reports)
        memory = max(report["megabytes"] for report in reports)
        size = self.path.stat().st_size / 2**20
        return (
            f"{self.messages:,} messages to {self.agents} agents"
            f"{f', {killed} killed after {self.dies_after:,}' if self.is_killed else ''}: "
            f"{seconds:.1f} s, "
            f"{self.messages / seconds:,.0f} each second, {1e3 * seconds / self.messages:.2f} ms "
            f"each ({1e3 * cpu_s / self.messages:.2f} ms of a core); "
            f"{memory:.0f} MB of memory, {size:.0f} MB on disk"
        ), faults


def _faults_of(path: Path, each: int, agents: int) -> Iterator[str]:
    """Yield the faults of the conversations at the end."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        found = [row[0] for row in db.execute("PRAGMA integrity_check")]
        if found != ["ok"] or db.execute("PRAGMA foreign_key_check").fetchall():
            yield f"the file is damaged: {found[:3]}"
        for what in ("queue", "messages WHERE place IS NULL", "threads WHERE process IS NOT NULL"):
            (left,) = db.execute(f"SELECT count(*) FROM {what}").fetchone()
            if left:
                yield f"{left} left: {what}"
        talks = [row[0] for row in db.execute("SELECT thread_id FROM agent_metadata")]
        if len(talks) != agents:
            yield f"{len(talks)} agents were made"
        sent = Counter[tuple[str, int]]()
        for thread in talks:
            said = db.execute(
                "SELECT id, role, content FROM messages WHERE thread_id = ? ORDER BY place",
                (thread,),
            ).fetchall()
            sent.update(_sent(said))
            yield from _faults_of_talk(thread, said)
        wanted = Counter((name, number) for name in SENDERS for number in range(each))
        if sent != wanted:
            yield f"lost: {[*(wanted - sent)][:5]}, twice: {[*(sent - wanted)][:5]}"


def _sent(said: list[tuple[int, str, str]]) -> list[tuple[str, int]]:
    """Sender and number of the messages of a conversation, in order."""
    found = [_TEXT.match(content) for _, role, content in said if role == "user"]
    return [(match[2], int(match[1])) for match in found if match is not None]


def _faults_of_talk(thread: str, said: list[tuple[int, str, str]]) -> Iterator[str]:
    """Yield where a message lacks its own answer, or the order is not that of queueing."""
    asked = [number for number, role, _ in said if role == "user"]
    if asked != sorted(asked):
        yield f"{thread} has another order"
    for name in SENDERS:
        numbers = [number for sender, number in _sent(said) if sender == name]
        if numbers != sorted(numbers):
            yield f"what {name} sent to {thread} has another order"
    if [role for _, role, _ in said] != ["user", "assistant"] * (len(said) // 2):
        yield f"{thread} has messages and answers in another order"
    for (_, _, message), (_, _, answer) in zip(said[2::2], said[3::2], strict=False):
        if answer != f"answer to {message}":
            yield f"{message!r} of {thread} is followed by {answer!r}"


# -- in the processes -----------------------------------------------------------------------------


class Model:
    """Answers each message while it holds the lock of its agent."""

    def __init__(self, locks: Path) -> None:
        self._locks = locks
        self.faults: list[str] = []

    def __call__(self, request: CompletionRequest) -> Reply:
        text = request.messages[-1].text
        match = _TEXT.fullmatch(text)
        if match is None:
            return Reply("ready")
        return Reply(f"answer to {text}", pause=self._holding(match[3], request))

    def _holding(self, thread: str, request: CompletionRequest) -> Callable[[], Awaitable[None]]:
        seen = [len(message.text) > 0 for message in request.messages]

        async def hold() -> None:
            with (self._locks / thread).open("w") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self.faults.append(f"two were at work on {thread}")
                for _ in range(3):
                    await asyncio.sleep(0)

        if len(seen) % 2 == 0 or not all(seen):
            self.faults.append(f"{thread} was asked with {len(seen)} messages")
        return hold


class Part:
    """What one of the processes does.

    Args:
        session: The session that both share.
        name: One of `SENDERS`.
        model: The model of its provider.
    """

    def __init__(self, session: Session, name: str, model: Model) -> None:
        self._session = session
        self._name = name
        self._model = model

    def make_agents(self, count: int) -> None:
        """Make agents, and wait until all agents of the session are ready."""
        for number in range(count):
            self._session.tasks.create(
                f"{self._name}{number}", "Be ready.", assigned_to="new:scripted/m"
            )
        self._wait(0.01)

    def send(self, until: int, seed: int | str, *, before: Callable[[int], None]) -> None:
        """Send this sender's remaining messages, to agents that the seed decides.

        Args:
            until: One more than the number of the last message.
            seed: Decides which agent gets which message.
            before: Called with the number of each message before it is sent.
        """
        self._began_s, self._cpu_s = time.perf_counter(), time.process_time()
        dice = random.Random(f"{seed} {self._name}")
        talks = [
            self._session.thread(each.thread_id) for each in self._session.agents("persistent")
        ]
        for number in range(self._next_number(), until):
            before(number)
            talk = dice.choice(talks)
            talk.send(f"Message {number} of {self._name} to {talk.id}.")

    def report(self) -> dict[str, Any]:
        """Wait until all messages of both are answered; return times and faults."""
        self._wait(0.05)
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "seconds": time.perf_counter() - self._began_s,
            "cpu_s": time.process_time() - self._cpu_s,
            "megabytes": used.ru_maxrss / 1024,
            "faults": self._model.faults[:5],
        }

    def _wait(self, every_s: float) -> None:
        while not self._session.store.transactions().do(_is_done):
            time.sleep(every_s)

    def _next_number(self) -> int:
        """The number of the sender's first message that is not in the store yet."""

        def work(db: sqlite3.Connection) -> int:
            found = db.execute(
                "SELECT content FROM messages WHERE role = 'user' AND content LIKE ?",
                (f"Message % of {self._name} to %",),
            )
            return 1 + max((int(content.split()[1]) for (content,) in found), default=-1)

        return self._session.store.transactions().do(work)


def _is_done(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM queue LIMIT 1").fetchone() is None
