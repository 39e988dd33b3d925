"""`python -m tests.release NAME`, from the root of the checkout.

`built` builds a wheel and an sdist, installs each in a fresh environment, and uses it there.
`lowest` runs tests with the lowest versions that pyproject.toml allows. `lessons [--times N]` runs
all notebooks N times (10) on each of three versions of ipykernel. `binder` builds the environment
of `binder/` and runs all lessons in it, one of them in a Chromium. `clock` times a newcomer, also
in a Chromium. All download packages by pip. Prints one line for each step and each fault, and exits
with 1 after a fault.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path


def main() -> int:
    """Run one check."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("name", choices=("built", "lowest", "lessons", "binder", "clock"))
    parser.add_argument("--times", type=int, default=10)
    arguments = parser.parse_args()
    sizes = {"times": arguments.times} if arguments.name == "lessons" else {}
    began_s, faults = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="agentnb-release-") as folder:
        steps = import_module(f"tests.release.{arguments.name}").steps
        for done, fault in steps(Path(folder), **sizes):
            faults += bool(fault)
            took_s = time.monotonic() - began_s
            print(f"{took_s:4.0f} s  {done}", *([f"FAULT: {fault}"] if fault else []), flush=True)
    print(f"{faults} faults, in {time.monotonic() - began_s:.0f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
