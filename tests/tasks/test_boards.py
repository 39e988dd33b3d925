"""What the live boards read of a session and what they change in it, with a file and in memory."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentnb import Session
from agentnb.core.errors import NoSuchTask, NoSuchThread, SessionClosed
from agentnb.core.types import MediaBlock, ToolOutput, ToolUse
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.tasks.boards import SessionSource, TaskSource, ThreadSource
from agentnb.views.boards.live import LiveReply
from agentnb.views.boards.publisher import BoardPublisher
from agentnb.views.boards.wire import BoardMessage, checked_command
from tests.files_of import png
from tests.support import DEADLINE_S, Hold, run_python, until

Make = Callable[..., Session]
ACTING = "<img src=x onerror=alert(1)>\x1b[31m\u202e"


@pytest.fixture(params=["file", "memory"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    def session(script: Any = None, **settings: Any) -> Session:
        provider = ScriptedProvider(script or (lambda request: "**heard**"))
        store = tmp_path / "kept.db" if request.param == "file" else None
        return Session(provider=provider, store=store, **settings)

    return session


_sources: list[SessionSource] = []


@pytest.fixture(autouse=True)
def _close_files() -> Iterator[None]:
    yield
    while _sources:
        _sources.pop().rest()


def threads_of(session: Session) -> ThreadSource:
    _sources.append(source := ThreadSource(session._house, session.tasks))
    return source


def tasks_of(session: Session) -> TaskSource:
    _sources.append(source := TaskSource(session._house, session.tasks))
    return source


def order(kind: str, **fields: Any) -> Any:
    return checked_command({"type": kind, "view": "v", "order": 1, **fields})


def wait(is_so: Callable[[], object]) -> None:
    asyncio.run(until(is_so))


def ended(session: Session, thread: str) -> None:
    """Wait until a thread has nothing more to do."""
    source = threads_of(session)
    wait(lambda: source.conversation(thread, 1).status == "idle")
    source.rest()


def test_tasks_are_rows_by_status_with_the_names_of_agents(make: Make) -> None:
    session = make()
    session.tasks.create("Done", "x")
    session.tasks.complete("t1", "It is\nso.")
    task = session.tasks.create(ACTING, "y", assigned_to="new:scripted/worker", priority="high")

    assert task.assigned_to is not None
    ended(session, task.assigned_to)

    rows = tasks_of(session).rows()

    assert [row["id"] for row in rows] == ["t2", "t1"]
    assert rows[0] == {
        "id": "t2", "title": "<img src=x onerror=alert(1)>\\x1b[31m\\u202e",
        "status": "in_progress", "priority": "high", "agent": "worker",
        "notes": 1, "note": "**heard**",
    }  # fmt: skip
    done: Any = rows[1]
    assert (done["status"], done["notes"], done["note"]) == ("completed", 1, "It is so.")


def test_opened_task_has_prompt_notes_agent_and_thread(make: Make) -> None:
    session = make()
    task = session.tasks.create("Look", "Both\nsides.", assigned_to="new:scripted/worker")
    assert task.assigned_to is not None
    ended(session, task.assigned_to)
    source = tasks_of(session)
    source.act(order("note", id="t1", text="And the rim."))

    found = source.task("t1")

    assert found is not None
    assert (found["prompt"], found["thread"]) == ("Both\nsides.", task.assigned_to)
    assert (found["agent"], found["model"]) == ("worker", "scripted/worker")
    assert (found["creator"], found["older"]) == ("a person", 0)
    assert [note["text"] for note in found["notes"]] == ["**heard**", "And the rim."]
    assert source.task("t9") is None


def test_orders_change_tasks_as_code_does(make: Make) -> None:
    session = make()
    session.tasks.create("Look", "x")
    source = tasks_of(session)

    source.act(order("status", id="t1", status="blocked"))
    assert session.tasks.get("t1").status == "blocked"
    source.act(order("status", id="t1", status="completed"))
    assert session.tasks.get("t1").status == "completed"
    with pytest.raises(NoSuchTask):
        source.act(order("note", id="t9", text="x"))
    with pytest.raises(ValueError, match="blank"):
        source.act(order("note", id="t1", text=" "))
    session.close()
    with pytest.raises(SessionClosed):
        source.act(order("status", id="t1", status="blocked"))


def test_threads_are_rows_newest_first_with_what_their_agents_do(make: Make) -> None:
    hold = Hold()
    session = make(lambda request: Reply("Begun.", pause=hold))
    plain = session.spawn("Which river\nis longest?")
    task = session.tasks.create("Look", "x", assigned_to="new:scripted/worker")
    assert task.assigned_to is not None
    agent = session.thread(task.assigned_to)
    source = threads_of(session)
    wait(lambda: {row["id"]: row["status"] for row in source.rows()}[agent.id] == "working")
    agent.send("And then?")

    by_id = {row["id"]: row for row in source.rows()}

    assert by_id[agent.id] == {
        "id": agent.id, "name": "worker", "kind": "persistent", "model": "scripted/worker",
        "task": "Look", "status": "working", "queued": 1,
    }  # fmt: skip
    assert by_id[plain.thread_id]["name"] == "Which river is longest?"  # type: ignore[typeddict-item]
    assert [*by_id][-1] == session.id
    hold.release()
    ended(session, agent.id)
    assert {row["id"]: row["status"] for row in source.rows()}[agent.id] == "idle"


def test_conversation_tells_who_said_what_laid_out_and_with_its_tools(make: Make) -> None:
    hold = Hold()

    def play(request: Any) -> Reply | str:
        if len(request.messages) == 1:
            return Reply(pause=hold, tool_uses=(ToolUse("a", "task_list", {}),))
        return "It is *done*."

    session = make(play)
    task = session.tasks.create("Look", "x", assigned_to="new:scripted/worker")
    assert task.assigned_to is not None
    run = session.find_run(session.run_ids[0])  # without a file it is known while it is referenced
    assert run is not None
    hold.release()
    ended(session, task.assigned_to)
    source = threads_of(session)

    found = source.conversation(task.assigned_to, 50)

    assert (found.name, found.status, found.above, found.is_there) == ("worker", "idle", 0, True)
    first, second = found.lines
    assert (first["who"], first["author"], first["kind"]) == (
        "system", "task system", "task_assignment",
    )  # fmt: skip
    assert first["text"].startswith("[TASK SYSTEM] A new task")
    assert (second["who"], second["author"], second["text"]) == ("agent", "worker", "")
    assert second["rich"] == [["p", {}, "It is ", ["em", {}, "done"], "."]]
    assert second["tools"] == "1 tool call"
    (call,) = source.calls(task.assigned_to, second["run"])
    assert (call["name"], call["status"]) == ("task_list", "done")
    assert source.calls(session.id, second["run"]) == []
    assert source.calls(session.id, "no such run") == []


def test_tool_calls_show_their_pictures_and_long_code_while_a_run_works_and_afterwards(
    make: Make,
) -> None:
    code, picture, hold = "x = 1\n" * 1_000 + "x", png(640, 480), Hold()

    def python(code: str) -> ToolOutput:
        return ToolOutput("drawn", (MediaBlock("image/png", b64encode(picture).decode()),))

    def play(request: Any) -> Reply:
        if len(request.messages) == 1:
            return Reply(tool_uses=(ToolUse("a", "python", {"code": code}),))
        return Reply("Done.", pause=hold)

    session = make(play, tools=[python])
    run = session.spawn("Draw it.")
    told = list[Any]()
    reply = LiveReply(run.frames(), told.append, "v", run.thread_id)
    reply.begin()
    try:
        wait(lambda: any(call["pictures"] for each in told for call in each.get("tools", ())))
    finally:
        reply.end(is_over=False)
        hold.release()
    run.result(DEADLINE_S)

    (afterwards,) = threads_of(session).calls(run.thread_id, run.id)
    live = {
        key: value for each in told for call in each.get("tools", ()) for key, value in call.items()
    }
    for call in (live, afterwards):
        assert call["input"] == code
        (shown,) = call["pictures"]
        assert shown["src"] == "data:image/png;base64," + b64encode(picture).decode()


def test_long_conversation_has_its_end_and_counts_the_rest(make: Make) -> None:
    session = make()
    thread = session.spawn("first")
    thread.result(DEADLINE_S)

    def add(db: Any) -> None:
        for number in range(28):
            db.execute(
                "INSERT INTO messages (thread_id, place, role, kind, content, created_at) "
                "VALUES (?, ?, 'user', 'message', ?, 0)",
                (thread.thread_id, 100 + number, f"m{number}"),
            )

    source = threads_of(session)
    before = source.conversation_state(thread.thread_id)
    session.store.transactions().do(add)

    found = source.conversation(thread.thread_id, 20)

    assert source.conversation_state(thread.thread_id) != before
    assert (len(found.lines), found.above) == (20, 10)
    assert [found.lines[place]["text"] for place in (0, -1)] == ["m8", "m27"]


def test_thread_of_another_session_is_not_there(make: Make) -> None:
    session, other = make(), make()
    run = other.spawn("secret")
    run.result(DEADLINE_S)
    source = threads_of(session)

    assert not source.conversation(run.thread_id, 1).is_there
    assert run.thread_id not in [row["id"] for row in source.rows()]
    with pytest.raises(NoSuchThread):
        source.act(order("send", thread=run.thread_id, text="Hello"))


def published(source: SessionSource) -> tuple[BoardPublisher, list[Any]]:
    sent: list[BoardMessage] = []
    publisher = BoardPublisher(source, sent.append)
    publisher.take(checked_command({"type": "hello", "view": "v"}))
    return publisher, sent


def test_page_sends_a_message_and_reads_the_answer_as_it_streams(make: Make) -> None:
    hold = Hold()
    session = make(lambda request: Reply("Half an answer.", pause=hold))
    hold.release()
    first = session.spawn("Hello")
    first.result(DEADLINE_S)
    thread = first.thread_id
    publisher, sent = published(threads_of(session))
    publisher.take(checked_command({"type": "read", "view": "v", "thread": thread, "most": 50}))

    publisher.take(order("send", thread=thread, text="And then?"))

    def of(kind: str) -> list[Any]:
        return [message for message in sent if message["type"] == kind]

    def lines() -> dict[int, Any]:
        talk = [line for message in of("conversation") for line in message["lines"]]
        return {line["id"]: line for line in talk}

    assert of("done")[-1]["error"] == ""
    wait(lambda: len(lines()) == 4 and of("conversation")[-1]["status"] == "idle")
    assert [line["who"] for line in lines().values()] == ["person", "agent", "person", "agent"]
    publisher.close()


def test_change_of_another_process_comes_without_a_word(tmp_path: Path) -> None:
    store = tmp_path / "kept.db"
    session = Session(provider=ScriptedProvider(["x"]), store=store)
    session.tasks.create("Mine", "x")
    publisher, sent = published(tasks_of(session))

    run_python(
        f"""
        from agentnb import Session
        session = Session(id={session.id!r}, store={str(store)!r}, model="demo")
        session.tasks.create("Theirs", "y")
        session.tasks.complete("t1")
        session.close()
        """
    )

    wait(lambda: [m["order"] for m in sent if m["type"] == "frame"][-1] == ["t2", "t1"])
    publisher.close()
