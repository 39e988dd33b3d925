"""What showing an answer may cost: markdown-it, with its work and what it writes counted.

A few kilobytes can make Markdown of megabytes (a table that fills its rows to the width of its
head, one address that is named in many places), or hours of work. A clock would show the same
answer in two ways; so steps are counted, and what an answer may take grows with its length alone.
"""

from __future__ import annotations

import re
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.helpers import parseLinkDestination, parseLinkLabel, parseLinkTitle
from markdown_it.parser_block import ParserBlock
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType

from agentnb.views.formulas import Closers

MOST_FORMULAS, MOST_OF_FORMULAS = 500, 20_000
"""Formulas of one answer that are typeset, and their characters: all of them take the browser some
seconds."""

_TIMES_AS_LONG, _AND_MORE = 20, 500
"""The HTML of an answer of n characters has at most 20 n + 500, and a sentence."""

_STEPS, _STEPS_EACH = 8_000, 0.45
"""What an answer of n characters may take: 8,000 + 0.45 n steps, of some microseconds each. Prose
takes n / 10, a page of lists, links and tables about 0.4 n."""

_STEPS_OF_LINK = 5
"""Its address is taken to pieces, and put together again."""

_MOST_BRACKETS = 4
"""Open at once in an address: an encyclopaedia's have one."""
_BRACKET_OR_END = re.compile(r"\\.|[()\s]")

_KEY = "agentnb_effort"


class TooMuch(Exception):
    """An answer costs more than its length allows."""


class Effort:
    """What may still be spent on one answer.

    Args:
        length: Its characters.
    """

    def __init__(self, length: int) -> None:
        self.formulas_left_out = 0
        """Formulas that are not typeset since there are so many."""
        self.env: EnvType = {_KEY: self}
        """What the parser is to hand from rule to rule."""
        self._formulas = MOST_FORMULAS
        self._of_formulas = MOST_OF_FORMULAS
        self._steps = _STEPS + int(_STEPS_EACH * length)
        self._room = _TIMES_AS_LONG * length + _AND_MORE
        self._closers = Closers("")

    def step(self, steps: int = 1) -> None:
        """Take steps of the parser. Raises `TooMuch` when there are none left."""
        self._steps -= steps
        if self._steps < 0:
            raise TooMuch

    def write(self, characters: int) -> None:
        """Write some characters of the page. Raises `TooMuch` when there is no room left."""
        self._room -= characters
        if self._room < 0:
            raise TooMuch

    def typeset(self, formula: str) -> bool:
        """Whether a formula may be typeset, too."""
        if self._formulas < 1 or self._of_formulas < len(formula):
            self.formulas_left_out += 1
            return False
        self._formulas -= 1
        self._of_formulas -= len(formula)
        return True

    def closers(self, source: str) -> Closers:
        """Where the formulas of the text that is read just now end."""
        if self._closers.source is not source:
            self._closers = Closers(source)
        return self._closers


def effort_of(env: EnvType) -> Effort:
    """What a rule of the parser may spend, by what was handed to it."""
    effort: Effort = env[_KEY]
    return effort


class BoundedParser(MarkdownIt):
    """markdown-it, whose `env` has to be that of an `Effort`: it raises `TooMuch`.

    A step is a part that is found, and a place that a link looks at. The rules that are added to it
    take one for each place they are asked about, which are all that have to be looked at.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.block, self.inline = _Blocks(), _Inlines()
        self.helpers = _Helpers()  # type: ignore[assignment]  # it is a module there
        self.configure(*args)


class _BlockState(StateBlock):
    def push(self, ttype: str, tag: str, nesting: Any) -> Token:
        effort_of(self.env).step()
        return super().push(ttype, tag, nesting)


class _InlineState(StateInline):
    def push(self, ttype: str, tag: str, nesting: Any) -> Token:
        effort_of(self.env).step(_STEPS_OF_LINK if ttype == "link_open" else 1)
        return super().push(ttype, tag, nesting)


class _Blocks(ParserBlock):
    def parse(
        self, src: str, md: MarkdownIt, env: EnvType, outTokens: list[Token]
    ) -> list[Token] | None:
        if not src:
            return None
        state = _BlockState(src, md, env, outTokens)
        self.tokenize(state, state.line, state.lineMax)
        return state.tokens


class _Inlines(ParserInline):
    def __init__(self) -> None:
        super().__init__()
        # Where a rule of ours may find something, and nowhere else.
        self.terminator_re = re.compile(r"[\n!$&*<\[\\\]_`~]")

    def skipToken(self, state: StateInline) -> None:
        effort_of(state.env).step()
        super().skipToken(state)

    def parse(self, src: str, md: MarkdownIt, env: EnvType, tokens: list[Token]) -> list[Token]:
        state = _InlineState(src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens


class _Helpers:
    """What the rules for links ask: markdown-it's own, but for what would take it long."""

    parseLinkLabel = staticmethod(parseLinkLabel)
    parseLinkTitle = staticmethod(parseLinkTitle)

    @staticmethod
    def parseLinkDestination(string: str, pos: int, maximum: int) -> Any:
        # Where each of many links opens a bracket, it would look 32 links ahead from each.
        is_too_deep = _opens_too_many(string, pos, maximum)
        return parseLinkDestination(string, pos, pos if is_too_deep else maximum)


def _opens_too_many(string: str, pos: int, maximum: int) -> bool:
    """Whether more than a few brackets are open at once in an address."""
    level = 0
    for found in _BRACKET_OR_END.finditer(string, pos, maximum):
        level += {"(": 1, ")": -1}.get(found[0], 0)
        if level > _MOST_BRACKETS:
            return True
        if level < 0 or found[0].isspace():
            break
    return False
