"""What spans cost: the processor time of a run of 1,000 sub-agents, against the same run without.

Run by hand from the root of the checkout: `python -m tests.benchmarks.telemetry [--repeats N]
[--only bare,stored,http]`. Runs are in process, without a delay, without a store and with one, as
is the default; and over the Anthropic provider and a server on loopback. Each run is in a fresh
process, all threads counted, in rounds: without `instrument`, after its end, with it and no tracer
provider, and with the SDK, whose exporter drops the batches. Each figure is the median of the
ratios within one round; beside it is the ratio of the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.benchmarks import http_clients, in_process
from tests.benchmarks.http_server import server_process

AGENTS = 1_000
WITHOUT, OFF, API, SDK = "without", "off", "api", "sdk"
STORED = "stored"
"""In place of a URL: a run in process, with a store."""
AIMS = {OFF: 1.0, API: 1.1, SDK: 1.35}


def begin(mode: str) -> Callable[[], object]:
    """Switch spans on for a mode. Returns a function that waits until they are exported."""
    if mode == WITHOUT:
        return lambda: None
    import agentnb

    if mode != SDK:
        end = agentnb.instrument()
        if mode == OFF:
            end()
        return lambda: None
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    counted: list[int] = []

    class Dropping(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            counted.append(len(spans))
            return SpanExportResult.SUCCESS

    provider = TracerProvider(shutdown_on_exit=False)
    # Large enough that no span is dropped before the exporter.
    provider.add_span_processor(BatchSpanProcessor(Dropping(), max_queue_size=100_000))
    agentnb.instrument(provider)

    def flush() -> None:
        provider.force_flush()
        assert sum(counted) >= 2 * AGENTS, "not all spans were exported"

    return flush


def once(mode: str, url: str) -> float:
    """Processor milliseconds of one run in this process."""
    flush = begin(mode)
    if url.startswith("http"):
        spent_s = http_clients.measure("agentnb", AGENTS, url)["cpu_s"]
    else:
        with tempfile.TemporaryDirectory() as folder:
            store = f"{folder}/runs.db" if url == STORED else None
            spent_s = in_process.measure(AGENTS, memory=False, store=store) * AGENTS / 1000
    begun_s = time.process_time()
    flush()
    return 1000 * (spent_s + time.process_time() - begun_s)


def _fresh(mode: str, url: str) -> float:
    command = [sys.executable, "-m", "tests.benchmarks.telemetry", "--once", mode, "--url", url]
    # Without a proxy: the server is on this machine.
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return float(json.loads(done.stdout))


def compared(what: str, repeats: int, url: str = "") -> None:
    """Print the ratios of one kind of run."""
    rounds: list[dict[str, float]] = [
        {mode: _fresh(mode, url) for mode in (WITHOUT, OFF, API, SDK)} for _ in range(repeats)
    ]
    print(f"{what}: {statistics.median(each[WITHOUT] for each in rounds):.0f} ms without")
    for mode, aim in AIMS.items():
        ratios = [each[mode] / each[WITHOUT] for each in rounds]
        print(
            f"  {mode:4} {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}),"
            f" aim {aim:.2f}; medians {_median(rounds, mode) / _median(rounds, WITHOUT):.2f}",
            flush=True,
        )


def _median(rounds: Sequence[dict[str, Any]], mode: str) -> float:
    return float(statistics.median(each[mode] for each in rounds))


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", default="bare,stored,http")
    parser.add_argument("--once", help=argparse.SUPPRESS)
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once is not None:
        print(json.dumps(once(arguments.once, arguments.url)))
        return
    if "bare" in arguments.only:
        compared("in process", arguments.repeats)
    if STORED in arguments.only:
        compared("in process, with a store", arguments.repeats, STORED)
    if "http" in arguments.only:
        with server_process() as url:
            compared("over HTTP", arguments.repeats, f"{url}/quick")


if __name__ == "__main__":
    main()
