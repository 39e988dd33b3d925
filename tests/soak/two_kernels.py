"""Two processes write to one store at the same time, and a third reads it: nothing is lost.

Each writer has several runs of 50 agents. Meanwhile the third repeatedly lists the runs and loads
the open ones. Afterwards each loaded run is compared with what its own process saw of it.
"""

from __future__ import annotations

import hashlib
import json
import select
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from agentnb import ScriptedProvider, Session
from agentnb.core.codec import plain
from agentnb.core.events import Entry
from agentnb.core.types import CompletionRequest
from agentnb.providers.scripted import Reply
from tests.forks import Program
from tests.support import DEADLINE_S, task_of

RUNS = 3
"""Runs that each writer has open at once."""
AGENTS = 50


def points(folder: Path, count: int, seed: int) -> Iterator[tuple[str, list[str]]]:
    """Run `count` rounds; yield what was done and what broke, for each."""
    for place in range(count):
        # Every other round makes a new file.
        yield _round(folder / f"{place // 2}.db")


def _round(store: Path) -> tuple[str, list[str]]:
    with ExitStack() as stack:
        started = [stack.enter_context(_process(role, store)) for role in ("write", "write")]
        reader = stack.enter_context(_process("read", store))
        for process in (*started, reader):
            assert process.stdout.readline() == "ready\n"
        for process in (*started, reader):
            process.say("go")
        faults, seen = [], dict[str, str]()
        # Keep each writer's input open, so that none ends and releases the file yet.
        for process in started:
            told = json.loads(process.stdout.readline() or '{"runs": {}, "trouble": "it died"}')
            seen |= told["runs"]
            faults += [f"a writer's trouble: {told['trouble']}"] if told["trouble"] else []
        end = reader.end()
        read = json.loads(end.stdout or '{"listings": 0, "faults": ["it died"]}')
        faults += [f"the reader: {fault}" for fault in read["faults"]]
        errors = "".join([end.stderr, *(process.end().stderr for process in started)])
        faults += [f"on the error output: {errors}"] if errors else []
    faults += _faults_of(store, seen)
    done = f"{len(seen)} runs of {AGENTS} agents, read {read['listings']} times meanwhile"
    return done, faults


def _process(role: str, store: Path) -> Program:
    code = "import sys; from tests.soak.two_kernels import main; main(*sys.argv[1:])"
    return Program(code, role, store)


def _faults_of(store: Path, seen: dict[str, str]) -> Iterator[str]:
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
        found = [row[0] for row in db.execute("PRAGMA integrity_check")]
        if found != ["ok"]:
            yield f"the file is damaged: {found[:3]}"
    session = Session(provider=ScriptedProvider([]), config=False, store=store)
    listed = {info.id: str(info.status) for info in session.runs(None)}
    for run_id, digest in seen.items():
        if listed.get(run_id) != "completed":
            yield f"{run_id} is listed as {listed.get(run_id)}"
        elif _digest(session.load(run_id).events) != digest:
            yield f"{run_id} is not what its process saw"
    if len(seen) != 2 * RUNS:
        yield f"{len(seen)} runs were made"


def _digest(entries: Iterable[Entry]) -> str:
    rows = [[entry.seq, entry.at_s, plain(entry.event)] for entry in entries]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


# -- in the processes -----------------------------------------------------------------------------


def _answer(request: CompletionRequest) -> Reply:
    task = task_of(request)
    return Reply(f"What there is to say of {task}. " * 12)


def _write(store: Path) -> None:
    session = Session(
        provider=ScriptedProvider(_answer), config=False, store=store, budget=10_000_000
    )
    print("ready", flush=True)
    sys.stdin.readline()
    tasks = [f"task {number}" for number in range(AGENTS)]
    runs = [session.spawn_all(tasks, name=f"run {number}") for number in range(RUNS)]
    for run in runs:
        run.result(DEADLINE_S)
    made = {run.id: _digest(run.events) for run in runs}
    print(json.dumps({"runs": made, "trouble": session.store.trouble}), flush=True)
    sys.stdin.read()


def _read(store: Path) -> None:
    session = Session(provider=ScriptedProvider([]), config=False, store=store)
    print("ready", flush=True)
    sys.stdin.readline()
    listings, faults, known = 0, dict[str, None](), set[str]()
    is_over = False
    while not is_over:
        is_over = bool(select.select([sys.stdin], [], [], 0)[0])
        try:
            infos = session.runs(None)
            for info in infos:
                if str(info.status) == "running":
                    session.load(info).to_records()
            listings += 1
            wrong = {str(info.status) for info in infos} - {"running", "completed"}
            faults |= dict.fromkeys(f"a run is {status}" for status in wrong)
            if known - {info.id for info in infos}:
                faults["a run was lost"] = None
            known |= {info.id for info in infos}
        except Exception as error:
            faults[repr(error)] = None
    print(json.dumps({"listings": listings, "faults": list(faults)}), flush=True)


def main(role: str, store: str) -> None:
    """Be one of the processes."""
    {"write": _write, "read": _read}[role](Path(store))
