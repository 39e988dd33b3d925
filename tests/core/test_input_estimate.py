"""The size of a conversation's input, of which each turn sends all that went before."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator

from agentnb.core.budget import InputEstimate, estimate_input_tokens
from agentnb.core.types import (
    CompletionRequest,
    Message,
    Role,
    TextBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    user_message,
)


def test_estimate_of_a_conversation_that_goes_on_is_that_of_its_requests() -> None:
    estimate = InputEstimate()
    spec = ToolSpec("look", "Looks.", {"type": "object"})
    messages: tuple[Message, ...] = ()

    for turn in range(8):
        order = ToolUseBlock(f"t{turn}", "look", {"at": "x" * turn})
        messages += (
            Message(Role.ASSISTANT, (TextBlock("words " * turn), order)),
            Message(Role.USER, (ToolResultBlock(order.id, "found " * turn),)),
        )
        request = CompletionRequest("m", "system", messages, (spec,))
        assert estimate.of(request) == estimate_input_tokens(request)
    other = CompletionRequest("m", "system", tuple(user_message(f"{n}") for n in range(9)))
    assert estimate.of(other) == estimate_input_tokens(other)


def test_message_of_a_conversation_is_measured_once() -> None:
    class Counted(UserDict[str, str]):
        read = 0

        def __iter__(self) -> Iterator[str]:
            Counted.read += 1
            return super().__iter__()

    estimate = InputEstimate()
    order = Message(Role.ASSISTANT, (ToolUseBlock("t", "look", Counted(at="it")),))
    messages = tuple(user_message("x") for _ in range(9))

    for turn in range(1, 9):
        estimate.of(CompletionRequest("m", "", (order, *messages[:turn])))

    assert 0 < Counted.read <= 3, "only while the conversation is short is all of it measured"
