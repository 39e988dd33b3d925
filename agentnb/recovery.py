"""What `Session.recover` goes on with, and what it tells of that: see `Session.recover`."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from agentnb.core.budget import total_with_line_above
from agentnb.core.errors import CannotRecover
from agentnb.core.events import LimitReached
from agentnb.core.money import TOKENS, money_text, share_in_words
from agentnb.core.past import Past, spent_in
from agentnb.core.records import FINISHED, CallRecord, RunHead, RunJournal, ToolCallRecord
from agentnb.core.shown import Shown, counted, listed
from agentnb.core.text import literal
from agentnb.core.types import MOST, Usage
from agentnb.core.undone import Undone, undo_want_of_budget
from agentnb.prices import NO_PRICES, Call, Price, cost_of, dollars

if TYPE_CHECKING:
    from agentnb.store.held import HeldJournal

_MOST_NAMED = 6
"""Uncertain calls, and changed agents, that are named on one line."""


@dataclass(frozen=True, slots=True)
class Reused:
    """What a recovered run did not have to do again."""

    calls: int
    tool_calls: int
    tokens: int
    """Tokens of the calls, as the budget counts them."""
    cost_usd: float | None = None
    """What the calls would cost again, by list prices, in US dollars; `None` if the price of one of
    them is not known."""

    def __str__(self) -> str:
        """Such as `22 calls and 14 tool calls reused (120,400 tokens, $0.4100 saved)`."""
        counts = (self.calls, "call"), (self.tool_calls, "tool call")
        parts = [counted(number, noun) for number, noun in counts if number]
        if not parts:
            return "nothing to reuse"
        saved = "" if self.cost_usd is None else f", {dollars(self.cost_usd)} saved"
        return f"{' and '.join(parts)} reused ({counted(self.tokens, 'token')}{saved})"


@dataclass(frozen=True, slots=True)
class ReusedOfAgent:
    """What one agent of a recovered run did not have to do again."""

    calls: int
    has_ended: bool
    """Whether it had ended before: all its work is taken from the record."""


@dataclass(frozen=True, slots=True)
class RecoveryReceipt(Shown):
    """What became of a run's earlier work when it was recovered."""

    reused: Reused
    uncertain: tuple[str, ...]
    """What may come twice, in words: what had begun and was never seen to end (calls are made
    again), and tools with effects of agents that decide anew with a larger budget."""
    changed: tuple[str, ...]
    """Paths of the agents that no longer fit what was recorded of them: what they are asked, their
    tools or their model are others now."""
    again: tuple[str, ...] = ()
    """Paths of the agents that a larger budget lets go on, or begin again: what want of budget
    decided, and what was made of that, is not reused."""
    open_calls: int = 0
    """How many of `uncertain` are model calls that were open."""
    open_tools: int = 0
    """How many are tool calls with an unknown outcome."""
    by_agent: Mapping[str, ReusedOfAgent] = field(default_factory=dict, repr=False, hash=False)
    """By path, the agents of which something was reused."""

    def __str__(self) -> str:
        """One line: what is reused, and what is done again."""
        calls, tools = self.open_calls, self.open_tools
        parts = [f"Recovered: {self.reused}"]
        if calls:
            parts.append(f"{calls:,} " + ("was open and is" if calls == 1 else "were open and are"))
            parts[-1] += " made again"
        if tools:
            words = "was open: its outcome is" if tools == 1 else "were open: their outcomes are"
            parts.append(f"{counted(tools, 'tool call')} {words} unknown")
        return "; ".join(parts) + "."

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines shown while the run continues: one, and one more for changes."""
        return (
            str(self),
            *_named("Continuing with more budget", self.again),
            *_named("No longer match their record", self.changed),
        )

    @property
    def told(self) -> tuple[str, ...]:
        """`lines` with the names of what is uncertain."""
        first, *more = self.lines
        return (first, *_named("Uncertain", self.uncertain), *more)


def _named(what: str, names: Sequence[str]) -> tuple[str, ...]:
    """A line with the first of some names; none without any."""
    return (f"{what}: {listed(names, most=_MOST_NAMED)}.",) if names else ()


@dataclass(frozen=True, slots=True, eq=False)
class Recovering:
    """A claimed run that is about to go on."""

    past: Past
    journal: HeldJournal
    is_settled: threading.Event
    """Set when all that was kept has been taken, or the run has ended before."""
    undone: Undone
    """What of its record is left for a larger budget."""
    was_exhausted: bool
    """Whether it had ended for want of budget."""

    @property
    def head(self) -> RunHead:
        """What was known of the run when it began."""
        return self.past.journal.head

    @property
    def is_undone(self) -> bool:
        """After the recovery: whether it had no effect, so that the old record stays."""
        return self.journal.holds

    def receipt(self, of_file: Mapping[str, Price] = NO_PRICES) -> RecoveryReceipt:
        """What was reused, once that is settled."""
        return receipt_of(self.past, self.undone, of_file)


def undone_for(run: str, journal: RunJournal, budget: int) -> Undone:
    """What is left of a run's record that goes on with a larger budget.

    Args:
        run: The run, as it was named.
        journal: Its record.
        budget: Its new total.

    Raises:
        CannotRecover: More budget would not let it go on.
        ValueError: `budget` is too small.
    """
    is_over = any(end.path is None for end in journal.ends)
    if journal.head.settings.get("pot") is not None:
        why = "its budget is part of that of the run that assigned its task; start the task again"
        raise CannotRecover(run, why)
    if is_over:
        for entry in journal.entries:
            if isinstance(entry.event, LimitReached):
                why = f"its `{entry.event.limit}` ended it, which `budget=` does not raise"
                raise CannotRecover(run, f"{why}; start its task again")
    if any(each.kind == "admitted" and "assigned" in each.value for each in journal.verdicts):
        why = "it assigned tasks that use its budget; see `session.tasks`"
        raise CannotRecover(run, why)
    _check_total(budget, journal, is_over=is_over)
    undone = undo_want_of_budget(journal)
    if is_over and not undone.again:
        raise CannotRecover(run, "none of its agents lacked budget; start its task again")
    return undone


def _check_total(budget: int, journal: RunJournal, *, is_over: bool) -> None:
    """Raise `ValueError` for a total that would not let a run go on."""
    unit = journal.head.unit
    if isinstance(budget, bool) or not isinstance(budget, int) or not 0 < budget <= MOST:
        raise ValueError(f"`budget` must be a whole number of tokens, not {literal(budget)}.")
    spent = spent_in(journal)
    totals = [each.value for each in journal.orders if each.kind == "budget"]
    total = [journal.head.budget_total, *totals][-1]
    least = 1 + (max(spent, total) if is_over else spent)
    words = f"the run has spent {share_in_words(spent, total, unit)}"
    if is_over and journal.head.settings.get("on_budget_warning") == "stop":
        least = max(least, total_with_line_above(spent))
        words += ", and it stops at its warning line"
    if budget < least:
        shown = f"{least:,}" if unit == TOKENS else money_text(least)
        raise ValueError(f"`budget` must be at least {shown}: {words}.")


def receipt_of(
    past: Past, undone: Undone, of_file: Mapping[str, Price] = NO_PRICES
) -> RecoveryReceipt:
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
    usd = _usd_of(calls, journal.head.started_at, of_file)
    open_calls, open_tools = _open_calls(journal), _open_tools(past)
    return RecoveryReceipt(
        Reused(len(calls), len(tool_calls), spent, usd),
        (*open_calls, *open_tools, *map(_decided_anew, undone.repeated)),
        tuple(sorted(past.misfits)),
        undone.again,
        len(open_calls),
        len(open_tools),
        _by_agent(past, calls),
    )


def _usd_of(
    calls: Sequence[CallRecord], started_at: float, of_file: Mapping[str, Price]
) -> float | None:
    began = datetime.fromtimestamp(started_at, UTC)
    priced = [
        Call(
            each.path,
            each.model,
            each.usage or Usage(),
            # Rounded to the minute, so that equal calls are priced once.
            (began + timedelta(seconds=each.at_s)).replace(second=0, microsecond=0),
        )
        for each in calls
    ]
    return cost_of(priced, paths=(), of_file=of_file).usd


def _by_agent(past: Past, calls: Sequence[CallRecord]) -> dict[str, ReusedOfAgent]:
    ended = {
        each.path
        for each in past.journal.ends
        if each.path is not None and (each.path, "end", 0) not in past.given_up
    }
    count = dict.fromkeys(ended, 0)
    for each in calls:
        count[each.path] = count.get(each.path, 0) + 1
    return {path: ReusedOfAgent(number, path in ended) for path, number in count.items()}


def _decided_anew(tool: ToolCallRecord) -> str:
    return f"tool {tool.name!r} of agent {tool.path} (call {tool.number}), which decides anew"


def _open_calls(journal: RunJournal) -> list[str]:
    return [
        f"call {each.number} of agent {each.path} ({each.model})"
        for each in journal.calls
        if each.status != FINISHED
    ]


def _open_tools(past: Past) -> list[str]:
    return [
        f"tool {each.name!r} of agent {each.path} (call {each.number})"
        for each in past.journal.tool_calls
        if each.status != FINISHED and not past.is_marked(each)
    ]
