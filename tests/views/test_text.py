from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentnb.views.text import visible, visible_text

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("hostile", "seen"),
    [
        ("a\nb\r\n\tc", "a b c"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("bell\x07 null\x00 del\x7f c1\x9b", "bell\\x07 null\\x00 del\\x7f c1\\x9b"),
        ("file\u202egpj.exe", "file\\u202egpj.exe"),
        ("\u200fright \u2067isolate", "\\u200fright \\u2067isolate"),
        ("zero\u200bwidth \ufefftag\U000e0041", "zero\\u200bwidth \\ufefftag\\U000e0041"),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
        ("one\u2028line", "one line"),
    ],
)
def test_what_would_act_on_a_line_is_shown_in_its_place(hostile: str, seen: str) -> None:
    assert visible(hostile, 80) == seen


def test_letters_of_any_script_and_joined_emoji_stay_as_they_are() -> None:
    text = "naïve שלום सूची می‌خواهم 👩‍👧 日本語"

    assert visible(text, 80) == text
    assert visible_text(text) == text


def test_pile_of_marks_upon_a_letter_is_cleared_away_and_the_letter_stays() -> None:
    assert visible("Z" + "\u0301" * 40 + "algo", 20) == "Z\u0301\u0301\u0301algo"
    assert visible("e\u0323\u0302", 20) == "e\u0323\u0302", "Vietnamese"


def test_long_text_is_cut_to_the_limit_and_says_so() -> None:
    assert visible("one two three", 13) == "one two three"
    assert visible("one two three", 12) == "one two thr…"
    assert visible("one two three", 8) == "one two…"
    assert visible("ab", 1) == "…"


def test_an_escape_is_never_cut_in_two() -> None:
    assert visible("abc\x1bdef", 7) == "abc…"
    assert visible("abc\x1bdef", 8) == "abc\\x1b…"


def test_a_line_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="`limit` is 0"):
        visible("text", 0)


def test_lines_and_tabs_of_a_longer_text_are_kept() -> None:
    assert visible_text("a\tb\r\nc\rd\n\ne\x1b[2J") == "a\tb\nc\nd\n\ne\\x1b[2J"


def test_marks_that_hebrew_and_hyphenation_need_are_kept_in_a_longer_text_only() -> None:
    text = "\u05d0\u200f(1) Donau\u00addampf"

    assert visible_text(text) == text
    assert visible(text, 80) == "\u05d0\\u200f(1) Donau\\xaddampf"


@given(ANY_TEXT, st.integers(1, 100))
def test_any_text_becomes_one_printable_line_within_the_limit(text: str, limit: int) -> None:
    line = visible(text, limit)

    assert len(line) <= limit
    assert len(line.splitlines()) <= 1
    assert line.encode().decode() == line
    assert {unicodedata.category(c) for c in line}.isdisjoint({"Cc", "Cs", "Zl", "Zp"})
    assert not {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"} & {
        unicodedata.bidirectional(c) for c in line
    }


@given(ANY_TEXT)
def test_any_text_keeps_its_lines_and_loses_what_acts(text: str) -> None:
    shown = visible_text(text)

    assert shown.encode().decode() == shown
    assert shown.splitlines() == shown.removesuffix("\n").split("\n") or not shown
    assert {unicodedata.category(c) for c in shown if c not in "\n\t"}.isdisjoint({"Cc", "Cs"})
    assert visible_text(shown) == shown
