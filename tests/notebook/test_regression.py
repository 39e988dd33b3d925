"""A notebook with a cassette is compared by nbval: what its runs do otherwise makes it fail.

One notebook serves all: each of its cells has a run of its own, which is recorded and shown. Then
all but one are recorded anew by models that do something else.
"""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest
from nbclient import NotebookClient

import agentnb
from agentnb.core.errors import InvalidRequest, NotRecorded
from agentnb.repeat import counted_anew
from agentnb.testing import Reply, by_agent, spawn
from tests.notebook.forked import LAUNCHER, ForkServer
from tests.notebook.kernel import DEADLINE_S
from tests.notebook.saved import code, load, notebook, save
from tests.pages import ROOT, blocks_of, code_of

TASK = "Which river is longer?"
AGENTS: dict[str, Any] = {
    "root": [spawn("the Danube", "the Rhine"), "The Danube is longer."],
    "the Danube": "It has 2850 km.",
    "the Rhine": "It has 1233 km.",
}
CHANGES: dict[str, Mapping[str, Any]] = {
    "nothing": {},
    "another-answer": {"root": [AGENTS["root"][0], "The Rhine, as far as I know."]},
    "another-word": {"root": [AGENTS["root"][0], "The Danube is much longer."]},
    "missing-agent": {"root": [spawn("the Danube"), "The Danube is longer."]},
    "another-status": {"the Rhine": Reply("", error=InvalidRequest("no such river"))},
    "another-order": {"root": [spawn("the Rhine", "the Danube"), "The Danube is longer."]},
    "lost-call": {},
}
SETUP = """\
%load_ext agentnb
import agentnb
session = agentnb.configure(provider=agentnb.ScriptedProvider([]), store=None)
assert session.mode.name == "replay", session.mode"""
PAGE = "docs/regression.md"
# In CI the script is empty: only the cassette can answer.
IN_CI_WITHOUT_A_MODEL = f"""\
import os
import agentnb
from agentnb.testing import by_agent, spawn
answers = {{
    "root": [spawn("the Danube", "the Rhine"), {AGENTS["root"][1]!r}],
    "the Danube": {AGENTS["the Danube"]!r},
    "the Rhine": {AGENTS["the Rhine"]!r},
}}
model = agentnb.ScriptedProvider([]) if "CI" in os.environ else by_agent(answers)
session = agentnb.configure(provider=model, store=None)"""


@pytest.fixture(scope="module")
def report(
    tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer
) -> Mapping[str, str | None]:
    """What nbval says of each cell, by the name of its run; `None` if it passed."""
    folder = tmp_path_factory.mktemp("lesson")
    cassette = folder / "lesson.cassette.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        record(cassette, {name: {} for name in CHANGES})
        patch.setenv("AGENTNB_MODE", "replay")
        patch.setenv("AGENTNB_CASSETTE", str(cassette))  # nbclient tells no notebook's name
        cells = [code(f"%%spawn --name {name}\n{TASK}") for name in CHANGES]
        lesson = notebook(code(SETUP), *cells)
        patch.setattr(LAUNCHER, fork_server.launch)
        NotebookClient(lesson, timeout=int(DEADLINE_S), kernel_name="python3").execute()
        save(lesson, folder / "lesson.ipynb")
        record(cassette, CHANGES)
        lines = cassette.read_text().splitlines(keepends=True)
        place = '"run":"lost-call","path":"2","number":1'
        cassette.write_text("".join(line for line in lines if place not in line))
        patch.delenv("AGENTNB_CASSETTE")  # nbval tells the notebook's name
        patch.setenv("AGENTNB_MODE", "live")  # the option comes before it
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # also ours, where it is installed
        report = nbval(folder, "--agentnb-mode=replay")
        return dict(zip(["setup", *CHANGES], report, strict=True))


def record(cassette: Path, changes: Mapping[str, Mapping[str, Any]]) -> None:
    with counted_anew():
        for name, change in changes.items():
            provider = by_agent({**AGENTS, **change})
            session = agentnb.Session(
                provider=provider, mode="record", cassette=cassette, store=None
            )
            session.spawn(TASK, name=name).result(DEADLINE_S)


def nbval(folder: Path, *options: str) -> list[str | None]:
    """What it says of each cell, in order; `None` if that passed."""
    for _ in range(3):
        done, cells = nbval_once(folder, *options)
        if not any(cell.find("error") is not None for cell in cells):
            break  # else its kernel did not start: others that start now may have taken its ports
    else:
        raise AssertionError(done.stdout + done.stderr)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return [None if (wrong := cell.find("failure")) is None else wrong.text for cell in cells]


def nbval_once(
    folder: Path, *options: str
) -> tuple[subprocess.CompletedProcess[str], list[ET.Element]]:
    plugins = ["-p", "nbval.plugin", "-p", "agentnb.pytest_plugin", "-p", "no:cacheprovider"]
    own = ["--nbval", "--nbval-current-env", "--junitxml=report.xml", "--color=no"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *own, *options, "lesson.ipynb"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
    )
    return done, [*ET.parse(folder / "report.xml").iter("testcase")]


def test_run_that_does_the_same_passes(report: Mapping[str, str | None]) -> None:
    assert report["setup"] is None
    assert report["nothing"] is None


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("another-answer", ["- The Danube is longer.", "+ The Rhine, as far as I know."]),
        ("another-word", ["- The Danube is longer.", "+ The Danube is much longer."]),
        ("missing-agent", ["- └─ 2 ✓ completed · the Rhine"]),
        ("another-status", ["- └─ 2 ✓ completed · the Rhine", "+ └─ 2 ✗ failed · the Rhine"]),
        ("another-order", ["- ├─ 1 ✓ completed · the Danube", "+ ├─ 1 ✓ completed · the Rhine"]),
        ("lost-call", ["NotRecorded", "agent 2", "AGENTNB_MODE=auto"]),
    ],
)
def test_change_fails_its_cell_and_the_report_shows_it(
    report: Mapping[str, str | None], name: str, told: list[str]
) -> None:
    said = report[name]

    assert said is not None
    assert [line for line in told if line not in said] == []


def test_notebook_that_was_recorded_as_the_page_says_passes_in_ci_without_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer
) -> None:
    first, mode = (code(block.code) for block in blocks_of(PAGE) if block.language == "ipython")
    cassette = tmp_path / "lesson.cassette.jsonl"
    lesson = notebook(
        first, mode, code(IN_CI_WITHOUT_A_MODEL), code(f"%%spawn --name rivers\n{TASK}")
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # also ours, where it is installed
    monkeypatch.delenv("CI", raising=False)
    with monkeypatch.context() as patch:
        patch.setenv("AGENTNB_CASSETTE", str(cassette))  # nbclient tells no notebook's name
        patch.setattr(LAUNCHER, fork_server.launch)
        NotebookClient(lesson, timeout=int(DEADLINE_S), kernel_name="python3").execute()
    assert "Mode: record" in str(mode.outputs)

    lesson.cells.remove(mode)
    save(lesson, tmp_path / "lesson.ipynb")
    recorded = cassette.read_bytes()
    monkeypatch.setenv("CI", "true")

    assert nbval(tmp_path) == [None] * 3
    assert cassette.read_bytes() == recorded

    model = by_agent({"root": "!"})
    with counted_anew():
        session = agentnb.Session(provider=model, mode="auto", cassette=cassette, store=None)
        session.run_sync("x", name="deleted")
    done, _ = nbval_once(tmp_path)
    assert "1 recording was not used:\n  lesson.cassette.jsonl: 'deleted'\n" in done.stdout


def test_page_quotes_what_is_said_of_a_call_that_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answers = {"How long is the Danube?": "2850 km.", "How long is the Rhine?": "1233 km."}
    provider = by_agent(answers)
    provider.name = "anthropic"

    def run(mode: str, *tasks: str) -> None:
        session = agentnb.Session(
            agentnb.settings.DEFAULT_MODEL,
            provider=provider,
            mode=mode,
            cassette="rivers.cassette.jsonl",
            store=None,
        )
        with counted_anew():
            session.spawn_all(tasks, name="rivers").result(DEADLINE_S)

    run("record", *answers)
    with pytest.raises(NotRecorded) as raised:
        run("replay", "How long is the Danube?", "How long is the Rhône?")

    quoted = indent(f"NotRecorded: {raised.value}\n", "  ")
    assert f"```text\n{quoted}  ```" in (ROOT / PAGE).read_text(encoding="utf-8")


def test_page_quotes_what_is_said_of_an_agent_with_another_status(
    report: Mapping[str, str | None],
) -> None:
    (quoted,) = (text for text in code_of(PAGE, "text") if "no such river" in text)

    assert dedent(quoted) in (report["another-status"] or "")


def test_jupyter_execute_in_ci_stops_before_the_first_call_and_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = """\
%load_ext agentnb
import agentnb
class Remote(agentnb.ScriptedProvider):
    uses_network = True
provider = Remote(["never read"])
session = agentnb.configure(provider=provider, store=None)"""
    lesson = notebook(
        code(setup), code(f"%%spawn\n{TASK}", tags=["raises-exception"]), code("provider.requests")
    )
    save(lesson, tmp_path / "lesson.ipynb")
    (tmp_path / "lesson.cassette.jsonl").touch()
    monkeypatch.setenv("CI", "true")

    command = "from nbclient.cli import main; main()"  # of `jupyter execute`
    done = subprocess.run(
        [sys.executable, "-c", command, "--inplace", "--kernel_name=python3", "lesson.ipynb"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    _, spawned, requests = (cell.outputs for cell in load(tmp_path / "lesson.ipynb").cells)
    assert spawned[0].ename == "NoCassette"
    assert "AGENTNB_CASSETTE" in spawned[0].evalue
    assert requests[0].data["text/plain"] == "[]"
