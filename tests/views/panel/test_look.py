"""The details of an agent: what it was sent, what it says, whole at first and then what came."""

from __future__ import annotations

from typing import Any

import pytest

from agentnb.core.events import AgentFailed, SpawnIgnored
from agentnb.core.types import (
    CompletionRequest,
    Message,
    Role,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from agentnb.views.panel.fold import PanelFold
from agentnb.views.panel.look import Look
from agentnb.views.panel.story import prompt_of
from tests.views.panel.told import ToldRun, id_of


def cost_of(path: str) -> str:
    return f"the price of {path}"


def whole(look: Look, run: ToldRun) -> dict[str, Any]:
    return look.whole(folded(run, look.at_s), cost_of)


def more(look: Look, run: ToldRun) -> dict[str, Any] | None:
    return look.more(folded(run, look.at_s), cost_of)


def folded(run: ToldRun, at_s: float | None) -> PanelFold:
    fold = PanelFold()
    fold.feed([row for row in run.bus.rows_since(0) if at_s is None or row[0] <= at_s])
    return fold


def test_look_has_the_prompt_as_sent_and_the_text_so_far() -> None:
    run = ToldRun().began("Sum\nup").called("root", "Hello").said("root", "Hm, ").said("root", "so")

    shown = whole(Look("root"), run)

    assert shown["prompt"] == {
        "system": "be brief",
        "messages": [{"role": "user", "text": "Hello"}],
    }
    assert (shown["text"], shown["task"], shown["cost"]) == (
        "Hm, so",
        "Sum\nup",
        "the price of root",
    )
    assert (shown["type"], shown["n"], shown["reset"]) == ("look", 0, True)


def test_text_that_streams_is_added_and_never_sent_again() -> None:
    run = ToldRun().began().called("root").said("root", "one ")
    look = Look("root")
    whole(look, run)

    first = more(look, run.said("root", "two ").said("root", "three"))

    assert first == {"type": "look", "n": 1, "reset": False, "add": "two three"}
    assert more(look, run) is None
    assert more(look, run.said("root", "!")) == {
        "type": "look",
        "n": 2,
        "reset": False,
        "add": "!",
    }


def test_line_end_that_comes_in_two_halves_is_one() -> None:
    run = ToldRun().began().called("root").said("root", "a\r")
    look = Look("root")
    assert whole(look, run)["text"] == "a"

    first = more(look, run.said("root", "\nb\r"))
    second = more(look, run.said("root", "c"))

    assert (first or {})["add"] == "\nb"
    assert (second or {})["add"] == "\nc"


def test_long_task_is_made_visible_once_and_not_for_each_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    run = ToldRun().began("x" * 1000).called("root")
    look = Look("root")
    whole(look, run)
    monkeypatch.setattr("agentnb.views.panel.look.visible_text", made.append)

    more(look, run.said("root", "more"))

    assert made == ["more"]


def test_other_agents_text_is_not_sent() -> None:
    run = ToldRun().began().spawned("1").called("root").called("1")
    look = Look("1")
    whole(look, run)

    assert more(look, run.said("root", "secret")) is None


def test_look_that_follows_goes_to_the_next_call() -> None:
    run = ToldRun().began().called("root", "first").said("root", "plan").replied("root")
    look = Look("root")
    whole(look, run)

    shown = more(look, run.called("root", "second", is_synthesis=True))

    assert shown is not None
    assert (shown["reset"], shown["call"], shown["text"]) == (True, 2, "")
    assert shown["prompt"]["messages"][0]["text"] == "second"
    assert [call["is_synthesis"] for call in shown["calls"]] == [False, True]


def test_look_at_one_call_stays_there() -> None:
    run = ToldRun().began().called("root", "first").said("root", "plan").replied("root")
    look = Look("root", call=1)
    whole(look, run)

    shown = more(look, run.called("root", "second"))

    assert shown is not None
    assert (shown["reset"], shown["call"] if "call" in shown else 1) == (False, 1)
    assert whole(look, run)["text"] == "plan"


def test_calls_tell_attempts_tokens_and_errors() -> None:
    run = ToldRun().began().called("root").replied("root", stop_reason=None, error="reset")
    run.called("root", attempt=2).replied("root", tokens=30)

    first, second = whole(Look("root"), run)["calls"]

    assert (first["status"], first["error"], first["attempt"]) == ("error", "reset", 1)
    assert (second["status"], second["tokens"], second["attempt"]) == ("done", 30, 2)


def test_call_that_was_cancelled_or_stopped_by_the_budget_did_not_fail() -> None:
    run = ToldRun().began().called("root").replied("root", stop_reason=None, error="cancelled")
    run.called("root").replied("root", stop_reason=None)

    calls = whole(Look("root"), run)["calls"]

    assert [call["status"] for call in calls] == ["cancelled", "stopped"]


def test_tokens_are_the_providers_own_numbers() -> None:
    run = ToldRun().began().called("root").replied("root", tokens=30)

    assert whole(Look("root"), run)["tokens"] == {
        "input": 30,
        "output": 0,
        "cache_read": 0,
        "cache_write": 0,
    }


def test_errors_and_notes_are_told_whole() -> None:
    failed = AgentFailed(
        agent_id=id_of("root"), error="line 1\nline 2", will_retry=False, attempt=2
    )
    ignored = SpawnIgnored(agent_id=id_of("root"), reason="too many", tasks=("A",))
    run = ToldRun().began().called("root").tell(ignored).tell(failed)

    shown = whole(Look("root"), run)

    assert shown["error"] == "line 1\nline 2"
    assert shown["notes"] == ["skipped: A (too many)"]


def test_agent_that_is_not_there_yet_is_shown_when_it_comes() -> None:
    run = ToldRun().began()
    look = Look("1")
    assert "task" not in whole(look, run)
    assert more(look, run) is None

    shown = more(look, run.spawned("1", "now"))

    assert shown is not None
    assert (shown["reset"], shown["task"]) == (True, "now")


def test_look_at_the_past_shows_what_was_there_and_stays() -> None:
    run = ToldRun().began().called("root").said("root", "one").after(5).said("root", " two")
    run.replied("root", tokens=9).completed("root")
    look = Look("root", at_s=2)

    shown = whole(look, run)

    assert (shown["text"], shown["status"], shown["tokens"]["input"]) == ("one", "running", 0)
    assert more(look, run) is None


def test_what_acts_is_made_visible_in_prompts_texts_and_tasks() -> None:
    run = ToldRun().began("\x1b[1m").called("root", "\u202e").said("root", "\x07\ud800")

    shown = whole(Look("root"), run)

    assert shown["task"] == "\\x1b[1m"
    assert shown["prompt"]["messages"][0]["text"] == "\\u202e"
    assert shown["text"] == "\\x07\ufffd"


def test_prompt_holds_tool_calls_and_their_results() -> None:
    said = Message(Role.ASSISTANT, (TextBlock("I look."), ToolUseBlock("t1", "find", {"q": "x"})))
    result = Message(Role.USER, (ToolResultBlock("t1", "none", is_error=True),))
    request = CompletionRequest(model="m", system="", messages=(said, result))

    first, second = prompt_of(request)["messages"]

    assert first["text"] == 'I look.\n\n(tool call t1) find({"q": "x"})'
    assert second["text"] == "(tool error t1) none"
