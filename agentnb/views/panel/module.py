"""Joins the tree view's JavaScript modules into one for the front end.

anywidget takes one text, and there is no build step. So the modules keep to a plain form, which the
linter and a test enforce: they import by name from each other, export by declaration, and use each
top-level name once. Concatenated in the order of their imports they are one module. Comments on
lines of their own are left out, since a notebook saves the module with each view.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent.parent / "static"
ENTRY = "panel.js"
_OWN_SHEETS = ("boards.css", "map.css")
"""Sheets that only their own views need."""

_IMPORT = re.compile(r'^import\s*\{[^}]*\}\s*from\s*"\./([\w-]+\.js)";\n', re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*(?://[^\n]*|/\*.*?\*/[ \t]*)\n", re.MULTILINE | re.DOTALL)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|let|class)\b)", re.MULTILINE)


@cache
def joined_module(entry: str = ENTRY) -> str:
    """The modules that an entry needs, as one, with the entry's `export default`."""
    return "\n".join(_plain(name) for name in in_order(entry))


def style(*more: str) -> str:
    """The style sheet of a run's panel, and with it others, by the names of their files."""
    names = [path.name for path in sorted(STATIC.glob("*.css")) if path.name not in _OWN_SHEETS]
    return "\n".join(_COMMENT.sub("", source(name)) for name in [*names, *more])


def in_order(entry: str) -> list[str]:
    """The modules that `entry` needs, each after its imports, and `entry` last."""
    order: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in order:
            for needed in _IMPORT.findall(source(name)):
                visit(needed)
            order[name] = None

    visit(entry)
    return list(order)


def _plain(name: str) -> str:
    return _EXPORT.sub("", _IMPORT.sub("", _COMMENT.sub("", source(name))))


@cache
def source(name: str) -> str:
    """The text of a file, read once."""
    return (STATIC / name).read_text("utf-8")
