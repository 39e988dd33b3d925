from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentnb.errors import NotebookError
from agentnb.notebook.line import Option, read_options, text, value_of, variable_name, words_of
from agentnb.settings import SETTINGS

OPTIONS = {
    "--budget": Option("budget", value_of(SETTINGS["budget"].check)),
    "--model": Option("model", text),
    "--bg": Option("in_background", None),
    "-o": Option("name", variable_name),
}


def read(line: str) -> tuple[dict[str, object], list[str]]:
    return read_options(words_of(line), OPTIONS, magic="%%spawn")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", ({}, [])),
        ("--budget 80_000 --bg", ({"budget": 80_000, "in_background": True}, [])),
        ("--budget 1,080,000", ({"budget": 1_080_000}, [])),
        ("--budget=5 -o result", ({"budget": 5, "name": "result"}, [])),
        ("--model 'a name/with blanks'", ({"model": "a name/with blanks"}, [])),
        ("--model ollama/qwen:8b=x", ({"model": "ollama/qwen:8b=x"}, [])),
        ("--model=a=b", ({"model": "a=b"}, [])),
        ("cancel 1.2 --bg - now", ({"in_background": True}, ["cancel", "1.2", "-", "now"])),
        ("-o größe", ({"name": "größe"}, [])),
    ],
)
def test_line_is_split_into_options_and_the_rest(
    line: str, expected: tuple[dict[str, object], list[str]]
) -> None:
    assert read(line) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--bugdet 5", "`%%spawn` has no option '--bugdet': did you mean '--budget'?"),
        (
            "--zebra",
            "`%%spawn` has no option '--zebra': the options are --budget, --model, --bg, -o.",
        ),
        ("--budget", "'--budget' of `%%spawn` needs a value."),
        ("--budget --bg", "'--budget' of `%%spawn` needs a value."),
        (
            "--budget few",
            "'--budget' must be a whole number of tokens, at least 1, not 'few'.",
        ),
        ("--budget=", "'--budget' must be a whole number of tokens, at least 1, not ''."),
        ("--budget 5,00", "'--budget' must be a whole number of tokens, at least 1, not '5,00'."),
        ("--bg --bg", "'--bg' is given twice to `%%spawn`: leave one out."),
        ("--bg=1", "'--bg' of `%%spawn` takes no value: leave '1' out."),
        ("--model ' '", "'--model' needs a value, not ' '."),
        ("-o 1st", "'-o' takes the name of a variable, not '1st'."),
        ("-o lambda", "'-o' takes the name of a variable, not 'lambda'."),
        ('say "it', "A quote is not closed in 'say \"it': close it, or leave it out."),
    ],
)
def test_mistake_is_one_sentence_that_quotes_it(line: str, message: str) -> None:
    with pytest.raises(NotebookError) as caught:
        read(line)

    assert str(caught.value) == message


@given(st.text())
def test_any_line_is_read_or_refused_in_one_line(line: str) -> None:
    try:
        values, rest = read(line)
    except NotebookError as error:
        said = str(error)
    else:
        said = ""
        assert set(values) <= {option.name for option in OPTIONS.values()}
        assert all(not word.startswith("-") or word == "-" for word in rest)
    assert "\n" not in said


@given(st.lists(st.sampled_from([*OPTIONS, "1", "x", "--bg=", "--x", "-"])))
def test_any_order_of_words_is_read_or_refused(words: list[str]) -> None:
    try:
        values, rest = read_options(words, OPTIONS, magic="%%spawn")
    except NotebookError:
        return
    assert len(values) + len(rest) <= len(words)
