"""What a cluster costs the session's process, and how quickly a stop reaches its workers.

Run by hand from the root of the checkout: `python -m tests.benchmarks.cluster`. Four workers and a
scheduler on this machine, each a process of its own; the workers have scripted models. Each number
comes from a fresh process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import agentnb
from agentnb import DaskEngine, Session
from agentnb.core.events import is_terminal
from tests.cluster.natives import Counter, Drip, notes

AGENTS = 1_000
PIECES = 50
STOPPED = 200
WORKERS = 4


@contextlib.contextmanager
def scheduler_and_workers() -> Iterator[str]:
    """The address of a scheduler outside this process, with its workers."""
    with contextlib.ExitStack() as stack:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "scheduler.json"
        at = ["--scheduler-file", str(file), "--dashboard-address", ":0"]
        commands = [["distributed.cli.dask_scheduler", *at, "--port", "0"]]
        worker = ["distributed.cli.dask_worker", *at, "--nthreads", "1", "--no-nanny"]
        commands += [worker] * WORKERS
        for command in commands:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            while not file.exists():
                time.sleep(0.05)
        yield str(json.loads(file.read_text())["address"])


def _session(model: str, engine: Any) -> Session:
    return Session(model=model, engine=engine, store=None, config=False, max_concurrency=AGENTS)


def cpu_s(address: str) -> float:
    """This process's processor seconds for a run of `AGENTS` agents; in process without an address.

    The first run imports and connects; the second is measured.
    """
    agentnb.register_provider("counter", partial(Counter, PIECES))
    engine = None
    if address:
        from distributed import Client

        client: Any = Client
        engine = DaskEngine(client(address))
    used = 0.0
    for count in (WORKERS, AGENTS):
        began_s = time.process_time()
        tasks = [f"task {number}" for number in range(count)]
        run = _session("counter/model", engine).spawn_all(tasks, synthesis=False, budget=10**9)
        run.result()
        used = time.process_time() - began_s
    return used


def stop_s(address: str) -> tuple[float, float]:
    """Seconds from a cancel to the last agent's end, and to the last word from a model."""
    from distributed import Client

    client: Any = Client
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "notes"
        agentnb.register_provider("drip", partial(TimedDrip, str(file), pace_s=0.05))
        session = _session("drip/model", DaskEngine(client(address)))
        run = session.spawn_all([f"task {n}" for n in range(STOPPED)], synthesis=False)
        while [line for _, line in notes(file)].count("begin") < STOPPED:
            time.sleep(0.1)
        began_s = time.monotonic()
        run.cancel()
        returned_s = time.monotonic() - began_s
        # Each stream notes its own end, and yields nothing afterwards.
        while [line for _, line in notes(file)].count("closed") < STOPPED:
            time.sleep(0.01)
        ends = [each.at_s for each in run.events if is_terminal(each.event)]
        words = [float(line.split()[1]) for _, line in notes(file) if line.startswith("at")]
        assert len(ends) >= STOPPED
        return returned_s, max(0.0, max(words) - began_s)


class TimedDrip(Drip):
    """Notes the time of each word, by this machine's clock."""

    def noted(self) -> str:
        """See `Drip`."""
        return f"at {time.monotonic()}"


def main() -> None:
    """Measure, each number in a fresh process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("one", nargs="?", choices=["cpu", "stop"])
    parser.add_argument("address", nargs="?", default="")
    arguments = parser.parse_args()
    if arguments.one == "cpu":
        print(cpu_s(arguments.address))
        return
    if arguments.one == "stop":
        print(*stop_s(arguments.address))
        return

    def fresh(*words: str) -> list[float]:
        command = [sys.executable, "-m", "tests.benchmarks.cluster", *words]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        return [float(word) for word in done.stdout.split()]

    with scheduler_and_workers() as address:
        here, there = [], []
        for _ in range(3):
            here += fresh("cpu")
            there += fresh("cpu", address)
        each_ms = (median(there) - median(here)) / AGENTS * 1000
        print(f"{AGENTS} agents, {PIECES} pieces each, processor seconds of the session's process:")
        print(f"  here {median(here):.2f}, on {WORKERS} workers {median(there):.2f}")
        print(f"  {each_ms:.2f} ms more for each attempt (aim: 10)")
        for _ in range(3):
            ended_s, word_s = fresh("stop", address)
            print(
                f"stop of {STOPPED} attempts: all ended after {ended_s * 1000:.0f} ms (aim: 250), "
                f"last word {word_s * 1000:.0f} ms after the cancel (aim: 1000)"
            )


if __name__ == "__main__":
    main()
