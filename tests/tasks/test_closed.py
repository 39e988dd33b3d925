"""What a closed session leaves is there for whoever opens it again."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agentnb import Reply, Session
from agentnb.core.durable import MessageKind, TaskStatus
from agentnb.core.types import CompletionRequest
from agentnb.providers.scripted import AnyReply
from tests.support import Hold, until
from tests.tasks.scripts import NEW, assigned, by_title, create, once, results, tools


def test_agent_that_was_told_in_its_last_moment_hears_it_later(tmp_path: Path) -> None:
    hold = Hold()

    def manager(request: CompletionRequest) -> AnyReply:
        if "is completed" in request.messages[-1].text:
            return "heard"
        return Reply("some words", pause=hold) if results(request) else tools(create("Part"))

    worker = once(("task_complete", {"id": "t2"}))
    provider = by_title({"Whole": manager, "Part": worker})
    with Session(provider=provider, store=tmp_path) as first:
        whole = first.tasks.create("Whole", "All of it.", assigned_to=NEW)
        hold.wait()
        done = TaskStatus.COMPLETED
        asyncio.run(until(lambda: len(first.tasks.list()) == 2))
        asyncio.run(until(lambda: first.tasks.get("t2").status is done))

    again = Session(provider=provider, store=tmp_path, id=first.id)
    thread = again.thread(assigned(whole))
    asyncio.run(until(lambda: thread.messages[-1].content == "heard"))

    kinds = [each.kind for each in thread.messages]
    assert kinds.count(MessageKind.TASK_COMPLETION) == 1
