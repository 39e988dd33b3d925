"""Cancels and errors in the middle of what a pool does: nothing stays open, nothing is reported."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from agentnb.workers.pool import Workers
from agentnb.workers.worker import Limits, Worker, to_its_end
from tests.support import reported_by


async def test_cleaning_up_that_fails_after_its_caller_was_cancelled_is_not_reported() -> None:
    async def scene() -> None:
        begun = asyncio.get_running_loop().create_future()

        async def work() -> None:
            await begun

        waiting = asyncio.create_task(to_its_end(work()))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        assert not waiting.done()
        begun.set_exception(OSError("no more threads"))
        await asyncio.wait({waiting})
        assert waiting.cancelled()

    assert await reported_by(scene) == []


async def test_given_data_that_cannot_be_written_is_no_report_if_its_caller_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        written = asyncio.get_running_loop().create_future()
        workers = Workers({"numbers": [1]})
        with monkeypatch.context() as patch:
            patch.setattr("agentnb.workers.pool.run_in_thread", lambda _: written)
            waiting = asyncio.create_task(workers._planned())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        writing = workers._writing
        assert writing is not None
        written.set_exception(OSError("the disk is full"))
        await asyncio.wait({writing})

    assert await reported_by(scene) == []


async def test_cancel_that_comes_with_the_answer_of_a_kernel_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Answered:
        def close(self) -> None:
            pass

    asked, answer = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def open_channel(path: Path, key: str) -> Answered:
        asked.set()
        await answer
        return Answered()

    monkeypatch.setattr("agentnb.workers.worker.open_channel", open_channel)
    ours, theirs = socket.socketpair()
    with theirs:
        worker = Worker(Path(), Limits(), ours)
        beginning = asyncio.create_task(worker.begin({"key": "a key"}))
        theirs.sendall(b'{"ready": 1, "guard": 1}\n')
        await asked.wait()
        answer.set_result(None)
        beginning.cancel()
        await asyncio.wait({beginning})
        worker.abandon()

    assert beginning.cancelled()
