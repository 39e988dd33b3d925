"""Observers of all runs are handed each bus, waited for at the end, and fail no run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agentnb.core import observers
from agentnb.core.bus import EventBus
from agentnb.core.errors import InvalidRequest
from agentnb.core.events import RunFinished
from agentnb.testing import by_agent
from tests.support import Tree, run_tree


class Counts:
    """Counts what it is told, some loops after the run's last event."""

    def __init__(self) -> None:
        self.events_at_begin: list[int] = []
        self.ended: list[bool] = []

    def begin(self, bus: EventBus, *_: object) -> observers.Ended:
        self.events_at_begin.append(len(bus))

        async def ended() -> None:
            for _ in range(5):
                await asyncio.sleep(0)
            self.ended.append(isinstance(bus.newest, RunFinished))

        return ended


class Fails:
    def begin(self, *_: object) -> None:
        raise RuntimeError("no")


class FailsAtTheEnd:
    def begin(self, *_: object) -> observers.Ended:
        async def ended() -> None:
            raise RuntimeError("no")

        return ended


class Hangs:
    def begin(self, *_: object) -> observers.Ended:
        return asyncio.Event().wait


@contextmanager
def observing(*those: observers.Observer) -> Iterator[None]:
    for each in those:
        observers.add(each)
    try:
        yield
    finally:
        for each in those:
            observers.remove(each)


async def run(answer: object = "ok") -> Tree:
    return await run_tree(by_agent({"root": answer}), "root")  # type: ignore[dict-item]


async def test_run_is_seen_from_before_its_first_event_to_after_its_last() -> None:
    counts = Counts()

    with observing(counts):
        await run()
        await run(InvalidRequest("no"))
    await run()

    assert counts.events_at_begin == [0, 0]
    assert counts.ended == [True, True]


async def test_observer_that_fails_or_hangs_fails_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observers, "PATIENCE_S", 0.01)
    counts = Counts()

    with observing(Fails(), FailsAtTheEnd(), Hangs(), counts):
        tree = await run()

    assert tree.error is None
    assert tree.result.output == "ok"
    assert counts.ended == [True]
