"""The time until something happens: imports, the extension, the first model call.

Run by hand from the root of the checkout: `python -m tests.benchmarks.startup`. Imports are in
fresh processes; the rest is in fresh kernels, which get requests from outside, as from a front end.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from tests.benchmarks.http_server import server_process, state_of
from tests.notebook.kernel import started

RUNS = 15
KERNELS = 5

PROBE = """
import sys, time
before, begun = len(sys.modules), time.perf_counter()
{statement}
print(time.perf_counter() - begun, len(sys.modules) - before)
"""
LOAD = """
import time
begun = time.perf_counter()
get_ipython().run_line_magic("load_ext", "agentnb")
time.perf_counter() - begun
"""


def imported(statement: str) -> tuple[float, int]:
    """One import in a fresh process: seconds, and the number of modules that it loaded."""
    probe = subprocess.run(
        [sys.executable, "-c", PROBE.format(statement=statement)],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, modules = probe.stdout.split()
    return float(seconds), int(modules)


def first_call(url: str, *, after_s: float) -> tuple[float, float]:
    """Load the extension in a fresh kernel, wait for a person's first cell, run it.

    Returns:
        Seconds for the extension, and from running the cell to its request at the server.
    """
    with started() as kernel:
        load_s = kernel.value(LOAD)
        time.sleep(after_s)
        begun_s = time.monotonic()
        kernel.ok("%%spawn --model anthropic/m\nSay hello")
        return load_s, state_of(url)["last_request_at_s"] - begun_s


def told(name: str, seconds: Sequence[float]) -> None:
    """Print one line of the table."""
    middle = statistics.median(seconds)
    print(f"{name:48} {middle:6.3f} s ({min(seconds):.3f} to {max(seconds):.3f})")


def main() -> None:
    """Measure and print all."""
    # The last one imports only the SDK: no first call can be quicker.
    for statement in ("import agentnb", "from agentnb import Session", "import anthropic"):
        imported(statement)  # compiles the byte code, which a user's later imports do not
        seconds, modules = zip(*(imported(statement) for _ in range(RUNS)), strict=True)
        told(f"{statement} ({modules[0]} modules)", seconds)
    with server_process() as url:
        os.environ |= {"ANTHROPIC_BASE_URL": f"{url}/quick", "ANTHROPIC_API_KEY": "k"}
        os.environ["AGENTNB_DISPLAY"] = "text"
        for after_s in (0.0, 3.0):
            calls = [first_call(url, after_s=after_s) for _ in range(KERNELS)]
            told("%load_ext", [load_s for load_s, _ in calls])
            told(f"first request, %%spawn {after_s:g} s after it", [call_s for _, call_s in calls])


if __name__ == "__main__":
    main()
