"""`%task`, on a session of which only the tasks are there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from agentnb.core.durable import AgentKind, AgentMetadata, Priority, Task, TaskNote, TaskStatus
from agentnb.core.errors import AgentnbError, NoSuchTask, NoSuchThread
from agentnb.errors import NotebookError
from agentnb.notebook import task_magic
from agentnb.notebook.completion import complete
from agentnb.notebook.task_magic import TASK_VERBS, TaskMagics
from agentnb.views.table import ROWS
from tests.support import DEADLINE_S
from tests.test_hostile_words import HOSTILE, acting_in

NOW = datetime(2026, 11, 23, tzinfo=UTC)
THREAD = "nb_20261123_abcdef"
AGENT = AgentMetadata(
    f"{THREAD}.1", "reviewer", "demo", "demo", AgentKind.PERSISTENT, "t1", THREAD, None, NOW
)


def some_task(number: int, **fields: Any) -> Task:
    blank = Task(
        f"t{number}", "Check it", "All of it.", TaskStatus.PENDING, Priority.MEDIUM, None, None,
        (), THREAD, NOW, NOW,
    )  # fmt: skip
    return dataclasses.replace(blank, **fields)


@dataclass
class Board:
    """Keeps tasks in a list, without agents."""

    tasks: list[Task] = field(default_factory=list)
    asked: list[Mapping[str, Any]] = field(default_factory=list)

    def create(self, title: str, prompt: str, **fields: Any) -> Task:
        self.asked.append({"title": title, "prompt": prompt, **fields})
        self.tasks.append(some_task(len(self.tasks) + 1, title=title, prompt=prompt))
        return self.tasks[-1]

    def get(self, task_id: str) -> Task:
        for task in self.tasks:
            if task.id == task_id:
                return task
        raise NoSuchTask(task_id, known=[task.id for task in self.tasks])

    def list(self, **wanted: Any) -> list[Task]:
        return [
            task
            for task in self.tasks
            if all(getattr(task, name) == value for name, value in wanted.items())
        ]

    def update(self, task_id: str, **fields: Any) -> Task:
        changed = dataclasses.replace(self.get(task_id), **fields)
        self.tasks[self.tasks.index(self.get(task_id))] = changed
        return changed

    def add_note(self, task_id: str, text: str) -> Task:
        notes = (*self.get(task_id).notes, TaskNote(text, None, NOW))
        return self.update(task_id, notes=notes)

    def complete(self, task_id: str, note: str | None = None) -> Task:
        if note is not None:
            self.add_note(task_id, note)
        return self.update(task_id, status=TaskStatus.COMPLETED)


@dataclass
class SomeSession:
    """What `%task` and its completion use of a session."""

    tasks: Board = field(default_factory=Board)
    model: str = "scripted"

    def agents(self, kind: str | None = None) -> list[AgentMetadata]:
        return [AGENT] if kind in (None, "persistent") else []

    def threads(self) -> list[Task]:
        return [some_task(1, id=THREAD)]  # has an id, too

    def thread(self, thread_id: str) -> Task:
        if thread_id not in (THREAD, AGENT.thread_id):
            raise NoSuchThread(thread_id)
        return some_task(1, id=thread_id)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> SomeSession:
    made = SomeSession()
    monkeypatch.setattr(task_magic, "get_session", lambda: made)
    monkeypatch.setattr(task_magic, "notebook_names", lambda: {"city": "Ulm", "model": "demo/demo"})
    monkeypatch.setattr("agentnb.notebook.completion._PATIENCE_S", DEADLINE_S)
    return made


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    values: list[Any] = []
    monkeypatch.setattr(task_magic, "display", lambda value, **_: values.append(value))
    return values


def task(line: str = "", cell: str | None = None) -> None:
    magics: Any = TaskMagics(None)
    magics.task(line, cell)


# -- what it does ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "cell", "asked"),
    [
        ("new Check it", "All of it.\n", {"title": "Check it", "prompt": "All of it."}),
        ("new Check it", "#@title A form\nAll.\n", {"title": "Check it", "prompt": "All."}),
        (
            "new --priority high  Ada's and\tBob's list --to new:demo/demo",
            "Read {{city}}.\n\n\tTwice.",
            {
                "title": "Ada's and Bob's list",
                "prompt": "Read Ulm.\n\n\tTwice.",
                "assigned_to": "new:demo/demo",
                "priority": "high",
            },
        ),
        (
            "new 'A {{city}} - one' --to=new:{{model}} --raw",
            "Keep {{braces}}",
            {
                "title": "A Ulm - one",
                "prompt": "Keep {{braces}}",
                "assigned_to": "new:demo/demo",
            },
        ),
    ],
)
def test_cell_makes_a_task_with_its_lines_as_the_prompt(
    session: SomeSession, shown: list[Any], line: str, cell: str, asked: dict[str, str]
) -> None:
    task(line, cell)

    assert session.tasks.asked == [asked]
    assert shown == session.tasks.tasks


def test_other_verbs_change_a_task_and_show_it(session: SomeSession, shown: list[Any]) -> None:
    session.tasks.tasks = [some_task(1), some_task(2)]

    task("assign t2 reviewer")
    assert session.tasks.tasks[1].assigned_to == AGENT.thread_id
    task("assign t2 new:demo/demo")
    task("note t2 It's  half {{done}} --or more")
    task("done t2")
    task("done t1 That's it")
    task("show  t2 ")

    assert [each.id for each in shown] == ["t2", "t2", "t2", "t2", "t1", "t2"]
    first, second = session.tasks.tasks
    assert second.assigned_to == "new:demo/demo"
    assert [note.text for note in second.notes] == ["It's  half {{done}} --or more"]
    assert [note.text for note in first.notes] == ["That's it"]
    assert first.status == second.status == TaskStatus.COMPLETED
    assert shown[-1] == second


def test_list_is_a_table_without_ids_of_threads_and_without_times(
    session: SomeSession, shown: list[Any]
) -> None:
    session.tasks.tasks = [
        some_task(1, title="Review\nit", assigned_to=AGENT.thread_id),
        some_task(2, status=TaskStatus.COMPLETED, priority=Priority.HIGH),
    ]

    for line in ("", "list", " --status completed", "list --to reviewer"):
        task(line)

    every, same, completed, of_agent = (each["text/plain"].splitlines() for each in shown)
    assert every == same
    assert every == [
        "2 tasks: 1 pending, 1 completed",
        "",
        "    task       status     priority  agent     notes",
        "t1  Review it  pending    medium    reviewer  0",
        "t2  Check it   completed  high                0",
    ]
    assert [line.split()[0] for line in completed[3:]] == ["t2"]
    assert [line.split()[0] for line in of_agent[3:]] == ["t1"]
    assert THREAD not in str(shown)
    assert ">reviewer</td>" in shown[0]["text/html"]


def test_list_is_short_and_inert_whatever_stands_in_a_title(
    session: SomeSession, shown: list[Any]
) -> None:
    evil = "<script>\x1b[31m\u202e $x$ **b**\n| --- |"
    session.tasks.tasks = [some_task(number, title=evil) for number in range(1, 101)]

    task()

    assert len(shown[0]["text/plain"].splitlines()) == ROWS + 4
    assert "\x1b" not in str(shown[0]["text/html"]) + shown[0]["text/plain"]
    assert "\u202e" not in shown[0]["text/html"] + shown[0]["text/plain"]
    assert "<script" not in shown[0]["text/html"]


def test_no_task_at_all_says_where_to_begin(session: SomeSession, shown: list[Any]) -> None:
    task()

    assert "%task help" in shown[0]["text/plain"]


def test_help_tells_every_verb_and_option(
    session: SomeSession, capsys: pytest.CaptureFixture[str]
) -> None:
    task("help")

    said = capsys.readouterr().out
    assert said.rstrip() == (TaskMagics.task.__doc__ or "").rstrip()
    options = [typed for verb in TASK_VERBS.values() for typed in verb.options]
    for word in (*(f"%task {verb}" for verb in TASK_VERBS), *options, *TaskStatus, *Priority):
        assert word in said


# -- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "cell", "parts"),
    [
        ("nwe Title", "Prompt", ["'nwe'", *TASK_VERBS]),
        ("new Title", None, ["%%task new TITLE"]),
        ("new", "Prompt", ["title"]),
        ("new ''", "Prompt", ["title"]),
        ("new Title", " \n", ["prompt"]),
        ("new Title --priority urgent", "Prompt", ["'urgent'", *Priority]),
        ("new Title --urgent", "Prompt", ["'--urgent'", "--priority"]),
        ("new {{town}}", "Prompt", ["'town'"]),
        ("note t1 Text", "Below", ["%task note"]),
        ("", "Below", ["%%task new"]),
        ("list --status open", None, ["'open'", *TaskStatus]),
        ("list t1", None, ["'t1'"]),
        ("show", None, ["t1"]),
        ("show t1 t2", None, ["'t2'"]),
        ("assign t1", None, ["new:provider/model"]),
        ("note t1", None, ["note"]),
        ("done", None, ["t1"]),
        ("help me", None, ["'me'"]),
    ],
)
def test_mistake_is_one_line_that_says_what_is_possible(
    session: SomeSession, shown: list[Any], line: str, cell: str | None, parts: list[str]
) -> None:
    session.tasks.tasks = [some_task(1)]

    with pytest.raises(NotebookError) as caught:
        task(line, cell)

    assert "\n" not in str(caught.value)
    assert [part for part in parts if part not in str(caught.value)] == []
    assert shown == session.tasks.asked == []


def test_tasks_of_an_agent_that_is_not_there_are_an_error_and_not_an_empty_list(
    session: SomeSession,
) -> None:
    with pytest.raises(NoSuchThread):
        task("list --to nobody")


def test_task_that_is_not_there_is_the_boards_own_error(session: SomeSession) -> None:
    for verb in ("show t9", "assign t9 new:demo/demo", "note t9 x", "done t9"):
        with pytest.raises(NoSuchTask):
            task(verb)


def test_mistake_in_a_strangers_words_is_told_without_acting(session: SomeSession) -> None:
    word = HOSTILE.replace(" ", "")
    for line in (
        word, f"list --status {word}", f"list {word}", f"new T --priority={word}",
        f"new T --{word}", f"show {word}", f"show t1 {word}", f"help {word}",
    ):  # fmt: skip
        with pytest.raises(AgentnbError) as caught:
            task(line, "Prompt" if line.startswith("new") else None)
        assert not acting_in(str(caught.value)), ascii(str(caught.value))


# -- completion -----------------------------------------------------------------------------------


def offered(text: str, session: SomeSession) -> list[str]:
    known: Any = session
    found = complete(text, known, {})
    return [] if found is None else [*found[1]]


def test_words_of_a_task_line_are_completed(session: SomeSession) -> None:
    session.tasks.tasks = [some_task(1), some_task(2)]

    assert offered("%task ", session) == [*TASK_VERBS, "--status", "--to"]
    assert offered("%%task ", session) == ["new"]
    assert offered("%%task new Title --", session) == ["--to", "--priority", "--raw"]
    assert offered("%%task new Title --priority ", session) == [*Priority]
    for verb in ("show", "assign", "note", "done"):
        assert offered(f"%task {verb} ", session) == ["t1", "t2"]
    assert offered("%task show t1 ", session) == []
    assert offered("%task list --status c", session) == ["completed"]
    assert offered("%task --to ", session) == ["reviewer"]
    assert offered("%%spawn --thread ", session) == ["last", "reviewer", THREAD]
    assert offered("%task assign t1 new:demo", session) == ["new:demo/demo"]
    for at in ("%task assign t1 ", "%%task new Title --to ", "%%task new --to="):
        agents = offered(at, session)
        assert {"new:scripted/scripted", "new:anthropic/", "reviewer"} <= {*agents}
        assert agents[0] == "new:scripted/scripted"
    assert offered("%%task new Title\n%task sh", session) == [], "it is text of the prompt"


def test_store_that_cannot_be_read_offers_nothing(session: SomeSession) -> None:
    del session.tasks

    assert offered("%task show ", session) == []
