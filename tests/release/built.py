"""Builds a wheel and an sdist, installs each in a fresh environment, and uses it there."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.release.environment import ROOT, Environment, Step

_QUICKSTART = ROOT / "notebooks" / "quickstart.ipynb"
_IMPORT = """
import importlib.metadata, pathlib, sys, agentnb
home = pathlib.Path(agentnb.__file__).parent
assert home.is_relative_to(sys.prefix), home
assert importlib.metadata.version("agentnb") == agentnb.__version__
for name in agentnb.__all__:
    getattr(agentnb, name)
assert (home / "py.typed").is_file()
for ending in ("js", "css"):
    assert len([*(home / "views" / "static").glob(f"*.{ending}")]) > 5, ending
"""
_SPAWN = """
import agentnb
run = agentnb.Session(model="demo", store="runs.db").spawn("Compare three ways to keep time.")
assert run.result().output
assert len(run.agents) > 1, run.agents
assert run.plot()
"""
_PANEL = """
import agentnb
session = agentnb.Session(model="demo")
run = session.spawn("Compare three ways to keep time.")
run.result()
run.panel()
assert "export default" in run.tree_view()._esm
"""


def steps(folder: Path) -> Iterator[Step]:
    """Build, check, install and use; one step at a time."""
    dist, away = folder / "dist", folder / "away"
    away.mkdir()
    tools = Environment(folder / "tools")
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    yield tools.install(*groups["release"])
    yield tools.step("build", "-m", "build", "--outdir", dist, ROOT, cwd=folder)
    files = sorted(dist.glob("*"))
    yield f"{[file.name for file in files]}", "" if len(files) == 2 else "not a wheel and an sdist"
    yield tools.step("twine check", "-m", "twine", "check", "--strict", *files, cwd=folder)
    for file in files:
        fresh = Environment(folder / f"of-{file.name}")
        yield fresh.install(file)
        yield fresh.step("  pip check", "-m", "pip", "check", cwd=away)
        yield fresh.step("  import", "-W", "error", "-c", _IMPORT, cwd=away)
        pace = {"AGENTNB_DEMO_PACE_S": "0"}
        yield fresh.step("  demo spawn", "-c", _SPAWN, cwd=away, environment=pace)
        yield fresh.step("  panel", "-c", _PANEL, cwd=away, environment=pace)
        yield fresh.step("  doctor", "-m", "agentnb", "doctor", cwd=away)
        if file.suffix == ".whl":
            yield fresh.install(f"{file}[lab]")
            yield fresh.step("  pip check", "-m", "pip", "check", cwd=away)
            yield fresh.step("  doctor", "-m", "agentnb", "doctor", cwd=away)
            yield fresh.step(
                "  quickstart",
                *("-m", "jupyter", "execute", shutil.copy(_QUICKSTART, away)),
                cwd=away,
                environment=pace,
            )
