"""Minutes of mixed load, and what grew.

Run by hand from the root of the checkout: `python -m tests.benchmarks.soak [minutes] [--seed N]
[--trace]`. Threads make runs without a pause: over the real SDK against a server in a second
process, and over a script in this one. The trees have random shapes; calls fail in every way that
the transport has; budgets are too small, totals change, agents and runs are cancelled, waits are
given up, handles are dropped, and some readers of the record are slow or never read.

About every ten seconds the load pauses: what is still allocated then stays allocated. Every record
is checked against what must hold for every run; the exit code is 1 if that broke anywhere. The seed
decides what is asked and done; the order depends on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import random
import statistics
import subprocess
import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentnb.core._call import services
from agentnb.core.bus import EventBus
from agentnb.core.errors import (
    AgentnbError,
    InternalError,
    Overloaded,
    RateLimited,
    StreamBroken,
    UnknownAgent,
)
from agentnb.core.types import CompletionRequest
from agentnb.providers.scripted import AnyReply, ScriptedProvider
from agentnb.providers.scripted import Reply as ScriptedReply
from agentnb.run import Run
from agentnb.runtime import get_runtime
from agentnb.session import Session
from tests import loopback
from tests.census import census, settled
from tests.support import check_record, spawn, task_of

WORKERS = 8
STANDS_STILL_EVERY_S = 10.0
PATIENCE_S = 120.0
"""A run that takes longer counts as hanging."""
_STATM = Path("/proc/self/statm")


# -- what the model says --------------------------------------------------------------------------


def said(task: str, is_first: bool, dice: random.Random) -> tuple[str, str]:
    """The fate of one call and its text: the task alone decides the shape of the tree."""
    what = dice.choices(["words", "busy", "cut", "refusal"], [40, 2, 1, 1])[0]
    own = random.Random(task)
    depth = task.count("/")
    if is_first and own.random() < (0.9, 0.5, 0.2)[depth] if depth < 3 else False:
        names = [f"{task}/{n}" for n in range(own.randint(1, 4))]
        return what, spawn(*names, mode=own.choice(["parallel", "sequential"]), before="Some.")
    return what, "Words that come piece by piece. " * own.randint(1, 60)


class Script(ScriptedProvider):
    """Answers in this process, and keeps no requests."""

    def __init__(self, seed: int) -> None:
        super().__init__(self._answer, name="script")
        self._dice = random.Random(seed)

    def _answer(self, request: CompletionRequest) -> AnyReply:
        self.requests.clear()
        task = task_of(request)
        task = request.messages[0].text if task == "root" else task
        what, words = said(task, len(request.messages) == 1, self._dice)
        match what:
            case "busy":
                return self._dice.choice([RateLimited("busy", retry_after_s=0.01), Overloaded("x")])
            case "cut":
                return ScriptedReply(words[:20], error=StreamBroken("cut"))
            case "refusal":
                return ScriptedReply("No.", stop_reason="refusal")
        return ScriptedReply(words, pause=lambda: asyncio.sleep(0.001))


def serve(seed: int) -> None:
    """Be the server: print the address, then for each input line the number of connections."""
    dice = random.Random(seed)

    def answer(body: dict[str, Any]) -> loopback.Reply:
        content = body["messages"][0]["content"]
        asked = content if isinstance(content, str) else content[-1]["text"]
        task = asked.rsplit("\n", 1)[-1].strip()
        what, words = said(task, len(body["messages"]) == 1, dice)
        match what:
            case "busy":
                status = dice.choice([429, 529, 500])
                return loopback.Reply(status=status, headers={"retry-after-ms": "10"})
            case "cut":
                whole = loopback.messages.steps(loopback.Reply(text=words), body, number=0)
                return loopback.Reply(events=list(whole)[: dice.randint(0, 5)])
            case "refusal":
                return loopback.Reply(text="No.", stop_reason="refusal")
        return loopback.Reply(text=words)

    with loopback.LoopbackServer(answer) as server:
        print(server.url, flush=True)
        for _ in sys.stdin:
            print(server.open_connections, flush=True)
            server.requests.clear()
            server.closed.clear()


@contextlib.contextmanager
def server_process(seed: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.benchmarks.soak", "--serve", "--seed", str(seed)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield server
    finally:
        server.communicate()


def connections(server: subprocess.Popen[str]) -> int:
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write("\n")
    server.stdin.flush()
    return int(server.stdout.readline())


# -- what is done with the runs -------------------------------------------------------------------


@dataclass
class Load:
    """Threads that make runs until a stop."""

    sessions: list[Session]
    seed: int
    fates: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _go: threading.Event = field(default_factory=threading.Event)
    _over: bool = False
    _busy: int = 0
    _left: list[tuple[str, EventBus]] = field(default_factory=list)
    """Records of runs that continue without a handle."""

    @property
    def runs(self) -> int:
        return self.fates.total()

    def work(self, number: int) -> None:
        """One thread's part."""
        dice = random.Random(f"{self.seed} {number}")
        for count in range(10**9):
            self._go.wait()
            with self._lock:
                if self._over:
                    return
                if not self._go.is_set():
                    continue
                self._busy += 1
            task = f"{self.seed}-{number}-{count}"
            try:
                self._one(task, dice)
            except Exception as error:
                self._note(task, f"{type(error).__name__}: {error}")
            finally:
                with self._lock:
                    self._busy -= 1

    def _one(self, task: str, dice: random.Random) -> None:
        budget = dice.choices([500_000, dice.randint(300, 6000)], [5, 1])[0]
        run = dice.choice(self.sessions).spawn(task, budget=budget)
        readers = [run._bus.subscribe(limit=dice.choice([1, 50, 1000])) for _ in range(3)]
        what = dice.choice([self._wait, self._wait, self._cancel, self._steer, self._read])
        if dice.random() < 0.1:
            with self._lock:
                self._left.append((task, run._bus))
            return
        what(run, dice)
        self._wait(run, dice)
        self._check(task, run._bus)
        del readers

    def _wait(self, run: Run, dice: random.Random) -> None:
        if dice.random() < 0.2:
            with contextlib.suppress(TimeoutError, AgentnbError):
                asyncio.run(asyncio.wait_for(run._wait(), 0.01))
        try:
            result = run.result(PATIENCE_S)
            assert result.status is run.status, f"{result.status} is not {run.status}"
        except InternalError as error:
            self._note(run.task, str(error))
        except AgentnbError:
            pass

    def _until(self, run: Run, entries: int) -> None:
        while not run.done and len(run._bus) < entries:
            time.sleep(0.001)

    def _cancel(self, run: Run, dice: random.Random) -> None:
        self._until(run, dice.randint(1, 200))
        known = [record["path"] for record in run.to_records()]
        for path in dice.choices([*known, None], k=2):
            with contextlib.suppress(UnknownAgent):
                receipt = run.cancel(path)
                assert not receipt.still_running, receipt

    def _steer(self, run: Run, dice: random.Random) -> None:
        for _ in range(5):
            self._until(run, len(run._bus) + dice.randint(1, 40))
            run.set_budget(dice.choice([0, 2000, 20_000, 500_000]))

    def _read(self, run: Run, dice: random.Random) -> None:
        async def read() -> None:
            async for _ in run.stream():
                if dice.random() < 0.02:
                    await asyncio.sleep(0.01)
                if dice.random() < 0.005:
                    return

        asyncio.run(read())

    def _check(self, task: str, bus: EventBus) -> None:
        try:
            check_record(bus.entries)
            fate = str(bus.since(len(bus) - 1)[0].event.status)  # type: ignore[union-attr]
        except (AssertionError, AttributeError) as error:
            fate = "broken"
            self._note(task, f"its record is broken: {error!r}")
        with self._lock:
            self.fates[fate] += 1

    def _note(self, task: str, what: str) -> None:
        with self._lock:
            self.broken.append(f"{task}: {what}")

    def go_on(self) -> None:
        self._go.set()

    def stand_still(self) -> None:
        """Return when no run is open."""
        self._go.clear()
        deadline = time.monotonic() + PATIENCE_S
        while self._busy or not all(bus.closed for _, bus in self._left):
            if time.monotonic() > deadline:
                open_ = [task for task, bus in self._left if not bus.closed]
                self._note("-", f"{self._busy} threads and the runs {open_} do not come to an end")
                return
            time.sleep(0.01)
        for task, bus in self._left:
            self._check(task, bus)
        self._left.clear()

    def end(self) -> None:
        self._over = True
        self._go.set()


# -- what remains while nothing runs --------------------------------------------------------------


def measured(server: subprocess.Popen[str]) -> dict[str, float]:
    """The measures while the load pauses."""
    runtime = get_runtime()
    settled(runtime)
    now = census(runtime)
    kept = {"Run", "EventBus", "Agent", "Entry", "Execution", "CancelScope", "Lease"}
    measures: dict[str, float] = {
        "threads": now.threads,
        "tasks": now.tasks,
        "timers": now.timers,
        "our objects": sum(now.objects.values()),
        "of runs": sum(count for name, count in now.objects.items() if name in kept),
        "all objects": len(gc.get_objects()),
        "blocks": sys.getallocatedblocks(),
        "connections": connections(server),
    }
    if now.files is not None:
        measures["files"] = now.files
    if _STATM.exists():
        pages = int(_STATM.read_text().split()[1])
        measures["RSS MiB"] = pages * os.sysconf("SC_PAGESIZE") / 2**20
    if tracemalloc.is_tracing():
        measures["traced MiB"] = tracemalloc.get_traced_memory()[0] / 2**20
    return measures


def what_grew(samples: list[tuple[int, dict[str, float]]]) -> None:
    """Print the median of the first and of the last quarter, for each measure."""
    quarter = max(1, len(samples) // 4)
    first, last = samples[:quarter], samples[-quarter:]

    def middle(part: list[tuple[int, dict[str, float]]], name: str) -> float:
        return statistics.median(measures[name] for _, measures in part)

    runs = statistics.median(n for n, _ in last) - statistics.median(n for n, _ in first)
    print(f"\n{'what grew':14}{'first quarter':>14}{'last quarter':>14}{'per 1,000 runs':>16}")
    for name in samples[0][1]:
        before, after = middle(first, name), middle(last, name)
        grown = (after - before) * 1000 / runs if runs else 0.0
        print(f"{name:14}{before:14,.1f}{after:14,.1f}{grown:16,.2f}")


def soak(minutes: float, seed: int, trace: bool) -> int:
    """Make load for `minutes`; return the number of faults."""
    services._FIRST_DELAY_S = 0.02  # the waits before retries are not the load
    print(f"seed {seed}, {minutes:g} minutes, {WORKERS} threads; the server is process 2")
    with server_process(seed) as server:
        assert server.stdout is not None
        os.environ["ANTHROPIC_BASE_URL"] = server.stdout.readline().strip()
        os.environ["ANTHROPIC_API_KEY"] = "not-a-key"
        sessions = [
            Session(model="anthropic/m", on_budget_warning=lambda warning: "continue"),
            Session(provider=Script(seed), on_budget_warning="stop"),
            Session(model="anthropic/m", max_agents=6),
            Session(provider=Script(seed + 1), max_depth=2, max_concurrency=4),
        ]
        load = Load(sessions, seed)
        threads = [threading.Thread(target=load.work, args=(n,)) for n in range(WORKERS)]
        for thread in threads:
            thread.start()
        samples: list[tuple[int, dict[str, float]]] = []
        begun_s = time.monotonic()
        while (passed_s := time.monotonic() - begun_s) < minutes * 60 or not samples:
            load.go_on()
            time.sleep(min(STANDS_STILL_EVERY_S, max(0.1, minutes * 60 - passed_s)))
            load.stand_still()
            for session in sessions:
                session._newest = None
            measures = measured(server)
            samples.append((load.runs, measures))
            if trace and not tracemalloc.is_tracing():
                tracemalloc.start(12)  # caches that the first runs fill do not grow
                measures["traced MiB"] = 0.0
            # One timer belongs to the pool, for unused connections.
            for name, allowed in (("tasks", 0), ("timers", 1), ("of runs", 0)):
                if measures[name] > allowed:
                    load.broken.append(f"{measures[name]:g} {name} while nothing runs")
            numbers = ", ".join(f"{name} {value:,.4g}" for name, value in measures.items())
            fates = ", ".join(f"{count} {fate}" for fate, count in sorted(load.fates.items()))
            seconds = time.monotonic() - begun_s
            print(f"{seconds:5.0f} s  {load.runs} runs ({fates}); {numbers}", flush=True)
        load.end()
        for thread in threads:
            thread.join(PATIENCE_S)
        get_runtime().close()
        deadline = time.monotonic() + 10
        while (still_open := connections(server)) and time.monotonic() < deadline:
            time.sleep(0.05)
        if still_open:
            load.broken.append(f"{still_open} connections after the runtime was closed")
    what_grew(samples)
    print(f"\n{len(load.broken)} things broke")
    for what in load.broken[:50]:
        print(f"- {what}")
    return len(load.broken)


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("minutes", type=float, nargs="?", default=2.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--trace", action="store_true", help="trace Python's memory; slow")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.seed)
        return
    sys.exit(soak(arguments.minutes, arguments.seed, arguments.trace) > 0)


if __name__ == "__main__":
    main()
