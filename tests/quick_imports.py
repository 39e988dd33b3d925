"""A pytest plugin that is loaded before all others: they do not import what it hides."""

from __future__ import annotations

import sys
from pathlib import Path

STUBS = str(Path(__file__).parent / "stubs")
"""Before the installed packages, here and in `PYTHONPATH`, as `conftest.py` sets it."""

sys.path.insert(0, STUBS)
