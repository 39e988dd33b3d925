"""Facts about a whole run, computed from its record: budget, time, notes, lost calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from agentnb.core.budget import estimate_input_tokens, estimate_tokens
from agentnb.core.events import BudgetPaused, BudgetResumed, RunPaused, RunResumed, rows_of
from agentnb.core.money import TOKENS
from agentnb.core.records import (
    FINISHED,
    CallRecord,
    OrderRecord,
    RunHead,
    RunJournal,
    ToolCallRecord,
)
from agentnb.core.types import Usage

LOST = "lost"
"""Kind of the verdict on a call that was open when the process died: what it may have spent."""
WENT_ON = "went_on"
"""Kind of the verdict that new work begins in a run with a time limit: the time used by then."""
WRITES_NOTE = "workspace_write"
"""The tool is known by its name: there are no tools here, and a record has no field for this."""


class BudgetAct(NamedTuple):
    """A recorded act on a run's budget: a question, a decision, a new total."""

    place: tuple[str, int]
    """Path and number of the call that had begun last."""
    kind: str
    """`asked` or `warned`, see `agentnb.core.records.VerdictRecord`; or `budget`."""
    value: Any
    by: str = ""


def budget_acts(journal: RunJournal) -> list[BudgetAct]:
    """The recorded questions, decisions and new totals of the budget, in order."""
    sent_at_s = {(call.path, call.number): call.at_s for call in journal.calls}

    def comes_first(order: BudgetAct, verdict: BudgetAct) -> bool:
        begun, asked = sent_at_s.get(order.place, 0.0), sent_at_s.get(verdict.place, 0.0)
        is_answer = verdict.value.get("answer") in ("raised", "lowered")
        return begun < asked or (begun == asked and is_answer)

    orders = [_budget_order(each) for each in journal.orders if each.kind == "budget"]
    acts: list[BudgetAct] = []
    for each in journal.verdicts:
        if each.kind in ("asked", "warned"):
            act = BudgetAct((each.value["path"], each.value["number"]), each.kind, each.value)
            while orders and comes_first(orders[0], act):
                acts.append(orders.pop(0))
            acts.append(act)
    return acts + orders


def _budget_order(order: OrderRecord) -> BudgetAct:
    return BudgetAct((order.path, order.number), order.kind, order.value, order.by)


def used_s(journal: RunJournal) -> float:
    """Seconds of its time limit that the run has used up to its last record, without pauses.

    In a run that was recovered before, only times since then count; the verdict `went_on` says how
    much it had used by then.
    """
    went_on = [each.value for each in journal.verdicts if each.kind == WENT_ON]
    before: dict[str, float] = went_on[-1] if went_on else {"used_s": 0.0, "at_s": 0.0}
    since = before["at_s"]
    acts: list[CallRecord | ToolCallRecord] = [*journal.calls, *journal.tool_calls]
    times = [since, *(entry.at_s for entry in journal.entries[-1:])]
    times += [each.at_s for each in journal.ends]
    # A repeated act keeps its first duration, so only acts that began since then count.
    times += [each.at_s + (each.duration_ms or 0) / 1000 for each in acts if each.at_s >= since]
    used = before["used_s"] + max(times) - since
    return used - sum(end_s - begin_s for begin_s, end_s in _pauses(journal, since, max(times)))


def _pauses(journal: RunJournal, since_s: float, last_s: float) -> Iterator[tuple[float, float]]:
    """Start and end, in seconds, of the pauses of the whole run between two times.

    Counts pauses by the budget's question and by a person; overlapping ones are one.
    """
    begun_s = since_s
    paused_by: set[str] = set()
    for row in rows_of(journal.entries):
        if len(row) == 3:
            continue  # text; most rows are
        at_s, event = row
        match event:
            case BudgetPaused() | RunPaused(agent_id=None):
                if not paused_by:
                    begun_s = max(at_s, since_s)
                paused_by.add(_PAUSED_BY[type(event)])
            case BudgetResumed() | RunResumed(agent_id=None) if paused_by:
                paused_by.discard(_PAUSED_BY[type(event)])
                if not paused_by:
                    yield begun_s, max(at_s, begun_s)
    if paused_by:
        yield begun_s, last_s


_PAUSED_BY: Mapping[type, str] = {
    BudgetPaused: "budget",
    BudgetResumed: "budget",
    RunPaused: "person",
    RunResumed: "person",
}


def pause_orders(journal: RunJournal) -> list[OrderRecord]:
    """The pause and resume orders, in order."""
    return [each for each in journal.orders if each.kind in ("pause", "resume")]


def open_pauses(journal: RunJournal) -> list[OrderRecord]:
    """The pause orders that no resume order has ended."""
    found: dict[str | None, OrderRecord] = {}
    for each in pause_orders(journal):
        if each.kind == "pause":
            found[each.value["agent"]] = each
        else:
            found.pop(each.value["agent"], None)
    return list(found.values())


def still_paused(journal: RunJournal) -> list[str | None]:
    """Paths of the agents that are paused, `None` for the run. A pause ends with its agent."""
    ended = {end.path for end in journal.ends}
    paused = (each.value["agent"] for each in open_pauses(journal))
    return [path for path in paused if path not in ended]


def notes(journal: RunJournal) -> dict[str, str]:
    """The notes that the agents wrote: the last text of each, by key."""
    calls = [
        call
        for call in journal.tool_calls
        if call.name == WRITES_NOTE and call.status == FINISHED and not call.is_error
    ]
    calls.sort(key=lambda call: call.at_s + (call.duration_ms or 0) / 1000)
    return {call.input["key"]: call.input["text"] for call in calls}


def lost_calls(journal: RunJournal) -> Iterator[tuple[str, int, int]]:
    """Path, number and cost of the calls that were open when the process died, or died earlier.

    The cost is in the budget's unit. What they really spent is unknown, so it is estimated from
    their input and the part of the reply that had arrived.
    """
    for each in journal.verdicts:
        if each.kind == LOST:
            yield each.path, each.value["number"], each.value["tokens"]
    amounts = _Amounts(journal.head)
    for call in journal.calls:
        if call.status != FINISHED:
            tokens = estimate_input_tokens(call.request), estimate_tokens(call.text)
            yield call.path, call.number, amounts.of(call.model, Usage(*tokens))


def spent(journal: RunJournal) -> int:
    """What the run has spent, in its budget's unit; lost calls are estimated."""
    return spent_by_calls(journal) + sum(each for *_, each in lost_calls(journal))


def spent_by_calls(journal: RunJournal) -> int:
    """What the calls with recorded usage have spent, in the budget's unit."""
    amounts = _Amounts(journal.head)
    return sum(amounts.of(call.model, call.usage) for call in journal.calls if call.usage)


class _Amounts:
    """Converts usage to the unit of a run's budget, at the prices of the run's start."""

    def __init__(self, head: RunHead) -> None:
        self._rates = None if head.unit == TOKENS else head.rates

    def of(self, model: str, usage: Usage) -> int:
        if self._rates is None:
            return usage.budget_tokens
        rate = self._rates.get(model)
        return 0 if rate is None else rate.of(usage)
