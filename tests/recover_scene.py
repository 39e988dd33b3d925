"""A process that is killed in the middle of a run, and the session that continues the run."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

import agentnb
from agentnb import Reply, Run, Session
from agentnb.core.events import AgentCompleted, ToolCallReported
from agentnb.core.types import CompletionRequest, ToolUse, Usage
from agentnb.providers.scripted import AnyReply, ScriptedProvider
from tests.files_of import png
from tests.forks import Say, killed_when_it_says
from tests.support import DEADLINE_S, Hold, events_of, path_of, spawn, task_of, until

Model = Callable[[CompletionRequest], AnyReply]


def told_by(request: CompletionRequest) -> int:
    """The number of an agent's messages before this call."""
    return len(request.messages)


def delegates(request: CompletionRequest, hold: Hold | None) -> AnyReply:
    """Three levels; B answers only when its hold is released."""
    task = task_of(request)
    if task == "root":
        return spawn("A", "B") if told_by(request) == 1 else "All of it."
    if task == "A":
        return spawn("A1", "A2", mode="sequential") if told_by(request) == 1 else "Both."
    if task == "B":
        return Reply("The answer of B.", pause=hold)
    return f"{task} is done."


def calls_a_tool(request: CompletionRequest, hold: Hold | None) -> AnyReply:
    """One agent that calls `order_it`, which never ends in the process that is killed."""
    if told_by(request) == 1:
        return Reply(tool_uses=(ToolUse("u1", "order_it", {"what": "a chair"}),))
    return f"It said: {request.messages[-1].content[0].text}"  # type: ignore[union-attr]


def is_asked_again(request: CompletionRequest, hold: Hold | None) -> AnyReply:
    """One agent that never answers a second message."""
    return Reply("An answer.", pause=hold if told_by(request) > 1 else None)


def is_planned(request: CompletionRequest, hold: Hold | None) -> AnyReply:
    """Sub-agents with tasks from a person; B answers only when its hold is released."""
    task = task_of(request)
    if task == "B":
        return Reply("The answer of B.", pause=hold)
    return "All of it." if task == "root" else f"{task} is done."


def has_a_profile(request: CompletionRequest, hold: Hold | None) -> AnyReply:
    """A sub-agent of a profile has ended; the root's last call is open."""
    if task_of(request) != "root":
        return "A is done."
    calls: dict[int, tuple[str, dict[str, Any]]] = {
        1: ("spawn", {"task": "A", "profile": "reviewer"}),
        3: ("spawn_await", {"job_ids": "*"}),
    }
    if (call := calls.get(told_by(request))) is not None:
        return Reply(tool_uses=(ToolUse(f"u{told_by(request)}", *call),))
    return Reply("All of it.", pause=hold)


PROFILE = (
    "tools: {spawn: {enabled: true, profiles: {reviewer: {description: Reads, system_prompt: %s}}}}"
)
"""The settings file of that scene, in the store's folder."""

LONG = " ".join(["x" * 60] * 600)
"""About 9,000 tokens."""
SMALL, BIG = 40_000, 200_000
"""Budgets of a run that the first one exhausts."""


def is_exhausted(request: CompletionRequest, hold: Hold | None) -> AnyReply:
    """A, B and C work one after the other; the small budget ends in the middle of B."""
    task = task_of(request)
    if task == "root":
        if told_by(request) == 1:
            return Reply(spawn("A", "B", "C", mode="sequential"), usage=Usage(29_000, 1_000))
        return "All of it."
    return Reply(LONG, pause=hold) if task == "B" else f"{task} is done."


def maps_files(request: CompletionRequest, hold: Hold | None) -> AnyReply:
    """A row for each of two images and a PDF; `b.png` is answered when its hold is released."""
    prompt = request.messages[0].text
    return Reply(f"Seen: {prompt}", pause=hold if "b.png" in prompt else None)


def draws(request: CompletionRequest, hold: Hold | None) -> AnyReply:
    """One agent whose tool gave it pictures; its answer to them is held."""
    if told_by(request) == 1:
        return Reply(tool_uses=(ToolUse("u1", "draw", {}),))
    return Reply("Seen.", pause=hold)


@agentnb.tool
def draw() -> list[Any]:
    """A picture twice, and words."""
    return ["black", png(640, 480), png(640, 480)]


def runs_code(request: CompletionRequest, hold: Hold | None) -> AnyReply:
    """One agent whose second cell never ends in the process that is killed."""
    at = told_by(request)
    cells = {1: "total = sum(numbers)\ntotal", 3: "while True:\n    pass", 7: "total"}
    if at in cells:
        return Reply(tool_uses=(ToolUse(f"u{at}", "python", {"code": cells[at]}),))
    if at == 5:
        return Reply(tool_uses=(ToolUse("u5", "inspect", {"name": "numbers"}),))
    return "Done."


class Score(BaseModel):
    value: int = Field(le=10)


def is_typed(request: CompletionRequest, hold: Hold | None) -> AnyReply:
    """A's first answer is not of its type, its second is; B answers when its hold is released."""
    task = task_of(request)
    if task == "A":
        wrong = told_by(request) == 1
        return '{"value": 11}' if wrong else '{"value": 3}'
    return Reply('{"value": 4}', pause=hold if task == "B" else None)


SCENES: dict[str, Callable[[CompletionRequest, Hold | None], AnyReply]] = {
    "delegates": delegates,
    "calls a tool": calls_a_tool,
    "asks for approval": calls_a_tool,
    "is asked again": is_asked_again,
    "is planned": is_planned,
    "is planned in turn": is_planned,
    "has a profile": has_a_profile,
    "is exhausted": is_exhausted,
    "is paused": delegates,
    "maps files": maps_files,
    "is typed": is_typed,
    "draws": draws,
    "runs code": runs_code,
}


WITH_TOOL = ("calls a tool", "asks for approval")
"""Scenes with the tool `order_it`."""


def begin(session: Session, scene: str, **more: Any) -> Run[Any]:
    """Start the run of a scene."""
    if scene == "is typed":
        return session.spawn_all(["A", "B"], synthesis=False, max_depth=1, output=Score)
    if scene == "is planned":
        return session.spawn_all(["A", "B"])
    if scene == "is planned in turn":
        return session.spawn_all(["A", "B", "C"], "sequential", synthesis=False)
    if scene == "maps files":
        assert session.store.path is not None
        folder = session.store.path.parent
        paths = [folder / name for name in ("a.png", "b.png", "c.pdf")]
        return session.map(paths, "What is {{name}}?", judges=1, retry_failed=0)
    if scene == "runs code":
        more |= {"give": {"numbers": [1, 2, 3]}, "code": "worker"}
    return session.spawn("the task", **more)


def settings_of(store: Path, scene: str) -> dict[str, Any]:
    """The settings of a scene's session, but for its tools."""
    config = store.with_name("agentnb.yaml")
    return {"store": store, "config": config if scene == "has a profile" else False}


def session_of(
    store: Path,
    scene: str,
    ordered: list[str] | None = None,
    on_recover: str = "tell",
    **settings: Any,
) -> tuple[Session, ScriptedProvider]:
    """The session that continues a scene. The orders of its tool are added to `ordered`."""
    provider = ScriptedProvider(lambda request: SCENES[scene](request, None))

    @agentnb.tool(on_recover=on_recover, approval=scene == "asks for approval")
    def order_it(what: str) -> str:
        if ordered is not None:
            ordered.append(what)
        return f"{what} is ordered"

    given = {"tools": _tools_of(scene, order_it), **settings}
    return Session(provider=provider, **settings_of(store, scene), **given), provider


def _tools_of(scene: str, order_it: Any) -> Sequence[Any]:
    return [draw] if scene == "draws" else [order_it] if scene in WITH_TOOL else ()


def killed(store: Path, scene: str, *recovers: str) -> str:
    """Let a process begin or recover a scene, and die in it. Returns the run's id."""
    run_id: str = killed_when_it_says(_be_killed, store, scene, *recovers)
    return run_id


def _be_killed(say: Say, store: Path, scene: str, recovers: str = "") -> None:
    hold = Hold()

    @agentnb.tool(approval=scene == "asks for approval")
    def order_it(what: str) -> str:
        hold.reached.set()
        with suppress(KeyboardInterrupt):
            signal.pause()
        return what

    tools = _tools_of(scene, order_it)
    provider = ScriptedProvider(lambda request: SCENES[scene](request, hold))
    session = Session(provider=provider, tools=tools, **settings_of(store, scene))
    more: dict[str, Any] = {}
    if scene == "is exhausted":
        more["budget"] = BIG if recovers else SMALL
    if recovers:
        run = session.recover(recovers, **more)
    else:
        run = begin(session, scene, **more)
    if scene == "is exhausted" and not recovers:
        hold.release()
        run.result(DEADLINE_S)
    if scene == "is asked again":
        run.result(DEADLINE_S)
        run = session.thread(run.thread_id).send("And now?")
    if scene == "is paused" and recovers:
        assert run.paused == ("root",)
    elif scene == "asks for approval":
        asyncio.run(until(lambda: run.questions))
    elif scene == "runs code":
        # Its code runs, so the call's intent is on disk.
        asyncio.run(until(lambda: "it runs" in _reported(run, "u3")))
    else:
        assert hold.reached.wait(DEADLINE_S)
    if scene not in (*WITH_TOOL, "is asked again", "draws", "runs code"):
        asyncio.run(until(lambda: "1" in _ended(run)))
    if scene == "is paused":  # while the last answer streams
        run.pause()
        hold.release()
        asyncio.run(until(lambda: "2" in _ended(run)))
    say(run.id)
    signal.pause()


def _reported(run: Run[Any], tool_use_id: str) -> list[str]:
    """What a tool call has reported."""
    found = events_of(run.events, ToolCallReported)
    return [each.text for each in found if each.tool_use_id == tool_use_id]


def _ended(run: Run) -> list[str]:
    """Paths of the agents with a reported end."""
    return [path_of(each.agent_id) for each in events_of(run.events, AgentCompleted)]
