"""A process that is killed at work, and what it leaves to the next one."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from agentnb import Reply, Run, Session
from agentnb.core.events import AgentCompleted
from agentnb.core.types import CompletionRequest, Usage
from agentnb.providers.scripted import AnyReply, ScriptedProvider
from tests.forks import Say, killed_when_it_says
from tests.support import DEADLINE_S, Hold, events_of, path_of, spawn, task_of, until
from tests.tasks.keeping import ended
from tests.tasks.scripts import NEW, Play, create, once, results, title_of, tool, tools

COST = Usage(900, 100)
BUDGET = 60_000
MOST = 2
"""Agents that a run of `assigns` may make."""
SAID = ("one", "two", "three", "four")


class Left(NamedTuple):
    """What a killed process leaves."""

    store: Path
    session_id: str
    run_id: str


def talks(hold: Hold | None) -> Callable[[CompletionRequest], AnyReply]:
    """Each message is given to two sub-agents; `D` answers only when its hold is released."""

    def answer(request: CompletionRequest) -> AnyReply:
        task = task_of(request)
        if task == "D":
            return Reply("The answer of D.", pause=hold)
        if task != "root":
            return f"{task} is done."
        said = request.messages[-1].text
        if said in ("one", "two"):
            return spawn(*("AB" if said == "one" else "CD"))
        return f"heard {len([each for each in request.messages if each.text in SAID])}"

    return answer


def assigns(hold: Hold | None) -> Callable[[CompletionRequest], AnyReply]:
    """The root assigns two tasks and waits for its hold; so does the agent of `Long`."""

    def root(request: CompletionRequest) -> AnyReply:
        if not results(request):
            return tools(create("Part"), create("Long"))
        return Reply("All is given.", pause=hold, usage=COST)

    def part(request: CompletionRequest) -> AnyReply:
        if "is completed" in request.messages[-1].text or results(request):
            return Reply("heard", usage=COST)
        return tool("task_complete", id="t1")

    def long(_: CompletionRequest) -> AnyReply:
        return Reply("x", pause=hold, usage=COST)

    plays: dict[str, Play] = {"": root, "Part": part, "Long": long}
    return lambda request: plays[title_of(request)](request)


def gives(hold: Hold | None) -> Callable[[CompletionRequest], AnyReply]:
    """The agent of `Whole` assigns a part, notes that, and waits for its hold."""

    def whole(request: CompletionRequest) -> AnyReply:
        is_told = "is completed" in request.messages[-1].text
        match len(results(request)):
            case 0 if is_told:
                return "heard"
            case 0:
                return tools(create("Part"))
            case 1:
                return tool("task_note", id="t1", text="It is given.")
        return Reply("All is given.", pause=hold)

    def play(request: CompletionRequest) -> AnyReply:
        if title_of(request) == "Whole":
            return whole(request)
        return once(("task_complete", {"id": "t2"}), then="done")(request)

    return play


SCENES = {"talks": talks, "assigns": assigns, "gives": gives}


def provider_of(scene: str, hold: Hold | None = None) -> ScriptedProvider:
    """What answers in a scene; without a hold nothing waits."""
    return ScriptedProvider(SCENES[scene](hold))


def settings_of(scene: str) -> dict[str, Any]:
    """The settings of a scene's session, but its provider and its store."""
    settings = {"config": False, "budget": BUDGET}
    if scene == "talks":
        return settings
    return {**settings, "tools": ["tasks"], "max_agents": MOST}


def killed(store: Path, scene: str) -> Left:
    """Let a process die in a scene."""
    return Left(store, *killed_when_it_says(_be_killed, store, scene))


def _be_killed(say: Say, store: Path, scene: str) -> None:
    hold = Hold()
    session = Session(provider=provider_of(scene, hold), store=store, **settings_of(scene))
    say((session.id, begin(session, scene, hold)))
    signal.pause()


def begin(session: Session, scene: str, hold: Hold) -> str:
    """Come to where the process is killed. Returns the id of the run that is to go on."""
    if scene == "talks":
        thread = session.thread(ended(session.spawn("one")).thread_id)
        run = thread.send("two")
        thread.send("three")
        assert hold.reached.wait(DEADLINE_S)
        asyncio.run(until(lambda: "3" in _ended(run)))
        return run.id
    if scene == "assigns":
        run = session.spawn("Give it away.")
        asyncio.run(until(lambda: hold.count == 2))
        ends = ["completed", "running", "running"]
        asyncio.run(until(lambda: sorted(str(info.status) for info in session.runs()) == ends))
        return run.id
    whole = session.tasks.create("Whole", "All of it.", assigned_to=NEW)
    assert hold.reached.wait(DEADLINE_S)
    asyncio.run(until(lambda: session.tasks.get("t2").status == "completed"))
    assert whole.assigned_to is not None
    return session.thread(whole.assigned_to).runs[0].id


def _ended(run: Run) -> list[str]:
    """Paths of the agents whose end was told."""
    return [path_of(each.agent_id) for each in events_of(run.events, AgentCompleted)]
