"""The fence: figures of the structure, which may only go down.

`python -m tests.house` prints them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping

import pytest

from tests.house import CORE, ROOT, code_lines, figures, longest_chain

CEILINGS: Mapping[str, int] = {
    "longest chain of rooms in the core": 11,
    "longest chain of rooms in the house": 15,
    "code lines of the core": 14_675,
    "code lines of the afternoon list": 4_646,
    # New rooms may come; what grows beyond this has to take something away.
    "code lines of the package": 59_800,
    "modules beside the folders": 36,
    "core files that name the past": 22,
    "files that a plain task passes": 77,
    "functions that a plain task passes": 381,
    "parameters of the largest private constructor": 29,
}
"""A change may lower a figure here, and never raise one."""


@pytest.fixture(scope="module")
def found() -> Mapping[str, int]:
    return figures()


@pytest.mark.parametrize("name", CEILINGS)
def test_structure_grows_no_worse(found: Mapping[str, int], name: str) -> None:
    assert found[name] <= CEILINGS[name]


def test_every_figure_has_a_ceiling(found: Mapping[str, int]) -> None:
    assert found.keys() == CEILINGS.keys()


def test_blank_lines_comments_and_docstrings_are_no_code() -> None:
    text = (
        '"""A module."""\n\n# why\nx = [\n    1,\n]\n\n\ndef f():\n    """Say."""\n    return "a"\n'
    )

    assert code_lines(text) == 5


def test_each_module_of_the_core_stands_on_one_side_of_the_fence() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (fence,) = (each for each in contracts if each["name"] == "The core knows no room")
    stays, leaves = fence["source_modules"], fence["forbidden_modules"]
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in CORE.rglob("*.py")
        if path.name != "__init__.py"
    }

    assert sorted([*stays, *leaves]) == sorted(modules)


def test_page_names_the_length_of_the_longest_chain() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    said = re.search(r"longest chain of rooms in the core has (\d+)\s+floors", page)

    assert said is not None
    assert int(said[1]) == len(longest_chain("agentnb.core", depth=3))
