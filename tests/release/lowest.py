"""Runs tests with the lowest versions that pyproject.toml allows.

There are two environments, since an extra may ask for more than agentnb does: `dependencies` has
the lowest versions of what every installation needs, `extras` those of what the extras add.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.release.environment import ROOT, Environment, Step, requirements

_FLOOR = re.compile(r"(?P<name>[\w.-]+)(?:\[[^\]]*\])?>=(?P<version>[^,\s]+)")
_OF_EXTRAS = ("code", "dask", "lab", "mcp", "nest", "openai", "otel")
_OF_BOTH = ("code", "openai")
"""Extras that most tests need: with the dependencies, too, at their lowest."""
TESTS = {
    "dependencies": (
        *("tests/config", "--ignore=tests/config/test_mcp.py"),
        *("--ignore=tests/config/test_engines.py", "tests/mapping", "tests/objects"),
        *("tests/providers", "tests/store", "tests/tools", "tests/views", "tests/test_prices.py"),
        *("tests/test_record.py", "tests/test_typed.py"),
        *("tests/notebook/test_live_view_in_kernel.py", "tests/notebook/test_magics_in_kernel.py"),
    ),
    "extras": (
        *("tests/cluster", "tests/mcp", "tests/telemetry", "tests/workers"),
        *("tests/config/test_engines.py", "tests/config/test_mcp.py", "tests/test_openai_runs.py"),
    ),
}
"""What is run in each environment."""


def floors(lines: Iterable[str]) -> list[str]:
    """The lowest versions of requirements, as constraints; none for one without a floor."""
    found = (_FLOOR.match(line) for line in lines)
    return sorted({f"{floor['name']}=={floor['version']}" for floor in found if floor})


def steps(folder: Path) -> Iterator[Step]:
    """Make both environments, and run their tests."""
    needed, extras, tools = requirements()
    both = [line for name in _OF_BOTH for line in extras[name]]
    added = [line for name in _OF_EXTRAS for line in extras[name]]
    yield from _tested(folder / "dependencies", [*needed, *both], pinned=[*needed, *both], by=tools)
    yield from _tested(folder / "extras", [*needed, *added], pinned=added, by=tools)


def _tested(folder: Path, needed: list[str], *, pinned: list[str], by: list[str]) -> Iterator[Step]:
    name = folder.name
    lowest = Environment(folder)
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(floors(pinned)), encoding="utf-8")
    yield name, ""
    yield lowest.install(*needed, *by, constraints=constraints)
    yield lowest.step(
        "  install agentnb",
        *("-m", "pip", "install", "--quiet", "--no-deps", "--editable", ROOT),
        cwd=folder,
    )
    yield lowest.step("  pip check", "-m", "pip", "check", cwd=folder)
    # anyio's plugin, which no test uses, may be older than this pytest and warn.
    words = (folder / "bin" / "pytest", "-q", "-n", "0", "-p", "no:anyio")
    yield lowest.step(f"  {' '.join(TESTS[name])}", *words, *TESTS[name], cwd=ROOT)
