"""What must hold of every run that persons pause."""

from __future__ import annotations

from collections.abc import Iterable

from agentnb.core.events import (
    Entry,
    LimitReached,
    ModelCallStarted,
    RunPaused,
    RunResumed,
    ToolCallStarted,
    is_terminal,
)
from agentnb.core.limits import MAX_TIME
from agentnb.core.types import is_at_or_below


def check_pauses(entries: Iterable[Entry]) -> None:
    """Check that nothing begins of what is paused, and that each pause begins and ends once."""
    paused: set[str | None] = set()
    is_over = False
    for event in (entry.event for entry in entries):
        match event:
            case RunPaused(agent_id=agent_id):
                assert agent_id not in paused, "paused twice"
                paused.add(agent_id)
            case RunResumed(agent_id=agent_id):
                assert agent_id in paused, "resumed, and not paused"
                paused.discard(agent_id)
            case LimitReached(limit=limit):
                is_over |= limit == MAX_TIME  # a held tool is told so, and does not run
            case ModelCallStarted(agent_id=agent_id) | ToolCallStarted(agent_id=agent_id):
                if not (is_over and isinstance(event, ToolCallStarted)):
                    held = [top for top in paused if top is None or is_at_or_below(agent_id, top)]
                    assert not held, f"{event.kind} of {agent_id} while {held} is paused"
            case _ if is_terminal(event):
                paused.discard(getattr(event, "agent_id", ""))
