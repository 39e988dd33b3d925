"""Messages and tools of a call as the conventions of OpenTelemetry write them.

Only made when the library's own switch asks for content. Secrets are masked, and files are named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from opentelemetry.util.genai.types import (
    FunctionToolDefinition,
    GenericPart,
    InputMessage,
    MessagePart,
    OutputMessage,
    ReasoningPart,
    TextPart,
    ToolCallRequestPart,
    ToolCallResponsePart,
    ToolDefinition,
)

from agentnb.core.media import media_words
from agentnb.core.secrets import masked_as_known
from agentnb.core.types import (
    Block,
    MediaBlock,
    Message,
    OpaqueBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
)


def input_messages(messages: Iterable[Message]) -> list[InputMessage]:
    """What a call sends."""
    return [InputMessage(_role_of(message), _parts_of(message.content)) for message in messages]


def output_messages(message: Message | None) -> list[OutputMessage]:
    """What came back."""
    if message is None:
        return []
    return [OutputMessage(message.role.value, _parts_of(message.content))]


def text_in(role: str, text: str) -> list[InputMessage]:
    """What an agent or a run is given: its task."""
    return [InputMessage(role, [TextPart(masked_as_known(text))])]


def text_out(text: str) -> list[OutputMessage]:
    """What an agent or a run answers."""
    return [OutputMessage("assistant", [TextPart(masked_as_known(text))])] if text else []


def system_parts(system: str) -> list[TextPart]:
    """The system prompt."""
    return [TextPart(masked_as_known(system))] if system else []


def tool_definitions(tools: Sequence[ToolSpec]) -> list[ToolDefinition]:
    """The tools that the model may call."""
    return [
        FunctionToolDefinition(
            tool.name, masked_as_known(tool.description), masked_values(tool.input_schema)
        )
        for tool in tools
    ]


def masked_values(value: Any) -> Any:
    """Plain values without secrets."""
    if isinstance(value, str):
        return masked_as_known(value)
    if isinstance(value, dict):
        return {masked_as_known(str(key)): masked_values(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [masked_values(each) for each in value]
    return value


def _role_of(message: Message) -> str:
    blocks = message.content
    if blocks and all(isinstance(block, ToolResultBlock) for block in blocks):
        return "tool"
    return message.role.value


def _parts_of(blocks: Iterable[Block]) -> list[MessagePart]:
    return [_part_of(block) for block in blocks]


def _part_of(block: Block) -> MessagePart:
    match block:
        case TextBlock(text):
            return TextPart(masked_as_known(text))
        case ThinkingBlock(text):
            return ReasoningPart(masked_as_known(text))
        case ToolUseBlock(id, name, given):
            return ToolCallRequestPart(masked_values(given), masked_as_known(name), id)
        case ToolResultBlock(id, text):
            return ToolCallResponsePart(masked_as_known(text), id)
        case MediaBlock():
            return TextPart(masked_as_known(media_words(block)))
        case OpaqueBlock(api, data):
            return GenericPart(str(data.get("type") or api))
