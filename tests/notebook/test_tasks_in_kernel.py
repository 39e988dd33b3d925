"""Threads and tasks in a real kernel: `%task`, `%%spawn --thread`, what a cell shows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.notebook.forked import ForkServer
from tests.notebook.kernel import Kernel, a_door

SCRIPT = """
import agentnb, tempfile
from agentnb import Reply, ToolUse

def model(request):
    told = [message.text for message in request.messages if message.role == "user"]
    if told[-1].startswith("[TASK SYSTEM]"):
        note = {"id": "t1", "note": "All of it."}
        return Reply(tool_uses=(ToolUse("1", "task_complete", note),))
    return f"{len(told)}: {told[-1] or 'done'}"

provider = agentnb.ScriptedProvider(model)
session = agentnb.configure(provider=provider, store=tempfile.mkdtemp())
city = "Ulm"
"""

ASSIGNS = """
def assigns(request):
    told = [message.text for message in request.messages]
    if told[0].startswith("[TASK SYSTEM]"):
        return Reply("Begun.", pause=forever) if len(told) == 1 else "Still here."
    if len(told) > 1:
        return Reply("Begun.", pause=hold)
    given = {"title": "Part", "prompt": "Do it.", "assigned_to": "new:scripted/worker"}
    return Reply(tool_uses=(ToolUse("1", "task_create", given),))

async def forever():
    await asyncio.Event().wait()

import asyncio
assigning = agentnb.configure(
    provider=agentnb.ScriptedProvider(assigns), tools=["tasks"], store=tempfile.mkdtemp()
)
"""
OVER = """
while assigning.tasks.get("t1").status == "in_progress":
    await asyncio.sleep(0.01)
"""


@pytest.fixture(scope="module")
def kernel(fork_server: ForkServer) -> Iterator[Kernel]:
    with fork_server.started() as kernel:
        kernel.ok("%load_ext agentnb", SCRIPT)
        yield kernel


def test_cell_goes_on_with_the_thread_that_was_spoken_to_last(kernel: Kernel) -> None:
    first = kernel.ok("%%spawn --quiet -o a\nRemember {{city}}")
    second = kernel.ok("%%spawn --quiet --thread last -o b\nAnd then?")
    thread = kernel.value("session.thread('last').id")
    third = kernel.ok(f"%%spawn --quiet --thread {thread}\nAnd last?")
    other = kernel.ok("%%spawn --quiet\nAnother one")

    shown = [each.displays[0]["text/plain"] for each in (first, second, third, other)]
    assert shown == ["1: Remember Ulm", "2: And then?", "3: And last?", "1: Another one"]
    conversation = kernel.ok(f"session.thread({thread!r})")
    assert "person:\n\n> Remember Ulm\n\nagent:\n\n> 1: Remember Ulm" in conversation.result
    assert "text/html" in conversation.result_data
    assert conversation.unstable == []


def test_thread_that_is_not_there_is_a_line(kernel: Kernel) -> None:
    shown = kernel.run("%%spawn --thread nb_20261101_nobody\nHello")

    assert (shown.status, shown.error_name) == ("error", "NoSuchThread")
    assert "No agent found for thread 'nb_20261101_nobody'" in shown.error
    assert "\n" not in shown.error


def test_task_is_made_done_and_looked_at_without_ids_and_times(kernel: Kernel) -> None:
    kernel.ok(SCRIPT)  # a store in which it is the first task
    made = kernel.ok("%%task new Check {{city}} --to new:scripted/checker\nIs it {{city}}?")
    kernel.ok(
        "agent = session.thread(session.tasks.get('t1').assigned_to)",
        "said = agent.send('What did you check?').result().output",
    )
    listed, one = kernel.ok("%task"), kernel.ok("%task show t1")

    again = kernel.ok("%%spawn --quiet --thread checker\nAnd then?")

    assert kernel.value("said") == "2: What did you check?"
    assert again.displays[0]["text/plain"] == "3: And then?"
    assert "Check Ulm" in made.displays[0]["text/plain"]
    head, _, columns, row = listed.displays[0]["text/plain"].splitlines()
    assert head == "1 task: 1 completed"
    assert columns.split() == ["task", "status", "priority", "agent", "notes"]
    assert row.split()[:6] == ["t1", "Check", "Ulm", "completed", "medium", "checker"]
    assert "All of it." in one.displays[0]["text/html"]
    assert [shown.unstable for shown in (made, listed, one)] == [[], [], []]
    assert kernel.ok("session.threads()").unstable == []
    agents = kernel.ok("session.agents()")
    assert ">checker</td>" in agents.result_data["text/html"]
    assert agents.unstable == []


@pytest.mark.parametrize(
    ("cell", "name", "parts"),
    [
        ("%task show t9", "NoSuchTask", ["'t9'", "'t1'"]),
        ("%task assign t1 new:demo", "BadAssignment", ["'new:demo'", "new:provider/model"]),
        ("%task assign t1 new:nobody/m", "BadAssignment", ["'nobody'", "scripted"]),
        ("%task list --to nb_20261101_nobody --status open", "NotebookError", ["'open'"]),
        ("%task list --to nobody", "NoSuchThread", ["'nobody'"]),
        ("%task nonsense", "NotebookError", ["'nonsense'", "assign"]),
        ("%task done t9", "NoSuchTask", ["'t9'", "'t1'"]),
        ("%task note t9 Well", "NoSuchTask", ["'t9'", "'t1'"]),
        ("%%task new Title --priority urgent\nIt", "NotebookError", ["'urgent'", "medium"]),
        ("%%task new --to new:demo/demo\nIt", "NotebookError", ["title"]),
        ("%%task new Title\n  ", "NotebookError", ["prompt"]),
        ("%%task new Title --to new:/m\nIt", "BadAssignment", ["'new:/m'", "provider"]),
        ("%%task new Title --to new:scripted/\nIt", "BadAssignment", ["model"]),
        ("%%task new Title --to new:odd:scripted/m\nIt", "BadAssignment", ["'odd'", "profile"]),
        ("%%task new {{nowhere}}\nIt", "NotebookError", ["nowhere"]),
    ],
)
def test_mistake_is_one_line(kernel: Kernel, cell: str, name: str, parts: list[str]) -> None:
    kernel.ok("session.tasks.list() or session.tasks.create('First', 'It')")
    made = kernel.value("len(session.tasks.list())")
    shown = kernel.run(cell)

    assert (shown.status, shown.error_name) == ("error", name)
    assert [part for part in parts if part not in shown.error] == []
    assert "\n" not in shown.error
    assert kernel.value("len(session.tasks.list())") == made


def test_interrupt_of_a_cell_ends_what_its_agent_has_assigned(kernel: Kernel) -> None:
    with a_door() as door:
        kernel.ok(door.hold, ASSIGNS)
        cell = kernel.send("%%spawn --quiet\nAssign it.")
        door.wait_for_knock()
        kernel.interrupt()
        shown = kernel.collect(cell)
    kernel.ok(OVER)
    listed = kernel.ok("%task")
    again = kernel.ok("%%spawn --quiet --thread worker\nAnd then?")

    assert shown.error == "RunCancelled: The run was cancelled (interrupted)."
    assert listed.displays[0]["text/plain"].splitlines()[0] == "1 task: 1 blocked"
    assert listed.unstable == []
    reason = kernel.value("assigning.tasks.get('t1').notes[0].text")
    assert reason == "The run was cancelled (interrupted)."
    assert again.displays[0]["text/plain"] == "Still here."
    kernel.ok(SCRIPT)


def test_help_is_there_and_the_magic_goes_with_the_extension(kernel: Kernel) -> None:
    assert "%task assign t3 AGENT" in kernel.ok("%task?").help
    assert "--thread T" in kernel.ok("%%spawn?").help

    kernel.ok("%unload_ext agentnb")
    shown = kernel.run("%task")
    kernel.ok("%load_ext agentnb")

    assert shown.status == "error" or "not found" in shown.stderr
