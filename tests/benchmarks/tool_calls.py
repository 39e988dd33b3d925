"""What a tool call costs beyond the model's own turns: in process, with no work in it.

Run by hand from the root of the checkout: `python -m tests.benchmarks.tool_calls`. One agent takes
turns with a number of calls each, of a function that does nothing. The time is its processor time
less that of the same turns by a model that pauses (`pause_turn`) in place of calling.
Each number comes from a fresh process.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from agentnb.core.types import (
    Block,
    CompletionRequest,
    Message,
    Role,
    Stopped,
    StreamEvent,
    TextBlock,
    TextDelta,
    ToolUse,
    ToolUseBlock,
    Usage,
)
from agentnb.session import Session

CALLS = 2000
KINDS = ("async", "sync")
PER_TURN = (5, 50)
REPEATS = 5


class Caller:
    """A model that calls a tool `calls` times in each turn; with 0 it pauses instead."""

    name = "caller"

    def __init__(self, turns: int, calls: int) -> None:
        self._turns, self._calls = turns, calls

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        """Stream one reply, without waiting."""
        self._turns -= 1
        is_last = self._turns < 0
        yield Usage(100, 0)
        yield TextDelta("On.")
        content: list[Block] = [TextBlock("On.")]
        uses = [ToolUse(f"t{n}", "nothing", {"at": "it"}) for n in range(self._calls)]
        if not is_last:
            for use in uses:
                yield use
                content.append(ToolUseBlock(use.id, use.name, use.input))
        yield Usage(100, 10)
        reason = "end_turn" if is_last else "tool_use" if uses else "pause_turn"
        yield Stopped(reason, Message(Role.ASSISTANT, tuple(content)))


def nothing(at: str) -> str:
    """Do nothing."""
    return at


async def nothing_at_once(at: str) -> str:
    """Do nothing, on the loop."""
    return at


def spent_s(turns: int, calls: int, kind: str) -> float:
    """Processor seconds of a run with this many turns."""
    from agentnb import tool

    offered: Any = tool(nothing if kind == "sync" else nothing_at_once, name="nothing")
    session = Session(
        provider=Caller(turns, calls),
        budget=10**12,
        tools=[offered],
        max_turns=turns + 2,
        max_output_tokens=10**6,
    )
    begun_s = time.process_time()
    run = session.spawn("root")
    run.result()
    spent = time.process_time() - begun_s
    finished = sum(entry.event.kind == "tool_call_finished" for entry in run.events)
    assert finished == turns * calls, "not all calls are in the record"
    return spent


def measure(calls: int, kind: str) -> float:
    """Milliseconds of processor time that one call adds."""
    turns = min(100, CALLS // calls)
    spent_s(5, calls, kind)  # imports and caches, which no call pays for
    gc.collect()
    with_calls = spent_s(turns, calls, kind)
    gc.collect()
    without = spent_s(turns, 0, kind)
    return (with_calls - without) * 1000 / (turns * calls)


def in_fresh_process(calls: int, kind: str) -> float:
    """`measure` in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.tool_calls", "--once", str(calls), kind]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--once", nargs=2, help=argparse.SUPPRESS)
    once = parser.parse_args().once
    if once:
        print(measure(int(once[0]), once[1]))
        return
    for kind in KINDS:
        for calls in PER_TURN:
            each = sorted(in_fresh_process(calls, kind) for _ in range(REPEATS))
            numbers = ", ".join(f"{number:.3f}" for number in each)
            print(
                f"{kind}, {calls:3} calls in a turn: {statistics.median(each):.3f} ms CPU per call "
                f"({numbers})",
                flush=True,
            )


if __name__ == "__main__":
    main()
