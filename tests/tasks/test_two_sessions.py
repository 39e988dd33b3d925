"""Two sessions on one id in one process: one order, one at work, one budget."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import agentnb
from agentnb import AgentStatus, Reply, Session
from agentnb.core.errors import RunCancelled, TaskInProgress
from agentnb.core.types import CompletionRequest
from agentnb.providers.scripted import AnyReply, ScriptedProvider
from agentnb.tasks import at_work
from tests.support import DEADLINE_S, Hold, until
from tests.tasks.keeping import Keeping, ended
from tests.tasks.scripts import NEW, assigned, by_title, create, once, reasons, worked_on


def test_messages_of_both_are_answered_in_order_and_one_at_a_time(tmp_path: Path) -> None:
    at_work = most = 0

    async def answer(request: CompletionRequest) -> AnyReply:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0)
        at_work -= 1
        return f"heard {request.messages[-1].text}"

    provider = ScriptedProvider(answer)
    one = Session(provider=provider, store=tmp_path)
    run = ended(one.spawn("1"))
    two = Session(provider=provider, store=tmp_path, id=one.id)

    sent = [each.thread(run.thread_id).send(f"{n}") for n, each in enumerate((two, one, two), 2)]

    assert [ended(each).result().output for each in sent] == ["heard 2", "heard 3", "heard 4"]
    assert most == 1
    texts = [message.content for message in one.thread(run.thread_id).messages]
    assert texts == [text for n in range(1, 5) for text in (f"{n}", f"heard {n}")]


def test_task_that_the_other_session_takes_away_is_begun_by_its_new_agent_only(
    tmp_path: Path,
) -> None:
    hold = Hold()
    provider = by_title({"A": lambda _: Reply("some words", pause=hold)})
    one = Keeping(provider=provider, store=tmp_path)
    a = one.tasks.create("A", "x", assigned_to=NEW)
    one.tasks.create("B", "y", assigned_to=assigned(a))
    hold.wait()
    two = Session(provider=provider, store=tmp_path, id=one.id)

    with pytest.raises(TaskInProgress):
        two.tasks.update("t1", assigned_to=NEW)
    changed = two.tasks.update("t2", assigned_to=NEW)

    assert changed.assigned_to not in (None, a.assigned_to)
    assert reasons(worked_on(two, "t2")) == [("in_progress", "done")]
    hold.release()
    with pytest.raises(RunCancelled, match="withdrawn"):
        one.started[1].result(DEADLINE_S)
    assert one.started[1].status is AgentStatus.CANCELLED
    assert [each.content for each in one.thread(assigned(a)).messages][1:] == ["some words"]


@pytest.fixture
def configured() -> Iterator[None]:
    """The default session as it was."""
    from agentnb import default_session as module

    before = module._default
    yield
    module._default = before


@pytest.mark.usefixtures("configured")
def test_session_that_goes_on_with_other_settings_keeps_the_pots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A creator is told by the session of later, in memory, and draws on the pot of before."""

    def manager(request: CompletionRequest) -> AnyReply:
        if "is completed" in request.messages[-1].text:
            return "heard"
        return once(create("Part"))(request)

    provider = by_title({"Whole": manager, "Part": "some words"})
    before = agentnb.configure(provider=provider, store=None)
    whole = before.tasks.create("Whole", "All of it.", assigned_to=NEW)
    asyncio.run(until(lambda: len(before.tasks.list()) == 2))
    worked_on(before)

    after = agentnb.configure(max_agents=7)
    monkeypatch.setattr(at_work, "_budgets", {})  # as when all that went on before is forgotten
    after.tasks.complete("t2")

    thread = after.thread(assigned(whole))
    asyncio.run(until(lambda: len(thread.runs) == 2 and thread.status.is_terminal))
    assert thread.messages[-1].content == "heard"
