r"""What MathJax would typeset of a page: its own search for formulas, as JupyterLab sets it up.

A copy of `FindTeX` and of the walk through a document of MathJax 3, with `$` and `\(` for formulas
in a line, `$$` and `\[` for those on their own, environments, escapes and references.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

_START = re.compile(
    r"(?P<open>\$\$|\\\(|\\\[|\$)|\\begin\s*\{(?P<name>[^}]*)\}"
    r"|(?P<other>\\[\\$]|\\(?:eq)?ref\s*\{[^}]*\})"
)
_END = {"$$": "$$", "\\(": "\\)", "\\[": "\\]", "$": "$"}


def typeset(html: str) -> list[str]:
    """All formulas of a page with their delimiters; also escapes and references, which change."""
    return [formula for text in _Texts(html).texts for formula in _found(text)]


class _Texts(HTMLParser):
    """The texts in which formulas are looked for: none reaches across a tag but `br`."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts = [""]
        self._skipped = 0
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "br":
            self.texts[-1] += "\n"
            return
        self.texts.append("")
        self._skipped += tag in ("pre", "code")

    def handle_endtag(self, tag: str) -> None:
        self.texts.append("")
        self._skipped -= tag in ("pre", "code")

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.texts[-1] += data


def _found(text: str) -> list[str]:
    found = []
    at = 0
    while start := _START.search(text, at):
        at = start.end()
        if start["other"]:
            found.append(start["other"])
            continue
        end = _end(text, start)
        if end is not None:
            found.append(text[start.start() : end])
            at = end
    return found


def _end(text: str, start: re.Match[str]) -> int | None:
    if start["open"]:
        closer = re.escape(_END[start["open"]])
    else:
        closer = rf"\\end\s*\{{{re.escape(start['name'])}\}}"
    depth = 0
    for token in re.compile(rf"({closer})|\\(?:[a-zA-Z]|.)|[{{}}]").finditer(text, start.end()):
        if token[1] is not None and not depth:
            return token.end()
        if token[0] == "{":
            depth += 1
        elif token[0] == "}" and depth:
            depth -= 1
    return None
