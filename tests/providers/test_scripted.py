"""A scripted model is a real provider: it streams, counts, can be cut, held and made to fail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentnb.core.budget import estimate_input_tokens
from agentnb.core.errors import LlmError, RateLimited
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
    ToolUse,
    ToolUseBlock,
    Usage,
    assistant_message,
    user_message,
)
from agentnb.providers.scripted import Reply, ScriptedProvider, ScriptExhausted
from agentnb.testing import by_agent

WEATHER = ToolUse("t1", "weather", {"city": "Bergen"})


def asked(text: str, *, max_tokens: int = 1000) -> CompletionRequest:
    messages = (user_message("before"), assistant_message("so"), user_message(text))
    return CompletionRequest("m", "system", messages, max_tokens=max_tokens)


async def streamed(
    provider: ScriptedProvider, text: str = "hello", *, max_tokens: int = 1000
) -> list[StreamEvent]:
    return [event async for event in provider.stream(asked(text, max_tokens=max_tokens))]


def text_of(events: Sequence[StreamEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def end_of(events: Sequence[StreamEvent]) -> Stopped:
    end = events[-1]
    assert isinstance(end, Stopped)
    return end


async def said(provider: ScriptedProvider, text: str = "hello") -> str:
    return text_of(await streamed(provider, text))


# -- the three forms ---------------------------------------------------------------------------


async def test_sequence_answers_in_the_order_in_which_requests_arrive() -> None:
    provider = ScriptedProvider(["one", Reply("two"), "three"])
    assert [await said(provider, str(n)) for n in range(3)] == ["one", "two", "three"]


async def test_mapping_answers_by_what_stands_in_the_last_user_message() -> None:
    provider = ScriptedProvider({"whales": "Many.", "krill": "More.", "before": "never"})

    assert await said(provider, "Count the krill, please") == "More."
    assert await said(provider, "whales?") == "Many."


async def test_of_several_keys_the_one_that_stands_first_wins_and_then_the_longest() -> None:
    provider = ScriptedProvider({"krill": "k", "whale": "w", "whales and": "wa"})

    assert await said(provider, "krill and whale") == "k"
    assert await said(provider, "whale and krill") == "w"
    assert await said(provider, "whales and krill") == "wa"


async def test_list_under_a_key_is_used_up_and_a_single_reply_serves_for_ever() -> None:
    provider = ScriptedProvider({"a": ["first", "second"], "b": "always"})

    replies = [await said(provider, key) for key in ("a", "b", "a", "b", "b")]
    assert replies == ["first", "always", "second", "always", "always"]


async def test_callable_gets_the_request_and_may_be_async() -> None:
    async def later(request: CompletionRequest) -> Reply:
        return Reply(f"later: {request.last_user_text}")

    assert await said(ScriptedProvider(lambda r: f"now: {r.last_user_text}"), "x") == "now: x"
    assert await said(ScriptedProvider(later), "x") == "later: x"


def test_bare_string_is_refused_since_it_would_answer_letter_by_letter() -> None:
    with pytest.raises(ValueError, match=r"for one reply write \[reply\]"):
        ScriptedProvider("hello")


async def test_function_in_a_script_by_agent_may_be_async() -> None:
    async def slowly(request: CompletionRequest) -> str:
        await asyncio.sleep(0)
        return f"You asked: {request.last_user_text}"

    provider = by_agent({"root": ["one", slowly]})

    assert await said(provider, "first") == "one"
    assert await said(provider, "second") == "You asked: second"


# -- what was asked ----------------------------------------------------------------------------


async def test_it_records_what_it_was_asked_as_it_was_asked() -> None:
    provider = ScriptedProvider(["one", "two"])
    await streamed(provider, "first")
    await streamed(provider, "second")

    assert provider.requests == [asked("first"), asked("second")]
    assert repr(provider) == "ScriptedProvider(2 requests so far)"


async def test_script_that_is_used_up_says_which_request_was_one_too_many() -> None:
    provider = ScriptedProvider(["one"])
    await streamed(provider)

    with pytest.raises(ScriptExhausted) as caught:
        await streamed(provider, "And\nthen?")

    assert str(caught.value) == (
        "Request 2 has no scripted reply: the script has 1 reply, all used. Add one for "
        "its last user message, 'And then?'; to run a cell again, first make a new script."
    )
    assert caught.value.permanent
    assert not caught.value.retryable
    assert len(provider.requests) == 2


async def test_used_up_key_and_missing_key_say_so() -> None:
    provider = ScriptedProvider({"a": ["one"]})
    await streamed(provider, "a")

    with pytest.raises(ScriptExhausted, match=r"Request 2 .* its key 'a' has 1 reply, all used"):
        await streamed(provider, "a")
    with pytest.raises(ScriptExhausted, match=r"Request 3 .* none of the keys \['a'\] matches"):
        await streamed(provider, "b")


async def test_long_message_is_shortened_in_the_error() -> None:
    with pytest.raises(ScriptExhausted) as caught:
        await streamed(ScriptedProvider([]), "x" * 10_000)
    assert len(str(caught.value)) < 400


# -- a reply -----------------------------------------------------------------------------------


async def test_complete_turn_begins_with_usage_streams_in_pieces_and_ends_with_its_message() -> (
    None
):
    events = await streamed(ScriptedProvider(["one two three four five six seven"]))

    assert isinstance(events[0], Usage)
    assert [e.text for e in events if isinstance(e, TextDelta)] == [
        "one two three ",
        "four five six ",
        "seven",
    ]
    assert end_of(events) == Stopped(
        "end_turn", assistant_message("one two three four five six seven")
    )
    assert sum(isinstance(e, Stopped) for e in events) == 1


@given(st.text(max_size=80))
def test_any_text_arrives_whole(text: str) -> None:
    events = asyncio.run(streamed(ScriptedProvider([text])))

    assert text_of(events) == text
    assert end_of(events).message == assistant_message(text)


async def test_tokens_are_counted_by_size_when_the_script_gives_no_count() -> None:
    events = await streamed(ScriptedProvider(["x" * 41]))
    sizes = [e for e in events if isinstance(e, Usage)]

    size = estimate_input_tokens(asked("hello"))
    assert sizes == [Usage(size, 0), Usage(size, 11)]


async def test_count_of_the_script_is_reported_as_it_is() -> None:
    usage = Usage(1, 2, 3, 4)
    events = await streamed(ScriptedProvider([Reply("x", usage=usage)]))
    assert {e for e in events if isinstance(e, Usage)} == {usage}


async def test_tool_calls_come_after_the_text_and_stand_in_the_message() -> None:
    events = await streamed(ScriptedProvider([Reply("Let me see.", tool_uses=(WEATHER,))]))

    assert events.index(WEATHER) > events.index(TextDelta("Let me see."))
    blocks = (TextBlock("Let me see."), ToolUseBlock("t1", "weather", {"city": "Bergen"}))
    assert end_of(events) == Stopped("tool_use", Message(Role.ASSISTANT, blocks))


async def test_thinking_is_streamed_before_the_text_and_goes_back() -> None:
    events = await streamed(ScriptedProvider([Reply("Yes.", thinking="Hm.")]))

    assert [e for e in events if isinstance(e, TextDelta | ThinkingDelta)] == [
        ThinkingDelta("Hm."),
        TextDelta("Yes."),
    ]
    assert end_of(events).message.content == (ThinkingBlock("Hm."), TextBlock("Yes."))


async def test_stop_reason_of_the_script_is_given() -> None:
    events = await streamed(ScriptedProvider([Reply("No.", stop_reason="refusal")]))
    assert end_of(events).reason == "refusal"


async def test_empty_reply_has_no_empty_block() -> None:
    events = await streamed(ScriptedProvider([""]))
    assert text_of(events) == ""
    assert end_of(events) == Stopped("end_turn", Message(Role.ASSISTANT, ()))


# -- cut, held, failing ------------------------------------------------------------------------


async def test_answer_is_cut_at_max_tokens_and_its_tool_calls_are_lost() -> None:
    provider = ScriptedProvider([Reply("abcd" * 10, tool_uses=(WEATHER,))])
    events = await streamed(provider, max_tokens=3)

    assert text_of(events) == "abcd" * 3
    assert end_of(events) == Stopped("max_tokens", assistant_message("abcd" * 3))
    assert WEATHER not in events
    assert [e.output_tokens for e in events if isinstance(e, Usage)][-1] == 3


async def test_answer_is_cut_between_characters() -> None:
    events = await streamed(ScriptedProvider(["ああああ"]), max_tokens=2)
    assert text_of(events) == "ああ"


async def test_answer_of_just_max_tokens_is_whole() -> None:
    events = await streamed(ScriptedProvider(["abcd" * 3]), max_tokens=3)
    assert end_of(events).reason == "end_turn"


async def test_error_in_the_place_of_a_reply_is_raised_before_anything_came() -> None:
    provider = ScriptedProvider([RateLimited("slow down", retry_after_s=3.0)])

    with pytest.raises(RateLimited, match="slow down") as caught:
        await streamed(provider)
    assert (caught.value.retry_after_s, caught.value.retryable) == (3.0, True)


async def test_error_of_a_reply_is_raised_after_its_text_and_no_end_comes() -> None:
    provider = ScriptedProvider([Reply("So far", error=LlmError("broke"))])
    events: list[StreamEvent] = []

    async def read() -> None:
        async for event in provider.stream(asked("hello")):
            events.append(event)

    with pytest.raises(LlmError, match="broke"):
        await read()

    assert text_of(events) == "So far"
    assert not any(isinstance(event, Stopped) for event in events)


@pytest.mark.parametrize("as_reply", [True, False])
async def test_one_error_that_is_raised_twice_is_raised_as_two(as_reply: bool) -> None:
    error = RateLimited("slow down")
    provider = ScriptedProvider({"": Reply("x", error=error) if as_reply else error})
    raised = []
    for _ in range(2):
        with pytest.raises(RateLimited) as caught:
            await streamed(provider)
        raised.append(caught.value)

    assert len({id(one) for one in (*raised, error)}) == 3
    assert error.__traceback__ is None


@pytest.mark.parametrize(("text", "before"), [("one two three four", "one two three "), ("", "")])
async def test_pause_holds_the_stream_after_its_first_piece(text: str, before: str) -> None:
    holds, may_go_on = asyncio.Event(), asyncio.Event()

    async def pause() -> None:
        holds.set()
        await may_go_on.wait()

    events: list[StreamEvent] = []

    async def read() -> None:
        async for event in ScriptedProvider([Reply(text, pause=pause)]).stream(asked("x")):
            events.append(event)

    reading = asyncio.create_task(read())
    await holds.wait()
    assert text_of(events) == before
    assert not reading.done()
    may_go_on.set()
    await reading

    assert text_of(events) == text
    assert end_of(events).reason == "end_turn"


async def test_cancelled_stream_lets_the_cancellation_pass() -> None:
    holds = asyncio.Event()

    async def pause() -> None:
        holds.set()
        await asyncio.Event().wait()

    reading = asyncio.create_task(streamed(ScriptedProvider([Reply("x", pause=pause)])))
    await holds.wait()
    reading.cancel()

    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_many_calls_at_once_each_get_one_reply() -> None:
    provider = ScriptedProvider([str(n) for n in range(20)])
    replies = await asyncio.gather(*[said(provider) for _ in range(20)])
    assert sorted(replies, key=int) == [str(n) for n in range(20)]
