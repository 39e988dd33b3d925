"""What a server's tool returned, as a model gets it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from agentnb.core.errors import ToolError
from agentnb.core.media import IMAGES
from agentnb.core.text import one_line, sendable
from agentnb.core.types import MediaBlock, ToolOutput

if TYPE_CHECKING:
    from mcp.types import CallToolResult

NOTHING = "(no output)"


def output_of(result: CallToolResult) -> str | ToolOutput:
    """The result as text, and its pictures: the text has a line for each of them.

    Raises:
        ToolError: The tool says that it failed.
    """
    text = "\n".join(_parts(result)) or NOTHING
    if result.is_error:
        raise ToolError(text if text != NOTHING else "The tool failed without a word.")
    # What is no picture after all is left out by the core, which says so in the text.
    pictures = tuple(
        MediaBlock(block.mime_type, block.data)
        for block in result.content
        if block.type == "image" and block.mime_type in IMAGES
    )
    return ToolOutput(text, pictures) if pictures else text


def _parts(result: CallToolResult) -> Iterator[str]:
    texts = []
    for block in result.content:
        match block.type:
            case "text":
                texts.append(block.text)
                yield sendable(block.text)
            case "image" | "audio":
                yield about_bytes(block.mime_type, block.data)
            case "resource":
                held = block.resource
                if hasattr(held, "text"):
                    yield sendable(held.text)
                else:
                    yield about_bytes(held.mime_type, held.blob, held.uri)
            case "resource_link":
                about = f": {one_line(block.description)}" if block.description else ""
                yield f"(resource {one_line(str(block.uri))}{about})"
    if result.structured_content is not None and not _says(texts, result.structured_content):
        yield sendable(json.dumps(result.structured_content, ensure_ascii=False))


def about_bytes(media_type: str | None, data: str, uri: object = "") -> str:
    """A line on bytes: `(image/png, 12,345 bytes)`.

    Args:
        media_type: Their type; `None` if it is not known.
        data: They themselves, in base64.
        uri: Where they are from; empty for nowhere.
    """
    size = len(data) * 3 // 4 - data[-2:].count("=")
    where = f"{one_line(str(uri))}, " if uri else ""
    return f"({where}{one_line(media_type or 'bytes of an unknown type')}, {size:,} bytes)"


def _says(texts: list[str], structured: Any) -> bool:
    """Whether the texts say the same as the structured content, as they mostly do."""
    values = [structured]
    if isinstance(structured, dict) and len(structured) == 1:  # `{"result": …}` around one value
        values += structured.values()
    read = [_read(text) for text in texts]
    # One value may be one text, as it is or as JSON, and a list one text for each of its items.
    return any(value in (*texts, *read, texts, read) for value in values)


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
