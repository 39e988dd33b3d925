"""What a view is told: values that were computed once and are shown by every view of a run.

A view needs nothing but the newest `Frame` to show the run as a whole: its summary is always
complete, and its rows are what changed since the one before, or everything for a view that is new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentnb.core.types import AgentStatus


@dataclass(frozen=True, slots=True)
class Question:
    """The question that is open after a budget warning: go on, or stop?"""

    tokens_used: int
    budget_total: int
    percentage: float
    """How much of the total was used when it was asked: 0 to 100."""
    wait_s: float
    """How long it waits for an answer before the run stops."""
    asked_at_s: float
    """Seconds since the run began."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A run as a whole, at one time."""

    status: AgentStatus
    done: bool
    """The run has ended: nothing of this will change."""
    at_s: float
    """Seconds since the run began; its duration when it is done."""
    agents: int
    """The root included."""
    by_status: Mapping[AgentStatus, int]
    doing: str
    """One line: what the run waits for, such as "waiting for the first token"; or empty."""
    tokens_used: int
    """What the pot counts."""
    budget_total: int
    cost: str
    """Such as "about $0.0123 (estimate)"; empty while nothing is known."""
    question: Question | None
    notices: tuple[str, ...]
    """What a person should be told, one visible line each, oldest first: branches that were
    cancelled, what was not done for want of budget, why the run failed."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: what a view has to show from now on."""

    seq: int
    """The number of the frame, dense from 1."""
    rows: Mapping[str, Mapping[str, Any]]
    """By path, the fields that changed; all fields of an agent that is new."""
    summary: Summary
    """Always whole."""
