"""The words that differ between two texts, with a few words around them, for a person to read.

Texts are masked and made visible here, so a difference in a secret alone does not show. The time is
bounded for any texts: if they differ too much, everything between the first and the last difference
is one change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile
from operator import eq
from typing import Literal

from agentnb.core.secrets import masked_as_known
from agentnb.core.text import visible

MOST_WORDS = 2_000
"""Most words between a text's first and last change that are compared one by one."""
_MOST_CHARACTERS = 200_000
"""Most characters of each text that are compared, from the first difference on."""

# A character of a script without blanks counts as a word.
_ONE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_CLOSES, _OPENS = ".,;:!?)]}", "([{"
_SIGN = f"[{re.escape(_CLOSES + _OPENS)}]"
_IN_WORD = rf"(?<=\w){_SIGN}(?=\w)"
_WORD = re.compile(rf"[{_ONE}]\s*|(?:(?!{_SIGN})[^\s{_ONE}]|{_IN_WORD})+\s*|{_SIGN}\s*")
_MOST_OF_A_LINE = 150


_MARKS = {"gone": "[-{}-]", "new": "{{+{}+}}", "same": "{}"}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of two texts, on one line, masked and visible."""

    kind: Literal["same", "gone", "new"]
    """`gone` is only in the earlier text, `new` only in the later one."""
    text: str


def word_diff(
    before: str, after: str, *, context: int = 5, most_changes: int = 8, most_of_each: int = 200
) -> list[Piece]:
    """The words that differ between two texts.

    Args:
        before: The earlier text.
        after: The later text.
        context: Number of equal words shown on each side of a change.
        most_changes: Most changes that are shown; the rest is counted.
        most_of_each: Most characters of one piece that are shown.

    Returns:
        The pieces in order. Equal pieces have only the words next to a change, with `…` for the
        others. Empty if the texts have the same words.
    """
    runs = list(_runs(masked_as_known(before), masked_as_known(after)))
    if all(kind == "same" for kind, _ in runs):
        return []
    pieces: list[Piece] = []
    changes, shown_to = 0, len(runs)
    for place, (kind, _) in enumerate(runs):
        changes += _begins_change(runs, place)
        if changes > most_changes and kind != "same":
            shown_to = min(shown_to, place)
    for place, (kind, words) in enumerate(runs[:shown_to]):
        if kind == "same":
            is_first, is_last = place == 0, place == len(runs) - 1
            text = _beside(words, context, is_first=is_first, is_last=is_last)
        else:
            text = _text(words)
        if text:
            pieces.append(Piece(kind, _shortened(text, most_of_each)))
    if (more := changes - most_changes) > 0:
        pieces.append(Piece("same", f"… and {more:,} more change{'s' if more > 1 else ''}"))
    return pieces


def marked(pieces: Sequence[Piece], mark: Callable[[Piece], str] | None = None) -> str:
    """Pieces as one line: `… the [-old-]{+new+} word …`.

    Args:
        pieces: See `word_diff`.
        mark: Writes one piece in another way.
    """
    line, before = "", None
    for piece in pieces:
        is_pair = before is not None and (before.kind, piece.kind) == ("gone", "new")
        is_sign = piece.text.startswith((*_CLOSES,)) or (
            before and before.text.endswith((*_OPENS,))
        )
        line += " " * (before is not None and not (is_pair or is_sign))
        line += mark(piece) if mark else _MARKS[piece.kind].format(piece.text)
        before = piece
    return line


def word_difference(before: str, after: str) -> str:
    """The difference of two texts as one line of at most 150 characters, also that of blanks."""
    before, after = masked_as_known(before), masked_as_known(after)
    pieces = word_diff(before, after, context=2, most_of_each=50)
    return visible(marked(pieces) or _blanks_that_differ(before, after), _MOST_OF_A_LINE)


def first_difference(before: str, after: str) -> int:
    """The place of the first difference of two texts, by bisection."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        if before[low:middle] == after[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


# -- what differs ----------------------------------------------------------------------------------

_Run = tuple[Literal["same", "gone", "new"], Sequence[str]]


def _runs(before: str, after: str) -> Iterator[_Run]:
    """Both texts as runs of words, same, gone or new, in order."""
    before, after = _within_bounds(before, after)
    old, new = _WORD.findall(before), _WORD.findall(after)
    old_keys, new_keys = [w.rstrip() for w in old], [w.rstrip() for w in new]
    head = _same_at_begin(old_keys, new_keys)
    tail = _same_at_begin(old_keys[head:][::-1], new_keys[head:][::-1])
    old_end, new_end = len(old) - tail, len(new) - tail
    matches = _matches(old_keys[head:old_end], new_keys[head:new_end])
    pairs = [(head + one, head + other) for one, other in matches]
    at, at_new = 0, 0
    same = [(n, n) for n in range(head)] + pairs + [(old_end + n, new_end + n) for n in range(tail)]
    collected: list[str] = []
    for one, other in [*same, (len(old), len(new))]:
        if one > at or other > at_new:
            yield from _run("same", collected)
            collected = []
            yield from _run("gone", old[at:one])
            yield from _run("new", new[at_new:other])
        collected += new[other : other + 1]
        at, at_new = one + 1, other + 1
    yield from _run("same", collected)


def _run(kind: Literal["same", "gone", "new"], words: Sequence[str]) -> Iterator[_Run]:
    if words:
        yield kind, words


def _within_bounds(before: str, after: str) -> tuple[str, str]:
    """The texts; if they are very long, only the part around and after their first difference."""
    longest = max(len(before), len(after))
    if longest <= _MOST_CHARACTERS:
        return before, after
    first = first_difference(before, after)
    # Starts some words before the difference, at the beginning of a word.
    begin = before.rfind(" ", 0, max(0, first - 500)) + 1
    end = first + _MOST_CHARACTERS
    return before[begin:end], after[begin:end]


def _matches(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of places of equal words, in order; none if too few words are equal."""
    if max(len(old), len(new)) > MOST_WORDS:
        return []
    # Of long texts it leaves out frequent words, which bounds its time.
    blocks = SequenceMatcher(None, old, new).get_matching_blocks()
    found = [(one + n, other + n) for one, other, size in blocks for n in range(size)]
    # A few small words in common would only chop up two different sentences.
    return found if 4 * len(found) >= min(len(old), len(new)) else []


def _same_at_begin(old: Sequence[str], new: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(bool, map(eq, old, new)))


def _blanks_that_differ(before: str, after: str) -> str:
    """The first blanks that differ in two texts of the same words, between these."""
    begin = len(before[: first_difference(before, after)].rstrip())
    rests = before[begin:], after[begin:]
    gone, new = (rest[: len(rest) - len(rest.lstrip())] for rest in rests)
    shown = [repr(blanks)[1:-1].replace(" ", "␣") for blanks in (gone, new)]
    changes = [f"[-{shown[0]}-]" * bool(gone), f"{{+{shown[1]}+}}" * bool(new)]
    return "".join([*before[:begin].split()[-1:], *changes, *rests[0].split()[:1]])


# -- what is shown ---------------------------------------------------------------------------------


def _begins_change(runs: Sequence[_Run], place: int) -> bool:
    return runs[place][0] != "same" and (place == 0 or runs[place - 1][0] == "same")


def _beside(words: Sequence[str], context: int, *, is_first: bool, is_last: bool) -> str:
    """The words next to the changes before and after, with `…` for those in between."""
    first, last = (0 if is_first else context), (0 if is_last else context)
    if len(words) <= first + last:
        return _text(words)
    parts = [_text(words[:first]), "…", _text(words[len(words) - last :])]
    return " ".join(filter(None, parts))


def _text(words: Sequence[str]) -> str:
    return "".join(words).strip()


def _shortened(text: str, limit: int) -> str:
    line = visible(text, max(len(text) * 10, 1))
    if len(line) <= limit:
        return line
    half = limit // 2
    return f"{line[:half].rstrip()} … {line[-half:].lstrip()}"
