"""The differences between a cell's saved and new outputs, in words."""

from __future__ import annotations

from typing import Any

import pytest

from agentnb.testing._outputs import differences

Output = dict[str, Any]


def shown(text: str | list[str], **more: str) -> Output:
    return {"output_type": "display_data", "data": {"text/plain": text, **more}, "metadata": {}}


def plotted(about: str) -> Output:
    text = {"text/plain": "<Figure: of 2 agents>", "image/png": "abc="}
    about_it = {"image/png": {"alt": about, "width": 5}}
    return {"output_type": "execute_result", "data": text, "metadata": about_it}


def printed(text: str, name: str = "stdout") -> Output:
    return {"output_type": "stream", "name": name, "text": text}


def failed(why: str) -> Output:
    return {"output_type": "error", "ename": "ValueError", "evalue": why, "traceback": ["at 7"]}


@pytest.mark.parametrize(
    ("saved", "made"),
    [
        ([], []),
        ([shown(["a\n", "b"])], [shown("a\nb")]),  # a file may have a list of lines
        ([printed("a\n"), printed("b\n")], [printed("a\nb\n")]),
        ([printed("a"), printed("b", "stderr")], [printed("b", "stderr"), printed("a")]),
        ([shown("a")], [shown("a", **{"text/html": "<p>", "image/png": "abc="})]),
        ([shown("a")], [{"output_type": "display_data", "data": {"image/png": ""}}, shown("a")]),
        ([plotted("Timeline over 12 ms.")], [plotted("Timeline over 13 ms.")]),
        ([plotted("Tree of 2 agents.")], [{**plotted(""), "metadata": {}}]),
        ([failed("no")], [{**failed("no"), "traceback": ["at 8"]}]),
    ],
)
def test_same_texts_are_the_same_outputs(saved: list[Output], made: list[Output]) -> None:
    assert differences(saved, made) == []
    assert differences(made, saved) == []


@pytest.mark.parametrize(
    ("saved", "made", "told"),
    [
        ([shown("a\nb\nc")], [shown("a\nB\nc")], ["output 1", "    a", "  - b", "  + B", "    c"]),
        ([shown("a"), shown("b")], [shown("a")], ["output 2", "  - b"]),
        (
            [shown("a")],
            [shown("b"), shown("a")],
            ["output 1", "  - a", "  + b", "output 2", "  + a"],
        ),
        ([shown("a"), shown("b")], [shown("b"), shown("a")], ["output 1", "output 2"]),
        ([printed("a")], [printed("b")], ["stdout", "  - a", "  + b"]),
        ([printed("a")], [printed("a", "stderr")], ["stdout", "  - a", "stderr", "  + a"]),
        ([plotted("Tree of 2 agents: 1 failed.")], [plotted("Tree of 2 agents.")], ["picture 1"]),
        ([failed("no")], [failed("none")], ["the error", "  - ValueError: no"]),
        ([shown("a\n")], [shown("a")], ["output 1", "  (only in the ends of lines)"]),
    ],
)
def test_each_difference_is_shown_by_its_lines(
    saved: list[Output], made: list[Output], told: list[str]
) -> None:
    lines = differences(saved, made)

    assert [any(line.startswith(each) for line in lines) for each in told] == [True] * len(told)


def test_what_may_differ_is_cleaned_away() -> None:
    assert differences([shown("12 ms")], [shown("7 ms")], clean=lambda text: text[-2:]) == []


def test_long_line_is_cut_in_the_report() -> None:
    assert max(map(len, differences([shown("a" * 9000)], [shown("b" * 9000)]))) < 250
