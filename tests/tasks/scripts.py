"""Scripts for agents that give and do tasks: each is known by the title of its first task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from agentnb.core.durable import Task, TaskStatus
from agentnb.core.types import CompletionRequest, ToolResultBlock, ToolUse
from agentnb.providers.scripted import AnyReply, Reply, ScriptedProvider
from agentnb.session import Session
from tests.support import until

NEW = "new:scripted/m"
BEGINS = "[TASK SYSTEM] A new task"
ROOT = ""
"""Stands for agents that were made for no task."""

Play = Callable[[CompletionRequest], AnyReply]


def tool(name: str, **input: str) -> Reply:
    return Reply(tool_uses=(ToolUse("a", name, input),))


def tools(*calls: tuple[str, Mapping[str, str]]) -> Reply:
    """A reply with several calls."""
    return Reply(tool_uses=tuple(ToolUse(f"a{i}", *call) for i, call in enumerate(calls)))


def create(title: str, prompt: str = "", to: str | None = NEW) -> tuple[str, Mapping[str, str]]:
    """A call that creates a task."""
    input = {"title": title, "prompt": prompt or f"Do {title}."}
    return "task_create", input if to is None else {**input, "assigned_to": to}


def results(request: CompletionRequest) -> list[str]:
    """The results of tools that an agent has had so far."""
    blocks = [block for message in request.messages for block in message.content]
    return [block.text for block in blocks if isinstance(block, ToolResultBlock)]


def title_of(request: CompletionRequest) -> str:
    """The title of the task that an agent was made for; `ROOT` for any other."""
    first = request.messages[0].text
    if not first.startswith(BEGINS):
        return ROOT
    return first.splitlines()[1].removeprefix('Title: "').removesuffix('"')


def once(*calls: tuple[str, Mapping[str, str]], then: AnyReply = "given") -> Play:
    """Makes these calls in its first turn, and then replies."""
    return lambda request: then if results(request) else tools(*calls)


def by_title(plays: Mapping[str, Play | AnyReply]) -> ScriptedProvider:
    """Lets each agent play its part; one that has none answers `done`."""

    def answer(request: CompletionRequest) -> AnyReply:
        play = plays.get(title_of(request), "done")
        return play(request) if callable(play) else play

    return ScriptedProvider(answer)


def assigned(task: Task) -> str:
    """The thread of the agent that a task is assigned to."""
    assert task.assigned_to is not None
    return task.assigned_to


def worked_on(session: Session, *ids: str) -> list[Task]:
    """Wait until no agent works on these tasks any more; all when left out. Returns them."""

    def tasks() -> list[Task]:
        return [task for task in session.tasks.list() if not ids or task.id in ids]

    def over() -> bool:
        return all(task.notes or task.status is not TaskStatus.IN_PROGRESS for task in tasks())

    asyncio.run(until(over))
    return tasks()


def reasons(tasks: list[Task]) -> list[tuple[str, str]]:
    """Status and last note of each task."""
    return [(str(task.status), task.notes[-1].text if task.notes else "") for task in tasks]
