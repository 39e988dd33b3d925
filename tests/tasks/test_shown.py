"""Tasks as the last line of a cell."""

from __future__ import annotations

import pickle

from agentnb.bundles import bundle_of
from agentnb.core.durable import TaskList, TaskStatus
from agentnb.views.table import ROWS
from tests.tasks.desk import FakeDesk
from tests.tasks.some_tasks import NOON, SESSION, some_task

TASK = some_task(
    ["first\nnote", "<b>second</b>"],
    title="Compare <i>prices</i>",
    prompt="Both **sides**.",
    assigned_to=f"{SESSION}.1",
    created_by=SESSION,
)


def test_task_shows_title_prompt_and_notes() -> None:
    bundle = bundle_of(TASK)

    assert bundle["text/plain"].split("\n\n") == [
        "t1 pending · high · Compare <i>prices</i>",
        "Both **sides**.",
        "note: first note",
        "note: <b>second</b>",
    ]
    assert "<strong>sides</strong>" in bundle["text/html"]
    assert "<b>" not in bundle["text/html"]
    assert "<i>" not in bundle["text/html"]


def test_task_with_many_notes_shows_the_newest() -> None:
    plain = bundle_of(some_task([f"n{number}" for number in range(25)]))["text/plain"]

    assert "5 older" in plain
    assert "note: n24" in plain
    assert "note: n4\n" not in plain


def test_list_of_tasks_is_a_table() -> None:
    done = some_task(id="t2", title="Sum up", status=TaskStatus.COMPLETED)
    bundle = bundle_of(TaskList([TASK, done]))

    assert bundle["text/plain"] == "TaskList(2 tasks: 1 pending, 1 completed)"
    for text in ("t2", "Sum up", "completed", "high"):
        assert text in bundle["text/html"]
    assert "<table>" not in bundle_of(TaskList())["text/html"]


def test_long_list_is_cut() -> None:
    html = bundle_of(TaskList([TASK] * (ROWS + 5)))["text/html"]

    assert "… and 5 more" in html


def test_nothing_that_changes_from_one_run_to_the_next_is_shown() -> None:
    for value in (TASK, TaskList([TASK])):
        for shown in (repr(value), *bundle_of(value).values()):
            assert SESSION not in shown
            assert str(NOON.year) not in shown


def test_task_and_list_print_on_one_line() -> None:
    assert repr(TASK) == "Task(t1, 'Compare <i>prices</i>': pending, high)"
    assert repr(TaskList([TASK])[:1]) == "TaskList(1 task: 1 pending)"


def test_records_are_flat_and_whole() -> None:
    (record,) = TaskList([TASK]).to_records()

    assert (record["id"], record["assigned_to"], record["notes"]) == ("t1", f"{SESSION}.1", 2)
    assert record["created_at"] == NOON
    assert type(record["status"]) is str


def test_task_is_pickled_whole() -> None:
    assert pickle.loads(pickle.dumps(TaskList([TASK]))) == TaskList([TASK])


def test_board_has_tasks_by_status_with_the_names_of_their_agents() -> None:
    desk = FakeDesk()
    desk.tasks.create("Sum up", "All.")
    desk.tasks.complete("t1", "Done.")
    desk.tasks.create("Look <b>", "There.", assigned_to="new:demo/some/model", priority="high")
    desk.tasks.create("Wait", "For it.", priority="low")
    desk.tasks.update("t3", status="blocked")
    desk.tasks.create("Later", "Some day.")

    bundle = desk.tasks._repr_mimebundle_()

    assert bundle["text/plain"].splitlines() == [
        "4 tasks: 1 pending, 1 in_progress, 1 blocked, 1 completed",
        "",
        "    task      status       priority  agent       notes",
        "t4  Later     pending      medium                0",
        "t2  Look <b>  in_progress  high      some/model  0",
        "t3  Wait      blocked      low                   0",
        "t1  Sum up    completed    medium                1",
    ]
    assert "<b>" not in bundle["text/html"]
    assert SESSION not in str(bundle)
    assert bundle == desk.tasks._repr_mimebundle_()


def test_board_without_tasks_says_so() -> None:
    assert FakeDesk().tasks._repr_mimebundle_()["text/plain"] == "no tasks"
