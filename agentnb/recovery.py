"""What `Session.recover` goes on with, and what it tells of that: see `Session.recover`."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentnb.core.past import Past
from agentnb.core.records import FINISHED, RunHead, RunJournal
from agentnb.core.types import Usage

if TYPE_CHECKING:
    from agentnb.store.held import HeldJournal


@dataclass(frozen=True, slots=True)
class Reused:
    """What a recovered run did not have to do again."""

    calls: int
    tool_calls: int
    tokens: int
    """Tokens of the calls, as the budget counts them."""


@dataclass(frozen=True, slots=True)
class RecoveryReceipt:
    """What became of a run's earlier work when it was recovered."""

    reused: Reused
    uncertain: tuple[str, ...]
    """What had begun and was never seen to end, in words: calls are made again."""
    changed: tuple[str, ...]
    """Paths of the agents that no longer fit what was recorded of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Recovering:
    """A claimed run that is about to go on."""

    past: Past
    journal: HeldJournal
    is_settled: threading.Event
    """Set when all that was kept has been taken, or the run has ended before."""

    @property
    def head(self) -> RunHead:
        """What was known of the run when it began."""
        return self.past.journal.head

    def receipt(self) -> RecoveryReceipt:
        """What was reused, once that is settled."""
        return receipt_of(self.past)


def receipt_of(past: Past) -> RecoveryReceipt:
    """What became of the past of a run."""
    journal, left = past.journal, past.given_up
    calls = [
        each
        for each in journal.calls
        if each.status == FINISHED and (each.path, "call", each.number) not in left
    ]
    tool_calls = [
        each
        for each in journal.tool_calls
        if each.status == FINISHED and (each.path, "tool call", each.number) not in left
    ]
    spent = sum((each.usage or Usage()).budget_tokens for each in calls)
    return RecoveryReceipt(
        Reused(len(calls), len(tool_calls), spent),
        tuple(_uncertain(journal)),
        tuple(sorted(past.misfits)),
    )


def _uncertain(journal: RunJournal) -> list[str]:
    calls = [
        f"call {each.number} of agent {each.path} ({each.model})"
        for each in journal.calls
        if each.status != FINISHED
    ]
    tools = [
        f"tool {each.name!r} of agent {each.path} (call {each.number})"
        for each in journal.tool_calls
        if each.status != FINISHED
    ]
    return [*calls, *tools]
