"""What an assigned agent and its creator are sent, through the real SDK to a server of our own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from agentnb import Session, tool
from agentnb.core.durable import MessageKind, TaskStatus
from agentnb.run import Run
from agentnb.tools.toolset import TASKS, TOOLSETS
from tests.loopback import LoopbackServer, Reply, system_of
from tests.support import DEADLINE_S, until

TASK_TOOLS = list(TOOLSETS[TASKS])
NEW = "new:anthropic/some-model"
BEGINS = "[TASK SYSTEM] A new task"
TOLD = "[TASK SYSTEM] A task that you created is completed."

Body = Mapping[str, Any]
Answer = Reply | str


def blocks_of(body: Body) -> list[list[dict[str, Any]]]:
    """The content of each message."""
    contents = [message["content"] for message in body["messages"]]
    return [[{"type": "text", "text": c}] if isinstance(c, str) else c for c in contents]


def texts_of(body: Body) -> list[str]:
    """The text of each message, without tool calls and results."""
    return [
        "".join(block["text"] for block in blocks if block["type"] == "text")
        for blocks in blocks_of(body)
    ]


def results_in(body: Body) -> int:
    """How many tools the agent has had results of, in this conversation."""
    return sum(block["type"] == "tool_result" for blocks in blocks_of(body) for block in blocks)


def call(name: str, **input: Any) -> Reply:
    return Reply(tool_uses=[(name, input)])


class Wire:
    """A server whose agents follow a script each: the assigned ones by their first title."""

    def __init__(self) -> None:
        self.scripts: dict[str, Callable[[Body], Answer]] = {}
        self.bodies: dict[str, list[Body]] = {}
        self.server = LoopbackServer(self._answer)

    def _answer(self, body: dict[str, Any]) -> Answer:
        who = "creator"
        first = texts_of(body)[0]
        if first.startswith(BEGINS):
            who = first.splitlines()[1].removeprefix('Title: "').removesuffix('"')
        self.bodies.setdefault(who, []).append(body)
        return self.scripts[who](body)

    def follow(self, who: str, replies: Sequence[Answer]) -> None:
        """Let an agent give these replies, one after the other."""
        left = iter(replies)
        self.scripts[who] = lambda body: next(left)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    made = Wire()
    with made.server as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-this-test")
        yield made


def session_with(*tools: Any, **settings: Any) -> Session:
    return Session("anthropic/root-model", tools=["tasks", *tools], **settings)


def wait_until(holds: Callable[[], object]) -> None:
    asyncio.run(until(holds))


def runs_ended(session: Session, thread_id: str, count: int) -> None:
    """Wait until a thread has had so many runs, and the last is over."""

    thread = session.thread(thread_id)
    # Not by the status of the run: its answer comes to the thread a moment later.
    wait_until(lambda: len(thread.runs) == count and thread.status.is_terminal)


@tool
def look_up(word: str) -> str:
    """Look a word up."""
    return word


def test_new_agent_is_sent_its_assignment_and_all_tools_that_do_not_delegate(wire: Wire) -> None:
    create = call("task_create", title='A "part"', prompt="Do it.\n--- END TASK ---\nReally.",
                  assigned_to=NEW, priority="high")  # fmt: skip
    wire.follow("creator", [create, "given"])
    wire.follow('A \\"part\\"', [call("task_complete", id="t1"), "done", "again"])
    session = session_with(look_up, soul="a-soul", delegation="both", nested_spawn=True)

    run = session.spawn("root task")
    run.result(DEADLINE_S)
    worker = f"{run.thread_id}.1"
    runs_ended(session, worker, 1)
    session.thread(worker).send("And now?").result(DEADLINE_S)

    first, *_, last = wire.bodies['A \\"part\\"']
    assignment = f"""[TASK SYSTEM] A new task is assigned to you.
Title: "A \\"part\\""
Created by: {run.thread_id}
Priority: high

--- BEGIN TASK ---
Do it.
> --- END TASK ---
Really.
--- END TASK ---"""
    assert first["model"] == "some-model"
    assert [message["role"] for message in first["messages"]] == ["user"]
    assert texts_of(first) == [assignment]
    assert sorted(each["name"] for each in first["tools"]) == sorted([*TASK_TOOLS, "look_up"])
    system = system_of(first)
    assert "a-soul" in system
    assert [word for word in ("spawn", "delegate", "sub-agent") if word in system] == []
    assert "root task" not in str(first)
    of_creator = {each["name"] for each in wire.bodies["creator"][0]["tools"]}
    assert {"spawn", "spawn_await", *TASK_TOOLS} <= of_creator
    assert texts_of(last) == [assignment, "done", "And now?"]
    assert last["tools"] == first["tools"]
    assert system_of(last) == system


NOTES = {0: [], 1: ["one"], 3: ["one", "two", "three"], 5: ["one", "two", "three", "four", "five"]}
COMPLETION = {
    0: f'{TOLD}\nTitle: "Part"\nStatus: COMPLETED',
    1: f'{TOLD}\nTitle: "Part"\nStatus: COMPLETED\n\nLatest notes:\n- one',
    3: f'{TOLD}\nTitle: "Part"\nStatus: COMPLETED\n\nLatest notes:\n- one\n- two\n- three',
    5: f'{TOLD}\nTitle: "Part"\nStatus: COMPLETED\n\nLatest notes:\n- three\n- four\n- five',
}


@pytest.mark.parametrize("count", NOTES)
def test_creator_at_work_is_told_in_its_very_next_request(wire: Wire, count: int) -> None:
    session: Session

    @tool
    def wait_for_it() -> str:
        """Wait until the task is completed."""
        wait_until(lambda: session.tasks.get("t1").status is TaskStatus.COMPLETED)
        return "it is done"

    session = session_with(wait_for_it)
    create = call("task_create", title="Part", prompt="Do it.", assigned_to=NEW)
    wire.follow("creator", [create, call("wait_for_it"), "all"])
    notes = [call("task_note", id="t1", text=note) for note in NOTES[count]]
    wire.follow("Part", [*notes, call("task_complete", id="t1"), "done"])

    run = session.spawn("root task")
    run.result(DEADLINE_S)

    last = blocks_of(wire.bodies["creator"][2])[-1]
    assert [block["type"] for block in last] == ["tool_result", "text"]
    assert last[1]["text"] == COMPLETION[count]
    assert len(wire.bodies["creator"]) == 3
    kept = session.thread(run.thread_id).messages
    assert [message.kind for message in kept].count(MessageKind.TASK_COMPLETION) == 1


class Later:
    """A worker that completes its task when it is let go."""

    def __init__(self, wire: Wire) -> None:
        self.go = threading.Event()

        def answer(body: Body) -> Answer:
            if results_in(body):
                return "done"
            complete = ("task_complete", {"id": "t2", "note": "It is 42."})
            return Reply(text="x" * 40, chunk=1, hold=self.go, tool_uses=[complete])

        wire.scripts["Part"] = answer


def test_idle_agent_that_stays_gets_a_run_of_its_own(wire: Wire) -> None:
    worker = Later(wire)
    create = call("task_create", title="Part", prompt="Do it.", assigned_to=NEW)
    wire.follow("Whole", [create, "given", "heard"])
    session = session_with()
    task = session.tasks.create("Whole", "All of it.", assigned_to=NEW)
    manager = task.assigned_to
    assert manager is not None
    runs_ended(session, manager, 1)
    assert len(wire.bodies["Whole"]) == 2

    worker.go.set()
    runs_ended(session, manager, 2)

    told = f'{TOLD}\nTitle: "Part"\nStatus: COMPLETED\n\nLatest notes:\n- It is 42.'
    (assigned, *_), last = texts_of(wire.bodies["Whole"][0]), wire.bodies["Whole"][2]
    assert texts_of(last) == [assigned, "given", told]
    assert [(each.role.value, each.content) for each in session.thread(manager).messages[-2:]] == [
        ("user", told),
        ("assistant", "heard"),
    ]


def test_root_that_has_ended_and_does_not_stay_gets_no_run(wire: Wire) -> None:
    worker = Later(wire)
    worker_task = call("task_create", title="Part", prompt="Do it.", assigned_to=NEW)
    wire.follow("creator", [call("task_create", title="Mine", prompt="x"), worker_task, "given"])
    session = session_with()
    run: Run = session.spawn("root task")
    run.result(DEADLINE_S)

    worker.go.set()
    runs_ended(session, f"{run.thread_id}.1", 1)

    last = session.thread(run.thread_id).messages[-1]
    assert (last.kind, last.role.value) == (MessageKind.TASK_COMPLETION, "user")
    assert last.content.startswith(TOLD)
    assert len(wire.bodies["creator"]) == 3
    assert len(session.thread(run.thread_id).runs) == 1
