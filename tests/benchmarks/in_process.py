"""What the orchestration itself costs: one root, N sub-agents in parallel, a model without delay.

Run by hand from the root of the checkout: `python -m tests.benchmarks.in_process`. Everything but
the limits is at its default (events, budget, history). Each number comes from a fresh process, so
that no run profits from another or pays for it. For scale, it also prints the cost of the same
streams without orchestration.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator

from agentnb.core.types import (
    CompletionRequest,
    Stopped,
    StreamEvent,
    TextDelta,
    Usage,
    assistant_message,
    user_message,
)
from agentnb.run import Run
from agentnb.session import Session

DELTAS = 50
_WORDS = "about four words "
REPEATS = 5


class Instant:
    """A model that answers at once: the root with N sub-agents, each of them in 50 pieces."""

    name = "instant"

    def __init__(self, agents: int) -> None:
        tasks = "".join(f'<agent task="Look into part {n}" />' for n in range(agents))
        self._plan = f"<spawn_agents>{tasks}</spawn_agents>"

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        """Stream one reply, without waiting."""
        is_plan = len(request.messages) == 1 and request.messages[0].text == "root"
        pieces = [self._plan] if is_plan else [f"{_WORDS}{n} " for n in range(DELTAS)]
        yield Usage(100, 0)
        for piece in pieces:
            yield TextDelta(piece)
        yield Usage(100, 250)
        yield Stopped("end_turn", assistant_message("".join(pieces)))


def started(agents: int, store: str | None = None) -> Run:
    """Start a run with raised limits."""
    session = Session(
        store=store,
        provider=Instant(agents),
        budget=10**9,
        max_agents=agents,
        max_concurrency=agents,
        max_output_tokens=100_000,
    )
    return session.spawn("root")


def measure(agents: int, *, memory: bool, store: str | None = None) -> float:
    """CPU milliseconds, or KiB that remain allocated, per sub-agent."""
    started(10, store).result()  # imports and caches, which no sub-agent pays for
    gc.collect()
    if memory:
        tracemalloc.start()
    begun_s = time.process_time()
    run = started(agents, store)
    result = run.result()
    spent_s = time.process_time() - begun_s
    assert len(result.sub_agent_results) == agents, "not all sub-agents ran"
    assert len(run.events) > agents * DELTAS, "not all deltas are in the record"
    if not memory:
        return spent_s * 1000 / agents
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / 1024 / agents


def alone(agents: int) -> float:
    """CPU milliseconds per stream when the streams are only read."""
    model = Instant(1)
    request = CompletionRequest("m", "", (user_message("part"),))

    async def read() -> float:
        begun_s = time.process_time()
        for _ in range(agents):
            async for _ in model.stream(request):
                pass
        return time.process_time() - begun_s

    return asyncio.run(read()) * 1000 / agents


def in_fresh_process(agents: int, *, memory: bool = False, store: str | None = None) -> float:
    """`measure` in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.in_process", "--once", str(agents)]
    if store is not None:
        command += ["--store", store]
    printed = subprocess.run(
        [*command, *(["--memory"] if memory else [])], check=True, capture_output=True, text=True
    )
    return float(json.loads(printed.stdout))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--once", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(measure(arguments.once, memory=arguments.memory, store=arguments.store)))
        return
    print(f"the streams alone: {min(alone(1000) for _ in range(REPEATS)):.3f} ms CPU each")
    middle: dict[int, float] = {}
    for agents in (100, 1000, 10_000):
        each = sorted(in_fresh_process(agents) for _ in range(REPEATS))
        middle[agents] = statistics.median(each)
        numbers = ", ".join(f"{number:.3f}" for number in each)
        print(f"N = {agents:6,}: {middle[agents]:.3f} ms CPU per sub-agent ({numbers})", flush=True)
    print(f"from 1,000 to 10,000 by a factor of {middle[10_000] / middle[1000]:.2f}")
    for agents in (1000, 10_000):
        print(f"N = {agents:6,}: {in_fresh_process(agents, memory=True):.1f} KiB per sub-agent")


if __name__ == "__main__":
    main()
