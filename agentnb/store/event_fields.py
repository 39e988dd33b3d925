"""The fields of an event that its record has: the writer omits them, the reader fills them in.

`agent_id` is not among them, since it follows from the row's path. Fields with a default that no
record has are included: an event with another value has it in its row.
"""

from __future__ import annotations

from typing import Any

from agentnb.core.events import (
    AgentCancelled,
    AgentCompleted,
    AgentExhausted,
    AgentFailed,
    RunFinished,
    ToolCallFinished,
    ToolCallStarted,
)
from agentnb.core.records import CallRecord, EndRecord, ToolCallRecord
from agentnb.core.types import Usage

_SUMMARY = 200
"""Most characters of a summary; that of a longer text ends in an ellipsis."""
_NO_USAGE = Usage()

EndEvent = AgentCompleted | AgentFailed | AgentCancelled | AgentExhausted | RunFinished


def fields_of_reply(record: CallRecord) -> dict[str, Any]:
    """The fields of `ModelCallFinished`."""
    error = record.error
    return {
        "model": record.model,
        "usage": record.usage or _NO_USAGE,
        "duration_ms": record.duration_ms or 0,
        "stop_reason": record.stop_reason,
        "error": record.not_closed if error is None else error["message"],
        "message": record.message,
        "estimate_error": record.estimate_error,
    }


def fields_of_end(kind: type[EndEvent], record: EndRecord) -> dict[str, Any]:
    """The fields of the event of an agent's end, or of the run's end."""
    if kind is RunFinished:
        return {
            "status": record.status,
            "tokens_used": record.tokens_used,
            "duration_ms": record.duration_ms,
            "error": record.error,
        }
    fields: dict[str, Any] = {
        "text": record.text,
        "tokens_used": record.tokens_used,
        "duration_ms": record.duration_ms,
    }
    if kind is AgentCompleted:
        fields["result_summary"] = summary_of(record.text)
        fields["cut"] = record.cut
        fields["typed"] = False  # no record says so: an event with `True` has it in its row
    elif kind is AgentFailed:
        fields["error"] = record.error or ""
        fields["will_retry"] = False
        fields["attempt"] = record.attempt
    else:
        fields["reason"] = record.error or ""
        if kind is AgentCancelled:
            fields["by"] = record.by
    return fields


def fields_of_tool_call(
    kind: type[ToolCallStarted | ToolCallFinished], record: ToolCallRecord, cut_at: int | None
) -> dict[str, Any]:
    """The fields of the events of a tool call.

    Args:
        kind: The event's class.
        record: The call.
        cut_at: The number of characters of the result that the event has; `None` for all.
    """
    fields: dict[str, Any] = {"tool_use_id": record.tool_use_id, "name": record.name}
    if kind is ToolCallStarted:
        return {**fields, "input": record.input, "input_length": None}
    return {
        **fields,
        "result_summary": summary_of(record.result),
        "is_error": record.is_error,
        "duration_ms": record.duration_ms or 0,
        "result": record.result[:cut_at],
        "result_length": None if cut_at is None else len(record.result),
        "media": tuple([block.named() for block in record.media]),
    }


def summary_of(text: str) -> str:
    """The summary of a text that begins with a long line; any other event has it in its row."""
    return text if len(text) <= _SUMMARY else text[: _SUMMARY - 1] + "…"
