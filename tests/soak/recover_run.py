"""The run that `tests.soak.recover` kills: the cells of its kernels, and what its models say.

It has three levels. Part 1 delegates by tools to a profile whose models use the other dialect; part
2 by a block; part 3 by a sequence. One sub-agent fails for good and its parent continues without
it; two break off in mid-reply and are retried; two calls meet a server error once. All of it
follows from the agent, how often it has answered, and the number of the try.
"""

from __future__ import annotations

import asyncio
import html
import itertools
import os
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import agentnb
from agentnb import Run, Session
from agentnb.core._call import services
from agentnb.core.records import Kept
from agentnb.store.held import HeldJournal
from tests.loopback import Reply, Step, ToolCall, completions, messages, system_of
from tests.support import spawn

ANSWER = "The answer: two parts and a half."
SETTINGS = """
tools:
  spawn:
    profiles:
      other:
        description: Speaks the other dialect.
        pool: other
llm:
  pools:
    other: [openai/m]
"""
PIECE = 64
"""Characters of a reply in one piece."""


# -- the kernel -----------------------------------------------------------------------------------


def store_in(folder: Path) -> Path:
    """The store of the run."""
    return folder / "x.db"


def orders_in(folder: Path) -> Path:
    """A file with a line for each order that any kernel gave."""
    return folder / "orders"


def begin(folder: Path, url: str) -> Run:
    """Start the run."""
    return _session(folder, url).spawn("Plan.", name="the run", tags=["recover"])


def recover(folder: Path, url: str, run_id: str, *, dies_after: int | None = None) -> Run:
    """Recover the run.

    Args:
        folder: The store's folder.
        url: The server's.
        run_id: The run.
        dies_after: The process is killed after replaying this many things.
    """
    if dies_after is not None:
        _die_after(dies_after)
    return _session(folder, url).recover(run_id)


def _die_after(count: int) -> None:
    """Kill the process when `count` replayed things are held; at the frontier all are released."""
    held, keep = itertools.count(1), HeldJournal.keep

    def dying(self: HeldJournal, record: Kept) -> None:
        keep(self, record)
        if next(held) == count:
            os.kill(os.getpid(), signal.SIGKILL)

    HeldJournal.keep = dying  # type: ignore[method-assign]


def _session(folder: Path, url: str) -> Session:
    os.environ |= {"ANTHROPIC_BASE_URL": url, "OPENAI_BASE_URL": f"{url}/v1"}
    os.environ |= {"ANTHROPIC_API_KEY": "not-a-key", "OPENAI_API_KEY": "not-a-key"}
    services._FIRST_DELAY_S = 0.02  # the wait before a retry is not tested
    settings = folder / "agentnb.yaml"
    settings.write_text(SETTINGS)

    @agentnb.tool(on_recover="repeat")
    async def look_up(what: str) -> str:
        """Look something up."""
        await asyncio.sleep(0)
        return "found: " + what * 2

    @agentnb.tool(on_recover="repeat")
    def measure(what: str) -> str:
        """Measure something."""
        return "measured: " + what * 200

    @agentnb.tool
    def order(what: str) -> str:
        """Order something, which nobody wants to have twice."""
        with orders_in(folder).open("a") as file:
            file.write(f"{what}\n")
        return f"ordered: {what}"

    return agentnb.configure(
        model="anthropic/m",
        store=store_in(folder),
        config=settings,
        delegation="both",
        nested_spawn=True,
        tools=[look_up, measure, order],
        budget=10_000_000,
    )


# -- what the models say --------------------------------------------------------------------------


class Call(NamedTuple):
    """A call of the run, the same for each try of it."""

    task: str
    """Its agent's task."""
    turns: int
    """How often the agent had answered before."""


LAST = Call("root", 1)


def call_of(system: str, roles: Sequence[str]) -> Call:
    """The call with this system prompt, and with messages of these roles."""
    found = re.search(r"<task>\n(.*)\n</task>\Z", system, re.DOTALL)
    return Call(html.unescape(found[1]) if found else "root", roles.count("assistant"))


def call_in(body: dict[str, Any]) -> Call:
    """The call that a request makes, in either dialect."""
    return call_of(system_of(body), [message["role"] for message in body["messages"]])


def reply_to(call: Call, body: dict[str, Any], number: int) -> Reply:
    """The reply to the try of this number, from 1."""
    # By default an error names the request by the server's count, which differs between kernels.
    headers = {"request-id": f"req_{call.task}_{call.turns}_{number}".replace(" ", "_")}
    match call.task, call.turns, number:
        case "detail 2.1", 1, _:
            return Reply(status=400, message="This is not done.", headers=headers)
        case "detail 1.1", 1, 1:
            return Reply(status=500, message="Come again.", headers=headers)
        case "detail 3.1", 1, 1:
            return Reply(status=529, message="Come again.", headers=headers)
    steps = _steps(_said(call), body)
    if call in BREAK_OFF and number == 1:
        begun = next(place for place, step in enumerate(steps) if "broken off" in str(step))
        steps = [*steps[: begun + 1], _BROKEN]
    return Reply(events=steps)


BREAK_OFF = (Call("detail 1.2", 1), Call("detail 2.2", 1))
_ERROR = {"type": "overloaded_error", "message": "Something broke."}
_BROKEN: Step = ("error", {"type": "error", "error": _ERROR})
"""An error in the middle of a stream; both dialects read it."""


def _steps(reply: Reply, body: dict[str, Any]) -> list[Step]:
    speak: Callable[..., Any] = messages.steps if "system" in body else completions.steps
    return list(speak(replace(reply, chunk=PIECE), body, number=0))


def _said(call: Call) -> Reply:
    task, turns = call
    kind, _, number = task.partition(" ")
    if kind == "root":
        plan = spawn("part 1", "part 2", "part 3", before=_long("The plan", 200))
        return Reply(text=ANSWER if turns else plan)
    if kind == "detail":
        done = f"{'It may be broken off: ' if call in BREAK_OFF else ''}{_long(task, 600)}"
        return Reply(text=done) if turns else _uses(call, "order", what=task)
    details = [f"detail {number}.{one}" for one in (1, 2)]
    match number, turns:
        case "1", 0:
            return _uses(call, "look_up", what=_long(task, 1_500))
        case "1", 1 | 2:
            return _uses(call, "spawn", task=details[turns - 1], profile="other")
        case "1", 3:
            return _uses(call, "spawn_await", job_ids="*")
        case "2", 0:
            return _uses(call, "measure", what=task)
        case "2", 1:
            return Reply(text=spawn(*details, before="Side by side."))
        case "3", 0:
            return Reply(text=spawn(*details, mode="sequential", before="In turn."))
    return Reply(text=_long(f"{task} is done", 300))


def _uses(call: Call, name: str, **given: str) -> Reply:
    # The server's own ids would depend on its count.
    use = ToolCall(name, given, id=f"use_{call.task}_{call.turns}".translate(_FOR_IDS))
    return Reply(text=f"{call.task} goes on.", tool_uses=[use])


_FOR_IDS = str.maketrans(" .", "__")


def _long(name: str, length: int) -> str:
    """A text in which each place differs from the others."""
    return "".join(f"{name}, sentence {at}. " for at in range(length // 12))[:length].rstrip()
