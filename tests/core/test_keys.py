"""The key of a call is what the call means: it changes with that, and with nothing else."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentnb.core.keys import CallKeys, key_of
from agentnb.core.secrets import Secrets
from agentnb.core.types import (
    Block,
    CompletionRequest,
    MediaBlock,
    Message,
    OpaqueBlock,
    Role,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    assistant_message,
    user_message,
)

MODEL = "demo/any"
LOOK = ToolSpec("look", "Looks.", {"type": "object", "properties": {"a": {}, "b": {}}})
WALK = ToolSpec("walk", "Walks.", {"type": "object"})


def conversation(
    first: str = "use-1", second: str = "use-2", signature: str = "signed", given: Any = None
) -> tuple[Message, ...]:
    """Two tool calls, their results in the other order, and an answer."""
    given = {"a": 1, "b": [2, {"c": 3, "d": None}]} if given is None else given
    asked = (
        ThinkingBlock("hm", signature),
        TextBlock("I look twice."),
        ToolUseBlock(first, "look", given),
        ToolUseBlock(second, "look", {}),
    )
    seen = (ToolResultBlock(second, "nothing", True), ToolResultBlock(first, "a snowman \u2603"))
    return (
        user_message("Look!"),
        Message(Role.ASSISTANT, asked),
        Message(Role.USER, seen),
        assistant_message("Seen."),
    )


REQUEST = CompletionRequest(
    "any",
    "system",
    conversation(),
    (LOOK, WALK),
    max_tokens=500,
    cache_prefix=3,
    extra={"thinking": {"type": "enabled", "budget": 1024}},
)


def canonical(model: str, request: CompletionRequest) -> dict[str, Any]:
    """The contract's own words for a request, apart from the code under test."""
    ordinals: dict[str, int] = {}

    def ordinal(tool_use_id: str) -> int:
        return ordinals.setdefault(tool_use_id, len(ordinals) + 1)

    def of(block: Block) -> dict[str, Any]:
        match block:
            case TextBlock():
                return {"text": block.text}
            case ThinkingBlock():
                return {"thinking": block.text}
            case ToolUseBlock():
                return {"call": ordinal(block.id), "name": block.name, "input": block.input}
            case MediaBlock():
                digest = hashlib.sha256(block.data.encode()).hexdigest()
                return {"media": block.media_type, "sha256": digest}
            case ToolResultBlock():
                number = ordinal(block.tool_use_id)
                return {"of": number, "result": block.text, "error": block.is_error}
            case OpaqueBlock():
                return {"opaque": {"type": "search", "input": {"q": "x"}}}

    return {
        "model": model,
        "system": request.system,
        "messages": [
            {"role": str(message.role), "content": [of(block) for block in message.content]}
            for message in request.messages
        ],
        "tools": [
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in sorted(request.tools, key=lambda tool: tool.name)
        ],
        "output_schema": None,
        "extra": request.extra,
    }


def by_hand(model: str, request: CompletionRequest) -> str:
    written = json.dumps(
        canonical(model, request), sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return hashlib.sha256(written.encode()).hexdigest()


GOLDEN = "5a6bce6c6ff233da7ebe53e3a6d02626b294f1b33f862240fa7048d50edfc559"


# -- the golden value ------------------------------------------------------------------------------


def test_key_is_the_hash_of_canonical_json_and_does_not_change_between_versions() -> None:
    """A changed key makes all stored runs and cassettes miss: raise their version with it."""
    assert key_of(MODEL, REQUEST) == by_hand(MODEL, REQUEST)
    assert key_of(MODEL, REQUEST) == GOLDEN


def test_key_of_the_emptiest_request() -> None:
    empty = CompletionRequest("", "", ())

    assert key_of("", empty) == by_hand("", empty)


# -- what does not change it -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "same",
    [
        replace(REQUEST, max_tokens=7),
        replace(REQUEST, cache_prefix=0),
        replace(REQUEST, model="the provider's own name"),
        replace(REQUEST, tools=(WALK, LOOK)),
        replace(REQUEST, extra={"thinking": {"budget": 1024, "type": "enabled"}}),
        replace(
            REQUEST,
            messages=conversation(given={"b": [2, {"d": None, "c": 3}], "a": 1}),
        ),
        replace(REQUEST, messages=conversation("toolu_01", "toolu_02")),
        replace(REQUEST, messages=conversation(signature="another")),
    ],
    ids=[
        "max_tokens",
        "cache_prefix",
        "bare model",
        "order of tools",
        "order of extra",
        "order of an input",
        "tool-use ids",
        "signature",
    ],
)
def test_key_is_the_same_for(same: CompletionRequest) -> None:
    assert repr(same) != repr(REQUEST)  # `==` ignores the order of keys, too
    assert key_of(MODEL, same) == key_of(MODEL, REQUEST)


def test_key_is_the_same_for_withheld_thinking() -> None:
    def thought(data: str | None) -> CompletionRequest:
        message = Message(Role.ASSISTANT, (ThinkingBlock("", "", data),))
        return replace(REQUEST, messages=(message,))

    assert key_of(MODEL, thought("data")) == key_of(MODEL, thought("other data"))


# -- what changes it -------------------------------------------------------------------------------

CHANGED: dict[str, CompletionRequest] = {
    "system": replace(REQUEST, system="System"),
    "one message more": replace(REQUEST, messages=(*REQUEST.messages, user_message("And?"))),
    "one message less": replace(REQUEST, messages=REQUEST.messages[:-1]),
    "an empty message": replace(REQUEST, messages=(*REQUEST.messages, assistant_message(""))),
    "a message's author": replace(
        REQUEST, messages=(assistant_message("Look!"), *REQUEST.messages[1:])
    ),
    "two blocks for one": replace(
        REQUEST,
        messages=(
            Message(Role.USER, (TextBlock("Loo"), TextBlock("k!"))),
            *REQUEST.messages[1:],
        ),
    ),
    "an input": replace(REQUEST, messages=conversation(given={"a": 2})),
    "one use for both results": replace(REQUEST, messages=conversation("use-1", "use-1")),
    "no tools": replace(REQUEST, tools=()),
    "a tool's description": replace(REQUEST, tools=(replace(LOOK, description="Sees."), WALK)),
    "a tool's schema": replace(REQUEST, tools=(replace(LOOK, input_schema={}), WALK)),
    "extra": replace(REQUEST, extra={"thinking": {"type": "disabled"}}),
    "no extra": replace(REQUEST, extra={}),
}


@pytest.mark.parametrize("what", CHANGED)
def test_key_is_another_for_another(what: str) -> None:
    assert key_of(MODEL, CHANGED[what]) != key_of(MODEL, REQUEST)


def test_key_is_another_for_another_model() -> None:
    assert key_of("demo/other", REQUEST) != key_of(MODEL, REQUEST)


def test_keys_of_all_these_are_different() -> None:
    assert len({key_of(MODEL, request) for request in (REQUEST, *CHANGED.values())}) == 14


# -- secrets ---------------------------------------------------------------------------------------


def test_secret_is_masked_before_the_key_is_made() -> None:
    secret = 'sk-"12345\\678'
    secrets = Secrets({secret: "LAB_KEY"})

    def said(text: str) -> CompletionRequest:
        given = (ToolUseBlock("1", "look", {"key": text}), ToolResultBlock("1", text))
        return replace(
            REQUEST,
            system=text,
            messages=(user_message(text), Message(Role.USER, given)),
            tools=(replace(LOOK, description=text),),
            extra={"header": text},
        )

    marked, told = said("the key is [secret LAB_KEY]!"), said(f"the key is {secret}!")

    assert CallKeys(secrets).key_of(MODEL, told) == CallKeys(secrets).key_of(MODEL, marked)
    assert CallKeys(secrets).key_of(MODEL, told) == key_of(MODEL, marked)
    assert CallKeys(Secrets({})).key_of(MODEL, told) != key_of(MODEL, marked)


# -- in the course of a conversation ---------------------------------------------------------------

TEXTS = st.text(max_size=8) | st.sampled_from(["\ud800", "half \udc80", "\x00", '"\\', "\u2028"])


def messages_with(scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Message]:
    """Messages whose tool inputs are made of these values."""
    values = st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
        max_leaves=4,
    )
    blocks = st.one_of(
        st.builds(TextBlock, TEXTS),
        st.builds(ThinkingBlock, TEXTS, TEXTS),
        st.builds(ToolUseBlock, IDS, TEXTS, st.dictionaries(TEXTS, values, max_size=3)),
        st.builds(ToolResultBlock, IDS, TEXTS, st.booleans()),
        st.builds(MediaBlock, st.just("image/png"), st.sampled_from(["", "aGk=", "SGFsbG8="])),
    )
    return st.builds(Message, st.sampled_from(Role), st.lists(blocks, max_size=3).map(tuple))


IDS = st.sampled_from(["a", "b", "c", "d"])
FINITE = st.floats(allow_nan=False, allow_infinity=False)
ANY_MESSAGES = messages_with(st.none() | st.booleans() | st.integers() | FINITE | TEXTS)
# Python takes 1, 1.0 and True for equal, and so do equal messages.
MESSAGES = messages_with(st.sampled_from([None, True, 2, 1.5]) | TEXTS)
STEPS = st.lists(
    st.tuples(
        st.lists(MESSAGES, max_size=3),
        # How many messages of the one before are kept: all, or what a retry goes back to.
        st.sampled_from([None, None, None, 0, 1, 2]),
        st.sampled_from(["system", "system", "another"]),
        st.sampled_from([(), (LOOK,), (WALK, LOOK)]),
        st.sampled_from([{}, {}, {"top_k": 3}]),
    ),
    max_size=6,
)


@given(STEPS)
def test_keys_made_one_after_another_are_those_made_from_scratch(steps: list[Any]) -> None:
    keys, messages = CallKeys(), tuple[Message, ...]()
    for more, kept, system, tools, extra in steps:
        messages = (*messages[:kept], *more)
        request = CompletionRequest("any", system, messages, tools, extra=extra)
        alike = (
            request,
            replace(request, system="other"),
            replace(request, tools=(WALK,)),
            request,
        )

        for each in alike:
            assert keys.key_of(MODEL, each) == key_of(MODEL, each)
            assert keys.key_of("demo/other", each) == key_of("demo/other", each)


@given(st.lists(ANY_MESSAGES, max_size=4), TEXTS)
def test_key_is_the_hash_of_any_conversation(messages: list[Message], text: str) -> None:
    request = CompletionRequest("any", text, tuple(messages), (LOOK,), extra={text: [text]})
    written = json.dumps(
        canonical(MODEL, request), sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    # Half a character has no UTF-8: it is written as an escape.
    whole = written.encode("utf-8", "backslashreplace")

    assert key_of(MODEL, request) == hashlib.sha256(whole).hexdigest()


def test_key_of_a_long_conversation_reads_only_what_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys, read = CallKeys(), list[Message]()
    written = keys._canonical

    def watched(message: Message) -> str:
        read.append(message)
        return written(message)

    monkeypatch.setattr(keys, "_canonical", watched)
    messages: tuple[Message, ...] = ()
    for number in range(50):
        messages = (*messages, user_message(f"message {number}"))
        keys.key_of(MODEL, replace(REQUEST, messages=messages))

    assert len(read) == 50


def test_value_that_json_does_not_have_makes_a_key_all_the_same() -> None:
    odd = {"set": {1}, "nan": float("nan"), 3: object}
    message = Message(Role.ASSISTANT, (ToolUseBlock("1", "look", odd),))  # type: ignore[arg-type]
    request = replace(REQUEST, messages=(message,), extra=odd)  # type: ignore[arg-type]

    assert key_of(MODEL, request) == key_of(MODEL, request)


def test_kept_parts_of_a_reply_count_without_ids_signatures_and_encrypted_text() -> None:
    def key_with(mark: str, query: str = "x", said: str = "a", api: str = "p") -> str:
        found = {"type": "found", "encrypted_content": mark, "signature": mark}
        block = {"type": "search", "id": mark, "input": {"q": query}, "content": [found]}
        content = (
            ThinkingBlock("Hm.", mark, extra={api: {"type": None}}),
            TextBlock("Hi", {api: {"citations": [{"cited_text": said, "file_id": mark}]}}),
            OpaqueBlock(api, block),
            ToolUseBlock("t", "look", {}, {api: {"extra_content": {"thought_signature": mark}}}),
        )
        message = Message(Role.ASSISTANT, content)
        return key_of(MODEL, replace(REQUEST, messages=(user_message("Look!"), message)))

    assert key_with("one") == key_with("two") == key_with("one", api="p http://other.example")
    assert key_with("one") != key_with("one", query="y")
    assert key_with("one") != key_with("one", said="b")
