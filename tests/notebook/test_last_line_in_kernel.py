"""Cells whose last line is one of our values, in a real kernel and in a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.notebook.forked import ForkServer
from tests.notebook.kernel import DEADLINE_S, Kernel, a_door

SCRIPT = """
import agentnb
from agentnb.providers.scripted import Reply
session = agentnb.Session(provider=agentnb.ScriptedProvider({
    "<sub_agent_results>": "# Both\\n\\nA is **red**, B is unknown.",
    "Compare":
        'Each alone. <spawn_agents><agent task="Read A" /><agent task="Read B" /></spawn_agents>',
    "Read A": "It is *red*.",
    "Read B": agentnb.LlmError("The page is gone."),
    "Held": Reply("It goes on, and ends.", pause=hold),
}))
"""
SYNC = "session.run_sync('Compare A and B')"
CELLS = [
    "run",
    "result",
    SYNC,
    "result.sub_agent_results",
    "result.sub_agent_results[0]",
    "result.incomplete[:1]",
    "result.memory_contexts",
    "run.events",
    "run.tree",
    "run.cost",
    "agentnb.load_run(run.to_json('run.json') or 'run.json')",
]
TREE = "root ✓ completed · Compare A and B\n├─ 1 ✓ completed · Read A\n└─ 2 ✗ failed · Read B"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Iterator[Kernel]:
    with a_door() as door, fork_server.started() as kernel:
        kernel.ok(f"import os; os.chdir({str(tmp_path_factory.mktemp('kernel'))!r})")
        kernel.ok(door.hold, SCRIPT)
        kernel.ok("held = session.spawn('Held')")
        door.wait_for_knock()
        yield kernel
        door.open()
        kernel.ok("held.result(60).output")


def test_last_line_shows_the_same_in_every_replay_with_and_without_the_extension(
    kernel: Kernel,
) -> None:
    make = "run = session.spawn('Compare A and B'); result = run.result(60)"

    def outputs() -> dict[str, dict[str, str]]:
        kernel.ok(SCRIPT, make)
        shown = {cell: kernel.ok(cell) for cell in CELLS}
        assert {cell: one.unstable for cell, one in shown.items() if one.unstable} == {}
        return {cell: one.result_data for cell, one in shown.items()}

    plain = outputs()
    again = outputs()
    kernel.ok("%load_ext agentnb")
    with_extension = outputs()

    assert plain == again == with_extension
    assert {frozenset(data) for data in plain.values()} == {frozenset({"text/plain", "text/html"})}
    for cell in ("run", "result", SYNC, CELLS[-1]):
        assert TREE in plain[cell]["text/plain"]
        assert "<h1>Both</h1>" in plain[cell]["text/html"]
    assert "<em>red</em>" in plain["result.sub_agent_results[0]"]["text/html"]
    line = "SubAgentResults(2 results: 1 completed, 1 failed)"
    assert plain["result.sub_agent_results"]["text/plain"] == line
    assert "<table>" in plain["result.sub_agent_results"]["text/html"]


def test_run_that_goes_on_shows_its_tree_as_it_is(kernel: Kernel) -> None:
    first, second = kernel.ok("held"), kernel.ok("held")

    assert first.result_data == second.result_data
    assert "root ► running · Held" in first.result
    assert "the run has not ended" in first.result
    assert first.unstable == []


def test_terminal_prints_the_plain_text() -> None:
    lines = [
        "import agentnb",
        'session = agentnb.Session(provider=agentnb.ScriptedProvider(["It **is**."]))',
        'session.run_sync("Is it so?")',
        'session.run_sync("Is it so?").incomplete',
    ]

    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--no-banner", "--simple-prompt", "--colors=NoColor"],
        input="\n".join([*lines[:3], *lines[1:2], *lines[3:], ""]),
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=DEADLINE_S,
        check=True,
    )

    assert "root ✓ completed · Is it so?" in done.stdout
    assert "It **is**." in done.stdout
    assert "SubAgentResults(no results)" in done.stdout
    assert "<div" not in done.stdout
