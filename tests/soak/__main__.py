"""`python -m tests.soak NAME [--points N] [--seed N]`, from the root of the checkout.

`sessions` and `kernels` also take `--messages N` and `--agents N`. Prints one line for each point
and each broken promise, and exits with 1 if one was broken.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
HARNESSES = {
    "kills": 100,
    "two_kernels": 20,
    "disk": 1,
    "queue": 2,
    "tasks": 50,
    "sessions": 2,
    "kernels": 2,
    "recover": 100,
    "map": 100,
    "mcp": 200,
    "workers": 100,
    "cluster": 100,
    "runs": 1,
}
"""Names of the modules, and their default number of points."""
SIZED = ("sessions", "kernels")
"""Harnesses with a size as an argument."""

Points = Callable[..., Iterator[tuple[str, list[str]]]]
"""Takes an empty folder, the number of points, a seed and sizes. Yields what was done and what
broke, for each point."""


def main() -> int:
    """Run one harness."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("name", choices=HARNESSES)
    parser.add_argument("--points", type=int)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--messages", type=int)
    parser.add_argument("--agents", type=int)
    arguments = parser.parse_args()
    sizes = {"messages": arguments.messages, "agents": arguments.agents}
    sizes = {name: size for name, size in sizes.items() if size is not None}
    if sizes and arguments.name not in SIZED:
        parser.error(f"{arguments.name} takes no size; {' and '.join(SIZED)} do.")
    for name in [name for name in os.environ if name.startswith(("AGENTNB_", "ANTHROPIC_"))]:
        del os.environ[name]
    os.environ["AGENTNB_STORE"] = "none"
    os.environ["PYTHONPATH"] = str(ROOT)  # kernels run the same code, wherever they start
    points: Points = import_module(f"tests.soak.{arguments.name}").points
    count = arguments.points or HARNESSES[arguments.name]
    print(f"{arguments.name}: {count} points, seed {arguments.seed}")
    began_s, broken = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="agentnb-soak-") as folder:
        told = points(Path(folder), count, arguments.seed, **sizes)
        for place, (done, faults) in enumerate(told, 1):
            broken += bool(faults)
            print(f"{place:4}  {done}", *faults, sep="\n      BROKEN: ", flush=True)
    print(f"{broken} of {count} points broken, in {time.monotonic() - began_s:.0f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
