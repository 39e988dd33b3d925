"""A map or list of which nothing was completed has failed, and says once why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentnb import ScriptedProvider, Session
from agentnb.core.errors import AuthenticationFailed, LlmError
from agentnb.core.types import AgentStatus
from agentnb.providers.scripted import AnyReply, Reply
from tests.support import DEADLINE_S

NO_KEY = AuthenticationFailed("The key is wrong: set another one.", status_code=401)


def session(replies: dict[str, AnyReply], **more: Any) -> Session:
    """One whose model answers a task as told, and else "Yes."."""
    provider = ScriptedProvider(lambda request: replies.get(request.last_user_text, "Yes."))
    return Session(provider=provider, **{"config": False, "store": None, **more})


def test_map_without_a_completed_row_has_failed_and_says_why_once(tmp_path: Path) -> None:
    rows = [f"row {number}" for number in range(40)]
    one = session(dict.fromkeys(rows, NO_KEY), store=tmp_path / "runs.db")
    run = one.map(rows, "{{text}}")

    out = run.result(DEADLINE_S)

    why = "No row was completed: The key is wrong: set another one."
    assert run.status is out.status is AgentStatus.FAILED
    assert repr(out).count("The key is wrong") == 1
    assert "40 rows: 40 failed" in repr(out)
    assert run.output == f"*{why}*"
    for record in (run, one.load(run.id)):
        root = record.agent("root")
        assert (root.status, root.error) == (AgentStatus.FAILED, why)
        assert str(record.tree).startswith("root ✗ failed")
        assert record.to_records()[0]["error"] == why
    assert list(out.df["status"]) == ["failed"] * 40


def test_rows_of_a_failed_map_can_be_asked_again() -> None:
    provider = ScriptedProvider([NO_KEY, NO_KEY, "Yes.", "Yes."])
    one = Session(provider=provider, config=False, store=None)
    out = one.map(["a", "b"], "{{text}}", retry_failed=0).result(DEADLINE_S)

    again = out.retry().result(DEADLINE_S)

    assert (out.status, again.status) == (AgentStatus.FAILED, AgentStatus.COMPLETED)
    assert list(again.data) == ["Yes.", "Yes."]


def test_reasons_are_told_by_how_often_they_came() -> None:
    errors = [LlmError(f"reason {number}.") for number in range(5)]
    replies: dict[str, AnyReply] = {f"{n}": errors[max(0, n - 5)] for n in range(10)}

    out = session(replies).map(list(replies), "{{text}}", retry_failed=0).result(DEADLINE_S)

    told = repr(out).partition("no row was completed: ")[2]
    assert told.startswith(
        "reason 0 (6 of 10); reason 1 (1 of 10); reason 2 (1 of 10); and 2 other"
    )


def test_one_completed_row_is_enough() -> None:
    out = session({"a": NO_KEY}).map(["a", "b"], "{{text}}").result(DEADLINE_S)

    assert out.status is AgentStatus.COMPLETED
    assert "no row" not in repr(out)


@pytest.mark.parametrize(("failing", "status"), [(1, "completed"), (2, "failed"), (3, "failed")])
def test_row_is_completed_by_most_of_its_judges(failing: int, status: str) -> None:
    provider = ScriptedProvider([*[NO_KEY] * failing, *["Yes."] * 3])
    one = Session(provider=provider, config=False, store=None)

    out = one.map(["a"], "{{text}}", judges=3, retry_failed=0).result(DEADLINE_S)

    assert str(out.status) == status


def test_list_without_a_completed_task_has_failed() -> None:
    run = session({"a": NO_KEY, "b": NO_KEY}).spawn_all(["a", "b"], synthesis=False)

    result = run.result(DEADLINE_S)

    assert run.status is result.status is AgentStatus.FAILED
    assert result.final_response == "*No task was completed: The key is wrong: set another one.*"
    assert [each.error for each in result.sub_agent_results] == [str(NO_KEY)] * 2


def test_half_an_answer_of_a_failed_list_is_kept() -> None:
    half = Reply("Half an", error=LlmError("lost"))

    result = session({"a": half}).spawn_all(["a"], synthesis=False).result(DEADLINE_S)

    assert "Half an" in result.final_response
    assert result.final_response.endswith("*No task was completed: lost*")


def test_map_that_the_budget_ended_is_exhausted() -> None:
    out = session({}).map(["a", "b"], "{{text}}", budget=1).result(DEADLINE_S)

    assert out.status is AgentStatus.EXHAUSTED


def test_empty_table_is_completed() -> None:
    assert session({}).map([], "{{text}}").result(DEADLINE_S).status is AgentStatus.COMPLETED
