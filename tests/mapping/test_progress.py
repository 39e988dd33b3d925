"""A map in a script draws its progress on stderr, and in a notebook shows its table."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import termios
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agentnb.session import Session
from tests.mapping.mapped import session_of

SCRIPT = """
import sys, threading
import agentnb
session = agentnb.Session(model="demo", store=None)
run = session.map([f"row {i}" for i in range(12)], "What is in {{text}}?", progress=PROGRESS)
out = run.result()
print(out.status, sorted(t.name for t in threading.enumerate() if "progress" in t.name),
      "TMonitor" in repr(threading.enumerate()), "tqdm" in sys.modules)
"""


def run_script(tmp_path: Path, progress: str, *, terminal: bool = False) -> tuple[str, str]:
    """Run it; returns stdout and stderr."""
    command = [sys.executable, "-c", SCRIPT.replace("PROGRESS", progress)]
    settings: dict[str, Any] = {"cwd": tmp_path, "timeout": 60, "check": True, "text": True}
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    if not terminal:
        done = subprocess.run(command, capture_output=True, env=environment, **settings)
        return done.stdout, done.stderr
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=theirs, env=environment, **settings
        )
        os.close(theirs)
        said = b""
        with suppress(OSError):  # its end
            while piece := os.read(ours, 100_000):
                said += piece
    finally:
        os.close(ours)
    return done.stdout, said.decode()


def test_script_draws_a_line_and_leaves_no_thread(tmp_path: Path) -> None:
    stdout, stderr = run_script(tmp_path, "True")

    assert stdout.split() == ["completed", "[]", "False", "True"]
    last = stderr.rstrip("\n").rpartition("\r")[2]
    assert "100%" in last
    assert "12/12" in last


def test_line_is_drawn_for_a_terminal_alone_unless_it_is_wanted(tmp_path: Path) -> None:
    stdout, stderr = run_script(tmp_path, "None")
    assert stdout.split() == ["completed", "[]", "False", "False"]
    assert "Rows" not in stderr

    assert "12/12" in run_script(tmp_path, "None", terminal=True)[1]
    assert "Rows" not in run_script(tmp_path, "False", terminal=True)[1]


@pytest.fixture
def session() -> Session:
    return session_of("late")


def test_broken_stderr_does_not_fail_the_map(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        encoding = "utf-8"

        def write(self, _: str) -> int:
            raise OSError("no space left on device")

        flush = isatty = write

    monkeypatch.setattr(sys, "stderr", Broken())

    out = session.map(["a", "b"], "What is {{text}}?", progress=True).result()

    assert [row["answer"] for row in out.to_records()] == ["late", "late"]
    assert not any(thread.name == "agentnb-progress" for thread in threading.enumerate())


def test_map_shows_its_view_alone_in_a_notebook_and_a_line_elsewhere(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = session.map([{"complaint": "it came late", "at": 1}, {"at": 2}], "What was at {{at}}?")
    run.result()
    shown: list[Any] = []
    monkeypatch.setattr("agentnb.views.panel.show.show_live", shown.append)
    monkeypatch.setattr("agentnb.mapping.run.is_notebook", lambda: True)

    for wanted in ("", "widget"):
        monkeypatch.setenv("AGENTNB_DISPLAY", wanted)
        run._ipython_display_()
    monkeypatch.setenv("AGENTNB_DISPLAY", "none")
    run._ipython_display_()
    for wanted in ("static", "text"):
        monkeypatch.setenv("AGENTNB_DISPLAY", wanted)
        with pytest.raises(NotImplementedError):
            run._ipython_display_()

    table = shown[0].children[-1]
    whole = json.loads(json.dumps(table._full_frame()))
    assert [type(panel).__name__ for panel in shown] == ["MapPanel", "MapPanel"]
    assert (whole["rows"], whole["labels"]) == (2, ["it came late", ""])
    assert {row["path"]: row["answer"] for row in whole["agents"]}["1"] == "late"
    (words,) = run._repr_mimebundle_().values()
    assert words.endswith("completed): 2 of 2 rows done")
    for panel in shown:
        panel.close()
