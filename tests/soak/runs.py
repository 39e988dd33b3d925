"""Runs with every kind of end, one after another in one process, and what they leave behind."""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentnb import Session
from agentnb.core._call import services
from agentnb.runtime import get_runtime
from tests.census import census, settled
from tests.fates import FATES, Answers
from tests.support import run_python

Measure = Mapping[str, Any]


def measured(early: int, before: int, traced: int, late: int) -> list[Measure]:
    """Make runs, and measure this process after each of these numbers of them.

    Memory is traced only after `before` runs, since tracing takes much longer.
    """
    services._FIRST_DELAY_S = 0.0  # the wait before a retry
    answers, made = Answers(), 0
    measures = []
    for runs in (early, before, traced, late):
        session = Session(provider=answers, on_budget_warning=lambda _: "continue")
        while made < runs:
            for fate in FATES:
                fate(session, answers)
                made += 1
        del session
        measures.append(_measure(made))
        if runs == before:
            tracemalloc.start()
    tracemalloc.stop()
    return measures


def _measure(runs: int) -> Measure:
    runtime = get_runtime()
    settled(runtime)
    gc.collect()
    return {
        "runs": runs,
        "census": asdict(census(runtime)),
        "blocks": sys.getallocatedblocks(),
        "traced": tracemalloc.get_traced_memory()[0],
    }


def measured_in_a_fresh_process(*runs: int) -> list[Measure]:
    """`measured` in a fresh process."""
    # asyncio's warnings only show a slow machine; a leak is an error.
    code = f"""
        import json, logging
        logging.disable(logging.WARNING)
        from tests.soak.runs import measured
        print(json.dumps(measured{runs}))
    """
    measures: list[Measure] = json.loads(run_python(code, debug=False))
    return measures


def faults_of(measures: list[Measure]) -> list[str]:
    """What has grown between the first runs and the last."""
    early, _, traced, late = measures
    faults = []
    for name, first in early["census"].items():
        if (last := late["census"][name]) != first:
            faults.append(f"{name}: {first} after {early['runs']} runs, and then {last}")
    if left := {"Run", "EventBus", "Agent", "Entry"} & set(late["census"]["objects"]):
        faults.append(f"left of the runs: {left}")
    # A finished run that stays in memory takes more than 500 blocks and 50,000 bytes.
    blocks = (late["blocks"] - early["blocks"]) / (late["runs"] - early["runs"])
    if blocks >= 20:
        faults.append(f"{blocks:.0f} blocks for each run")
    size = (late["traced"] - traced["traced"]) / (late["runs"] - traced["runs"])
    if size >= 2_000:
        faults.append(f"{size:,.0f} bytes for each run")
    return faults


def points(folder: Path, count: int, seed: int) -> Iterator[tuple[str, list[str]]]:
    """Make a thousand runs, `count` times. Uses neither the seed nor the folder."""
    for _ in range(count):
        measures = measured_in_a_fresh_process(200, 900, 905, 1_000)
        yield f"{measures[-1]['runs']:,} runs", faults_of(measures)
