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
    Dialect,
    ReplyReader,
    ServerHabits,
    body_of,
    event_in,
)
from agentnb.providers.thinking_in_text import IN_TEXT, ThinkingInText

HELLO = CompletionRequest("m", "Be kind.", (user_message("Say hello"),))
ALOUD = {
    "<think>hm</think>Paris": ("hm", "Paris"),
    "\n<think>\nhm\n</think>\n\nParis": ("\nhm\n", "Paris"),
    "<thinking>hm</thinking>\nParis": ("hm", "Paris"),
    "[THINK]hm[/THINK]Paris": ("hm", "Paris"),
    "<think></think>Paris": ("", "Paris"),
    "<think>a < b </thin</think> Paris </think>": ("a < b </thin", "Paris </think>"),
    "<think>never closed </th": ("never closed </th", ""),
}
PLAIN = ["Paris", "<p>Paris</p>", "<", " ", "Write `<think>` first.", "<b><think>x</think></b>", ""]


def read(
    habits: ServerHabits, *contents: str, finish: str = "stop", **first: str
) -> Stopped | None:
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
    assert all(b.sent_as == IN_TEXT for b in blocks if isinstance(b, ThinkingBlock))
    thought = "".join(b.text for b in blocks if isinstance(b, ThinkingBlock))
    return thought, "".join(b.text for b in blocks if isinstance(b, TextBlock))


@given(st.sampled_from(sorted(ALOUD)), st.integers(1, 9))
def test_thinking_and_answer_are_told_apart_wherever_the_pieces_are_cut(
    said: str, size: int
) -> None:
    pieces = [said[at : at + size] for at in range(0, len(said), size)]

    assert content_of(read(ServerHabits(), *pieces)) == ALOUD[said]


@given(st.sampled_from(PLAIN), st.integers(1, 9))
def test_text_without_thinking_stays_as_it_is(said: str, size: int) -> None:
    pieces = [said[at : at + size] for at in range(0, len(said), size)]

    assert content_of(read(ServerHabits(), *pieces)) == ("", said)


def test_answer_streams_while_it_comes() -> None:
    split = ThinkingInText()

    assert split.feed("Par") == [(False, "Par")]
    assert split.is_text


def test_lone_end_tag_breaks_one_reply_and_the_next_are_read_right() -> None:
    habits = ServerHabits()
    said = "I wonder.\n</think>\n\nParis"
    with pytest.raises(BadReply):
        read(habits, said)

    assert content_of(read(habits, said)) == ("I wonder.\n", "Paris")
    assert content_of(read(habits, *said)) == ("I wonder.\n", "Paris")
    assert content_of(read(habits, "Par", "is")) == ("", "Paris")


def test_end_tag_within_code_is_no_end_of_thinking() -> None:
    said = "Write:\n```\n</think>\n```\n"

    assert content_of(read(ServerHabits(), said)) == ("", said)


def test_server_that_separates_thinking_has_none_in_its_text() -> None:
    said = "<think>x</think>Paris"

    assert content_of(read(ServerHabits(separates_thinking=True), said)) == ("", said)
    stopped = read(ServerHabits(), said, reasoning_content="Hm.")
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
    body = body_of(CompletionRequest("m", "", messages), Dialect())
    assert body["messages"][1] == {"role": "assistant", "content": "Paris"}
