"""A model's Markdown for a page that makes no markup of text: as a tree of allowed elements.

`answer_html` decides what an answer may have; its HTML is read back into lists, of which the page
makes elements one by one.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from agentnb.views.boards.wire import Rich
from agentnb.views.markdown import answer_html

_EMPTY = frozenset({"br", "hr"})
_LEFT_OUT = frozenset({"span"})
"""They only keep formulas from being typeset, which a live view does not do."""
_OF_BLOCKS = frozenset({"", "blockquote", "ol", "table", "tbody", "thead", "tr", "ul"})
"""Elements in which white space alone means nothing."""
_ALIGN = re.compile(r"text-align:\s*(center|right)")


def rich_of(markdown: str) -> list[Rich]:
    """A model's text, laid out: texts, and elements as `[tag, attributes, *what is in them]`."""
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
