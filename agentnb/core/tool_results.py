"""The results of one turn's tool calls as the message that the model gets.

The texts come first, in the order of the calls, then the files of all of them, as the APIs require.
A line in each text says which files belong to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agentnb.core import prompt
from agentnb.core.media import PDF, described
from agentnb.core.records import ToolCallRecord
from agentnb.core.types import Block, MediaBlock, Message, Role, ToolResultBlock, ToolUseBlock


class ToolResult(NamedTuple):
    """A call that has ended, and a note on a person's decision about it."""

    record: ToolCallRecord
    note: str = ""
    """A line for the model before the result; empty for none."""


def blocks_of(results: Iterable[ToolResult]) -> tuple[Block, ...]:
    """The content of the message with these results, in the order of the calls."""
    texts, files = list[Block](), list[MediaBlock]()
    for record, note in results:
        lines = [note, prompt.result_for_model(record.result)]
        for place, block in enumerate(record.media, 1):
            if place in record.unseen:
                lines.append(f"({_noun(block)} that this model cannot see: {described(block)})")
            else:
                files.append(block)
                lines.append(f"({_noun(block, len(files))} below)")
        text = "\n".join(filter(None, lines))
        texts.append(ToolResultBlock(record.tool_use_id, text, record.is_error))
    return (*texts, *files)


def _noun(block: MediaBlock, number: int | None = None) -> str:
    noun = "PDF" if block.media_type == PDF else "picture"
    return f"a {noun}" if number is None else f"{noun} {number}"


def ready_for_person(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The conversation of an agent that has answered, with a user message at its end."""
    if not messages[-1].content:  # an empty reply cannot be sent back
        messages = messages[:-1]
    if messages[-1].role is Role.USER:  # its turns were used up: tool results come last
        return messages
    calls = calls_in(messages[-1])  # no call may stay without a result: `final_answer`, too
    results = tuple([ToolResultBlock(call.id, prompt.ANSWER_IS_NOTED, False) for call in calls])
    return (*messages, Message(Role.USER, results))


def calls_in(message: Message) -> list[ToolUseBlock]:
    """The tool calls in a message."""
    return [block for block in message.content if isinstance(block, ToolUseBlock)]
