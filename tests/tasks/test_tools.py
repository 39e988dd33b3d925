"""The six task tools, as a model calls them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentnb.config import load_config
from agentnb.core.durable import Priority, TaskStatus
from agentnb.core.errors import ToolError
from agentnb.core.protocols import Tool, has_effects
from agentnb.core.types import ToolUse
from agentnb.delegation import tools_of_profile
from agentnb.providers.scripted import Reply, ScriptedProvider
from agentnb.session import Session
from agentnb.tools.registry import MAKERS, tools_of
from agentnb.tools.tasks import task_tools
from agentnb.tools.toolset import TASKS, TOOLSETS
from tests.tasks.desk import FakeDesk
from tests.tasks.some_tasks import SESSION
from tests.tools.calling import Context, called

ROOT = "nb_20261123_rootaa"
NAMES = list(TOOLSETS[TASKS])


@pytest.fixture
def desk() -> FakeDesk:
    desk = FakeDesk()
    desk.agent(ROOT)
    return desk


def tools(desk: FakeDesk) -> dict[str, Tool]:
    return {tool.spec.name: tool for tool in task_tools(desk.board)}


def call(desk: FakeDesk, name: str, by: str = ROOT, /, **input: Any) -> str:
    return called(tools(desk)[name], input, Context(agent_id=by))


def test_there_are_six_and_only_two_of_them_change_nothing(desk: FakeDesk) -> None:
    assert [*tools(desk)] == NAMES
    assert [name for name, tool in tools(desk).items() if not has_effects(tool)] == [
        "task_list",
        "task_view",
    ]


def test_schemas_say_what_is_possible(desk: FakeDesk) -> None:
    for tool in tools(desk).values():
        schema = tool.spec.input_schema
        assert schema["additionalProperties"] is False
        assert set(schema["required"]) <= set(schema["properties"])
    update = tools(desk)["task_update"].spec.input_schema["properties"]
    assert update["status"]["enum"] == [*TaskStatus]
    assert update["priority"]["enum"] == [*Priority]


def test_agent_creates_assigns_and_reads_a_task(desk: FakeDesk) -> None:
    said = call(desk, "task_create", title="Compare", prompt="Both.", assigned_to="new:demo/demo")

    task = desk.tasks.get("t1")
    assert (task.created_by, task.assigned_to) == (ROOT, f"{ROOT}.1")
    line = f't1 in_progress, medium, assigned to {ROOT}.1: "Compare"'
    assert said.splitlines()[-1] == line
    assert call(desk, "task_list") == line
    assert call(desk, "task_view", id="t1").splitlines() == [
        'Task t1: "Compare"',
        "Status: in_progress",
        "Priority: medium",
        f"Assigned to: {ROOT}.1",
        f"Created by: {ROOT} (you)",
        "Prompt:",
        "> Both.",
        "Notes: 0",
    ]


def test_agent_notes_updates_and_completes_its_own_task(desk: FakeDesk) -> None:
    call(desk, "task_create", title="a", prompt="x", priority="low")

    call(desk, "task_note", id="t1", text="begun")
    call(desk, "task_note", id="t1", note="half")
    call(desk, "task_update", id="t1", status="blocked", priority="high")
    said = call(desk, "task_complete", id="t1", note="done")

    task = desk.tasks.get("t1")
    assert said.splitlines()[-1] == 't1 completed, high: "a"'
    assert [(note.text, note.author) for note in task.notes] == [
        ("begun", ROOT),
        ("half", ROOT),
        ("done", ROOT),
    ]


def test_list_is_of_a_status_or_an_agent(desk: FakeDesk) -> None:
    assert "no tasks yet" in call(desk, "task_list")
    desk.tasks.create("a", "x", assigned_to="new:demo/demo")
    desk.tasks.create("b", "x")

    assert call(desk, "task_list", status="pending").startswith("t2 ")
    assert call(desk, "task_list", assigned_to=f"{SESSION}.1").startswith("t1 ")
    assert "no such" in call(desk, "task_list", status="archived", assigned_to="")


def test_long_list_and_long_task_are_cut(desk: FakeDesk) -> None:
    for _ in range(201):
        desk.tasks.create("a", "x" * 100_000)
    for number in range(25):
        desk.tasks.add_note("t1", f"note {number}")

    lines = call(desk, "task_list").splitlines()
    assert (len(lines), lines[1].split()[0]) == (201, "t2")
    assert "1 older" in lines[0]
    whole = call(desk, "task_view", id="t1")
    assert len(whole) < 50_000
    assert "> note 24" in whole
    assert "> note 4\n" not in whole


WRONG: list[tuple[str, Mapping[str, Any], str]] = [
    ("task_create", {"prompt": "x"}, "`title`.*`priority`"),
    ("task_create", {"title": "a", "prompt": " "}, "`prompt` is missing or blank"),
    ("task_create", {"title": "a", "prompt": 5}, "`prompt` must be a text"),
    ("task_create", {"title": "a", "prompt": "x", "to": "y"}, "'to'.*`assigned_to`"),
    ("task_create", {"title": "a", "prompt": "x", "priority": "urgent"}, "high, medium, low"),
    ("task_create", {"title": "a", "prompt": "x", "assigned_to": "new:demo"}, "new:provider/model"),
    ("task_create", {"title": "a", "prompt": "x", "assigned_to": "new:no/m"}, "'demo', 'openai'"),
    (
        "task_create",
        {"title": "a", "prompt": "x", "assigned_to": "nb_x"},
        f"'nb_x'.*{SESSION}.1.*new:provider/model",
    ),
    ("task_list", {"status": "done"}, "pending, in_progress, completed, blocked, archived"),
    ("task_view", {}, "`id`"),
    ("task_view", {"id": "t9"}, "'t9'.*'t1'"),
    ("task_view", {"id": 1}, "`id` must be a text"),
    ("task_update", {"id": "t1"}, "`status`, `assigned_to` or `priority`"),
    ("task_update", {"id": "t1", "status": "done"}, "archived"),
    ("task_update", {"id": "t1", "status": "blocked"}, "t1.*created it"),
    ("task_note", {"id": "t9", "text": "x"}, "'t1'"),
    ("task_note", {"id": "t1"}, "`text`"),
    ("task_complete", {"id": "t9"}, "'t1'"),
]


@pytest.mark.parametrize(("name", "input", "words"), WRONG, ids=lambda each: str(each)[:40])
def test_wrong_argument_is_an_error_that_says_what_is_possible(
    desk: FakeDesk, name: str, input: Mapping[str, Any], words: str
) -> None:
    desk.tasks.create("a", "x", assigned_to="new:demo/demo")
    before = desk.count()

    with pytest.raises(ToolError, match=words):
        call(desk, name, **input)

    assert desk.count() == before


HOSTILE = st.lists(
    st.sampled_from(
        ["Notes: 1", "By nb_x:", "t1 completed", "Task t9:", '"', "> ", *"\n\r\v\x85\u2028"]
    )
    | st.text(max_size=3),
    min_size=1,
    max_size=8,
).map(lambda parts: "a" + "".join(parts))


@settings(max_examples=50)
@given(title=HOSTILE, prompt=HOSTILE, note=HOSTILE)
def test_no_text_of_others_forges_a_line(title: str, prompt: str, note: str) -> None:
    desk = FakeDesk()
    desk.agent(ROOT)
    desk.tasks.create(title, prompt)
    desk.tasks.add_note("t1", note)

    lines = call(desk, "task_view", id="t1").splitlines()

    own = [line for line in lines if not line.startswith(">")]
    assert len(own) == 8
    assert own[0].startswith('Task t1: "a')
    assert own[1:] == [
        "Status: pending",
        "Priority: medium",
        "Assigned to: nobody",
        "Created by: a person",
        "Prompt:",
        "Notes: 1",
        "By a person or the system:",
    ]
    assert len(call(desk, "task_list").splitlines()) == 1


# -- by their one name ----------------------------------------------------------------------------


def test_tasks_stands_for_all_six(desk: FakeDesk) -> None:
    makers = {**MAKERS, TASKS: lambda: task_tools(desk.board)}

    of_session = tools_of(["tasks", "workspace"], makers=makers)

    assert [tool.spec.name for tool in of_session] == [*NAMES, *TOOLSETS["workspace"]]
    assert tools_of(["tasks"], of_session, makers) == of_session[:6]
    assert tools_of(["task_view"], of_session, makers) == of_session[2:3]


def test_tasks_in_a_profile_is_all_six(desk: FakeDesk, tmp_path: Any) -> None:
    path = tmp_path / "agentnb.yaml"
    path.write_text("tools: {spawn: {profiles: {careful: {tools: [tasks]}}}}", encoding="utf-8")
    config = load_config(path)
    makers = {**MAKERS, TASKS: lambda: task_tools(desk.board)}

    made = tools_of_profile(config.profile("careful"), (), config, makers)

    assert made is not None
    assert [tool.spec.name for tool in made] == NAMES


def test_agent_hands_all_six_on_by_their_name(desk: FakeDesk) -> None:
    spawn = ToolUse("a", "spawn", {"task": "part", "tools": "tasks"})
    provider = ScriptedProvider([Reply(tool_uses=(spawn,)), "done", "part", "all"])

    Session(provider=provider, tools=task_tools(desk.board), delegation="tools").run_sync("x")

    offered = [[spec.name for spec in request.tools] for request in provider.requests]
    assert NAMES in offered
    assert all(names[:6] == NAMES for names in offered)


def test_models_wrong_call_is_an_error_result_and_its_run_goes_on(desk: FakeDesk) -> None:
    view = ToolUse("a", "task_view", {"id": "t9"})
    provider = ScriptedProvider([Reply(tool_uses=(view,)), "sorry"])

    result = Session(provider=provider, tools=task_tools(desk.board)).run_sync("x")

    assert result.output == "sorry"
    (block,) = provider.requests[1].messages[-1].content
    assert getattr(block, "is_error", False)
    assert "none yet" in str(block)
