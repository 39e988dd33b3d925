"""What the store costs: a run with it, against the same run without it; and reading it.

Run by hand from the root of the checkout: `python -m tests.benchmarks.store [--repeats N]`. Each
ratio is the median of the ratios within one repeat, in fresh processes, all threads counted.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentnb.core.events import AgentTextDelta, ModelCallFinished, ModelCallStarted
from agentnb.session import Session
from agentnb.store.store import store_at
from tests.benchmarks.http_server import server_process
from tests.benchmarks.http_streams import interleaved
from tests.benchmarks.in_process import in_fresh_process, started

AGENTS = 1000


def in_process(repeats: int) -> None:
    """Print the cost that the store adds for each sub-agent, with a model without delay."""
    added: list[float] = []
    for repeat in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            off = in_fresh_process(AGENTS)
            on = in_fresh_process(AGENTS, store=f"{folder}/{repeat}.db")
        added.append(1000 * (on - off))
    spread = f"{min(added):.0f} to {max(added):.0f}"
    print(f"in process: {statistics.median(added):.0f} microseconds a sub-agent ({spread})")


def over_http(repeats: int) -> None:
    """Print the ratio of processor time over the Anthropic provider and a server on loopback."""
    with server_process() as url:
        measured = interleaved(["agentnb", "stored"], AGENTS, f"{url}/quick", repeats)
    pairs = zip(measured["stored"], measured["agentnb"], strict=True)
    ratios = [on["cpu_s"] / off["cpu_s"] for on, off in pairs]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    print(f"over HTTP: {statistics.median(ratios):.2f} times the processor time ({spread})")


def took_ms(act: Callable[[], Any]) -> float:
    """The least wall time of five calls."""
    times: list[float] = []
    for _ in range(5):
        begun_s = time.perf_counter()
        act()
        times.append(1000 * (time.perf_counter() - begun_s))
    return min(times)


def reading() -> None:
    """Print the times to list, load and draw a run, and the size of its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "runs.db")
        run = started(AGENTS, str(path))
        run.result()
        run_id, entries, text = run.id, run.events, _text_of(run)
        del run
        session = Session(store=path)
        print(f"listed in {took_ms(session.runs):.0f} ms")
        print(f"loaded in {took_ms(lambda: session.load(run_id)):.0f} ms")
        loaded = session.load(run_id)

        def drawn() -> None:
            again = session.load(run_id)
            again.panel().close()

        assert loaded.events == entries, "what was loaded is not what was live"
        loaded.panel().close()  # imports the widgets
        print(f"loaded, with a panel: {took_ms(drawn):.0f} ms")
        store_at(path).close()
        size = sum(each.stat().st_size for each in Path(folder).glob("runs.db*"))
        others = sum(not isinstance(entry.event, AgentTextDelta) for entry in entries)
        allowed = 2 * text + 1024 * others
        print(
            f"file: {size:,} bytes for {text:,} of text and {others:,} events: {size / allowed:.2f}"
        )


def _text_of(run: Any) -> int:
    """Bytes of all prompts and replies, counting each message once."""
    said: dict[str, None] = {}
    for entry in run.events:
        if isinstance(entry.event, ModelCallStarted):
            said[entry.event.request.system] = None
            for message in entry.event.request.messages:
                said[message.text] = None
        elif isinstance(entry.event, ModelCallFinished) and entry.event.message is not None:
            said[entry.event.message.text] = None
    return sum(len(text.encode()) for text in said)


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    reading()
    in_process(arguments.repeats)
    over_http(arguments.repeats)


if __name__ == "__main__":
    main()
