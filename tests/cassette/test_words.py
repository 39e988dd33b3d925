"""The words that differ between two texts: complete, readable, and bounded in time."""

from __future__ import annotations

import random

import pytest

from agentnb.cassette.words import Piece, marked, word_diff


def of_kind(pieces: list[Piece], *kinds: str) -> list[str]:
    return " ".join(piece.text for piece in pieces if piece.kind in kinds).split()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("It is Paris now", "It is London now", "It is [-Paris-]{+London+} now"),
        ("a b", "a b c", "a b {+c+}"),
        ("a b c", "b c", "[-a-] b c"),
        ("", "new words", "{+new words+}"),
        ("one two", "three four", "[-one two-]{+three four+}"),
        ("猫が好き", "犬が好き", "[-猫-]{+犬+} が好き"),
    ],
)
def test_words_that_differ_are_marked(before: str, after: str, expected: str) -> None:
    assert marked(word_diff(before, after)) == expected


@pytest.mark.parametrize("other", ["a b", "a  b", "a\nb\n"])
def test_texts_with_the_same_words_have_no_difference(other: str) -> None:
    assert word_diff("a b", other) == []


def test_every_word_of_both_texts_is_in_the_pieces() -> None:
    chance = random.Random(3)
    for _ in range(500):
        one, other = (
            " ".join(chance.choice("abc") for _ in range(chance.randrange(12))) for _ in range(2)
        )
        pieces = word_diff(one, other, context=100, most_changes=100)
        if one != other:
            assert of_kind(pieces, "same", "gone") == one.split()
            assert of_kind(pieces, "same", "new") == other.split()


def test_only_a_few_words_stand_around_a_change() -> None:
    words = [str(n) for n in range(100)]
    other = [*words[:50], "new", *words[51:]]

    text = marked(word_diff(" ".join(words), " ".join(other), context=2))

    assert text == "… 48 49 [-50-]{+new+} 51 52 …"


def test_changes_beyond_the_first_are_counted() -> None:
    before = " ".join(f"{n} same same same" for n in range(30))
    after = " ".join(f"{n}x same same same" for n in range(30))

    pieces = word_diff(before, after, most_changes=2)

    assert [piece.text for piece in pieces if piece.kind == "gone"] == ["0", "1"]
    assert "28 more" in pieces[-1].text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a " * 1_000_000, "b " * 1_000_000),
        ("a b " * 300_000, "b a " * 300_000),
        ("x" * 3_000_000, "x" * 2_999_999 + "y"),
        (" ".join(map(str, range(50_000))), " ".join(map(str, reversed(range(50_000))))),
    ],
    ids=["other words", "shifted", "one word", "reversed"],
)
def test_long_texts_that_differ_in_all_have_a_short_difference(before: str, after: str) -> None:
    pieces = word_diff(before, after)

    assert {piece.kind for piece in pieces} >= {"gone", "new"}
    assert len(marked(pieces)) < 5_000


def test_difference_far_inside_a_long_text_is_found() -> None:
    pieces = word_diff("a " * 300_000 + "b " + "c " * 10, "a " * 300_000 + "d " + "c " * 10)

    assert of_kind(pieces, "gone") == ["b"]
    assert of_kind(pieces, "new") == ["d"]


def test_characters_that_act_are_escaped() -> None:
    text = marked(word_diff("red", "\x1b[31mred\u202e"))

    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b" in text


def test_secret_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    from agentnb.core.secrets import known_secrets

    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted-0123456789abcdef")
    known_secrets()

    text = marked(word_diff("the key", "the key sk-planted-0123456789abcdef"))

    assert "planted" not in text
    assert "{+" in text
