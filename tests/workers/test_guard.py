"""The guard and the person's process hear of each other what neither may trust."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agentnb.workers.inside.guard import _Guard
from agentnb.workers.worker import CannotStart, Limits, Worker

CONFIG = {"memory": 0, "data_size": 0, "most_printed": 100, "most_output": 10}


def test_interrupt_does_not_reach_the_id_of_a_worker_that_was_waited_for() -> None:
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    owners, guards = socket.socketpair()
    with owners, guards:
        guard = _Guard(guards, CONFIG, None)
        guard._pid, guard._ended = ended.pid, "died"
        owners.sendall(b"interrupt\n")

        guard._obey()

        assert guard._ended == "died"


@pytest.mark.parametrize(
    "line",
    [
        b"not JSON",
        b"7",
        b'["ready"]',
        b'{"ready": Infinity, "guard": 1}',
        b'{"ended": "died", "out": []}',
        b"[" * 100_000,
    ],
)
def test_line_that_no_guard_writes_ends_the_start_and_breaks_nothing(
    line: bytes, tmp_path: Path
) -> None:
    async def start() -> BaseException | None:
        owners, guards = socket.socketpair()
        with guards:
            guards.sendall(line + b"\n")
            worker = Worker(tmp_path, Limits(), owners)
            with pytest.raises(CannotStart):
                await worker.begin({"key": ""})
            worker.abandon()
            assert worker._listening is not None
            return worker._listening.exception()

    assert asyncio.run(start()) is None
