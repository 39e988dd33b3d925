r"""Makes foreign text safe to show: every character is visible, and none acts.

Text from a model, a server or a file passes through here before it goes to a terminal, a page, a
`repr` or an error. Two kinds of characters become visible escapes such as `\x1b`:

- *Acting* ones: they recolour a terminal, start a new line or reverse the reading order, or they
  are not characters at all. They are escaped everywhere.
- *Invisible* ones: joiners, fillers, blanks, selectors. In a paragraph they are useful; on a line
  that names something (an outline, an error, a `repr`) they make two names look alike. There they
  stay only if their script or an emoji needs them.

Letters of any script stay as they are, including right-to-left ones. All functions take linear
time, never raise on any text, and are idempotent. Secrets are masked first.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain

from agentnb.core.secrets import masked_as_known

LONGEST_IN_ERROR = 200
"""Most characters of a text that an error quotes."""
LONGEST_ERROR = 4_000
"""Most characters of a whole error."""

LONGEST_LINE = 1_000
"""Most characters of a line that is shown on its own."""

_AHEAD = 4
"""Characters that are examined first, as a multiple of the limit: more are seldom needed."""

# Ranges of a regular expression. Those beyond U+FFFF are separate: they are rare, and a class of
# many of them is slow.
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029"
_TURNING = "\u202a-\u202e\u2066-\u2069"
_NO_CHARACTERS = "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"
_FORMATTING = "\u206a-\u206f\ufff0-\ufffb"  # deprecated controls, annotations between the lines
_UNASSIGNED = "".join(  # unassigned, but right-to-left all the same
    chr(code)
    for first, last in ((0x590, 0x8FF), (0xFB1D, 0xFDFF), (0xFE70, 0xFEFE))
    for code in range(first, last + 1)
    if unicodedata.category(chr(code)) == "Cn"
)
_ACTING = _CONTROLS + _TURNING + _NO_CHARACTERS + _FORMATTING + _UNASSIGNED
# Blocks of right-to-left scripts: only their unassigned characters are escaped, see `_escaped`.
_HIGH_BLOCKS = "\U00010800-\U00010fff\U0001e800-\U0001efff"
_HIGH_NO_CHARACTERS = "".join(
    f"{chr(plane + 0xFFFE)}-{chr(plane + 0xFFFF)}" for plane in range(0x10000, 0x110000, 0x10000)
)
_HIGH_ACTING = f"{_HIGH_BLOCKS}{_HIGH_NO_CHARACTERS}\U000e0000-\U000e0fff"  # the last are tags

# Default-ignorable characters of Unicode, and blanks that are not white space.
_UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2060-\u2065\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufffc"
)
_SEEN = re.compile(rf"[^\s{_UNSEEN}]")
_HIGH_UNSEEN = (
    "\U00013430-\U0001343f\U00013441\U00013442\U00016fe4\U0001bca0-\U0001bca3\U0001d159"
    "\U0001d173-\U0001d17a"
)

_EMOJI = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f"
    "\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_ONE_EMOJI = f"[{_EMOJI}][\U0001f3fb-\U0001f3ff]?[\ufe0e\ufe0f]?"
# Hebrew to Sinhala, Tibetan and Myanmar, Khmer and Mongolian, further scripts of South Asia, and
# the Arabic forms: a joiner between two of their letters is spelling.
_JOINED = (
    "\u0590-\u0dff\u0f00-\u109f\u1780-\u18af\u1900-\u1cff\ua800-\uabff\ufb1d-\ufdff\ufe70-\ufefc"
    "\U00010a00-\U00011fff\U0001e900-\U0001e95f"
)
_IDEOGRAPH = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_REGIONS = ("gbeng", "gbsct", "gbwls")  # the flags that are written in tags
_NEEDED = "|".join(
    [
        *("\U0001f3f4" + "".join(chr(0xE0000 + ord(c)) for c in f"{r}\x7f") for r in _REGIONS),
        f"{_ONE_EMOJI}(?:\u200d{_ONE_EMOJI}){{0,4}}",
        "[0-9#*]\ufe0f\u20e3",
        f"[{_JOINED}][\u200c\u200d]",
        f"[{_IDEOGRAPH}][\ufe00-\ufe02\U000e0100-\U000e01ef]",
        "[\u1820-\u18aa][\u180b-\u180d\u180f]?\u180e?",
        "[\u2801-\u28ff]\u2800(?=[\u2801-\u28ff])",
        "[\U00013000-\U0001342f][\U00013430-\U0001343f]",
    ]
)
"""Sequences in which an invisible character is needed, including the letter before it."""

# No script puts more accents on one letter; more would cover other lines.
_ACCENTS = "\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_MOST_ACCENTS = 3
_PILE = f"([{_ACCENTS}]{{{_MOST_ACCENTS}}})[{_ACCENTS}]+"
_MOST_MARKS = 8
"""Most combining marks of any kind on one letter; Tibetan and Hebrew come close."""
# A long row of characters that are neither letters nor blanks may be marks. Linear, and rare.
_LONG_ROW = re.compile(rf"[^\x00-\x7f\w\s]{{{_MOST_MARKS + 1},}}")

_PILED = re.compile(_PILE)
_IS_HIGH = re.compile(f"[{_HIGH_BLOCKS}]")
_ASCII = re.compile("(?P<mark>[\x00-\x08\x0b-\x1f\x7f])")
_BREAKS = re.compile("\r\n?")


# -- for display -----------------------------------------------------------------------------------


def visible(text: str, limit: int) -> str:
    """`text` as one line of visible text, at most `limit` characters long.

    White space is folded. Acting and invisible characters are escaped, unless their script needs
    them. Only the first of many marks on one letter are kept. A lone surrogate becomes U+FFFD. A
    cut text ends in `…`, and no escape is cut in two.

    Raises:
        ValueError: `limit` is below 1.
    """
    if limit < 1:
        raise ValueError(f"`limit` is {limit}; a line has room for at least 1 character.")
    text = masked_as_known(text)  # before the cut, which may split a secret
    beginning = text[: _AHEAD * limit]
    line, is_cut = _cut_line(" ".join(beginning.split()), limit)
    if not is_cut and len(beginning) < len(text):  # the beginning is mostly white space or marks
        line, _ = _cut_line(" ".join(text.split()), limit)
    return line


def visible_text(text: str) -> str:
    """`text` with its lines and tabs, and with acting characters escaped."""
    return _shown(_lines_of(masked_as_known(text)), _paragraph())


def visible_lines(text: str, limit: int) -> str:
    """`text` with its lines, escaped as by `visible`, about `limit` characters long at most.

    A text that is too long keeps its beginning and its end, since an error ends with the fix.
    """
    text = masked_as_known(text)
    shown = _shown(_lines_of(_without_middle(text, limit)), _line())
    if len(shown) > limit:
        shown = _shown(_without_middle(shown, limit), _line())
    return shown


def literal(value: object, limit: int = LONGEST_IN_ERROR) -> str:
    """The `repr` of a value, escaped as by `visible`, on one line, at most `limit` characters long.

    The quotes around a text do not count.
    """
    if type(value) is not str:
        return visible(_repr(value), limit)
    value = masked_as_known(value)
    if len(value) <= limit and value.isascii() and value.isprintable():
        return repr(value)  # the common case
    mark = '"' if "'" in value and '"' not in value else "'"
    beginning = value[: _AHEAD * limit]
    rest = [] if len(beginning) == len(value) else [" " * limit]  # never fits: forces the `…`
    line, _ = _cut(chain(_literal_pieces(beginning, mark), rest), limit)
    return f"{mark}{line}{mark}"


def quoted(text: str, *, limit: int = 60) -> str:
    """The beginning of `text`, white space folded, as a literal: for a `repr` of one line."""
    text = masked_as_known(text)
    beginning = text[: _AHEAD * limit]
    folded = " ".join(beginning.split())
    if len(beginning) < len(text) and len(folded) <= limit:
        folded = " ".join(text.split())
    return literal(folded, limit)


def block_quote(lines: Iterable[str]) -> list[str]:
    """Lines with Markdown quote marks."""
    return [f"> {line}" if line else ">" for line in lines]


def escaped_for_json(encoded: str) -> str:
    r"""JSON with acting characters as `\u` escapes: equal for a JSON reader."""
    if encoded.isascii() and "\x7f" not in encoded:
        return encoded
    return _paragraph().mark.sub(_json_escape, encoded)


# -- for sending -----------------------------------------------------------------------------------


def sendable(text: str) -> str:
    """`text` as UTF-8 can encode it: lone surrogates become U+FFFD, pairs one character."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


# -- implementation --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rule:
    """Which characters are escaped."""

    mark: re.Pattern[str]
    suspect: re.Pattern[str]
    """A quick first check, in a tenth of the time; it has false positives."""
    piece: re.Pattern[str]
    """Finds characters to escape, and sequences that contain such a character but stay."""

    @classmethod
    def of(cls, marks: str, high: str) -> _Rule:
        mark = f"[{marks}{high}]"
        return cls(
            mark=re.compile(mark),
            suspect=re.compile(f"[{marks}\U00010000-\U0010ffff]"),
            piece=re.compile(f"(?P<mark>{mark})|(?:{_NEEDED})|{_PILE}"),
        )

    def applies_to(self, text: str) -> bool:
        found = self.suspect.search(text)
        return found is not None and self.mark.search(text, found.start()) is not None


# Compiled at the first use, to keep the import fast.
@cache
def _paragraph() -> _Rule:
    return _Rule.of(_ACTING, _HIGH_ACTING)


@cache
def _line() -> _Rule:
    return _Rule.of(_ACTING + _UNSEEN, _HIGH_ACTING + _HIGH_UNSEEN)


def _lines_of(text: str) -> str:
    return _BREAKS.sub("\n", text) if "\r" in text else text


def _shown(text: str, rule: _Rule) -> str:
    if text.isascii():
        return _ASCII.sub(_piece, text)
    text = _with_few_marks(text)
    if rule.applies_to(text) or _PILED.search(text):
        return rule.piece.sub(_piece, text)
    return text


def _cut_line(line: str, limit: int) -> tuple[str, bool]:
    """A folded line made visible, and whether it was cut."""
    if line.isascii() and line.isprintable():  # a short cut: a panel has thousands of such lines
        is_cut = len(line) > limit
        return (line[: limit - 1].rstrip() + "…" if is_cut else line), is_cut
    return _cut(_pieces(_with_few_marks(line)), limit)


def _pieces(line: str) -> Iterator[str]:
    """The visible line in pieces, none of which may be cut."""
    if line and unicodedata.category(line[0]) in ("Mn", "Me"):  # else it combines with our text
        yield _escaped(line[0])
        line = line[1:]
    at = 0
    for found in _line().piece.finditer(line):
        yield from line[at : found.start()]
        yield _piece(found)
        at = found.end()
    yield from line[at:]


def _literal_pieces(text: str, mark: str) -> Iterator[str]:
    short = {"\\": "\\\\", mark: f"\\{mark}", "\n": "\\n", "\t": "\\t", "\\x0d": "\\r"}
    for piece in _pieces(_with_few_marks(text)):
        if len(piece) > 1 or piece.isprintable() or piece in short:
            yield short.get(piece, piece)
        else:
            yield repr(piece)[1:-1]


def _cut(pieces: Iterable[str], limit: int) -> tuple[str, bool]:
    """The pieces that fit into `limit` characters, and whether some were cut."""
    kept: list[str] = []
    length = 0
    for piece in pieces:
        kept.append(piece)
        length += len(piece)
        if length > limit:
            break
    else:
        return "".join(kept), False
    while length > limit - 1:
        length -= len(kept.pop())
    return "".join(kept).rstrip() + "…", True


def _without_middle(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2 - 20
    return f"{text[:half].rstrip()} … {text[-half:].lstrip()}"


def _with_few_marks(text: str) -> str:
    return text if text.isascii() else _LONG_ROW.sub(_cleared, text)


def _cleared(row: re.Match[str]) -> str:
    """A row of characters with at most `_MOST_MARKS` marks on one letter."""
    kept: list[str] = []
    count = 0
    for character in row[0]:
        kind = unicodedata.category(character)
        if kind in ("Mn", "Me"):
            count += 1
        elif kind != "Cf":  # a joiner does not begin a new letter
            count = 0
        if count <= _MOST_MARKS:
            kept.append(character)
    return "".join(kept)


def _piece(found: re.Match[str]) -> str:
    """What to show for a match: its escape, its first accents, or the match itself."""
    if found["mark"] is not None:
        return _escaped(found["mark"])
    return found[2] or found[0]


@lru_cache(maxsize=2_000)
def _escaped(character: str) -> str:
    code = ord(character)
    if _IS_HIGH.match(character) and unicodedata.category(character) != "Cn":
        return character
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # a foreign class
        return f"<{type(value).__name__}>"


def if_seen(text: str) -> str:
    """The text; empty if it has nothing that can be seen."""
    return text if _SEEN.search(text) else ""


def one_line(text: str, *, limit: int = 200) -> str:
    """`text` with white space folded, cut to `limit` characters with an ellipsis."""
    # The beginning of a long text is enough, unless it is mostly white space.
    folded = " ".join(text[: 2 * limit].split())
    if len(folded) <= limit and len(text) > 2 * limit:
        folded = " ".join(text.split())
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"


def short_reason(said: object) -> str:
    """A provider's stop reason, of any type, as a short text that can be sent."""
    if type(said) is str and said.isidentifier() and said.isascii() and len(said) < 100:
        return said  # nearly all of them
    try:
        line = one_line(str(said))
    except Exception:  # nested too deep, for example
        line = type(said).__name__
    return sendable(line)
