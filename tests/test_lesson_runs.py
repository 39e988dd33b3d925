"""`python -m agentnb record` and `check` on real notebooks, and what a person reads of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agentnb.__main__ import main
from agentnb.cassette import Cassette
from agentnb.modes import MODE_VARIABLE
from agentnb.testing._lessons import QUESTION, answer, notebooks_in, others_with
from tests.notebook.forked import LAUNCHER, ForkServer
from tests.notebook.saved import code, load, notebook, output, save, words
from tests.pages import code_of

LOAD, MODE = "%load_ext agentnb", "%agentnb mode replay"
MODEL = """\
import agentnb
from agentnb.testing import spawn, task_of

def answer(request):
    if task_of(request) != "root":
        return "It is long."
    return "Both." if len(request.messages) > 1 else spawn("the Danube", "the Rhine")

model = agentnb.ScriptedProvider(answer)
model.name = "anthropic"
_ = agentnb.configure(provider=model, model="anthropic/claude-sonnet-5-5")"""
ROWS = """\
import agentnb

def answer(request):
    return {0!r} if "Oslo" in str(request.messages) else {0!r}

session = agentnb.configure(provider=agentnb.ScriptedProvider(answer))"""
FIRST, SECOND = "%%spawn --name first\nCompare.", "%%spawn --name second\nCompare again."

OTHER = """\
_ = agentnb.configure(cassette="two.cassette.jsonl", mode="auto")
await agentnb.get_session().spawn("Compare.")"""

_VARIES = re.compile(r"\$[\d.]+|\d+ s$", re.MULTILINE)
"""List prices, and seconds."""

SAID = "Mode: replay. Models are not called.\n"
"""As it was said before."""
TODAY = "Mode: replay. All calls are answered from rivers.cassette.jsonl; no model is called.\n"

Say = Callable[..., tuple[int, str]]


@pytest.fixture
def say(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fork_server: ForkServer,
) -> Say:
    """Runs a command line in an empty folder; returns its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LAUNCHER, fork_server.launch)
    for name in (MODE_VARIABLE, "AGENTNB_CASSETTE", "CI", "JPY_SESSION_NAME"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> tuple[int, str]:
        returned = main(arguments)
        said = capsys.readouterr()
        return returned, said.out + said.err

    return run


def lesson(*cells: str, name: str = "rivers.ipynb") -> Path:
    path = Path(name)
    save(notebook(words("# Rivers"), *map(code, cells)), path)
    return path


def edit(path: Path, cell: int, source: str | None) -> None:
    """Change a cell of code, from 1; `None` deletes it."""
    changed = load(path)
    if source is None:
        del changed.cells[cell]
    else:
        changed.cells[cell].source = source
    save(changed, path)


def test_lesson_is_recorded_and_then_as_it_was_saved(say: Say) -> None:
    path = lesson(LOAD, MODE, MODEL, FIRST, SECOND)

    returned, said = say("record", str(path))

    assert returned == 0, said
    assert "8 new calls, 8 recorded calls ($0.0" in said
    saved = load(path)
    assert [cell.source for cell in saved.cells[1:]] == [LOAD, MODE, MODEL, FIRST, SECOND]
    assert "widgets" not in saved.metadata  # no kernel would answer a live view
    assert "Both." in str(saved.cells[4].outputs)
    assert Cassette.read("rivers.cassette.jsonl").labels == ("first", "second")
    before = path.read_bytes(), Path("rivers.cassette.jsonl").read_bytes()

    returned, said = say("check", ".")

    assert returned == 0, said
    assert "✓ rivers.ipynb: 5 cells as saved, 8 recorded calls ($0.0" in said
    assert (path.read_bytes(), Path("rivers.cassette.jsonl").read_bytes()) == before


def test_each_difference_is_told_at_its_cell(say: Say) -> None:
    path = lesson(LOAD, MODEL, FIRST, "print(1)", "# NBVAL_IGNORE_OUTPUT\nprint(2)")
    say("record", str(path))
    changed = load(path)
    changed.cells[3].outputs[0].data["text/plain"] = "Neither."
    changed.cells[4].outputs, changed.cells[5].outputs = [], []
    save(changed, path)

    returned, said = say("check", str(path))

    assert returned == 1
    assert "✗ rivers.ipynb: 2 of 5 cells changed" in said
    first, _, second = said.partition("  cell [4]:")
    assert "  cell [3]:\n    output 1 differs" in first
    assert "- Neither." in first
    assert "+ Both." in first
    assert "+ 1" in second
    assert "[5]" not in second


def test_changed_prompt_is_a_miss_until_it_is_recorded_and_asks_only_what_is_new(say: Say) -> None:
    path = lesson(LOAD, MODE, MODEL, FIRST, SECOND)
    say("record", str(path))
    edit(path, 5, SECOND.replace("again", "once more"))

    returned, said = say("check", str(path))

    assert returned == 1
    assert "stopped in cell 5 of 5, not recorded: a call of 1 cell" in said
    assert "[-again-]{+once more+}" in said

    returned, said = say("record", "--auto", str(path))

    assert returned == 0, said
    (shown,) = [text for text in code_of("docs/regression.md", "text") if "new calls" in text]
    shown = shown.replace("notebooks/", "")
    assert _VARIES.sub("…", said) == _VARIES.sub("…", shown)
    assert say("check", str(path))[0] == 0


def test_runs_of_deleted_cells_are_named_and_pruned(say: Say) -> None:
    path, cassette = lesson(LOAD, MODE, MODEL, FIRST, SECOND), "rivers.cassette.jsonl"
    say("record", str(path))
    edit(path, 5, None)

    assert "no cell asks for 'second'" in say("check", str(path))[1]
    said = say("cassette", "prune", cassette)[1]
    assert "no unused calls in its runs ('first', 'second')" in said
    edit(path, 4, FIRST + "!")  # who knows what comes after a cell that fails?
    before = Path(cassette).read_bytes()
    returned, said = say("cassette", "prune", "--notebook", str(path), cassette)
    assert (returned, Path(cassette).read_bytes()) == (2, before)
    assert "Nothing was removed" in said

    edit(path, 4, FIRST)
    returned, said = say("cassette", "prune", "--notebook", str(path), cassette)

    assert returned == 0, said
    assert "4 calls removed" in said
    assert Cassette.read(cassette).labels == ("first",)
    assert say("check", str(path))[0] == 0


def test_lesson_that_shows_how_to_record_sets_its_own_modes_and_keeps_its_runs(say: Say) -> None:
    shows = "import os\nos.makedirs('own', exist_ok=True)\nos.chdir('own')\n"
    own = 'agentnb.configure(provider=model, cassette="mine.cassette.jsonl")'
    path = lesson(
        LOAD,
        MODEL,
        FIRST,
        f"{shows}_ = {own}\n%agentnb mode record",
        SECOND,
        "%agentnb mode replay",
        SECOND,
    )
    returned, said = say("record", str(path))
    assert returned == 0, said
    Path("own/mine.cassette.jsonl").unlink()
    before = Path("rivers.cassette.jsonl").read_bytes()

    returned, said = say("check", str(path))

    assert returned == 0, said
    assert "7 cells as saved" in said
    assert "no cell asks for" not in said
    returned, said = say("cassette", "prune", "--notebook", str(path), "rivers.cassette.jsonl")
    assert returned == 0, said
    assert Path("rivers.cassette.jsonl").read_bytes() == before


def test_recordings_of_a_lesson_in_another_folder_are_asked_for(say: Say) -> None:
    path = lesson(LOAD, f'{MODEL[:-1]}, cassette="rivers.cassette.jsonl")', MODE, FIRST)
    Path("sub").mkdir()
    Path("linked").symlink_to(".")

    for folder in ("sub/..", "linked"):
        returned, said = say("record", f"{folder}/{path}")
        assert returned == 0, said
        assert "4 recorded calls" in said
        assert "no cell asks for" not in said
        cassette = f"{folder}/rivers.cassette.jsonl"
        returned, said = say("cassette", "prune", "--notebook", f"{folder}/{path}", cassette)
        assert (returned, "no unused calls" in said) == (0, True), said


def test_two_lessons_with_one_cassette_keep_each_others_runs(say: Say, tmp_path: Path) -> None:
    Path("agentnb.yaml").write_text("mode: replay\ncassette: all.cassette.jsonl\n")
    one = lesson(LOAD, MODEL, FIRST, "%%spawn --name third\nCompare.", name="a.ipynb")
    two = lesson(LOAD, MODEL, SECOND, name="b.ipynb")
    say("trust", "agentnb.yaml")
    for path in one, two:
        returned, said = say("record", str(path))
        assert returned == 0, said
    edit(one, 4, None)

    returned, said = say("check", str(one), str(two))

    assert returned == 0, said
    assert "all.cassette.jsonl: no cell asks for 'third' (`cassette prune` removes" in said
    assert said.count("asks for '") == 1
    assert "new call" not in said

    before = Path("all.cassette.jsonl").read_bytes()
    returned, said = say("cassette", "prune", "--notebook", str(one), "all.cassette.jsonl")
    assert (returned, Path("all.cassette.jsonl").read_bytes()) == (2, before)
    assert "Nothing was removed: 'b.ipynb' may ask for runs of 'all.cassette.jsonl', too" in said
    both = ["--notebook", str(one), "--notebook", str(two)]
    returned, said = say("cassette", "prune", *both, "all.cassette.jsonl")

    assert "4 calls removed" in said
    assert Cassette.read("all.cassette.jsonl").labels == ("first", "second")


def test_cell_that_says_the_mode_is_compared_and_saved_but_for_that(say: Say) -> None:
    first = f"{LOAD}\nprint('Hello.')\nif True:\n    {MODE}\nprint(2 + 2)"
    path = lesson(first, MODEL, FIRST)
    changed = load(path)
    changed.cells[1].outputs = [output("stream", text=f"Hello.\n{SAID}5\n")]
    save(changed, path)

    returned, said = say("record", str(path))

    assert returned == 0, said
    saved = load(path).cells[1]
    assert saved.source == first
    assert "".join(each.text for each in saved.outputs) == f"Hello.\n{TODAY}4\n"

    assert say("check", str(path))[0] == 0
    edit(path, 1, first.replace("2 + 2", "2 + 3"))

    returned, said = say("check", str(path))

    assert returned == 1
    assert "  cell [1]:\n    stdout differs (- saved, + now):\n" in said
    assert "      - 4\n      + 5" in said


def test_mode_line_of_a_lesson_that_was_renamed_is_a_difference_as_for_nbval(say: Say) -> None:
    path, cassette = lesson(LOAD, MODE, MODEL, FIRST), Path("rivers.cassette.jsonl")
    changed = load(path)
    changed.cells[2].outputs = [output("stream", text=TODAY)]
    save(changed, path)
    say("record", str(path))
    assert say("check", str(path))[0] == 0
    path, _ = path.rename("lakes.ipynb"), cassette.rename("lakes.cassette.jsonl")

    returned, said = say("check", "lakes.ipynb")

    assert returned == 1
    assert "  cell [2]:\n" in said
    assert f"+ {TODAY.replace('rivers', 'lakes')}" in said
    returned, said = say("record", "--auto", "lakes.ipynb")
    assert (returned, "new call" in said) == (0, False), said
    assert say("check", "lakes.ipynb")[0] == 0


def test_words_on_the_mode_are_no_difference(say: Say) -> None:
    path = lesson(LOAD, MODE, "%agentnb mode", MODEL, FIRST, "print('Mode: slow (3 s)')")
    returned, said = say("record", str(path))
    assert returned == 0, said
    assert "Mode: record (" in str(load(path).cells[3].outputs)

    returned, said = say("check", str(path))

    assert returned == 0, said
    edit(path, 6, "print('Mode: slow (4 s)')")
    returned, said = say("check", str(path))
    assert (returned, "+ Mode: slow (4 s)" in said) == (1, True), said


def test_lessons_in_several_folders_share_a_cassette(say: Say) -> None:
    own = '_ = agentnb.configure(cassette="../all.cassette.jsonl")'
    for folder, cell in ("w1", FIRST), ("w2", SECOND):
        Path(folder).mkdir()
        lesson(LOAD, f"{MODEL}\n{own}", cell, name=f"{folder}/rivers.ipynb")

    returned, said = say("record", "--jobs=1", ".")
    assert returned == 0, said
    assert "asks for" not in said

    returned, said = say("check", ".")

    assert returned == 0, said
    assert "asks for" not in said
    assert Cassette.read("all.cassette.jsonl").labels == ("first", "second")


def test_lesson_whose_cassette_another_names_too_is_not_pruned_alone(say: Say) -> None:
    own = f'{MODEL}\n_ = agentnb.configure(cassette="all.cassette.jsonl")'
    path = lesson(LOAD, own, FIRST)
    say("record", str(path))
    lesson(LOAD, own, SECOND, name="lakes.ipynb")

    returned, said = say("cassette", "prune", "--notebook", str(path), "all.cassette.jsonl")

    assert (returned, "'lakes.ipynb'" in said) == (2, True), said


@pytest.mark.parametrize(
    ("name", "cell", "is_other"),
    [
        ("b.ipynb", 'agentnb.configure(cassette="flüsse.cassette.jsonl")', True),
        ("w2/b.ipynb", 'agentnb.configure(cassette="../flüsse.cassette.jsonl")', True),
        ("b.ipynb", 'name = "flüsse"\nagentnb.configure(cassette=f"{name}.cassette.jsonl")', True),
        ("b.ipynb", "agentnb.configure(cassette = there)", True),
        ("flüsse.ipynb", "1 + 1", True),
        ("settings/b.ipynb", "1 + 1", True),
        ("b.ipynb", 'agentnb.configure(cassette="nebenflüsse.cassette.jsonl")', False),
        ("b.ipynb", "if session.cassette == there:\n    pass", False),
        ("b.ipynb", None, False),
    ],
)
def test_other_lessons_that_may_ask_for_runs_of_a_cassette_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, cell: str | None, is_other: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("w2", "settings"):
        Path(folder).mkdir()
    Path("settings/agentnb.yaml").write_text("cassette: ../flüsse.cassette.jsonl\n")
    one = lesson("1 + 1", name="a.ipynb")
    cassette = Path("flüsse.cassette.jsonl")
    about = words("It is like flüsse.cassette.jsonl.")
    if cell is None:
        Path(name).symlink_to("nowhere")  # as Emacs locks a file
    else:  # as a program saves it that knows ASCII alone
        Path(name).write_text(json.dumps(notebook(about, code(cell))))

    assert others_with(cassette, [one]) == [Path(name).name] * is_other


def test_lesson_that_asks_for_nothing_of_a_cassette_does_not_keep_it_from_being_pruned(
    say: Say,
) -> None:
    own = f'{MODEL}\n_ = agentnb.configure(cassette="all.cassette.jsonl")'
    one, two = lesson(LOAD, own, FIRST, SECOND), lesson(LOAD, own, "1 + 1", name="lakes.ipynb")
    say("record", str(one))
    edit(one, 4, None)

    both = ["--notebook", str(one), "--notebook", str(two)]
    returned, said = say("cassette", "prune", *both, "all.cassette.jsonl")

    assert (returned, "4 calls removed" in said) == (0, True), said
    assert Cassette.read("all.cassette.jsonl").labels == ("first",)


def test_run_that_another_lesson_asks_for_is_not_said_to_be_asked_for_by_none(say: Say) -> None:
    one = lesson(LOAD, MODEL, FIRST)
    own = f'{MODEL}\n_ = agentnb.configure(cassette="rivers.cassette.jsonl")'
    lesson(LOAD, own, SECOND, name="lakes.ipynb")
    assert say("record", "--jobs=1", str(one), "lakes.ipynb")[0] == 0

    returned, said = say("check", ".")

    assert (returned, "asks for" in said) == (0, False), said
    assert "asks for 'second'" in say("check", str(one))[1]


def test_pruning_writes_no_other_cassette_either(say: Say) -> None:
    other = 'agentnb.configure(cassette="other.cassette.jsonl", mode="record")'
    path = lesson(LOAD, MODEL, FIRST, f"_ = {other}", SECOND)
    for number in (4, 5):
        tagged = load(path)
        tagged.cells[number].metadata["tags"] = ["raises-exception"]
        save(tagged, path)
    assert say("record", str(path))[0] == 0
    before = Path("other.cassette.jsonl").read_bytes()
    edit(path, 2, MODEL.replace("It is long.", "It is short."))  # the same again changes nothing

    said = say("cassette", "prune", "--notebook", str(path), "rivers.cassette.jsonl")[1]

    assert Path("other.cassette.jsonl").read_bytes() == before, said


def test_call_that_found_the_network_closed_is_not_recorded(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    live = '_ = __import__("agentnb").configure(model="openai/llama", mode="auto")'
    path = lesson(LOAD, live, FIRST)

    returned, said = say("check", str(path))

    assert (returned, "NetworkClosed" in said) == (1, True), said
    assert not Path("rivers.cassette.jsonl").exists()


def test_calls_of_all_cassettes_that_code_names_are_counted(say: Say) -> None:
    second = '_ = agentnb.configure(cassette="two.cassette.jsonl")'
    path = lesson(LOAD, MODEL, FIRST, second, SECOND, "%%spawn --name third\nCompare.")

    returned, said = say("record", str(path))

    assert (returned, "12 new calls, 12 recorded calls" in said) == (0, True), said
    edit(path, 6, None)
    assert "two.cassette.jsonl: no cell asks for 'third'" in say("check", str(path))[1]


def test_many_runs_and_a_persons_settings_of_printing_are_accounted(say: Say) -> None:
    short = "%config PlainTextFormatter.max_seq_length = 2"
    spawns = [f"%%spawn --name river{number}\nCompare." for number in range(4)]
    path = lesson(LOAD, MODEL, short, *spawns)

    returned, said = say("record", str(path))

    assert (returned, "16 new calls" in said) == (0, True), said


def test_mode_line_below_a_run_takes_what_is_recorded_by_then(say: Say) -> None:
    path = lesson(LOAD, MODE, MODEL, FIRST, MODE, FIRST, SECOND)

    returned, said = say("record", str(path))

    assert (returned, "8 new calls, 8 recorded calls" in said) == (0, True), said
    assert say("check", str(path))[0] == 0
    assert Cassette.read("rivers.cassette.jsonl").labels == ("first", "second")


def test_line_on_the_mode_in_a_text_stays_text(say: Say) -> None:
    path = lesson(LOAD, MODEL, f"%%writefile part.py\n{MODE}", FIRST)

    assert say("record", str(path))[0] == 0

    assert Path("part.py").read_text() == f"{MODE}\n"


def test_lesson_without_its_cassette_is_red_also_if_it_sets_another_mode_below(say: Say) -> None:
    path = lesson(LOAD, MODEL, MODE, FIRST, "%agentnb mode live")
    assert say("record", str(path))[0] == 0
    Path("rivers.cassette.jsonl").unlink()

    assert say("check", str(path))[0] == 1


def test_run_of_another_lesson_that_goes_on_is_not_told_in_this_one(say: Say) -> None:
    own = '_ = agentnb.configure(cassette="all.cassette.jsonl")'
    path = lesson(LOAD, f"{MODEL}\n{own}", "open('begun', 'w').close()", FIRST)
    say("record", str(path))
    lines = Path("all.cassette.jsonl").read_text().splitlines(keepends=True)
    open_run = (
        lines[1].replace('"first"', '"other"').replace("{", '{"recording":"ab12","mode":"auto",', 1)
    )
    edit(path, 3, f"open('all.cassette.jsonl', 'a').write({open_run!r});")

    returned, said = say("record", "--auto", str(path))

    assert returned == 0, said
    assert "did not end" not in path.read_text()


def test_lesson_that_is_a_link_stays_one(say: Say) -> None:
    Path("kept").mkdir()
    real = lesson(LOAD, MODEL, FIRST, name="kept/rivers.ipynb")
    Path("rivers.ipynb").symlink_to(real)

    returned, said = say("record", "rivers.ipynb")

    assert returned == 0, said
    assert Path("rivers.ipynb").is_symlink()
    assert "Both." in str(load(real).cells[3].outputs)


@pytest.mark.parametrize("cell", ["1", OTHER])
def test_notebook_that_asks_for_no_recording_prunes_none(say: Say, cell: str) -> None:
    path, cassette = lesson(LOAD, MODEL, FIRST, cell), Path("rivers.cassette.jsonl")
    say("record", str(path))
    before = cassette.read_bytes()
    edit(path, 3, None)

    returned, said = say("cassette", "prune", "--notebook", str(path), str(cassette))

    assert (returned, cassette.read_bytes()) == (2, before)
    assert "Nothing was removed: 'rivers.ipynb' did not run to its end, or asked for no" in said


@pytest.mark.parametrize("mode", ["record", "live"])
@pytest.mark.parametrize(
    "by",
    [
        '{1}, mode="{0}")',
        '{1}, cassette="rivers.cassette.jsonl", mode="{0}")',
    ],
)
def test_notebook_that_would_ask_models_again_prunes_none(say: Say, by: str, mode: str) -> None:
    path, cassette = lesson(LOAD, MODEL, FIRST), Path("rivers.cassette.jsonl")
    say("record", str(path))
    before = cassette.read_bytes()
    edit(path, 2, by.format(mode, MODEL[:-1]))

    returned, said = say("cassette", "prune", "--notebook", str(path), str(cassette))

    assert (returned, cassette.read_bytes()) == (2, before)
    assert "Nothing was removed" in said
    assert ("cannot be written, since only what is recorded counts here" in said) == (
        mode == "record"
    )


@pytest.mark.parametrize(
    "by",
    [
        'model.name = "script"\nlive = agentnb.Session(provider=model, mode="live")\n'
        'await live.spawn("Compare.")',
        '_ = agentnb.configure(mode="auto")',
        "%agentnb mode replay\n%agentnb mode record",
        "%agentnb mode replay\n%agentnb mode live",
    ],
)
def test_notebook_that_asks_no_model_again_is_pruned_by(say: Say, by: str) -> None:
    path, cassette = lesson(LOAD, MODEL, by, FIRST, SECOND), "rivers.cassette.jsonl"
    say("record", str(path))
    edit(path, 5, None)

    returned, said = say("cassette", "prune", "--notebook", str(path), cassette)

    assert (returned, "4 calls removed" in said) == (0, True), said
    assert Cassette.read(cassette).labels == ("first",)


@pytest.mark.parametrize(
    "by",
    [
        '{1}, **{{"mode": "{0}"}})',
        'import os; os.environ["AGENTNB_MODE"] = "{0}"\n{1})',
        '{1})\nget_ipython().run_line_magic("agentnb", "mode {0}")',
    ],
)
@pytest.mark.parametrize("mode", ["record", "auto"])
def test_pruning_writes_no_recording_whatever_code_sets(say: Say, by: str, mode: str) -> None:
    path, cassette = lesson(LOAD, MODEL, FIRST, SECOND), Path("rivers.cassette.jsonl")
    say("record", str(path))
    before = cassette.read_bytes()
    noted = MODEL[:-1].replace("(request):", "(request):\n    open('asked', 'w')", 1)
    edit(path, 2, by.format(mode, noted))
    edit(path, 3, "%%spawn --name first\nCompare all.")

    returned, said = say("cassette", "prune", "--notebook", str(path), str(cassette))

    assert (returned, cassette.read_bytes()) == (2, before), said
    assert "Nothing was removed" in said
    assert Path("asked").exists() == (mode == "auto")  # a scripted model, which costs nothing


def test_lesson_that_was_never_run_is_recorded_and_passes_nbval(say: Say) -> None:
    path = lesson(f"{LOAD}\n{MODE}", MODEL, FIRST)
    say("record", str(path))

    saved = load(path)
    assert saved.cells[1].outputs[0].text == TODAY
    assert [cell.metadata for cell in saved.cells if "execution" in cell.metadata] == []
    before = path.read_bytes()
    assert say("record", "--auto", str(path))[0] == 0
    assert path.read_bytes() == before
    nbval = ["-m", "pytest", "-p", "no:cacheprovider", "-n0", "--nbval", "--nbval-current-env"]
    done = subprocess.run(
        [sys.executable, *nbval, "--agentnb-mode=replay", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_lesson_with_a_cell_that_fails_is_not_saved(say: Say) -> None:
    path = lesson(LOAD, MODE, MODEL, FIRST)
    say("record", str(path))
    edit(path, 3, MODEL.replace('"Both."', "1 / 0"))
    before = path.read_bytes()

    returned, said = say("record", str(path))

    assert returned == 1
    assert "stopped in cell 4 of 4" in said
    assert "cell [4] fails:\n    " in said
    assert "1 notebook: 1 not saved" in said
    assert path.read_bytes() == before


@pytest.mark.parametrize("verb", [["record"], ["record", "--auto"]])
def test_lesson_whose_calls_no_model_answered_is_not_saved(say: Say, verb: list[str]) -> None:
    table = "done = session.map(['Rome', 'Oslo', 'Lima'], {!r}).result(); print(done)"
    path = lesson(LOAD, MODE, ROWS.format("South."), table.format("Where is {{text}}?"))
    returned, said = say("record", str(path))
    assert returned == 0, said
    key = "agentnb.core.errors.AuthenticationFailed('the key is old', status_code=401)"
    edit(path, 3, ROWS.format("South.").replace("'South.'", f"agentnb.Reply('', error={key})", 1))
    edit(path, 4, table.format("Where does {{text}} lie?"))
    before = path.read_bytes()

    returned, said = say(*verb, str(path))

    assert (returned, path.read_bytes()) == (1, before), said
    assert "✗ rivers.ipynb: not saved, since calls are not recorded" in said
    assert "the key is old" in said
    assert "1 notebook: 1 not saved" in said


def test_lesson_that_cannot_be_saved_asks_no_model(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, may = lesson(LOAD, MODE, MODEL, FIRST), os.access
    # The superuser may write everything.
    monkeypatch.setattr(os, "access", lambda of, how: Path(of).name != path.name and may(of, how))

    returned, said = say("record", str(path))

    assert returned == 1
    assert "it cannot be saved, since it may only be read: no model was asked" in said
    assert list(Path().glob("*.jsonl")) == []


def test_lesson_is_recorded_where_its_settings_file_says(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    path, named = lesson(LOAD, MODE, MODEL, FIRST), Path("kept/here.cassette.jsonl")
    Path("kept").mkdir()
    Path("agentnb.yaml").write_text(f"cassette: {named}\n")

    returned, said = say("record", str(path))
    assert (returned, named.exists()) == (1, False)
    assert "trust" in said  # the file came with the folder: it names what is written
    say("trust", "agentnb.yaml")
    returned, said = say("record", str(path))
    assert (returned, Cassette.read(named).labels) == (0, ("first",)), said
    assert "4 new calls, 4 recorded calls" in said
    assert list(Path().glob("*.jsonl")) == []
    returned, said = say("check", str(path))
    assert returned == 0, said
    assert "4 recorded calls" in said


def test_lesson_is_recorded_where_its_code_says(say: Say) -> None:
    own = 'agentnb.configure(max_agents=min(9, len(str(5000))), cassette="here.cassette.jsonl")'
    named = f"{MODEL}\n_ = {own}"
    path = lesson(LOAD, named, MODE, FIRST)

    returned, said = say("record", str(path))
    assert returned == 0, said
    assert "4 new calls, 4 recorded calls" in said
    assert list(Path().glob("*.jsonl")) == [Path("here.cassette.jsonl")]
    returned, said = say("check", str(path))
    assert returned == 0, said
    assert "4 cells as saved, 4 recorded calls" in said


@pytest.mark.parametrize(
    "named",
    ["Path('here.cassette.jsonl')", "HERE", "Path().joinpath(HERE)", "f'{HERE}'"],
)
def test_cassette_that_code_names_in_any_way_is_found(say: Say, named: str) -> None:
    names = "import pathlib; from pathlib import Path\nHERE = 'here.cassette.jsonl'"
    path = lesson(LOAD, names, f"{MODEL}\n_ = agentnb.configure(cassette={named})", FIRST)

    returned, said = say("record", str(path))

    assert returned == 0, said
    assert "4 new calls, 4 recorded calls" in said
    returned, said = say("check", str(path))
    assert returned == 0, said
    assert "4 cells as saved, 4 recorded calls" in said


def test_cassette_that_code_names_and_that_is_gone_is_told_as_under_nbval(say: Say) -> None:
    named = f'{MODEL}\n_ = agentnb.configure(cassette="here.cassette.jsonl")'
    path = lesson(LOAD, named, MODE, FIRST)
    assert say("record", str(path))[0] == 0
    Path("here.cassette.jsonl").rename("rivers.cassette.jsonl")  # none of its runs is from there

    returned, said = say("check", str(path))

    assert returned == 1
    assert "here.cassette.jsonl" in said
    assert "recorded call" not in said


def test_words_of_a_mode_line_are_those_of_the_cassette_that_code_names(say: Say) -> None:
    named = f'{MODEL}\n_ = agentnb.configure(cassette="here.cassette.jsonl")'
    path = lesson(LOAD, named, f"{MODE}\r\nprint(1)", FIRST, MODE, SECOND)
    changed = load(path)
    changed.cells[3].outputs = [output("stream", text=SAID)]
    save(changed, path)

    returned, said = say("record", str(path))

    assert returned == 0, said
    today = TODAY.replace("rivers", "here")
    outputs = [cell.outputs for cell in load(path).cells[1:]]
    assert (outputs[2][0].text, outputs[4][0].text) == (f"{today}1\n", today)
    assert Cassette.read("here.cassette.jsonl").labels == ("first", "second")
    assert say("check", str(path))[0] == 0
    changed = load(path)
    changed.cells[5].outputs[0].text = SAID
    save(changed, path)
    returned, said = say("check", str(path))
    assert (returned, f"+ {today.strip()}" in said) == (1, True), said


def test_what_is_wrong_with_a_cassette_is_told_and_not_saved(say: Say) -> None:
    path = lesson(LOAD, MODE, MODEL, "%agentnb mode", FIRST, SECOND)
    cassette = Path("rivers.cassette.jsonl")
    say("record", str(path))
    assert say("check", str(path))[0] == 0
    cassette.write_bytes(cassette.read_bytes()[:-20])

    told = "rivers.cassette.jsonl: line "
    assert told in say("check", str(path))[1]
    returned, said = say("record", "--auto", str(path))

    assert returned == 0, said
    assert told in said
    assert "is cut off and ignored" in said
    assert "cut off" not in path.read_text()
    assert say("check", str(path))[0] == 0


@pytest.mark.parametrize("jobs", ["0", "-1", "two"])
def test_number_at_once_that_is_none_is_refused(
    say: Say, jobs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = lesson("1 + 1")

    with pytest.raises(SystemExit):
        say("check", f"--jobs={jobs}", str(path))
    assert "whole number from 1" in capsys.readouterr().err


def _cell(**fields: object) -> str:
    cell = {"cell_type": "code", "id": "a", "source": "1 + 1", **fields}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.mark.parametrize(
    "wrong",
    [
        "[]",
        '{"cells": [5], "nbformat": 4, "nbformat_minor": 5}',
        _cell(metadata={}, execution_count=None),
        _cell(outputs=[], execution_count=None),
        _cell(
            metadata={}, execution_count=1, outputs=[{"output_type": "stream", "name": "stdout"}]
        ),
    ],
)
def test_file_that_is_no_notebook_is_an_error(say: Say, wrong: str) -> None:
    Path("odd.ipynb").write_text(wrong)

    returned, said = say("check", "odd.ipynb")

    assert returned == 1
    assert "'odd.ipynb' cannot be read as a notebook" in said


def test_lesson_without_a_recording_reaches_no_network(say: Say) -> None:
    path = lesson(
        "import urllib.request  # no cassette", 'urllib.request.urlopen("http://127.0.0.1:9")'
    )

    returned, said = say("check", str(path))

    assert returned == 1
    assert "cell [2] fails:\n    NetworkClosed: " in said
    assert "`python -m agentnb record rivers.ipynb`" in said


def test_lesson_without_a_recording_and_a_key_is_told_to_be_recorded(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)

    returned, said = say("check", str(lesson(LOAD, "%%spawn\nHello")))

    assert returned == 1
    assert "`python -m agentnb record rivers.ipynb`" in said
    assert "ANTHROPIC_API_KEY" not in said


def test_lesson_with_a_key_and_no_recording_is_told_the_same(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")

    returned, said = say("check", str(lesson(LOAD, "%%spawn\nHello")))

    assert returned == 1
    assert "rivers.cassette.jsonl: record it (`python -m agentnb record rivers.ipynb`)" in said
    assert "InternalError" not in said


def test_renamed_lesson_is_told_to_rename_its_cassette(say: Say) -> None:
    path = lesson(LOAD, MODEL, FIRST)
    say("record", str(path))
    edit(path.rename("new.ipynb"), 2, "1")

    returned, said = say("check", "new.ipynb")

    assert returned == 1
    assert "`git mv rivers.cassette.jsonl new.cassette.jsonl`" in said
    assert "`python -m agentnb record new.ipynb`" in said


def test_wrong_file_is_told_of_and_the_others_are_run(say: Say) -> None:
    good = lesson("print(1)", name="good.ipynb")
    say("record", str(good))
    Path("broken.ipynb").write_text("{")
    lesson(LOAD, MODEL, FIRST, name="damaged.ipynb")
    Path("damaged.cassette.jsonl").write_text("nothing\n")
    lesson("import os\nos.kill(os.getpid(), 9)", name="killed.ipynb")

    returned, said = say("check", ".", "gone.ipynb")

    assert returned == 1
    assert "✓ good.ipynb: 1 cell as saved" in said
    assert "'broken.ipynb' cannot be read as a notebook" in said
    assert "damaged.cassette.jsonl" in said
    assert "its kernel died in cell [1]" in said
    assert "there is no such file" in said
    assert "5 notebooks: 4 with differences" in said


def test_notebooks_below_a_folder_are_checked_and_not_jupyters_copies(say: Say) -> None:
    for folder in "week 1", "week 2/b", ".ipynb_checkpoints", "week 1/.ipynb_checkpoints":
        Path(folder).mkdir(parents=True)
        lesson("1", name=f"{folder}/rivers.ipynb")

    _, said = say("check", ".")

    found = sorted(re.findall("(?m)^. (.*ipynb):", said))
    assert found == ["week 1/rivers.ipynb", "week 2/b/rivers.ipynb"]


def test_folder_has_what_is_linked_once_and_nothing_of_packages_or_graders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in "week", "real", ".venv", "env/share", "node_modules", "course/source/ps1":
        Path(folder).mkdir(parents=True)
    for made in "release", "submitted", "autograded", "feedback":
        Path("course", made).mkdir()
    Path("release").mkdir()  # without `source`, it is a folder as any other
    Path("env/pyvenv.cfg").touch()
    Path("week/linked").symlink_to(Path("real").absolute())
    Path("week/again").symlink_to(Path("week").absolute())
    every = [path for path in Path().rglob("*") if path.is_dir()]
    for each in every:
        Path(each, "a.ipynb").touch()

    found = notebooks_in([".", "./real/a.ipynb", "week/../real/a.ipynb"])

    assert Path("real/a.ipynb") in found  # not as it is linked: its cassette is beside it
    names = {os.path.relpath(os.path.realpath(each)) for each in found}
    assert names == {
        *("real/a.ipynb", "release/a.ipynb", "week/a.ipynb"),
        *("course/a.ipynb", "course/source/a.ipynb", "course/source/ps1/a.ipynb"),
    }
    assert len(found) == len(names)


def test_folder_without_a_notebook_is_an_error(say: Say) -> None:
    returned, said = say("check", ".")

    assert returned == 2
    assert "the folder has no notebook" in said


def test_notebook_in_another_language_is_not_run(say: Say) -> None:
    path = lesson("1 + 1")
    changed = load(path)
    changed.metadata["kernelspec"] = {"name": "ir", "display_name": "R", "language": "R"}
    save(changed, path)

    assert "its language is R, not Python" in say("check", str(path))[1]


def test_kernel_without_agentnb_says_nothing_of_its_runs() -> None:
    missing = {"status": "error", "ename": "ModuleNotFoundError", "evalue": "", "traceback": []}
    said = dict.fromkeys(QUESTION["user_expressions"], missing)

    told = answer({"content": {"user_expressions": said}})

    assert told.keys() == {"asked", "unkept", "new"}
    assert not any(told.values())


def test_saved_error_that_comes_again_is_no_difference(say: Say) -> None:
    error = output("error", ename="ValueError", evalue="no", traceback=[])
    path = Path("rivers.ipynb")
    cell = code("raise ValueError('no')", error, tags=["raises-exception"])
    save(notebook(cell), path)

    returned, said = say("check", str(path))

    assert returned == 0, said
