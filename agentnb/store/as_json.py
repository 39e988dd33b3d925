"""Converts values of a run to JSON, and numbers to a form that SQLite can store."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from pydantic_core import to_json

from agentnb.core.codec import plain
from agentnb.core.events import Event, ModelCallFinished, ModelCallStarted, ToolCallStarted
from agentnb.core.types import Block, MediaBlock, Message, Role, TextBlock, Usage

_MOST_INTEGER = 2**63
JUST_TEXT = "true"
"""Value of `model_calls.message` if the message is exactly the text of the call."""


FILE = "file"
"""Kind of a content that holds a file's bytes. A message names it by the block's digest."""


MEDIA = "media"
"""Kind of a content that names the files of one tool call: see `media_json`."""


def media_json(path: str, number: int, named: Iterable[MediaBlock], unseen: Iterable[int]) -> str:
    """The files of a tool call as JSON, since its row has no column for them."""
    return json_of({"path": path, "number": number, "media": [*named], "unseen": [*unseen]})


def file_bytes(block: MediaBlock) -> bytes | None:
    """The file in a block; `None` if it is only named, or not base64 as `file_data` writes it."""
    if block.is_named:
        return None
    try:
        content = base64.b64decode(block.data, validate=True)
    except (binascii.Error, ValueError):
        return None
    return content if file_data(content) == block.data else None


def file_data(content: bytes) -> str:
    """A file as the `data` of a block."""
    return base64.b64encode(content).decode()


def number_of(value: int | None) -> int | str | None:
    """A whole number as SQLite can store it; very large ones become text."""
    return value if value is None or -_MOST_INTEGER <= value < _MOST_INTEGER else str(value)


def usage_json(usage: Usage) -> str:
    """A usage as stored in `model_calls.usage`."""
    return (
        f"[{usage.input_tokens},{usage.output_tokens},"
        f"{usage.cache_creation_tokens},{usage.cache_read_tokens}]"
    )


def json_of(value: Any) -> str:
    """Any value as JSON: see `agentnb.core.codec.plain`."""
    return encoded(plain(value))


def encoded(value: Any) -> str:
    """A plain value as JSON, even with lone surrogates in it."""
    try:
        return to_json(value, inf_nan_mode="constants").decode()
    except ValueError:  # a lone surrogate has no UTF-8
        return json.dumps(value)


def reply_json(message: Message, text: str) -> str:
    """A reply as JSON, without the text that its call has."""
    content = message.content
    if message.role is Role.ASSISTANT and len(content) == 1 and _is_text(content[0], text):
        return JUST_TEXT
    blocks = [
        {"kind": "text_block"} if _is_text(block, text) else plain(block) for block in content
    ]
    return encoded({"role": str(message.role), "content": blocks})


def _is_text(block: Block, text: str) -> bool:
    return type(block) is TextBlock and block.text == text and not block.extra


def event_json(event: Event) -> str:
    """All fields of an event as JSON, without its kind."""
    if isinstance(event, _WITH_FOREIGN_VALUES):
        fields = plain(event)
        del fields["kind"]
        return encoded(fields)
    try:
        written = to_json(event, inf_nan_mode="constants").decode()
    except ValueError:
        fields = plain(event)
        del fields["kind"]
        return encoded(fields)
    return "{" + written[len(event.kind) + 11 :]  # without `"kind":"…",`


_WITH_FOREIGN_VALUES = ModelCallStarted, ModelCallFinished, ToolCallStarted


def difference(
    event: Event, base: Mapping[str, Any], given: Mapping[str, Any] = MappingProxyType({})
) -> str | None:
    """The fields of an event that its record does not have, as JSON; `None` if there are none."""
    others = dict(given)
    for name, known in base.items():
        value = getattr(event, name)
        if value is not known and (type(value) is not type(known) or value != known):
            others[name] = value
    return json_of(others) if others else None
