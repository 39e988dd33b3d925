"""A store that fails under agents at work: they go on, and whoever asks is told what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentnb import AgentStatus, Reply, Session
from agentnb.core.errors import RunCancelled
from agentnb.core.events import RunFinished
from agentnb.core.types import CompletionRequest
from agentnb.providers.scripted import AnyReply
from agentnb.store.trouble import StoreTrouble
from tests.support import DEADLINE_S, Hold
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
    tools,
    worked_on,
)

WHAT_IS_WRONG = "it was deleted while this process wrote to it"


def test_file_that_is_deleted_meanwhile_holds_nobody_up(tmp_path: Path) -> None:
    """A is at work, B waits behind it, and root is about to assign C."""
    holds = {"A": Hold(), ROOT: Hold()}
    file = tmp_path / "runs.db"

    def root(request: CompletionRequest) -> AnyReply:
        return "end" if results(request) else replace(tools(create("C")), pause=holds[ROOT])

    provider = by_title({ROOT: root, "A": lambda _: Reply("some words", pause=holds["A"])})
    session = Keeping(provider=provider, tools=["tasks"], store=file)
    a = session.tasks.create("A", "x", assigned_to=NEW)
    session.tasks.create("B", "y", assigned_to=assigned(a))
    run = session.spawn("x")
    thread = session.thread(assigned(a))
    for hold in holds.values():
        hold.wait()

    for each in tmp_path.glob("runs.db*"):
        each.unlink()
    asked: list[Callable[[], object]] = [
        session.tasks.list,
        lambda: session.tasks.create("D", "z", assigned_to=NEW),
        lambda: session.tasks.complete("t1"),
        lambda: thread.send("Are you there?"),
        lambda: thread.messages,
        session.threads,
    ]
    for ask in asked:
        with pytest.raises(StoreTrouble, match=WHAT_IS_WRONG):
            ask()
    for hold in holds.values():
        hold.release()

    at_work, waiting = session.started
    assert ended(run).result().output == "end"
    (told,) = [results(each) for each in provider.requests if results(each)]
    assert WHAT_IS_WRONG in told[0]
    assert ended(at_work).result().output == "some words"
    with pytest.raises(RunCancelled, match=WHAT_IS_WRONG):
        waiting.result(DEADLINE_S)
    assert waiting.status is AgentStatus.CANCELLED
    assert isinstance(waiting.events[-1].event, RunFinished)  # whoever watches it is told
    assert ended(session.spawn("y")).result().output == "end"
    session.close()


def test_file_that_cannot_be_opened_leaves_threads_and_tasks_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "runs.db"
    file.write_text("no database, but long enough to be looked at as one" * 9, encoding="utf-8")
    before = file.read_bytes()
    provider = by_title({ROOT: once(create("A"), then="given"), "A": "some words"})
    session = Session(provider=provider, tools=["tasks"], store=file)

    run = ended(session.spawn("x"))

    assert reasons(worked_on(session)) == [("in_progress", "some words")]
    sent = session.thread(f"{run.thread_id}.1").send("Are you there?")
    assert ended(sent).result().output == "some words"
    assert len(session.thread(run.thread_id).children) == 1
    assert file.read_bytes() == before
