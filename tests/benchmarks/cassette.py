"""What a cassette costs: recording a run, opening a file, explaining a miss.

Run by hand from the root of the checkout: `python -m tests.benchmarks.cassette [--repeats N]`. The
processor time of recording is the median of the ratios within one repeat, each of a fresh process,
all threads counted: a recorded run of 1,000 agents over the Anthropic provider and a server on
loopback, against the same run live; and a recorded run of 1,000 scripted agents, against the same
run with a journal that keeps nothing (the run makes records for it), and without a journal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentnb.cassette import Cassette, CassetteJournal, explain
from agentnb.core.context import AgentContext
from agentnb.core.keys import CallKeys
from agentnb.core.records import FINISHED, CallRecord, EndRecord, RunHead
from agentnb.core.types import (
    ROOT_PATH,
    AgentConfig,
    AgentStatus,
    CompletionRequest,
    Message,
    Usage,
    assistant_message,
    user_message,
)
from agentnb.providers.scripted import ScriptedProvider
from tests.benchmarks.http_server import server_process
from tests.benchmarks.http_streams import interleaved
from tests.support import make_tree, spawn, task_of

AGENTS, CALLS, TURNS = 1_000, 10_000, 10
_ANSWER = "about four words here " * 50
_NOTHING, _NONE = "nothing", "none"
"""In place of a file: a journal that keeps nothing, and no journal."""


class KeepsNothing:
    """A journal that keeps nothing."""

    def keep(self, record: object) -> None:
        """Take a record."""

    intend = begin = published = keep

    async def commit(self) -> None:
        """Return at once."""


def cpu_ms(path: str) -> float:
    """Processor time of a run, all threads counted.

    Args:
        path: The cassette's, or `_NOTHING`, or `_NONE`.
    """
    plan = spawn(*[f"Look into part {n}" for n in range(AGENTS)])

    def answer(request: CompletionRequest) -> str:
        is_plan = task_of(request) == "root" and len(request.messages) == 1
        return plan if is_plan else _ANSWER

    async def run() -> float:
        cassette = None if path in (_NOTHING, _NONE) else CassetteJournal(path, "a run")
        journal = KeepsNothing() if path == _NOTHING else cassette
        tree = make_tree(
            ScriptedProvider(answer),
            journal=journal,
            budget=10**9,
            context=AgentContext(agent_config=AgentConfig(max_output_tokens=100_000)),
            max_agents=AGENTS,
        )
        begun_s = time.process_time()
        await tree.run("root")
        if cassette is not None:
            cassette.close()
        assert len(tree.result.sub_agent_results) == AGENTS, "not all sub-agents ran"
        return 1000 * (time.process_time() - begun_s)

    return asyncio.run(run())


def recording(repeats: int) -> None:
    """Print the processor time that recording adds."""
    ratios: dict[str, list[float]] = {_NOTHING: [], _NONE: []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            on = _fresh(f"{folder}/a.cassette.jsonl")
        for off, found in ratios.items():
            found.append(on / _fresh(off))
    for words, found in zip(("that keeps nothing", "at all"), ratios.values(), strict=True):
        middle, least, most = statistics.median(found), min(found), max(found)
        against = f"the processor time of a run with no journal {words}"
        if words != "at all":
            against = f"the processor time of a run with a journal {words}"
        print(f"recording: {middle:.2f} times {against} ({least:.2f} to {most:.2f})")


def over_http(repeats: int) -> None:
    """Print the ratio of processor time over the Anthropic provider and a server on loopback."""
    with server_process() as url:
        measured = interleaved(["agentnb", "recorded"], AGENTS, f"{url}/quick", repeats)
    pairs = zip(measured["recorded"], measured["agentnb"], strict=True)
    ratios = [on["cpu_s"] / off["cpu_s"] for on, off in pairs]
    middle, least, most = statistics.median(ratios), min(ratios), max(ratios)
    spread = f"({least:.2f} to {most:.2f})"
    print(f"over HTTP: recording takes {middle:.2f} times the processor time {spread}")


def _fresh(path: str) -> float:
    command = [sys.executable, "-m", "tests.benchmarks.cassette", "--once", path]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(printed))


def filled(path: Path) -> CompletionRequest:
    """Record a run of 10,000 calls of some KB each. Returns a request that is not among them."""
    journal = CassetteJournal(path, "many")
    journal.begin(RunHead("run", "nb_20261101_abcdef", "the task", "demo/any"))
    request = CompletionRequest("any", "", ())
    for agent in range(1, CALLS // TURNS + 1):
        keys = CallKeys()
        messages: tuple[Message, ...] = (user_message(f"question {agent} of many. " * 60),)
        for number in range(1, TURNS + 1):
            request = CompletionRequest("any", f"You are number {agent}. " * 80, messages)
            key = keys.key_of("demo/any", request)
            pieces = tuple((number + n / 100, f"word {n} and {number}, ") for n in range(50))
            reply = assistant_message("".join(text for _, text in pieces))
            record = CallRecord(
                str(agent), number, 1, key, request, pieces, reply, "end_turn", Usage(1, 2),
                None, float(number), 500, FINISHED, "demo/any",
            )  # fmt: skip
            journal.keep(record)
            messages = (*messages, reply, user_message(f"and then, {agent}, {number}? " * 60))
    journal.keep(EndRecord(ROOT_PATH, AgentStatus.COMPLETED))
    journal.keep(EndRecord(None, AgentStatus.COMPLETED))
    journal.close()
    last = request.messages[-1].text.replace("then", "now", 1)
    return CompletionRequest("any", request.system, (*request.messages[:-1], user_message(last)))


def took_ms(act: Callable[[], Any]) -> list[float]:
    """Wall times of five calls, in ascending order."""
    times: list[float] = []
    for _ in range(5):
        begun_s = time.perf_counter()
        act()
        times.append(1000 * (time.perf_counter() - begun_s))
    return sorted(times)


def reading() -> None:
    """Print the times to open a file, to make its records, and to explain a miss."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "many.cassette.jsonl")
        request = filled(path)
        print(f"a file of {CALLS:,} calls: {path.stat().st_size / 1e6:.0f} MB")
        _print("opened", took_ms(lambda: Cassette.read(path)))
        _print("opened, with its journal", took_ms(lambda: Cassette.read(path).journal("many")))
        for words, agent, number in (
            ("the same place", str(CALLS // TURNS), TURNS),
            ("the same agent", str(CALLS // TURNS), TURNS + 1),
            ("another agent", "5000", 1),
        ):
            cassettes = [Cassette.read(path) for _ in range(5)]  # each makes its own requests

            def act(agent: str = agent, number: int = number, left: Any = cassettes) -> None:
                left_one = left.pop()
                miss = explain(
                    left_one, "many", agent, number, request, model="demo/any", key="0" * 64
                )
                assert str(miss)

            _print(f"a miss explained by {words}", took_ms(act))


def _print(words: str, times: list[float]) -> None:
    print(f"{words}: {times[2]:.0f} ms ({times[0]:.0f} to {times[-1]:.0f})", flush=True)


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--once", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once is not None:
        print(json.dumps(cpu_ms(arguments.once)))
        return
    reading()
    over_http(arguments.repeats)
    recording(arguments.repeats)


if __name__ == "__main__":
    main()
