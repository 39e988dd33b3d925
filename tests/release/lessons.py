"""Runs all lessons many times, as tests, on three versions of ipykernel.

The extras install the newest one. The two older ones, from the table in docs/panel.md, come with
the Jupyter that a person has already.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from tests.release.environment import ROOT, Environment, Step, requirements

KERNELS = ("7.4.0", "7.3.0", "6.31.0")
LONGEST_S = 60.0
"""The most that *Run All* of one lesson may take, including the start of its kernel."""


def steps(folder: Path, times: int = 10) -> Iterator[Step]:
    """Make an environment for each ipykernel, and run all lessons in it `times` times."""
    for version in KERNELS:
        environment = Environment(folder / version)
        yield f"ipykernel {version}", ""
        yield from installed(environment, version)
        for number in range(1, times + 1):
            yield run(environment, number)


def installed(environment: Environment, version: str) -> Iterator[Step]:
    """Install agentnb with this ipykernel, whatever an extra asks for."""
    dependencies, _, tools = requirements()
    yield environment.install(*dependencies, *tools, f"ipykernel=={version}")
    yield environment.step(
        "  install agentnb",
        *("-m", "pip", "install", "--quiet", "--no-deps", "--editable", ROOT),
        cwd=environment.folder,
    )


def run(environment: Environment, number: int) -> Step:
    """Run each lesson once."""
    report = environment.folder / f"{number}.xml"
    words = ("-m", "pytest", "-q", "-n", "0", "--nbval", f"--junitxml={report}", "notebooks")
    _, fault = environment.step("", *words, cwd=ROOT)
    took_s = seconds(report) if report.exists() else {}
    slowest = max(took_s, key=lambda name: took_s[name], default="none")
    longest_s = took_s.get(slowest, 0.0)
    if not fault and longest_s > LONGEST_S:
        fault = f"{slowest} took longer than {LONGEST_S:.0f} s"
    done = f"  {number}: {len(took_s)} notebooks, the slowest {slowest} in {longest_s:.0f} s"
    return done, fault


def seconds(report: Path) -> dict[str, float]:
    """The time of each notebook, from a pytest report: its kernel's start and all cells."""
    took_s: dict[str, float] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.get("classname", "").removeprefix("notebooks.")
        took_s[name] = took_s.get(name, 0.0) + float(case.get("time", "0"))
    return took_s
