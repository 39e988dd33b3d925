"""A model's answer as a tree of elements for the page."""

from __future__ import annotations

import re
from typing import Any

from agentnb.views.boards.rich import rich_of
from tests.views.test_markdown import HOSTILE

ALLOWED = {
    *("a", "blockquote", "br", "code", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol"),
    *("p", "pre", "s", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}


def elements(parts: list[Any]) -> list[tuple[str, dict[str, str]]]:
    found = []
    for part in parts:
        if not isinstance(part, str):
            found += [(part[0], part[1]), *elements(part[2:])]
    return found


def text_in(parts: list[Any]) -> str:
    return "".join(part if isinstance(part, str) else text_in(part[2:]) for part in parts)


def test_answer_is_laid_out() -> None:
    assert rich_of("Two **of** *three*:\n\n1. a `b`\n2. [c](https://example.org)") == [
        ["p", {}, "Two ", ["strong", {}, "of"], " ", ["em", {}, "three"], ":"],
        [
            "ol", {},
            ["li", {}, "a ", ["code", {}, "b"]],
            ["li", {}, ["a", {"href": "https://example.org"}, "c"]],
        ],
    ]  # fmt: skip


def test_table_keeps_how_its_columns_are_aligned() -> None:
    found = elements(rich_of("|a|b|\n|-|-:|\n|1|2|"))

    assert [about for tag, about in found if tag in ("th", "td")] == [{}, {"align": "right"}] * 2


def test_signs_stay_as_they_were_written() -> None:
    assert text_in(rich_of("$5 or $10, \\n & <b>x</b>")) == "$5 or $10, \\n & <b>x</b>"
    assert rich_of("a\\\nb") == [["p", {}, "a", ["br", {}], "\nb"]]
    assert rich_of("") == []


def test_hostile_answer_has_allowed_elements_only() -> None:
    for text in HOSTILE:
        for tag, about in elements(rich_of(text)):
            assert tag in ALLOWED
            assert about.keys() <= {"href", "start", "align"}
            assert re.match("https?://|mailto:", about.get("href", "https://"), re.IGNORECASE)
