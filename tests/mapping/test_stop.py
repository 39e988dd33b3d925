"""A map that is stopped gives what is done; one that died goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agentnb import Session
from agentnb.core.errors import LlmError, RunCancelled
from agentnb.core.types import CompletionRequest
from agentnb.mapping.result import MapResult
from agentnb.mapping.run import MapRun
from agentnb.providers.scripted import Reply, ScriptedProvider

PROMPT = "What is in {{text}}?"


class Halfway:
    """Answers the first row; the others begin, and say no more."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)

    def __call__(self, request: CompletionRequest) -> Reply:
        if "a?" in request.messages[-1].text:
            return Reply("Yes.")
        return Reply("half an answer", pause=self._wait)

    async def _wait(self) -> None:
        self.began.release()
        await asyncio.Event().wait()


def halfway() -> MapRun:
    """A map of three rows, of which one is done and two are at work."""
    model = Halfway()
    run = Session(provider=ScriptedProvider(model), store=None).map(["a", "b", "c"], PROMPT)
    for _ in range(2):
        assert model.began.acquire(timeout=60)
    run.agent("1")
    return run


def statuses(out: Any) -> list[str]:
    return [record["status"] for record in out.to_records()]


def test_cancelled_map_gives_its_table() -> None:
    run = halfway()
    run.cancel()
    out = run.result()
    assert isinstance(out, MapResult)
    assert out.status == "cancelled"
    assert statuses(out) == ["completed", "cancelled", "cancelled"]


async def test_cancelled_map_gives_its_table_where_it_is_awaited() -> None:
    run = halfway()
    await asyncio.to_thread(run.cancel)
    assert statuses(await run) == ["completed", "cancelled", "cancelled"]


def test_exhausted_map_gives_its_table() -> None:
    session = Session(provider=ScriptedProvider(lambda _: "word " * 400), store=None)
    out = session.map([str(number) for number in range(20)], PROMPT, budget=3_000).result()
    assert out.status == "exhausted"
    assert "exhausted" in statuses(out)


def _interrupt_soon() -> None:
    threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()


def test_interrupt_of_a_wait_stops_the_map_and_hands_over_its_table() -> None:
    run = halfway()
    _interrupt_soon()
    with pytest.raises(RunCancelled) as raised:
        run.result()
    assert run.done
    table: Any = raised.value.partial_result
    assert statuses(table) == ["completed", "cancelled", "cancelled"]


def test_interrupt_of_an_awaiting_cell_does_so_too() -> None:
    run = halfway()

    async def cell() -> None:
        _interrupt_soon()
        with pytest.raises(RunCancelled) as raised:
            await run
        table: Any = raised.value.partial_result
        assert statuses(table) == ["completed", "cancelled", "cancelled"]

    with asyncio.Runner() as runner:  # its handler of interrupts cancels the task, like ipykernel's
        runner.run(cell())


def test_waits_that_end_in_any_order_leave_the_handler_of_before() -> None:
    before = signal.getsignal(signal.SIGINT)

    async def first(run: MapRun, ended: asyncio.Event) -> None:
        await run
        ended.set()

    async def second(run: MapRun, ended: asyncio.Event) -> None:
        waiting = asyncio.ensure_future(_awaited(run))
        await ended.wait()
        await asyncio.to_thread(run.cancel)
        await waiting

    async def cell() -> None:
        own = signal.getsignal(signal.SIGINT)
        ended, session = asyncio.Event(), Session(provider=ScriptedProvider({"": "x"}), store=None)
        await asyncio.gather(first(session.map(["a"], PROMPT), ended), second(halfway(), ended))
        assert signal.getsignal(signal.SIGINT) is own

    with asyncio.Runner() as runner:
        runner.run(cell())
    assert signal.getsignal(signal.SIGINT) is before


def test_interrupt_of_two_awaited_maps_stops_both_and_is_heard_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    runs = [halfway(), halfway()]

    async def cell() -> None:
        _interrupt_soon()
        ends = await asyncio.gather(*map(_awaited, runs), return_exceptions=True)
        assert [type(end) for end in ends] == [RunCancelled, RunCancelled]

    with asyncio.Runner() as runner, suppress(asyncio.CancelledError, KeyboardInterrupt):
        runner.run(cell())
    for run in runs:
        assert run.result().status == "cancelled"
    assert signal.getsignal(signal.SIGINT) is before


async def _awaited(run: MapRun) -> MapResult:
    return await run


async def test_wait_that_is_given_up_leaves_the_map_alone() -> None:
    run = halfway()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await run
    assert not run.done
    await asyncio.to_thread(run.cancel)


def test_map_that_was_killed_is_recovered_with_its_rows(tmp_path: Path) -> None:
    store = tmp_path / "x.db"
    code = f"""
import os
from agentnb import Session
from agentnb.providers.scripted import Reply, ScriptedProvider
async def die():
    os.write(1, run_id.encode())
    os._exit(9)
def script(request):
    return "Yes." if "a?" in request.messages[-1].text else Reply("half", pause=die)
session = Session(provider=ScriptedProvider(script), store={str(store)!r}, max_concurrency=1)
run = session.map(["a", "b"], {PROMPT!r}, judges=2, shared="All of it.")
run_id = run.id
run.result()
"""

    died = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert died.returncode == 9, died.stderr
    asked: list[str] = []

    def script(request: CompletionRequest) -> str | LlmError:
        asked.append(request.messages[-1].text)
        assert request.system.startswith("All of it.")
        return "Now."

    session = Session(provider=ScriptedProvider(script), store=store)
    run = session.recover(died.stdout)
    assert isinstance(run, MapRun)
    out = run.result()
    assert statuses(out) == ["completed"] * 2
    assert asked
    assert all("b?" in each for each in asked)
    assert out.to_records()[0]["answer"] == "Yes."
    spent, again = run.budget.tokens_used, out.retry(rows=[1])
    again.result()
    assert run.budget.tokens_used == spent
    assert 0 < again.budget.tokens_used < spent
