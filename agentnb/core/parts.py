r"""Joins Markdown of several agents into one answer, so that none affects the others.

Different renderers show the answer. Each agent's Markdown becomes a block quote: every line has a
quote mark, so lists, tables, headings and fences end with it. Three things would not: HTML, which
some renderers pass through; definitions of links and footnotes, which apply to the whole text; and
formulas, which some renderers find before anything else. So a part is rewritten in a form that all
renderers read alike:

- Fenced code becomes a separate block, between blank lines, in a new fence.
- In the rest, tags, definitions and unpaired formula signs are replaced by entities or escaped.

Inline code is kept only if every renderer agrees that it is code. In doubt it is escaped like the
words beside it: better an ugly `&lt;` than a stranger's link.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from agentnb.core.text import block_quote

_DEEPEST = 6
"""Levels of quotes; deeper ones are shown as code."""
_MANY_LISTS = re.compile(r" {20}|[ >]*+(?:(?:[-*+]|\d{1,9}[.)]) ++[ >]*+){6}")
"""A line in lists so deep that a renderer may fail on the whole text."""

_QUOTE = re.compile(r" {0,3}> ?")
_FENCE = re.compile(
    r"(?P<before>[ >*+\-0-9.)]*?)(?P<fence>`{3,}+(?=[^`]*\Z)|~{3,}+) *+(?P<language>[\w+#.-]{0,40})"
)
"""The opening line of a fence, also after the marks of lists and quotes."""


def title(text: str) -> str:
    """`text` on one line, with all Markdown escaped."""
    return _ACTIVE.sub(_as_words, " ".join(text.split()))


def line(text: str) -> str:
    """`text` as one line of Markdown that affects nothing after it: code and emphasis stay."""
    return _harmless(" ".join(text.split()))


def part(markdown: str) -> str:
    """One agent's Markdown as a part of an answer: a block quote that affects nothing else."""
    return _joined(map(block_quote, _blocks(markdown.splitlines())))


def closed(markdown: str) -> str:
    """Markdown that other parts follow: not quoted, but it affects none of them."""
    return _joined(_blocks(markdown.splitlines()))


_ACTIVE = re.compile(r"[\\`*~\[\]<&$]|(?<![^\W_])_|_(?![^\W_])")


def _as_words(sign: re.Match[str]) -> str:
    # A backslash before a bracket would begin a formula.
    return f"\\{sign[0]}" if sign[0] in "`*~_" else f"&#{ord(sign[0])};"


# -- blocks, with a blank line between them -------------------------------------------------------


def _joined(blocks: Iterable[list[str]]) -> str:
    return "\n\n".join("\n".join(block) for block in blocks)


def _blocks(lines: Sequence[str], depth: int = 1) -> Iterator[list[str]]:
    """Split Markdown into fenced code, quotes, and the text between them."""
    lines = [_with_spaces(line) for line in lines]
    text: list[str] = []
    at = 0
    while at < len(lines):
        start, end = at, at + 1
        if _QUOTE.match(lines[at]):
            while end < len(lines) and _QUOTE.match(lines[end]):
                end += 1
            blocks = _inner([_QUOTE.sub("", line, count=1) for line in lines[start:end]], depth)
        elif fence := _FENCE.match(lines[at]):
            text.append(fence["before"].rstrip())
            while end < len(lines) and not _closes(lines[end], fence["fence"]):
                end += 1
            code = [_dedented(line, fence.end("before")) for line in lines[start + 1 : end]]
            blocks, end = iter([_code(code, fence["language"])]), end + 1
        else:
            text.append(lines[at])
            at = end
            continue
        yield from _text(text)
        yield from blocks
        text, at = [], end
    yield from _text(text)


def _with_spaces(line: str) -> str:
    """The line with the tabs of its indentation expanded."""
    words = line.lstrip(" \t")
    return line[: len(line) - len(words)].expandtabs(4) + words if words else ""


def _inner(lines: Sequence[str], depth: int) -> Iterator[list[str]]:
    blocks = _blocks(lines, depth + 1) if depth < _DEEPEST else iter([_code(lines)])
    return map(block_quote, blocks)


def _closes(line: str, fence: str) -> bool:
    """Whether a line closes a fence, at any indentation: the fence is written anew."""
    bare = line.strip()
    return len(bare) >= len(fence) and not bare.strip(fence[0])


def _dedented(line: str, most: int) -> str:
    return line[min(most, len(line) - len(line.lstrip(" "))) :]


def _code(lines: Sequence[str], language: str = "") -> list[str]:
    longest = max((len(ticks) for line in lines for ticks in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *lines, fence]


def _text(lines: Sequence[str]) -> Iterator[list[str]]:
    text = "\n".join(lines).strip("\n")
    if not text.strip():
        return
    if any(map(_MANY_LISTS.match, lines)):
        yield _code(text.split("\n"))
        return
    pieces = re.split(r"(\n(?: *\n)+)", text)  # paragraphs, and the blank lines between them
    pieces[::2] = map(_harmless, pieces[::2])
    yield "".join(pieces).split("\n")


# -- a paragraph ----------------------------------------------------------------------------------

_IN_DOUBT = re.compile(r"\\|\]\(|://|www\.|~~|~\Z", re.IGNORECASE)
"""Text beside which a backtick may not delimit code: an escape, an address, and for some renderers
a tilde."""
_IN_DOUBT_AS_CODE = re.compile(r"[\n|]|~~|\]:|\\\\[()\[\]]|\\(?:begin|end)\{")
"""Signs that some renderer interprets before it looks for code."""

_SIGN = re.compile(
    r"(?P<opener>\$\$?|\\\\?[(\[]|\\begin\{[A-Za-z]+\*?\})"
    r"|(?P<half>\\(?=\\?[)\]]|(?:begin|end)\{))"
    r"|(?P<escape>\\\\(?!(?:begin|end)\{)"
    r"|\\[!-/:;=-@\[\]-`{-~])"  # not `\<`: an address before it would include the backslash
    r"|(?P<tag>\\?<(?=[A-Za-z/!?]))"
    r"|(?P<definition>\](?=:))"
)
_FORMULA_IN_LINE = re.compile(r"\$(?![\s$])[^$`]*(?<![\s\\$])\$(?![\d$])")
_ENDS = ("$$", "\\]", "\\)", "\\\\]", "\\\\)")
_NAMED_END = re.compile(r"\\end\{[A-Za-z]+\*?\}")
_CLOSED = str.maketrans("([", ")]")
_TAG_OR_DEFINITION = re.compile(r"<(?=[A-Za-z/!?])|\](?=:)")
_AS_CHARACTERS = {ord("\\"): "&#92;", ord("$"): "&#36;", ord("<"): "&lt;"}


def _harmless(paragraph: str) -> str:
    """The paragraph without a tag, a definition or an unpaired formula sign outside code."""
    lengths: set[str] = set(re.findall("`+", paragraph))
    if len(lengths) != 1:
        return _tamed(paragraph)
    (ticks,) = lengths
    words_and_code = paragraph.split(ticks)
    words, code = words_and_code[::2], words_and_code[1::2]
    if (
        len(words) == len(code)  # an odd number of backtick runs
        or any(map(_IN_DOUBT.search, words))
        or any(map(_IN_DOUBT_AS_CODE.search, code))
    ):
        return _tamed(paragraph)
    words_and_code[::2] = map(_tamed, words)
    return ticks.join(words_and_code)


def _tamed(text: str) -> str:
    last_ends = {end: text.rfind(end) for end in _ENDS}
    last_ends |= {end[0]: end.start() for end in _NAMED_END.finditer(text)}
    tamed: list[str] = []
    at = 0
    while sign := _SIGN.search(text, at):
        end = _end_of_formula(text, sign, last_ends) if sign["opener"] else None
        if end is not None:
            shown = _tamed_formula(text[sign.start() : end])
        elif sign["escape"]:
            shown = sign[0]
        elif sign["tag"]:
            shown = "&lt;"
        else:
            shown = "]\\" if sign["definition"] else sign[0].translate(_AS_CHARACTERS)
        tamed += text[at : sign.start()], shown
        at = sign.end() if end is None else end
    return "".join([*tamed, text[at:]])


def _tamed_formula(formula: str) -> str:
    # A quote would end the attribute of an address that contains the formula. After an open brace,
    # or a backslash before its end, JupyterLab does not end the formula here.
    braces = re.sub(r"\\[{}$]|[^{}]", "", formula)
    if '"' in formula or formula.endswith("\\$$") or not _is_balanced(braces):
        return formula.translate(_AS_CHARACTERS).replace("]:", "]\\:")
    # A blank changes no formula, and `< b` and `] :` are neither a tag nor a definition.
    return _TAG_OR_DEFINITION.sub(r"\g<0> ", formula)


def _is_balanced(braces: str) -> bool:
    depth = 0
    for brace in braces:
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0


def _end_of_formula(text: str, sign: re.Match[str], last_ends: Mapping[str, int]) -> int | None:
    """The end of the formula that begins at `sign`; `None` if it has none.

    `last_ends` avoids searches without a result, so that the time stays linear.
    """
    opener = sign[0]
    if (
        sign.start() and text[sign.start() - 1] == "\\"
    ):  # some renderers know it as one, some do not
        return None
    if opener == "$":
        in_line = _FORMULA_IN_LINE.match(text, sign.start())
        return in_line.end() if in_line else None
    end = opener.replace("begin", "end", 1) if opener.endswith("}") else opener.translate(_CLOSED)
    if last_ends.get(end, -1) <= sign.end():
        return None
    return text.index(end, sign.end() + 1) + len(end)
