"""Runs the cells of a notebook, and then further cells, and prints how each of them ended."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, TypeAlias

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

Outcome: TypeAlias = tuple[str, str]
"""The name of a cell's error, else an empty string; and what the cell printed and showed."""


def main(orders: str) -> None:
    """Run the cells of a file in this process.

    Args:
        orders: A JSON file with a list of cells, and a list of lists of further cells. The
            outcomes are printed in the same form.
    """
    cells, further = json.loads(Path(orders).read_text("utf-8"))
    shell: Any = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    ended = [_run(shell, cell) for cell in cells]
    later = [[_run(shell, cell) for cell in each] for each in further]
    sys.stdout.write(json.dumps([ended, later]))


def _run(shell: Any, cell: str) -> Outcome:
    with capture_output() as captured:
        result = shell.run_cell(cell)
    error = result.error_before_exec or result.error_in_exec
    shown = [output.data.get("text/plain", "") for output in captured.outputs]
    return "" if error is None else type(error).__name__, "\n".join([captured.stdout, *shown])
