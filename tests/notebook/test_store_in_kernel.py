"""Runs are kept: a kernel is killed, and the next one lists, loads and shows what was done."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.notebook.forked import ForkServer
from tests.notebook.kernel import Door, Kernel, Shown, a_door

PROVIDER = """
import agentnb
provider = agentnb.ScriptedProvider({
    "Plan": '<spawn_agents><agent task="first part"/><agent task="other part"/></spawn_agents>',
    "first part": "First is done.",
    "other part": agentnb.Reply("Other is begun and never finished.", pause=hold),
    "<sub_agent_results>": "Brought together.",
    "Hello": "Well said.",
})
session = agentnb.configure(provider=provider)
"""
FIRST_IS_DONE = """
import asyncio
while str(run.tree.children[0].status) != 'completed':
    await asyncio.sleep(0.001)
"""
NO_HOLD = "hold = None"
STORE = Path(".agentnb/agentnb.db")
EVENTS = "[(getattr(e.event, 'agent_id', ''), e.event.kind) for e in run.events]"


@contextmanager
def started_in(
    folder: Path, fork_server: ForkServer, *, store: str | None = None
) -> Iterator[Kernel]:
    """A kernel that starts in a folder, with the store on unless `store` says something else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("AGENTNB_STORE", raising=False)
        if store is not None:
            patch.setenv("AGENTNB_STORE", store)
        with fork_server.started() as kernel:
            kernel.ok("%load_ext agentnb")
            yield kernel


@pytest.fixture
def door() -> Iterator[Door]:
    with a_door() as door:
        yield door


def cells_of(kernel: Kernel) -> list[Shown]:
    """What a person's usual cells show."""
    kernel.ok(NO_HOLD, PROVIDER)
    cells = [
        "%%spawn -o result\nHello",
        "result",
        "%%spawn --bg -o run\nHello",
        "await run; run",
        "run.events",
        "run.to_records()[0]['answer']",
        "run.panel()",
        "session, run",
    ]
    return [kernel.ok(cell) for cell in cells]


def test_outputs_of_cells_are_the_same_with_and_without_a_store(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    with started_in(tmp_path, fork_server) as kernel:
        kept = cells_of(kernel)
    (tmp_path / "without").mkdir()
    with started_in(tmp_path / "without", fork_server, store="none") as kernel:
        not_kept = cells_of(kernel)

    assert (tmp_path / STORE).is_file()
    assert (tmp_path / ".agentnb" / ".gitignore").read_text() == "*\n"
    assert list((tmp_path / "without").iterdir()) == []
    for one, other in zip(kept, not_kept, strict=True):
        if one.text.startswith("Started in the background"):  # how far the run is differs
            assert one.text.splitlines()[0] == other.text.splitlines()[0]
        else:
            assert (one.text, one.displays) == (other.text, other.displays)
            assert one.unstable == []
        assert one.result_data.keys() == other.result_data.keys()
        assert one.stderr == ""


def test_kernel_that_is_killed_leaves_its_run_to_the_next_one(
    tmp_path: Path, door: Door, fork_server: ForkServer
) -> None:
    with started_in(tmp_path, fork_server) as kernel:
        kernel.ok(door.hold, PROVIDER)
        kernel.ok("%%spawn --bg --name 'the long one' -o run\nPlan")
        door.wait_for_knock()
        kernel.ok(FIRST_IS_DONE)
        seen = kernel.value(EVENTS)
        first = kernel.value("[m.text for m in run.agent('1').messages]")
        run_id = kernel.value("run.id")
        kernel.kill()

    with started_in(tmp_path, fork_server) as kernel:
        kernel.ok("import agentnb")
        listed = kernel.ok("%spawn runs")
        shown = kernel.ok("agentnb.runs()")
        info = kernel.value("[(i.id, i.name, str(i.status)) for i in agentnb.runs()]")
        kernel.ok("run = agentnb.get_session().load(agentnb.runs()[0].id[:30])")
        told = kernel.value(EVENTS)
        records = kernel.value("[(r['path'], r['status'], r['answer']) for r in run.to_records()]")
        again = kernel.value("[m.text for m in run.agent('1').messages]")
        panel = kernel.ok("panel = run.panel(); panel")
        rows = kernel.value(
            "[(r['path'], r['status']) for r in "
            "panel.children[-1].get_state()['snapshot']['agents']]"
        )
        kernel.ok("run.plot(); run.plot_timeline(); run.plot_tokens()")

    assert info == [(run_id, "the long one", "interrupted")]
    assert "the long one" in listed.stdout
    assert "interrupted" in listed.stdout
    assert (listed.unstable, shown.unstable) == ([], [])
    assert "the long one" in json.dumps(shown.result_data)
    # What anyone was told is there; then come the ends that were never written. Not at the same
    # place: text of others that came after the last commit may be lost.
    finished = [each for each in seen if each[1] in ("agent_completed", "model_call_finished")]
    assert set(finished) <= set(told)
    assert [kind for _, kind in told if kind == "agent_interrupted"] == ["agent_interrupted"] * 2
    assert told[-1][1] == "run_finished"
    assert again == first
    assert [(path, status) for path, status, _ in records] == [
        ("root", "interrupted"),
        ("1", "completed"),
        ("2", "interrupted"),
    ]
    assert records[1][2] == "First is done."
    assert "Other is begun".startswith(records[2][2][:5])
    assert panel.views
    assert dict(rows) == {"root": "interrupted", "1": "completed", "2": "interrupted"}


def test_run_of_a_kernel_that_is_restarted_is_interrupted_and_goes_on(
    tmp_path: Path, door: Door, fork_server: ForkServer
) -> None:
    with started_in(tmp_path, fork_server) as kernel:
        kernel.ok(door.hold, PROVIDER, "%%spawn --bg -o run\nPlan")
        door.wait_for_knock()
        kernel.ok(FIRST_IS_DONE)
        kernel.restart()
        kernel.ok("%load_ext agentnb", "import agentnb")
        listed = kernel.value("[(i.task, str(i.status)) for i in agentnb.runs()]")
        offered = kernel.ok("agentnb.runs()")
        kernel.ok(NO_HOLD, PROVIDER)
        recovered = kernel.ok("%spawn recover")
        kernel.ok("run = agentnb.get_session().newest_run\nresult = await run")
        ended = kernel.value("(result.output, [str(i.status) for i in agentnb.runs()])")
        asked = kernel.value("[each.messages[0].text for each in provider.requests]")
        refused = kernel.run("%spawn recover")

    assert listed == [("Plan", "interrupted")]
    assert "`%spawn recover`" in json.dumps(offered.result_data)
    assert "call 1 of agent 2" in recovered.stdout
    assert recovered.views
    assert ended == ("Brought together.", ["completed"])
    assert asked == ["other part", "Plan"]
    assert "No run was interrupted" in refused.error


def test_exhausted_run_goes_on_with_a_larger_budget(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    with started_in(tmp_path, fork_server) as kernel:
        kernel.ok(NO_HOLD, PROVIDER, "%%spawn --quiet --budget 40\nHello")
        status = "[str(i.status) for i in agentnb.runs()]"
        exhausted = kernel.value(status)
        alone = kernel.run("%spawn recover 0")
        too_small = kernel.run("%spawn recover 0 --budget 40")
        wrong = kernel.run("%spawn recover 0 --budget much")
        recovered = kernel.ok("%spawn recover --budget 20_000")
        kernel.ok("result = await agentnb.get_session().newest_run")
        ended = kernel.value(f"(result.output, {status})")
        none_left = kernel.run("%spawn recover --budget 30_000")

    assert exhausted == ["exhausted"]
    assert "`budget=` gives it more" in alone.error
    assert "at least 41" in too_small.error
    assert "whole number of tokens" in wrong.error
    assert "Continuing with more budget: root." in recovered.stdout
    assert recovered.views
    assert ended == ("Well said.", ["completed"])
    assert "No run was interrupted or exhausted" in none_left.error


def test_runs_verb_lists_the_newest_first_and_status_says_where_they_are(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    with started_in(tmp_path, fork_server) as kernel:
        nothing = kernel.ok("%spawn runs")
        kernel.ok(
            NO_HOLD, PROVIDER, "%%spawn --quiet\nHello", "%%spawn --quiet --name second\nHello"
        )
        listed = kernel.ok("%spawn runs")
        status = kernel.ok("%spawn status")
        config = kernel.ok("%agentnb config")
        wrong = kernel.run("%spawn runs all")

    assert nothing.stdout == "There is no run yet: start one with `%%spawn`.\n"
    head, newest, oldest = listed.stdout.splitlines()
    assert head.split() == ["run", "status", "agents", "tokens"]
    assert newest.split()[:4] == ["0", "second", "✓", "completed"]
    assert oldest.split()[:4] == ["1", "Hello", "✓", "completed"]
    assert listed.unstable == []
    last = status.stdout.splitlines()[-1]
    assert last.startswith("Runs are kept in .agentnb/agentnb.db, ")
    assert last.endswith("B (store=None, or AGENTNB_STORE=none in the environment, turns it off).")
    assert status.unstable == []
    assert "  store         .agentnb/agentnb.db (the default); " in config.stdout
    assert "NotebookError: `%spawn runs` does not take 'all': leave it out." in wrong.error


def test_trouble_is_one_line_below_the_first_cell_and_in_status(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    (tmp_path / ".agentnb").write_text("a file in the way")
    with started_in(tmp_path, fork_server) as kernel:
        kernel.ok(NO_HOLD, PROVIDER)
        first = kernel.ok("%%spawn --quiet -o result\nHello")
        second = kernel.ok("%%spawn --quiet -o result\nHello")
        answer = kernel.value("result.output")
        status = kernel.ok("%spawn status")
        listed = kernel.value("[i.task for i in agentnb.runs()]")

    assert len(first.stderr.splitlines()) == 1
    assert second.stderr == ""
    assert answer == "Well said."
    assert status.stdout.splitlines()[-1] == first.stderr.strip()
    assert listed == ["Hello", "Hello"]
    assert (tmp_path / ".agentnb").read_text() == "a file in the way"
