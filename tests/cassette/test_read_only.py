"""A cassette in a folder that a class may only read: answers come from it, and nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb import ScriptedProvider, Session
from agentnb.cassette import Cassette
from tests.repeating import ended, new_kernel
from tests.support import DEADLINE_S

NAME = "x.cassette.jsonl"
NOBODY = "os.setgroups([]); os.setgid(65534); os.setuid(65534)" if os.geteuid() == 0 else ""
SCRIPT = f"""
import json, os, resource, signal, sys, tempfile
from agentnb import ScriptedProvider, Session
from agentnb.notebook.settings import mode_text

asked = []

def model(request):
    asked.append(1)
    return "Seven metres."

def session_in(mode, path):
    return Session(
        provider=ScriptedProvider(model), mode=mode, cassette=path, store=None, config=False
    )

with tempfile.TemporaryDirectory() as other:  # what is imported late is imported now
    for mode in ("record", "auto", "replay"):
        mode_text(session := session_in(mode, other + "/y.cassette.jsonl"))
        session.run_sync("a task")
{NOBODY}
# (before)
rows = []
for mode, task in json.loads(sys.argv[1]):
    session = session_in(mode, sys.argv[2])
    before = len(asked)
    try:
        said = session.run_sync(task, name="deep").output
    except Exception as error:
        said = f"{{type(error).__name__}}: {{error}}"
    sys.stderr.flush()
    rows.append([said, len(asked) - before, mode_text(session, in_full=False)])
print(json.dumps(rows))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not a `tmp_path`: pytest lets nobody else into the folders above it."""
    with tempfile.TemporaryDirectory() as above:
        Path(above).chmod(0o755)
        folder = Path(above, "course")
        folder.mkdir(mode=0o777)
        yield folder
        folder.chmod(0o755)


def seen_by_a_student(
    path: Path, *runs: tuple[str, str], where: Path | None = None, before: str = ""
) -> tuple[list[list[Any]], str]:
    """Of each run its answer, the calls that it made and what its mode says; the error output."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("# (before)", before), json.dumps(runs), str(path)],
        cwd=where or path.parent,
        env={**os.environ, "PYTHONPATH": str(Path(agentnb.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    return json.loads(done.stdout), done.stderr


def record(path: Path) -> None:
    provider = ScriptedProvider(lambda _: "Seven metres.")
    with new_kernel():
        session = Session(provider=provider, mode="record", cassette=path, store=None, config=False)
        ended(session.spawn("How deep?", name="deep"))


def test_cassette_in_a_folder_that_does_not_exist_asks_no_model(folder: Path) -> None:
    seen, told = seen_by_a_student(
        Path("missing", NAME), ("record", "How long?"), ("auto", "How wide?"), where=folder
    )

    assert seen[0][0].startswith(f"NoCassette: '{NAME}' cannot be written, since its folder does")
    assert [calls for _, calls, _ in seen] == [0, 1]
    assert seen[1][0] == "Seven metres."
    assert told == f"{NAME}: new calls are answered, and not kept.\n"


@pytest.mark.parametrize("mode", ["record", "auto"])
@pytest.mark.parametrize("begins", ["with the first line", "behind a run"])
def test_full_disk_costs_no_answer_and_no_older_recording(
    folder: Path, mode: str, begins: str
) -> None:
    path = folder / NAME
    folder.chmod(0o777)
    if begins == "behind a run":
        record(path)
        path.chmod(0o666)
    size = path.stat().st_size if path.exists() else 0

    full = (
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size + 5}, {size + 5}))"
    )
    seen, told = seen_by_a_student(path, (mode, "How long?"), before=full)

    assert [(said, calls) for said, calls, _ in seen] == [("Seven metres.", 1)]
    assert (
        "cannot be written (No space left on device): calls are answered, and not kept.\n" in told
    )
    assert (path.stat().st_size if path.exists() else 0) == size
    record(path)
    assert Cassette.read(path).labels == ("deep",)


@pytest.mark.parametrize("what", ["folder", "file", "new file"])
def test_what_is_recorded_is_answered_and_what_is_new_is_not_kept(folder: Path, what: str) -> None:
    path = folder / NAME
    if what != "new file":
        record(path)
        path.chmod(0o444)
    folder.chmod(0o777 if what == "file" else 0o555)
    before = path.read_bytes() if path.exists() else None
    known = [] if before is None else [("replay", "How deep?"), ("auto", "How deep?")]

    new = [("auto", "How long?"), ("auto", "How wide?"), ("record", "How long?")]
    seen, told = seen_by_a_student(path, *known, *new)

    answers = [(said, calls) for said, calls, _ in seen]
    assert answers[:-3] == [("Seven metres.", 0)] * len(known)
    assert answers[-3:-1] == [("Seven metres.", 1)] * 2
    assert answers[-1][0].startswith(f"NoCassette: '{NAME}' cannot be written, since it")
    assert answers[-1][1] == 0
    assert told == f"{NAME}: new calls are answered, and not kept.\n"
    modes = [mode for _, _, mode in seen]
    assert all("may only be read" in mode for mode in modes[-3:])
    assert ["may only be read" in mode for mode in modes[:-3]] == [False, True][: len(known)]
    assert (path.read_bytes() if path.exists() else None) == before
    assert sorted(each.name for each in folder.iterdir()) == [NAME] * (before is not None)
