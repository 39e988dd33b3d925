"""Maps that are killed at a random moment and run again: no finished row is paid twice.

A process maps rows with a scripted model and a store, and is killed in the middle: when a row is
asked, in mid-answer, or when a row has completed. The same map runs again, may be killed again, and
then runs to its end. All processes write a ledger, with a line for each row that is asked and for
each that was reported as completed.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentnb import Session
from agentnb.core.events import AgentCompleted
from agentnb.core.types import CompletionRequest
from agentnb.providers.scripted import Reply, ScriptedProvider
from tests.forks import Say, run_to_its_end

ROWS = 30
PROMPT = "What is in {{text}}?"
JUDGES = 2
_OPEN_AT_ONCE = 6
_ACTS = 3 * ROWS * JUDGES
"""At least the acts of a whole map: rows asked, answers begun, rows completed."""


class _Life:
    """Counts a process's acts, writes the ledger, and kills the process at the chosen act."""

    def __init__(self, ledger: Path, dies_at: int) -> None:
        self._file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(self._file, b"begins\n")
        self._left = dies_at

    def note(self, line: str = "") -> None:
        if line:
            os.write(self._file, f"{line}\n".encode())
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def run_map(say: Say, folder: Path, dies_at: int) -> None:
    """Be one kernel: map the rows, say their statuses, and die at this act (0: never)."""
    life = _Life(folder / "ledger", dies_at)

    async def midway() -> None:
        life.note()
        await asyncio.sleep(0)

    def script(request: CompletionRequest) -> Reply:
        row = request.messages[-1].text
        life.note(f"asked {row}")
        return Reply(f"The answer to {row}", pause=midway)

    session = Session(
        provider=ScriptedProvider(script), store=folder / "x.db", max_concurrency=_OPEN_AT_ONCE
    )

    async def watched() -> None:
        rows = [f"row {number}" for number in range(ROWS)]
        run = session.map(rows, PROMPT, judges=JUDGES)
        tasks = [PROMPT.replace("{{text}}", row) for row in rows]
        async for entry in run.stream():
            event = entry.event
            if isinstance(event, AgentCompleted) and "." in event.agent_id:
                number = int(event.agent_id.rpartition(".")[2])
                life.note(f"done {number} {tasks[(number - 1) // JUDGES]}")
        out = await run
        for record in out.to_records():
            say(record["status"])

    asyncio.run(watched())


def faults_in(ledger: str, statuses: Sequence[str]) -> Iterator[str]:
    """Yield what broke. Each process asks a row only for answers that were open when it began."""
    asked: Counter[str] = Counter()
    done: dict[str, set[str]] = defaultdict(set)
    for line in ledger.splitlines():
        what, _, rest = line.partition(" ")
        if what == "begins":
            asked = Counter({row: len(numbers) for row, numbers in done.items()})
        elif what == "done":
            number, _, row = rest.partition(" ")
            done[row].add(number)
        else:
            asked[rest] += 1
            if asked[rest] > JUDGES:
                yield f"{rest!r} was asked for answers that were finished"
    if len(done) != ROWS or any(len(numbers) != JUDGES for numbers in done.values()):
        yield f"{len(done)} of {ROWS} rows have completed"
    if set(statuses) != {"completed"}:
        yield f"the last map has rows that are {set(statuses)}"


def one_point(folder: Path, draw: random.Random) -> tuple[str, list[str]]:
    """Kill a map once or twice, then run it to its end."""
    folder.mkdir()
    moments = [draw.randrange(1, _ACTS) for _ in range(draw.choice((1, 1, 2)))]
    deaths = 0
    statuses: list[str] = []
    for dies_at in (*moments, 0):
        ended = run_to_its_end(run_map, folder, dies_at)
        statuses = ended.said
        if ended.code == -signal.SIGKILL:
            deaths += 1
        elif ended.code:
            return f"killed at {moments}", [ended.error[-2000:]]
    ledger = (folder / "ledger").read_text()
    told = f"killed at {moments}: {deaths} deaths, {ledger.count('asked')} calls"
    return told, list(faults_in(ledger, statuses))


def points(folder: Path, count: int, seed: int) -> Iterator[tuple[str, list[str]]]:
    """See `tests.soak.__main__`."""
    draw = random.Random(seed)
    for number in range(count):
        yield one_point(folder / str(number), draw)
