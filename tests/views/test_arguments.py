"""A tool call's arguments for a person: code with its lines, other values by name."""

from __future__ import annotations

from typing import Any

import pytest

from agentnb.views.arguments import MOST_OF_CODE, code_in, lines_of, shown_code, values_in


@pytest.mark.parametrize(
    ("name", "given", "code"),
    [
        ("python", {"code": "\na\n"}, "\na\n"),
        ("python", {"code": 1}, None),
        ("python", {"code": "a", "more": 1}, None),
        ("python", "a", None),
        ("find", {"code": "a"}, None),
    ],
)
def test_code_is_the_only_argument_of_python(name: str, given: Any, code: str | None) -> None:
    assert code_in(name, given) == code


def test_code_up_to_the_bound_is_whole() -> None:
    code = "x = 1\n" * (MOST_OF_CODE // 6) + "y"

    assert shown_code(f"\n{code}\n") == code


def test_longer_code_keeps_whole_lines_of_both_ends_and_counts_the_rest() -> None:
    code = "\n".join(f"line_{n} = {n}" for n in range(5_000))

    shown = shown_code(code)

    assert len(shown) <= MOST_OF_CODE + 100
    head, rest = shown.split("# … ")
    note, tail = rest.split("\n", 1)
    assert code.startswith(head)
    assert head.endswith("\n")
    assert code.endswith(f"\n{tail}")
    left_out = len(code) - len(head) + 1 - len(tail)
    assert note == f"{left_out:,} of {len(code):,} characters are left out here …"


def test_one_line_that_is_too_long_is_cut_too() -> None:
    shown = shown_code("x" * 100_000)

    assert len(shown) <= MOST_OF_CODE + 100
    assert "80,000 of 100,000 characters" in shown


def test_secret_at_the_cut_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-abcdefgh12345678"
    monkeypatch.setattr("agentnb.core.text.masked_as_known", lambda text: text.replace(key, "***"))

    shown = shown_code("x" * (MOST_OF_CODE // 2 - 5) + key + "y" * MOST_OF_CODE)

    assert "sk-" not in shown


def test_values_are_whole_texts_as_they_are_and_others_as_json() -> None:
    given = {
        "to": "Ann O'Hara",
        "body": "Hello,\n\tsee \u202ebelow\n",
        "n": 2**70,
        "text_of_a_number": "12",
        "word": "true",
        "blank": " ",
        "deep": {"a": [1, None]},
        "braces": '{"a": 1}',
    }

    assert values_in(given) == [
        ("to", "Ann O'Hara"),
        ("body", "Hello,\n\tsee \\u202ebelow\n"),
        ("n", str(2**70)),
        ("text_of_a_number", '"12"'),
        ("word", '"true"'),
        ("blank", '" "'),
        ("deep", '{"a": [1, null]}'),
        ("braces", '{"a": 1}'),
    ]
    assert values_in(["x" * 200])[0][1].startswith("[\n  ")
    assert (values_in(None), values_in({})) == ([], [])


def test_lines_of_a_value_cannot_pass_for_another_argument() -> None:
    assert lines_of("send", {"to": "ann\nto: bob", "n": 1}) == (
        "    to: ann\n        to: bob\n    n: 1"
    )
    assert lines_of("python", {"code": "if x:\n    y"}) == "    if x:\n        y"
