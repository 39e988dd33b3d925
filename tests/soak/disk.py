"""A store with a full disk, or a wrong file, gives one sentence, and the run continues.

By hand as root, the full disk is a real one of 2 MB; in the tests it is a limit on the size of a
file. `python -m tests.soak disk`.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.forks import run_program

# Two runs of three agents each, with actions before, between and after them.
_CODE = """
import json, os, resource, shutil, signal, sys
from agentnb import ScriptedProvider, Session
from tests.support import spawn

LENGTH = {length}
def answer(request):
    if "<sub_agent_results>" in request.last_user_text:
        return "Brought together."
    return "word " * LENGTH if "<task>" in request.system else spawn("one", "two")

path = {path!r}
session = Session(provider=ScriptedProvider(answer), config=False, store=path, budget=10**9,
                  max_output_tokens=10**7)
results, troubles = [], []
def run():
    results.append(session.run_sync("Plan."))
    troubles.append(session.store.trouble)

{before}
run()
{between}
run()
{after}
listed = [str(info.status) for info in session.runs()] if {lists} else []
print(json.dumps({{
    "ends": [[str(result.agent_tree.status), result.output] for result in results],
    "troubles": troubles,
    "listed": listed,
}}))
"""

ANSWERED = [["completed", "Brought together."]] * 2
"""Status and output with which both runs must end."""


@dataclass(frozen=True)
class Seen:
    """What a process with a store observed."""

    ends: list[list[str]]
    """Status and output of each run."""
    troubles: list[str | None]
    """The trouble after each run."""
    listed: list[str]
    """Statuses of the listed runs, newest first."""
    errors: list[str]
    """Lines on the error output."""


def seen_with(
    path: Path,
    *,
    before: str = "",
    between: str = "",
    after: str = "",
    length: int = 100,
    lists: bool = True,
) -> Seen:
    """Make two runs in a process of their own, with a store at `path`."""
    code = _CODE.format(
        path=str(path), before=before, between=between, after=after, length=length, lists=lists
    )
    done = run_program(code)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return Seen(**said, errors=done.stderr.splitlines())


LIMIT_FILES = """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2**18, 2**18))
LENGTH = 200_000
"""
"""The disk has room for 256 KiB in one file, and the next run needs 2 MB."""
FILL = """
LENGTH = 1_000_000
"""


def faults_of_a_full_disk(path: Path, *, fill: str) -> list[str]:
    """Faults when the disk is full in the second of two runs."""
    seen = seen_with(path, between=fill)
    faults = []
    if seen.ends != ANSWERED:
        faults.append(f"the runs ended as {[(status, text[:80]) for status, text in seen.ends]}")
    if seen.troubles[0] is not None or not seen.troubles[1]:
        faults.append(f"the trouble is {seen.troubles}")
    if seen.errors != [seen.troubles[1]]:
        faults.append(f"on the error output stands {seen.errors}")
    if seen.listed != ["completed", "completed"]:
        faults.append(f"the process itself lists {seen.listed}")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        if db.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            faults.append("the file is damaged")
        first = db.execute("SELECT status FROM runs ORDER BY id LIMIT 1").fetchone()
        if first != ("completed",):
            faults.append(f"of the first run the file says {first}")
    return faults


def points(folder: Path, count: int, seed: int) -> Iterator[tuple[str, list[str]]]:
    """Fill a disk `count` times; yield what was done and what broke."""
    for place in range(count):
        if os.geteuid() != 0:
            yield (
                "a limit on the size of files (only root may mount a disk)",
                faults_of_a_full_disk(folder / f"{place}.db", fill=LIMIT_FILES),
            )
            continue
        disk = folder / "disk"
        disk.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], check=True)
        try:
            yield "a disk of 2 MB", faults_of_a_full_disk(disk / "x.db", fill=FILL)
        finally:
            subprocess.run(["umount", disk], check=True)
