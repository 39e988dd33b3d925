"""Work on daemon threads: kept for a moment, never waited for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from agentnb.core import workers
from agentnb.core.workers import Job
from tests.support import DEADLINE_S, run_python, until

T = TypeVar("T")


async def on_worker(function: Callable[[], T]) -> T:
    job = Job(function)
    job.start()
    async with asyncio.timeout(DEADLINE_S):
        await job.wait()
    return job.result()


async def test_work_that_comes_one_after_the_other_shares_a_daemon_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    idle: list[workers._Worker] = []  # none that an earlier test left
    monkeypatch.setattr(workers, "_idle", idle)
    monkeypatch.setattr(workers, "_IDLE_S", DEADLINE_S)
    first = await on_worker(threading.current_thread)
    await until(lambda: idle)  # it says so after it has handed over

    assert await on_worker(threading.current_thread) is first
    assert first.daemon
    await until(lambda: idle)
    monkeypatch.undo()
    idle[0].orders.put(lambda: None)  # so that it looks at its time anew, and ends


async def test_work_at_the_same_time_has_a_thread_each() -> None:
    both = threading.Barrier(9)
    jobs = [Job(lambda: both.wait(DEADLINE_S)) for _ in range(8)]
    for job in jobs:
        job.start()
    both.wait(DEADLINE_S)
    for job in jobs:
        await job.wait()

    assert {job.result() for job in jobs} <= set(range(9))


async def test_thread_without_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_IDLE_S", 0.01)
    monkeypatch.setattr(workers, "_idle", [])

    thread = await on_worker(threading.current_thread)

    await asyncio.to_thread(thread.join, DEADLINE_S)
    assert not thread.is_alive()
    assert workers._idle == []


def test_thread_that_blocks_holds_up_neither_the_loop_nor_the_exit() -> None:
    said = run_python(
        """
        import asyncio, threading
        from agentnb.core.workers import Job

        async def main():
            job = Job(threading.Event().wait)
            job.start()
            try:
                await asyncio.wait_for(job.wait(), 0.01)
            except TimeoutError:
                print("left", job.has_ended)

        asyncio.run(main())
        """
    )

    assert said == "left False\n"


def test_forked_process_has_threads_of_its_own() -> None:
    said = run_python(
        """
        import asyncio, os, warnings
        from agentnb.core import workers
        warnings.simplefilter("ignore", DeprecationWarning)

        async def work():
            job = workers.Job(os.getpid)
            job.start()
            await job.wait()
            return job.result()

        async def warm():
            await work()
            while not workers._idle:
                await asyncio.sleep(0)

        asyncio.run(warm())
        child = os.fork()
        if child == 0:
            os._exit(0 if asyncio.run(work()) == os.getpid() else 1)
        print(os.waitpid(child, 0)[1])
        """
    )

    assert said == "0\n"
