r"""Decides which formulas of an answer MathJax may typeset, and where they end.

A page has one MathJax for all its contents. A command that defines changes the user's own formulas;
one that styles reaches beyond its formula; and deep nesting hangs the page, each time the notebook
is opened. So a formula is typeset only if it is neither long nor deep and all its commands are on
an allow-list of those that only draw: what textbooks use of TeX, AMS and a little of mathtools.
Other formulas stay text.
"""

from __future__ import annotations

import re
from pathlib import Path

MOST_LENGTH = 4_000
"""Most characters of one formula."""

MOST_DEPTH = 12
"""Most levels of braces, environments, `\\left` and formulas within text. At 20 MathJax takes no
longer than for the same formulas side by side; at 100 the page crashes."""

_MOST_DEPTH_OF_ARROW = 3
"""MathJax measures the text above an arrow twice, so each level doubles the time."""

MOST_CELLS = 1_000
"""Most cells of all tables of a formula; MathJax fills each row to the width of the widest."""

_LONG_ARROWS = frozenset(
    "xleftarrow xrightarrow xleftrightarrow xLeftarrow xRightarrow xLeftrightarrow xmapsto".split()
)
"""Arrows that grow with the text above them."""
_WITH_TEXT = frozenset(
    "text textrm textbf textit textsf texttt textup textnormal mbox hbox tag".split()
)
"""Commands whose argument is text, in which `$` begins a formula."""

_DRAWING = Path(__file__).with_name("tex_commands.txt").read_text("utf-8")
COMMANDS = frozenset({*re.sub("(?m)^#.*", "", _DRAWING).split(), *_WITH_TEXT, *_LONG_ARROWS})
"""Allowed commands; none of them defines, styles, fetches or links."""

_SIGNS = frozenset(",;:!>{}|_$&#%\\ \n\t")
"""Characters other than letters that may follow a backslash."""

ENVIRONMENTS = frozenset(
    """
    matrix pmatrix bmatrix Bmatrix vmatrix Vmatrix smallmatrix array subarray cases dcases rcases
    aligned alignedat gathered split align align* alignat alignat* gather gather* equation
    equation* multline multline* eqnarray eqnarray* flalign flalign*
    """.split()
)

_LENGTH = r"-?(?:\d?(?:\.\d+)?\s*(?:em|ex|cm|in)|\d{0,2}(?:\.\d+)?\s*(?:pt|px|mm|mu))"
"""A length too small to move anything out of its place."""

# Arguments after a name that could make large output from short input.
_LENGTH_IN_BRACES = re.compile(rf"\s*\{{{_LENGTH}\}}")
_BEHIND_ROW = re.compile(rf"\*?\[{_LENGTH}\]|\*?+(?!\[)")
_BEHIND = {
    "array": re.compile(r"\s*(?:\[[tcb]\])?\s*\{(?:[lcr|: ]|@\{\}){1,60}\}"),
    "subarray": re.compile(r"\s*\{[lcr]\}"),
    **dict.fromkeys(("alignedat", "alignat", "alignat*"), re.compile(r"\s*\{\d\d?\}")),
}

_TOKEN = re.compile(
    r"\\(?P<edge>begin|end)\{(?P<name>[A-Za-z]+\*?)\}"
    r"|\\(?P<command>[A-Za-z]+)"
    r"|\\(?P<sign>.)"
    r"|(?P<mark>[{}$%&])"
    r"|\\\Z",
    re.DOTALL,
)

# Some TeX parsers skip blanks after a backslash.
_ACTING = frozenset(
    """
    style class cssId href url bbox require data html includegraphics rule Rule Space def edef gdef
    xdef let futurelet newcommand renewcommand providecommand newenvironment renewenvironment csname
    unicode mmlToken color textcolor colorbox fcolorbox definecolor enclose texttip mathtip toggle
    """.split()
)
_WORD = re.compile(r"\s*([A-Za-z]+)")


def is_known(formula: str) -> bool:
    r"""Whether a formula has only drawing commands, and ends where it seems to end.

    Args:
        formula: With its delimiters: `$…$`, `$$…$$`, `\(…\)`, `\[…\]` or `\begin{…}…\end{…}`.
    """
    if len(formula) > MOST_LENGTH:
        return False
    if formula.startswith("\\begin"):
        return _Reader(formula).only_draws()
    edge = 1 if formula[0] == "$" and not formula.startswith("$$") else 2
    return _Reader(formula[edge:-edge]).only_draws()


class _Reader:
    """Reads one formula. Its methods return whether what they read is allowed.

    Args:
        source: The formula, without delimiters.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._open: list[str] = []
        """Open groups: environments by name, `left`, `{`, `text` for a brace of text, and `$`."""
        self._opens_text = False
        """Whether a brace at this place begins a text."""
        self._tables: list[_Table] = []
        self._cells = 0

    def only_draws(self) -> bool:
        """Whether every command is allowed, and every group is closed."""
        while token := _TOKEN.search(self._source, self._at):
            if self._opens_text and self._source[self._at : token.start()].strip():
                self._opens_text = False
            self._at = token.end()
            if not self._may_stand(token) or len(self._open) > MOST_DEPTH:
                return False
            self._opens_text = token["command"] in _WITH_TEXT
        return not self._open

    def _may_stand(self, token: re.Match[str]) -> bool:
        match token.lastgroup:
            case "command":
                return self._command(token["command"])
            case "name" if token["edge"] == "begin":
                return self._begin(token["name"])
            case "name":
                return self._close(token["name"]) and self._count(self._tables.pop().cells)
            case "sign":
                return self._sign(token["sign"])
            case "mark":
                return self._mark(token["mark"])
        return False  # a backslash at the end would escape the delimiter

    def _command(self, command: str) -> bool:
        if command == "left":
            self._open.append(command)
        elif command == "right":
            return self._close("left")
        elif command == "hspace":
            return self._is_followed_by(_LENGTH_IN_BRACES)
        elif command == "cr":
            self._end_row()
        elif command in _LONG_ARROWS:
            return len(self._open) <= _MOST_DEPTH_OF_ARROW
        return command in COMMANDS

    def _begin(self, name: str) -> bool:
        self._open.append(name)
        self._tables.append(_Table())
        return name in ENVIRONMENTS and self._is_followed_by(_BEHIND.get(name))

    def _sign(self, sign: str) -> bool:
        if sign == "\\":
            self._end_row()
            return self._is_followed_by(_BEHIND_ROW)
        if sign.isspace():
            word = _WORD.match(self._source, self._at)
            return sign in _SIGNS and (word is None or word[1] not in _ACTING)
        return sign in _SIGNS

    def _mark(self, mark: str) -> bool:
        match mark:
            case "{":
                self._open.append("text" if self._opens_text else mark)
            case "}":
                return self._close("{", "text")
            case "&" if self._tables:
                self._tables[-1].here += 1
            case "&":
                pass
            case "$" if self._open and self._open[-1] == "$":
                self._open.pop()
            case "$" if self._open and self._open[-1] == "text":
                self._open.append(mark)
            case _:  # a dollar elsewhere ends the formula, and `%` hides the rest of its line
                return False
        return True

    def _close(self, *kinds: str) -> bool:
        return bool(self._open) and self._open.pop() in kinds

    def _is_followed_by(self, what: re.Pattern[str] | None) -> bool:
        if what is None:
            return True
        found = what.match(self._source, self._at)
        if found is None:
            return False
        self._at = found.end()
        return True

    def _end_row(self) -> None:
        if self._tables:
            self._tables[-1].end_row()

    def _count(self, cells: int) -> bool:
        self._cells += cells
        return self._cells <= MOST_CELLS


class _Table:
    """Counts the cells of an environment."""

    def __init__(self) -> None:
        self.here = 1
        """Number of cells in the current row."""
        self._rows = 0
        self._widest = 1

    def end_row(self) -> None:
        self._rows += 1
        self._widest = max(self._widest, self.here)
        self.here = 1

    @property
    def cells(self) -> int:
        return (self._rows + 1) * max(self._widest, self.here)


# -- where formulas are ----------------------------------------------------------------------------

START = re.compile(r"\$\$?|\\\\?[(\[]|\\begin\{[A-Za-z]+\*?\}")
"""Openers of a formula, for MathJax and for JupyterLab's own Markdown."""

_MOST_CLOSERS = 64
"""Most different environment names in one text; later ones do not begin a formula."""


class Closers:
    """Finds where the formulas of one text end. All searches together scan it once or twice.

    Args:
        source: The text.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        # By closer: where the search began, and where it was found; -1 if not found.
        self._next: dict[str, tuple[int, int]] = {}

    def end_of(self, start: re.Match[str], stop: int) -> int | None:
        """The position after the formula that begins at `start`; `None` if it does not end.

        Args:
            start: The opener, a match of `START`.
            stop: Where the search ends.
        """
        closer = _closer_of(start[0])
        # A formula has at least one character.
        found = self._find(closer, start.end() + 1)
        end = found + len(closer)
        if found < 0 or end > stop or end - start.start() > MOST_LENGTH + 2:
            return None
        return end

    def _find(self, closer: str, begin: int) -> int:
        searched, found = self._next.get(closer, (-1, -1))
        if searched < 0 and len(self._next) >= _MOST_CLOSERS:
            return -1
        if searched < 0 or begin < searched or (0 <= found < begin):
            found = self.source.find(closer, begin)
            self._next[closer] = begin, found
        return found


def _closer_of(opener: str) -> str:
    if opener.startswith("$"):
        return opener
    if opener.endswith("}"):
        return opener.replace("begin", "end", 1)
    return opener.replace("(", ")").replace("[", "]")
