"""A fresh environment, and commands in it that see nothing of this one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
Step = tuple[str, str]
"""What was done, and what was wrong; the latter is empty if nothing was."""

_OF_PYTHON = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
_LONGEST_FAULT = 3000


class Environment:
    """A virtual environment, made empty.

    Args:
        folder: Where it is made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)

    def run(
        self, *words: str | Path, cwd: Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run this environment's Python, with these words behind it."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in _OF_PYTHON and not name.startswith(("AGENTNB_", "ANTHROPIC_", "OPENAI_"))
        }
        return subprocess.run(
            [self.python, *words],
            cwd=cwd,
            env={**kept, **(environment or {})},
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
        """Run it as a step, which fails if its exit code is not 0."""
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
