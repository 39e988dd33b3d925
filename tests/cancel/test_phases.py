"""A cancel in each phase, of each agent, at each event and at each step: the same promises hold.

`tests.support` checks after each run that nothing is left running, that each agent has one
terminal event, and that no parent's came before its children's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, cast

import pytest

from agentnb.core.cancel import CancelScope
from agentnb.core.errors import RateLimited, RunCancelled
from agentnb.core.events import AgentCancelled, ModelCallStarted
from agentnb.core.protocols import ToolContext
from agentnb.core.types import CompletionRequest, StreamEvent, ToolSpec, ToolUse
from agentnb.providers.scripted import Reply
from tests.cancel.phases import SAID, SITUATIONS, Situation, is_below, open_below
from tests.core.clock import ManualClock
from tests.support import Tree, by_agent, make_tree, path_of, requests_of, spawn


def cancel(tree: Tree, path: str, reason: str = "enough") -> list[CancelScope]:
    return tree.request.cancellation.cancel(tree.id_of(path), reason)


def paths(scopes: list[CancelScope]) -> set[str]:
    return {path_of(scope.agent_id) for scope in scopes}


@pytest.mark.parametrize(("phase", "busy", "target"), SITUATIONS)
async def test_cancel_in_every_phase_stops_the_branch_and_nothing_else(
    phase: str, busy: str, target: str
) -> None:
    situation = Situation(phase, busy)
    tree = situation.tree
    run = tree.start()
    await situation.reached()
    stopped = set(open_below(tree.bus, target))
    others = set(open_below(tree.bus, "root")) - stopped
    calls = len(tree.of(ModelCallStarted))

    first = cancel(tree, target)
    second = cancel(tree, target, "once more")
    for scope in first:
        await scope.ended.wait()
    assert set(open_below(tree.bus, "root")) == others, "the others are where they were"
    assert len(tree.of(ModelCallStarted)) == calls, "and what was stopped asks nothing more"
    situation.let_go()
    await run

    assert paths(first) == stopped
    assert second == []
    assert {path_of(e.agent_id) for e in tree.of(AgentCancelled)} == stopped
    assert {e.reason for e in tree.of(AgentCancelled)} == {"enough"}
    rest = {path for path, status in tree.statuses().items() if status == "completed"}
    assert rest == set(tree.statuses()) - stopped
    if phase == "text":
        assert tree.of(AgentCancelled, busy)[0].text.startswith(SAID)
    if target == "root":
        assert isinstance(tree.error, RunCancelled)
    else:
        assert tree.error is None
        parent = {"1.1": "P", "1": "root"}[target]
        told = requests_of(situation.provider, parent)[-1].last_user_text
        assert f'<result task="{tree.node(target).task}" status="cancelled">' in told
    assert tree.request.budget.reserved == 0
    assert tree.request.clock.pending == 0  # type: ignore[attr-defined]
    assert all(cancel(tree, node.path) == [] for node in tree.result.agent_tree.walk())


# -- at each event, at each step -----------------------------------------------------------------


class Echo:
    spec = ToolSpec("echo", "Says it back.", {"type": "object"})

    async def call(self, input: Any, context: ToolContext) -> str:
        await asyncio.sleep(0)
        return "back"


def a_tree_of_everything() -> Tree:
    """In parallel and in sequence, with a tool, a transport's retry and an agent's second try."""
    echo = Reply("I ask.", tool_uses=(ToolUse("t1", "echo", {}),))
    provider = by_agent(
        {
            "root": [spawn("P", "Q", "R", before="Three parts."), "all of it together"],
            "P": [spawn("P1", "P2"), "both of P"],
            "P1": [echo, "what came back"],
            "P2": [RateLimited("slow down", retry_after_s=5), "P2 at last"],
            "Q": [spawn("Q1", "Q2", mode="sequential"), "both of Q"],
            "R": [Reply("begun and", error=RateLimited("in mid-text")), "R in one piece"],
        }
    )
    at_once = provider.stream

    async def step_by_step(request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        async with aclosing(cast("AsyncGenerator[StreamEvent]", at_once(request))) as events:
            async for event in events:
                await asyncio.sleep(0)
                yield event

    provider.stream = step_by_step  # type: ignore[method-assign]
    return make_tree(provider, clock=ManualClock(sleeps_end=True), tools=[Echo()])


PATHS = ("root", "1", "1.1", "1.2", "2", "2.1", "2.2", "3")


class Canceller:
    """Cancels one agent of a run, once, twice, and looks what it comes to."""

    def __init__(self, tree: Tree, target: str) -> None:
        self.tree, self.target = tree, target
        self.stopped: set[str] = set()
        self._order: list[CancelScope] = []
        self._open: set[str] = set()

    def cancel(self) -> None:
        self._open = set(open_below(self.tree.bus, self.target))
        self._order = cancel(self.tree, self.target)
        self.stopped = paths(self._order)
        assert cancel(self.tree, self.target) == []

    def check(self) -> None:
        tree, stopped = self.tree, self.stopped
        cancelled = {path_of(event.agent_id) for event in tree.of(AgentCancelled)}
        assert stopped <= self._open, "nobody is stopped who had an end"
        # Who comes to be while its parent is being stopped is stopped with it.
        assert paths(self._order) == cancelled >= stopped
        for path in cancelled - stopped:
            assert path not in self._open
            assert any(is_below(path, above) for above in stopped)
        statuses = tree.statuses()
        assert {statuses[path] for path in set(statuses) - cancelled} <= {"completed"}
        if cancelled.isdisjoint({"root", "1", "2"}):
            assert tuple(statuses) == PATHS, "everyone else was started, and has ended"
        assert isinstance(tree.error, RunCancelled) is ("root" in stopped)
        assert [cancel(tree, path) for path in statuses] == [[]] * len(statuses)


@pytest.mark.parametrize("target", PATHS)
async def test_cancel_at_each_event_of_a_life_keeps_every_promise(target: str) -> None:
    whole = await a_tree_of_everything().run()
    life = [e.seq for e in whole.entries if getattr(e.event, "agent_id", "") == whole.id_of(target)]
    stopped = set()
    for place in range(life[0], life[-1] + 2):
        canceller = Canceller(a_tree_of_everything(), target)
        bus = canceller.tree.bus

        def cancel_after(publish: Any, bus: Any, place: int, canceller: Any) -> Any:
            def published(*event: Any) -> Any:
                told = publish(*event)
                if len(bus) == place + 1:
                    canceller.cancel()
                return told

            return published

        for name in ("publish", "publish_text"):
            publish = getattr(bus, name)
            setattr(bus, name, cancel_after(publish, bus, place, canceller))
        await canceller.tree.run()
        canceller.check()
        stopped |= canceller.stopped
    assert stopped == {path for path in PATHS if is_below(path, target)}


@pytest.mark.parametrize("target", PATHS)
async def test_cancel_at_each_step_of_a_life_keeps_every_promise(target: str) -> None:
    first, last = await steps_of_a_life(target)
    stopped = set()
    for step in range(first, last + 2):
        canceller = Canceller(a_tree_of_everything(), target)
        run = canceller.tree.start()
        for _ in range(step):
            await asyncio.sleep(0)
        canceller.cancel()
        await run
        canceller.check()
        stopped |= canceller.stopped
    assert stopped == {path for path in PATHS if is_below(path, target)}


async def steps_of_a_life(target: str) -> tuple[int, int]:
    """The turns of the loop after which an agent is there, and after which it has its end."""
    tree = a_tree_of_everything()
    run = tree.start()
    steps = 0
    first = None
    while not run.done():
        if first is None and tree.id_of(target) in tree.request.cancellation.agent_ids:
            first = steps
        if first is not None and target not in open_below(tree.bus, target):
            await run
            return first, steps
        await asyncio.sleep(0)
        steps += 1
    assert first is not None
    return first, steps
