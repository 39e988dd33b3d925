"""What a person orders and is asked: in rows, summary, notices, notes, and messages of the tree."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import agentnb
from agentnb.core.events import (
    AgentTold,
    AgentWaiting,
    BudgetPaused,
    QuestionAnswered,
    QuestionAsked,
    RunPaused,
    RunResumed,
    SpawnPlanned,
)
from agentnb.core.questions import Question
from agentnb.core.types import SpawnMode
from agentnb.views.panel.asked import question_row
from agentnb.views.panel.controls import PauseButton
from agentnb.views.panel.details import Details
from agentnb.views.panel.fold import PanelFold
from agentnb.views.panel.frames import NOTIFY_VARIABLE
from tests.views.panel.asked_run import AskedRun
from tests.views.panel.manual_run import ManualRun, id_of
from tests.views.panel.stage import FrontEnd, Stage
from tests.views.panel.test_fold import folded, row, summary
from tests.views.panel.test_tree_view import Wire


def tree() -> ManualRun:
    """A run of root, 1, 1.2 and 2, all at work."""
    run = ManualRun().began()
    for path in ("1", "1.2", "2"):
        run.spawned(path).called(path)
    return run


def paused(path: str | None) -> RunPaused:
    return RunPaused(agent_id=None if path is None else id_of(path), by="code")


def resumed(path: str | None) -> RunResumed:
    return RunResumed(agent_id=None if path is None else id_of(path), by="code")


def pauses(run: ManualRun) -> dict[str, str]:
    return {path: row(run, path)["paused"] for path in ("root", "1", "1.2", "2")}


def asked(path: str, number: int = 1, **how: Any) -> QuestionAsked:
    fields = {"question": "approval", "text": "May I?", "options": ("approve", "deny"), **how}
    return QuestionAsked(agent_id=id_of(path), question_id=f"q{number}", **fields)


def answered(path: str, number: int = 1, answer: str = "deny", **how: Any) -> QuestionAnswered:
    fields = {"by": "panel", **how}
    return QuestionAnswered(agent_id=id_of(path), question_id=f"q{number}", answer=answer, **fields)


def notes(fold: PanelFold, path: str) -> list[str]:
    return Details(path).whole(fold, lambda _: "")["notes"]


# -- pauses -----------------------------------------------------------------------------------


def test_pause_of_a_branch_shows_on_it_and_all_below_and_no_other() -> None:
    run = tree().tell(paused("1"))

    assert pauses(run) == {"root": "", "1": "here", "1.2": "above", "2": ""}
    assert not summary(run).is_paused
    run.tell(resumed("1"))
    assert set(pauses(run).values()) == {""}


def test_pause_of_the_run_shows_in_the_header_and_on_every_agent_until_it_ends() -> None:
    run = tree().tell(paused("1.2"), paused(None))

    assert summary(run).is_paused
    assert pauses(run) == {"root": "above", "1": "above", "1.2": "here", "2": "above"}
    run.tell(resumed("1.2"), resumed(None))
    assert not summary(run).is_paused
    assert set(pauses(run).values()) == {""}


def test_pause_ends_with_its_agent_and_all_with_the_run() -> None:
    run = tree().after(12).tell(paused("1.2"), paused("2")).after(28).completed("1.2")
    assert (row(run, "1.2")["paused"], row(run, "2")["paused"]) == ("", "here")
    assert summary(run).notices == (
        "Paused 1.2 from 0:12 to 0:40 min.",
        "Paused 2 since 0:12 min: no new call or tool starts.",
    )
    run.ended()
    assert "since" not in "".join(summary(run).notices)


def test_held_agent_is_paused_in_one_word_and_not_for_ever() -> None:
    run = tree().tell(paused(None), AgentWaiting(agent_id=id_of("2"), reason="paused"))
    assert (row(run, "2")["status"], row(run, "2")["doing"]) == ("waiting", "")
    run.tell(resumed(None))
    assert (row(run, "2")["paused"], row(run, "2")["doing"]) == ("", "")


def test_button_pauses_and_resumes_and_is_named_by_what_it_does_now() -> None:
    stage = Stage()
    button = PauseButton(stage)
    page = FrontEnd(button)

    page.clicks()
    page.clicks()  # a second click on the way to the first one's effect is none
    assert button.disabled
    stage.work()
    stage.frame(is_paused=True)
    assert (page.state["description"], button.disabled) == ("Resume run", False)
    page.clicks()
    stage.work()
    stage.frame(is_paused=False)

    assert stage.given == [("pause", None), ("resume", None)]
    assert page.state["description"] == "Pause run"
    stage.frame(done=True)
    assert button.disabled


# -- questions, plans, words --------------------------------------------------------------------


def test_question_counts_and_shows_on_its_agent_alone_until_it_is_answered() -> None:
    run = tree().tell(asked("1.2"), asked("2", 2))
    assert summary(run).questions == 2
    assert [row(run, path)["asks"] for path in ("1", "1.2", "2")] == [False, True, True]

    run.tell(answered("1.2"))
    assert summary(run).questions == 1
    assert not row(run, "1.2")["asks"]
    run.ended()
    assert (summary(run).questions, row(run, "2")["asks"]) == (0, False)


def test_questions_of_budget_and_agents_are_counted_together() -> None:
    budget = BudgetPaused(tokens_used=80, budget_total=100, percentage=80.0, wait_s=60.0)
    run = tree().tell(asked("1"), budget)
    assert summary(run).questions == 2


def test_notes_tell_question_and_answer_on_one_line_and_plans_and_words() -> None:
    plan = SpawnPlanned(
        agent_id=id_of("1"),
        mode=SpawnMode.PARALLEL,
        tasks=("a",) * 12,
        estimated_tokens=96_000,
        estimated_cost_usd=0.8,
    )
    run = tree().tell(plan, asked("1"), asked("1", 2))
    run.tell(answered("1", reason="not that file"), AgentTold(agent_id=id_of("1"), text="x", by=""))

    told = notes(folded(run), "1")

    assert "plans 12 agents, at most 96,000 tokens, at most $0.80" in told
    assert "asked: May I? (deny, in the panel: not that file)" in told
    assert "asks: May I?" in told  # the second one is open
    assert row(run, "1")["notes"] == len(told) == 4
    assert Details("1").whole(folded(run), lambda _: "")["told"] == 1


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"answer": "fewer", "value": 3}, "(fewer 3, in the panel)"),
        (
            {"by": "limit", "reason": "nobody was there"},
            "(deny, no answer: nobody was there)",
        ),
        ({"answer": "ended", "by": "limit"}, "(it ended before an answer)"),
    ],
)
def test_note_says_who_answered(how: dict[str, Any], words: str) -> None:
    fold = folded(tree().tell(asked("1"), answered("1", **how)))
    assert notes(fold, "1")[0].endswith(words)


def test_marks_are_the_times_of_pauses_and_questions() -> None:
    run = tree().after(1).tell(paused(None)).after(1).tell(asked("1")).after(1)
    run.tell(answered("1")).after(1).tell(resumed(None))
    assert folded(run).person.marks == [1.0, 2.0, 3.0, 4.0]


# -- the page -----------------------------------------------------------------------------------


def approval(arguments: Any, tool: str = "send") -> Question:
    about = {"tool": tool, "arguments": arguments}
    return Question("q1", "approval", "a", "1", "May I?", ("approve", "deny"), about, 20.0, 180.0)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"path": "a\u202eb", "esc": "\x1b[31m\n", "half": "\ud800", "deep": [{"n": 2**70}]}],
)
def test_arguments_are_shown_whole_act_nowhere_and_read_back_as_they_were(arguments: Any) -> None:
    shown = question_row(approval(arguments))["arguments"]

    assert json.loads(shown) == arguments
    assert not {"\u202e", "\x1b", "\ud800"} & set(shown)
    assert question_row(approval(arguments))["fixed"] == ""


def test_arguments_with_a_secret_are_masked_and_cannot_be_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MAIL_API_KEY", "sk-abcdefgh12345678")
    AskedRun().publisher._tick()  # reads the secrets

    made = question_row(approval({"key": "sk-abcdefgh12345678"}))

    assert "sk-abcdefgh12345678" not in made["arguments"]
    assert made["fixed"]


def test_arguments_are_shown_by_name_and_value_with_their_lines() -> None:
    made = question_row(approval({"to": "ann", "body": "Hello,\nbye", "copies": 2}))

    assert made["values"] == [["to", "ann"], ["body", "Hello,\nbye"], ["copies", "2"]]
    assert made["code"] == ""


def test_code_is_shown_as_it_will_run_and_can_be_changed() -> None:
    code = "if x:\r\n\ty = 'ä'\n" * 5_000

    made = question_row(approval({"code": code}, "python"))

    assert made["code"] == code.replace("\r\n", "\n")  # whole, however long
    assert (made["values"], made["arguments"], made["fixed"]) == ([], "", "")


def test_code_that_hides_something_is_shown_with_escapes_and_cannot_be_changed() -> None:
    made = question_row(approval({"code": "a = 1  # \u202eb"}, "python"))

    assert made["code"] == "a = 1  # \\u202eb"
    assert "escapes" in made["fixed"]


def test_code_with_a_secret_is_masked_and_cannot_be_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MAIL_API_KEY", "sk-abcdefgh12345678")
    AskedRun().publisher._tick()  # reads the secrets

    made = question_row(approval({"code": "key = 'sk-abcdefgh12345678'"}, "python"))

    assert "sk-abcdefgh12345678" not in made["code"]
    assert "secret" in made["fixed"]


def test_question_says_when_it_is_denied() -> None:
    assert question_row(approval({}))["late"] == "denied at 3:20 min without an answer"


@pytest.fixture
def steered() -> Iterator[tuple[AskedRun, Wire]]:
    run = AskedRun()
    run.run.spawned("1").called("1")
    view = Wire(run.publisher).greeted("v")
    yield run, view
    view.close()


def ids(message: dict[str, Any]) -> list[str]:
    return [each["id"] for each in message["questions"]]


def test_open_questions_come_once_with_a_frame_and_whole_with_a_full_one(
    steered: tuple[AskedRun, Wire],
) -> None:
    run, view = steered
    run.asks_to_call("1", path="/tmp/" + "x" * 100_000)
    run.asks("root", "sample", "Go on?")
    view.wait_until(lambda sent: any(len(m.get("questions", ())) == 2 for m in sent))
    assert len(view.heard(type="resend")[0]["questions"][0]["arguments"]) > 100_000

    view.heard(**answer_of("q1"), answer="approve")
    view.wait_until(lambda sent: "questions" in sent[-1] and ids(sent[-1]) == ["q2"])
    run.run.spawned("2")
    view.wait_until(lambda sent: any(r["path"] == "2" for m in sent for r in m.get("agents", ())))

    assert "questions" not in view.of("frame")[-1]
    (full,) = view.heard(type="hello", view="another")
    assert ids(full) == ids(view.get_state("snapshot")["snapshot"]) == ["q2"]


def answer_of(question: str, **fields: Any) -> dict[str, Any]:
    blank = {"type": "answer", "question": question}
    return {**blank, "arguments": None, "number": None, "reason": None, **fields}


def test_orders_of_a_page_reach_the_run_with_what_they_carry(
    steered: tuple[AskedRun, Wire],
) -> None:
    run, view = steered
    for _ in range(3):
        run.asks_to_call("1")

    view.heard(**answer_of("q1", answer="approve", arguments='{"path": "/b"}'))
    view.heard(**answer_of("q2", answer="deny", reason="no"))
    view.heard(**answer_of("q3", answer="fewer", number=2))
    view.heard(type="pause", agent="1")
    view.heard(type="resume", agent="1")
    view.heard(type="tell", agent="1", text="Look at <b>that</b>")

    assert run.given == [
        ("answer", "q1", "approve", {"path": "/b"}, None),
        ("answer", "q2", "deny", None, "no"),
        ("answer", "q3", "fewer", 2, None),
        ("pause", "1"),
        ("resume", "1"),
        ("tell", "1", "Look at <b>that</b>"),
    ]


def test_answer_that_comes_too_late_is_one_line_and_is_told_to_the_pages(
    steered: tuple[AskedRun, Wire],
) -> None:
    run, view = steered
    question = run.asks_to_call("1")
    run.answer(question.id, "approve")

    sent = view.heard(**answer_of("q1", answer="deny"))

    assert {"type": "failed", "command": "answer", "about": "q1"} in sent
    (line,) = run.publisher._said
    assert "'q1'" in line


@pytest.mark.parametrize("arguments", ["[1]", "{", "nul", "[" * 100_000])
def test_forged_arguments_that_are_no_object_are_refused(
    steered: tuple[AskedRun, Wire], arguments: str
) -> None:
    run, view = steered
    run.asks_to_call("1")

    view.heard(**answer_of("q1", answer="approve", arguments=arguments))

    assert (run.given, run.publisher.refused) == ([], 1)


def test_run_is_unwatched_while_nobody_waits_for_it() -> None:
    with agentnb.Session(provider=agentnb.ScriptedProvider(["Done."]), store=None) as session:
        run = session.spawn("Do it.")
        assert run._live().is_unwatched
        run.result()
        assert not run._live().is_unwatched


def test_page_gives_notice_only_of_a_run_that_nobody_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    background, awaited = AskedRun(is_awaited=False), AskedRun()
    views = [Wire(background.publisher), Wire(awaited.publisher)]
    monkeypatch.setenv(NOTIFY_VARIABLE, "off")
    views.append(Wire(background.publisher))
    told = [view.notify for view in views]
    for view in views:
        view.close()
    assert told == [True, False, False]
