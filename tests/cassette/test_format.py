"""The lines of a cassette: their order, what is in them and what is not, and what comes back."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentnb.cassette import Cassette, relative_key
from agentnb.core.errors import LlmError
from agentnb.core.keys import key_of
from agentnb.core.records import CallRecord, error_record
from agentnb.core.types import (
    CompletionRequest,
    Message,
    OpaqueBlock,
    Role,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    path_key,
    user_message,
)
from tests.cassette.runs import THREAD, Handed, content, lines_of, recorded

SECRET = "sk-planted-0123456789-abcdefghij"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lesson.cassette.jsonl"


async def test_live_run_comes_back_with_its_calls_verdicts_and_ends(path: Path) -> None:
    kept, _ = await recorded(path)

    found = Cassette.read(path).journal("a run")

    assert [(c.path, c.number) for c in found.calls] == [(c.path, c.number) for c in kept.calls]
    for one, other in zip(found.calls, kept.calls, strict=True):
        assert key_of(one.model, one.request) == one.key == other.key
        assert one.request.messages == other.request.messages
        assert (one.message, one.usage, one.text) == (other.message, other.usage, other.text)
        assert len(one.pieces) == len(other.pieces)
    assert found.verdicts == kept.verdicts
    assert [(e.path, e.status, e.text) for e in found.ends] == [
        (e.path, e.status, e.text) for e in kept.ends
    ]
    assert found.ends[-1].path is None
    assert found.head.task == "root"
    assert found.head.thread_id == "root"


async def test_first_line_is_the_head_and_lines_are_by_path_then_number(path: Path) -> None:
    run = Handed(path)
    for child in ("10", "2", "2.1"):
        run.call(child, "go on")
        run.call(child, "and on")
        run.end(child)
    run.call("root", "begin")
    run.verdict("root", "admitted", {"numbers": [1], "refused": []})
    await run.finish()

    head, first, *rest = lines_of(path)
    *others, last = rest
    assert head == {"agentnb_cassette": 1}
    assert first["kind"] == "run"
    places = [(path_key(each["path"]), each.get("number", 99)) for each in others]
    assert places == sorted(places)
    assert [each["path"] for each in others if each.get("kind") == "end"] == [
        "root",
        "2",
        "2.1",
        "10",
    ]
    assert (last["kind"], last["path"]) == ("end", None)


async def test_order_in_which_calls_end_is_not_in_the_file(tmp_path: Path) -> None:
    texts = []
    for name, order in (("a", ("1", "2", "3")), ("b", ("3", "1", "2"))):
        run = Handed(tmp_path / name)
        for child in order:
            run.at_s = float(child)
            run.call(child, f"go on, {child}")
            run.end(child)
            await run.commit()
        run.at_s = 9.0
        await run.finish()
        texts.append(content(tmp_path / name))

    assert texts[0] == texts[1]


async def test_labels_stand_in_the_order_in_which_they_were_recorded_first(path: Path) -> None:
    for label in ("b", "a", "c", "a"):
        run = Handed(path, label)
        run.call("root", f"go on, {label}")
        await run.finish()

    assert Cassette.read(path).labels == ("b", "a", "c")
    assert [each["run"] for each in lines_of(path) if each.get("kind") == "run"] == ["b", "a", "c"]


async def test_file_is_utf_8_with_one_object_in_a_line_whatever_a_text_has(path: Path) -> None:
    run = Handed(path)
    said = "a\nb\r\u2028c\u0085\x00\x7f \ud800 \U0001f600 é"
    run.call("root", said, said)
    await run.finish()

    text = content(path)
    assert len(text.splitlines()) == len(text.split("\n")) - 1
    assert text.endswith("\n")
    assert "é" in text
    (call,) = Cassette.read(path).calls("a run")
    assert call.request.messages[0].text == said.replace("\ud800", "\ufffd")
    assert call.text == said.replace("\ud800", "\ufffd")


async def test_request_is_what_is_new_in_it(path: Path) -> None:
    run = Handed(path)
    tools = (ToolSpec("look", "looks", {"type": "object"}),)
    made = [run.call("root", f"part {n} " * 50, tools=tools) for n in range(4)]
    await run.finish()

    calls = [each["request"] for each in lines_of(path) if each.get("kind") == "call"]
    assert ["system" in each for each in calls] == [True, False, False, False]
    assert ["tools" in each for each in calls] == [True, False, False, False]
    assert [each.get("kept") for each in calls] == [None, 1, 3, 5]
    assert [each["new"][:-1] for each in calls] == [[], ["reply"], ["reply"], ["reply"]]
    assert [call.request for call in Cassette.read(path).calls("a run")] == [
        call.request for call in made
    ]


async def test_request_that_does_not_go_on_from_the_one_before_comes_back(path: Path) -> None:
    run = Handed(path)
    run.call("root", "one")
    run._talks["root"] = (user_message("something else"),)
    second = run.call("root", "two", system="another system", extra={"top_k": 3})
    run._talks["root"] = ()
    third = run.call("root", "three", tools=(ToolSpec("a", "b", {}),))
    await run.finish()

    found = Cassette.read(path).calls("a run")
    assert [call.request for call in found[1:]] == [second.request, third.request]


async def test_blocks_tools_errors_and_orders_come_back(path: Path) -> None:
    run = Handed(path)
    message = Message(
        Role.ASSISTANT,
        (
            ThinkingBlock("hm", "signed"),
            ThinkingBlock("", "", "withheld"),
            ThinkingBlock("so", extra={"p http://h": {"reasoning": None}}),
            OpaqueBlock("p http://h", {"type": "search", "found": [1, None, "ä"]}),
            TextBlock("I look.", {"p http://h": {"citations": [{"at": 1}]}}),
            ToolUseBlock("use-1", "look", {"at": [1, None, "ä"]}, {"p": {"mark": "ä"}}),
        ),
    )
    run.call("root", "go", "I look.", message=message, stop_reason="tool_use")
    run.tool("root", {"at": [1, None, "ä"]}, "a whole result")
    cited = Message(Role.ASSISTANT, (TextBlock("So.", {"p http://h": {"citations": [1]}}),))
    others = replace(message, content=message.content[:-1])  # said by no call of this run
    result = Message(Role.USER, (ToolResultBlock("use-1", "seen", True),))
    error = error_record(LlmError("slow down", retry_after_s=float("inf"), status_code=409))
    run.call("root", result, "", message=None, pieces=(), usage=None, stop_reason=None, error=error)
    run.call("root", cited, "Yes.", message=cited)
    run.call("root", others)
    run.order("cancel", {"agent": None, "reason": "enough"})
    run.order("budget", 10**24)
    await run.finish()

    found = Cassette.read(path).journal("a run")
    assert found.calls[0].message == message
    assert found.calls[2].message == found.calls[2].request.messages[-1] == cited
    assert found.calls[3].request.messages[-1] == others
    assert found.calls[1].request.messages[1:] == (message, result)
    assert found.calls[1].error == {**error, "retry_after_s": "inf"}
    assert found.calls[1].usage is None
    assert found.tool_calls[0].input == {"at": [1, None, "ä"]}
    assert (found.tool_calls[0].result, found.tool_calls[0].agent_id) == ("a whole result", "root")
    assert [(o.kind, o.value) for o in found.orders] == [
        ("cancel", {"agent": None, "reason": "enough"}),
        ("budget", 10**24),
    ]


async def test_times_come_back_to_a_millisecond(path: Path) -> None:
    run = Handed(path)
    run.at_s = 0.1234567
    run.call("root", "go")
    await run.finish()

    (call,) = Cassette.read(path).calls("a run")
    assert call.at_s == 0.373
    assert [at_s for at_s, _ in call.pieces] == [0.473, 0.573]


async def test_nothing_of_this_recording_is_in_the_file(path: Path) -> None:
    run = Handed(
        path,
        head={
            "session_id": "session-77",
            "started_at": 1790000000.25,
            "settings": {"mode": "record"},
        },
    )
    record = run.call("1", f"you are {THREAD}.1 of {THREAD}", f"I am {THREAD}.1")
    run.tool("1", {"from": f"{THREAD}.1"}, f"a note of {THREAD}")
    await run.finish()

    text = content(path)
    for gone in (THREAD, "session-77", "1790000000", "run-1", '"mode"', "recording"):
        assert gone not in text
    (call,) = Cassette.read(path).calls("a run")
    assert call.request.messages[0].text == "you are root.1 of root"
    assert call.key == key_of(call.model, call.request)
    assert call.key == relative_key(record.model, record.request, record.key, THREAD) != record.key


async def test_key_of_a_request_without_the_id_is_its_own() -> None:
    request = CompletionRequest("any", "be brief", (user_message("go"),))

    assert relative_key("demo/any", request, "its key", THREAD) == "its key"


async def test_name_that_a_person_gave_a_thread_stays(path: Path) -> None:
    run = Handed(path, thread_id="an")
    run.call("root", "an ant and an anchor")
    await run.finish()

    assert Cassette.read(path).calls("a run")[0].request.messages[0].text == "an ant and an anchor"


async def test_secret_is_masked_in_every_text_also_across_pieces(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_API_KEY", SECRET)
    run = Handed(path, head={"task": f"use {SECRET}", "name": SECRET, "settings": {"x": [SECRET]}})
    half = len(SECRET) // 2
    run.call(
        "root", f"my key is {SECRET}", f"it is {SECRET}.", system=SECRET,
        pieces=((0.1, "it is " + SECRET[:half]), (0.2, SECRET[half:] + ".")),
    )  # fmt: skip
    run.call("root", "again", SECRET[:20], stop_reason=None, pieces=((0.1, SECRET[:20]),))
    run.tool("root", {SECRET: SECRET}, f"result {SECRET}")
    run.verdict("root", "recalled", [{"id": 1, "text": SECRET}])
    run.order("answer", SECRET)
    run.end("1", text=SECRET, error=SECRET, by=SECRET)
    await run.commit()
    while_it_runs = content(path)
    await run.finish()

    for text in (while_it_runs, content(path)):
        assert SECRET[:12] not in text
        assert SECRET[-12:] not in text
        assert "[secret LAB_API_KEY]" in text
    assert Cassette.read(path).calls("a run")[0].text == "it is [secret LAB_API_KEY]."


async def test_recorded_call_is_equal_to_one_with_its_fields(path: Path) -> None:
    run = Handed(path)
    run.call("root", "go")
    await run.finish()

    (call,) = Cassette.read(path).calls("a run")
    plain = pickle.loads(pickle.dumps(call))
    assert type(plain) is CallRecord
    assert (call == plain, plain == call) == (True, True)
    assert replace(call, number=2) != call
    assert replace(call, number=2).request == call.request


_texts = st.text(max_size=30)
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None)
@given(asked=_texts, said=st.lists(_texts, max_size=4), value=_values)
async def test_any_text_and_value_comes_back(
    tmp_path_factory: pytest.TempPathFactory, asked: str, said: list[str], value: object
) -> None:
    path = tmp_path_factory.mktemp("any") / "a"
    run = Handed(path)
    pieces = tuple((1.0 + n, text) for n, text in enumerate(said))
    run.call("root", asked, "".join(said), pieces=pieces)
    run.call("root", asked)
    run.tool("root", {"value": value})
    await run.finish()

    found = Cassette.read(path).journal("a run")
    assert [call.request.messages[0].text for call in found.calls] == [asked, asked]
    assert [text for _, text in found.calls[0].pieces] == said
    assert found.tool_calls[0].input == json.loads(json.dumps({"value": value}))
