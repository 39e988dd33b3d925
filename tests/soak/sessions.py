"""Two processes share one session: each sends messages to the agents of both.

`tests/soak/one_session.py` has what they do and the checks. In every other round one of them is
killed while it sends, and another one continues in its place.
`python -m tests.soak sessions` prints the time of a message, from sending to its answer.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentnb import Session
from agentnb.providers.scripted import ScriptedProvider
from tests.forks import Program
from tests.soak.one_session import AGENTS, MESSAGES, SENDERS, SESSION, Model, Part, Round


def points(
    folder: Path, count: int, seed: int, messages: int = MESSAGES, agents: int = AGENTS
) -> Iterator[tuple[str, list[str]]]:
    """Run `count` rounds; yield what was done and what broke, for each."""
    for place in range(count):
        yield one_round(Round(folder / str(place), messages, agents, seed + place, place % 2 == 1))


def one_round(a_round: Round) -> tuple[str, list[str]]:
    """One round in a new folder.

    Returns:
        What was done, and what broke.
    """
    a_round.open()
    dies_after = {"a": a_round.dies_after} if a_round.is_killed else {}
    started = [
        _process(a_round, name, a_round.made, dies_after.get(name, a_round.each))
        for name in SENDERS
    ]
    # Both have made their agents before either sends, and neither ends before both are done.
    faults = [fault for _, fault in _heard(started, "made") if fault]
    if a_round.is_killed and not faults:
        errors = started[0].end().stderr
        faults += [f"the one that is killed said {errors[-2000:]}"] if errors else []
        started[0] = _process(a_round, "a", 0, a_round.each)
        faults += [fault for _, fault in _heard(started[:1], "made") if fault]
    told = [] if faults else _heard(started, "done")
    faults += [fault for _, fault in told if fault]
    for process in started:
        end = process.end()
        if end.returncode or end.stderr:
            faults.append(f"a process ended with {end.returncode}: {end.stderr[-2000:]}")
    if faults:
        return "not done", faults
    return a_round.told([json.loads(line) for line, _ in told], "one process")


def _heard(started: Sequence[Program], word: str) -> list[tuple[str, str]]:
    """Wait until all processes have said a word, and let them continue.

    Returns:
        What each said after it, and the faults of that.
    """
    heard = []
    for process in started:
        line = process.stdout.readline()
        fault = "" if line.startswith(word) else f"a process said {line!r}, not {word}"
        heard.append((line.removeprefix(word), fault))
    for process in started:
        process.say("go on")
    return heard


def _process(a_round: Round, name: str, agents: int, dies_after: int) -> Program:
    return Program(
        "import sys; from tests.soak.sessions import main; main(*sys.argv[1:])",
        *(a_round.path, a_round.locks, name, a_round.each, agents, a_round.seed, dies_after),
    )


# -- in the processes -----------------------------------------------------------------------------


def main(
    path: str, locks: str, name: str, messages: str, agents: str, seed: str, dies_after: str
) -> None:
    """Be one of the processes; one without agents of its own continues for a dead one."""
    model = Model(Path(locks))
    session = Session(provider=ScriptedProvider(model), store=path, id=SESSION, config=False)
    part = Part(session, name, model)
    if int(agents):
        part.make_agents(int(agents))
    print("made", flush=True)
    sys.stdin.readline()

    def before(number: int) -> None:
        if number == int(dies_after):
            os.kill(os.getpid(), signal.SIGKILL)

    part.send(int(messages), f"{seed} {agents}", before=before)
    print(f"done {json.dumps(part.report())}", flush=True)
    sys.stdin.readline()
    session.close()
