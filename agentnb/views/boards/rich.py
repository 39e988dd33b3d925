"""A model's Markdown as a tree of allowed elements, for a page that never parses text as HTML.

`answer_html` decides what an answer may contain; its HTML is parsed back into lists, from which the
page creates elements one by one.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from agentnb.views.boards.wire import Rich
from agentnb.views.markdown import answer_html

_EMPTY = frozenset({"br", "hr"})
_LEFT_OUT = frozenset({"span"})
"""Elements to omit: they only keep formulas from being typeset, which a live view does not do."""
_OF_BLOCKS = frozenset({"", "blockquote", "ol", "table", "tbody", "thead", "tr", "ul"})
"""Elements in which text of only white space is dropped."""
_ALIGN = re.compile(r"text-align:\s*(center|right)")


def rich_of(markdown: str) -> list[Rich]:
    """A model's text as a list of texts and elements, these as `[tag, attributes, *content]`."""
    reader = _Reader()
    reader.feed(answer_html(markdown))
    reader.close()
    return reader.root[2:]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root: list[Any] = ["", {}]
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _LEFT_OUT:
            return
        element: list[Any] = [tag, _attributes(dict(attrs))]
        self._open[-1].append(element)
        if tag not in _EMPTY:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].append([tag, _attributes(dict(attrs))])

    def handle_endtag(self, tag: str) -> None:
        if tag not in _LEFT_OUT and len(self._open) > 1:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        into = self._open[-1]
        if len(into) > 2 and isinstance(into[-1], str):
            into[-1] += data
        elif data.strip() or into[0] not in _OF_BLOCKS:
            into.append(data)


def _attributes(given: dict[str, str | None]) -> dict[str, str]:
    kept = {name: value for name in ("href", "start") if (value := given.get(name))}
    if found := _ALIGN.search(given.get("style") or ""):
        kept["align"] = found[1]
    return kept
