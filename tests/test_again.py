"""After *Run All*, a reader can run each `%%spawn` cell again, with the same outcome.

A cell works on its own, or the lesson says beside it what to run first. Background runs are
followed until the next cell has seen them at work. Before that, some other cells are run again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from nbformat import NotebookNode

from tests import lessons
from tests.again import Outcome
from tests.notebook.forked import ForkServer
from tests.notebook.saved import load

ALONE = {"first-03", "threads-05", "threads-14", "threads-20"}
"""Ids of the cells that work on their own."""
OTHERWISE = {
    # Cells below it replay a cassette, which has no such run.
    "testing-03": ("%agentnb mode live", "first run `%agentnb mode live`"),
    # It continues the newest thread, and cells below it write to other threads.
    "threads-06": ("threads-05", "`last` is the thread that you wrote to last"),
}
"""By id of a cell: what to run first (a cell's id, or a line), and what the lesson says of it."""
ABOVE = "first run the cell above it"
"""What a lesson says once of all other cells: each needs a new script, which the cell above makes.

A script gives each reply of a list once, and a cell below replaces it by another one.
"""
MORE = {
    "first-tree": (5, 7, 9),
    "parallel-and-sequential": (12, 16, 18, 26, 33, 38, 42, 14, 15, 16, 20, 22, 26, 27),
    # Number 7 sets a new session, as the lesson says above number 13.
    "a-table-of-answers": (28, 34, 7, 13, 15, 17, 21, 23, 38, 26, 28, 30, 34),
    "agents-and-your-data": (9, 14, 16, 18, 22),
    "testing-agents": (7, 17, 21, 6, 7, 9, 11),
}
"""Numbers of other cells, which are in their ids. They are run again first, in this order."""
ENOUGH = {"agents-and-your-data": "data-28"}
"""The last cell to run of a lesson whose later cells have sessions of their own, and processes."""


def is_spawn(cell: NotebookNode) -> bool:
    return cell.cell_type == "code" and bool(cell.source.startswith("%%spawn"))


LESSONS = [
    path
    for path in sorted(lessons.FOLDER.glob("*.ipynb"))
    if path.stem in MORE or any(map(is_spawn, load(path).cells))
]


def again(lesson: NotebookNode) -> dict[str, list[str]]:
    """What a reader runs to run each `%%spawn` cell again: ids of cells, or lines.

    The cell itself is among them, and what comes after it only looks at its run.
    """
    found = {}
    for at, cell in enumerate(lesson.cells):
        if not is_spawn(cell):
            continue
        above, below = lesson.cells[at - 1], lesson.cells[at + 1]
        if cell.id in ALONE:
            first = []
        elif cell.id in OTHERWISE:
            first = [OTHERWISE[cell.id][0]]
        else:
            assert above.cell_type == "code"
            first = [above.id]
        is_in_background = "--bg" in cell.source.splitlines()[0]
        then = [below.id, "run.cancel()"] if is_in_background else []
        found[cell.id] = [*first, cell.id, *then]
    return found


@dataclass(frozen=True, slots=True)
class Reader:
    """Runs cells in a process of its own, in an empty folder."""

    fork_server: ForkServer
    folder: Path

    def run(
        self, cells: Sequence[str], further: Sequence[Sequence[str]]
    ) -> tuple[list[Outcome], list[list[Outcome]]]:
        """Run the code of some cells, and then of others: see `tests.again`."""
        given, output, errors = (self.folder / name for name in ("orders", "output", "errors"))
        given.write_text(json.dumps([cells, further]), encoding="utf-8")
        command = ["-c", "import sys; from tests.again import main; main(sys.argv[1])", str(given)]
        started = self.fork_server.popen(command, cwd=self.folder, output=output, errors=errors)
        assert started.wait() == 0, errors.read_text("utf-8")
        at_first, later = json.loads(output.read_text("utf-8"))
        return at_first, later


@pytest.fixture
def reader(fork_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    monkeypatch.setenv("AGENTNB_MODE", "live")  # in CI too, where it has no cassette here
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # for the folders that lessons make
    return Reader(fork_server, tmp_path)


def code_of(lesson: NotebookNode) -> dict[str, str]:
    """By id, the code of the cells."""
    return {cell.id: cell.source for cell in lesson.cells if cell.cell_type == "code"}


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_spawn_cell_can_be_run_again(path: Path, reader: Reader) -> None:
    lesson = load(path)
    code = code_of(lesson)
    run = list(code)
    if path.stem in ENOUGH:
        end = run.index(ENOUGH[path.stem]) + 1
        assert "agentnb.configure(" not in "".join(code[each] for each in run[end:])
        run = run[:end]
    prefix = lesson.cells[0].id.rpartition("-")[0]
    more = [f"{prefix}-{number:02}" for number in MORE.get(path.stem, ())]
    further = [more, *again(lesson).values()]

    at_first, later = reader.run(
        [code[each] for each in run], [[code.get(each, each) for each in ids] for ids in further]
    )

    ended = dict(zip(run, at_first, strict=True))
    for ids, outcomes in zip(further, later, strict=True):
        for each, outcome in zip(ids, outcomes, strict=True):
            if each in code:
                assert (each, outcome) == (each, ended[each])


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_lesson_says_what_to_run_before_a_spawn_cell(path: Path) -> None:
    said, is_said = "", False
    for cell in load(path).cells:
        if cell.cell_type == "markdown":
            said = " ".join(cell.source.split())
            is_said = is_said or ABOVE in said
        elif cell.id in OTHERWISE:
            assert OTHERWISE[cell.id][1] in said
        elif is_spawn(cell) and cell.id not in ALONE:
            assert is_said, f"{cell.id}: say `{ABOVE}`"


def test_cells_with_a_reason_are_cells_of_the_lessons() -> None:
    ids = {cell.id for path in LESSONS for cell in load(path).cells if is_spawn(cell)}

    assert ALONE | set(OTHERWISE) <= ids


IN_ANY_ORDER = ["delegation", "depth-and-failure", "quickstart", "what-a-model-is-sent"]
"""Lessons whose other cells can be run again, too: no later cell changes a name that they use."""


@pytest.mark.parametrize("name", IN_ANY_ORDER)
def test_other_cells_can_be_run_again_on_their_own(name: str, reader: Reader) -> None:
    lesson = load(lessons.FOLDER / f"{name}.ipynb")
    code = code_of(lesson)
    _set_up, *run = code
    tried_above = {each for ids in again(lesson).values() for each in ids}
    # From the last to the first: no cell finds what a cell above it has just made.
    others = [each for each in reversed(run) if each not in tried_above]

    at_first, later = reader.run([*code.values()], [[code[each]] for each in others])

    ended = dict(zip(code, at_first, strict=True))
    again_ended = {each: outcome for each, (outcome,) in zip(others, later, strict=True)}
    assert again_ended == {each: ended[each] for each in others}
