"""`python -m agentnb`: its output, its exit code, and the few modules that it loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentnb.__main__ import main
from tests.test_import import HEAVY
from tests.views.test_freeze import ANSWER, PANEL, as_saved, document, state, view


def saved(path: Path, *views: dict[str, object]) -> str:
    path.write_text(as_saved(document(*views, ANSWER)), encoding="utf-8")
    return str(path)


def test_each_file_has_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = saved(tmp_path / "one.ipynb", view())
    many = saved(tmp_path / "many.ipynb", view(), view(), view())
    none = saved(tmp_path / "none.ipynb")
    gone = str(tmp_path / "gone.ipynb")
    Path(gone).write_text(as_saved(document(ANSWER, widgets=state(**PANEL))), encoding="utf-8")

    assert main(["freeze", one, many, none, gone]) == 0

    assert capsys.readouterr().out.splitlines() == [
        f"{one}: 1 live view removed",
        f"{many}: 3 live views removed",
        f"{none}: nothing to remove",
        f"{gone}: the state of views that are gone removed",
    ]
    assert json.loads((tmp_path / "many.ipynb").read_bytes()) == document(ANSWER)


def test_file_that_is_wrong_is_told_of_and_the_others_are_seen_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "wrong.ipynb"
    wrong.write_text("{", encoding="utf-8")
    after = saved(tmp_path / "after.ipynb", view())

    assert main(["freeze", str(tmp_path / "nowhere.ipynb"), str(wrong), after]) == 2

    said = capsys.readouterr()
    assert said.out == f"{after}: 1 live view removed\n"
    assert [line.split(" cannot be read")[0] for line in said.err.splitlines()] == [
        repr(str(tmp_path / "nowhere.ipynb")),
        repr(str(wrong)),
    ]


def test_file_that_cannot_be_written_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = saved(tmp_path / "full.ipynb", view())
    monkeypatch.setattr("agentnb.views.freeze.replace_file", full_disk)

    assert main(["freeze", file]) == 2

    assert capsys.readouterr().err == (
        f"{file!r} cannot be written, and is unchanged: No space left on device.\n"
    )
    assert json.loads(Path(file).read_bytes()) == document(view(), ANSWER)


def test_without_a_command_it_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0

    said = capsys.readouterr().out
    assert "usage: python -m agentnb" in said
    assert "freeze" in said


def test_process_loads_nothing_heavy_and_ends_with_the_exit_code(tmp_path: Path) -> None:
    file = saved(tmp_path / "one.ipynb", view())
    program = "import runpy, sys; sys.argv = ['agentnb', 'freeze', *sys.argv[1:]]\n"
    program += "try: runpy.run_module('agentnb', run_name='__main__')\n"
    program += "finally: print(*sys.modules)"

    ran = subprocess.run(
        [sys.executable, "-c", program, file, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )

    told, loaded = ran.stdout.splitlines()
    assert told == f"{file}: 1 live view removed"
    assert "it is a folder" in ran.stderr
    assert ran.returncode == 2
    assert set(loaded.split()).isdisjoint(HEAVY)
    assert "agentnb.views.freeze" in loaded.split()


def full_disk(path: Path, text: str) -> None:
    raise OSError(28, "No space left on device", str(path))
