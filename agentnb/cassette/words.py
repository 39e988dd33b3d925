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
    both = masked_as_known(before), masked_as_known(after)
    runs = [(kind, words) for kind, words in _runs(*both) if words]
    changes = [place for place in range(len(runs)) if _begins_change(runs, place)]
    if not changes:
        return []
    pieces: list[Piece] = []
    more = len(changes) - most_changes
    shown_to = changes[most_changes] if more > 0 else len(runs)
    for place, (kind, words) in enumerate(runs[:shown_to]):
        if kind == "same":
            text = _beside(words, context, is_first=not place, is_last=place == len(runs) - 1)
        else:
            text = _text(words)
        if text:
            pieces.append(Piece(kind, _shortened(text, most_of_each)))
    if more > 0:
        pieces.append(Piece("same", f"… and {more:,} more change{'s' if more > 1 else ''}"))
    return pieces


def marked(pieces: Sequence[Piece], mark: Callable[[Piece], str] | None = None) -> str:
    """Pieces as one line: `… the [-old-]{+new+} word …`.

    Args:
        pieces: See `word_diff`.
        mark: Writes one piece in another way.
    """
    line, before = "", Piece("same", "(")
    for piece in pieces:
        is_pair = (before.kind, piece.kind) == ("gone", "new")
        is_sign = piece.text[0] in _CLOSES or before.text[-1] in _OPENS
        line += "" if is_pair or is_sign else " "
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
    """Both texts as runs of words, same, gone or new, in order; some are empty."""
    before, after = _within_bounds(before, after)
    old, new = _WORD.findall(before), _WORD.findall(after)
    old_keys, new_keys = [w.rstrip() for w in old], [w.rstrip() for w in new]
    head = _same_at_begin(old_keys, new_keys)
    tail = _same_at_begin(old_keys[head:][::-1], new_keys[head:][::-1])
    old_end, new_end = len(old) - tail, len(new) - tail
    yield "same", new[:head]
    for tag, a, a_end, b, b_end in _changes(old_keys[head:old_end], new_keys[head:new_end]):
        if tag != "equal":
            yield "gone", old[head + a : head + a_end]
        yield "same" if tag == "equal" else "new", new[head + b : head + b_end]
    yield "same", new[new_end:]


def _within_bounds(before: str, after: str) -> tuple[str, str]:
    """The texts; if they are very long, only the part around and after their first difference."""
    if max(len(before), len(after)) <= _MOST_CHARACTERS:
        return before, after
    first = first_difference(before, after)
    # Starts some words before the difference, at the beginning of a word.
    begin = before.rfind(" ", 0, max(0, first - 500)) + 1
    end = first + _MOST_CHARACTERS
    return before[begin:end], after[begin:end]


def _changes(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    """How one list becomes the other, as `SequenceMatcher.get_opcodes`; in one if they differ."""
    if max(len(old), len(new)) <= MOST_WORDS:
        # Of long texts it leaves out frequent words, which bounds its time.
        found = SequenceMatcher(None, old, new).get_opcodes()
        same = sum(end - begin for tag, begin, end, _, _ in found if tag == "equal")
        # A few small words in common would only chop up two different sentences.
        if 4 * same >= min(len(old), len(new)):
            return list(found)
    return [("replace", 0, len(old), 0, len(new))]


def _same_at_begin(old: Sequence[str], new: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(bool, map(eq, old, new)))


def _blanks_that_differ(before: str, after: str) -> str:
    """The first blanks that differ in two texts of the same words, between these."""
    begin = len(before[: first_difference(before, after)].rstrip())
    line = "".join(before[:begin].split()[-1:])
    for kind, rest in ("gone", before[begin:]), ("new", after[begin:]):
        if blanks := rest[: len(rest) - len(rest.lstrip())]:
            line += _MARKS[kind].format(repr(blanks)[1:-1].replace(" ", "␣"))
    return line + "".join(before[begin:].split()[:1])


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
