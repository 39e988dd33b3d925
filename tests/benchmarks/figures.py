"""The time that figures take, from the values of a run to the bytes of a PNG file.

Run it as `python -m tests.benchmarks.figures [most agents]`, in an environment where agentnb is
installed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

from agentnb.views.figures import plot_timeline, plot_tokens, plot_tree
from agentnb.views.figures.figure import RunFigure
from tests.views.figures.records import record
from tests.views.figures.trees import SHAPES, tree

SIZES = (1, 5, 40, 300, 5000)
ROUNDS = 5
PROBE = """
import time
import agentnb.views.figures
begun = time.process_time()
import agentnb.views.figures.tree
print(round(time.process_time() - begun, 2))
"""
TASKS = (
    "Collect the facts about heat pumps in cold climates, with sources",
    "Find arguments against",
    "Summarise the report of the committee in three sentences, without jargon",
)


def measure(draw: Callable[[], RunFigure]) -> tuple[float, float, int]:
    """The fastest of some rounds: seconds of CPU, seconds by the clock; and the bytes."""
    cpu, wall, size = [], [], 0
    for _ in range(ROUNDS):
        began, began_cpu = time.perf_counter(), time.process_time()
        size = len(draw().to_png())
        cpu.append(time.process_time() - began_cpu)
        wall.append(time.perf_counter() - began)
    return min(cpu), min(wall), size


def main(most: int) -> None:
    first = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=True
    )
    print(f"import of what draws, in a fresh process: {first.stdout.strip()} s CPU")
    plot_tree(tree("wide", 40, tasks=TASKS)).to_png()  # the first figure loads the font
    print(f"{'':24}{'agents':>7}{'CPU s':>8}{'wall s':>8}{'KB':>6}")
    for size in (size for size in SIZES if size <= most):
        figures: dict[str, Callable[[], RunFigure]] = {
            "timeline": partial(plot_timeline, record(size)),
            "tokens": partial(plot_tokens, tree("wide", size, tasks=TASKS)),
        }
        for shape in SHAPES:
            figures[f"tree, {shape}"] = partial(plot_tree, tree(shape, size, tasks=TASKS))
        for name, draw in figures.items():
            cpu, wall, bytes_ = measure(draw)
            print(f"{name:24}{size:7}{cpu:8.3f}{wall:8.3f}{bytes_ / 1000:6.0f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else max(SIZES))
