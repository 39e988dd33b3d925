from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentnb.core.text import (
    escaped_for_json,
    literal,
    quoted,
    sendable,
    visible,
    visible_lines,
    visible_text,
)

ACTING = (
    "\x00\x07\x08\x0b\x1b\x1f\x7f\x85\x9b\x9d\u2028\u2029\u202a\u202e\u2066\u2069\u206a\u206f"
    + (
        "\ufff0\ufff9\ufffb\ufffe\uffff\ufdd0\U0001ffff\ud800\udfff\u05ff\U00010ef0\U000e0001\U000e0041"
    )
)
NEVER_NEEDED = "\U000e007f\U000e0100"
"""Needed in one place only, which is not in a word."""
NO_LOOK = NEVER_NEEDED + (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b\u180e\u180f\u200b\u200c\u200d\u200e\u200f\u2060"
    "\u2064\u2065\u2800\u3164\ufe00\ufe0e\ufe0f\ufeff\uffa0\ufffc\U00013430\U0001343f\U00016fe4"
    "\U0001bca0\U0001bca3\U0001d159\U0001d173\U0001d17a"
)
PEOPLE_WRITE = [
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian
    "\u0915\u094d\u200d\u0937 \u0930\u094d\u200c\u092f",  # Hindi
    "\u09b0\u200d\u09cd\u09af\u09be\u09ac",  # Bengali
    "\u0dc1\u0dca\u200d\u0dbb\u0dd3",  # Sinhala
    "\u05e9\u05dc\u05d5\u05dd, \u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd (1)",  # Hebrew
    "\u0627\u0644\u0633\u0644\u0627\u0645 \u0639\u0644\u064a\u0643\u0645",  # Arabic
    "\u182e\u1823\u1829\u182d\u1823\u180b \u182a\u1820\u180e\u1820",  # Mongolian
    "\u0f67\u0f90\u0fb5\u0fa8\u0fb3\u0fba\u0fbc\u0fbb\u0f82",  # the highest stack in Tibetan
    "\u0e17\u0e35\u0e48\u0e19\u0e31\u0e49\u0e19",  # Thai
    "\ud55c\uad6d\uc5b4 \u65e5\u672c\u8a9e \u845b\U000e0100\u98fe\u533a",  # Japanese
    "\u2801\u2800\u2803",  # braille
    "\U00013000\U00013430\U00013001",  # hieroglyphs
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",  # a family
    "\U0001f469\U0001f3fd\u200d\U0001f52c \U0001f575\ufe0f\u200d\u2642\ufe0f",
    "\U0001f468\U0001f3fb\u200d\u2764\ufe0f\u200d\U0001f48b\u200d\U0001f468\U0001f3ff",
    "\u2764\ufe0f \u2764\ufe0e 1\ufe0f\u20e3 \u00a9\ufe0f",
    "\U0001f1eb\U0001f1f7 \U0001f3f3\ufe0f\u200d\U0001f308 \U0001f3f4\u200d\u2620\ufe0f",
    "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",  # Scotland
    "na\u00efve e\u0323\u0302 \u03b1\u0314\u0301\u0345 \U0001e900\U0001e944",
]
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


@pytest.mark.parametrize("mark", NO_LOOK, ids=lambda mark: f"U+{ord(mark):04X}")
def test_mark_without_a_look_is_shown_on_a_line_and_kept_in_a_paragraph(mark: str) -> None:
    code = ord(mark)
    seen = (
        f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
    )
    text = f"pay{mark}load {mark}x{mark}"

    assert visible(text, 99) == text.replace(mark, seen)
    assert visible_lines(text, 99) == text.replace(mark, seen)
    assert literal(text) == f"'{text.replace(mark, seen)}'"
    if mark not in NEVER_NEEDED:
        assert visible_text(text) == text


@pytest.mark.parametrize("mark", [*ACTING, *NEVER_NEEDED], ids=lambda mark: f"U+{ord(mark):04X}")
def test_what_acts_is_shown_everywhere(mark: str) -> None:
    text = f"pay{mark}load"

    for shown in (visible(text, 99), visible_text(text), visible_lines(text, 99), literal(text)):
        assert mark not in shown
        assert "pay" in shown
        assert shown.encode().decode() == shown
    encoded = json.dumps(text, ensure_ascii=False)
    assert mark not in escaped_for_json(encoded)
    assert json.loads(escaped_for_json(encoded)) == text


@pytest.mark.parametrize("written", PEOPLE_WRITE)
def test_what_people_write_stays_as_it_is(written: str) -> None:
    for text in (written, f"a {written}, and {written}.", written * 3):
        assert visible(text, 400) == text
        assert visible_text(text) == text
        assert visible_lines(text, 400) == text
        assert literal(text, 400) == f"'{text}'"
        assert quoted(text, limit=400) == f"'{text}'"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\u200db", "a\\u200db"),
        ("p\u200cay", "p\\u200cay"),
        ("\u0645\u200c\u200c\u0645", "\u0645\u200c\\u200c\u0645"),
        ("1\ufe0f", "1\\ufe0f"),
        ("\u2764\ufe0f\ufe0f", "\u2764\ufe0f\\ufe0f"),
        ("x\ufe0f\u200d\U0001f680", "x\\ufe0f\\u200d\U0001f680"),
        ("\U0001f680\u200d", "\U0001f680\\u200d"),
        ("\u845b\U000e0100\U000e0101", "\u845b\U000e0100\\U000e0101"),
        ("\U0001f3f4\U000e0068\U000e0069", "\U0001f3f4\\U000e0068\\U000e0069"),
    ],
)
def test_mark_that_is_not_needed_where_it_stands_is_shown(text: str, seen: str) -> None:
    assert visible(text, 99) == seen


def test_letters_of_any_script_and_joined_emoji_stay_as_they_are() -> None:
    text = "naïve שלום सूची می‌خواهم 👩‍👧 日本語"

    assert visible(text, 80) == text
    assert visible_text(text) == text


def test_pile_of_marks_upon_a_letter_is_cleared_away_and_the_letter_stays() -> None:
    assert visible("Z" + "\u0301" * 40 + "algo", 20) == "Z\u0301\u0301\u0301algo"
    assert visible("e\u0323\u0302", 20) == "e\u0323\u0302", "Vietnamese"
    assert visible("\u0e2a" + "\u0e47" * 400 + "!", 20) == "\u0e2a" + "\u0e47" * 8 + "!", "Thai"
    assert visible_text("Z" + "\u0336\u0337" * 40) == "Z\u0336\u0337\u0336"
    assert visible_text("Z" + "\u0336\u200b" * 40).count("\u0336") == 8


def test_mark_without_a_letter_does_not_stand_upon_our_words() -> None:
    assert visible("\u0338no", 20) == "\\u0338no"
    assert literal("\u0338no") == "'\\u0338no'"


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


@given(ANY_TEXT, st.integers(50, 300))
def test_any_lines_are_bounded_and_the_same_when_it_is_done_twice(text: str, limit: int) -> None:
    shown = visible_lines(text * 20, limit)

    assert len(shown) <= limit
    assert visible_lines(shown, limit) == shown
    assert not set(shown) & set(ACTING)
    assert visible(visible(text, 80), 80) == visible(text, 80)


def test_of_lines_that_are_too_many_the_end_is_kept() -> None:
    shown = visible_lines("It failed: " + "x\n" * 10_000 + "\nSet the key.", 200)

    assert shown.startswith("It failed: x\nx")
    assert shown.endswith("x\n\nSet the key.")
    assert 100 < len(shown) <= 200


@given(st.text(st.characters(max_codepoint=127), max_size=60) | st.text(max_size=20))
def test_literal_of_what_is_printable_is_what_python_writes(text: str) -> None:
    shown = literal(text)

    if text.isascii():
        assert shown == repr(text)
    assert len(shown.splitlines()) == 1
    assert literal(text, 5) == shown or "…" in literal(text, 5)


def test_literal_is_bounded_whatever_it_is_of() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError

    assert literal("a" * 10**6, 10) == "'aaaaaaaaa…'"
    assert literal("a" + "\u0e47" * 35 + "\x1b\x1b" + "b" * 99, 10) == "'a" + "\u0e47" * 8 + "…'"
    assert literal("\x1b" * 10**6, 10) == "'\\x1b\\x1b…'"
    assert literal(["a"] * 1000, 10) == "['a', 'a'…"
    assert literal(Odd()) == "<Odd>"
    assert literal(None) == "None"
    assert literal("it's") == '"it\'s"'
    assert literal("a\n\tb\r\\") == repr("a\n\tb\r\\")


@pytest.mark.parametrize(
    "unit", ["a", "e\u0301", "\u0301", "\x1b", "\U0001f469\u200d", "\u0645\u200c", " ", "\u0e47"]
)
def test_a_megabyte_of_anything_is_shown_in_linear_time(unit: str) -> None:
    text = unit * (10**6 // len(unit))

    assert len(visible(text, 72)) <= 72
    assert len(visible_lines(text, 1000)) <= 1000
    assert len(literal(text)) <= 202
    assert visible_text(text)


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("plain", "plain"),
        ("naïve \N{PARTY POPPER}", "naïve \N{PARTY POPPER}"),
        ("half \ud83d", "half \ufffd"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ude00", "\N{GRINNING FACE}"),
    ],
)
def test_what_is_sent_holds_no_half_of_a_pair(text: str, sent: str) -> None:
    assert sendable(text) == sent
