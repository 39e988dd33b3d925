"""A tree in which one agent stands in a certain phase, and the others where they can be seen.

    root
    ├─ 1  P
    │  ├─ 1.1  L
    │  └─ 1.2  M
    └─ 2  S

The one that stands still is L in its only call, or P or the root in its synthesis. S streams and
is held for as long as it is not the root that stands.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

from agentnb.core.budget import Reservation
from agentnb.core.bus import EventBus
from agentnb.core.errors import RateLimited
from agentnb.core.events import AgentCompleted, AgentWaiting, BudgetWarning
from agentnb.core.protocols import ToolContext
from agentnb.core.tree import TreeFold
from agentnb.core.types import (
    CompletionRequest,
    OrchestratorResult,
    StreamEvent,
    ToolSpec,
    ToolUse,
    Usage,
)
from agentnb.providers.scripted import AnyReply, Reply
from agentnb.run import Run
from agentnb.runtime import Runtime, get_runtime
from tests.core.clock import ManualClock
from tests.support import Hold, Tree, by_agent, make_tree, path_of, spawn, task_of

TELLS_THAT_IT_WAITS = ("gate", "budget", "question", "retry")
PHASES = (*TELLS_THAT_IT_WAITS, "no reply", "no text", "text", "tool")

BUSY = {"1.1": ("1.1", "1", "root"), "1": ("1", "root"), "root": ("root",)}
"""Who stands still, and who may be cancelled then: the same agent, or one above it."""

SITUATIONS = [
    (phase, busy, target)
    for phase in PHASES
    for busy, targets in BUSY.items()
    for target in targets
    # The root's synthesis has the pot to itself, and waits for no answer.
    if (phase, busy) not in (("budget", "root"), ("question", "root"))
]

SAID = "this far I"


class Situation:
    """One agent in one phase. `tree` has not begun."""

    def __init__(self, phase: str, busy: str) -> None:
        self.phase, self.busy = phase, busy
        self._stands, self._sibling = Hold(), Hold()
        self._room: Reservation | None = None
        self.provider = by_agent(self._script())
        self._answer = self.provider.stream
        self.provider.stream = self._stream  # type: ignore[method-assign]
        self.tree = make_tree(
            self.provider,
            budget=100_000,
            clock=ManualClock(),
            gate=_Doorman(self._before_call),
            budget_gate=self._ask if phase == "question" else None,
            tools=[_Tool(self._stands)] if phase == "tool" else (),
        )
        if busy == "root":
            self._sibling.release()

    async def reached(self) -> None:
        """Wait, on any loop, until all stand where they should."""
        if self.busy != "root":
            await self._sibling.until_reached()
        if self.phase in TELLS_THAT_IT_WAITS:
            await self.tree.saw(AgentWaiting, self.busy)
        else:
            await self._stands.until_reached()
        if self.busy == "1.1":
            waits_too = self.phase in ("gate", "budget", "question")
            await self.tree.saw(AgentWaiting if waits_too else AgentCompleted, "1.2")

    def let_go(self) -> None:
        """Let everyone go on who is left."""
        self._stands.release()
        if self._room is not None:
            self._room.release()
        self._sibling.release()

    # -- what holds it ------------------------------------------------------------------------

    def _script(self) -> Mapping[str, Any]:
        replies: dict[str, AnyReply] = {
            "retry": RateLimited("slow down", retry_after_s=50),
            "no text": Reply(pause=self._stands),
            "text": Reply(f"{SAID} came and no further", pause=self._stands),
            "tool": Reply("I look it up.", tool_uses=(ToolUse("t1", "look_up", {}),)),
        }
        standing = replies.get(self.phase, "never said")

        def reply(text: str, *, last_before: str) -> AnyReply:
            """One that crosses the budget's warning line where the next call is to be asked."""
            if (self.phase, self.busy) != ("question", last_before):
                return text
            return Reply(text, usage=Usage(85_000, 0), pause=self._sibling.until_reached)

        plan = reply(spawn("L", "M", before="Two parts."), last_before="1.1")
        both = standing if self.busy == "1" else "both together"
        return {
            "root": [spawn("P", "S"), standing if self.busy == "root" else "all together"],
            "P": [plan, both],
            "L": standing if self.busy == "1.1" else "L is done",
            "M": reply("M is done", last_before="1"),
            "S": Reply("S said it all", pause=self._sibling),
        }

    async def _stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        call = (task_of(request), "<sub_agent_results>" in request.last_user_text)
        stands = {"1.1": ("L", False), "1": ("P", True), "root": ("root", True)}[self.busy]
        if self.phase == "no reply" and call == stands:
            await self._stands()
        async with aclosing(cast("AsyncGenerator[StreamEvent]", self._answer(request))) as events:
            async for event in events:
                yield event

    async def _before_call(self, number: int, on_wait: Callable[[str, float | None], None]) -> None:
        """Before the number-th call of the run, of which so many come before the one that waits."""
        if number <= {"1.1": 3, "1": 5, "root": 6}[self.busy]:
            return
        if self.phase == "gate":
            on_wait("a place", None)
            await self._stands()
        if self.phase == "budget" and self._room is None:
            budget = self.tree.request.budget
            self._room = budget.reserve(budget.available)

    async def _ask(self, warning: BudgetWarning) -> str:
        await self._stands()
        return "continue"


class _Doorman:
    """A gate that counts the calls."""

    def __init__(
        self,
        before_call: Callable[[int, Callable[[str, float | None], None]], Any],
    ) -> None:
        self._before_call = before_call
        self._calls = 0

    @asynccontextmanager
    async def acquire(
        self, model: str, *, on_wait: Callable[[str, float | None], None]
    ) -> AsyncIterator[None]:
        self._calls += 1
        await self._before_call(self._calls, on_wait)
        yield

    def throttle(self, model: str, seconds: float) -> None:
        return


class _Tool:
    spec = ToolSpec("look_up", "Looks it up, which takes long.", {"type": "object"})

    def __init__(self, stands: Hold) -> None:
        self._stands = stands

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> str:
        await self._stands()
        return "never found"


def open_below(bus: EventBus, path: str) -> list[str]:
    """The paths of the agents that have no end yet: `path` itself and all below it."""
    below = (
        (path_of(node.agent_id), node.status.is_terminal)
        for node in TreeFold(bus.entries).in_path_order()
    )
    return [p for p, ended in below if not ended and is_below(p, path)]


def is_below(path: str, other: str) -> bool:
    """Whether `path` is `other`, or stands below it."""
    return other == "root" or path == other or path.startswith(f"{other}.")


# -- the same tree on the runtime ------------------------------------------------------------------


def execution_of(tree: Tree) -> Coroutine[Any, Any, OrchestratorResult]:
    return tree.orchestrator.execute(
        tree.provider,
        tree.context,
        "the task",
        tree.request,
        tree.bus,
        budget_gate=tree.budget_gate,
        tools=tree.tools,
    )


def on_the_runtime(tree: Tree, runtime: Runtime | None = None) -> Run:
    """Start a tree as a session would."""
    return Run(
        "the task",
        execution_of(tree),
        request=tree.request,
        bus=tree.bus,
        runtime=runtime or get_runtime(),
    )
