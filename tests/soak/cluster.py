"""Workers killed at any moment of a run: each agent answers, and nothing kept is paid twice.

The cluster's nannies restart a killed worker.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter as Counts
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import agentnb
from agentnb import DaskEngine, Run, Session
from agentnb.core.events import AgentFailed, ModelCallFinished, ModelCallStarted, ToolCallFinished
from agentnb.core.types import (
    CompletionRequest,
    Message,
    Role,
    Stopped,
    StreamEvent,
    TextBlock,
    TextDelta,
    ToolResultBlock,
    ToolUse,
    ToolUseBlock,
    Usage,
    assistant_message,
)
from tests.cluster.natives import note, notes
from tests.cluster.on_cluster import a_cluster

WORKERS = 2
AGENTS = 6
_DEADLINE_S = 60.0
_RESTART_S = 10.0


class Asks:
    """Calls a tool, and answers when it has the result; notes each call."""

    name = "asks"

    def __init__(self, file: str) -> None:
        self._file = file

    async def stream(self, request: CompletionRequest) -> AsyncIterator[StreamEvent]:
        """See `agentnb.core.protocols.Provider`."""
        note(self._file, "call")
        yield Usage(10, 0)
        for word in ("a ", "few ", "words"):
            await asyncio.sleep(0.002)
            yield TextDelta(word)
        yield Usage(10, 3)
        if any(isinstance(b, ToolResultBlock) for m in request.messages for b in m.content):
            yield Stopped("end_turn", assistant_message("a few words"))
            return
        use = ToolUse("t", "work", {"file": self._file})
        yield use
        content = (TextBlock("a few words"), ToolUseBlock(use.id, use.name, use.input))
        yield Stopped("tool_use", Message(Role.ASSISTANT, content))


@agentnb.tool(on_recover="repeat")
def work(file: str) -> str:
    """Work a little, and note it."""
    time.sleep(0.01)
    note(file, "tool")
    return "done"


def points(folder: Path, count: int, seed: int) -> Iterator[tuple[str, list[str]]]:
    """See `tests.soak.__main__`."""
    draw, place = random.Random(seed), 0
    while place < count:
        with a_cluster(WORKERS) as client:
            engine, is_whole = DaskEngine(client), True
            while place < count and is_whole:
                yield _point(folder / f"notes-{place}", draw.randrange(4 * AGENTS), engine)
                place += 1
                is_whole = _has_its_workers_again(client)


def _point(file: Path, after: int, engine: DaskEngine) -> tuple[str, list[str]]:
    agentnb.register_provider("asks", partial(Asks, str(file)), replace=True)
    session = Session(model="asks/model", tools=[work], engine=engine, store=None, config=False)
    run = session.spawn_all([f"task {n}" for n in range(AGENTS)], synthesis=False)
    killed = _kill_after(file, after, run)
    return f"killed {killed} after {after} notes", list(_faults(run, file))


def _kill_after(file: Path, count: int, run: Run[Any]) -> str:
    """Kill the worker that wrote the newest note, when there are `count` notes."""
    ends = time.monotonic() + _DEADLINE_S
    while len(notes(file)) <= count and not run.done and time.monotonic() < ends:
        time.sleep(0.001)
    if run.done or not notes(file):
        return "none"
    with suppress(ProcessLookupError):
        os.kill(notes(file)[-1][0], signal.SIGKILL)
    return "a worker"


def _faults(run: Run[Any], file: Path) -> Iterator[str]:
    try:
        result = run.result(timeout=_DEADLINE_S)
    except Exception as error:
        yield f"the run did not end well: {error!r}"
        return
    if (answered := result.final_response.count("a few words")) < AGENTS:
        yield f"{answered} of {AGENTS} agents answered"
    events = [each.event for each in run.events]
    kept = Counts(
        each.agent_id for each in events if isinstance(each, ModelCallFinished) and not each.error
    )
    started = [each for each in events if isinstance(each, ModelCallStarted)]
    lost = [each for each in events if isinstance(each, ModelCallFinished) and each.error]
    if len(started) != sum(kept.values()) + len(lost):
        yield "a call has no end"
    if any(times != 2 for times in kept.values()):
        yield f"a call that was kept was made again: {dict(kept)}"
    failed = Counts(each.agent_id for each in events if isinstance(each, AgentFailed))
    if any(times > 1 for times in failed.values()):
        yield f"an agent lost more than one attempt to one worker: {dict(failed)}"
    if tools := [e for e in events if isinstance(e, ToolCallFinished) and e.is_error]:
        yield f"a tool without effects failed: {tools[0].result}"


def _has_its_workers_again(client: Any) -> bool:
    """Whether a killed worker was restarted; Dask's nannies miss one now and then."""
    ends = time.monotonic() + _RESTART_S
    while len(client.scheduler_info(n_workers=-1)["workers"]) < WORKERS:
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)
    return True
