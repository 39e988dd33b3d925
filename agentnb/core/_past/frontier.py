"""Where new work begins: after everything that is recorded and still fits."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Generic, TypeVar

from agentnb.core._past.answers import Answers, parent_of
from agentnb.core.cancel import shielded
from agentnb.core.types import ROOT_PATH

A = TypeVar("A", bound=Answers)
NOT_STARTED = "it was started before, but not this time"


class Frontier(Generic[A]):
    """Counts the records of a run that are left, and delays new work until none is.

    Args:
        agents: By path: the records of each agent. New agents, without records, may be added.
    """

    def __init__(self, agents: Mapping[str, A]) -> None:
        self.is_refused = False
        """Whether the record was refused because it does not fit: no new work begins."""
        self.misfits: dict[str, str] = {}
        """By path: why an agent no longer fits its record."""
        self.given_up: set[tuple[str, str, int]] = set()
        """Path, kind and number of the records that were given up."""
        self._agents = agents
        self._children: dict[str, list[str]] = defaultdict(list)
        for path in agents:
            if path != ROOT_PATH:
                self._children[parent_of(path)].append(path)
        self._left = sum(agent.left for agent in agents.values())
        self._is_taken = asyncio.Event()
        self._going_on: asyncio.Future[None] | None = None
        self._go_on: Callable[[], Awaitable[None]] | None = None
        self._on_settled: Callable[[], None] | None = None
        self._check()

    def at_and_below(self, path: str) -> Iterator[A]:
        """The agents of the branch at `path` that are in `agents`."""
        if path in self._agents:
            yield self._agents[path]
        for child in self._children.get(path, ()):
            yield from self.at_and_below(child)

    # -- to wait for it ---------------------------------------------------------------------------

    @property
    def is_taken_up(self) -> bool:
        """Whether new work has begun, or is about to."""
        return self._going_on is not None

    @property
    def is_passed(self) -> bool:
        """Whether `go_on` of `when_taken` has ended: new work has begun, or the run ends."""
        return self._going_on is not None and self._going_on.done()

    def when_taken(self, go_on: Callable[[], Awaitable[None]]) -> None:
        """Await `go_on` once, after the last record was taken and before new work begins."""
        self._go_on = go_on

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call `callback` when it is known whether the record fits, and which parts were taken."""
        self._on_settled = callback

    async def is_taken(self) -> None:
        """Wait until all records are taken or given up, so that new work may begin.

        Never returns if the record was refused. Raises what `go_on` of `when_taken` raises.
        """
        if not self.is_passed:
            await self._is_taken.wait()
            await self.go_on()
        if self.is_refused:
            await asyncio.Event().wait()  # the run is being cancelled

    async def go_on(self) -> None:
        """Stop waiting for records: new work begins, or the run ends."""
        if self._going_on is None:
            self._going_on = asyncio.ensure_future(self._go_on_once())
        await shielded(self._going_on)

    async def _go_on_once(self) -> None:
        if self._go_on is not None:
            await self._go_on()
        if self._on_settled is not None:
            self._on_settled()

    # -- to come to it ----------------------------------------------------------------------------

    def took(self, path: str, kind: str, number: int) -> None:
        """Note that a record was made again."""
        agent = self._agents.get(path)
        if agent is not None and agent.take(kind, number):
            self._left -= 1
            self._check()

    def give_up(self, path: str, why: str) -> None:
        """Give up the records that are left of an agent, of all below it, and of its ancestors.

        Its ancestors wait for it, so what they did after it no longer fits either; nor do their
        sub-agents that have not started.
        """
        if not any(each.left for each in self.at_and_below(path)):
            return
        self.misfits.setdefault(path, why)
        for each in self.at_and_below(path):
            self._give_up(each)
        at = path
        while at != ROOT_PATH:
            at = parent_of(at)
            if at in self._agents:
                self._give_up(self._agents[at])
            for child in self._children.get(at, ()):
                if not self._agents[child].has_begun:
                    for each in self.at_and_below(child):
                        self._give_up(each)
        self._check()

    def give_up_unstarted(self, path: str) -> None:
        """Give up the recorded sub-agents that an agent has not started."""
        for child in self._children.get(path, ()):
            if not self._agents[child].has_begun:
                self.give_up(child, NOT_STARTED)

    def _give_up(self, agent: A) -> None:
        left = agent.give_up()
        self.given_up |= {(agent.path, *each) for each in left}
        self._left -= len(left)

    def _check(self) -> None:
        if self._left == 0:
            self._is_taken.set()
