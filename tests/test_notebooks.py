"""The saved notebooks: they must have outputs, since nbval passes cells without any.

These tests check what nbval cannot: that outputs exist, and that they hold nothing of the
machine and the moment in which they were made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from tests.notebook.saved import code, load, notebook, output, save, words

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").rglob("*.ipynb"))

UNSTABLE = {
    "a path of a machine": re.compile(
        r"(?<![\w./:])/(?:home|Users|root|tmp|var|work|opt|mnt|srv)/\w|\b[A-Z]:\\\w"
    ),
    "a thread's id": re.compile(r"\bnb_\d{8}_[a-z0-9]{6}"),
    "a run's id": re.compile(r"\b[0-9a-f]{32}\b"),
    "a memory address": re.compile(r"\b0x[0-9a-f]{6,}"),
}


def complaints(saved: NotebookNode) -> Iterator[str]:
    """Things that keep a saved notebook from being read on the web, or compared."""
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


# -- the check itself -------------------------------------------------------------------------


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
