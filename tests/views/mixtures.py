"""Answers made to be too much: by a seed, from pieces of Markdown, TeX and what acts."""

from __future__ import annotations

import random

from agentnb.views.formulas import is_known
from agentnb.views.markdown import answer_html
from tests.views.mathjax import typeset

PIECES = [
    *("<", ">", '"', "'", "&", "[", "]", "](", ")", "(", "![", "!", "\\", "`", "``", "```", "~~~"),
    *("~~", "*", "**", "***", "_", "__", "*a_", "a*b*", "$", "$$", "\\(", "\\)", "\\[", "\\]"),
    *("\\\\(", "\\\\)", "\\begin{matrix}", "\\end{matrix}", "\\begin{a}", "\\frac{", "\\text{"),
    *("{", "}", "%", "\\def", "\\href{", "\\\\[9em]", "\\\\[99em]", "\\left(", "\\right)", "\\x"),
    *("\n", "\n\n", "    ", "\t", " ", "  \n", "\\\n", "\r", "- ", "+ ", "* ", "1. ", "> ", ">"),
    *("# ", "|", "|-|\n", "|a|b|\n|-|-|\n", "---\n", "===\n", ":", "=", "-", "x", "1", "a b "),
    *("words and words ", "http://a.example", "<http://a>", "<a@b.c>", "<script>", "&#58;"),
    *("&amp;", "&#36;", "[r]: http://a\n\n", "[r]", "[r][r]", "[a](http://b)", '[a](b "', "[a](<"),
    *("é", "\u202e", "\U000e0001", "😀", "\x00", "\ud800"),
]


def mixture(seed: int, length: int) -> str:
    """One answer of that length."""
    dice = random.Random(seed)
    return (_MADE[seed % len(_MADE)](dice, length) or " ").ljust(length)[:length]


def check(text: str) -> None:
    """That what is shown of an answer is not too long, and that no formula is typeset unknown."""
    html = answer_html(text)
    assert len(html) <= 20 * len(text) + 1_000
    assert [formula for formula in typeset(html) if not is_known(formula)] == []


def _some(dice: random.Random, *counts: int) -> str:
    return "".join(dice.choice(PIECES) for _ in range(dice.choice(counts)))


def _repeated(dice: random.Random, length: int) -> str:
    return _some(dice, 1, 1, 2, 2, 3, 4, 6, 10) * length


def _in_thirds(dice: random.Random, length: int) -> str:
    third = length // 3
    return "".join((_some(dice, 1, 2, 3, 4) * third)[:third] for _ in range(3))


def _nested(dice: random.Random, length: int) -> str:
    markers = ("> ", "- ", ">", "1. ", "* ")
    head = "".join(dice.choice(markers) for _ in range(dice.choice((1, 5, 10, 19, 38))))
    line = _some(dice, 1, 2, 3, 5) * dice.choice((1, 1, 2, 10))
    return head + line + "\n" + (dice.choice(("", "", head)) + line + "\n") * length


def _table(dice: random.Random, length: int) -> str:
    columns = dice.choice((2, 5, 20, 100, 1000, 5000))
    row = _some(dice, 1, 2, 3).replace("\n", "")
    return "|a" * columns + "|\n" + "|-" * columns + "|\n" + (row + "\n") * length


def _mixed(dice: random.Random, length: int) -> str:
    some = dice.sample(PIECES, dice.choice((3, 5, 10, 30)))
    return "".join(dice.choice(some) for _ in range(length))


_MADE = (_repeated, _in_thirds, _mixed, _nested, _repeated, _table)
