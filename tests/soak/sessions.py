"""Two processes are one session: each sends messages to the agents of both.

Each makes half of the agents, and then sends its half of the messages to all of them, so that both
queue on the same threads. The model holds a lock for each thread while it answers: no two processes
may be at work on one thread. In every other round one of them is killed while it sends, and another
one goes on in its place. Afterwards no message is lost, none is there twice or answered twice, and
those of one sender to one agent have the order in which they were sent.
`python -m tests.soak sessions` prints what a message cost, from sending to its answer.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import random
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from agentnb import Session
from agentnb.core.types import CompletionRequest
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.store import threads
from agentnb.store.store import store_at
from tests.support import DEADLINE_S

MESSAGES = 10_000
AGENTS = 100
SESSION = "nb_20261123_shared"
SENDERS = ("a", "b")

_TEXT = re.compile(r"Message (\d+) of ([ab]) to (\S+)\.")


def points(folder: Path, count: int, seed: int) -> Iterator[tuple[str, list[str]]]:
    """So many rounds; yield what was done and what broke, for each."""
    for place in range(count):
        yield one_round(
            folder / str(place),
            messages=MESSAGES,
            agents=AGENTS,
            seed=seed + place,
            is_killed=place % 2 == 1,
        )


def one_round(
    folder: Path, *, messages: int, agents: int, seed: int, is_killed: bool = False
) -> tuple[str, list[str]]:
    """One round in a new folder.

    Args:
        folder: For the file and the locks.
        messages: How many are sent, by both together.
        agents: How many there are, of both together.
        seed: Decides who gets what, and when a process is killed.
        is_killed: Whether one is killed.

    Returns:
        What was done, and what broke.
    """
    locks = folder / "locks"
    locks.mkdir(parents=True)
    path = folder / "x.db"
    store = store_at(path)
    store.transactions().do(lambda db: threads.open_session(db, SESSION, now=time.time()))
    store.close()
    each, made = messages // len(SENDERS), agents // len(SENDERS)
    dies_after = random.Random(seed).randrange(each) if is_killed else each
    started = [
        _process(path, locks, name, each, made, seed, dies_after if name == "a" else each)
        for name in SENDERS
    ]
    # Both have made their agents before either sends, and neither ends before both are done.
    faults = [fault for _, fault in _heard(started, "made") if fault]
    if is_killed and not faults:
        _, errors = started[0].communicate(timeout=DEADLINE_S)
        faults += [f"the one that is killed said {errors[-2000:]}"] if errors else []
        started[0] = _process(path, locks, "a", each, 0, seed, each)
        faults += [fault for _, fault in _heard(started[:1], "made") if fault]
    told = [] if faults else _heard(started, "done")
    faults += [fault for _, fault in told if fault]
    for process in started:
        _, errors = process.communicate(timeout=DEADLINE_S)
        if process.returncode or errors:
            faults.append(f"a process ended with {process.returncode}: {errors[-2000:]}")
    if faults:
        return "not done", faults
    reports = [json.loads(line) for line, _ in told]
    for report in reports:
        faults += report["faults"]
    faults += _faults_of(path, each, agents)
    cpu_s = sum(report["cpu_s"] for report in reports)
    seconds = max(report["seconds"] for report in reports)
    memory = max(report["megabytes"] for report in reports)
    size = path.stat().st_size / 2**20
    return (
        f"{messages:,} messages to {agents} agents"
        f"{f', one process killed after {dies_after:,}' if is_killed else ''}: {seconds:.1f} s, "
        f"{messages / seconds:,.0f} each second, {1e3 * seconds / messages:.2f} ms each "
        f"({1e3 * cpu_s / messages:.2f} ms of a core); "
        f"{memory:.0f} MB of memory, {size:.0f} MB on disk"
    ), faults


def _heard(started: Sequence[subprocess.Popen[str]], word: str) -> list[tuple[str, str]]:
    """Wait until all processes have said a word, and let them go on.

    Returns:
        What each said behind it, and what was wrong with that.
    """
    heard = []
    for process in started:
        assert process.stdout is not None
        line = process.stdout.readline()
        fault = "" if line.startswith(word) else f"a process said {line!r}, not {word}"
        heard.append((line.removeprefix(word), fault))
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go on\n")
        process.stdin.flush()
    return heard


def _process(
    path: Path, locks: Path, name: str, messages: int, agents: int, seed: int, dies_after: int
) -> subprocess.Popen[str]:
    numbers = map(str, (messages, agents, seed, dies_after))
    given = [str(path), str(locks), name, *numbers]
    return subprocess.Popen(
        [sys.executable, "-m", __name__, *given],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _faults_of(path: Path, each: int, agents: int) -> Iterator[str]:
    """What is wrong with the conversations in the end."""
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
    """Each message is followed by its own answer, and all are in the order of their queueing."""
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


class _Model:
    """Answers each message while it holds the lock of the agent that it was sent to."""

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


def main(
    path: str, locks: str, name: str, messages: str, agents: str, seed: str, dies_after: str
) -> None:
    """Be one of the processes. One without agents of its own goes on in place of a dead one."""
    model = _Model(Path(locks))
    session = Session(provider=ScriptedProvider(model), store=path, id=SESSION, config=False)
    for number in range(int(agents)):
        session.tasks.create(f"{name}{number}", "Be ready.", assigned_to="new:scripted/m")
    transactions = session.store.transactions()
    while int(agents) and not transactions.do(_is_done):
        time.sleep(0.01)
    print("made", flush=True)
    sys.stdin.readline()
    dice = random.Random(f"{seed} {name} {agents}")
    talks = [session.thread(agent.thread_id) for agent in session.agents("persistent")]
    began_s, cpu_s = time.perf_counter(), time.process_time()
    for number in range(_next_number(session, name), int(messages)):
        if number == int(dies_after):
            os.kill(os.getpid(), signal.SIGKILL)
        talk = dice.choice(talks)
        talk.send(f"Message {number} of {name} to {talk.id}.")
    while not transactions.do(_is_done):
        time.sleep(0.05)
    took_s = time.perf_counter() - began_s
    used = resource.getrusage(resource.RUSAGE_SELF)
    report = {
        "seconds": took_s,
        "cpu_s": time.process_time() - cpu_s,
        "megabytes": used.ru_maxrss / 1024,
        "faults": model.faults[:5],
    }
    print(f"done {json.dumps(report)}", flush=True)
    sys.stdin.readline()
    session.close()


def _next_number(session: Session, name: str) -> int:
    """The number of the first message of a sender that is not there yet."""

    def work(db: sqlite3.Connection) -> int:
        found = db.execute(
            "SELECT content FROM messages WHERE role = 'user' AND content LIKE ?",
            (f"Message % of {name} to %",),
        )
        return 1 + max((int(content.split()[1]) for (content,) in found), default=-1)

    return session.store.transactions().do(work)


def _is_done(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM queue LIMIT 1").fetchone() is None


if __name__ == "__main__":
    main(*sys.argv[1:])
