"""Cancels and errors in the middle of what a pool does: nothing stays open, nothing is reported."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from agentnb.workers.given import write_data_file
from agentnb.workers.pool import Workers
from agentnb.workers.server import ForkServer
from agentnb.workers.worker import Limits, Worker, to_its_end
from tests.support import reported_by

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="a worker is forked")


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


class Stuck:
    """A worker that does not end."""

    def __init__(self) -> None:
        self.is_asked_to_end = asyncio.Event()

    async def kill(self, reason: str) -> None:
        self.is_asked_to_end.set()
        await asyncio.Event().wait()


class Ends:
    """A worker that ends."""

    has_ended = False

    async def kill(self, reason: str) -> None:
        self.has_ended = True


class Fails:
    """A worker whose end fails."""

    async def kill(self, reason: str) -> None:
        raise RuntimeError("can't start new thread")


def pool_of(folder: Path, **workers: Any) -> tuple[Workers, ForkServer, int]:
    """A pool with workers that are none, a real fork server, and a data file."""
    folder.mkdir()
    pool = Workers({"numbers": [1]})
    for agent, worker in workers.items():
        pool._seat(agent).worker = worker
    pool._data = write_data_file(pool.given)
    pool._folders = [folder]
    assert pool._data.file is not None
    return pool, pool._living_server(), pool._data.file


def left_of(folder: Path, server: ForkServer, file: int) -> list[str]:
    left = ["the folder"] if folder.exists() else []
    if server._process.returncode is None:
        left.append("the fork server")
    try:
        os.fstat(file)
    except OSError:
        return left
    return [*left, "the data file"]


@needs_fork
async def test_pool_whose_end_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    """As the end of a process does, which cancels all tasks, each once."""
    stuck = Stuck()
    pool, server, file = pool_of(folder := tmp_path / "folder", a=stuck)
    closing = asyncio.create_task(pool.close())
    await stuck.is_asked_to_end.wait()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.wait({closing})

    assert closing.cancelled()
    assert left_of(folder, server, file) == []


@needs_fork
async def test_worker_whose_end_fails_does_not_keep_the_rest_of_its_pool(tmp_path: Path) -> None:
    other = Ends()
    pool, server, file = pool_of(folder := tmp_path / "folder", a=Fails(), b=other)

    await pool.close()

    assert other.has_ended
    assert left_of(folder, server, file) == []


async def test_worker_whose_end_is_cancelled_is_disconnected_so_that_its_guard_ends_it(
    tmp_path: Path,
) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        worker = Worker(tmp_path, Limits(), ours)
        _, worker._writer = await asyncio.open_connection(sock=ours)
        ending = asyncio.create_task(worker.kill())
        await asyncio.sleep(0)
        ending.cancel()
        await asyncio.wait({ending})
        await asyncio.sleep(0)  # the transport closes with the loop's next step

        assert ending.cancelled()
        assert theirs.recv(100) == b"stop\n"
        theirs.setblocking(False)
        assert theirs.recv(100) == b""
