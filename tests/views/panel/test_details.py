"""The details of an agent: what it was sent, what it says, whole at first and then what came."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from agentnb.core.events import AgentFailed, AgentInterrupted, SpawnIgnored
from agentnb.core.reading import cut_input
from agentnb.core.records import ToolCallRecord
from agentnb.core.types import (
    CompletionRequest,
    MediaBlock,
    Message,
    OpaqueBlock,
    Role,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from agentnb.views.panel.details import Details
from agentnb.views.panel.fold import PanelFold
from agentnb.views.panel.history import prompt_of
from agentnb.views.panel.pictures import MOST_IN_MESSAGE
from tests.files_of import pdf, png
from tests.views.panel.manual_run import ManualRun, id_of


def cost_of(path: str) -> str:
    return f"the price of {path}"


def whole(look: Details, run: ManualRun) -> dict[str, Any]:
    return dict(look.whole(folded(run, look.at_s), cost_of))


def more(look: Details, run: ManualRun) -> dict[str, Any] | None:
    changed = look.more(folded(run, look.at_s), cost_of)
    return None if changed is None else dict(changed)


def folded(run: ManualRun, at_s: float | None) -> PanelFold:
    fold = PanelFold()
    fold.feed([row for row in run.bus.rows_since(0) if at_s is None or row[0] <= at_s])
    return fold


def test_look_has_the_prompt_as_sent_and_the_text_so_far() -> None:
    run = (
        ManualRun().began("Sum\nup").called("root", "Hello").said("root", "Hm, ").said("root", "so")
    )

    shown = whole(Details("root"), run)

    assert shown["prompt"] == {
        "system": "be brief",
        "messages": [{"role": "user", "text": "Hello"}],
    }
    assert (shown["text"], shown["task"], shown["cost"]) == (
        "Hm, so",
        "Sum\nup",
        "the price of root",
    )
    assert (shown["type"], shown["n"], shown["reset"]) == ("details", 0, True)


def test_text_that_streams_is_added_and_never_sent_again() -> None:
    run = ManualRun().began().called("root").said("root", "one ")
    look = Details("root")
    whole(look, run)

    first = more(look, run.said("root", "two ").said("root", "three"))

    assert first == {"type": "details", "n": 1, "reset": False, "add": "two three"}
    assert more(look, run) is None
    assert more(look, run.said("root", "!")) == {
        "type": "details",
        "n": 2,
        "reset": False,
        "add": "!",
    }


def test_line_end_that_comes_in_two_halves_is_one() -> None:
    run = ManualRun().began().called("root").said("root", "a\r")
    look = Details("root")
    assert whole(look, run)["text"] == "a"

    first = more(look, run.said("root", "\nb\r"))
    second = more(look, run.said("root", "c"))

    assert (first or {})["add"] == "\nb"
    assert (second or {})["add"] == "\nc"


def test_long_task_is_made_visible_once_and_not_for_each_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    run = ManualRun().began("x" * 1000).called("root")
    look = Details("root")
    whole(look, run)
    monkeypatch.setattr("agentnb.views.panel.details.visible_text", made.append)

    more(look, run.said("root", "more"))

    assert made == ["more"]


def test_other_agents_text_is_not_sent() -> None:
    run = ManualRun().began().spawned("1").called("root").called("1")
    look = Details("1")
    whole(look, run)

    assert more(look, run.said("root", "secret")) is None


def test_look_that_follows_goes_to_the_next_call() -> None:
    run = ManualRun().began().called("root", "first").said("root", "plan").replied("root")
    look = Details("root")
    whole(look, run)

    shown = more(look, run.called("root", "second", is_synthesis=True))

    assert shown is not None
    assert (shown["reset"], shown["call"], shown["text"]) == (True, 2, "")
    assert shown["prompt"]["messages"][0]["text"] == "second"
    assert [call["is_synthesis"] for call in shown["calls"]] == [False, True]


def test_look_at_one_call_stays_there() -> None:
    run = ManualRun().began().called("root", "first").said("root", "plan").replied("root")
    look = Details("root", call=1)
    whole(look, run)

    shown = more(look, run.called("root", "second"))

    assert shown is not None
    assert (shown["reset"], shown["call"] if "call" in shown else 1) == (False, 1)
    assert whole(look, run)["text"] == "plan"


def test_calls_show_attempts_tokens_and_errors() -> None:
    run = ManualRun().began().called("root").replied("root", stop_reason=None, error="reset")
    run.called("root", attempt=2).replied("root", tokens=30)

    first, second = whole(Details("root"), run)["calls"]

    assert (first["status"], first["error"], first["attempt"]) == ("error", "reset", 1)
    assert (second["status"], second["tokens"], second["attempt"]) == ("done", 30, 2)


def test_call_that_was_cancelled_or_stopped_by_the_budget_did_not_fail() -> None:
    run = ManualRun().began().called("root").replied("root", stop_reason=None, error="cancelled")
    run.called("root").replied("root", stop_reason=None)

    calls = whole(Details("root"), run)["calls"]

    assert [call["status"] for call in calls] == ["cancelled", "stopped"]


def test_tokens_are_the_providers_own_numbers() -> None:
    run = ManualRun().began().called("root").replied("root", tokens=30)

    assert whole(Details("root"), run)["tokens"] == {
        "input": 30,
        "output": 0,
        "cache_read": 0,
        "cache_write": 0,
    }


def test_errors_and_notes_are_shown_whole() -> None:
    failed = AgentFailed(
        agent_id=id_of("root"), error="line 1\nline 2", will_retry=False, attempt=2
    )
    ignored = SpawnIgnored(agent_id=id_of("root"), reason="too many", tasks=("A",))
    run = ManualRun().began().called("root").tell(ignored).tell(failed)

    shown = whole(Details("root"), run)

    assert shown["error"] == "line 1\nline 2"
    assert shown["notes"] == ["skipped: A (too many)"]


def test_long_notes_end_with_their_count() -> None:
    tasks = tuple(f"task {n}" for n in range(20_000))
    run = ManualRun().began().tell(SpawnIgnored(agent_id=id_of("root"), reason="no", tasks=tasks))

    notes = whole(Details("root"), run)["notes"]

    assert notes[:2] == ["skipped: task 0 (no)", "skipped: task 1 (no)"]
    assert notes[100:] == ["… and 19,900 more"]


def test_agent_that_is_not_there_yet_is_shown_when_it_comes() -> None:
    run = ManualRun().began()
    look = Details("1")
    assert "task" not in whole(look, run)
    assert more(look, run) is None

    shown = more(look, run.spawned("1", "now"))

    assert shown is not None
    assert (shown["reset"], shown["task"]) == (True, "now")


def test_look_at_the_past_shows_what_was_there_and_stays() -> None:
    run = ManualRun().began().called("root").said("root", "one").after(5).said("root", " two")
    run.replied("root", tokens=9).completed("root")
    look = Details("root", at_s=2)

    shown = whole(look, run)

    assert (shown["text"], shown["status"], shown["tokens"]["input"]) == ("one", "running", 0)
    assert more(look, run) is None


def test_what_acts_is_made_visible_in_prompts_texts_and_tasks() -> None:
    run = ManualRun().began("\x1b[1m").called("root", "\u202e").said("root", "\x07\ud800")

    shown = whole(Details("root"), run)

    assert shown["task"] == "\\x1b[1m"
    assert shown["prompt"]["messages"][0]["text"] == "\\u202e"
    assert shown["text"] == "\\x07\ufffd"


def test_prompt_holds_tool_calls_and_their_results() -> None:
    kept = OpaqueBlock("p", {"type": "search", "found": ["<b>"]})
    content = (kept, TextBlock("I look."), ToolUseBlock("t1", "find", {"q": "x"}))
    said = Message(Role.ASSISTANT, content)
    result = Message(Role.USER, (ToolResultBlock("t1", "none", is_error=True),))
    request = CompletionRequest(model="m", system="", messages=(said, result))

    first, second = prompt_of(request)["messages"]

    assert first["text"] == (
        '(kept for the API) {"type": "search", "found": ["<b>"]}\n\n'
        'I look.\n\n(tool call t1) find({"q": "x"})'
    )
    assert second["text"] == "(tool error t1) none"


def tools_of(shown: dict[str, Any] | None) -> list[dict[str, Any]]:
    assert shown is not None
    return list(shown["tools"])


def test_look_lists_tool_calls_with_arguments_time_and_result() -> None:
    run = ManualRun().began().after(2).tool("root", "a", "find", input={"city": "Bonn"})
    run.reported("root", "a", "half")
    (at_work,) = tools_of(whole(Details("root"), run))
    assert at_work == {
        "n": 1,
        "name": "find",
        "status": "open",
        "begun": 2,
        "duration_ms": None,
        "said": "half",
        "input": '{"city": "Bonn"}',
        "is_code": False,
        "input_cut": None,
        "result": "",
        "result_cut": None,
        "pictures": [],
    }

    (done,) = tools_of(whole(Details("root"), run.tool_ended("root", "a", "330,000\npeople")))

    assert (done["status"], done["said"]) == ("done", "")
    assert (done["result"], done["duration_ms"]) == ("330,000\npeople", 1200)


@pytest.mark.parametrize(
    ("result", "is_error", "status"),
    [
        ("fine", False, "done"),
        ("ValueError: no", True, "error"),
        ("cancelled", True, "cancelled"),
        ("cancelled", False, "done"),
    ],
)
def test_tool_call_shows_how_it_ended(result: str, is_error: bool, status: str) -> None:
    run = ManualRun().began().tool("root", "a").tool_ended("root", "a", result, is_error=is_error)

    (call,) = tools_of(whole(Details("root"), run))
    assert call["status"] == status
    assert call["result"] == ("" if status == "cancelled" else result)  # the state says it


def test_tool_call_whose_process_died_is_interrupted_and_not_at_work() -> None:
    run = ManualRun().began().tool("root", "a")
    look = Details("root")
    whole(look, run)

    shown = more(look, run.tell(AgentInterrupted(agent_id=id_of("root"))))

    assert [call["status"] for call in tools_of(shown)] == ["interrupted"]


def test_only_tool_calls_that_changed_are_sent_again() -> None:
    run = ManualRun().began().tool("root", "a").tool("root", "b")
    look = Details("root")
    assert [call["n"] for call in tools_of(whole(look, run))] == [1, 2]
    assert more(look, run) is None

    shown = more(look, run.reported("root", "b", "half").tool_ended("root", "b").tool("root", "c"))

    assert [(call["n"], call["status"]) for call in tools_of(shown)] == [(2, "done"), (3, "open")]
    assert more(look, run) is None


def test_id_that_is_given_again_means_the_newest_call() -> None:
    run = ManualRun().began().tool("root", "a").tool_ended("root", "a", "one")
    run.tool("root", "a").tool_ended("root", "a", "two")

    assert [call["result"] for call in tools_of(whole(Details("root"), run))] == ["one", "two"]


def test_tool_calls_of_other_agents_are_not_shown() -> None:
    run = ManualRun().began().spawned("1").tool("1", "a", input={"secret": 1})

    assert whole(Details("root"), run)["tools"] == []


def test_look_at_the_past_has_the_tool_calls_of_then() -> None:
    run = ManualRun().began().tool("root", "a").after(5).tool_ended("root", "a").tool("root", "b")

    (call,) = tools_of(whole(Details("root", at_s=2), run))

    assert (call["status"], call["result"]) == ("open", "")


def test_arguments_and_results_that_the_event_cut_show_how_long_they_were() -> None:
    run = ManualRun().began().tool("root", "a", input={"text": "x" * 200}, input_length=45_000)
    run.tool_ended("root", "a", "y" * 2000, result_length=70_000)

    (call,) = tools_of(whole(Details("root"), run))

    assert (call["input_cut"], call["result_cut"]) == (45_000, 70_000)
    assert call["input"] == '{\n  "text": "' + "x" * 200 + '"\n}'


@pytest.mark.parametrize(
    ("name", "given", "shown"),
    [
        ("python", {"code": "\nif x:\n    y['a'] = \"b\"\n"}, "if x:\n    y['a'] = \"b\""),
        ("python", {"code": "1 + 1"}, "1 + 1"),
        ("python", {"code": 1}, None),
        ("python", {"code": "1", "more": 2}, None),
        ("python", "1", None),
        ("find", {"code": "a\nb"}, None),
    ],
)
def test_code_of_a_call_is_shown_as_code(name: str, given: Any, shown: str | None) -> None:
    run = ManualRun().began().tool("root", "a", name, input=given)

    (call,) = tools_of(whole(Details("root"), run))

    assert call["is_code"] == (shown is not None)
    assert call["input"] == (shown if shown is not None else json.dumps(given))


def test_what_acts_is_made_visible_in_names_arguments_reports_and_results() -> None:
    run = ManualRun().began().tool("root", "a", "na\nme\x1b[1m", input={"q\u202e": "\x07"})
    run.reported("root", "a", "\x1b[2m")
    look = Details("root")

    (call,) = tools_of(whole(look, run))
    assert call["name"] == "na me\\x1b[1m"
    assert call["input"] == '{"q\\u202e": "\\u0007"}'
    assert call["said"] == "\\x1b[2m"
    (ended,) = tools_of(more(look, run.tool_ended("root", "a", "\x1b[3m\nso\ud800")))
    assert ended["result"] == "\\x1b[3m\nso\ufffd"


def test_call_without_arguments_shows_none() -> None:
    run = ManualRun().began().tool("root", "a", input={})

    assert tools_of(whole(Details("root"), run))[0]["input"] == ""


def test_sub_agent_that_a_tool_started_shows_its_job_and_profile() -> None:
    run = ManualRun().began().spawned("1", job_id="0a1b2c", profile="re\nviewer").spawned("2")

    shown, other = whole(Details("1"), run), whole(Details("2"), run)

    assert (shown["job"], shown["profile"]) == ("0a1b2c", "re viewer")
    assert (other["job"], other["profile"]) == ("", "")


# -- pictures of tools ----------------------------------------------------------------------------


def block(content: bytes, media_type: str = "image/png") -> MediaBlock:
    return MediaBlock(media_type, base64.b64encode(content).decode())


def drew(run: ManualRun, *media: MediaBlock, number: int = 1) -> ToolCallRecord:
    """A call of the root that returned files. Gives what the bus keeps of it."""
    run.tool("root", f"t{number}", "draw")
    named = tuple(each.named() for each in media)
    run.tool_ended("root", f"t{number}", "drawn", media=named)
    record = ToolCallRecord(id_of("root"), f"t{number}", "draw", {}, number=number, media=media)
    run.bus.keep_whole(record, number)
    return record


def look_at(run: ManualRun) -> Details:
    return Details("root", whole=run.bus.whole_tool_calls)


def test_pictures_of_a_call_are_in_the_details_and_files_of_other_kinds_are_named() -> None:
    run = ManualRun().began()
    picture, document = block(png(640, 480)), block(pdf(), "application/pdf")
    drew(run, picture, document)

    (call,) = tools_of(whole(look_at(run), run))

    shown, named = call["pictures"]
    assert shown == {
        "src": f"data:image/png;base64,{picture.data}",
        "alt": "Picture 1 of call 1, draw (image/png, 640 x 480)",
    }
    assert named["src"] == ""
    assert named["alt"].startswith("PDF 2 of call 1, draw (application/pdf, ")


def ran(run: ManualRun, code: str, number: int = 1) -> None:
    """The root runs code, of which the event has the beginning only."""
    given, length = cut_input({"code": code})
    run.tool("root", f"t{number}", "python", input=given, input_length=length)
    whole = ToolCallRecord(id_of("root"), f"t{number}", "python", {"code": code}, number=number)
    run.bus.keep_whole(whole, number)


def test_long_code_is_shown_whole_and_sent_once() -> None:
    run = ManualRun().began()
    code = "\n".join(f"if x > {n}:\n    y = 'value {n}'" for n in range(400))
    look = look_at(run)
    whole(look, run)

    ran(run, code)
    (call,) = tools_of(more(look, run))
    assert (call["is_code"], call["input"], call["input_cut"]) == (True, code, None)
    (reported,) = tools_of(more(look, run.reported("root", "t1", "half")))

    assert reported["said"] == "half"
    assert not {"is_code", "input", "input_cut"} & set(reported)
    (again,) = tools_of(whole(look, run))  # as a whole again
    assert again["input"] == code


def test_long_code_that_is_not_known_whole_says_how_long_it_is() -> None:
    run = ManualRun().began()
    ran(run, "x" * 5_000)

    (call,) = tools_of(whole(Details("root"), run))

    assert (call["input"], call["input_cut"]) == ("x" * 200, len(json.dumps({"code": "x" * 5_000})))


def test_newest_code_that_fits_into_a_message_is_shown_and_of_the_rest_the_beginning() -> None:
    run = ManualRun().began()
    for number in range(1, 31):
        ran(run, "x" * 100_000, number)

    calls = tools_of(whole(look_at(run), run))

    assert len(json.dumps(calls)) < 600_000
    assert [call["input_cut"] is None for call in calls] == [n > 6 for n in range(1, 31)]


def test_details_that_were_open_before_the_call_show_its_pictures() -> None:
    run = ManualRun().began()
    look = look_at(run)
    whole(look, run)
    drew(run, block(png()))

    (call,) = tools_of(more(look, run))

    assert call["pictures"][0]["src"]


def test_picture_that_is_not_known_whole_is_named() -> None:
    run = ManualRun().began()
    drew(run, block(png()))

    (call,) = tools_of(whole(Details("root"), run))

    assert [each["src"] for each in call["pictures"]] == [""]


@pytest.mark.parametrize(
    "hostile",
    [
        MediaBlock("image/png", '"><script>alert(1)</script>'),
        MediaBlock("image/png", base64.b64encode(b"<svg onload=alert(1)>").decode()),
        MediaBlock('image/png;" onload="alert(1)', block(png()).data),
        MediaBlock("image/svg+xml", block(png()).data),
    ],
)
def test_what_is_no_image_is_never_an_address(hostile: MediaBlock) -> None:
    run = ManualRun().began()
    drew(run, hostile)

    (call,) = tools_of(whole(look_at(run), run))

    assert [each["src"] for each in call["pictures"]] == [""]


def test_details_show_the_newest_pictures_that_fit_into_a_message_and_send_each_once() -> None:
    run = ManualRun().began()
    large = block(png() + b"\0" * (MOST_IN_MESSAGE // 2))  # two thirds of what fits
    for number in (1, 2):
        drew(run, large, number=number)
    look = look_at(run)

    first, second = tools_of(whole(look, run))
    assert (first["pictures"][0]["src"], bool(second["pictures"][0]["src"])) == ("", True)
    drew(run, block(png()), number=3)
    (third,) = tools_of(more(look, run))
    assert third["pictures"][0]["src"]
    assert more(look, run) is None
