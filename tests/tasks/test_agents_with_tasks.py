"""Agents that give and do tasks, from outside: a scripted model through a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentnb.core.durable import MessageKind, Task, TaskStatus
from agentnb.core.errors import RunCancelled
from agentnb.core.types import AgentStatus, CompletionRequest, ToolResultBlock, ToolUse
from agentnb.errors import ConfigError
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.session import Session
from agentnb.tasks import format_task_assignment
from agentnb.tools.toolset import TASKS, TOOLSETS
from tests.support import DEADLINE_S, Hold, spawn, task_of, text_of, until

NAMES = list(TOOLSETS[TASKS])
Play = Callable[[CompletionRequest], Reply | str]


def tool(name: str, **input: Any) -> Reply:
    return Reply(tool_uses=(ToolUse("a", name, input),))


def is_of_task(request: CompletionRequest) -> bool:
    """Whether a request is of an agent that was made for a task."""
    return request.messages[0].text.startswith("[TASK SYSTEM] A new task")


def results(request: CompletionRequest) -> list[str]:
    """The results of tools that an agent has had so far."""
    blocks = [block for message in request.messages for block in message.content]
    return [block.text for block in blocks if isinstance(block, ToolResultBlock)]


def offered(request: CompletionRequest) -> list[str]:
    return [spec.name for spec in request.tools]


def played(creator: Play, worker: Play) -> ScriptedProvider:
    return ScriptedProvider(lambda request: (worker if is_of_task(request) else creator)(request))


def creates(request: CompletionRequest) -> Reply | str:
    if not results(request):
        return tool("task_create", title="Part", prompt="Do it.", assigned_to="new:scripted/m")
    return "given"


def completes(request: CompletionRequest) -> Reply | str:
    return "all done" if results(request) else tool("task_complete", id="t1", note="It is 42.")


def completed(session: Session) -> Task:
    """The first task, when it is completed."""
    asyncio.run(until(lambda: session.tasks.get("t1").status is TaskStatus.COMPLETED))
    return session.tasks.get("t1")


def test_agent_makes_an_agent_that_does_the_task_and_completes_it() -> None:
    provider = played(creates, completes)
    session = Session(provider=provider, tools=["tasks"])

    run = session.spawn("x")
    run.result(DEADLINE_S)
    task = completed(session)

    assert (task.created_by, task.assigned_to) == (run.thread_id, f"{run.thread_id}.1")
    assert [note.text for note in task.notes[:1]] == ["It is 42."]
    first = next(request for request in provider.requests if is_of_task(request))
    assert [message.text for message in first.messages] == [format_task_assignment(task)]


def test_person_gives_a_task_to_an_agent_that_has_the_six_tools_and_cannot_delegate() -> None:
    provider = ScriptedProvider(completes)
    session = Session(provider=provider, delegation="both")

    session.tasks.create("Part", "Do it.", assigned_to="new:scripted/m")
    completed(session)

    assert offered(provider.requests[0]) == NAMES
    assert session.agents()[0].created_for_task == "t1"


def test_creator_is_told_on_its_thread() -> None:
    session = Session(provider=played(creates, completes), tools=["tasks"])

    run = session.spawn("x")
    run.result(DEADLINE_S)

    def told() -> list[str]:
        messages = session.thread(run.thread_id).messages
        return [each.content for each in messages if each.kind is MessageKind.TASK_COMPLETION]

    asyncio.run(until(told))
    assert told()[0].endswith("- It is 42.")


def test_tools_of_tasks_are_named_by_a_run_and_by_a_profile(tmp_path: Path) -> None:
    config = tmp_path / "agentnb.yaml"
    config.write_text(
        "tools: {spawn: {profiles: {clerk: {tools: [tasks]}, odd: {tools: [task]}}}}",
        encoding="utf-8",
    )
    provider = ScriptedProvider(lambda request: "done")
    session = Session(provider=provider, config=config)

    session.run_sync("x")
    session.run_sync("x", tools=["tasks"])
    session.run_sync("x", profile="clerk")
    with pytest.raises(ConfigError, match="known: 'workspace', 'memory', 'tasks'"):
        session.run_sync("x", profile="odd")

    assert [offered(request) for request in provider.requests] == [[], NAMES, NAMES]


def test_task_that_is_completed_elsewhere_before_it_began_is_begun_by_nobody(
    tmp_path: Path,
) -> None:
    hold = Hold()
    model = ScriptedProvider(
        lambda request: Reply("a word", pause=hold) if "one" in text_of(request) else "done"
    )
    here = Session(provider=model, store=tmp_path)
    agent = here.tasks.create("one", "Do one.", assigned_to="new:scripted/m").assigned_to
    hold.wait()
    task = here.tasks.create("two", "Do two.", assigned_to=agent)
    run = here.find_run(here.run_ids[0])
    assert run is not None

    elsewhere = Session(provider=model, store=tmp_path, id=here.id)
    elsewhere.tasks.complete(task.id)
    hold.release()

    with pytest.raises(RunCancelled, match="withdrawn"):
        run.result(DEADLINE_S)
    assert run.status is AgentStatus.CANCELLED
    assert here.tasks.get(task.id).status is TaskStatus.COMPLETED
    assert len(model.requests) == 1


def test_sub_agent_makes_an_agent_on_a_thread_below_its_own() -> None:
    def root(request: CompletionRequest) -> Reply | str:
        if task_of(request) == "part":
            return creates(request)
        return "all" if "<sub_agent_result" in text_of(request) else spawn("part")

    session = Session(provider=played(root, completes), tools=["tasks"])

    run = session.spawn("x")
    run.result(DEADLINE_S)

    task = session.tasks.get("t1")
    assert (task.created_by, task.assigned_to) == (f"{run.thread_id}.1", f"{run.thread_id}.1.1")


def test_run_that_is_quicker_than_its_start_finds_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def root(request: CompletionRequest) -> Reply | str:
        if task_of(request) == "part":
            return creates(request)
        return "all" if "<sub_agent_result" in text_of(request) else spawn("part")

    session = Session(provider=played(root, completes), tools=["tasks"], store=None)
    monkeypatch.setattr(session.store, "began", lambda _, run: run.result(DEADLINE_S))

    session.spawn("x")

    assert [task.id for task in session.tasks.list()] == ["t1"]


def test_run_of_a_task_is_listed_by_its_title() -> None:
    session = Session(provider=ScriptedProvider(completes))

    task = session.tasks.create("A part\nof it", "Do it.", assigned_to="new:scripted/m")
    completed(session)

    (run,) = session.thread(str(task.assigned_to)).runs
    assert run.name == "A part of it"
