"""Renders a model's Markdown as harmless HTML, with an allow-list of tags.

Anything that could fetch, run or restyle is shown as text: raw HTML, and links that are not http,
https or mailto. An image becomes a link, since a remote image reveals its readers to its server.
All attributes are written here; the answer supplies only addresses.

The front end's MathJax typesets TeX in the finished page. So formulas are hidden from Markdown,
which would eat their backslashes and underscores, and all other `$` and backslashes are hidden from
MathJax, which would set "$5 or $10" as a formula. `formulas` decides which formulas are typeset;
the others are shown as written.

`effort` limits the cost of an answer. One that exceeds it is shown as written, with a notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from agentnb.core.shown import counted
from agentnb.core.text import visible_text
from agentnb.views.effort import BoundedParser, Effort, TooMuch, effort_of
from agentnb.views.formulas import START, is_known

MOST_LAID_OUT = 50_000
"""Characters of an answer that are parsed as Markdown; the rest is shown as written."""
MOST_ADDRESS = 2_000
"""Characters of a link's address. Longer ones are shown as text."""

_ALLOWED_ADDRESS = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)

_MAX_NESTING = 40
"""Nested lists and quotes, limited since the parser recurses for each."""

_STEPS_OF_FORMULA = 2
"""`formulas` reads it command by command."""

_LINE_END = re.compile(r"[ \t]*(?:\n|\Z)")

# MathJax does not join text across a `span`, so a delimiter alone in one has no effect. Escapes of
# invisible characters are long and no delimiters: a run of them shares one `span`.
_DELIMITER = re.compile(r"(?:\\U[0-9a-f]{8})+|[$\\]")

_AS_WRITTEN = "(Shown as plain text: as Markdown it would be too large, too deep or too slow.)"
_REST_AS_WRITTEN = "(Not formatted from here on: it is long.)"


def answer_html(markdown: str) -> str:
    """Render a model's answer, CommonMark with tables and strikethrough, as safe HTML.

    Never raises. The tags are those of CommonMark except `img`, those of tables, `s` and a bare
    `span`. The attributes are `href`, `rel` and `target` of a link, `start` of a list and
    `style="text-align:…"` of a table cell.

    The HTML is at most 20 times as long as the text, plus 1,000 characters.
    """
    beginning = _beginning(markdown)
    html = _laid_out(beginning)
    if html is None:
        return _line(_AS_WRITTEN) + _as_written(markdown)
    if len(beginning) < len(markdown):
        html += _line(_REST_AS_WRITTEN) + _as_written(markdown[len(beginning) :])
    return html


def text_html(text: str) -> str:
    """Plain text as HTML that shows every character, `$` included."""
    return _DELIMITER.sub(r"<span>\g<0></span>", escapeHtml(visible_text(text)))


def _beginning(markdown: str) -> str:
    """The part of an answer that is parsed as Markdown, cut at a line end if possible."""
    if len(markdown) <= MOST_LAID_OUT:
        return markdown
    end_of_line = markdown.rfind("\n", MOST_LAID_OUT // 2, MOST_LAID_OUT) + 1
    return markdown[: end_of_line or MOST_LAID_OUT]


def _laid_out(markdown: str) -> str | None:
    """Markdown as HTML; `None` if that costs too much."""
    source = visible_text(markdown)
    effort = Effort(len(markdown))
    env = effort.env
    try:
        tokens = _PARSER.parse(source, env)
        # The parser drops deeper nesting silently.
        if any(token.nesting == 1 and token.level >= _MAX_NESTING - 1 for token in tokens):
            return None
        html = str(_PARSER.renderer.render(tokens, _PARSER.options, env))
    except TooMuch:
        return None
    if effort.formulas_left_out:
        more = counted(effort.formulas_left_out, "more formula")
        html += _line(f"(The page typesets some of the formulas. As plain text: {more}.)")
    return html


def _as_written(text: str) -> str:
    return f"<pre>{text_html(text)}</pre>\n"


def _line(sentence: str) -> str:
    return f"<p>{sentence}</p>\n"


# -- formulas: found before Markdown parses them, and kept unchanged -------------------------


def _formula(state: StateInline, silent: bool) -> bool:
    effort = effort_of(state.env)
    effort.step()
    if state.src[state.pos] not in "$\\":
        return False
    start = START.match(state.src, state.pos, state.posMax)
    if start is None:
        return False
    end = effort.closers(state.src).end_of(start, state.posMax)
    if end is None or not _reads_as_formula(state.src, start, end):
        return False
    if not silent:
        _push_formula(state, state.src[state.pos : end], "formula")
    state.pos = end
    return True


def _formula_block(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """A formula on lines of its own, in which `+`, `=` and `>` are not Markdown."""
    effort = effort_of(state.env)
    effort.step()
    begin = state.bMarks[start_line] + state.tShift[start_line]
    if not state.src.startswith(("$", "\\"), begin) or state.is_code_block(start_line):
        return False
    start = START.match(state.src, begin)
    if start is None or start[0] == "$" or start[0].endswith("("):
        return False
    end = effort.closers(state.src).end_of(start, len(state.src))
    if end is None or _LINE_END.match(state.src, end) is None:
        return False
    line = start_line
    while state.eMarks[line] < end:
        line += 1
        effort.step()
        if line >= end_line or _leaves_its_container(state, line):
            return False
    if not silent:
        state.line = line + 1
        lines = state.getLines(start_line, state.line, state.blkIndent, False)
        token = _push_formula(state, lines.strip(), "formula_block")
        token.map = [start_line, state.line]
    return True


def _leaves_its_container(state: StateBlock, line: int) -> bool:
    return state.sCount[line] < state.blkIndent and not state.isEmpty(line)


def _reads_as_formula(source: str, start: re.Match[str], end: int) -> bool:
    """Whether `$…$` is a formula, not two prices: Pandoc's rules, and no code within."""
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


def _push_formula(state: StateBlock | StateInline, written: str, kind: str) -> Token:
    """Add a formula for MathJax if it is allowed, else as text."""
    effort_of(state.env).step(_STEPS_OF_FORMULA)
    formula = _as_mathjax_reads(written)
    known = is_known(formula)
    token = state.push(kind if known else f"{kind}_text", "", 0)
    token.content = formula if known else written
    return token


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
            # The parser calls `validateLink` for all addresses except the empty one.
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
    # Links cannot be nested: keep the outer one.
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

    def render(self, tokens: Sequence[Token], options: OptionsDict, env: EnvType) -> str:
        effort = effort_of(env)
        parts = []
        for place in range(len(tokens)):
            # Pass all tokens: a tag depends on its neighbours.
            part = self._part(tokens, place, options, env)
            effort.write(len(part))
            parts.append(part)
        return "".join(parts)

    def _part(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[idx]
        if token.type == "inline":
            return self.renderInline(token.children or (), options, env)
        if token.type in self.rules:
            return str(self.rules[token.type](tokens, idx, options, env))
        return self.renderToken(tokens, idx, options, env)

    def text(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return text_html(tokens[idx].content)

    formula_text = text

    def formula(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        content = tokens[idx].content
        return escapeHtml(content) if effort_of(env).typeset(content) else text_html(content)

    def formula_block(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        return f"<p>{self.formula(tokens, idx, options, env)}</p>\n"

    def formula_block_text(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        return f"<pre>{text_html(tokens[idx].content)}</pre>\n"

    def link_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        address = escapeHtml(str(tokens[idx].attrs["href"]))
        # Counted here too: a paragraph may repeat one address many times.
        effort_of(env).write(len(address))
        return f'<a href="{address}" rel="noopener noreferrer" target="_blank">'

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f"<pre><code>{escapeHtml(tokens[idx].content)}</code></pre>\n"

    def th_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        # JupyterLab aligns cells of HTML outputs to the right unless each has a style.
        token = tokens[idx]
        return f'<{token.tag} style="{token.attrs.get("style", "text-align:left")}">'

    td_open = th_open


class _Parser(BoundedParser):
    def normalizeLink(self, url: str) -> str:
        # A refused address need not be normalized.
        return super().normalizeLink(url) if self.validateLink(url) else url

    def validateLink(self, url: str) -> bool:
        return _is_allowed(url) and len(url) <= MOST_ADDRESS


def _parser() -> BoundedParser:
    options = {"html": False, "xhtmlOut": False, "maxNesting": _MAX_NESTING}
    parser = _Parser("commonmark", options, renderer_cls=_Renderer)
    parser.enable(["table", "strikethrough"])
    parser.disable(["html_block", "html_inline"])
    may_interrupt = ["paragraph", "reference", "blockquote", "list"]
    parser.block.ruler.before("fence", "formula_block", _formula_block, {"alt": may_interrupt})
    parser.inline.ruler.before("escape", "formula", _formula)
    parser.core.ruler.push("check_links", _check_links)
    return parser


# Made once: it takes a millisecond, and the state of a parse is in `env`.
_PARSER = _parser()
