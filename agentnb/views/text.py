r"""Text from a model, made safe to look at: what is written is seen, and nothing acts.

A control character can recolour a terminal, start a new line or turn the reading order
round; here it becomes a visible escape such as `\x1b`. What comes out can be encoded, prints
as it is, and reads in the order it is stored.
"""

from __future__ import annotations

import re

# Surrogates, C0 (but for tab and newline), C1, line and paragraph separator, bidi embeddings,
# overrides and isolates, invisible tags, and code points that are no characters.
_ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\u206a-\u206f"
    "\ufff9-\ufffb\ufffe\uffff\ufdd0-\ufdef\U000e0000-\U000e0fff\ud800-\udfff]"
)
# Marks that a paragraph in Hebrew, or a soft hyphen in a long German word, has a right to,
# and that on a line of an outline could only mislead. The joiners of emoji, Persian and Hindi
# (U+200C, U+200D) stay.
_ACTING_OR_UNSEEN = re.compile(
    f"{_ACTING.pattern[:-1]}\u00ad\u061c\u180e\u200b\u200e\u200f\u2060-\u2065\ufeff]"
)


# No writing stacks so many of these marks upon a letter; a pile of them would cover other lines.
_MARKS = "\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_PILE = re.compile(f"([{_MARKS}]{{3}})[{_MARKS}]+")


def visible(text: str, limit: int) -> str:
    """`text` as one line of visible text, at most `limit` characters long.

    White space is folded; of marks that are piled upon a letter three are kept; whatever acts or
    cannot be seen is escaped, and never cut in the middle of its escape; a lone surrogate becomes
    U+FFFD; what is cut ends in `…`.

    Raises:
        ValueError: `limit` is below 1.
    """
    if limit < 1:
        raise ValueError(f"`limit` is {limit}; a line has room for at least 1 character.")
    line = " ".join(text.split())
    if len(line) <= limit and line.isascii() and line.isprintable():
        return line  # most lines are such, and a panel makes thousands of them
    line = _PILE.sub(r"\1", line)
    pieces = [_seen(character) for character in line[: limit + 1]]
    if sum(map(len, pieces)) <= limit:
        return "".join(pieces)
    kept, room = [], limit - 1
    for piece in pieces:
        room -= len(piece)
        if room < 0:
            break
        kept.append(piece)
    return "".join(kept).rstrip() + "…"


def visible_text(text: str) -> str:
    """`text` with its lines and tabs, and with everything that acts escaped."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _ACTING.sub(lambda match: _escaped(match[0]), lines)


def _seen(character: str) -> str:
    return _escaped(character) if _ACTING_OR_UNSEEN.match(character) else character


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
