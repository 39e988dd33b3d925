"""`python -m tests.slowest`: where the test time goes, as the runner's own report says it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.slowest import lines, seconds_in

TESTS = """
import time, pytest

@pytest.fixture
def broken():
    yield
    raise OSError

@pytest.mark.parametrize("word", ["a.b", "<c>"])
def test_word(word, broken):
    assert False
"""


def test_report_of_a_real_run_is_read(tmp_path: Path) -> None:
    (tmp_path / "test_words.py").write_text(TESTS)
    run = [sys.executable, "-m", "pytest", "-q", "--junitxml=report.xml", "-c", "/dev/null"]
    done = subprocess.run([*run, "test_words.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout

    times = seconds_in((tmp_path / "report.xml").read_text(encoding="utf-8"))
    assert [name for _, name in times] == ["test_word[a.b]", "test_word[<c>]"]


def test_slowest_come_first_and_a_folder_has_the_sum_of_its_files() -> None:
    times = {
        ("tests.store.test_disk", "test_a"): 2.0,
        ("tests.store.test_index", "test_b"): 3.0,
        ("tests.store.test_index", "test_c"): 0.5,
        ("tests.test_docs", "test_d"): 4.0,
        ("notebooks.quickstart.ipynb", "Cell 4"): 1.0,
    }
    assert [*lines(times, 2)] == [
        "10 s of 5 tests",
        "\nfolders:",
        "    5.5 s      3 tests  tests.store",
        "    4.0 s      1 tests  tests.test_docs",
        "\nfiles:",
        "    4.0 s      1 tests  tests.test_docs",
        "    3.5 s      2 tests  tests.store.test_index",
        "\ntests:",
        "    4.0 s  tests.test_docs::test_d",
        "    3.0 s  tests.store.test_index::test_b",
    ]


@pytest.mark.parametrize("text", [None, "", "<testsuites/>", "<testcase/>", "12 passed"])
def test_what_is_no_report_says_how_to_write_one(text: str | None, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    if text is not None:
        report.write_text(text)
    command = [sys.executable, "-m", "tests.slowest", str(report)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert f"--junitxml={report}" in done.stdout
    assert "Traceback" not in done.stderr
