"""One agent's calls, as the record tells them: what it was sent, and what it said.

Its tool calls are told in `tool_story`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, assert_never

from agentnb.core.events import ModelCallFinished, ModelCallStarted, Row
from agentnb.core.text import visible, visible_text
from agentnb.core.types import (
    Block,
    CompletionRequest,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
)
from agentnb.views.panel.tool_story import ToolStories


@dataclass(slots=True, eq=False)
class CallStory:
    """One call: its request as it went out, and its reply as far as it came."""

    started: ModelCallStarted
    pieces: list[str] = field(default_factory=list)
    finished: ModelCallFinished | None = None
    begun_s: float = 0.0
    """Seconds since the run began."""

    @property
    def text(self) -> str:
        """The reply so far."""
        return "".join(self.pieces)

    @property
    def request(self) -> CompletionRequest:
        """What was sent."""
        return self.started.request


class Story:
    """The calls of one agent. Feed it the rows of the record, each once and in order."""

    def __init__(self, agent_id: str) -> None:
        self.agent_id = agent_id
        self.calls: list[CallStory] = []
        self.tools = ToolStories()

    def feed(self, rows: Iterable[Row]) -> None:
        """Learn what happened; each row once, in its order."""
        agent_id = self.agent_id
        for row in rows:
            if len(row) == 3:
                if row[1] == agent_id and self.calls:
                    self.calls[-1].pieces.append(row[2])
                continue
            at_s, event = row
            if getattr(event, "agent_id", None) != agent_id:
                continue
            if isinstance(event, ModelCallStarted):
                self.calls.append(CallStory(event, begun_s=at_s))
            elif isinstance(event, ModelCallFinished):
                if self.calls:
                    self.calls[-1].finished = event
            else:
                self.tools.learn(at_s, event)

    @property
    def usage(self) -> Usage:
        """The provider's numbers of the calls that have ended."""
        ended = [call.finished.usage for call in self.calls if call.finished is not None]
        return sum(ended, Usage())


def call_line(number: int, call: CallStory) -> dict[str, Any]:
    """What the list of calls shows of one: plain values, `n` from 1."""
    finished = call.finished
    error = finished.error if finished is not None else None
    return {
        "n": number,
        "model": visible(call.started.model, 200),
        "attempt": call.started.attempt,
        "is_synthesis": call.started.is_synthesis,
        "status": _state_of(finished),
        "tokens": finished.usage.total_tokens if finished is not None else 0,
        "duration_ms": finished.duration_ms if finished is not None else None,
        "stop_reason": visible(finished.stop_reason, 60)
        if finished is not None and finished.stop_reason
        else None,
        "error": visible_text(error) if error else None,
    }


def _state_of(finished: ModelCallFinished | None) -> str:
    if finished is None:
        return "open"
    if finished.stop_reason is not None:
        return "done"
    # An end that was ordered is no fault: a cancel says so, and the budget's end names no error.
    if finished.error == "cancelled":
        return "cancelled"
    return "error" if finished.error else "stopped"


def prompt_of(request: CompletionRequest) -> dict[str, Any]:
    """A request as it was sent: all of it, with what would act made visible."""
    return {
        "system": visible_text(request.system),
        "messages": [
            {"role": str(message.role), "text": visible_text(_words_of(message))}
            for message in request.messages
        ],
    }


def _words_of(message: Message) -> str:
    """All that a message holds, tool calls and results included."""
    return "\n\n".join(_block_words(block) for block in message.content)


def _block_words(block: Block) -> str:
    match block:
        case TextBlock():
            return block.text
        case ThinkingBlock():
            return f"(thinking) {block.text or '(kept by the API)'}"
        case ToolUseBlock():
            return f"(tool call {block.id}) {block.name}({json.dumps(dict(block.input))})"
        case ToolResultBlock():
            said = "tool error" if block.is_error else "tool result"
            return f"({said} {block.tool_use_id}) {block.text}"
    assert_never(block)
