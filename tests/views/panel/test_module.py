"""The modules of the tree view keep to the form that can be joined."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from agentnb.views.panel.module import STATIC, in_order, joined_module

ENTRIES = (
    *("board_panel.js", "map_panel.js", "panel.js"),
    *("keeper.js", "markup.js", "text_field.js"),
)
_TOP_LEVEL = re.compile(
    r"^(?:export )?(?:async )?(?:function\*?|const|let|class) +([\w$]+)", re.MULTILINE
)


def test_every_module_is_needed_and_stands_behind_what_it_imports() -> None:
    orders = [in_order(entry) for entry in ENTRIES]

    assert {name for order in orders for name in order} == {p.name for p in STATIC.glob("*.js")}
    for order in orders:
        for place, name in enumerate(order):
            needed = re.findall(r'from\s+"\./([\w-]+\.js)"', (STATIC / name).read_text("utf-8"))
            assert set(needed) <= set(order[:place]), name


def test_no_top_level_name_is_taken_twice() -> None:
    names = Counter(
        name for path in STATIC.glob("*.js") for name in _TOP_LEVEL.findall(path.read_text("utf-8"))
    )

    assert [name for name, times in names.items() if times > 1] == []


@pytest.mark.parametrize("entry", ENTRIES)
def test_joined_module_imports_nothing_and_exports_its_face_alone(entry: str) -> None:
    joined = joined_module(entry)

    assert re.findall(r"^import\b.*", joined, re.MULTILINE) == []
    assert len(re.findall(r"^export\b.*", joined, re.MULTILINE)) == 1
    assert "export default" in joined


@pytest.mark.parametrize("entry", ENTRIES)
def test_joined_module_has_its_code_without_comments(entry: str) -> None:
    """A template over several lines could have a line that looks like a comment: there is none."""
    joined = joined_module(entry)

    assert [line for line in joined.splitlines() if line.lstrip().startswith(("//", "/*"))] == []
    assert [line for line in joined.splitlines() if line.count("`") % 2] == []
    for name in in_order(entry):
        code = (STATIC / name).read_text("utf-8")
        assert all(named in joined for named in _TOP_LEVEL.findall(code))


def test_module_asks_no_network() -> None:
    joined = joined_module().replace("http://www.w3.org/2000/svg", "")

    assert (
        re.findall(r"https?://|\bfetch\(|XMLHttpRequest|WebSocket|innerHTML|\beval\(", joined) == []
    )


def test_module_takes_no_node_away_that_somebody_else_may_have_taken() -> None:
    assert "removeChild" not in joined_module()
