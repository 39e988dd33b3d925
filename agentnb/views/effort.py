"""Limits the cost of rendering an answer: markdown-it with its steps and output counted.

A few kilobytes of Markdown can become megabytes of HTML (a table fills its rows to the width of its
head, one address is referred to in many places) or take hours. A time limit would render the same
answer in two ways, so steps are counted, and the limit depends only on the answer's length.
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
"""Most formulas of one answer that are typeset, and most characters of them: together they take the
browser a few seconds."""

_TIMES_AS_LONG, _AND_MORE = 20, 500
"""The HTML of an answer of n characters has at most 20 n + 500 characters, and a sentence."""

_STEPS, _STEPS_EACH = 8_000, 0.45
"""An answer of n characters may take 8,000 + 0.45 n steps, of some microseconds each. Prose takes
n / 10, a page of lists, links and tables about 0.4 n."""

_STEPS_OF_LINK = 5
"""A link's address is parsed and assembled again."""

_MOST_BRACKETS = 4
"""Nested brackets in an address: Wikipedia's have one level."""
_BRACKET_OR_END = re.compile(r"\\.|[()\s]")

_KEY = "agentnb_effort"


class TooMuch(Exception):
    """An answer costs more than its length allows."""


class Effort:
    """The remaining budget for rendering one answer.

    Args:
        length: The answer's characters.
    """

    def __init__(self, length: int) -> None:
        self.formulas_left_out = 0
        """Number of formulas that are not typeset because there are too many."""
        self.env: EnvType = {_KEY: self}
        """The `env` that the parser passes to its rules."""
        self._formulas = MOST_FORMULAS
        self._of_formulas = MOST_OF_FORMULAS
        self._steps = _STEPS + int(_STEPS_EACH * length)
        self._room = _TIMES_AS_LONG * length + _AND_MORE
        self._closers = Closers("")

    def step(self, steps: int = 1) -> None:
        """Count steps of the parser. Raises `TooMuch` when none are left."""
        self._steps -= steps
        if self._steps < 0:
            raise TooMuch

    def write(self, characters: int) -> None:
        """Count characters of output. Raises `TooMuch` when none are left."""
        self._room -= characters
        if self._room < 0:
            raise TooMuch

    def typeset(self, formula: str) -> bool:
        """Count a formula; returns whether it may be typeset."""
        if self._formulas < 1 or self._of_formulas < len(formula):
            self.formulas_left_out += 1
            return False
        self._formulas -= 1
        self._of_formulas -= len(formula)
        return True

    def closers(self, source: str) -> Closers:
        """The `Closers` of the text being parsed."""
        if self._closers.source is not source:
            self._closers = Closers(source)
        return self._closers


def effort_of(env: EnvType) -> Effort:
    """The `Effort` in a rule's `env`."""
    effort: Effort = env[_KEY]
    return effort


class BoundedParser(MarkdownIt):
    """markdown-it with an `Effort`'s `env`: it raises `TooMuch`.

    Each token made is a step, and each token that a link's text skips. Rules added to the parser
    count one step for each position where they are tried.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.block, self.inline = _Blocks(), _Inlines()
        self.helpers = _Helpers()  # type: ignore[assignment]  # markdown-it has a module there
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
        # Only characters at which one of our rules may match.
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
    """markdown-it's helpers for links, without the slow case."""

    parseLinkLabel = staticmethod(parseLinkLabel)
    parseLinkTitle = staticmethod(parseLinkTitle)

    @staticmethod
    def parseLinkDestination(string: str, pos: int, maximum: int) -> Any:
        # If many links each open a bracket, it would scan 32 links ahead from each.
        is_too_deep = _opens_too_many(string, pos, maximum)
        return parseLinkDestination(string, pos, pos if is_too_deep else maximum)


def _opens_too_many(string: str, pos: int, maximum: int) -> bool:
    """Whether an address nests more than a few brackets."""
    level = 0
    for found in _BRACKET_OR_END.finditer(string, pos, maximum):
        level += {"(": 1, ")": -1}.get(found[0], 0)
        if level > _MOST_BRACKETS:
            return True
        if level < 0 or found[0].isspace():
            break
    return False
