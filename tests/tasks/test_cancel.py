"""A cancel reaches what the cancelled run has assigned, wherever that is by now."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest

from agentnb import AgentStatus, Reply, Session
from agentnb.core.errors import RunCancelled
from agentnb.core.types import CompletionRequest
from agentnb.providers.scripted import AnyReply, ScriptedProvider
from agentnb.run import Run
from tests.support import DEADLINE_S, Hold, spawn, until
from tests.tasks.keeping import Keeping, ended
from tests.tasks.scripts import (
    BEGINS,
    NEW,
    ROOT,
    Play,
    assigned,
    by_title,
    create,
    once,
    reasons,
    results,
    tools,
    worked_on,
)

ENOUGH = ("blocked", "The run was cancelled (enough).")


def agent_in(result: str) -> str:
    """The thread of the agent in the result of `task_create`."""
    found = re.search(r"nb_[\w.]+", result)
    assert found is not None
    return found[0]


def held(hold: Hold, text: str = "some words") -> Reply:
    return Reply(text, pause=hold)


def statuses(runs: list[Run]) -> list[str]:
    return [str(run.status) for run in runs]


@pytest.mark.parametrize("has_ended", [False, True])
def test_cancel_reaches_queued_and_running_work_of_work(has_ended: bool) -> None:
    """Root assigned A and, for the same agent, C; A assigned B. All but root may go on."""
    hold, at_work = Hold(), Hold()

    def root(request: CompletionRequest) -> AnyReply:
        told = results(request)
        if not told:
            return tools(create("A"))
        if len(told) == 1:
            return tools(create("C", to=agent_in(told[0])))
        return "given" if has_ended else held(at_work)

    plays = {ROOT: root, "A": once(create("B"), then=held(hold)), "B": lambda _: held(hold)}
    session = Keeping(provider=by_title(plays), tools=["tasks"], store=None)
    run = session.spawn("x")
    if has_ended:
        ended(run)
    else:
        at_work.wait()
    asyncio.run(until(lambda: len(session.started) == 3 and hold.count == 2))

    run.cancel(reason="enough")

    assert reasons(worked_on(session)) == [ENOUGH] * 3
    asyncio.run(until(lambda: all(each.done for each in session.started)))
    assert statuses(session.started) == ["cancelled"] * 3
    assert run.status is (AgentStatus.COMPLETED if has_ended else AgentStatus.CANCELLED)
    assert [agent.current_task for agent in session.agents()] == [None, None]
    hold.release()
    for agent in session.agents():  # it is still there, and knows what was said
        sent = ended(session.thread(agent.thread_id).send("Are you there?"))
        assert sent.result().output
    texts = [each.content for each in session.thread(f"{run.thread_id}.1").messages]
    assert not any('Title: "C"' in text for text in texts)  # it was never begun


def test_cancel_reaches_what_a_completion_has_begun() -> None:
    """Root assigned A, A assigned B; B is completed, which A hears in a run of its own."""
    work, hold = Hold(), Hold()

    def a(request: CompletionRequest) -> AnyReply:
        if "is completed" in request.messages[-1].text:
            return held(hold)
        return "given" if results(request) else tools(create("B"))

    def b(request: CompletionRequest) -> AnyReply:
        complete = tools(("task_complete", {"id": "t2"}))
        return "done" if results(request) else replace(complete, pause=work)

    plays = {ROOT: once(create("A")), "A": a, "B": b}
    session = Keeping(provider=by_title(plays), tools=["tasks"], store=None)
    run = ended(session.spawn("x"))
    worked_on(session, "t1")
    work.release()
    hold.wait()

    run.cancel(reason="enough")

    (heard,) = session.runs_on(f"{run.thread_id}.1")[1:]
    with pytest.raises(RunCancelled, match="enough"):
        heard.result(DEADLINE_S)


def test_cancel_of_one_agents_run_leaves_the_others_alone() -> None:
    hold = Hold()
    plays = {ROOT: once(create("A"), create("B")), "A": lambda _: held(hold)}
    session = Session(provider=by_title({**plays, "B": plays["A"]}), tools=["tasks"], store=None)
    run = ended(session.spawn("x"))
    asyncio.run(until(lambda: hold.count == 2))
    a, b = (session.thread(f"{run.thread_id}.{n}") for n in (1, 2))

    loaded = session.load(a.runs[0])
    assert isinstance(loaded, Run)
    loaded.cancel(reason="enough")

    assert reasons(worked_on(session, "t1")) == [ENOUGH]
    assert [str(thread.status) for thread in (a, b)] == ["cancelled", "running"]
    hold.release()
    assert reasons(worked_on(session)) == [ENOUGH, ("in_progress", "some words")]


def test_cancel_of_a_branch_leaves_alone_what_its_agents_have_assigned() -> None:
    hold, branch = Hold(), Hold()

    def model(request: CompletionRequest) -> AnyReply:
        if request.messages[0].text.startswith(BEGINS):
            return held(hold)
        if "<task>" in request.system:
            return once(create("A"), then=held(branch))(request)
        return spawn("P") if len(request.messages) == 1 else "end"

    session = Keeping(provider=ScriptedProvider(model), tools=["tasks"], store=None)
    run = session.spawn("x")
    branch.wait()
    hold.wait()

    run.cancel("1")

    assert ended(run).agent("1").status is AgentStatus.CANCELLED
    assert statuses(session.started) == ["running"]
    hold.release()
    assert reasons(worked_on(session)) == [("in_progress", "some words")]


def test_assigned_run_that_is_cancelled_before_its_turn_blocks_its_task() -> None:
    hold = Hold()
    session = Keeping(provider=by_title({"A": lambda _: held(hold)}), tools=["tasks"], store=None)
    a = session.tasks.create("A", "x", assigned_to=NEW)
    session.tasks.create("B", "y", assigned_to=assigned(a))
    session.tasks.create("C", "z", assigned_to=assigned(a))
    hold.wait()

    session.started[1].cancel(reason="enough")

    assert reasons(worked_on(session, "t2")) == [ENOUGH]
    hold.release()
    assert [status for status, _ in reasons(worked_on(session))] == [
        "in_progress",
        "blocked",
        "in_progress",
    ]
    titles = [each.content.splitlines()[1] for each in session.thread(assigned(a)).messages[::2]]
    assert titles == ['Title: "A"', 'Title: "C"']


def manages(hold: Hold) -> dict[str, Play | AnyReply]:
    """A manager that gives a part to another agent, and hears of it."""

    def manager(request: CompletionRequest) -> AnyReply:
        if "is completed" in request.messages[-1].text:
            return "heard"
        return once(create("Part"))(request)

    return {"Whole": manager, "Part": lambda _: held(hold)}


def test_completion_is_heard_also_of_work_that_was_cancelled() -> None:
    hold = Hold()
    session = Keeping(provider=by_title(manages(hold)), store=None)
    session.tasks.create("Whole", "All of it.", assigned_to=NEW)
    (whole,) = worked_on(session, "t1")
    hold.wait()

    session.started[0].cancel(reason="enough")
    assert reasons(worked_on(session, "t2")) == [ENOUGH]
    session.tasks.complete("t2")

    asyncio.run(until(lambda: len(session.runs_on(assigned(whole))) == 2))
    assert ended(session.runs_on(assigned(whole))[1]).result().output == "heard"


def test_completion_whose_run_is_cancelled_before_its_turn_stays_in_the_conversation() -> None:
    """It came while the agent worked, and waits for its turn behind another message."""
    first, second = Hold(), Hold()
    texts = {"first": first, "second": second}

    def manager(request: CompletionRequest) -> AnyReply:
        said = request.messages[-1].text
        return held(texts[said]) if said in texts else once(create("Part"))(request)

    session = Keeping(provider=by_title({"Whole": manager}), store=None)
    session.tasks.create("Whole", "All of it.", assigned_to=NEW)
    whole, _ = worked_on(session)
    thread = session.thread(assigned(whole))
    runs = [thread.send(text) for text in texts]
    first.wait()
    session.tasks.complete("t2")
    first.release()
    second.wait()
    asyncio.run(until(lambda: len(session.runs_on(thread.id)) == 2))

    session.runs_on(thread.id)[1].cancel(reason="enough")
    second.release()

    ended(runs[1])
    told = [each.content for each in thread.messages if "is completed" in each.content]
    assert len(told) == 1
    assert str(thread.status) == "completed"
