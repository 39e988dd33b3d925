"""The time of `load_run` for a run of a million text deltas, and of the queries after it.

Run it as `python -m tests.benchmarks.load_run [DELTAS]`. Each load is in a fresh process; the times
are processor times, so that other load on the machine counts less.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentnb.core.events import (
    AgentCompleted,
    AgentSpawned,
    AgentTextDelta,
    Event,
    ModelCallFinished,
    ModelCallStarted,
    Row,
    RunFinished,
    RunStarted,
)
from agentnb.core.types import AgentStatus, CompletionRequest, Usage, user_message
from agentnb.run_file import write_document

AGENTS = 1_000
LOADS = 5
MODEL = "anthropic/claude-sonnet-5-5"
ROOT = "nb_20261101_k3x9aa"

PROBE = """
import json, resource, sys, time
import agentnb
from agentnb.record import load_run

def seconds(what):
    begun = time.process_time()
    what()
    return time.process_time() - begun

runs = []
times = {"load_run": seconds(lambda: runs.append(load_run(sys.argv[1])))}
run = runs[0]
times["then run.tree"] = seconds(lambda: run.tree)
times["then to_records"] = seconds(run.to_records)
times["then run.events"] = seconds(lambda: run.events)
times["then to_json"] = seconds(run.to_json)
agents = len(run.to_records())
peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
json.dump({"times": times, "agents": agents, "MiB at most": peak_mib}, sys.stdout)
"""


def rows(deltas: int) -> Iterator[Row]:
    """The run's record, as a bus keeps it."""
    for seq, event in enumerate(happened(deltas)):
        at_s = seq * 1.1e-5
        if isinstance(event, AgentTextDelta):
            yield at_s, event.agent_id, event.text
        else:
            yield at_s, event


def happened(deltas: int) -> Iterator[Event]:
    """The events of a root and its sub-agents, which all write at the same time."""
    ids = [f"{ROOT}.{number}" for number in range(1, AGENTS + 1)]
    yield RunStarted(task_description="task", model=MODEL, budget_total=10**9, max_depth=3)
    yield AgentSpawned(agent_id=ROOT, parent_id=None, task_description="task", depth=0)
    for agent_id in ids:
        yield AgentSpawned(agent_id=agent_id, parent_id=ROOT, task_description="part", depth=1)
        request = CompletionRequest("claude-sonnet-5-5", "s" * 2_000, (user_message("part"),))
        yield ModelCallStarted(agent_id=agent_id, request=request, model=MODEL)
    for number in range(deltas):
        yield AgentTextDelta(agent_id=ids[number % AGENTS], text=f"some words {number % 1000:3d} ")
    said = "some words and so on " * (deltas // AGENTS)
    for agent_id in ids:
        usage = Usage(500, deltas // AGENTS * 4)
        yield ModelCallFinished(agent_id=agent_id, model=MODEL, usage=usage, duration_ms=9_000)
        yield AgentCompleted(
            agent_id=agent_id, result_summary="words", text=said, tokens_used=1, duration_ms=9_000
        )
    yield RunFinished(status=AgentStatus.COMPLETED, tokens_used=1, duration_ms=9_000)


def main() -> None:
    deltas = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.json"
        path.write_text(write_document("r", "task", rows(deltas), agentnb=""), encoding="utf-8")
        megabytes = path.stat().st_size / 1e6
        print(f"{deltas:,} deltas of {AGENTS:,} agents, {megabytes:.0f} MB; {LOADS} processes")
        measured = [probe(path) for _ in range(LOADS)]
    for name in measured[0]["times"]:
        times = [one["times"][name] for one in measured]
        print(f"{name}: median {statistics.median(times):.2f} s, fastest {min(times):.2f}")
    print(f"at most {max(one['MiB at most'] for one in measured):.0f} MiB")


def probe(path: Path) -> dict[str, Any]:
    """Load the run in a fresh process; return its times."""
    process = subprocess.run(
        [sys.executable, "-c", PROBE, str(path)], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(process.stdout)
    assert found["agents"] == AGENTS + 1
    return found


if __name__ == "__main__":
    main()
