"""What an agent is at, beyond its status, and how that is said in a line."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentnb.core.text import visible
from agentnb.core.tree import AgentState
from agentnb.core.types import AgentStatus

STALLED_AFTER_S = 30.0
"""An agent whose open call has brought nothing for so long is shown as stalled."""

LINE_LENGTH = 200
_NAME_LENGTH = 60


@dataclass(slots=True)
class OpenTool:
    """A tool call that has not ended."""

    name: str
    since_s: float
    """When it began, seconds since the run did."""
    said: str = ""
    """What it reported last."""


@dataclass(slots=True)
class Doing:
    """What an agent is at, beyond its status."""

    is_calling: bool = False
    heard_at_s: float = 0.0
    """When its open call began, or last brought something."""
    said: int = 0
    """Characters of the reply that streams."""
    synthesising: int = 0
    """How many results it brings together."""
    is_stalled: bool = False
    attempt: int = 1
    wait_until_s: float | None = None
    tools: dict[str, OpenTool] = field(default_factory=dict)
    """By call, in the order in which they began."""
    children: int = 0
    children_open: int = 0
    waits_to: bool = False
    """Whether the reason of its wait is something to do, and not something to get."""

    @property
    def newest_tool(self) -> OpenTool | None:
        """Of the open tool calls the one that is named."""
        return next(reversed(self.tools.values()), None)

    @property
    def tool_words(self) -> str:
        """`look_up and 2 more`; empty where no tool call is open."""
        newest, others = self.newest_tool, len(self.tools) - 1
        if newest is None:
            return ""
        more = f" and {others:,} more" if others else ""
        return f"{visible(newest.name, _NAME_LENGTH)}{more}"


def in_words(
    agent: AgentState, doing: Doing, status: AgentStatus, *, with_reports: bool = False
) -> str:
    """What an agent does or waits for, on one visible line; empty when its text says it.

    What a tool reports is left out unless asked for: it changes many times a second.
    """
    if status is AgentStatus.PENDING:
        return f"getting ready to ask {visible(agent.model, 60)}" if agent.model else "starting"
    if status is AgentStatus.WAITING:
        link = "waiting" if doing.waits_to else "waiting for"
        return visible(f"{link} {agent.waiting_for}", LINE_LENGTH)
    if doing.is_stalled:
        return f"no text for {STALLED_AFTER_S:.0f} s"
    if doing.is_calling and not doing.said:
        return "waiting for the first token"
    below = f"{doing.children_open} at work below" if doing.children_open else ""
    if doing.newest_tool is not None:
        said = visible(doing.newest_tool.said, LINE_LENGTH) if with_reports else ""
        tool = f"tool {doing.tool_words}" + (f": {said}" if said else "")
        return ", ".join(filter(None, (tool, below)))
    if below:
        return below
    if doing.synthesising and doing.is_calling:
        return f"bringing {doing.synthesising} results together"
    return ""
