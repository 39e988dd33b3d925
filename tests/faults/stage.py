"""The stage on which every fault is played: one tree, the real provider, a server on loopback.

The tree has a root with two sub-agents, of which the first has one of its own. An agent that
delegates makes two calls, so that there are six places where a fault can stand:

    root ── first ── deep         root, child, grandchild; and root and child once more,
         └─ second                for their syntheses. `second` is the sibling that nothing hits.

Time is a manual clock's. Where a reply stalls, it passes once the server says that it does.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from agentnb.core.events import AgentCompleted, AgentTextDelta
from tests.core.clock import ManualClock
from tests.faults.fault import CALL_TIMEOUT_S, Fault
from tests.faults.wire import ApiProvider, Wire, half_of
from tests.loopback import LoopbackServer, Received, Reply, system_of
from tests.support import Tree, make_tree, path_of, spawn

ROOT, CHILD, GRANDCHILD, SIBLING = "root", "child", "grandchild", "sibling"
SYNTHESIS, INNER_SYNTHESIS = "synthesis", "inner synthesis"
PLACES = (ROOT, CHILD, GRANDCHILD, INNER_SYNTHESIS, SYNTHESIS)
"""In the order in which they are reached."""
PATH_OF_PLACE = {
    ROOT: "root",
    CHILD: "1",
    GRANDCHILD: "1.1",
    INNER_SYNTHESIS: "1",
    SYNTHESIS: "root",
    SIBLING: "2",
}
SAID = {
    ROOT: spawn("first", "second", before="I ask two 🙂."),
    CHILD: spawn("deep", before="I ask one 🙂."),
    GRANDCHILD: "From the deep 🙂, nothing new.",
    SIBLING: "From the second 🙂, nothing new.",
    INNER_SYNTHESIS: "The first says 🙂: nothing new.",
    SYNTHESIS: "All in all 🙂: nothing new.",
}
"""What is said at each place when nothing goes wrong."""
_PLACE_OF_TASK = {
    "root": (ROOT, SYNTHESIS),
    "first": (CHILD, INNER_SYNTHESIS),
    "deep": (GRANDCHILD,),
    "second": (SIBLING,),
}


def place_of(body: dict[str, Any]) -> str:
    """Where in the tree a request comes from."""
    found = re.search(r"<task>\n(.*)\n</task>\Z", system_of(body), re.DOTALL)
    places = _PLACE_OF_TASK[found[1] if found else "root"]
    return places["<sub_agent_results>" in str(body["messages"][-1])]


@dataclass
class Played:
    """One run, with what the server saw of it."""

    tree: Tree
    requests: list[Received]
    host: str
    wire: Wire
    clock: ManualClock

    def at(self, place: str) -> list[Received]:
        return [request for request in self.requests if place_of(request.body) == place]

    @property
    def calls(self) -> Counter[str]:
        """By place."""
        return Counter(place_of(request.body) for request in self.requests)


@dataclass
class Stage:
    """A provider and a server, for one run after the other."""

    wire: Wire
    provider: ApiProvider
    server: LoopbackServer = field(init=False)
    _spoilt: Callable[[Wire, str], Reply] = field(init=False)
    _places: Collection[str] = ()
    _always: bool = True
    _asked: Counter[str] = field(default_factory=Counter)
    _stalls_before: int = 0

    def __post_init__(self) -> None:
        self.server = LoopbackServer(self._reply)

    def _reply(self, body: dict[str, Any]) -> Reply:
        place = place_of(body)
        self._asked[place] += 1
        if place in self._places and (self._always or self._asked[place] == 1):
            return self._spoilt(self.wire, SAID[place])
        return Reply(text=SAID[place])

    async def play(
        self,
        reply: Callable[[Wire, str], Reply],
        places: Collection[str],
        *,
        always: bool = True,
        stalls: Sequence[tuple[str, Fault]] = (),
        **limits: Any,
    ) -> Played:
        """Run the tree with spoilt replies at these places: each time, or the first only.

        Args:
            stalls: The places where replies will stall, in their order, and why.
        """
        self._spoilt, self._places, self._always = reply, places, always
        self._asked = Counter()
        first = len(self.server.requests)
        clock = ManualClock(sleeps_end=True)
        limits = {"call_timeout_s": CALL_TIMEOUT_S, **limits}
        tree = make_tree(self.provider, clock=clock, **limits)
        ending = asyncio.create_task(self._end_stalls(tree, clock, stalls))
        try:
            await tree.run("the task")
            await ending
        finally:
            ending.cancel()
            self._stalls_before += len(stalls)
        host = self.server.url.removeprefix("http://")
        return Played(tree, self.server.requests[first:], host, self.wire, clock)

    async def _end_stalls(
        self, tree: Tree, clock: ManualClock, stalls: Sequence[tuple[str, Fault]]
    ) -> None:
        times: Counter[str] = Counter()
        for count, (place, fault) in enumerate(stalls, start=1):
            await asyncio.to_thread(self.server.wait_stalled, self._stalls_before + count)
            times[place] += 1
            if fault.shows_text:
                await _heard(tree, PATH_OF_PLACE[place], half_of(SAID[place]), times[place])
            if place != ROOT:
                # Time is everybody's: it would end the sibling's call as well.
                await tree.saw(AgentCompleted, PATH_OF_PLACE[SIBLING])
            if fault.ends_by == "deadline":
                clock.advance(CALL_TIMEOUT_S)
            else:
                self.server.let_go()


async def _heard(tree: Tree, path: str, text: str, times: int) -> None:
    """Wait until the agent was heard to say this, so many times."""
    async for entry in tree.bus.subscribe():
        match entry.event:
            case AgentTextDelta(agent_id=agent_id, text=said):
                times -= path_of(agent_id) == path and said == text
        if times == 0:
            return


@contextlib.asynccontextmanager
async def open_stage(wire: Wire) -> AsyncIterator[Stage]:
    """A stage that checks at its end that no connection is left."""
    with pytest.MonkeyPatch.context() as patch:
        async with opened(wire, patch) as provider:
            stage = Stage(wire, provider)
            with stage.server:
                patch.setenv(wire.url_variable, stage.server.url + wire.url_path)
                yield stage
                await provider.aclose()
                await asyncio.to_thread(stage.server.wait_disconnected)
                assert stage.server.open_connections == 0


@contextlib.asynccontextmanager
async def opened(wire: Wire, patch: pytest.MonkeyPatch, **how: Any) -> AsyncIterator[ApiProvider]:
    """The dialect's provider, with a key in the environment."""
    for name, value in wire.variables.items():
        patch.setenv(name, value)
    async with contextlib.aclosing(wire.provider(**how)) as provider:
        yield provider
