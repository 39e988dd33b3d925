"""What the pages put into a repository for git, ruff, pre-commit and graders: each reads it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from agentnb.__main__ import main
from tests import graders
from tests.notebook.forked import LAUNCHER, ForkServer
from tests.notebook.saved import code, notebook, save
from tests.pages import code_of
from tests.support import run_python

PAGE = "docs/regression.md"
NAMED = "%%spawn --model demo -o out\nWhich river is longer?"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ran(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def text_with(words: str) -> str:
    (found,) = [text for text in code_of(PAGE, "text") if words in text]
    return found


def test_git_keeps_the_lines_of_a_cassette() -> None:
    Path(".gitattributes").write_text(text_with("eol=lf"))
    ran("git", "init", "-q")

    said = ran("git", "check-attr", "eol", "text", "a/rivers.cassette.jsonl", "a.jsonl").stdout

    assert "a/rivers.cassette.jsonl: eol: lf" in said
    assert "a.jsonl: eol: unspecified" in said


def test_outputs_of_guarded_notebooks_are_left_in() -> None:
    Path(".gitattributes").write_text(f"*.ipynb filter=nbstripout\n{text_with('!filter')}")
    ran("git", "init", "-q")

    said = ran("git", "check-attr", "filter", "lessons/a.ipynb", "b.ipynb").stdout

    assert said == "lessons/a.ipynb: filter: unspecified\nb.ipynb: filter: nbstripout\n"


def test_jupytext_is_told_all_magics_of_a_cell() -> None:
    """IPython has `%%agentnb`, too, as the place of a magic that is not loaded."""
    settings = tomllib.loads(text_with("custom_cell_magics"))

    known = run_python(
        """
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        before = set(shell.magics_manager.magics["cell"])
        shell.extension_manager.load_extension("agentnb")
        print(",".join(sorted(set(shell.magics_manager.magics["cell"]) - before - {"agentnb"})))
        """
    )

    assert settings == {"custom_cell_magics": known.strip()}


def test_ruff_passes_a_notebook_with_names_that_a_magic_makes() -> None:
    save(notebook(code("%load_ext agentnb"), code(NAMED), code("out")), Path("rivers.ipynb"))
    check = (sys.executable, "-m", "ruff", "check", "--no-cache", "rivers.ipynb")
    Path("pyproject.toml").write_text("[tool.ruff.lint]\n")
    assert "F821" in ran(*check).stdout  # else these lines are not needed

    Path("pyproject.toml").write_text(text_with("tool.ruff"))

    done = ran(*check)
    assert done.returncode == 0, done.stdout


def test_cells_of_the_page_on_teaching_are_those_that_are_graded() -> None:
    _, *cells = code_of("docs/how-to/teach-with-it.md", "text")
    graded = f"{Path(graders.__file__).read_text('utf-8')}\n{graders.LENGTHS_HIDDEN}"
    lines = [line for cell in cells for line in cell.splitlines() if re.search(r"[(\[]", line)]

    assert len(lines) == 6
    for line in lines:
        assert (
            line.replace('"Which', "'Which")
            .replace('Rhine?"', "Rhine?'")
            .replace(graders.CASSETTE, "{CASSETTE}")
            in graded
        )


def test_hook_checks_a_notebook_and_leaves_a_cassette_alone(
    monkeypatch: pytest.MonkeyPatch, fork_server: ForkServer
) -> None:
    monkeypatch.setattr(LAUNCHER, fork_server.launch)
    settings = yaml.safe_load(text_with("repos:"))
    (hook,) = settings["repos"][0]["hooks"]
    assert re.search(settings["exclude"], "notebooks/rivers.cassette.jsonl")
    assert re.search(hook["files"], "notebooks/rivers.ipynb")
    assert not re.search(settings["exclude"], "notebooks/rivers.ipynb")
    python, module, package, *arguments = hook["entry"].split()
    assert (python, module, package) == ("python", "-m", "agentnb")

    save(notebook(code("print(1)")), Path("rivers.ipynb"))

    assert main([*arguments, "rivers.ipynb"]) == 1  # it was never run
    main(["record", "rivers.ipynb"])
    assert main([*arguments, "rivers.ipynb"]) == 0
