"""Changes of tasks from outside: who works on them then, who hears of it, and where from."""

from __future__ import annotations

import asyncio

import pytest

import agentnb
from agentnb import AgentStatus, Reply, Session
from agentnb.core.durable import MessageKind
from agentnb.core.errors import RunCancelled, TaskInProgress
from agentnb.core.types import CompletionRequest
from agentnb.providers.scripted import AnyReply
from tests.support import DEADLINE_S, Hold, until
from tests.tasks.keeping import Keeping, ended
from tests.tasks.scripts import (
    NEW,
    ROOT,
    assigned,
    by_title,
    create,
    once,
    reasons,
    results,
    title_of,
    worked_on,
)


def heard_by(session: Session, thread_id: str) -> list[str]:
    """What the task system has told an agent of completions."""
    messages = session.thread(thread_id).messages
    return [each.content for each in messages if each.kind is MessageKind.TASK_COMPLETION]


def test_task_that_is_given_to_another_before_it_has_begun_is_done_by_that_one_alone() -> None:
    hold = Hold()
    provider = by_title({"A": lambda _: Reply("some words", pause=hold)})
    session = Keeping(provider=provider, store=None)
    a = session.tasks.create("A", "x", assigned_to=NEW)
    b = session.tasks.create("B", "y", assigned_to=assigned(a))
    hold.wait()

    with pytest.raises(TaskInProgress):
        session.tasks.update(a.id, assigned_to=NEW)
    moved = session.tasks.update(b.id, assigned_to=NEW)

    with pytest.raises(RunCancelled, match="withdrawn"):
        session.started[1].result(DEADLINE_S)
    assert reasons(worked_on(session, b.id)) == [("in_progress", "done")]
    hold.release()
    ended(session.started[0])
    assert [each.kind.value for each in session.thread(assigned(a)).messages] == [
        "task_assignment",
        "message",
    ]
    of_b = [each for each in provider.requests if '"B"' in each.messages[-1].text]
    assert [title_of(each) for each in of_b] == ["B"]
    assert [run.thread_id for run in session.started] == [
        assigned(a),
        assigned(a),
        assigned(moved),
    ]


def test_task_that_is_over_can_be_given_to_its_agent_again() -> None:
    session = Keeping(provider=by_title({}), store=None)
    task = session.tasks.create("A", "x", assigned_to=NEW)
    worked_on(session)
    session.tasks.complete(task.id)

    again = session.tasks.update(task.id, assigned_to=assigned(task))

    assert str(again.status) == "in_progress"
    asyncio.run(until(lambda: len(session.started) == 2 and session.started[1].done))
    assert [each.role.value for each in session.thread(assigned(task)).messages] == [
        "user",
        "assistant",
    ] * 2


def test_creator_hears_what_a_person_completes_as_often_as_that_happens() -> None:
    hold = Hold()

    def manager(request: CompletionRequest) -> AnyReply:
        if "is completed" in request.messages[-1].text:
            return "heard"
        return once(create("Part"), ("task_create", {"title": "Own", "prompt": "z"}))(request)

    provider = by_title({"Whole": manager, "Part": lambda _: Reply("some words", pause=hold)})
    session = Keeping(provider=provider, store=None)
    whole = session.tasks.create("Whole", "All of it.", assigned_to=NEW)
    (whole,) = worked_on(session, "t1")
    hold.wait()
    manager_id = assigned(whole)

    session.tasks.complete("t2", note="By hand.")
    asyncio.run(until(lambda: session.thread(manager_id).messages[-1].content == "heard"))
    session.tasks.update("t2", status="in_progress")
    session.tasks.update("t2", status="completed")
    asyncio.run(until(lambda: len(session.runs_on(manager_id)) == 3))
    for run in session.runs_on(manager_id):
        ended(run)
    session.tasks.complete("t1")  # the person's own: nobody is told
    hold.release()
    worked_on(session)

    first, second = heard_by(session, manager_id)
    assert first == second
    assert first.endswith("- By hand.")
    assert heard_by(session, assigned(session.tasks.get("t2"))) == []


def test_tasks_are_changed_from_a_cells_loop_and_from_a_plain_tool() -> None:
    session: Keeping

    @agentnb.tool
    def plain() -> str:
        """Create a task."""
        return session.tasks.create("By a tool", "x", assigned_to=NEW).id

    session = Keeping(
        provider=by_title({ROOT: once(("plain", {}))}), tools=["tasks", plain], store=None
    )

    async def cell() -> str:
        task = session.tasks.create("By a cell", "y", assigned_to=NEW)
        session.tasks.update(task.id, priority="high")
        result = await session.thread(assigned(task)).send("Are you there?")
        return result.output

    assert asyncio.run(cell()) == "done"
    session.run_sync("x")
    assert reasons(worked_on(session)) == [("in_progress", "done")] * 2
    assert [task.created_by for task in session.tasks.list()] == [None, None]


def test_async_tool_is_told_to_change_tasks_in_a_thread() -> None:
    """On the runtime's loop a change would wait for itself."""
    session: Session

    @agentnb.tool
    async def on_the_loop() -> str:
        """Create a task."""
        try:
            session.tasks.create("Never", "x")
        except RuntimeError as error:
            made = await asyncio.to_thread(session.tasks.create, "In a thread", "x")
            return f"{made.id}: {error}"
        return "no error"

    provider = by_title({ROOT: once(("on_the_loop", {}))})
    session = Session(provider=provider, tools=[on_the_loop], store=None)

    assert session.spawn("x").result(DEADLINE_S).status is AgentStatus.COMPLETED
    (told,) = results(provider.requests[-1])
    assert told.startswith("t1: ")
    assert "asyncio.to_thread(session.tasks.create" in told
    assert [task.title for task in session.tasks.list()] == ["In a thread"]
