"""What a map costs beside its model: time, reuse, a cancel, memory.

Run by hand from the root of the checkout: `python -m tests.benchmarks.map`. The model is scripted
and answers at once. Each number comes from a fresh process.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agentnb import Session
from agentnb.core.types import CompletionRequest
from agentnb.providers.scripted import Reply, ScriptedProvider

ROWS = 2_000
PROMPT = "Which complaint is in {{text}}?"
_BUDGET = 1_000_000_000
REPEATS = 3


class Complaint(BaseModel):
    """What a row is asked for."""

    kind: str
    is_urgent: bool


def table(count: int) -> list[dict[str, Any]]:
    """Rows of a hundred characters."""
    return [{"text": f"row {number}: " + "the box came open, " * 5} for number in range(count)]


def session(store: Path | None, reply: Callable[[CompletionRequest], Any] | None = None) -> Session:
    """A session with room for all rows at once."""
    answer = reply or (lambda _: '{"kind": "packing", "is_urgent": false}')
    return Session(provider=ScriptedProvider(answer), store=store, max_concurrency=10_000)


def map_s(
    judges: int, output: Any, store: Path | None, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Wall seconds from the call of `map` to its table."""
    own = session(store)
    rows, began_s = table(ROWS), clock()
    own.map(rows, PROMPT, output, judges=judges, budget=_BUDGET).result()
    return clock() - began_s


def map_again_s(store: Path) -> float:
    """Seconds of a map with all rows in the store."""
    map_s(1, Complaint, store)
    return map_s(1, Complaint, store)


def map_cancel_s() -> float:
    """Seconds from a cancel, with all rows at work, to the table of the completed rows."""

    at_work, all_at_work = 0, threading.Event()

    async def for_ever() -> None:
        nonlocal at_work
        at_work += 1
        if at_work == ROWS:
            all_at_work.set()
        await asyncio.Event().wait()

    run = session(None, lambda _: Reply("half of it", pause=for_ever)).map(
        table(ROWS), PROMPT, budget=_BUDGET
    )
    all_at_work.wait()
    began_s = time.perf_counter()
    run.cancel()
    run.result()
    return time.perf_counter() - began_s


def map_row_kib() -> float:
    """KiB that remain allocated for each row, including its events."""
    own, rows = session(None), table(ROWS)
    own.map(rows[:10], PROMPT, budget=_BUDGET, name="warm").result()
    gc.collect()
    tracemalloc.start()
    run = own.map(rows, PROMPT, budget=_BUDGET)
    out = run.result()
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    assert out.status == "completed"
    return kept / 1024 / ROWS


def _map_figures(folder: Path) -> dict[str, Callable[[], float]]:
    return {
        "2,000 rows x 3 judges, text, without a store (s)": lambda: map_s(3, None, None),
        "2,000 rows x 3 judges, typed, without a store (s)": lambda: map_s(3, Complaint, None),
        "2,000 rows x 3 judges, typed, with a store (s)": lambda: map_s(
            3, Complaint, folder / "x.db"
        ),
        "the same without a store, processor time (s)": lambda: map_s(
            3, Complaint, None, time.process_time
        ),
        "the same with a store, processor time of all threads (s)": lambda: map_s(
            3, Complaint, folder / "z.db", time.process_time
        ),
        "2,000 rows that are in the store already (s)": lambda: map_again_s(folder / "y.db"),
        "2,000 rows at work are cancelled (s)": map_cancel_s,
        "what stays of a row (KiB)": map_row_kib,
    }


def main() -> None:
    """Print each figure: the median of three, and the least."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", type=int)
    number = parser.parse_args().one
    with tempfile.TemporaryDirectory() as folder:
        figures = _map_figures(Path(folder))
        if number is not None:
            print([*figures.values()][number]())
            return
    for at, name in enumerate(figures):
        command = [sys.executable, "-m", "tests.benchmarks.map", "--one", str(at)]
        found = sorted(
            float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            for _ in range(REPEATS)
        )
        print(f"{name}: {found[REPEATS // 2]:.2f} (least {found[0]:.2f})", flush=True)


if __name__ == "__main__":
    main()
