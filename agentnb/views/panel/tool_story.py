"""One agent's tool calls, as the record tells them: what was asked for, and what came of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from agentnb.core.codec import plain
from agentnb.core.events import (
    Event,
    ToolCallFinished,
    ToolCallReported,
    ToolCallStarted,
    is_terminal,
)
from agentnb.core.text import visible, visible_text

_NAME_LENGTH = 200
_ONE_LINE = 100
"""Characters of arguments that are told on one line; longer ones have a line each."""


@dataclass(slots=True, eq=False)
class ToolStory:
    """One call of a tool, as far as it came."""

    n: int
    """Its number among the agent's calls, from 1."""
    started: ToolCallStarted
    begun_s: float
    """Seconds since the run began."""
    said: str = ""
    """What it reported last."""
    finished: ToolCallFinished | None = None
    is_left: bool = False
    """Whether its agent ended before it did: the process died under it."""

    @property
    def status(self) -> str:
        """`open`, `done`, `error`, `cancelled`, or `interrupted` when it never came to its end."""
        if self.finished is None:
            return "interrupted" if self.is_left else "open"
        if self.finished.was_cancelled:
            return "cancelled"
        return "error" if self.finished.is_error else "done"


class ToolStories:
    """The tool calls of one agent. Feed it the agent's events, each once and in order."""

    def __init__(self) -> None:
        self.calls: list[ToolStory] = []
        self._open: dict[str, ToolStory] = {}
        self._changed: dict[int, ToolStory] = {}

    def learn(self, at_s: float, event: Event) -> None:
        """Learn what happened."""
        match event:
            case ToolCallStarted():
                call = ToolStory(len(self.calls) + 1, event, at_s)
                self.calls.append(call)
                # A small server may give an id again: the newest call is meant.
                self._open[event.tool_use_id] = self._changed[call.n] = call
            case ToolCallReported():
                if (reporting := self._open.get(event.tool_use_id)) is not None:
                    reporting.said = event.text
                    self._changed[reporting.n] = reporting
            case ToolCallFinished():
                if (ended := self._open.pop(event.tool_use_id, None)) is not None:
                    ended.finished = event
                    self._changed[ended.n] = ended
            case _ if self._open and is_terminal(event):
                self._leave_open_ones()

    def _leave_open_ones(self) -> None:
        for call in self._open.values():
            call.is_left = True
            self._changed[call.n] = call
        self._open.clear()

    def take_changed(self) -> list[ToolStory]:
        """The calls that are new or changed since this was asked last, in their order."""
        changed = [self._changed[n] for n in sorted(self._changed)]
        self._changed.clear()
        return changed


def tool_line(call: ToolStory) -> dict[str, Any]:
    """What the list of tool calls shows of one: plain values, texts with what acts made visible.

    `input_cut` and `result_cut`: characters of the whole, where the event has the beginning.
    """
    started, finished = call.started, call.finished
    result = ""
    if finished is not None and not finished.was_cancelled:
        result = finished.result or finished.result_summary
    return {
        "n": call.n,
        "name": visible(started.name, _NAME_LENGTH),
        "status": call.status,
        "begun": round(call.begun_s, 2),
        "duration_ms": finished.duration_ms if finished is not None else None,
        "said": visible(call.said, _NAME_LENGTH) if finished is None else "",
        "input": visible_text(_arguments(started.input)),
        "input_cut": started.input_length,
        "result": visible_text(result),
        "result_cut": finished.result_length if finished is not None else None,
    }


def _arguments(given: Any) -> str:
    """Arguments as a person reads them; empty for none."""
    values = plain(given)
    if values in ({}, None):
        return ""
    text = json.dumps(values, ensure_ascii=False)
    if len(text) <= _ONE_LINE or not isinstance(values, dict):
        return text
    return json.dumps(values, ensure_ascii=False, indent=2)
