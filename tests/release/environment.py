"""A fresh environment with commands isolated from this one; a copy of the files in git."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
Step = tuple[str, str]
"""What was done, and what went wrong; the latter is empty if nothing did."""

_OF_PYTHON = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
_OF_USERS = ("AGENTNB_", "ANTHROPIC_", "IPYTHON", "JUPYTER_", "OPENAI_")
_LONGEST_FAULT = 3000


def requirements() -> tuple[list[str], dict[str, list[str]], list[str]]:
    """What pyproject.toml lists: dependencies, extras, and what tests need besides the extras.

    The tests and two lessons need pandas, too, which only the extra `lab` names.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    tools = [line for line in extras["test"] if not line.startswith("agentnb")]
    tools += [line for line in extras["lab"] if line.startswith("pandas")]
    return project["dependencies"], extras, tools


def clean_variables() -> dict[str, str]:
    """The environment variables of this process, without its Python, its settings and its keys."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _OF_PYTHON and not name.startswith(_OF_USERS)
    }


def copy_tracked(to: Path) -> int:
    """Copy this checkout's files that are in git, as they are now; return their number."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = [name for name in listed.stdout.split("\0") if (ROOT / name).is_file()]
    for name in names:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, to / name)
    return len(names)


class Environment:
    """A virtual environment, made empty.

    Args:
        folder: Where to make it.
        python: The interpreter for it.
    """

    def __init__(self, folder: Path, python: str | Path = sys.executable) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)

    def run(
        self, *words: str | Path, cwd: Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run this environment's Python with these arguments."""
        return subprocess.run(
            [self.python, *words],
            cwd=cwd,
            env={**clean_variables(), **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def step(
        self,
        done: str,
        *words: str | Path,
        cwd: Path,
        environment: Mapping[str, str] | None = None,
    ) -> Step:
        """Run Python as a step, which fails if its exit code is not 0."""
        ran = self.run(*words, cwd=cwd, environment=environment)
        said = (ran.stdout + ran.stderr)[-_LONGEST_FAULT:]
        return done, "" if ran.returncode == 0 else f"exit code {ran.returncode}\n{said}"

    def install(self, *packages: str | Path, constraints: Path | None = None) -> Step:
        """Install packages, from wheels where there are any."""
        words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        words += ["--prefer-binary", *(["--constraint", str(constraints)] if constraints else [])]
        shown = ", ".join(Path(package).name for package in packages)
        return self.step(
            f"install {shown if len(packages) < 5 else f'{len(packages)} packages'}",
            *words,
            *packages,
            cwd=self.folder,
        )
