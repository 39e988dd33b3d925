"""A model's answer as HTML that can do nothing: Markdown in, an allow-list of tags out.

Everything that could fetch, run or restyle is shown as the text it is: raw HTML, a link that
is not http, https or mailto. An image becomes a link, since a remote image tells its server
who reads. Every attribute is written here; the answer fills in addresses and nothing else.

A front end typesets TeX in what it shows (MathJax reads the finished page), so formulas are
kept from Markdown, which would eat their backslashes and underscores, and all other `$` and
backslashes are kept from MathJax, which would set "$5 or $10" as a formula.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from agentnb.core.text import visible_text

_ALLOWED_ADDRESS = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)

_MAX_NESTING = 40
"""Lists and quotes within each other, bounded since the parser calls itself for each."""

_MAX_FORMULA = 4_000
"""Characters of one formula, bounded so that a million openers take linear time."""

_FORMULA_START = re.compile(r"\$\$?|\\\\?[(\[]|\\begin\{[A-Za-z]+\*?\}")

# What can restyle the page, fetch something (the `cursor` of a style does), lead somewhere, or make
# other commands that could. A formula that holds one of them is shown as the text that it is.
_ACTING_COMMAND = re.compile(
    r"\\\s*(?:style|class|cssId|href|url|bbox|require|data|html|includegraphics|[rR]ule|Space|def|edef|"
    r"gdef|xdef|let|futurelet|newcommand|renewcommand|providecommand|newenvironment|"
    r"renewenvironment|DeclareMathOperator|csname|catcode|char|unicode|mmlToken|color|textcolor|"
    r"colorbox|fcolorbox|definecolor|enclose|texttip|mathtip|toggle|action|input|include|load)",
    re.IGNORECASE,
)

_LINE_END = re.compile(r"[ \t]*(?:\n|\Z)")

# MathJax joins no text across a `span`, so a delimiter alone in one is never a delimiter.
_DELIMITER = re.compile(r"[$\\]")


def answer_html(markdown: str) -> str:
    """Render a model's answer, CommonMark with tables and strikethrough, as safe HTML.

    Never raises on any text. The tags are those of CommonMark but for `img`, and those of
    tables, `s` and a bare `span`. The attributes are `href`, `rel` and `target` of a link,
    `start` of a list and `style="text-align:…"` of a table cell.
    """
    source = visible_text(markdown)
    env: dict[str, Any] = {}
    tokens = _PARSER.parse(source, env)
    # The parser drops what is nested deeper than its limit: then the source itself is shown.
    if any(token.nesting == 1 and token.level >= _MAX_NESTING - 1 for token in tokens):
        return f"<pre>{escapeHtml(source)}</pre>\n"
    return str(_PARSER.renderer.render(tokens, _PARSER.options, env))


def text_html(text: str) -> str:
    """A text that is no Markdown, as HTML that shows every character of it, `$` included."""
    return _DELIMITER.sub(r"<span>\g<0></span>", escapeHtml(visible_text(text)))


# -- formulas: found before Markdown reads them, handed on as they are ----------------------


def _formula(state: StateInline, silent: bool) -> bool:
    start = _FORMULA_START.match(state.src, state.pos, state.posMax)
    if start is None:
        return False
    end = _formula_end(state.src, start, state.posMax)
    if end is None or not _reads_as_formula(state.src, start, end):
        return False
    if not silent:
        state.push("formula", "", 0).content = _as_mathjax_reads(state.src[state.pos : end])
    state.pos = end
    return True


def _formula_block(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """A formula on lines of its own, whose `+`, `=` and `>` at a line's start are no Markdown."""
    if state.is_code_block(start_line):
        return False
    begin = state.bMarks[start_line] + state.tShift[start_line]
    start = _FORMULA_START.match(state.src, begin)
    if start is None or start[0] == "$" or start[0].endswith("("):
        return False
    end = _formula_end(state.src, start, len(state.src))
    if end is None or _LINE_END.match(state.src, end) is None:
        return False
    line = start_line
    while state.eMarks[line] < end:
        line += 1
        if line >= end_line or _leaves_its_container(state, line):
            return False
    if not silent:
        state.line = line + 1
        token = state.push("formula_block", "", 0)
        token.map = [start_line, state.line]
        lines = state.getLines(start_line, state.line, state.blkIndent, False)
        token.content = _as_mathjax_reads(lines.strip())
    return True


def _leaves_its_container(state: StateBlock, line: int) -> bool:
    return state.sCount[line] < state.blkIndent and not state.isEmpty(line)


def _formula_end(source: str, start: re.Match[str], stop: int) -> int | None:
    opener = start[0]
    if opener.startswith("$"):
        closer = opener
    elif opener.endswith("}"):
        closer = opener.replace("begin", "end", 1)
    else:
        closer = opener.replace("(", ")").replace("[", "]")
    found = source.find(closer, start.end() + 1, min(stop, start.end() + _MAX_FORMULA))
    if found < 0 or _ACTING_COMMAND.search(source, start.start(), found):
        return None
    return found + len(closer)


def _reads_as_formula(source: str, start: re.Match[str], end: int) -> bool:
    """Whether `$…$` is one, and not two prices: what Pandoc asks, and no code in between."""
    if start[0] != "$":
        return True
    body = source[start.end() : end - 1]
    return not (
        body[0].isspace()
        or body[-1].isspace()
        or body.endswith("\\")
        or "`" in body
        or source[end : end + 1].isdigit()
    )


def _as_mathjax_reads(formula: str) -> str:
    r"""JupyterLab's own Markdown has `\\(` for what MathJax knows as `\(`."""
    return formula[1:-3] + formula[-2:] if formula.startswith("\\\\") else formula


# -- links and images ----------------------------------------------------------------------


def _check_links(state: StateCore) -> None:
    for token in state.tokens:
        if token.children:
            token.children = list(_links_checked(token.children))


def _links_checked(tokens: Sequence[Token]) -> Iterator[Token]:
    in_link = False
    for token in tokens:
        if token.type == "link_open":
            # The parser asks `validateLink` of every address but the empty one.
            in_link = _is_allowed(str(token.attrs["href"]))
            if in_link:
                yield token
        elif token.type == "link_close":
            if in_link:
                yield token
            in_link = False
        elif token.type == "image":
            yield from _image_linked(token, in_link=in_link)
        else:
            yield token


def _image_linked(image: Token, *, in_link: bool) -> Iterator[Token]:
    address = str(image.attrs["src"])
    name = Token("text", "", 0, content=_plain(image.children or ()).strip() or address)
    # A link cannot stand within a link: there the outer one leads on.
    if in_link or not _is_allowed(address):
        yield name
    else:
        yield Token("link_open", "a", 1, attrs={"href": address})
        yield name
        yield Token("link_close", "a", -1)


def _is_allowed(address: str) -> bool:
    return _ALLOWED_ADDRESS.match(address) is not None


def _plain(tokens: Sequence[Token]) -> str:
    return "".join(
        "\n" if token.type in ("softbreak", "hardbreak") else token.content for token in tokens
    )


# -- tokens to tags ------------------------------------------------------------------------


class _Renderer(RendererHTML):
    """Writes the tokens that need care. markdown-it finds the method by the token's type."""

    def text(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return text_html(tokens[idx].content)

    def formula(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return escapeHtml(tokens[idx].content)

    def formula_block(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        return f"<p>{escapeHtml(tokens[idx].content)}</p>\n"

    def link_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        address = escapeHtml(str(tokens[idx].attrs["href"]))
        return f'<a href="{address}" rel="noopener noreferrer" target="_blank">'

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"<pre><code>{escapeHtml(tokens[idx].content)}</code></pre>\n"

    def th_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        # JupyterLab aligns the cells of an HTML output to the right, unless each says otherwise.
        token = tokens[idx]
        return f'<{token.tag} style="{token.attrs.get("style", "text-align:left")}">'

    td_open = th_open


class _Parser(MarkdownIt):
    def validateLink(self, url: str) -> bool:
        return _is_allowed(url)


def _parser() -> MarkdownIt:
    parser = _Parser(
        "commonmark",
        {"html": False, "xhtmlOut": False, "maxNesting": _MAX_NESTING},
        renderer_cls=_Renderer,
    )
    parser.enable(["table", "strikethrough"])
    may_interrupt = ["paragraph", "reference", "blockquote", "list"]
    parser.block.ruler.before("fence", "formula_block", _formula_block, {"alt": may_interrupt})
    parser.inline.ruler.before("escape", "formula", _formula)
    parser.core.ruler.push("check_links", _check_links)
    return parser


# Made once: it takes a millisecond, and parsing keeps its state in `env`.
_PARSER = _parser()
