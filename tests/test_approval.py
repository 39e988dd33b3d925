"""Approval of tools in a session: by name, by a function, and without a person."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import agentnb
from agentnb import Question, Reply, Run, Session, ToolUse
from agentnb.core.errors import NoOpenQuestion
from agentnb.core.events import QuestionAnswered, QuestionAsked, ToolCallFinished, ToolCallStarted
from agentnb.core.types import CompletionRequest, ToolResultBlock
from agentnb.errors import ConfigError
from agentnb.providers.scripted import ScriptedProvider
from agentnb.testing import equal_records
from tests.recover_scene import killed, session_of
from tests.support import DEADLINE_S, by_agent, events_of, spawn, until

WORKS = Reply(tool_uses=(ToolUse("u", "send", {"to": "all"}),))


class Post:
    """A tool, and what it has sent."""

    def __init__(self, **options: Any) -> None:
        self.sent: list[str] = []

        def send(to: str) -> str:
            self.sent.append(to)
            return f"sent to {to}"

        self.tool = agentnb.tool(send, **options)


def said(request: CompletionRequest) -> str:
    """The results of its calls that the agent got."""
    blocks = [block for message in request.messages for block in message.content]
    return "; ".join(block.text for block in blocks if isinstance(block, ToolResultBlock))


def session(post: Post, script: Mapping[str, Any] | None = None, **settings: Any) -> Session:
    provider = by_agent(script or {"root": [WORKS, said]})
    return Session(provider=provider, tools=[post.tool], **{"store": None, **settings})


def asked(run: Run, count: int = 1) -> tuple[Question, ...]:
    """Wait until that many questions are open."""
    asyncio.run(until(lambda: len(run.questions) >= count))
    return run.questions


def yaml(folder: Path, text: str) -> Path:
    file = folder / "agentnb.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_without_a_person_approval_is_denied_at_once_with_the_reason() -> None:
    post = Post(approval=True)

    result = session(post).run_sync("Send it.")

    assert "nobody was there" in result.output
    assert post.sent == []


def test_run_that_nobody_waits_for_is_answered_once_from_whichever_side_comes_first() -> None:
    post = Post(approval=True)
    run = session(post).spawn("Send it.")
    (question,) = asked(run)

    with pytest.raises(ValueError, match="approve"):
        run.answer(question.id, "go")
    with pytest.raises(ValueError, match="arguments"):
        run.answer(question.id, "approve", value=["ann"])
    with pytest.raises(NoOpenQuestion) as unknown:
        run.answer("q9", "approve")
    assert unknown.value.open_ids == (question.id,)
    run.answer(question.id, "approve", value={"to": "ann"})
    with pytest.raises(NoOpenQuestion):
        run.answer(question.id, "deny")
    assert "sent to ann" in run.result(DEADLINE_S).output
    with pytest.raises(NoOpenQuestion):
        run.answer(question.id, "approve")
    assert post.sent == ["ann"]


def test_view_that_is_shown_keeps_the_question_of_a_waiting_cell_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentnb.views.panel.viewers.FIRST_VIEW_S", DEADLINE_S)
    post = Post(approval=True)
    one = session(post)
    with one.owning(expects_view=True):  # a view has a few seconds to come
        run = one.spawn("Send it.")
    run._viewers.seen("panel", "page")  # as the widget reports it
    (question,) = asked(run)
    run._answer(question.id, "approve", value=None, reason=None, by="panel")

    assert run.result(DEADLINE_S).output == "sent to all"
    assert [each.by for each in events_of(run.events, QuestionAnswered)] == ["panel"]


async def _approves(question: Question) -> object:
    return "approve"


def _raises(question: Question) -> object:
    raise KeyError("lost")


@pytest.mark.parametrize(
    ("approve", "sent", "words"),
    [
        (_approves, ["all"], "sent to all"),
        (lambda question: {"to": question.path}, ["root"], "sent to root"),
        (lambda question: "deny", [], "not run"),
        (lambda question: True, [], "'approve', 'deny', 'ask'"),
        (lambda question: None, [], "'approve', 'deny', 'ask'"),
        (_raises, [], "KeyError"),
    ],
)
@pytest.mark.parametrize("owner", ["session", "tool"])
def test_function_answers_in_place_of_a_person(
    approve: Any, sent: list[str], words: str, owner: str
) -> None:
    post = Post(approval=True if owner == "session" else approve)
    # The tool's own function is asked before the session's.
    of_session = approve if owner == "session" else _raises

    result = session(post, approve=of_session).run_sync("Send it.")

    assert words in result.output
    assert post.sent == sent


def test_function_may_leave_it_to_a_person() -> None:
    post = Post(approval=lambda question: "ask")
    run = session(post, approve=_approves).spawn("Send it.")
    (question,) = asked(run)
    run.answer(question.id, "deny", reason="not today")

    assert "not today" in run.result(DEADLINE_S).output


def test_wrong_approval_of_a_tool_is_told_where_it_is_made() -> None:
    with pytest.raises(ValueError, match="approval"):
        Post(approval="yes")


# -- by name --------------------------------------------------------------------------------------


def test_file_gates_tools_by_name_ours_included(tmp_path: Path) -> None:
    config = yaml(tmp_path, "tools:\n  approval: [send, workspace]\n")
    write = ToolUse("w", "workspace_write", {"key": "a", "text": "b"})
    both = Reply(tool_uses=(*WORKS.tool_uses, write))
    script: dict[str, Any] = {"root": [spawn("A"), "All."], "A": [both, said]}
    post = Post()
    denied: list[str] = []

    def approve(question: Question) -> str:
        denied.append(question.value["tool"])
        return "deny"

    one = Session(
        provider=by_agent(script), tools=[post.tool, "workspace"], config=config, approve=approve,
        store=None,
    )  # fmt: skip
    one.run_sync("Send it.")

    assert sorted(denied) == ["send", "workspace_write"]
    assert post.sent == []


def test_name_that_fits_no_tool_is_a_mistake_with_its_line(tmp_path: Path) -> None:
    post = Post()
    config = yaml(tmp_path, "tools:\n  approval:\n    - send\n    - sent\n")
    with pytest.raises(ConfigError) as raised:
        session(post, config=config).spawn("Send it.")
    (mistake,) = raised.value.mistakes
    assert (mistake.place, mistake.line) == ("tools.approval[1]", 4) or mistake.line == 4
    assert "'sent'" in mistake.what

    profiles = "tools:\n  spawn:\n    profiles:\n      p:\n        approval: [sent]\n"
    config = yaml(tmp_path, profiles)
    with pytest.raises(ConfigError) as raised:
        session(post, config=config).spawn("Send it.", profile="p")
    assert raised.value.mistakes[0].line == 5
    assert session(post, config=config).run_sync("Send it.").output == "sent to all"


PROFILES = """\
tools:
  spawn:
    profiles:
      careful:
        approval: [send]
      other:
        tools: [send]
"""


def test_profile_gates_its_agents_and_all_below_them_and_no_profile_leads_round_it(
    tmp_path: Path,
) -> None:
    def starts(task: str, **more: str) -> Reply:
        return Reply(tool_uses=(ToolUse(task, "spawn", {"task": task, **more}),))

    script: dict[str, Any] = {
        "root": [starts("A", profile="careful"), starts("free", profile="other"), "Both."],
        "A": [starts("B", profile="other"), "a"],
        "B": [WORKS, said],
        "free": [WORKS, said],
    }
    script["root"][2:2] = [Reply(tool_uses=(ToolUse("w", "spawn_await", {"job_ids": "*"}),))]
    script["A"][1:1] = [Reply(tool_uses=(ToolUse("w", "spawn_await", {"job_ids": "*"}),))]
    post = Post()
    config = yaml(tmp_path, PROFILES)
    one = session(post, script, config=config, delegation="tools", nested_spawn=True)
    run = one.spawn("Send it.")
    (question,) = asked(run)
    run.answer(question.id, "deny")
    run.result(DEADLINE_S)

    assert question.path == "1.1"
    assert post.sent == ["all"]  # from the agent that is not below it


def test_agent_that_a_gated_one_assigns_a_task_to_is_gated_too(tmp_path: Path) -> None:
    post = Post()
    create = {"title": "Part", "prompt": "Do it.", "assigned_to": "new:scripted/m"}

    def model(request: CompletionRequest) -> Reply | str:
        is_worker = request.messages[0].text.startswith("[TASK SYSTEM]")
        if said(request):
            return said(request)
        return WORKS if is_worker else Reply(tool_uses=(ToolUse("c", "task_create", create),))

    denied: list[str] = []

    def approve(question: Question) -> str:
        denied.append(question.value["tool"])
        return "deny"

    one = Session(
        provider=ScriptedProvider(model), tools=[post.tool, "tasks"], approve=approve,
        config=yaml(tmp_path, PROFILES), store=tmp_path / "x.db",
    )  # fmt: skip
    one.spawn("Have it sent.", profile="careful").result(DEADLINE_S)
    asyncio.run(until(lambda: denied))
    one.close()

    assert denied == ["send"]
    assert post.sent == []


# -- records --------------------------------------------------------------------------------------


def test_call_that_waited_when_the_process_died_is_asked_about_again_and_runs_once(
    tmp_path: Path,
) -> None:
    store, ordered = tmp_path / "x.db", list[str]()
    run_id = killed(store, "asks for approval")
    one, _ = session_of(store, "asks for approval", ordered)
    run = one.recover(run_id)
    (question,) = asked(run)
    assert question.value == {"tool": "order_it", "arguments": {"what": "a chair"}}
    run.answer(question.id, "approve", value={"what": "a desk"})

    assert run.result(DEADLINE_S).output.endswith("a desk is ordered")
    assert ordered == ["a desk"]
    loaded = one.load(run_id)
    assert [each.question_id for each in events_of(loaded.events, QuestionAsked)] == [question.id]
    one.close()


def test_replay_repeats_the_persons_answer_and_does_not_run_the_tool(tmp_path: Path) -> None:
    file = tmp_path / "x.cassette.jsonl"
    post = Post(approval=True)
    change = {"to": "ann"}
    live = session(post, mode="record", cassette=file, approve=lambda question: change)
    recorded = live.spawn("Send it.", name="it")
    recorded.result(DEADLINE_S)
    again = Post(approval=True)
    repeated = session(again, mode="replay", cassette=file).spawn("Send it.", name="it")
    repeated.result(DEADLINE_S)

    assert equal_records(_record(repeated, tmp_path), _record(recorded, tmp_path)) == []
    assert (post.sent, again.sent) == (["ann"], [])


def _record(run: Run, folder: Path) -> agentnb.RunRecord:
    run.to_json(folder / "run.json")
    return agentnb.load_run(folder / "run.json")


def test_calls_that_start_in_another_order_than_they_were_asked_for_stay_whole(
    tmp_path: Path,
) -> None:
    texts = {"send": "s" * 3000, "look": "l" * 3000}

    @agentnb.tool(approval=True)
    def send(text: str) -> str:
        return "sent " + text

    @agentnb.tool
    def look(text: str) -> str:
        return "seen " + text

    calls = tuple(ToolUse(name, name, {"text": text}) for name, text in texts.items())
    one = Session(
        provider=ScriptedProvider([Reply(tool_uses=calls), "Done."]), tools=[send, look],
        store=tmp_path / "x.db",
    )  # fmt: skip
    run = one.spawn("Both.")
    asked(run)
    asyncio.run(until(lambda: events_of(run.events, ToolCallFinished)))
    run.answer("q1", "approve")
    run.result(DEADLINE_S)
    run.to_json(tmp_path / "run.json")

    assert [each.name for each in events_of(run.events, ToolCallStarted)] == ["look", "send"]
    for kept in (run, one.load(run.id), agentnb.load_run(tmp_path / "run.json")):
        found = {call.name: call for call in kept.agent("root").tool_calls}
        assert {name: call.input["text"] for name, call in found.items()} == texts
        assert [found[name].result[:4] for name in texts] == ["sent", "seen"]
        assert [len(found[name].result) for name in texts] == [3005, 3005]
    one.close()
