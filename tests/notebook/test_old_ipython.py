"""`%load_ext agentnb` in a kernel that has an IPython too old for it in memory, as Colab's does."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import agentnb
from tests.support import DEADLINE_S

ROOT = Path(__file__).parents[2]
OLD = """
import IPython, IPython.core.completer as completer
del completer.CompletionContext  # IPython 7 has none
IPython.version_info, IPython.__version__ = (7, 34, 0, ""), "7.34.0"
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.instance().run_line_magic("load_ext", "agentnb")
"""


def test_old_ipython_is_told_in_one_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OLD], capture_output=True, text=True, timeout=DEADLINE_S
    )

    assert done.returncode != 0
    kind, _, said = done.stderr.strip().splitlines()[-1].partition(": ")
    assert kind == "IPython.core.error.UsageError"
    assert all(part in said for part in ("IPython 8.20", "7.34.0", "restart"))
    assert said.count(". ") == 0


def test_floor_is_that_of_the_installation() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (floor,) = [each for each in listed if each.startswith("ipython")]

    assert floor == f"ipython>={'.'.join(map(str, agentnb._IPYTHON))}"
