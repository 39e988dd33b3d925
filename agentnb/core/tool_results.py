"""The results of one turn's tool calls as the message that the model gets.

The texts come first, in the order of the calls, then the files of all of them, as the APIs require.
A line in each text says which files belong to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agentnb.core.media import PDF, described
from agentnb.core.prompt import result_for_model
from agentnb.core.records import ToolCallRecord
from agentnb.core.types import Block, MediaBlock, ToolResultBlock


class ToolResult(NamedTuple):
    """A call that has ended, and a note on a person's decision about it."""

    record: ToolCallRecord
    note: str = ""
    """A line for the model before the result; empty for none."""


def blocks_of(results: Iterable[ToolResult]) -> tuple[Block, ...]:
    """The content of the message with these results, in the order of the calls."""
    texts, files = list[Block](), list[MediaBlock]()
    for record, note in results:
        lines = [note, result_for_model(record.result)]
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
