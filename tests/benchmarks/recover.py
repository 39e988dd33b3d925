"""The time from `recover` to the open call of a run of 1,000 agents.

Run by hand from the root of the checkout: `python -m tests.benchmarks.recover [--agents N]
[--times N]`. A child process makes the run with a model without delay, and dies when all sub-agents
but one have answered. Each recovery begins with a copy of the store.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agentnb import Run, Session
from agentnb.core.events import AgentCompleted
from agentnb.core.types import CompletionRequest
from agentnb.providers.scripted import AnyReply, Reply, ScriptedProvider
from agentnb.store.store import store_at
from tests.support import spawn, task_of

AGENTS = 1_000
TIMES = 5
OPEN = "task 0"
"""The task of the sub-agent whose call never ends in the process that dies."""


class Model:
    """Streams 50 pieces for each task, and waits in the open one.

    Args:
        agents: The number of tasks.
        is_open: Whether the open call never ends.
    """

    def __init__(self, agents: int, *, is_open: bool) -> None:
        self._agents = agents
        self._is_open = is_open
        self.asked_s = self.asked_cpu_s = 0.0
        """When the open call arrived, in wall and processor time."""

    def __call__(self, request: CompletionRequest) -> AnyReply:
        task = task_of(request)
        if task == "root":
            tasks = [f"task {number}" for number in range(self._agents)]
            return spawn(*tasks) if len(request.messages) == 1 else "All of it."
        if task == OPEN:
            self.asked_s, self.asked_cpu_s = time.perf_counter(), time.process_time()
            return Reply("Done.", pause=_for_ever if self._is_open else None)
        return "some words of an answer, " * 50


async def _for_ever() -> None:
    await asyncio.Event().wait()


def session_of(path: Path, model: Model, agents: int) -> Session:
    """A session whose store is that file."""
    return Session(
        provider=ScriptedProvider(model),
        store=path,
        config=False,
        budget=10**9,
        max_agents=agents,
        max_concurrency=agents,
    )


async def _completed(run: Run, count: int) -> None:
    """Return when `count` agents have answered."""
    async for entry in run.stream():
        count -= isinstance(entry.event, AgentCompleted)
        if not count:
            return


def die(path: Path, agents: int) -> None:
    """Make the run, print its id, and kill this process when all but one have answered."""
    run = session_of(path, Model(agents, is_open=True), agents).spawn("the task")
    asyncio.run(_completed(run, agents - 1))
    sys.stdout.write(run.id)
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def measured(path: Path, run_id: str, agents: int) -> tuple[float, float]:
    """Seconds from `recover` to the open call at the provider: wall and processor time."""
    model = Model(agents, is_open=False)
    session = session_of(path, model, agents)
    begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
    run = session.recover(run_id)
    run.result()
    assert run.receipt is not None
    assert run.receipt.reused.calls == agents, run.receipt
    session.close()
    store_at(path).close()
    return model.asked_s - begun_s, model.asked_cpu_s - begun_cpu_s


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", type=int, default=AGENTS)
    parser.add_argument("--times", type=int, default=TIMES)
    parser.add_argument("--die", type=Path, help="for the child process")
    given = parser.parse_args()
    if given.die is not None:
        die(given.die, given.agents)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "runs.db")
        command = [sys.executable, "-m", __spec__.name, "--agents", str(given.agents)]
        died = subprocess.run(
            [*command, "--die", str(path)], stdout=subprocess.PIPE, text=True, check=False
        )
        assert died.returncode == -signal.SIGKILL, died.returncode
        seconds = []
        for number in range(given.times):
            copied = Path(folder, f"{number}")
            copied.mkdir()
            for each in Path(folder).glob("runs.db*"):
                shutil.copy(each, copied)
            seconds.append(measured(copied / "runs.db", died.stdout, given.agents))
    wall, cpu = zip(*seconds, strict=True)
    print(
        f"{given.agents:,} agents: {statistics.median(wall):.2f} s to the open call "
        f"({min(wall):.2f} to {max(wall):.2f}), of the processor {statistics.median(cpu):.2f} s"
    )


if __name__ == "__main__":
    main()
