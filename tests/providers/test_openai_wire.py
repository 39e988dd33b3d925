"""Chunks of chat completions, as servers of all makes send them, read into our events."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentnb.core.budget import estimate_input_tokens, tokens_in
from agentnb.core.types import (
    MALFORMED_INPUT,
    CompletionRequest,
    Message,
    OpaqueBlock,
    Role,
    Stopped,
    StreamEvent,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolResultBlock,
    ToolSpec,
    ToolUse,
    ToolUseBlock,
    Usage,
    user_message,
)
from agentnb.providers.forms import CONTENT, Complaint, Form, after
from agentnb.providers.limits import MOST_IN_EVENT, MOST_PARTS, BadReply
from agentnb.providers.openai_wire import USUAL, ReplyReader, body_of, event_in, parts_sent
from agentnb.providers.reply import BrokeOff
from agentnb.providers.servers import Server

HELLO = CompletionRequest("m", "Be kind.", (user_message("Say hello"),))
SIZE = estimate_input_tokens(HELLO)


def choice(delta: Any = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **fields}


def calls(*pieces: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    return choice({"tool_calls": list(pieces)}, finish)


def piece(
    name: str | None = None, arguments: Any = None, *, index: int | None = None, id: Any = None
) -> dict[str, Any]:
    """A piece of a tool call, without what is `None`."""
    function = {"name": name, "arguments": arguments}
    whole = {
        "index": index,
        "id": id,
        "function": {k: v for k, v in function.items() if v is not None},
    }
    return {name: value for name, value in whole.items() if value is not None}


def read(
    *chunks: Mapping[str, Any] | str, request: CompletionRequest = HELLO
) -> tuple[list[StreamEvent], ReplyReader]:
    reader = ReplyReader(request)
    events: list[StreamEvent] = []
    for data in chunks:
        events += reader.read(event_in(data if isinstance(data, str) else json.dumps(data)))
    events += reader.finish()
    return events, reader


def called(
    *chunks: Mapping[str, Any] | str, request: CompletionRequest = HELLO
) -> list[tuple[str, str, Mapping[str, Any]]]:
    """The tool calls of a reply; those in the message to send back are the same."""
    events, reader = read(*chunks, request=request)
    uses = [(e.id, e.name, e.input) for e in events if isinstance(e, ToolUse)]
    end = reader.stopped()
    assert end is not None
    blocks = [block for block in end.message.content if isinstance(block, ToolUseBlock)]
    assert [(block.id, block.name, block.input) for block in blocks] == uses
    return uses


STOP = choice({}, "stop")
A, B = {"at": 1}, {"at": "é"}
TWO = [("a", "look", A), ("b", "look", B)]


# -- tool calls, as servers of all makes send them ------------------------------------------------


@pytest.mark.parametrize(
    ("chunks", "heard"),
    [
        pytest.param(
            [
                calls(piece("look", "", index=0, id="a")),
                calls(piece(arguments='{"at"', index=0)),
                calls(piece(arguments=":1}", index=0)),
                calls(piece("look", "", index=1, id="b")),
                calls(piece(arguments='{"at":"é"}', index=1)),
            ],
            TWO,
            id="openai",
        ),
        pytest.param(
            [
                calls(piece("look", '{"at":', index=0, id="a")),
                calls(piece("look", '{"at":', index=1, id="b")),
                calls(piece(arguments="1}", index=0), piece(arguments='"é"}', index=1)),
            ],
            TWO,
            id="two calls that grow side by side",
        ),
        pytest.param(
            [
                calls(piece("look", '{"at":1}', index=0, id="a")),
                calls(piece("look", '{"at":"é"}', index=0, id="b")),
            ],
            TWO,
            id="every call whole, and all of them with the index 0",
        ),
        pytest.param(
            [calls(piece("look", '{"at":1}', id="a"), piece("look", '{"at":"é"}', id="b"))],
            TWO,
            id="several in one chunk, without an index",
        ),
        pytest.param(
            [
                calls(piece("look", "", id="a")),
                calls(piece(arguments='{"at":1}')),
                calls(piece("look", '{"at"', id="b")),
                calls(piece(arguments=':"é"}')),
            ],
            TWO,
            id="pieces without an index",
        ),
        pytest.param(
            [
                calls(piece("look", "", index=0, id="a")),
                calls(piece("look", '{"at":', index=0, id="a")),
                calls(piece("look", "1}", index=0, id="a")),
                calls(piece("look", '{"at":"é"}', index=1, id="b")),
            ],
            TWO,
            id="the name with each piece",
        ),
        pytest.param(
            [calls(piece("look", A, index=0, id="a"), piece("look", B, index=1, id="b"))],
            TWO,
            id="arguments that are no text",
        ),
        pytest.param(
            [calls(piece("look", '{"at":1}'), piece("look", '{"at":"é"}'))],
            [("call_1", "look", A), ("call_2", "look", B)],
            id="neither index nor id",
        ),
        pytest.param(
            [calls(piece("look", '{"at":1}', index=0), piece("look", '{"at":"é"}', index=0))],
            [("call_1", "look", A), ("call_2", "look", B)],
            id="no id, and the index 0 for both",
        ),
        pytest.param(
            [calls(piece("look", "", index=0), piece("see", "", index=0))],
            [("call_1", "look", {}), ("call_2", "see", {})],
            id="no arguments, no id, and the index 0 for both",
        ),
        pytest.param(
            [calls(piece("look", "", index=0, id="a"), piece("look", "", index=0, id="b"))],
            [("a", "look", {}), ("b", "look", {})],
            id="no arguments, and the index 0 for both",
        ),
        pytest.param(
            [
                calls(piece("look", '{"at"', index=0)),
                calls(piece(arguments=":1}", index=0, id="a")),
            ],
            [("a", "look", A)],
            id="the id with a later piece",
        ),
        pytest.param(
            [calls(piece("look", '{"at"', index=0, id="a")), calls(piece(arguments=":1}"))],
            [("a", "look", A)],
            id="the index with the first piece alone",
        ),
        pytest.param(
            [
                calls(piece("look", '{"at":1}', index=0, id="a")),
                calls(piece("look", '{"at":"é"}', index=1, id="a")),
            ],
            [("a", "look", A), ("call_1", "look", B)],
            id="the same id twice",
        ),
        pytest.param(
            [
                calls(piece("look", "", index=0, id=0)),
                calls(piece(arguments='{"at":', index=0, id=0)),
                calls(piece(arguments="1}", index=0, id=0)),
                calls(piece("look", "", index=0, id=7)),
                calls(piece(arguments='{"at":"é"}', index=0, id=7)),
            ],
            [("0", "look", A), ("7", "look", B)],
            id="an id that is a number, with each piece",
        ),
        pytest.param(
            [
                choice({"function_call": {"name": "look", "arguments": ""}, "tool_calls": None}),
                choice({"function_call": {"arguments": '{"at"'}}),
                choice({"function_call": {"arguments": ":1}"}}),
            ],
            [("call_1", "look", A)],
            id="the old form of a single call",
        ),
        pytest.param(
            [
                choice(
                    {
                        "tool_calls": [piece("look", '{"at":1}', index=0, id="a")],
                        "function_call": {"name": "look", "arguments": '{"at":1}'},
                    }
                )
            ],
            [("a", "look", A)],
            id="one call in both forms",
        ),
        pytest.param(
            [calls({"index": 0, "id": "", "type": "function", "function": {"name": "look"}})],
            [("call_1", "look", {})],
            id="an id of no characters, and no arguments",
        ),
        pytest.param(
            [calls(piece("look", "", index=0, id="a")), calls(piece(index=0))],
            [("a", "look", {})],
            id="a piece with nothing in it",
        ),
    ],
)
@pytest.mark.parametrize("finish", ["tool_calls", "stop", "function_call", None])
def test_tool_calls_are_heard_whole_from_a_server_of_any_make(
    chunks: list[dict[str, Any]], heard: list[Any], finish: str | None
) -> None:
    _, reader = read(*chunks, choice({}, finish), "[DONE]")
    end = reader.stopped()

    assert called(*chunks, choice({}, finish), "[DONE]") == heard
    assert end is not None
    assert end.reason == "tool_use"


@given(
    arguments=st.lists(
        st.dictionaries(st.text(max_size=3), st.text(max_size=5) | st.integers(), max_size=3),
        min_size=1,
        max_size=3,
    ),
    size=st.integers(1, 9),
)
def test_calls_are_the_same_however_their_arguments_were_cut(
    arguments: list[dict[str, Any]], size: int
) -> None:
    chunks = []
    for index, each in enumerate(arguments):
        text = json.dumps(each)
        chunks.append(calls(piece("look", "", index=index, id=f"c{index}")))
        chunks += [
            calls(piece(arguments=text[at : at + size], index=index))
            for at in range(0, len(text), size)
        ]

    heard = called(*chunks, STOP)

    assert heard == [(f"c{n}", "look", each) for n, each in enumerate(arguments)]


WHOLE, HALF, REST = '{"at":1}', '{"at":', "1}"
ONE, OF_TWO = [("look", A)], [("look", A), ("look", A)]


@pytest.mark.parametrize("has_tools", [True, False], ids=["tools known", "tools unknown"])
@pytest.mark.parametrize(
    ("pieces", "heard"),
    [
        # Each call whole, with the index 0 and without an id.
        ([piece("look", WHOLE, index=0), piece("look", WHOLE, index=0)], OF_TWO),
        ([piece("look", A, index=0), piece("look", A, index=0)], OF_TWO),
        ([piece("look", "{}", index=0), piece("look", "{}", index=0)], [("look", {})] * 2),
        ([piece("look", "", index=0), piece("look", "", index=0)], [("look", {})] * 2),
        ([piece("look", index=0), piece("look", index=0)], [("look", {})] * 2),
        ([piece("look", WHOLE, index=0), piece("look", "", index=0)], [*ONE, ("look", {})]),
        ([piece("look", "", index=0), piece("see", "", index=0)], [("look", {}), ("see", {})]),
        ([piece("see", "", index=0), piece("look", WHOLE, index=0)], [("see", {}), *ONE]),
        # The same, with an id for each, or one id for all.
        ([piece("look", WHOLE, index=0, id="a"), piece("look", WHOLE, index=0, id="b")], OF_TWO),
        ([piece("look", WHOLE, index=0, id="a"), piece("look", WHOLE, index=0, id="a")], OF_TWO),
        # A second call in pieces, with the index of the first.
        (
            [
                piece("look", "", index=0, id="a"),
                piece(arguments=HALF, index=0),
                piece(arguments=REST, index=0),
                piece("look", "", index=0, id="b"),
                piece(arguments=HALF, index=0),
                piece(arguments=REST, index=0),
            ],
            OF_TWO,
        ),
        # The name in pieces.
        ([piece("lo", index=0, id="a"), piece("ok", WHOLE, index=0)], ONE),
        ([piece("lo", index=0), piece("ok", index=0), piece(arguments=WHOLE, index=0)], ONE),
        ([piece("lo", "", id="a"), piece("ok", "", id="a"), piece(arguments=WHOLE, id="a")], ONE),
        (
            [
                piece("lo", index=0, id="a"),
                piece("ok", WHOLE, index=0),
                piece("look", WHOLE, index=0),
            ],
            OF_TWO,
        ),
        # The whole name with each piece, with one id, none, or one id each.
        ([piece("look", "", index=0), piece("look", HALF, index=0), piece("look", REST)], ONE),
        ([piece("look", HALF, index=0), piece("look", REST, index=0)], ONE),
        ([piece("look", HALF, index=0, id="a"), piece("look", REST, index=0, id="b")], ONE),
        ([piece("look", "", index=0, id="a"), piece("look", WHOLE, index=0, id="a")], ONE),
        ([piece("look", WHOLE, index=0, id="a"), piece("look", "", index=0, id="a")], ONE),
        # An id of its own for each piece, and no name after the first.
        (
            [
                piece("look", "", index=0, id="a"),
                piece("", HALF, index=0, id="b"),
                piece("", REST, index=0, id="c"),
            ],
            ONE,
        ),
        # The name after the arguments, and a second call like it.
        (
            [
                piece(arguments=WHOLE, id="a"),
                piece("look", id="a"),
                piece(arguments=WHOLE, id="b"),
                piece("look", id="b"),
            ],
            OF_TWO,
        ),
        # Nothing more, after a call that is whole.
        ([piece("look", WHOLE, index=0), piece(arguments="", index=0)], ONE),
    ],
)
def test_pieces_without_an_index_or_an_id_of_their_own_are_distinguished(
    pieces: list[dict[str, Any]], heard: list[Any], has_tools: bool
) -> None:
    tools = (ToolSpec("look", "", {}), ToolSpec("see", "", {})) if has_tools else ()
    request = CompletionRequest("m", "", HELLO.messages, tools=tools)

    apart = called(*(calls(each) for each in pieces), STOP, request=request)
    at_once = called(calls(*pieces), STOP, request=request)

    assert [(name, given) for _, name, given in apart] == heard
    assert at_once == apart


@pytest.mark.parametrize(
    ("names", "heard"),
    [
        (["get", "_weather"], ["get_weather"]),
        (["get_", "weather"], ["get_weather"]),
        (["get_", "weather", "get_weather"], ["get_weather", "get_weather"]),
        (["get", "get_weather"], ["get", "get_weather"]),
        (["get_weather", "get"], ["get_weather", "get"]),
    ],
)
def test_offered_tools_tell_names_in_pieces_from_names_of_two(
    names: list[str], heard: list[str]
) -> None:
    tools = tuple(ToolSpec(name, "", {}) for name in ("get", "get_weather"))
    request = CompletionRequest("m", "", HELLO.messages, tools=tools)

    uses = called(*(calls(piece(name, "", index=0)) for name in names), STOP, request=request)

    assert [name for _, name, _ in uses] == heard


def test_made_up_id_is_none_that_stands_in_the_conversation_already() -> None:
    said = Message(Role.ASSISTANT, (ToolUseBlock("call_1", "look", {}),))
    results = Message(Role.USER, (ToolResultBlock("call_1", "seen"),))
    again = CompletionRequest("m", "", (*HELLO.messages, said, results))

    # Some servers count anew with each reply.
    heard = called(
        calls(piece("look", "{}", id="call_1"), piece("look", "{}")), STOP, request=again
    )

    assert [call_id for call_id, _, _ in heard] == ["call_2", "call_3"]


@pytest.mark.parametrize("finish", ["length", "content_filter"])
@pytest.mark.parametrize("last", ["", '{"at', "[1]"])
def test_call_that_was_cut_is_never_reported(finish: str, last: str) -> None:
    whole, cut = piece("look", '{"at":1}', index=0, id="a"), piece("look", last, index=1, id="b")

    assert called(calls(whole, cut), choice({}, finish), "[DONE]") == [("a", "look", A)]


@pytest.mark.parametrize("arguments", ['{"at', "[1]", '"at"', "null", '{"at": NaN}', "[" * 9999])
@pytest.mark.parametrize("finish", ["tool_calls", "stop", None])
def test_call_that_was_not_cut_and_is_no_object_is_reported_with_what_was_written(
    arguments: str, finish: str | None
) -> None:
    whole = piece("look", '{"at":1}', index=1, id="b")
    pieces = calls(piece("look", arguments, index=0, id="a"), whole)

    heard = called(pieces, choice({}, finish), "[DONE]")

    assert heard == [("a", "look", {MALFORMED_INPUT: arguments}), ("b", "look", A)]


def test_call_without_a_name_breaks_the_reply() -> None:
    reader = ReplyReader(HELLO)
    list(reader.read(calls(piece(None, "{}", index=0, id="a"), finish="tool_calls")))

    with pytest.raises(BadReply, match="a tool call without a name"):
        list(reader.finish())


# -- text and thinking ----------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thinking_is_heard_by_whatever_name_and_goes_back_by_that_name(field: str) -> None:
    events, reader = read(choice({field: "Hm.", "content": ""}), choice({"content": "Hi"}), STOP)
    end = reader.stopped()

    assert events == [ThinkingDelta("Hm."), TextDelta("Hi")]
    assert end is not None
    assert end.message.content == (ThinkingBlock("Hm.", extra={"": {field: None}}), TextBlock("Hi"))
    again = replace(HELLO, messages=(*HELLO.messages, end.message, user_message("And?")))
    said = body_of(again)["messages"][-2]
    assert said == {"role": "assistant", "content": "Hi", field: "Hm."}


@pytest.mark.parametrize(
    "thought", [[{"type": "text", "text": "H"}, {"type": "text", "text": "m."}], "Hm.", ["Hm."]]
)
def test_content_in_parts_is_heard_as_thinking_and_text(thought: object) -> None:
    """As Mistral's reasoning models send it: lists while they think, then texts."""

    def part(kind: str, held: Any) -> dict[str, Any]:
        return {"type": kind, kind: held}

    both = [part("thinking", thought), part("text", "H"), part("reference", [1])]
    events, reader = read(choice({"content": both}), choice({"content": "i"}), STOP)
    end = reader.stopped()

    assert events == [ThinkingDelta("Hm."), TextDelta("H"), TextDelta("i")]
    assert end is not None
    again = replace(HELLO, messages=(*HELLO.messages, end.message, user_message("And?")))
    held = end.message.content[1]
    assert isinstance(held, OpaqueBlock)
    content = [*held.data["content"], {"type": "text", "text": "Hi"}]
    assert content[0]["type"] == "thinking"
    assert body_of(again)["messages"][-2] == {"role": "assistant", "content": content}
    without = body_of(again, USUAL.leaving_out(CONTENT))
    assert without["messages"][-2] == {"role": "assistant", "content": "Hi"}
    assert body_of(again, server=Server("other"))["messages"][-2]["content"] == "Hi"


def test_thinking_in_the_content_goes_back_as_it_came_with_its_signature() -> None:
    """As Databricks has it, which refuses fields beside the content."""

    def reasoning(text: str, signature: str = "") -> dict[str, Any]:
        summary = {"type": "summary_text", "text": text, "signature": signature}
        return choice({"content": [{"type": "reasoning", "summary": [summary]}]})

    stop = choice({}, "tool_calls")
    events, reader = read(
        reasoning("I "),
        reasoning("look"),
        reasoning("", "S"),
        calls(piece("look", "{}", id="a")),
        stop,
    )
    end = reader.stopped()

    assert [each.text for each in events if isinstance(each, ThinkingDelta)] == ["I ", "look"]
    assert end is not None
    again = replace(HELLO, messages=(*HELLO.messages, end.message))
    summary = {"type": "summary_text", "text": "I look", "signature": "S"}
    said = body_of(again)["messages"][-1]
    assert said["content"] == [{"type": "reasoning", "summary": [summary]}]
    assert len(said["tool_calls"]) == 1


def summed(text: str, signature: str = "") -> dict[str, Any]:
    return {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": text, "signature": signature}],
    }


def stop_of(*content: Any) -> Stopped:
    """The end of a reply that came as these contents."""
    _, reader = read(*(choice({"content": each}) for each in content), STOP)
    end = reader.stopped()
    assert end is not None
    return end


def said_again(*content: Any) -> Any:
    """What goes back of it."""
    again = replace(HELLO, messages=(*HELLO.messages, stop_of(*content).message))
    return body_of(again)["messages"][-1]["content"]


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


SEALED_SUMMARY = {"type": "summary_encrypted_text", "data": "E"}
THINKING_PART = {"type": "thinking", "thinking": "A", "signature": "S"}


@pytest.mark.parametrize(
    "parts",
    [
        [THINKING_PART, words("x"), {**THINKING_PART, "thinking": "B"}],
        [{"type": "thinking", "thinking": "A"}, words("x"), {"type": "thinking", "thinking": "B"}],
        [words("x"), THINKING_PART, words("y")],
        [summed("A", "S1"), summed("B", "S2"), words("x")],
        [summed("A", "S1"), words("x"), summed("B", "S2"), words("y")],
        [THINKING_PART, {"type": "redacted_thinking", "data": "R"}, words("x")],
        [THINKING_PART, words("x"), {"type": "redacted_thinking", "data": "R"}, words("y")],
        [THINKING_PART, words("Hi"), {"type": "thinking", "thinking": "B"}],
        [{"type": "reasoning", "reasoning": "A"}, words("x")],
    ],
)
def test_parts_of_a_content_keep_their_order_and_their_seals(parts: list[Any]) -> None:
    assert said_again(parts) == parts
    assert said_again(*([each] for each in parts)) == parts


def test_signature_that_comes_after_the_text_belongs_to_the_thinking_before_it() -> None:
    thought, seal = {"type": "thinking", "thinking": "A"}, {"type": "thinking", "signature": "S"}

    assert said_again([thought], "Hi", [{**seal, "thinking": ""}]) == [
        {**thought, "signature": "S"},
        words("Hi"),
    ]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "reasoning", "reasoning": "Hm."},
        {"type": "reasoning", "text": "Hm."},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]},
        summed("Hm."),
        {"type": "thinking", "thinking": [words("H"), "m."]},
    ],
)
def test_thinking_in_a_part_is_heard_in_any_shape(part: dict[str, Any]) -> None:
    events, _ = read(choice({"content": [part]}), STOP)

    assert events == [ThinkingDelta("Hm.")]


def test_part_of_a_content_that_is_too_large_is_left_out_and_told() -> None:
    half = {"type": "thinking", "thinking": "x" * 3 * 2**20}

    end = stop_of([half], [half], "Hi")
    assert end.message.content[-1] == TextBlock("Hi")
    assert "content" in end.note
    assert said_again([half], [half], "Hi") == "Hi"


def test_blank_text_between_kept_parts_and_calls_is_not_sent() -> None:
    """Claude writes it behind gateways, and refuses it."""
    assert said_again([THINKING_PART], [words("\n\n")]) == [THINKING_PART]
    assert said_again([THINKING_PART], [words("\n")], [summed("B")]) == [THINKING_PART, summed("B")]


@pytest.mark.parametrize("place", ["text", "thinking"])
def test_parts_that_would_keep_a_secret_in_halves_are_left_out_and_told(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Each block is masked alone, where it is kept."""
    secret = "sk-test-0123456789-abcdefghij"
    monkeypatch.setenv("SOME_API_KEY", secret)
    halves = [f"The key is {secret[:15]}", f"{secret[15:]}, they say"]

    def thought(text: str) -> dict[str, Any]:
        return {"type": "thinking", "thinking": text}

    between = {"text": thought("Hm."), "thinking": words("Hi")}[place]
    make = {"text": words, "thinking": thought}[place]
    end = stop_of([make(halves[0])], [between], [make(halves[1])])

    kept = [block for block in end.message.content if isinstance(block, OpaqueBlock)]
    assert kept == []
    assert "around a secret" in end.note
    kinds = TextBlock | ThinkingBlock
    texts = [each.text for each in end.message.content if isinstance(each, kinds)]
    assert "".join(halves) in texts
    assert stop_of([make("a")], [between], [make("b")]).note == ""


HALVES = "The key is sk-test-01234567", "89-abcdefghij, they say"


def halved(name: str, **fields: Any) -> list[dict[str, Any]]:
    return [{name: each, "signature": "S1", **fields} for each in HALVES]


@pytest.mark.parametrize(
    "delta",
    [
        {"content": halved("thinking", type="thinking")},
        {"content": [{"type": "reasoning", "summary": halved("text", type="summary_text")}]},
        {
            "content": [
                *halved("thinking", type="thinking")[:1],
                *halved("reasoning", type="reasoning")[1:],
            ]
        },
        {"content": halved("note", type="thinking", thinking="Hm.")},
        {"reasoning_details": halved("text", type="reasoning.text")},
        {"thinking_blocks": halved("thinking", type="thinking")},
        {"of_gateway": [*HALVES]},
        {
            "reasoning_details": [
                halved("text", type="reasoning.text")[0],
                {"type": "reasoning.encrypted", "data": "R"},
                halved("text", type="reasoning.text")[1],
            ]
        },
    ],
)
def test_list_that_would_keep_a_secret_in_halves_is_left_out_and_told(
    monkeypatch: pytest.MonkeyPatch, delta: dict[str, Any]
) -> None:
    def kept() -> tuple[list[Any], str]:
        end = read(choice(delta), choice({"content": "Hi"}), STOP)[1].stopped()
        assert end is not None
        assert end.message.text == "Hi"
        return [each for each in end.message.content if isinstance(each, OpaqueBlock)], end.note

    assert [block.data for block in kept()[0]] == [delta]
    monkeypatch.setenv("SOME_API_KEY", "sk-test-0123456789-abcdefghij")
    (name,) = delta
    assert kept()[0] == []
    assert f"around a secret): {name!r}" in kept()[1]


def test_field_without_a_part_of_a_secret_is_kept_beside_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-test-0123456789-abcdefghij")
    signed = {"extra_content": {"google": {"thought_signature": "S"}}}
    cut = [
        {"type": "thinking", "thinking": HALVES[0]},
        words("Hi"),
        {"type": "redacted_thinking", "data": "R"},
        {"type": "thinking", "thinking": HALVES[1]},
    ]
    end = read(choice({"content": cut, **signed}), STOP)[1].stopped()
    assert end is not None

    assert [each.data for each in end.message.content if isinstance(each, OpaqueBlock)] == [signed]
    assert "around a secret): 'content'." in end.note


def test_sealed_text_continues_the_summary_before_it() -> None:
    sealed = {"type": "reasoning", "summary": [SEALED_SUMMARY]}

    whole = {"type": "reasoning", "summary": [*summed("A", "S")["summary"], SEALED_SUMMARY]}
    assert said_again([summed("A", "S")], [sealed]) == [whole]


def test_order_of_a_content_is_kept_up_to_a_limit() -> None:
    many = [each for n in range(300) for each in (THINKING_PART, words(f"{n} "))]
    back = said_again(many)

    assert back[:190] == many[:190]
    assert len(stop_of(many).message.content) < 210
    texts = "".join(each["text"] for each in back if each["type"] == "text")
    assert texts == "".join(f"{n} " for n in range(300))
    assert back.count(THINKING_PART) == 300


@pytest.mark.parametrize(
    "content",
    [
        [{"text": "Hello"}],
        ["Hel", "lo"],
        [None, words("Hello")],
        words("Hello"),
        [{"type": "output_text", "text": "Hello"}],
        [{"type": None, "text": "Hello"}],
        [words("Hello"), words(""), {"type": "text", "text": None}],
    ],
)
def test_text_is_read_whatever_its_part_is_called(content: Any) -> None:
    events, reader = read(choice({"content": content}), STOP)
    end = reader.stopped()

    assert "".join(each.text for each in events if isinstance(each, TextDelta)) == "Hello"
    assert end is not None
    assert (end.message.content, end.note) == ((TextBlock("Hello"),), "")


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:,"}},
        {"type": "reference", "reference_ids": [1]},
    ],
)
def test_part_of_an_unknown_kind_is_left_out_and_told(part: dict[str, Any]) -> None:
    _, reader = read(choice({"content": [words("Hello"), part]}), STOP)
    end = reader.stopped()

    assert end is not None
    assert end.message.content == (TextBlock("Hello"),)
    assert part["type"] in end.note


def test_thinking_that_comes_under_both_names_is_heard_once() -> None:
    events, _ = read(choice({"reasoning_content": "Hm.", "reasoning": "Hm."}), STOP)

    assert events == [ThinkingDelta("Hm.")]


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
@pytest.mark.parametrize(
    ("pieces", "said"),
    [(["a\ud83d", "\ude42b"], "a🙂b"), (["a\ud83d", "b"], "a\ufffdb"), (["a\ud83d"], "a\ufffd")],
)
def test_emoji_that_was_cut_between_its_halves_is_put_together(
    field: str, pieces: list[str], said: str
) -> None:
    events, _ = read(*(choice({field: each}) for each in pieces), STOP)

    heard = "".join(e.text for e in events if isinstance(e, TextDelta | ThinkingDelta))
    assert heard == said


@pytest.mark.parametrize(
    ("chunks", "is_whole"),
    [
        ([choice({"content": "Hi"})], False),
        ([choice({"role": "assistant"})], False),
        ([choice({"content": "Hi"}, "")], False),
        ([{"choices": [], "usage": None}], False),
        ([choice({"content": "Hi"}, "stop")], True),
        ([choice({"content": "Hi"}), "[DONE]"], True),
        ([choice({"content": "Hi"}), "[DONE] "], True),
    ],
)
def test_reply_is_complete_with_its_finish_reason_or_its_end_mark(
    chunks: list[Any], is_whole: bool
) -> None:
    _, reader = read(*chunks)

    assert (reader.stopped() is not None) is is_whole


# -- usage -------------------------------------------------------------------------------------

NAN = float("nan")


def usages(*counts: Any) -> list[Usage]:
    chunks = [{"choices": [], "usage": each} for each in counts]
    events, _ = read(choice({"content": "é" * 8}), STOP, *chunks, "[DONE]")
    return [event for event in events if isinstance(event, Usage)]


def test_tokens_from_a_cache_are_counted_apart_and_those_of_reasoning_are_output() -> None:
    raw = {
        "prompt_tokens": 100,
        "completion_tokens": 30,
        "total_tokens": 130,
        "prompt_tokens_details": {"cached_tokens": 60, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 20},
    }

    assert usages(raw) == [Usage(40, 30, cache_read_tokens=60)]


@pytest.mark.parametrize(
    "details", [None, 5, {}, {"cached_tokens": None}, {"cached_tokens": 101}, {"cached_tokens": -1}]
)
def test_count_of_a_cache_that_cannot_be_is_none(details: Any) -> None:
    raw = {"prompt_tokens": 100, "completion_tokens": 30, "prompt_tokens_details": details}

    assert usages(raw) == [Usage(100, 30)]


def test_count_that_comes_with_each_chunk_is_reported_at_the_first_and_at_the_last() -> None:
    counts = [{"prompt_tokens": 9, "completion_tokens": n} for n in (1, 2, 3)]

    assert usages(*counts) == [Usage(9, 1), Usage(9, 3)]


@pytest.mark.parametrize("nonsense", [None, {}, "many", 5, {"prompt_tokens": None}])
def test_server_that_counts_nothing_is_not_said_to_have_counted(nonsense: Any) -> None:
    assert usages(nonsense) == []


@pytest.mark.parametrize("nothing", [0, None, -1, "100", True, 7.5, NAN, 10**8 + 1])
def test_size_stands_in_for_what_was_not_counted(nothing: Any) -> None:
    output = tokens_in(16)

    assert usages({"prompt_tokens": nothing, "completion_tokens": 30})[-1] == Usage(SIZE, 30)
    assert usages({"prompt_tokens": 100, "completion_tokens": nothing})[-1] == Usage(100, output)


def test_estimate_of_an_output_without_a_count_holds_its_thinking_and_its_calls() -> None:
    events, _ = read(
        choice({"reasoning": "h" * 8, "content": "t" * 8}),
        calls(piece("look", '{"at":1}', index=0, id="a")),
        choice({}, "tool_calls", usage={"prompt_tokens": 100}),
    )

    assert [e for e in events if isinstance(e, Usage)][-1] == Usage(100, tokens_in(8 + 8 + 4 + 8))


# -- what is none ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("{", "an event that is not JSON"),
        ("[" * 100_000, "an event that is not JSON"),
        ("[]", "an event that is not an object"),
        ("null", "an event that is not an object"),
        ('"DONE"', "an event that is not an object"),
    ],
)
def test_data_that_is_no_chunk_is_described_in_plain_words(data: str, words: str) -> None:
    with pytest.raises(BadReply) as caught:
        event_in(data)

    assert str(caught.value) == words


@pytest.mark.parametrize(
    "bad",
    [
        {"choices": 5},
        {"choices": [5]},
        choice("text"),
        choice({"content": 5}),
        choice({"content": [5]}),
        choice({"tool_calls": 5}),
        choice({"function_call": 5}),
        calls(piece(5, "{}")),  # type: ignore[arg-type]
        calls({"function": 5}),
        calls(piece("look", 5)),
    ],
)
def test_chunk_of_the_wrong_shape_is_a_bad_reply_and_nothing_else(bad: dict[str, Any]) -> None:
    reader = ReplyReader(HELLO)

    with pytest.raises(BadReply, match="an event of the wrong shape"):
        list(reader.read(bad))


def test_end_mark_before_anything_else_is_no_reply() -> None:
    with pytest.raises(BadReply, match="the end of a reply that had not begun"):
        read("[DONE]")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"error": "words"}, "words"),
        ({"error": {"message": "words"}, "choices": []}, {"message": "words"}),
        ({"object": "error", "message": "words"}, {"object": "error", "message": "words"}),
    ],
)
def test_error_within_a_reply_is_heard_from_a_server_of_any_make(
    data: dict[str, Any], said: object
) -> None:
    with pytest.raises(BrokeOff) as caught:
        event_in(json.dumps(data))

    assert caught.value.said == said


def test_message_in_place_of_a_delta_is_the_whole_reply() -> None:
    message = {"role": "assistant", "content": "Paris"}
    events, reader = read({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    end = reader.stopped()
    assert events == [TextDelta("Paris")]
    assert end is not None
    assert end.message.text == "Paris"


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ("look<|channel|>json", "look"),
        ("functions.look", "look"),
        ("look", "look"),
        ("functions.look:0", "look"),
        ("default_api.look", "look"),
        ("<|channel|>commentary to=functions.look <|constrain|>json", "look"),
        ("other<|channel|>json", "other<|channel|>json"),
        ("looks", "looks"),
    ],
)
def test_marks_of_a_template_in_a_tools_name_are_taken_off(said: str, heard: str) -> None:
    tools = (ToolSpec("look", "", {"type": "object"}),)
    reader = ReplyReader(replace(HELLO, tools=tools))
    function = {"name": said, "arguments": "{}"}
    call = choice({"tool_calls": [{"index": 0, "id": "c", "function": function}]}, "tool_calls")
    list(reader.read(call))

    assert [each.name for each in reader.finish() if isinstance(each, ToolUse)] == [heard]


def test_fields_of_a_tool_call_that_we_do_not_know_go_back_with_it() -> None:
    extra = {"extra_content": {"google": {"thought_signature": "abc"}}}
    function = {"name": "look", "arguments": "{}"}
    call = {"index": 0, "id": "c", "type": "function", "function": function, **extra}
    _, reader = read(choice({"tool_calls": [call]}, "tool_calls"))

    end = reader.stopped()
    assert end is not None
    results = Message(Role.USER, (ToolResultBlock("c", "seen"),))
    again = replace(HELLO, messages=(*HELLO.messages, end.message, results))
    (sent,) = body_of(again)["messages"][-2]["tool_calls"]
    assert sent == {"id": "c", "type": "function", "function": function, **extra}


def test_unknown_fields_within_the_function_of_a_call_go_back_there() -> None:
    """As LiteLLM writes the signature of Gemini's thought."""
    mark = {"provider_specific_fields": {"thought_signature": "S"}}
    function = {"name": "look", "arguments": "{}"}
    call = {"index": 0, "id": "c", "type": "function", "function": {**function, **mark}}
    _, reader = read(calls(call), STOP)
    end = reader.stopped()

    assert end is not None
    results = Message(Role.USER, (ToolResultBlock("c", "seen"),))
    again = replace(HELLO, messages=(*HELLO.messages, end.message, results))
    sent = [body_of(again, form)["messages"][-2]["tool_calls"][0]["function"] for form in FORMS]
    assert sent == [{**function, **mark}, function]

    words = "Unknown parameter: 'messages[2].tool_calls[0].function.provider_specific_fields'."
    parts = parts_sent(again, Form(), Server())
    assert after(Form(), Complaint(400, words), parts) == FORMS[1]


FORMS = Form(), Form(frozenset({"function.provider_specific_fields"}))


@pytest.mark.parametrize(
    ("pieces", "thought"),
    [
        (
            [{"text": "I "}, {"text": "see.", "signature": "S"}],
            {"text": "I see.", "signature": "S"},
        ),
        (
            [[{"type": "text", "text": "I "}], [{"type": "text", "text": "see."}]],
            [{"type": "text", "text": "I see."}],
        ),
        ([{"thinking": "I see."}], {"thinking": "I see."}),
        ([["I ", "see."]], ["I ", "see."]),
    ],
)
@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thinking_that_is_no_plain_text_is_shown_and_goes_back_as_it_came(
    name: str, pieces: list[Any], thought: object
) -> None:
    chunks = [choice({name: piece}) for piece in pieces]
    events, reader = read(*chunks, choice({"content": "Hi"}), STOP)

    end = reader.stopped()
    assert end is not None
    shown = [event.text for event in events if isinstance(event, ThinkingDelta)]
    assert "".join(shown) == "I see."
    assert kept(*chunks) == {name: thought}
    assert [type(block) for block in end.message.content] == [
        ThinkingBlock,
        OpaqueBlock,
        TextBlock,
    ]


@pytest.mark.parametrize("odd", [{"x": 1}, 5, [None], [[]]])
def test_thinking_of_an_unknown_shape_ends_no_reply(odd: object) -> None:
    assert kept(choice({"reasoning": odd})) == {"reasoning": odd}


# -- fields that we do not know -------------------------------------------------------------------

THOUGHT = {"type": "reasoning.text", "index": 0, "format": "v1"}
SEALED = {"type": "reasoning.encrypted", "index": 1, "data": "abc"}


def details(*entries: Any) -> dict[str, Any]:
    return choice({"reasoning_details": list(entries)})


def kept(*chunks: Mapping[str, Any]) -> Mapping[str, Any]:
    """The unknown fields in the message of a reply, as they go back."""
    _, reader = read(*chunks, choice({"content": "Hi"}), STOP)
    end = reader.stopped()
    assert end is not None
    again = replace(HELLO, messages=(*HELLO.messages, end.message, user_message("And?")))
    said = body_of(again)["messages"][-2]
    refused = body_of(again, Form(frozenset(said) - {"role", "content"}))["messages"][-2]
    assert refused == {"role": "assistant", "content": "Hi"}
    return {name: value for name, value in said.items() if name not in refused}


@pytest.mark.parametrize(
    ("chunks", "whole"),
    [
        pytest.param(
            [
                details({**THOUGHT, "text": "Hm"}),
                details({**THOUGHT, "text": "m."}),
                details({**THOUGHT, "signature": "s"}, SEALED),
            ],
            {"reasoning_details": [{**THOUGHT, "text": "Hmm.", "signature": "s"}, SEALED]},
            id="entries in pieces",
        ),
        pytest.param(
            [details({"type": "a", "index": 0, "text": "1"}), details({"type": "b", "index": 0})],
            {
                "reasoning_details": [
                    {"type": "a", "index": 0, "text": "1"},
                    {"type": "b", "index": 0},
                ]
            },
            id="another type begins another entry",
        ),
        pytest.param(
            [
                details({**THOUGHT, "text": "one "}),
                details({**THOUGHT, "text": "more"}),
                details({**THOUGHT, "signature": "S"}),
                details({**THOUGHT, "text": "two", "signature": ""}),
                details({**THOUGHT, "signature": "T"}),
            ],
            {
                "reasoning_details": [
                    {**THOUGHT, "text": "one more", "signature": "S"},
                    {**THOUGHT, "text": "two", "signature": "T"},
                ]
            },
            id="a signature ends an entry, whatever its index",
        ),
        pytest.param(
            [details({"text": "1"}), details({"text": "2"}, 3)],
            {"reasoning_details": [{"text": "1"}, {"text": "2"}, 3]},
            id="entries without an index and a type stay apart",
        ),
        pytest.param(
            [
                details({"type": "thinking", "thinking": "a", "signature": ""}),
                details({"type": "thinking", "thinking": "b", "signature": ""}),
                details({"type": "thinking", "thinking": "", "signature": "S"}),
                details({"type": "thinking", "thinking": "c"}),
                details({"type": "thinking", "thinking": "d", "signature": "T"}),
            ],
            {
                "reasoning_details": [
                    {"type": "thinking", "thinking": "ab", "signature": "S"},
                    {"type": "thinking", "thinking": "cd", "signature": "T"},
                ]
            },
            id="entries of a type without an index are one, to its signature",
        ),
        pytest.param(
            [
                details({"type": "redacted_thinking", "data": "a"}),
                details({"type": "redacted_thinking", "data": "b"}),
                details({"type": "reasoning.text", "id": "1", "text": "c"}),
                details({"type": "reasoning.text", "id": "2", "text": "d"}),
                details({"type": "reasoning.text", "id": "2", "index": 0, "text": "e"}),
            ],
            {
                "reasoning_details": [
                    {"type": "redacted_thinking", "data": "a"},
                    {"type": "redacted_thinking", "data": "b"},
                    {"type": "reasoning.text", "id": "1", "text": "c"},
                    {"type": "reasoning.text", "id": "2", "text": "d"},
                    {"type": "reasoning.text", "id": "2", "index": 0, "text": "e"},
                ]
            },
            id="what is another entry stays one",
        ),
        pytest.param(
            [
                details({**SEALED, "index": 0, "id": "1"}),
                details({**SEALED, "index": 0, "id": "2"}),
                details({"type": "reasoning.encrypted", "data": "E"}),
                details({"type": "reasoning.encrypted", "data": "F"}),
            ],
            {
                "reasoning_details": [
                    {**SEALED, "index": 0, "id": "1"},
                    {**SEALED, "index": 0, "id": "2"},
                    {"type": "reasoning.encrypted", "data": "E"},
                    {"type": "reasoning.encrypted", "data": "F"},
                ]
            },
            id="sealed entries are never glued together",
        ),
        pytest.param(
            [
                details(
                    {"type": "a", "index": 0, "text": "a"}, {"type": "a", "index": 1, "text": "x"}
                ),
                details(
                    {"type": "a", "index": 0, "text": "b"}, {"type": "a", "index": 1, "text": "y"}
                ),
            ],
            {
                "reasoning_details": [
                    {"type": "a", "index": 0, "text": "ab"},
                    {"type": "a", "index": 1, "text": "xy"},
                ]
            },
            id="entries that grow by turns",
        ),
        pytest.param(
            [
                choice({"mark": "a", "vendor": {"n": 1}}),
                choice({"mark": "b", "vendor": {"m": "x"}}),
            ],
            {"mark": "ab", "vendor": {"n": 1, "m": "x"}},
            id="texts are joined, objects merged",
        ),
        pytest.param(
            [choice({"served_by": "eu-1", "vendor": {"region": "eu"}})] * 3,
            {"served_by": "eu-1", "vendor": {"region": "eu"}},
            id="texts that come whole with each piece",
        ),
        pytest.param(
            [choice({"mark": piece}) for piece in ("a", "a", "b", "a")],
            {"mark": "aaba"},
            id="a text that only began alike",
        ),
        pytest.param(
            [details({"type": "reasoning.text", "text": "ha"})] * 2,
            {"reasoning_details": [{"type": "reasoning.text", "text": "haha"}]},
            id="pieces of a text that are alike",
        ),
        pytest.param(
            [
                choice({"sources": [{"type": "url", "url": each} for each in "ab"]}),
                choice({"sources": [{"type": "file", "path": each} for each in "cd"]}),
                choice({"sources": [{"type": "url", "url": "e"}]}),
                choice({"sources": [{"type": "url", "url": "f"}]}),
            ],
            {
                "sources": [
                    *[{"type": "url", "url": each} for each in "ab"],
                    *[{"type": "file", "path": each} for each in "cd"],
                    *[{"type": "url", "url": each} for each in "ef"],
                ]
            },
            id="entries that are whole",
        ),
        pytest.param(
            [
                details(
                    {"type": "reasoning.text", "text": "a"}, {"type": "reasoning.text", "text": "b"}
                )
            ],
            {"reasoning_details": [{"type": "reasoning.text", "text": "ab"}]},
            id="pieces that a gateway put together",
        ),
        pytest.param(
            [
                details({"text": "a"}),
                details({"type": "reasoning.text", "text": "b"}),
                details({"type": "reasoning.text", "index": 0, "text": "c"}),
                details({"type": "reasoning.text", "text": "d"}),
            ],
            {
                "reasoning_details": [
                    {"text": "a"},
                    {"type": "reasoning.text", "text": "b"},
                    {"type": "reasoning.text", "index": 0, "text": "c"},
                    {"type": "reasoning.text", "text": "d"},
                ]
            },
            id="entries of another writing",
        ),
        pytest.param(
            [
                details({**THOUGHT, "text": "a"}, {**THOUGHT, "text": "b", "more": 1}),
                details({"index": 0, "text": "c"}),
            ],
            {"reasoning_details": [{**THOUGHT, "text": "abc", "more": 1}]},
            id="an index tells by itself",
        ),
        pytest.param(
            [
                details({"type": "web_search", "tool_use_id": "1"}),
                details({"type": "web_search", "tool_use_id": "2"}),
            ],
            {
                "reasoning_details": [
                    {"type": "web_search", "tool_use_id": "1"},
                    {"type": "web_search", "tool_use_id": "2"},
                ]
            },
            id="entries of two calls",
        ),
        pytest.param(
            [
                choice({"reasoning_opaque": "A", "extra_content": {"thought_signature": "B"}}),
                choice({"reasoning_opaque": "C", "extra_content": {"thought_signature": "D"}}),
            ],
            {"reasoning_opaque": "C", "extra_content": {"thought_signature": "D"}},
            id="signatures that come whole",
        ),
        pytest.param(
            [
                choice({"extra_content": {"google": {"thought": True}}}),
                choice({"extra_content": {"google": {"thought_signature": "A"}}}),
            ],
            {"extra_content": {"google": {"thought_signature": "A"}}},
            id="a mark of the text beside it",
        ),
        pytest.param(
            [choice({"content_blocks": [{"index": 0, "delta": {"thinking": "a"}}]})],
            {},
            id="deltas of another API",
        ),
        pytest.param(
            [details({**THOUGHT, "text": "ab "})] * (MOST_PARTS + 1),
            {"reasoning_details": [{**THOUGHT, "text": "ab " * (MOST_PARTS + 1)}]},
            id="an entry in very many pieces",
        ),
        pytest.param(
            [choice({"audio": None, "annotations": [1], "channel": "final", "mark": None})],
            {},
            id="what is null, and what servers refuse in a request",
        ),
        pytest.param([choice({"mark": float("nan")})], {}, id="no JSON"),
    ],
)
def test_unknown_fields_of_a_message_go_back_whole(
    chunks: list[dict[str, Any]], whole: dict[str, Any]
) -> None:
    assert kept(*chunks) == whole


def test_unknown_fields_are_those_of_this_api_and_cannot_replace_ours() -> None:
    fields = {"role": "user", "content": "no", "mark": 1}
    blocks = (OpaqueBlock("", fields), OpaqueBlock("other", {"x": 1}), TextBlock("Hi"))
    said = Message(Role.ASSISTANT, blocks)
    again = replace(HELLO, messages=(*HELLO.messages, said, user_message("And?")))

    assert body_of(again)["messages"][-2] == {
        "role": "assistant",
        "content": "Hi",
        "mark": 1,
    }


@pytest.mark.parametrize(
    "fields",
    [{"text": "x" * (MOST_IN_EVENT // 2)}, {"marks": [{}] * (MOST_PARTS // 2)}],
    ids=["bytes", "parts"],
)
def test_unknown_fields_have_a_limit(fields: dict[str, Any]) -> None:
    small = {"small": [1]}
    chunks = [choice(fields), choice(small), choice(fields), choice(fields)]
    assert kept(*chunks, choice({name: type(value)() for name, value in fields.items()})) == small

    _, reader = read(*chunks, STOP)
    end = reader.stopped()
    assert end is not None
    assert end.note.startswith("Left out of the reply")
    assert f": '{next(iter(fields))}'." in end.note


@pytest.mark.parametrize(
    "images",
    [[{"url": "x" * (MOST_IN_EVENT // 2)}], [{}] * (MOST_PARTS // 2)],
    ids=["bytes", "parts"],
)
def test_field_that_passes_the_limit_takes_no_other_with_it(images: list[object]) -> None:
    seal = {"reasoning_opaque": "A", "reasoning_details": [{**THOUGHT, "text": "Hm."}], "n": 1}
    large = {"images": images}
    nothing: dict[str, Any] = {
        "reasoning_opaque": None,
        "reasoning_details": [],
        "n": 2,
        "web": None,
    }
    chunks = [choice(each) for each in (seal, large, large, large, nothing, {"late": [1]})]
    assert kept(*chunks) == {**seal, "n": 2, "late": [1]}

    _, reader = read(*chunks, STOP)
    end = reader.stopped()
    assert end is not None
    assert end.note.endswith(": 'images'.")


def test_entry_that_only_grows_has_a_limit() -> None:
    piece = details({**THOUGHT, "text": "x" * (MOST_IN_EVENT // 8)})
    chunks = [choice({"small": [1]}), *[piece] * 9]
    assert kept(*chunks) == {"small": [1]}

    _, reader = read(*chunks, STOP)
    end = reader.stopped()
    assert end is not None
    assert end.note.endswith(": 'reasoning_details'.")


@pytest.mark.parametrize(
    "other",
    [
        *({**THOUGHT, "text": text} for text in ("a", "", None, 1)),
        {**THOUGHT, "text": []},
        *({**THOUGHT, "text": "a", "index": index} for index in (1, None, "0")),
        *({**THOUGHT, "text": "a", "signature": signature} for signature in ("s", "", None)),
        *({**THOUGHT, "text": "a", "id": own_id} for own_id in ("i", "", None)),
        *({**THOUGHT, name: "x"} for name in ("more", "signature", "summary", "arguments")),
        {**THOUGHT, "text": "a", "more": ["x"]},
        SEALED,
        None,
        ["x"],
    ],
    ids=str,
)
def test_pieces_in_a_row_are_joined_as_those_with_others_between_them(other: Any) -> None:
    a, b = ({**THOUGHT, "text": text} for text in "ab")
    pieces = [details(each) for each in (a, a, b, other, other, other, a, b, other, a, a)]
    pieces += [choice({"others": [a]}), choice({"others": [a]}), details(a), details(a, a)]
    apart = [each for piece in pieces for each in (piece, choice({"mark": 1}))]
    assert {**kept(*pieces), "mark": 1} == kept(*apart)


def test_what_comes_of_a_dropped_field_is_not_held() -> None:
    reader = ReplyReader(HELLO)
    tracemalloc.start()
    try:
        for _ in range(30):
            reader.read(details({**THOUGHT, "text": "x" * (MOST_IN_EVENT // 4)}))
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert held_bytes < 2 * MOST_IN_EVENT


def test_unknown_fields_of_a_call_have_a_limit() -> None:
    mark = "x" * (MOST_IN_EVENT // 2 + 1)
    pieces = [
        {"index": 0, "mark": mark, "small": 1, "function": {"inner": mark}},
        {"index": 0, "mark": f"{mark}y", "function": {"inner": f"{mark}y"}},
    ]
    _, reader = read(calls(piece("look", "{}", index=0, id="c")), *map(calls, pieces), STOP)

    end = reader.stopped()
    assert end is not None
    assert end.message.content == (ToolUseBlock("c", "look", {}, {"": {"small": 1}}),)
    assert ": 'mark', 'inner'." in end.note


QUOTE = {"type": "char_location", "cited_text": "A", "document_index": 0, "start_char_index": 0}


@pytest.mark.parametrize(
    "other",
    [
        {"cited_text": "B"},
        {"document_index": 1},
        {"start_char_index": 20},
        {"type": "page_location", "cited_text": "B"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_objects_that_cannot_be_one_are_dropped_and_told(other: dict[str, Any]) -> None:
    """As LiteLLM sends quotes, each under the same name."""
    chunks = [
        choice({"provider_specific_fields": {"citation": each, "mark": "m"}, "citation": "c"})
        for each in (QUOTE, {**QUOTE, **other})
    ]
    assert kept(*chunks) == {"provider_specific_fields": {"mark": "m"}, "citation": "c"}

    _, reader = read(*chunks, STOP)
    end = reader.stopped()
    assert end is not None
    assert end.note.endswith(": 'citation'.")


def test_object_that_comes_again_or_in_pieces_is_one() -> None:
    pieces = [QUOTE, QUOTE, {"cited_text": None, "end": 3}, {"type": "", "is_last": True}]
    chunks = [choice({"citation": each}) for each in pieces]
    assert kept(*chunks) == {"citation": {**QUOTE, "end": 3, "is_last": True}}


def test_tool_that_the_server_runs_is_heard_once_though_its_output_comes_later() -> None:
    """As Groq sends the tools of its own."""
    run = {"index": 0, "type": "search", "arguments": '{"query": "ha"}', "output": None}
    found = {**run, "output": "Title: A", "search_results": {"results": [{"title": "A"}]}}
    chunks = [choice({"executed_tools": [each]}) for each in (run, found)]
    assert kept(*chunks) == {"executed_tools": [found]}


@pytest.mark.parametrize("call_id", ["", "used"])
def test_call_that_gets_another_id_keeps_its_fields(call_id: str) -> None:
    used = Message(Role.ASSISTANT, (ToolUseBlock("used", "look", {}),))
    reader = ReplyReader(replace(HELLO, messages=(*HELLO.messages, used)))
    list(reader.read(calls({**piece("look", "{}", id=call_id), "mark": 1}, finish="tool_calls")))
    (call,) = reader.finish()

    end = reader.stopped()
    assert end is not None
    assert isinstance(call, ToolUse)
    assert call.id not in ("", "used")
    assert end.message.content == (ToolUseBlock(call.id, "look", {}, {"": {"mark": 1}}),)


# -- ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("none", ["null", "none", ""])
def test_word_for_no_finish_reason_is_no_end(none: str) -> None:
    _, reader = read(choice({"content": "Hi"}, none))
    assert reader.stopped() is None

    events, reader = read(choice({"content": "H"}, none), choice({"content": "i"}, none), STOP)
    assert events == [TextDelta("H"), TextDelta("i")]
    assert reader.stopped() is not None


def test_message_that_is_repeated_beside_the_deltas_is_heard_once() -> None:
    def both(delta: str, so_far: str, finish: str | None = None) -> dict[str, Any]:
        message = {"role": "assistant", "content": so_far}
        news = {"content": delta} if delta else {}
        part = {"index": 0, "delta": news, "message": message, "finish_reason": finish}
        return {"choices": [part]}

    events, reader = read(both("Par", "Par"), both("is", "Paris"), both("", "Paris", "stop"))
    end = reader.stopped()

    assert events == [TextDelta("Par"), TextDelta("is")]
    assert end is not None
    assert end.message.text == "Paris"


# -- usage that is counted in parts ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        (
            {"prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30}},
            Usage(10, 30, 30, 60),
        ),
        (
            {"prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 41}},
            Usage(40, 30, 0, 60),
        ),
        ({"prompt_cache_hit_tokens": 60}, Usage(40, 30, 0, 60)),
        (
            {"total_tokens": 130, "completion_tokens_details": {"reasoning_tokens": 20}},
            Usage(100, 30),
        ),
        (
            {"total_tokens": 150, "completion_tokens_details": {"reasoning_tokens": 20}},
            Usage(100, 50),
        ),
    ],
)
def test_each_token_is_counted_once(raw: dict[str, Any], usage: Usage) -> None:
    assert usages({"prompt_tokens": 100, "completion_tokens": 30, **raw}) == [usage]


# -- arguments as servers send them ----------------------------------------------------------------

BARE = ToolSpec("wait", "", {"type": "object", "properties": {}})
LOOK = ToolSpec("look", "", {"type": "object", "properties": {"at": {"type": "integer"}}})


@pytest.mark.parametrize(
    "pieces",
    [
        ['{"at": ', "1}", '{"at": 1}'],
        ['{"at": 1}', ' {"at": 1}\n'],
        ["{}", '{"at": ', "1}"],
        ["{}", '{"at": 1}'],
        ['{} {"at":1}{"at": 1}{}'],
    ],
)
def test_arguments_that_come_twice_or_after_an_empty_object_are_whole(pieces: list[str]) -> None:
    first, *rest = pieces
    chunks = [calls(piece("look", first, index=0, id="c"))]
    chunks += [calls(piece(None, each, index=0)) for each in rest]
    events, _ = read(*chunks, choice({}, "tool_calls"))

    assert events == [ToolUse("c", "look", {"at": 1})]


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ("{}{}", {}),
        ('{"a": 1, "b": 2}{"b": 2, "a": 1}', {"a": 1, "b": 2}),
        ('{"a": {"b": 1, "c": 2}} {"a": {"c": 2, "b": 1}}', {"a": {"b": 1, "c": 2}}),
    ],
)
def test_arguments_that_come_twice_are_one_though_empty_or_in_another_order(
    said: str, heard: dict[str, Any]
) -> None:
    request = replace(HELLO, tools=(LOOK,))

    assert called(calls(piece("look", said, index=0, id="c")), STOP, request=request) == [
        ("c", "look", heard)
    ]


def test_arguments_that_are_json_in_json_are_one_object() -> None:
    """As vLLM passes on what some models write (vllm-project/vllm#54964)."""
    said = json.dumps(json.dumps({"at": 1}))
    events, _ = read(
        calls(piece("look", said[:4], index=0, id="c")), calls(piece("", said[4:])), STOP
    )

    assert [event for event in events if isinstance(event, ToolUse)] == [
        ToolUse("c", "look", {"at": 1})
    ]


@pytest.mark.parametrize("said", ['"at"', '"{\\"at\\": 1', '"[1]"', '"{}" x'])
def test_arguments_that_are_another_text_are_none(said: str) -> None:
    events, _ = read(calls(piece("look", said, index=0, id="c"), finish="tool_calls"))

    assert events == [ToolUse("c", "look", {MALFORMED_INPUT: said})]


@pytest.mark.parametrize("said", ['{"at": 1}{"at": 2}', '{"at": 1}{"at', '{"at": 1} x', "{}" * 101])
def test_arguments_that_are_several_are_none(said: str) -> None:
    events, _ = read(calls(piece("look", said, index=0, id="c"), finish="tool_calls"))

    assert events == [ToolUse("c", "look", {MALFORMED_INPUT: said})]


def test_repeated_arguments_that_were_cut_are_not_reported() -> None:
    events, _ = read(calls(piece("look", '{"at": 1}{"at', index=0, id="c"), finish="length"))

    assert events == []


@pytest.mark.parametrize("nothing", ["null", '""', "[]", "", " ", "{}"])
def test_tool_without_parameters_takes_any_empty_value(nothing: str) -> None:
    request = replace(HELLO, tools=(BARE, LOOK))

    def called(name: str) -> ToolUse:
        reader = ReplyReader(request)
        list(reader.read(calls(piece(name, nothing, index=0, id="c"), finish="tool_calls")))
        (call,) = reader.finish()
        assert isinstance(call, ToolUse)
        return call

    assert called("wait").input == {}
    is_empty = not nothing.strip() or nothing == "{}"
    assert called("look").input == ({} if is_empty else {MALFORMED_INPUT: nothing})


def test_tool_calls_that_are_one_object_are_one_call() -> None:
    call = piece("look", '{"at": 1}', index=0, id="")
    events, _ = read(choice({"tool_calls": call}), choice({}, "stop"))

    assert events == [ToolUse("call_1", "look", {"at": 1})]
