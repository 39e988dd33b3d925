"""`import agentnb` is cheap, and its public names are those of `__all__`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

import agentnb

HEAVY = (
    "anthropic",
    "openai",
    "opentelemetry",
    "IPython",
    "matplotlib",
    "networkx",
    "ipywidgets",
    "anywidget",
    "pydantic",
    "markdown_it",
    "sqlite3",
    "yaml",
)


def test_import_loads_nothing_heavy() -> None:
    loaded = set(in_fresh_process("import agentnb, sys", "list(sys.modules)"))

    assert "agentnb" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_session_loads_nothing_heavy_either() -> None:
    loaded = set(in_fresh_process("from agentnb import Session; import sys", "list(sys.modules)"))

    assert "agentnb.session" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_every_public_name_can_be_imported() -> None:
    missing = in_fresh_process(
        "import agentnb", "[n for n in agentnb.__all__ if getattr(agentnb, n, None) is None]"
    )

    assert missing == []


@pytest.mark.parametrize("before", ["import agentnb", "import agentnb; from agentnb import *"])
def test_names_offered_for_completion_are_the_public_ones(before: str) -> None:
    offered, public = in_fresh_process(before, "(dir(agentnb), list(agentnb.__all__))")

    assert len(public) == len(set(public))
    assert {n for n in offered if not n.startswith("_")} == {
        n for n in public if not n.startswith("_")
    }


def test_unknown_name_raises_the_usual_error_that_names_it() -> None:
    name = "no_such_name"

    with pytest.raises(AttributeError, match=f"'agentnb'.*'{name}'"):
        getattr(agentnb, name)


def in_fresh_process(code: str, expression: str) -> Any:
    """The value of `expression` after `code`, in a fresh process."""
    program = f"{code}\nimport json, sys\njson.dump({expression}, sys.stdout)"
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)
