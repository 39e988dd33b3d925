"""The pause of the garbage collector is shared by all threads, and ends whatever becomes of it."""

from __future__ import annotations

import asyncio
import gc
import os
import threading

import pytest

from agentnb.core.collector import MANY, TurnPause, without_collector


def test_collector_goes_on_when_the_last_of_several_threads_is_done() -> None:
    assert gc.isenabled()
    is_inside, may_leave = threading.Event(), threading.Event()

    def work() -> None:
        with without_collector():
            is_inside.set()
            may_leave.wait(60)

    other = threading.Thread(target=work)
    with without_collector(), without_collector():
        other.start()
        assert is_inside.wait(60)
    assert not gc.isenabled()
    may_leave.set()
    other.join(60)
    assert gc.isenabled()


async def test_pause_for_a_turn_ends_when_each_task_that_was_woken_had_one() -> None:
    event, seen = asyncio.Event(), list[bool]()

    async def agent() -> None:
        await event.wait()
        seen.append(gc.isenabled())

    async with asyncio.TaskGroup() as group:
        for _ in range(MANY):
            group.create_task(agent())
        await asyncio.sleep(0)
        pause = TurnPause()
        event.set()
        pause.end_behind()

    assert seen == [False] * MANY
    assert gc.isenabled()


def test_pause_of_a_loop_that_was_left_ends_with_the_next_one() -> None:
    async def leave() -> None:
        TurnPause()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
    loop.close()
    with without_collector():
        pass

    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
def test_pause_of_the_parent_is_none_of_its_child() -> None:
    with without_collector():
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)
        _, status = os.waitpid(child, 0)
        assert not gc.isenabled()

    assert os.waitstatus_to_exitcode(status) == 0
