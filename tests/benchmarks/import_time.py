"""How long `import agentnb` takes in a fresh process, and what it loads.

Run it as `python tests/benchmarks/import_time.py`, in an environment where agentnb is installed.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

RUNS = 15

PROBE = """
import sys, time
before, begun = len(sys.modules), time.perf_counter()
import agentnb
print((time.perf_counter() - begun) * 1000, len(sys.modules) - before)
"""


def measure() -> tuple[float, int]:
    """One import: milliseconds, and the number of modules that it loaded."""
    probe = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=True
    )
    milliseconds, modules = probe.stdout.split()
    return float(milliseconds), int(modules)


def main() -> None:
    measure()  # compiles the byte code, which a user's second import does not do either
    runs = [measure() for _ in range(RUNS)]
    times = [milliseconds for milliseconds, _ in runs]
    print(
        f"import agentnb: median {statistics.median(times):.1f} ms, "
        f"fastest {min(times):.1f}, slowest {max(times):.1f} ({RUNS} fresh processes), "
        f"{runs[0][1]} modules"
    )


if __name__ == "__main__":
    main()
