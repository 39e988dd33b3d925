"""What orchestration costs over HTTP, against the bare SDK, for the same streams in one run.

Run by hand from the root of the checkout: `python -m tests.benchmarks.http_streams [--repeats N]
[--only quick,paced,openai,cancel]`. Each figure is the median of the repeats, each ratio the median
of the ratios within one repeat, since the machine's other load changes from one to the next.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence

from tests.benchmarks.http_server import server_process

Measures = dict[str, float]


def run(variant: str, count: int, url: str) -> Measures:
    """Read in one way, in a fresh process."""
    command = [sys.executable, "-m", "tests.benchmarks.http_clients", variant, str(count), url]
    # Without a proxy: the server is on this machine.
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    measures: Measures = json.loads(done.stdout)
    return measures


def interleaved(
    variants: Sequence[str], count: int, url: str, repeats: int
) -> dict[str, list[Measures]]:
    """Read in each way, one after the other, and repeat all of them."""
    rounds = [{variant: run(variant, count, url) for variant in variants} for _ in range(repeats)]
    return {variant: [measures[variant] for measures in rounds] for variant in variants}


MESSAGES = ("helper", "raw", "provider", "agentnb")
COMPLETIONS = ("openai-sdk", "openai", "provider")


def streams(
    pace: str, count: int, base: str, url: str, repeats: int, variants: Sequence[str] = MESSAGES
) -> None:
    """Print processor time and memory of each way of reading, against `base`."""
    measured = interleaved(variants, count, f"{url}/{pace}", repeats)
    print(f"\n{count} streams, {pace}: of {base}")
    for variant, rounds in measured.items():
        cpu_ms = [1000 * one["cpu_s"] / count for one in rounds]
        ratios = [
            one["cpu_s"] / other["cpu_s"] for one, other in zip(rounds, measured[base], strict=True)
        ]
        peak = statistics.median(one["peak_mib"] for one in rounds)
        wall = statistics.median(one["wall_s"] for one in rounds)
        print(
            f"  {variant:10} {statistics.median(ratios):5.2f} ({min(ratios):.2f} to "
            f"{max(ratios):.2f})  {statistics.median(cpu_ms):6.2f} ms/stream  "
            f"peak {peak:6.1f} MiB  wall {wall:5.2f} s"
        )


def cancels(count: int, url: str, repeats: int) -> None:
    """Print how long a cancel in mid-stream takes, against closing as many sockets."""
    measured = interleaved(["sockets", "cancel"], count, f"{url}/held", repeats)
    print(f"\ncancel of {count} streams, ms")
    for variant, rounds in measured.items():
        figures = ", ".join(
            f"{name.removesuffix('_s')} {1000 * statistics.median(o[name] for o in rounds):.1f}"
            for name in rounds[0]
        )
        print(f"  {variant:8} {figures}")


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="quick,paced,openai,cancel")
    parser.add_argument("--counts", default="100,1000")
    arguments = parser.parse_args()
    with server_process() as url:
        for count in map(int, arguments.counts.split(",")):
            if "quick" in arguments.only:
                streams("quick", count, "helper", url, arguments.repeats)
            if "paced" in arguments.only:
                streams("paced", count, "raw", url, arguments.repeats)
            if "openai" in arguments.only:
                streams("quick", count, "openai-sdk", url, arguments.repeats, COMPLETIONS)
            if "cancel" in arguments.only:
                cancels(count, url, arguments.repeats)


if __name__ == "__main__":
    main()
