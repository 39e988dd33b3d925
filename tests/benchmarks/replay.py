"""What a replay costs: a run of 1,000 agents from its cassette, against the same run by a script.

Run by hand from the root of the checkout: `python -m tests.benchmarks.replay [--agents N]
[--repeats N]`. Both use a `Session` without a store; the time is from making the session to the
result, so a replay's time includes opening the cassette. Each figure comes from a fresh process
that has first made a run of ten agents in the same way; each ratio is the median of the ratios
within one repeat.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agentnb import Session
from agentnb.core.types import CompletionRequest
from agentnb.modes import LIVE, RECORD, REPLAY
from agentnb.providers.scripted import ScriptedProvider
from tests.support import spawn, task_of

AGENTS, WARM_UP = 1_000, 10
_ANSWER = "about four words here " * 50


def run(mode: str, cassette: Path, agents: int) -> tuple[float, float]:
    """Wall and processor seconds of one run, all threads counted."""

    def answer(request: CompletionRequest) -> str:
        is_plan = task_of(request) == "root" and len(request.messages) == 1
        return spawn(*[f"Look into part {n}" for n in range(agents)]) if is_plan else _ANSWER

    begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
    session = Session(
        provider=ScriptedProvider(answer),
        mode=mode,
        cassette=None if mode == LIVE else cassette,
        store=None,
        config=False,
        budget=10**9,
        max_agents=agents,
        max_concurrency=agents,
        max_output_tokens=100_000,
    )
    # Each run has its own name: the first of its label in its process and in the cassette.
    result = session.spawn("root", name=f"of {agents:,}").result()
    took = time.perf_counter() - begun_s, time.process_time() - begun_cpu_s
    assert len(result.sub_agent_results) == agents, "not all sub-agents ran"
    return took


def in_fresh_process(mode: str, folder: str, agents: int) -> tuple[float, float]:
    """`run` in a fresh process, after a small run of the same kind."""
    command = [sys.executable, "-m", __spec__.name, "--once", mode, "--folder", folder]
    command += ["--agents", str(agents)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    wall_s, cpu_s = json.loads(done.stdout)
    return wall_s, cpu_s


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", type=int, default=AGENTS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--once", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.once is not None:
        run(given.once, Path(given.folder, "small.cassette.jsonl"), WARM_UP)
        print(json.dumps(run(given.once, Path(given.folder, "x.cassette.jsonl"), given.agents)))
        return
    with tempfile.TemporaryDirectory() as folder:
        in_fresh_process(RECORD, folder, given.agents)
        rounds = [
            [in_fresh_process(mode, folder, given.agents) for mode in (REPLAY, LIVE)]
            for _ in range(given.repeats)
        ]
    for place, words in enumerate(("by the clock", "of the processor")):
        ratios = [replay[place] / live[place] for replay, live in rounds]
        replay_s = statistics.median(replay[place] for replay, _ in rounds)
        live_s = statistics.median(live[place] for _, live in rounds)
        print(
            f"{given.agents:,} agents, {words}: a replay takes {statistics.median(ratios):.2f} "
            f"times as long ({min(ratios):.2f} to {max(ratios):.2f}): {replay_s:.2f} s to "
            f"{live_s:.2f} s"
        )


if __name__ == "__main__":
    main()
