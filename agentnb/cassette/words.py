"""The words that differ in two texts, on one short line. Pure, and bounded for any texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import takewhile
from operator import eq

from agentnb.core.text import visible

_TOKEN = re.compile(r"\s+|\w+|[^\w\s]")
_AROUND = 4
"""Equal tokens shown on each side: about two words and their blanks."""
_MOST_MATCHED = 120
"""Most tokens of each text that are matched, since the work grows with the square."""
_MOST_OF_A_SIDE = 50
"""Most characters of a run of words that differ."""
_MOST = 150
"""Most characters of the whole line."""
_PIECE = 4_000
"""Most characters read after the first difference."""


def word_difference(old: str, new: str) -> str:
    """The difference between two texts, as `a few words [-old-]{+new+} around it`.

    Secrets are masked, control characters are visible, and white space is folded except where it
    differs.

    Args:
        old: The recorded text.
        new: The present text, a different one.

    Returns:
        One line of at most 150 characters.
    """
    first = first_difference(old, new)
    # Include the beginning of the word, and the few words before it.
    begin = max(0, first - 60)
    cut_old, cut_new = old[begin : first + _PIECE], new[begin : first + _PIECE]
    a, b = _TOKEN.findall(cut_old), _TOKEN.findall(cut_new)
    same = same_at_begin(a, b)
    before = a[max(0, same - _AROUND) : same]
    rest_a, rest_b = a[same:], b[same:]
    is_end = len(cut_old) < first - begin + _PIECE and len(cut_new) < first - begin + _PIECE
    behind = same_at_begin(rest_a[::-1], rest_b[::-1]) if is_end else 0
    after = rest_a[len(rest_a) - behind :]
    middle_a, middle_b = rest_a[: len(rest_a) - behind], rest_b[: len(rest_b) - behind]
    said = ["… "] if begin or same > _AROUND else []
    said += [_plain(before), *_changes(middle_a, middle_b), _plain(after[:_AROUND])]
    if len(after) > _AROUND:
        said.append(" …")
    return visible("".join(said), _MOST)


def first_difference(old: str, new: str) -> int:
    """The place of the first difference of two texts, by bisection."""
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def same_at_begin(old: Sequence[str], new: Sequence[str]) -> int:
    """The length of the common beginning of two lists."""
    return sum(1 for _ in takewhile(bool, map(eq, old, new)))


def _changes(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """The tokens that differ, with the equal ones between them."""
    if len(old) > _MOST_MATCHED or len(new) > _MOST_MATCHED:
        yield _change(old, new)
        return
    found = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    for tag, a, a_end, b, b_end in found:
        if tag != "equal":
            yield _change(old[a:a_end], new[b:b_end])
        elif a_end - a > 2 * _AROUND:
            yield f"{_plain(old[a : a + _AROUND])} … {_plain(old[a_end - _AROUND : a_end])}"
        else:
            yield _plain(old[a:a_end])


def _change(old: Sequence[str], new: Sequence[str]) -> str:
    gone, come = "".join(old), "".join(new)
    is_blank = not (gone.strip() or come.strip())  # only white space differs: make it visible
    gone, come = (_shown(each, is_blank) for each in (gone, come))
    return (f"[-{gone}-]" if gone else "") + (f"{{+{come}+}}" if come else "")


def _shown(text: str, is_blank: bool) -> str:
    if not text:
        return ""
    if is_blank:
        return visible(repr(text)[1:-1].replace(" ", "␣"), _MOST_OF_A_SIDE)
    head = " " if text[:1].isspace() else ""
    tail = " " if text[-1:].isspace() and text.strip() else ""
    return f"{head}{visible(text, _MOST_OF_A_SIDE)}{tail}"


def _plain(tokens: Sequence[str]) -> str:
    return "".join([" " if token.isspace() else token for token in tokens])
