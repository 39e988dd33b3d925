"""The frontier between a run's record and its new work."""

from __future__ import annotations

import asyncio

from agentnb.core._past.answers import Answers
from agentnb.core._past.frontier import Frontier
from tests.support import reported_by


async def test_new_work_that_fails_when_nobody_waits_for_it_any_more_is_not_reported() -> None:
    async def scene() -> None:
        begun = asyncio.get_running_loop().create_future()
        frontier = Frontier[Answers]({})
        frontier.when_taken(lambda: begun)
        waiting = asyncio.create_task(frontier.is_taken())
        await asyncio.sleep(0)
        going_on = frontier._going_on
        assert going_on is not None
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        begun.set_exception(OSError("the disk is full"))
        await asyncio.wait({going_on})

    assert await reported_by(scene) == []
