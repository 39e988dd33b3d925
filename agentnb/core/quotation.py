"""Quotes foreign text in a prompt, so that it cannot be taken for agentnb's own.

There are two forms, for the two ways in which an agent gets text:

- In an element (`<result …>`, `<task>`) the text is XML-escaped, compatibility characters that NFKC
  turns into angle brackets included.
- A block of a tool's result has no elements: it begins with a head, and its text follows unchanged.
  Text that looks like a head or one of our elements, in any disguise, gets a quote mark before
  every line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape, unescape
from unicodedata import category, normalize

from agentnb.core.text import block_quote

_COMPATIBLE = {ord(sign): f"&#{ord(sign)};" for sign in "＜＞＆＂﹤﹥﹠"}  # noqa: RUF001
"""Characters that NFKC turns into `<`, `>`, `&` and `"`."""
_IN_ATTRIBUTE = {ord(sign): f"&#{ord(sign)};" for sign in "\n\r\t\x85\u2028\u2029"}
"""White space that an XML reader would fold, or show as a new line."""


def escaped(text: str) -> str:
    """`text` as the content of an element: nothing in it opens or closes one."""
    return escape(text, quote=False).translate(_COMPATIBLE)


def attribute(text: str) -> str:
    """`text` as the value of an attribute, in double quotes, on one line."""
    # Always double quotes, so that the form is the same for every value.
    return f'"{escaped(text).replace(chr(34), "&quot;").translate(_IN_ATTRIBUTE)}"'


def behind_marks(text: str) -> str:
    """`text` with a quote mark before every line, by every definition of a line end."""
    return "\n".join(block_quote(text.splitlines()))


# -- lookalikes -----------------------------------------------------------------------------------


def structure(heads: Iterable[str], elements: Iterable[str]) -> re.Pattern[str]:
    """A pattern that finds our heads and elements in a text that `look` normalised.

    Args:
        heads: The words of each head after its six hexadecimal characters.
        elements: Names of elements.
    """
    words = "|".join(look(head) for head in heads)
    names = "|".join(look(name).replace("_", "_*") for name in elements)
    # Brackets are not required: a head still looks like one without them, or with others.
    between = r"(?:(?!\n\n)[\W_]){0,6}"
    return re.compile(rf"(?<![^\W_])[0-9a-f]{{6}}{between}(?:{words})|<[/\\!?]?(?:{names})")


def look(text: str) -> str:
    """`text` as it looks at a glance, for comparison.

    Entities are decoded; case, marks, white space and invisible characters are dropped; letters and
    signs that look alike become the same. Line ends stay.
    """
    for _ in range(_MOST_LAYERS):
        shorter = _ENTITY.sub(_decoded, text)
        if shorter == text:
            break
        text = shorter
    return text.translate(_LOOKS)


_MOST_LAYERS = 8
"""Most rounds of decoding: entities may decode to parts of entities."""
# Digits are bounded, since `int` refuses very long numbers.
_ENTITY = re.compile(
    r"&(?:#0*+(?P<decimal>[0-9]{1,7})|#[xX]0*+(?P<hex>[0-9a-fA-F]{1,6})|[A-Za-z][A-Za-z0-9]{1,31});?"
)

_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_UNSEEN_LETTERS = "\u115f\u1160\u2800\u3164\uffa0"
"""Fillers and a blank: invisible, but neither white space nor format characters to Unicode."""
_ALIKE = {
    **dict(zip("авсԁеѕікмноԛртухӏԍԝօ", "abcdesikmhoqptyxlgwo", strict=True)),
    **dict(zip("αβεζηικμνορτυχϲ", "abezhikmnoptyxc", strict=True)),
    **dict(zip("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnoprstuvwyz", strict=True)),
    **dict.fromkeys("‹〈⟨⟪《«❮❰˂ᐸ≺", "<"),  # noqa: RUF001
}
_TOO_ALIKE = str.maketrans("oil", "011")


class _Looks(dict[int, str]):
    """Maps each character to what it looks like, computed at its first use."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if character in _LINE_ENDS:
            shown = "\n"
        else:
            plain = normalize("NFKD", character)
            seen = (c for c in plain if not c.isspace() and category(c)[0] not in "CM")
            shown = "".join(_ALIKE.get(c, c) for c in "".join(seen).casefold())
            shown = shown.translate(_TOO_ALIKE)
        if character in _UNSEEN_LETTERS:
            shown = ""
        if len(self) < _MOST_KNOWN:
            self[code] = shown
        return shown


_MOST_KNOWN = 5_000
_LOOKS = _Looks()


def _decoded(entity: re.Match[str]) -> str:
    if entity["decimal"] or entity["hex"]:
        code = int(entity["decimal"]) if entity["decimal"] else int(entity["hex"], 16)
        return chr(code) if code <= 0x10FFFF else entity[0]
    return unescape(entity[0])
