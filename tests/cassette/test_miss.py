"""A call that was not recorded: the nearest one, and the words that differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentnb.cassette import Cassette, Miss, explain
from agentnb.cassette.words import word_difference
from agentnb.core.errors import LlmError, NotRecorded
from agentnb.core.keys import key_of
from agentnb.core.records import CallRecord, error_of, error_record
from agentnb.core.types import (
    CompletionRequest,
    Message,
    OpaqueBlock,
    Role,
    ToolResultBlock,
    ToolSpec,
    user_message,
)
from tests.cassette.runs import Handed

SECRET = "sk-planted-0123456789-abcdefghij"


@pytest.fixture
async def cassette(tmp_path: Path) -> Cassette:
    path = tmp_path / "lesson.cassette.jsonl"
    run = Handed(path)
    run.call("root", "Ask two people about the tides, and compare what they say.")
    run.call("root", "Now give the answer.", "Here it is", stop_reason="max_tokens")
    run.call("1", "Describe the tides of the North Sea in three sentences.")
    run.call("2", "Describe the winds of the Baltic Sea in three sentences.")
    run.call("2.1", "Count the lighthouses.")
    await run.finish()
    return Cassette.read(path)


def call_of(cassette: Cassette, path: str, number: int) -> CallRecord:
    calls = cassette.journal("a run").calls
    return next(call for call in calls if (call.path, call.number) == (path, number))


def asked(
    cassette: Cassette, path: str, number: int, request: CompletionRequest, **given: Any
) -> Miss:
    given = {"model": "demo/any", "label": "a run", **given}
    label, key = given.pop("label"), key_of(given["model"], request)
    return explain(cassette, label, path, number, request, key=key, **given)


async def test_the_call_of_the_same_place_is_the_nearest_and_the_word_is_shown(
    cassette: Cassette,
) -> None:
    request = call_of(cassette, "1", 1).request
    text = "Describe the tides of the Irish Sea in three sentences."

    miss = asked(cassette, "1", 1, replace(request, messages=(user_message(text),)))

    assert (miss.label, miss.path, miss.number, miss.nearest) == ("a run", "1", 1, ("1", 1))
    (difference,) = miss.differences
    assert (difference.part, difference.role) == ("message 1", "user")
    assert difference.words == "… of the [-North-]{+Irish+} Sea in …"
    lines = cassette.path.read_bytes().split(b"\n")
    assert miss.line is not None
    assert b"North Sea" in lines[miss.line - 1]
    assert difference.words in str(miss)


async def test_it_says_what_to_run_with_the_name_of_the_file(cassette: Cassette) -> None:
    said = str(asked(cassette, "7", 1, CompletionRequest("any", "", ())))

    assert "%agentnb mode auto" in said
    assert "AGENTNB_MODE=auto" in said
    assert "lesson.cassette.jsonl" in said
    assert "agent 7" in said


async def test_same_call_of_another_run_is_named(cassette: Cassette) -> None:
    request = call_of(cassette, "1", 1).request

    for label in ("another run", "75d0ce1f"):
        miss = asked(cassette, "root", 1, request, label=label)
        assert (miss.has_run, miss.elsewhere, miss.nearest) == (False, "a run", ("1", 1))
        assert "recorded under 'a run', line " in str(miss)


async def test_run_that_is_not_there_is_compared_with_the_most_alike_of_all(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a"
    for label, text in (("one", "How long is the Danube?"), ("two", "Which sea is the saltiest?")):
        run = Handed(path, label=label)
        run.call("root", text)
        await run.finish()
    request = CompletionRequest("any", "be brief", (user_message("Which lake is the saltiest?"),))

    miss = asked(Cassette.read(path), "root", 1, request, label="75d0ce1f")

    assert (miss.elsewhere, miss.nearest) == ("two", ("root", 1))
    assert "Which [-sea-]{+lake+} is the" in str(miss)
    assert "in run 'two', line " in str(miss)


@pytest.mark.parametrize(
    ("path", "number", "text", "nearest"),
    [
        ("root", 7, "Ask two people about the winds, and compare what they say.", ("root", 1)),
        ("3", 1, "Describe the winds of the Black Sea in three sentences.", ("2", 1)),
        ("3", 1, "Count the lighthouses and the ships.", ("2.1", 1)),
    ],
)
async def test_nearest_is_of_the_same_agent_else_the_most_alike_of_the_run(
    cassette: Cassette, path: str, number: int, text: str, nearest: tuple[str, int]
) -> None:
    request = CompletionRequest("any", "be brief", (user_message(text),))

    assert asked(cassette, path, number, request).nearest == nearest


async def test_of_several_at_one_place_the_most_alike_is_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for text in ("tides of the sea", "lighthouses of the coast"):
        run = Handed(path, mode="auto")
        run.call("1", text)
        await run.finish()
    for text in ("tides of the ocean", "lighthouses of the river"):
        request = CompletionRequest("any", "be brief", (user_message(text),))
        miss = asked(Cassette.read(path), "1", 1, request)
        assert "[-sea-]" in str(miss) or "[-coast-]" in str(miss)
        assert ("ocean" in str(miss)) == ("[-sea-]" in str(miss))


async def test_each_part_that_differs_is_named(cassette: Cassette) -> None:
    request = call_of(cassette, "root", 2).request
    other = replace(
        request,
        system="be very brief",
        tools=(ToolSpec("look", "looks", {}),),
        messages=(*request.messages[:2], Message(Role.USER, (ToolResultBlock("x", "Now"),))),
        extra={"top_k": 3},
        max_tokens=17,
    )

    miss = asked(cassette, "root", 2, other, model="demo/other")

    assert [each.part for each in miss.differences] == [
        "model", "system", "tools", "message 3", "extra", "max_tokens",
    ]  # fmt: skip
    assert miss.differences[0].words == "[-demo/any-]{+demo/other+}"
    assert "be {+very+} brief" in miss.differences[1].words
    assert "and 2 more" in str(miss)


async def test_part_that_is_kept_for_the_api_is_named_where_it_differs(cassette: Cassette) -> None:
    request = call_of(cassette, "root", 2).request
    kept = OpaqueBlock("p http://h", {"type": "search", "found": ["seven ships"]})
    said = replace(request.messages[1], content=(kept, *request.messages[1].content))
    messages = (request.messages[0], said, *request.messages[2:])

    (difference,) = asked(cassette, "root", 2, replace(request, messages=messages)).differences

    assert difference.part == "message 2"
    assert "kept for the API" in difference.words


async def test_messages_more_or_fewer_are_named(cassette: Cassette) -> None:
    request = call_of(cassette, "root", 2).request
    more = replace(request, messages=(*request.messages, user_message("One more.")))
    fewer = replace(request, messages=request.messages[:1])

    (added,) = asked(cassette, "root", 2, more).differences
    gone = asked(cassette, "root", 2, fewer).differences

    assert (added.part, added.words) == ("message 4", "{+One more.+}")
    assert [each.part for each in gone] == ["message 2", "message 3"]
    assert gone[0].role == "assistant"


async def test_request_that_was_recorded_and_is_used_up_says_so(cassette: Cassette) -> None:
    miss = asked(cassette, "1", 1, call_of(cassette, "1", 1).request)

    assert miss.differences == ()
    assert "The same request is call 1 of agent 1" in str(miss)
    assert "which is already used" in str(miss)


async def test_run_that_was_not_recorded_says_so(cassette: Cassette) -> None:
    miss = asked(cassette, "1", 1, CompletionRequest("any", "", ()), label="another")

    assert (miss.has_run, miss.nearest, miss.line) == (False, None, None)
    assert "no run of this name" in str(miss)


async def test_secrets_are_masked_and_control_characters_visible(
    cassette: Cassette, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_API_KEY", SECRET)
    text = f"Describe \x1b[31m the \u202e tides, my key is {SECRET}"
    request = replace(call_of(cassette, "1", 1).request, messages=(user_message(text),))

    said = str(asked(cassette, "1", 1, request))

    assert SECRET[:10] not in said
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert "\\x1b" in said


async def test_error_is_permanent_and_carries_the_miss_through_a_record(
    cassette: Cassette,
) -> None:
    miss = asked(cassette, "9", 1, CompletionRequest("any", "", ()))
    error = NotRecorded(str(miss), miss=miss)

    assert isinstance(error, LlmError)
    assert (error.retryable, error.permanent, error.miss) == (False, True, miss)
    assert str(error) == str(miss)
    again = error_of(error_record(error))
    assert type(again) is NotRecorded
    assert (again.permanent, again.retryable, str(again)) == (True, False, str(error))


_long = st.text(st.sampled_from("ab \n\x1b\u202e<{[-+]}é"), max_size=400).map(lambda t: t * 9)


@settings(max_examples=40, deadline=None)
@given(texts=st.lists(st.tuples(_long, _long), min_size=1, max_size=6), label=_long, model=_long)
def test_text_is_at_most_15_lines_of_at_most_100_characters(
    texts: list[tuple[str, str]], label: str, model: str
) -> None:
    from agentnb.cassette import Difference

    found = tuple(
        Difference(f"message {n}", "assistant", word_difference(one, other))
        for n, (one, other) in enumerate(texts)
    )
    miss = Miss(
        "a/" + "n" * 300, label, "1." * 99 + "1", 10**9, model, "0" * 64, True, ("1", 1), 3, found
    )  # fmt: skip

    lines = str(miss).split("\n")

    assert len(lines) <= 15
    assert max(map(len, lines)) <= 100
    assert not any(each in str(miss) for each in "\x1b\u202e")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("one two", "one three", "one [-two-]{+three+}"),
        ("", "new", "{+new+}"),
        ("old", "", "[-old-]"),
        ("a b", "a  b", "a[-␣-]{+␣␣+}b"),
        ("a\nb", "a b", "a[-\\n-]{+␣+}b"),
        ("w " * 50 + "x y", "w " * 50 + "z y", "… w w [-x-]{+z+} y"),
        ("x" + " w" * 50, "z" + " w" * 50, "[-x-]{+z+} w w …"),
        ('{"a":1,"b":[2,3]}', '{"a":1,"b":[2,4]}', "… :[[-2,3-]{+2,4+}]}"),
        ("a b\n", "a b", "b[-\\n-]"),
        ("say one and two now", "say 1 and 2 now", "say [-one-]{+1+} and [-two-]{+2+} now"),
    ],
)
def test_words_that_differ(old: str, new: str, words: str) -> None:
    assert word_difference(old, new) == words


@settings(max_examples=60, deadline=None)
@given(old=_long, new=_long, again=st.integers(1, 300))
def test_difference_of_any_texts_is_one_short_line(old: str, new: str, again: int) -> None:
    said = word_difference(old * again, new * again)

    assert len(said) <= 150
    assert "\n" not in said
    if old != new:
        assert "[-" in said or "{+" in said
