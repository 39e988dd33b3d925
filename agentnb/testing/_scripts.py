"""Scripts for a `ScriptedProvider`: agents' replies in a test, and the requests they got."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from html import escape
from typing import Any

from agentnb.cassette.decode import task_in
from agentnb.core.types import CompletionRequest, ToolResultBlock, ToolUse
from agentnb.providers.scripted import AnyReply, Reply, ScriptedProvider, ScriptExhausted

Answer = AnyReply | Callable[[CompletionRequest], AnyReply | Awaitable[AnyReply]]
"""A reply, or a function, sync or async, that makes it from the request."""


def spawn(*tasks: str, mode: str = "parallel", before: str = "") -> str:
    """A reply that delegates: a spawn block with these tasks.

    Args:
        tasks: The task of each sub-agent.
        mode: `parallel` or `sequential`.
        before: The agent's text before the block.

    Example:
        `ScriptedProvider([spawn("a", "b"), "the first", "the second", "both"])`
    """
    agents = "".join(f'<agent task="{escape(task)}" />' for task in tasks)
    block = f'<spawn_agents mode="{mode}">{agents}</spawn_agents>'
    return f"{before}\n\n{block}" if before else block


def tool_calls(*calls: tuple[str, Mapping[str, Any]], text: str = "") -> Reply:
    """A reply that calls tools.

    Args:
        calls: Name and input of each call.
        text: The agent's text before the calls.

    Example:
        `ScriptedProvider([tool_calls(("search", {"query": "Paris"})), "I found it."])`
    """
    uses = [ToolUse(f"use_{at}_{name}", name, given) for at, (name, given) in enumerate(calls)]
    return Reply(text, tool_uses=tuple(uses))


def task_of(request: CompletionRequest) -> str:
    """The agent of a request: a sub-agent's task, or `root`."""
    return task_in(request.system) or "root"


def by_agent(replies: Mapping[str, Answer | Sequence[Answer]]) -> ScriptedProvider:
    """A model with separate replies for each agent, whatever the order of their calls.

    Args:
        replies: By task, and by `root` for the root: a list of replies, one for each call, or a
            single reply for every call. A function of the request, sync or async, may replace a
            reply. Agents not named answer `done: TASK`.

    Example:
        `by_agent({"root": [spawn("a", "b"), "both"], "a": "the first"})`
    """
    used: Counter[str] = Counter()

    def answer(request: CompletionRequest) -> AnyReply | Awaitable[AnyReply]:
        task = task_of(request)
        rule = replies.get(task, f"done: {task}")
        if not isinstance(rule, str) and isinstance(rule, Sequence):
            used[task] += 1
            if used[task] > len(rule):
                return ScriptExhausted(
                    f"Call {used[task]} of agent {task!r} has no scripted reply: there are "
                    f"{len(rule)}. Add one; to run a cell again, first make a new script."
                )
            rule = rule[used[task] - 1]
        return rule(request) if callable(rule) else rule

    return ScriptedProvider(answer)


def requests_of(provider: ScriptedProvider, task: str) -> list[CompletionRequest]:
    """The requests of one agent, in order.

    Args:
        provider: The model.
        task: The agent's task, or `root`.
    """
    return [request for request in provider.requests if task_of(request) == task]


def tool_results_in(request: CompletionRequest) -> list[str]:
    """The tool results in a request, in order."""
    blocks = [block for message in request.messages for block in message.content]
    return [block.text for block in blocks if isinstance(block, ToolResultBlock)]


class Hold:
    """Stops a scripted stream until a test releases it, from any thread: `Reply(pause=hold)`.

    Args:
        timeout_s: Longest wait for a stream, against hangs.

    Example:
        hold = Hold()
        run = Session(provider=ScriptedProvider([Reply("hello", pause=hold)])).spawn("a task")
        hold.wait()  # the agent is in the middle of its answer
        run.cancel()
    """

    def __init__(self, timeout_s: float = 120.0) -> None:
        self.reached = threading.Event()
        """Set once a stream has come."""
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._open = False
        self._came = 0
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._watching: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def __call__(self) -> None:
        """Stop here. For the stream."""
        go = asyncio.Event()
        with self._lock:
            self._came += 1
            if self._open:
                go.set()
            self._waiting.append((asyncio.get_running_loop(), go))
            self.reached.set()
            watching, self._watching = self._watching, []
        _set_all(watching)
        await go.wait()

    @property
    def count(self) -> int:
        """The number of streams that have stopped here so far."""
        with self._lock:
            return self._came

    def release(self) -> None:
        """Let all streams continue, later ones included."""
        with self._lock:
            self._open = True
            waiting, self._waiting = self._waiting, []
        _set_all(waiting)

    def wait(self) -> None:
        """Block until a stream stops here.

        Raises: TimeoutError: None stopped in time.
        """
        if not self.reached.wait(self._timeout_s):
            raise TimeoutError(f"No stream came to the hold within {self._timeout_s:g} s.")

    async def until_reached(self) -> None:
        """Wait, on any loop, until a stream stops here.

        Raises: TimeoutError: None stopped in time.
        """
        came = asyncio.Event()
        with self._lock:
            if self.reached.is_set():
                return
            self._watching.append((asyncio.get_running_loop(), came))
        async with asyncio.timeout(self._timeout_s):
            await came.wait()


def _set_all(events: Sequence[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    for loop, event in events:
        if not loop.is_closed():
            loop.call_soon_threadsafe(event.set)
