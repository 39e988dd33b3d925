"""Thinking in a reply's text is told apart at its beginning, wherever the pieces are cut."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentnb.core.errors import StreamBroken
from agentnb.core.types import (
    CompletionRequest,
    Message,
    Role,
    Stopped,
    StreamEvent,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    user_message,
)
from agentnb.providers.anthropic import AnthropicProvider
from agentnb.providers.limits import BadReply
from agentnb.providers.openai import OpenAIProvider
from agentnb.providers.openai_wire import ReplyReader, body_of, event_in
from agentnb.providers.servers import Server
from agentnb.providers.thinking_in_text import ThinkingFilter
from tests.loopback import LoopbackServer, Reply

HELLO = CompletionRequest("m", "Be kind.", (user_message("Say hello"),))
ALOUD = {
    "<think>hm</think>Paris": ("hm", "Paris"),
    "\n<think>\nhm\n</think>\n\nParis": ("\nhm\n", "Paris"),
    "<thinking>hm</thinking>\nParis": ("hm", "Paris"),
    "[THINK]hm[/THINK]Paris": ("hm", "Paris"),
    "<think></think>Paris": ("", "Paris"),
    "<THINK>hm</THINK>Paris": ("hm", "Paris"),
    "\ufeff<think>hm</think>\u200bParis": ("hm", "Paris"),
    "\n\u200b\n<think>hm</think>Paris": ("hm", "Paris"),
    "<seed:think>hm</seed:think>Paris": ("hm", "Paris"),
    "◁think▷hm◁/think▷Paris": ("hm", "Paris"),
    "<longcat_think>hm</longcat_think>Paris": ("hm", "Paris"),
    "<|channel>thought\nhm<channel|>Paris": ("\nhm", "Paris"),
    "<|START_THINKING|>hm<|END_THINKING|>Paris": ("hm", "Paris"),
    "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Paris": (
        "hm",
        "Paris",
    ),
    "<|channel|>final<|message|>Paris": ("", "Paris"),
    "\n<|channel|>final<|message|>\n<|channel|": ("", "<|channel|"),
    "<think>\n\n</think>\n\n<think>hm</think>\nParis": ("\n\nhm", "Paris"),
    "<think>hm</think>\n <th": ("hm", "<th"),
    "<think>a</think><thinking>b</thinking>\n": ("ab", ""),
    "<think>a < b </thin</think> Paris </think>": ("a < b </thin", "Paris </think>"),
    "<think>never closed </th": ("never closed </th", ""),
}
PLAIN = ["Paris", "<p>Paris</p>", "<", " ", "Write `<think>` first.", "<b><think>x</think></b>", ""]
PLAIN += ["\ufeffParis", "\u200b <"]


def heard(
    server: Server,
    *contents: str,
    finish: str = "stop",
    request: CompletionRequest = HELLO,
    **first: str,
) -> list[StreamEvent]:
    """The events of a chat completion."""
    reader, split = ReplyReader(request, server), ThinkingFilter(request, server)
    deltas = [(first, None), *(({"content": each}, None) for each in contents), ({}, finish)]
    events: list[StreamEvent] = []
    for delta, reason in deltas:
        chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        events += split.told_apart(reader.read(event_in(json.dumps(chunk))))
    events += split.told_apart([*reader.finish()])
    if (stopped := reader.stopped()) is not None:
        events += split.end(stopped.reason)
        events.append(split.stopped(stopped))
    return events


def read(server: Server, *contents: str, finish: str = "stop", **more: Any) -> Stopped:
    events = heard(server, *contents, finish=finish, **more)
    stopped = events[-1]
    assert isinstance(stopped, Stopped)
    said = "".join(event.text for event in events if type(event) is TextDelta)
    assert said == stopped.message.text, "what was shown is the answer"
    return stopped


def content_of(stopped: Stopped) -> tuple[str, str]:
    """The thinking and the text of a reply."""
    blocks = stopped.message.content
    assert all(b.extra is None for b in blocks if isinstance(b, ThinkingBlock))
    thought = "".join(b.text for b in blocks if isinstance(b, ThinkingBlock))
    return thought, "".join(b.text for b in blocks if isinstance(b, TextBlock))


@given(st.sampled_from(sorted(ALOUD)), st.integers(1, 9))
def test_thinking_and_answer_are_told_apart_wherever_the_pieces_are_cut(
    said: str, size: int
) -> None:
    pieces = [said[at : at + size] for at in range(0, len(said), size)]

    assert content_of(read(Server(), *pieces)) == ALOUD[said]


@given(st.sampled_from(PLAIN), st.integers(1, 9))
def test_text_without_thinking_stays_as_it_is(said: str, size: int) -> None:
    pieces = [said[at : at + size] for at in range(0, len(said), size)]

    assert content_of(read(Server(), *pieces)) == ("", said)


def test_answer_streams_while_it_comes() -> None:
    split = ThinkingFilter(HELLO, Server())

    assert list(split.told_apart([TextDelta("Par")])) == [TextDelta("Par")]
    assert split.is_done


def test_thinking_streams_while_it_comes() -> None:
    split = ThinkingFilter(HELLO, Server())

    events = split.told_apart([TextDelta("<thi"), TextDelta("nk>hm"), TextDelta("m</th")])
    assert list(events) == [ThinkingDelta("hm"), ThinkingDelta("m")]


def test_lone_end_tag_breaks_one_reply_and_the_next_are_read_right() -> None:
    server = Server()
    said = "I wonder.\n</think>\n\nParis"
    with pytest.raises(BadReply):
        read(server, said)

    assert content_of(read(server, said)) == ("I wonder.\n", "Paris")
    assert content_of(read(server, *said)) == ("I wonder.\n", "Paris")
    assert content_of(read(server, "Par", "is")) == ("", "Paris")


@pytest.mark.parametrize(
    "said",
    [
        "hm.</think>\n\nParis",
        "hm.</think> \n \nParis",
        'I will say "Paris"</think>\n\nParis',
        "So `x = 1`</think>\n\nParis",
        "It is 'it'.\n\"Yes\"</think>\n\nit",
        "h.\r\n</think>\r\n\r\nP",
        "hm\n </think>",
        "h\n[/THINK]\nP",
        "[The user asks for a capital.] It is Rome.\n</think>\n\nRome",
        "[Wikipedia](http://x) says Rome.\n</think>\n\nRome",
        "[1, 2) is the interval.\n</think>\n\nRome",
        '["a" is a list] of the "quoted.\n</think>\n\nRome',
        "{draft} hm\n</think>\n\nRome",
        "{x is not closed\n</think>\n\nRome",
        '{"text": "a \\"}"}\n</think>\n\n{"text": "b"}',
        '[{"a": [1, -2.5e3, true, null]}] no "\n</think>\n\nRome',
    ],
)
def test_lone_end_tag_counts_on_a_line_of_its_own_and_before_a_blank_line(said: str) -> None:
    with pytest.raises(BadReply):
        read(Server(), said)


@pytest.mark.parametrize(
    "said",
    [
        "hello</think>world",
        "a</think>\nb",
        "hm\n</think>Paris",
        "Write:\n```\n</think>\n```\n",
        "Write:\n<think>\nan idea\n</think>\nand then the answer.",
        "Write:\n~~~\nidea\n</think>\n~~~\ndone",
        "Close it by `</think>` at the end.",
        "Close it by </think> at the end.",
        "Close it by </think>.",
        '{"text": "hm\n</think>\n\nParis"}',
        '["hm",\n"\n</think>\n"]',
        "| a | b |\n|---|---|\n| x | </think> |\n\n",
        "Write:\n\n    <b>\n    </think>\n\nand then the answer.",
        "| a | b |\n|---|---|\n| x</think>y | z |",
        "Drop everything before </think> in each line.\n\nThen strip.",
        'Here it is: {"a": "x</think>y", "b": 1}',
        "x</think>",
        "x</think>\n",
        'The line ends with "</think>\n\nand so on.',
        'Text in quotes: "a" and `</think>\n\nand so on.',
        "> Okay, so\n> </think>\n\nThe tag is left over.",
        "Close both:\n- <b>\n- </think>\n\nThat is all.",
        "1. </think>\n\nIt ends the thinking.",
        "## </think>\n\nIt ends the thinking.",
        '{"a": {"b": [1, true]}, "text": "\\"}hm\n</think>\n\nParis"}',
        '{"text": "hm\n</think>\n\nPar',
    ],
)
def test_end_tag_that_is_spoken_of_is_no_end_of_thinking(said: str) -> None:
    for server in (Server(), Server(thinks_in_text={"m"})):
        for pieces in ([said], list(said)):
            assert content_of(read(server, *pieces)) == ("", said)


@pytest.mark.parametrize(
    "said",
    [
        "- begin: <think>\n- end: </think>\n\nDone",
        "Begin with `<think>`, and end with:\n</think>\n",
        "After </think> comes a line:\n</think>\n",
    ],
)
def test_end_tag_after_another_tag_marks_no_model(said: str) -> None:
    server = Server()

    assert content_of(read(server, said)) == ("", said)
    assert not server.thinks_in_text


@pytest.mark.parametrize(
    "asked",
    [
        replace(HELLO, messages=(user_message("Clean: hm\n</think>\n\nParis"),)),
        replace(HELLO, system="Think between <think> and </think>, and show it."),
        replace(HELLO, messages=(Message(Role.USER, (ToolResultBlock("t", "a</think>b"),)),)),
        replace(
            HELLO,
            messages=(
                *HELLO.messages,
                Message(Role.ASSISTANT, (ToolUseBlock("t", "look", {"q": "x</think>y"}),)),
                Message(Role.USER, (ToolResultBlock("t", "seen"),)),
            ),
        ),
        replace(HELLO, tools=(ToolSpec("look", "Text before </think> is cut.", {}),)),
    ],
    ids=["message", "system", "tool result", "tool input", "tool"],
)
def test_tag_that_stands_in_the_request_is_text(asked: CompletionRequest) -> None:
    for said in ("hm\n</think>\n\nParis", "<think>hm</think>Paris"):
        for server in (Server(), Server(thinks_in_text={"m"})):
            assert content_of(read(server, said, request=asked)) == ("", said)
            assert content_of(read(server, *said, request=asked)) == ("", said)


def test_mark_of_an_answer_that_stands_in_the_request_is_text() -> None:
    said = "<|channel|>final<|message|>Paris"
    request = replace(HELLO, messages=(user_message(f"Repeat: {said}"),))

    assert content_of(read(Server(), said, request=request)) == ("", said)


@pytest.mark.parametrize("server", [Server(), Server(thinks_in_text={"m"})])
def test_another_tag_in_the_request_leaves_those_that_templates_write(server: Server) -> None:
    asked = replace(HELLO, system="Think in <thinking> tags, and show it.")
    said = "<thinking>a</thinking>\n</think>\n\nParis"

    if not server.thinks_in_text:
        with pytest.raises(BadReply):
            read(server, said, request=asked)
    for pieces in ([said], list(said)):
        heard_apart = content_of(read(server, *pieces, request=asked))
        assert heard_apart == ("<thinking>a</thinking>\n", "Paris")


def test_model_that_thinks_between_tags_does_so_whatever_is_asked() -> None:
    server, said = Server(), "<think>hm</think>Paris"
    read(server, said)
    asked = replace(HELLO, messages=(user_message("Clean <think>a</think>b"),))

    assert content_of(read(server, said, request=asked)) == ("hm", "Paris")
    twice = "<think>hm</think><think>a</think>b"
    assert content_of(read(server, twice, request=asked)) == ("hm", "<think>a</think>b")


def test_model_is_marked_by_its_first_replies_only() -> None:
    server, said = Server(), "I wonder.\n</think>\n\nParis"
    read(server, "Paris")

    assert content_of(read(server, said)) == ("", said)


@pytest.mark.parametrize("size", [1, 4, 99])
@pytest.mark.parametrize(
    "thought",
    [
        "I should not write `</think>` here.\n",
        "I should close it with </think> first.\nOk.\n",
        "The user names <think>.\nOk.\n",
        "<b>\n<think>\nfirst\n</think> then.\nOk.\n",
        "It begins with `<think>`.\nOk.\n",
        "I close it.</think>\nOk.\n",
        "A list:\n```\n</think>\n```\nOk.\n",
        "~~~\n```\n</think>\n~~~\nOk.\n",
        "````md\n```\n</think>\n```\n</think>\n````\nOk.\n",
        "[The user asks for a capital.] It is Rome.\n",
        '{"answer": "Rome"}\n',
    ],
)
def test_tag_in_the_thinking_or_a_bracket_before_it_leaves_its_end(thought: str, size: int) -> None:
    said = f"{thought}</think>\n\nParis </think>\n\n"
    pieces = [said[at : at + size] for at in range(0, len(said), size)]

    heard_apart = content_of(read(Server(thinks_in_text={"m"}), *pieces))
    assert heard_apart == (thought, "Paris </think>\n\n")


def test_line_that_has_not_come_whole_decides_nothing() -> None:
    pieces = ["```\n</think>\n```\n</think>", "Paris"]

    said = "".join(pieces)
    assert content_of(read(Server(thinks_in_text={"m"}), *pieces)) == ("", said)


def test_reply_full_of_quoted_tags_is_read_in_linear_time() -> None:
    said = "[" + '{"a": "b\n</think>\n\n"},\n' * 4_000
    pieces = [said[at : at + 4] for at in range(0, len(said), 4)]
    split = ThinkingFilter(HELLO, Server(thinks_in_text={"m"}))

    begun = time.perf_counter()
    assert list(split.told_apart([*map(TextDelta, pieces)])) == []
    assert list(split.end("end_turn")) == [TextDelta(said)]
    assert time.perf_counter() - begun < 5, "many times that, when each tag looks at all that came"


_PARTS = [
    "</think>",
    "<think>",
    "\n",
    "\n",
    "\r\n",
    " ",
    "a",
    "`",
    "```\n",
    "{",
    "}",
    '"',
    "[/THINK]",
]


@given(
    st.lists(st.sampled_from(_PARTS), max_size=14).map("".join), st.integers(1, 9), st.booleans()
)
def test_held_reply_is_told_apart_alike_wherever_the_pieces_are_cut(
    said: str, size: int, is_cut: bool
) -> None:
    finish = "length" if is_cut else "stop"
    heard_apart = []
    for pieces in ([said], [said[at : at + size] for at in range(0, len(said), size)]):
        with contextlib.suppress(BadReply):
            stopped = read(Server(thinks_in_text={"m"}), *pieces, finish=finish)
            heard_apart.append(content_of(stopped))
    assert len(heard_apart) != 1
    assert heard_apart[1:] == heard_apart[:-1]


def test_answer_of_a_held_reply_streams_as_soon_as_its_thinking_has_ended() -> None:
    split = ThinkingFilter(HELLO, Server(thinks_in_text={"m"}))

    before = split.told_apart([*map(TextDelta, ["I close </think> it.", "\n</th", "ink>", " "])])
    assert list(before) == [], "this may be the answer"
    events = split.told_apart([*map(TextDelta, ["\n", "\nPar", "is"])])
    assert list(events) == [
        ThinkingDelta("I close </think> it.\n"),
        TextDelta("Par"),
        TextDelta("is"),
    ]


def test_mark_falls_with_a_reply_without_the_tag() -> None:
    server = Server(thinks_in_text={"m"})

    assert content_of(read(server, "It is", " Paris")) == ("", "It is Paris")
    events = heard(server, "It is", " Paris")
    assert events[:2] == [TextDelta("It is"), TextDelta(" Paris")], "and it streams again"
    assert content_of(read(server, "It is Par", finish="length")) == ("", "It is Par")


def test_answer_that_was_held_back_is_counted_once() -> None:
    events = heard(Server(thinks_in_text={"m"}), "It is", " Paris")

    assert events[:-1] == [TextDelta("It is Paris")]


@pytest.mark.parametrize("size", [1, 99])
def test_typed_answer_is_tried_whole(size: int) -> None:
    typed = replace(HELLO, output_schema={"type": "object"})
    whole = '{"text": "hello</think>\\n\\nworld"}'
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    for server in (Server(), Server(thinks_in_text={"m"})):
        assert content_of(read(server, *pieces, request=typed)) == ("", whole)

    for around in ("```json\n%s\n```", "Here: %s"):
        marked = Server(thinks_in_text={"m"})
        assert content_of(read(marked, around % whole, request=typed)) == ("", around % whole)

    written = 'Here: {"text": "hm\n</think>\n\nParis"}'
    for server in (Server(), Server(thinks_in_text={"m"})):
        assert content_of(read(server, written, request=typed)) == ("", written)

    for thought in ("hm", "hm\n", '{"text": "a draft"} no', '{"text": "a draft"}\n', "[hm\n"):
        said = f"{thought}</think>{whole}"
        pieces = [said[at : at + size] for at in range(0, len(said), size)]
        server = Server(thinks_in_text={"m"})
        assert content_of(read(server, *pieces, request=typed)) == (thought, whole)


def test_reply_of_words_between_tags_and_nothing_else_is_the_answer() -> None:
    for said in (
        "<thought>Be bold.</thought>",
        " <thinking>Hm.</thinking>\n",
        "<thought>Be bold.</thought>\n<thought>Be kind.</thought>",
        "<thinking>a</thinking> <thought>b</thought>\n<thinking>c</thinking>",
    ):
        assert content_of(read(Server(), *said)) == ("", said)
        assert content_of(read(Server(), said)) == ("", said)


def test_many_blanks_are_read_in_linear_time() -> None:
    many = 30_000
    blanks = [" "] * many

    assert content_of(read(Server(), *blanks, "Paris")) == ("", " " * many + "Paris")
    pieces = ["<think>hm</think>", *blanks, "Paris"]
    assert content_of(read(Server(), *pieces)) == ("hm", "Paris")
    pieces = ["hm</think>", *blanks, "\n", "\n", *blanks, "Paris"]
    heard_apart = content_of(read(Server(thinks_in_text={"m"}), *pieces))
    assert heard_apart == ("hm", "Paris")


@pytest.mark.parametrize("size", [1, 4, 99])
@pytest.mark.parametrize(
    ("said", "finish", "content"),
    [
        ("\n I wonder</think>\n\nParis", "stop", ("\n I wonder", "Paris")),
        ("I wonder, 2 + 2", "length", ("I wonder, 2 + 2", "")),
        ("I wonder </thin", "length", ("I wonder </thin", "")),
        ("I wonder, 2 + 2", "stop", ("", "I wonder, 2 + 2")),
        ("<think>hm</think>Paris", "stop", ("hm", "Paris")),
        ("<think>hm", "length", ("hm", "")),
        ("hm\n</think>\nPar", "length", ("hm\n", "Par")),
        ("hm</think>Par", "length", ("", "hm</think>Par")),
        ("hm `</think>` Par", "length", ("hm `</think>` Par", "")),
        ("hm</think>\n", "length", ("hm</think>\n", "")),
        ("", "stop", ("", "")),
    ],
)
def test_reply_of_a_model_whose_template_opens_the_thinking(
    said: str, finish: str, content: tuple[str, str], size: int
) -> None:
    server = Server(thinks_in_text={"m"})
    pieces = [said[at : at + size] for at in range(0, len(said), size)]

    assert content_of(read(server, *pieces, finish=finish)) == content


def test_server_that_separates_thinking_has_none_in_its_text() -> None:
    said = "<think>x</think>Paris"

    assert content_of(read(Server(is_vendors=True), said)) == ("", said)
    assert read(Server(), said, reasoning_content="Hm.").message.text == said


def test_thinking_in_the_text_is_never_sent_back() -> None:
    stopped = read(Server(), "<think>a thought</think>Paris")
    messages: tuple[Message, ...] = (*HELLO.messages, stopped.message, user_message("And?"))

    body = body_of(CompletionRequest("m", "", messages))
    assert body["messages"][1] == {"role": "assistant", "content": "Paris"}


@pytest.mark.parametrize("dialect", ["chat", "messages"])
async def test_thinking_in_the_text_is_told_apart_in_both_dialects(
    monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    said = ["<think>\nhm</think>\n\nParis", "one\n</think>\n\ntwo"]
    replies = [Reply(text=each, chunk=3) for each in [*said, said[1], said[1]]]
    with LoopbackServer({"": replies}) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-not-a-real-key")
        provider = OpenAIProvider() if dialect == "chat" else AnthropicProvider()
        async with contextlib.aclosing(provider):

            async def answer() -> tuple[str, str]:
                async with contextlib.aclosing(provider.stream(HELLO)) as stream:
                    end = [event async for event in stream][-1]
                assert isinstance(end, Stopped)
                return content_of(end)

            assert await answer() == ("\nhm", "Paris")
            with pytest.raises(StreamBroken, match="without its beginning"):
                await answer()
            assert await answer() == ("one\n", "two")


def test_thinking_without_an_end_in_a_reply_without_one_was_cut_in_transit() -> None:
    server, pieces = Server(), ["<think>", "hm"]
    reader, split = ReplyReader(HELLO, server), ThinkingFilter(HELLO, server)
    for piece in pieces:
        chunk = {"choices": [{"index": 0, "delta": {"content": piece}}]}
        list(split.told_apart(reader.read(event_in(json.dumps(chunk)))))
    list(split.told_apart(reader.read(event_in("[DONE]"))))
    stopped = reader.stopped()
    assert stopped is not None
    list(split.end(stopped.reason))

    with pytest.raises(BadReply, match="an end without a reason"):
        split.stopped(stopped)
