"""Record, replay and auto by the magics in a real kernel, with the cassette beside the notebook."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentnb.modes import MODES
from tests.notebook.forked import ForkServer
from tests.notebook.kernel import NO_SESSION, Kernel, Shown

NEW_SCENE = """
import agentnb, os
import agentnb.repeat
agentnb.repeat._said = None
os.chdir({folder!r})
open("rivers.ipynb", "w").close()
os.environ["JPY_SESSION_NAME"] = os.path.abspath("rivers.ipynb")
length = "How long is the Rhine?"

def model(request):
    said = request.last_user_text
    if "<task>" in request.system:
        return "It is long." if said == length else "It is long, I think."
    if "<sub_agent_results>" in said:
        return said.count("I think") and "Perhaps." or "Surely."
    return f'<spawn_agents><agent task="And the Danube?"/><agent task="{{length}}"/></spawn_agents>'

provider = agentnb.ScriptedProvider(model)
session = agentnb.configure(provider=provider)
"""
CELL = "%%spawn --name rivers\nWhich river is longer?"
LIST = (
    'result = await agentnb.get_session().spawn_all(["And the Danube?", length], name="list")\n'
    "print(result.output)"
)
CASSETTE = "rivers.cassette.jsonl"


@pytest.fixture(scope="module")
def shared_kernel(fork_server: ForkServer) -> Iterator[Kernel]:
    with fork_server.started() as kernel:
        yield kernel


@pytest.fixture
def kernel(shared_kernel: Kernel, tmp_path: Path) -> Kernel:
    """A kernel of a new notebook, `rivers.ipynb`, in an empty folder."""
    shared_kernel.ok("%load_ext agentnb", NO_SESSION, NEW_SCENE.format(folder=str(tmp_path)))
    return shared_kernel


def is_short_error(shown: Shown, name: str) -> bool:
    """Whether a cell shows an error in a few lines, and beside it at most the live view."""
    return (
        (shown.status, shown.error_name) == ("error", name)
        and shown.error.startswith(f"{name}: ")
        and len(shown.error.splitlines()) <= 8
        and shown.text.strip() == shown.error
    )


def asked(kernel: Kernel) -> int:
    return int(kernel.value("len(provider.requests)"))


def labels(folder: Path) -> set[str]:
    lines = (folder / CASSETTE).read_text(encoding="utf-8").splitlines()[1:]
    return {json.loads(line)["run"] for line in lines}


def test_mode_without_a_word_says_which_is_in_force_and_why(kernel: Kernel) -> None:
    assert "live (the default)" in kernel.ok("%agentnb mode").stdout

    said = kernel.ok("%agentnb mode record", "%agentnb mode").stdout
    assert "record (%agentnb mode)" in said
    assert f"{CASSETTE} (the notebook's, by Jupyter)" in said


def test_setting_a_mode_says_the_same_whoever_names_the_notebook(kernel: Kernel) -> None:
    """A saved notebook may begin with that line, and nbval compares what it says."""
    by_jupyter = kernel.ok("%agentnb mode replay").stdout
    kernel.ok("del os.environ['JPY_SESSION_NAME']")
    kernel.ok("os.environ['PYTEST_CURRENT_TEST'] = 'here/rivers.ipynb::Cell 0 (call)'")

    by_nbval = kernel.ok("%agentnb mode replay").stdout
    in_full = kernel.ok("%agentnb mode").stdout
    kernel.ok("del os.environ['PYTEST_CURRENT_TEST']")

    assert by_nbval == by_jupyter
    assert CASSETTE in by_nbval
    assert "by nbval" in in_full


def test_unknown_word_is_one_line_with_the_known_ones_and_the_mode_stays(kernel: Kernel) -> None:
    before = kernel.ok("%agentnb mode auto", "%agentnb mode").stdout

    shown = kernel.run("%agentnb mode tape")

    assert is_short_error(shown, "NotebookError")
    assert all(mode in shown.error for mode in MODES)
    assert kernel.ok("%agentnb mode").stdout == before


def test_mode_that_code_has_set_is_left_to_code(kernel: Kernel) -> None:
    kernel.ok("session = agentnb.configure(mode='live')")
    assert "live (set in code)" in kernel.ok("%agentnb mode").stdout

    shown = kernel.run("%agentnb mode record")

    assert is_short_error(shown, "NotebookError")
    assert "configure(mode=None)" in shown.error


def test_session_of_before_starts_no_run_in_the_mode_of_before(kernel: Kernel) -> None:
    kernel.ok(
        "own = agentnb.Session(provider=provider, mode='live', store=None)",
        *("%agentnb mode record", "%agentnb mode live", "session.run_sync(length)"),
        "%agentnb mode record",
    )
    before = asked(kernel)
    kernel.ok("task = session.tasks.create('Length', length)")  # it starts no run
    for call in (
        *("session.run_sync(length)", "session.spawn_all([length])", "thread.send(length)"),
        "session.tasks.create('Length', length, assigned_to='new:scripted/reader')",
        "session.tasks.update(task.id, assigned_to=thread.id)",
    ):
        shown = kernel.run(f"thread = session.threads()[0]\n{call}")
        assert (shown.status, shown.error_name) == ("error", "ModeChanged")
        assert "agentnb.get_session()" in shown.error
    assert asked(kernel) == before

    # Code has set the mode of the one; the other was made since.
    kernel.ok("own.run_sync(length)", "agentnb.get_session().run_sync(length)")


def test_words_of_mode_are_completed(kernel: Kernel) -> None:
    assert kernel.completed("%agentnb mode |") == [f"%agentnb mode {mode}" for mode in MODES]
    assert kernel.completed("%agentnb mode rep|") == ["%agentnb mode replay"]


def test_cell_that_was_recorded_is_replayed_with_the_same_outputs(
    kernel: Kernel, tmp_path: Path
) -> None:
    kernel.ok("%agentnb mode record")
    first = kernel.ok(CELL)
    assert labels(tmp_path) == {"rivers"}
    count = asked(kernel)

    kernel.ok("%agentnb mode replay")
    again = kernel.ok(CELL)

    assert asked(kernel) == count
    assert again.displays == first.displays
    assert [data["text/plain"] for data, _ in again.pictures] == [
        data["text/plain"] for data, _ in first.pictures
    ]
    assert again.stderr == first.stderr == ""


def test_run_all_once_more_in_one_kernel_records_under_the_same_labels(
    kernel: Kernel, tmp_path: Path
) -> None:
    for _ in range(2):
        kernel.ok("%agentnb mode record", CELL, CELL)

    assert labels(tmp_path) == {"rivers", "rivers~2"}


def test_task_for_a_new_agent_has_the_same_ids_in_each_go(kernel: Kernel) -> None:
    """A session before was live, with an id of chance; its agents' ids begin with its own."""
    kernel.ok("provider = agentnb.ScriptedProvider(lambda request: 'Deep.')")
    live = kernel.value("agentnb.configure(provider=provider, tools=['tasks']).id")
    seen = []
    for mode in ("record", "replay"):
        kernel.ok(
            f"%agentnb mode {mode}",
            "%%task new Measure --to new:scripted/any\nHow deep is it?",
            "task = agentnb.get_session().tasks.get('t1')",
            "result = await agentnb.get_session().thread(task.assigned_to).send('And now?')",
        )
        seen.append(kernel.value("[agentnb.get_session().id, task.assigned_to]"))

    assert seen[0] == seen[1]
    kernel.ok("%agentnb mode live")
    assert kernel.value("agentnb.get_session().id") == live


def test_auto_tells_what_it_asked_and_what_is_used_no_more_outside_of_the_outputs(
    kernel: Kernel,
) -> None:
    kernel.ok("%agentnb mode record", LIST, "length = 'And the long Rhine?'", "%agentnb mode auto")
    count = asked(kernel)

    shown = kernel.ok(LIST)
    said = kernel.ok("%agentnb mode").stdout

    assert asked(kernel) == count + 2
    assert (shown.text.strip(), shown.stderr) == ("Perhaps.", "")
    assert "2 new calls (root, 2), 1 answered from the cassette" in said
    assert f"python -m agentnb cassette prune {CASSETTE}" in said
    assert "agent 2, call 1 (scripted): 'How long is the Rhine?'" in said
    replayed = kernel.ok("%agentnb mode replay", LIST)
    assert replayed.text == shown.text


def test_call_that_is_not_recorded_is_a_short_error_without_the_partial_tree(
    kernel: Kernel,
) -> None:
    kernel.ok("%agentnb mode record", CELL, "%agentnb mode replay")

    shown = kernel.run(CELL.replace("longer", "shorter"))

    assert is_short_error(shown, "NotRecorded")
    assert "river is [-longer-]{+shorter+}" in shown.error
    assert "%agentnb mode auto" in shown.error


@pytest.mark.parametrize("mode", ["replay", "auto"])
def test_replayed_error_names_the_day_of_its_recording_outside_of_its_text(
    kernel: Kernel, mode: str
) -> None:
    kernel.ok(
        """
        import datetime
        from agentnb.core.errors import InvalidRequest

        def refuse(request):
            return agentnb.Reply("", error=InvalidRequest("no such model", status_code=400))

        session = agentnb.configure(provider=agentnb.ScriptedProvider(refuse))
        today = lambda: str(datetime.datetime.now(datetime.UTC).date())
        """,
        "%agentnb mode record",
    )
    words = "str(__import__('sys').last_value)"
    before = kernel.value("today()")
    recorded, said = kernel.run(CELL), kernel.value(words)
    kernel.ok(f"%agentnb mode {mode}")
    replayed = kernel.run(CELL)
    days = {day.strip("'") for day in (before, kernel.value("today()"))}

    assert kernel.value(words) == said
    assert recorded.error_name == replayed.error_name == "InvalidRequest"
    assert "recorded on" not in recorded.error
    assert replayed.error.removeprefix(recorded.error).strip() in {
        f"It was recorded on {day}: no model was asked now." for day in days
    }


def test_damaged_cassette_is_a_short_error_with_the_line(kernel: Kernel, tmp_path: Path) -> None:
    kernel.ok("%agentnb mode record", CELL)
    path = tmp_path / CASSETTE
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([*lines[:2], "<<<<<<< ours\n", *lines[2:]]), encoding="utf-8")

    said = kernel.ok("%agentnb mode replay").stdout
    shown = kernel.run(CELL)

    assert is_short_error(shown, "BadCassette")
    assert f"line 3 of '{CASSETTE}'" in shown.error
    assert f"line 3 of '{CASSETTE}'" in said


def test_cut_last_line_is_told_once(kernel: Kernel, tmp_path: Path) -> None:
    kernel.ok("%agentnb mode record", CELL, "%agentnb mode replay")
    path = tmp_path / CASSETTE
    path.write_bytes(path.read_bytes()[:-9])

    first, again = kernel.ok(CELL), kernel.ok(CELL)

    assert "the last one, is cut off" in first.stderr
    assert again.stderr == ""
    assert again.displays == first.displays


def test_without_a_notebook_a_run_says_what_names_the_cassette(kernel: Kernel) -> None:
    kernel.ok("os.environ['JPY_SESSION_NAME'] = 'renamed.ipynb'", "%agentnb mode replay")

    shown = kernel.run(CELL)

    assert is_short_error(shown, "NoCassette")
    assert "AGENTNB_CASSETTE" in shown.error
    assert "'renamed.ipynb' is not there" in shown.error


def test_thread_of_an_earlier_kernel_is_for_live_runs(kernel: Kernel, tmp_path: Path) -> None:
    kernel.ok("session = agentnb.configure(store='runs.db')", CELL)
    thread = kernel.value("agentnb.get_session().newest_run.thread_id")
    kernel.ok("%agentnb mode record", CELL)

    kernel.restart()
    kernel.ok("%load_ext agentnb", NEW_SCENE.format(folder=str(tmp_path)))
    kernel.ok("session = agentnb.configure(store='runs.db')", "%agentnb mode replay", CELL)
    shown = kernel.run(f"%%spawn --thread {thread}\nAnd the shortest?")

    assert is_short_error(shown, "NoSuchThread")
    assert "`live`" in shown.error
