"""`%spawn tell`: the words of a line are a person's, not a shell's."""

from __future__ import annotations

import pytest

from agentnb.errors import NotebookError
from agentnb.notebook.steering import Telling, telling_in


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("tell 2.1 Use primary sources.", ("2.1", "Use primary sources.", None)),
        ("  tell  root   don't stop  ", ("root", "don't stop", None)),
        ('tell 1 "in quotes"', ("1", "in quotes", None)),
        ('tell 1 say "yes" or "no"', ("1", 'say "yes" or "no"', None)),
        ("tell 1 --bg is no option here", ("1", "--bg is no option here", None)),
        ("--run ab12 tell 1 hm", ("1", "hm", "ab12")),
        ("tell --run=ab12 1 hm", ("1", "hm", "ab12")),
        ("tell 1 --run ab12 hm", ("1", "hm", "ab12")),
        ("tell 1 hm --run ab12", ("1", "hm", "ab12")),
    ],
)
def test_line_is_read_as_path_words_and_run(line: str, expected: tuple[str, ...]) -> None:
    assert telling_in(line) == Telling(*expected)


@pytest.mark.parametrize("line", ["", "status", "teller 1 hm", "cancel tell", "budget 5"])
def test_other_verbs_are_left_alone(line: str) -> None:
    assert telling_in(line) is None


@pytest.mark.parametrize(
    "line", ["tell", "tell 1", "tell 1 ''", "tell --run x 1", "tell 1 --run x"]
)
def test_path_or_words_that_are_missing_are_one_line(line: str) -> None:
    with pytest.raises(NotebookError, match=r"%spawn tell 2.1") as caught:
        telling_in(line)
    assert "\n" not in str(caught.value)
