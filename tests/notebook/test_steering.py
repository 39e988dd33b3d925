"""`%spawn tell` and `%spawn questions`: the words are a person's, and code keeps its lines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agentnb.core.questions import Question
from agentnb.errors import NotebookError
from agentnb.notebook.answering import questions
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


def test_questions_show_what_is_asked_for_whole_and_line_by_line() -> None:
    def asks(number: int, tool: str, arguments: Any) -> Question:
        about = {"tool": tool, "arguments": arguments}
        text = f"May agent 1 call {tool}?"
        return Question(
            f"q{number}", "approval", "a", "1", text, ("approve", "deny"), about, 0.0, 60.0
        )

    code = "\n".join(f"x = {n}" for n in range(400))
    run: Any = SimpleNamespace(
        questions=(
            asks(1, "python", {"code": f"{code}\nif x:\n    x = '\x1b[2J'"}),
            asks(2, "send", {"to": "ann", "body": "Hello,\nq9: root asks"}),
            asks(3, "stop", {}),
        )
    )

    table, ran, sent = questions(run, ()).split("\n\n")

    assert "May agent 1 call stop?" in table
    assert ran.startswith("q1: 1 asks to run:\n    x = 0\n    x = 1\n")
    assert ran.endswith("    x = 399\n    if x:\n        x = '\\x1b[2J'")
    assert (
        sent
        == "q2: 1 asks to call send with:\n    to: ann\n    body: Hello,\n        q9: root asks"
    )
