"""The saved notebooks: they must have outputs, since nbval passes cells without any.

These tests check what nbval cannot: that outputs exist, that they have nothing of the machine and
the time at which they were made, and that each lesson has its exercises.
"""

from __future__ import annotations

import ast
import base64
import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode

import agentnb
import agentnb.default_session
from agentnb import MediaBlock, Reply, ScriptedProvider, ToolOutput
from agentnb.cassette import Cassette
from agentnb.core.budget import estimate_input_tokens, estimate_tokens
from agentnb.core.errors import Refused, StreamBroken
from agentnb.core.types import CompletionRequest, Usage
from agentnb.providers.scripted import AnyReply
from agentnb.run_store import _KernelRuns
from agentnb.testing import spawn, tool_calls
from tests import lessons
from tests.files_of import png
from tests.notebook.forked import LAUNCHER, ForkServer
from tests.notebook.saved import code, load, notebook, output, save, words

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").rglob("*.ipynb"))

LESSONS = lessons.lessons()

UNSTABLE = {
    "a path of a machine": re.compile(
        r"(?<![\w./:])/(?:home|Users|root|tmp|var|work|opt|mnt|srv)/\w|\b[A-Z]:\\\w"
    ),
    "a thread's id": re.compile(r"\bnb_\d{8}_[a-z0-9]{6}"),
    "a run's id": re.compile(r"\b[0-9a-f]{32}\b"),
    "a memory address": re.compile(r"\b0x[0-9a-f]{6,}"),
}


def complaints(saved: NotebookNode) -> Iterator[str]:
    """Faults by which a saved notebook cannot be read on the web, or compared."""
    cells = [c for c in saved.cells if c.cell_type == "code" and c.source.strip()]
    if cells and not any(cell.outputs for cell in cells):
        yield "no cell has outputs: run it, and save it"
    for number, cell in enumerate(saved.cells, start=1):
        if cell in cells:
            yield from (f"cell {number}: {complaint}" for complaint in _about(cell))


def _about(cell: NotebookNode) -> Iterator[str]:
    if cell.source.lstrip().startswith("%%spawn") and not cell.outputs:
        yield "a %%spawn cell without outputs"
    may_fail = "raises-exception" in cell.metadata.get("tags", ())
    errors = [output for output in cell.outputs if output.output_type == "error"]
    if errors and not may_fail:
        yield f"{errors[0].ename}, and it is not tagged raises-exception"
    if may_fail and not errors:
        yield "it is tagged raises-exception, and raised nothing"
    text = "\n".join(_texts(cell.outputs))
    for what, pattern in UNSTABLE.items():
        if found := pattern.search(text):
            yield f"{what}: {found[0]!r}"


def _texts(value: object) -> Iterator[str]:
    """All text in outputs, without pictures."""
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _texts(item)
        case dict():
            for kind, item in value.items():
                if not str(kind).startswith("image/") or kind == "image/svg+xml":
                    yield from _texts(item)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_is_saved_with_outputs_that_stay_the_same(path: Path) -> None:
    as_saved = load(path)

    nbformat.validate(as_saved)
    assert list(complaints(as_saved)) == []


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.name)
def test_lesson_has_two_exercises_with_checks_and_folded_solutions(path: Path) -> None:
    assert list(exercise_complaints(load(path))) == []


def test_course_has_every_lesson_once_in_its_order() -> None:
    rows = lessons.rows(lessons.COURSE.read_text("utf-8"))

    assert [int(row["place"]) for row in rows] == list(range(1, len(LESSONS) + 1))
    assert sorted(row["name"] for row in rows) == [path.stem for path in LESSONS]
    page = (lessons.ROOT / "docs" / "lessons.md").read_text("utf-8")
    in_navigation = re.findall(r"^\.\./notebooks/(.+)$", page, re.MULTILINE)
    assert in_navigation == ["README", "quickstart", *(row["name"] for row in rows)]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.name)
def test_tokens_of_a_lesson_are_those_of_its_code(path: Path) -> None:
    assert lessons.is_measured(load(path)), "run `python -m tests.lessons`"


def test_course_has_the_minutes_and_prices_of_the_lessons() -> None:
    course = lessons.COURSE.read_text("utf-8")

    assert course == lessons.with_figures(course), "run `python -m tests.lessons`"


# One sets its own modes, one opens its session again. `python -m tests.lessons --check` has all.
@pytest.mark.parametrize("name", ["testing-agents", "threads-and-tasks"])
def test_price_of_a_lesson_is_that_of_its_cassette(
    name: str, fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LAUNCHER, fork_server.launch)
    path = lessons.FOLDER / f"{name}.ipynb"
    usage = load(path).metadata.usage

    recorded = lessons.measured(path)

    assert (recorded["calls"], lessons.usd(recorded)) == (usage.calls, lessons.usd(usage))


def test_check_counts_the_lessons_whose_cassettes_have_another_price(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, *_ = LESSONS
    found = {path: dict(load(path).metadata.usage) for path in (first, second)}
    monkeypatch.setattr(lessons, "measured", lambda path: found[path])

    assert lessons.main(["--check", first.stem, second.stem]) == 0
    found[first]["output_tokens"] += 10_000
    assert lessons.main(["--check", first.stem, second.stem]) == 1


def recorded_calls(
    folder: Path, replies: Sequence[AnyReply], **settings: Any
) -> tuple[dict[str, int], Sequence[CompletionRequest]]:
    """What a run in a cassette counts as, and what it sent."""
    file, provider = folder / "one.cassette.jsonl", ScriptedProvider(replies)
    with agentnb.Session(
        provider=provider, mode="record", cassette=file, store=None, **settings
    ) as session:
        session.run_sync("Measure the pond.")
    return lessons.counted([Cassette.read(file)]), provider.requests


def test_tokens_of_a_recorded_call_are_not_what_its_script_made_up(tmp_path: Path) -> None:
    counted, sent = recorded_calls(tmp_path, [Reply("It is wide.", usage=Usage(9_000, 8_000))])

    assert counted == {
        "calls": 1,
        "input_tokens": estimate_input_tokens(sent[0]),
        "output_tokens": estimate_tokens("It is wide."),
    }


def test_recorded_call_that_failed_is_free_unless_its_reply_had_begun(tmp_path: Path) -> None:
    broken = Reply("It is", error=StreamBroken("The reply broke off."))
    refused = Refused("The model declines to answer.")
    counted, sent = recorded_calls(tmp_path, [broken, spawn("Ask."), refused, "It is wide."])

    assert counted["calls"] == len(sent) - 1 == 3
    assert counted["input_tokens"] == sum(map(estimate_input_tokens, [*sent[:2], sent[3]]))


def test_picture_of_a_tool_counts_by_its_size(tmp_path: Path) -> None:
    def draw() -> ToolOutput:
        """Draw the pond."""
        picture = base64.b64encode(png(150, 100)).decode()
        return ToolOutput("The pond.", (MediaBlock("image/png", picture),))

    replies: list[AnyReply] = [tool_calls(("draw", {})), "It is wide."]
    counted, sent = recorded_calls(tmp_path, replies, tools=[draw])

    assert any(isinstance(block, MediaBlock) for m in sent[1].messages for block in m.content)
    assert counted["input_tokens"] == sum(map(estimate_input_tokens, sent))


# -- code in the text -----------------------------------------------------------------------------

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> Iterator[tuple[NotebookNode, str]]:
    """The Python blocks in the text of all notebooks, each with its notebook."""
    for path in NOTEBOOKS:
        saved = load(path)
        for cell in saved.cells:
            if cell.cell_type == "markdown":
                yield from ((saved, block) for block in _BLOCK.findall(cell.source))


def definitions(saved: NotebookNode, names: set[str]) -> Iterator[str]:
    """The statements of a notebook's cells that define these names, each once."""
    for cell in saved.cells:
        if cell.cell_type != "code" or cell.source.lstrip().startswith("%%"):
            continue
        source = re.sub(r"^%.*$", "", cell.source, flags=re.MULTILINE)
        tree = compile(source, "cell", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for statement in tree.body:
            match statement:
                case ast.FunctionDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                    if name in names:
                        yield ast.unparse(statement)


def test_code_in_the_text_runs_without_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "not-a-key")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("agentnb.run_store._kernel", _KernelRuns())  # no runs of other tests
    ran = 0
    for saved, block in blocks():
        monkeypatch.setattr(agentnb.default_session, "_default", None)
        compiled = compile(block, "block", "exec")
        names: dict[str, object] = {"agentnb": agentnb}
        for statement in definitions(saved, set(compiled.co_names)):
            exec(statement, names)
        exec(compiled, names)
        ran += 1

        model = re.search(r'"(demo|\w+/[^"]+)"', block)
        assert model is not None
        assert model[1] in str(agentnb.get_session().model)
        assert not agentnb.get_session().runs()
    assert ran >= 10


# -- exercises ------------------------------------------------------------------------------------

_CHECK = re.compile(r"^(?:async )?def (check_\w+)\(", re.MULTILINE)


def exercise_complaints(lesson: NotebookNode) -> Iterator[str]:
    """Faults of a lesson's two exercises.

    An exercise is three code cells in a row: one defines a check; the next one calls it, for the
    reader to change; the last one is a folded solution, which also calls it. The code to change is
    a comment, or its saved output says that the exercise is not solved.
    """
    places = [at for at, cell in enumerate(lesson.cells) if "## Exercises" in cell.source]
    if not places:
        yield "no `## Exercises`"
        return
    cells = [cell for cell in lesson.cells[places[0] :] if cell.cell_type == "code"]
    checks = [at for at, cell in enumerate(cells) if _CHECK.search(cell.source)]
    if len(checks) != 2:
        yield f"{len(checks)} checks"
    for at in checks:
        check = _CHECK.findall(cells[at].source)[-1]
        to_change, solution = cells[at + 1], cells[at + 2]
        yield from (f"{check}: {complaint}" for complaint in _of(check, to_change, solution))


def _of(check: str, to_change: NotebookNode, solution: NotebookNode) -> Iterator[str]:
    is_comment = all(line.startswith("#") for line in to_change.source.splitlines())
    if f"{check}(" not in to_change.source:
        yield "the cell to change does not call it"
    if not is_comment and "Not yet" not in "\n".join(_texts(to_change.outputs)):
        yield "the cell to change passes as it is"
    if f"{check}(" not in solution.source:
        yield "the solution does not call it"
    hidden = solution.metadata.get("jupyter", {})
    if not (hidden.get("source_hidden") and hidden.get("outputs_hidden")):
        yield "the solution is not folded"
    if not re.search("✓|Right:", "\n".join(_texts(solution.outputs))):
        yield "the solution does not pass"


# -- the checks themselves --------------------------------------------------------------------


def shown(text: str) -> NotebookNode:
    return output("display_data", {"text/plain": text, "text/html": f"<p>{text}</p>"})


def printed(text: str) -> NotebookNode:
    return output("stream", text=text)


def failed(name: str = "ValueError") -> NotebookNode:
    return output("error", ename=name, evalue="no", traceback=[f"{name}: no"])


def complaints_when_saved(tmp_path: Path, *cells: NotebookNode) -> list[str]:
    """The findings for cells that were written to a file and read again."""
    path = tmp_path / "made.ipynb"
    save(notebook(*cells), path)
    return list(complaints(load(path)))


def test_good_notebook_passes(tmp_path: Path) -> None:
    cells = [
        words("# In /home/ada, 0x7f0012345678, words are free"),
        code("%load_ext agentnb"),
        code("%%spawn\nPlan", shown("root ✓ completed · Plan, or/and see https://x.org/home/a")),
        code("1 / 0", failed(), tags=["raises-exception"]),
        code("plot()", output("display_data", {"image/png": "/tmp/x0"})),
        code(""),
    ]

    assert complaints_when_saved(tmp_path, *cells) == []


def test_notebook_without_code_passes(tmp_path: Path) -> None:
    assert complaints_when_saved(tmp_path, words("Words.")) == []


def test_notebook_whose_cells_all_lack_outputs_fails(tmp_path: Path) -> None:
    cells = [code("x = 1"), code("%load_ext agentnb")]

    assert complaints_when_saved(tmp_path, *cells) == ["no cell has outputs: run it, and save it"]


@pytest.mark.parametrize(
    ("cell", "complaint"),
    [
        (code("%%spawn\nPlan"), "a %%spawn cell without outputs"),
        (code("\n%%spawn --bg\nPlan"), "a %%spawn cell without outputs"),
        (
            code("1 / 0", failed("ZeroDivisionError")),
            "ZeroDivisionError, and it is not tagged raises-exception",
        ),
        (
            code("1", shown("1"), tags=["raises-exception"]),
            "it is tagged raises-exception, and raised nothing",
        ),
        (
            code("run", shown("made by nb_20261101_k3x9aa.1")),
            "a thread's id: 'nb_20261101_k3x9aa'",
        ),
        (
            code("run.id", shown("01a2006383f7734bb0bfd7954ab5847c")),
            "a run's id: '01a2006383f7734bb0bfd7954ab5847c'",
        ),
        (
            code("f", shown("<function f at 0x7fc24feab0d0>")),
            "a memory address: '0x7fc24feab0d0'",
        ),
        (code("p", printed("in /home/ada/x.py:3")), "a path of a machine: '/home/a'"),
        (code("p", printed("C:\\Users\\ada")), "a path of a machine: 'C:\\\\U'"),
    ],
)
def test_bad_cell_is_named_with_what_is_wrong(
    tmp_path: Path, cell: NotebookNode, complaint: str
) -> None:
    good = code("1", shown("1"))

    assert complaints_when_saved(tmp_path, good, cell) == [f"cell 2: {complaint}"]


SOLVED = {"jupyter": {"source_hidden": True, "outputs_hidden": True}}


def lesson(**changed: NotebookNode) -> NotebookNode:
    """A lesson with the same exercise twice. A cell may be changed in both of them."""
    cells = {
        "check": code("def check_1(answer):\n    pass"),
        "to_change": code("check_1(1)  # change this", printed("Not yet: 1")),
        "solution": code("check_1(2)", printed("✓ solved")),
    }
    cells["solution"].metadata = SOLVED
    first = [words("## Exercises"), *(cells | changed).values()]
    second = deepcopy(first[1:])
    for number, cell in enumerate(second):
        cell.id = f"second-{number}"
    return notebook(*first, *second)


def test_exercises_with_comments_or_a_failing_check_pass() -> None:
    assert list(exercise_complaints(lesson())) == []
    assert list(exercise_complaints(lesson(to_change=code("# a = ...\n# check_1(a)")))) == []


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"check": code("2 + 2")}, "0 checks"),
        ({"to_change": code("# answer = ...")}, "check_1: the cell to change does not call it"),
        (
            {"to_change": code("check_1(1)", printed("✓ solved"))},
            "check_1: the cell to change passes as it is",
        ),
        ({"solution": code("check_1(2)", printed("✓"))}, "check_1: the solution is not folded"),
    ],
)
def test_exercise_that_lacks_a_part_is_named(
    changed: dict[str, NotebookNode], complaint: str
) -> None:
    assert complaint in list(exercise_complaints(lesson(**changed)))


def test_lesson_whose_solution_fails_is_named() -> None:
    solution = code("check_1(2)", printed("Not yet"))
    solution.metadata = SOLVED

    assert set(exercise_complaints(lesson(solution=solution))) == {
        "check_1: the solution does not pass"
    }


def test_lesson_without_exercises_is_named() -> None:
    assert list(exercise_complaints(notebook(words("# Words")))) == ["no `## Exercises`"]
