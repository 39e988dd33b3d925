"""Thinking in a reply's text is told apart at its beginning, wherever the pieces are cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentnb.core.types import (
    CompletionRequest,
    Message,
    Stopped,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    user_message,
)
from agentnb.providers.limits import BadReply
from agentnb.providers.openai_wire import (
    ReplyReader,
    body_of,
    event_in,
)
from agentnb.providers.servers import Server
from agentnb.providers.thinking_in_text import ThinkingInText

HELLO = CompletionRequest("m", "Be kind.", (user_message("Say hello"),))
ALOUD = {
    "<think>hm</think>Paris": ("hm", "Paris"),
    "\n<think>\nhm\n</think>\n\nParis": ("\nhm\n", "Paris"),
    "<thinking>hm</thinking>\nParis": ("hm", "Paris"),
    "[THINK]hm[/THINK]Paris": ("hm", "Paris"),
    "<think></think>Paris": ("", "Paris"),
    "<seed:think>hm</seed:think>Paris": ("hm", "Paris"),
    "◁think▷hm◁/think▷Paris": ("hm", "Paris"),
    "<|START_THINKING|>hm<|END_THINKING|>Paris": ("hm", "Paris"),
    "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Paris": (
        "hm",
        "Paris",
    ),
    "<think>\n\n</think>\n\n<think>hm</think>\nParis": ("\n\nhm", "Paris"),
    "<think>hm</think>\n <th": ("hm", "<th"),
    "<think>a < b </thin</think> Paris </think>": ("a < b </thin", "Paris </think>"),
    "<think>never closed </th": ("never closed </th", ""),
}
PLAIN = ["Paris", "<p>Paris</p>", "<", " ", "Write `<think>` first.", "<b><think>x</think></b>", ""]


def read(habits: Server, *contents: str, finish: str = "stop", **first: str) -> Stopped | None:
    reader = ReplyReader(HELLO, habits)
    deltas = [first, *({"content": each} for each in contents)]
    for delta in deltas:
        chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        list(reader.read(event_in(json.dumps(chunk))))
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    list(reader.read(event_in(json.dumps(end))))
    list(reader.finish())
    return reader.stopped()


def content_of(stopped: Stopped | None) -> tuple[str, str]:
    """The thinking and the text of a reply."""
    assert stopped is not None
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
    split = ThinkingInText()

    assert split.feed("Par") == [(False, "Par")]
    assert split.is_text


def test_lone_end_tag_breaks_one_reply_and_the_next_are_read_right() -> None:
    habits = Server()
    said = "I wonder.\n</think>\n\nParis"
    with pytest.raises(BadReply):
        read(habits, said)

    assert content_of(read(habits, said)) == ("I wonder.\n", "Paris")
    assert content_of(read(habits, *said)) == ("I wonder.\n", "Paris")
    assert content_of(read(habits, "Par", "is")) == ("", "Paris")


@pytest.mark.parametrize(
    "said",
    ["hm</think>Paris", "hm\n</think>Paris", "hm.</think>\n\nParis", "hm\n</think>", "h[/THINK]P"],
)
def test_lone_end_tag_is_known_however_the_lines_are_broken(said: str) -> None:
    with pytest.raises(BadReply):
        read(Server(), said)


@pytest.mark.parametrize(
    "said",
    [
        "Write:\n```\n</think>\n```\n",
        "Write:\n<think>\nan idea\n</think>\nand then the answer.",
        "Close it by `</think>` at the end.",
        "Close it by </think> at the end.",
        "Close it by </think>.",
    ],
)
def test_end_tag_that_is_spoken_of_is_no_end_of_thinking(said: str) -> None:
    assert content_of(read(Server(), said)) == ("", said)


@pytest.mark.parametrize("size", [1, 4, 99])
@pytest.mark.parametrize(
    ("said", "finish", "content"),
    [
        ("I wonder, 2 + 2", "length", ("I wonder, 2 + 2", "")),
        ("I wonder </thin", "length", ("I wonder </thin", "")),
        ("I wonder, 2 + 2", "stop", ("", "I wonder, 2 + 2")),
        ("<think>hm</think>Paris", "stop", ("hm", "Paris")),
        ("<think>hm", "length", ("hm", "")),
        ("hm</think>Par", "length", ("hm", "Par")),
        ("", "stop", ("", "")),
    ],
)
def test_reply_of_a_model_whose_template_opens_the_thinking(
    said: str, finish: str, content: tuple[str, str], size: int
) -> None:
    habits = Server(thinks_in_text={"m"})
    pieces = [said[at : at + size] for at in range(0, len(said), size)]

    assert content_of(read(habits, *pieces, finish=finish)) == content


def test_server_that_separates_thinking_has_none_in_its_text() -> None:
    said = "<think>x</think>Paris"

    assert content_of(read(Server(is_vendors=True), said)) == ("", said)
    stopped = read(Server(), said, reasoning_content="Hm.")
    assert stopped is not None
    assert stopped.message.text == said


def test_thinking_in_the_text_is_shown_as_thinking_and_never_sent_back() -> None:
    reader = ReplyReader(HELLO)
    delta = {"content": "<think>a thought</think>Paris"}
    chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]}
    events = list(reader.read(event_in(json.dumps(chunk))))

    assert events == [ThinkingDelta("a thought"), TextDelta("Paris")]
    stopped = reader.stopped()
    assert stopped is not None
    messages: tuple[Message, ...] = (*HELLO.messages, stopped.message, user_message("And?"))
    body = body_of(CompletionRequest("m", "", messages))
    assert body["messages"][1] == {"role": "assistant", "content": "Paris"}
