"""Whether two runs are equal, except for ids and for what depends on time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentnb.cassette.words import first_difference
from agentnb.core.codec import plain
from agentnb.core.events import (
    AgentWaiting,
    BudgetUpdate,
    Event,
    QuestionAnswered,
    QuestionAsked,
    RunPaused,
    RunResumed,
    ToolCallReported,
)
from agentnb.core.shown import counted
from agentnb.core.types import ROOT_PATH, path_key

if TYPE_CHECKING:
    from agentnb.record import RunRecord

Fields = Mapping[str, Any]
"""An event as plain values."""
_RUN = ""
"""In place of a path: the events of the run."""
_NEVER = ("duration_ms", "estimate_error", "wait_s", "created_at", "recovered")
_NUMBERS = ("tokens_used", "budget_total", "percentage")
_LISTS = ("completed_agents", "incomplete_agents")
_LEFT_OUT: Mapping[str, Sequence[str]] = {
    "budget_warning": _NUMBERS,
    "budget_paused": _NUMBERS,
    "budget_exhausted": (*_NUMBERS, *_LISTS),
    "limit_reached": _LISTS,
    "question_asked": ("question_id",),
    "question_answered": ("question_id",),
}
"""Fields that are left out besides, by the kind of the event."""
WAITS_FOR_APPROVAL = "approval of "
"""Begins the reason of an `AgentWaiting` for a person's answer."""
_WAITS_FOR_ROOM = re.compile(
    r"one of [\d,]+ slots for calls to |room in the budget\b|a worker of the cluster\b"
)
"""Reasons of an `AgentWaiting` for room at the gate, in the budget or on a cluster."""
_MOST_OF_A_VALUE = 120


def equal_records(one: RunRecord, other: RunRecord) -> list[str]:
    """Compare the records of two runs.

    Records are equal if each agent has the same events in the same order, and the run has the same
    events in any order. `RunPaused` and `RunResumed` belong to the run, even for a branch: a
    person orders them, not the agent.

    Ignores what depends on time, and not on what the models and tools said:

    - `at_s`, `seq`, `duration_ms`, `estimate_error`, `wait_s`, `created_at`, and `cache_prefix` of
      a request;
    - the numbers of `BudgetWarning`, `BudgetPaused` and `BudgetExhausted`, and the lists of agents
      of `BudgetExhausted` and `LimitReached`, which depend on the progress of other agents;
    - `BudgetUpdate`, `ToolCallReported`, and `AgentWaiting` for the gate, the budget or a cluster;
    - `RunStarted.recovered`, which says how the record was made;
    - ids of questions, and when a question came: an agent's questions and their answers are
      compared separately, in any order.

    Agents' ids begin with `root` in place of their thread's id, also inside texts.

    Returns:
        The differences, a line for each agent and for each event of the run; empty if the records
            are equal.

    Example:
        `assert equal_records(recovered, unbroken) == []`
    """
    these, those = _by_agent(one), _by_agent(other)
    paths = sorted({*these, *those} - {_RUN}, key=path_key)
    found = [_difference(path, these.get(path, []), those.get(path, [])) for path in paths]
    return [
        *_differences_of_run(these.get(_RUN, []), those.get(_RUN, [])),
        *filter(None, found),
    ]


def _by_agent(record: RunRecord) -> dict[str, list[Fields]]:
    """The events of a record by path, in their order, without what is not compared."""
    root_id = record.thread_id
    found: dict[str, list[Fields]] = {}
    asked: dict[str, list[Fields]] = {}
    for entry in record.events:
        event = entry.event
        if (fields := _compared(event, root_id)) is not None:
            is_of_run = isinstance(event, RunPaused | RunResumed)
            agent = _RUN if is_of_run else fields.get("agent_id", _RUN)
            path = ROOT_PATH if agent == ROOT_PATH else agent.removeprefix(f"{ROOT_PATH}.")
            place = asked if _is_of_question(entry.event) else found
            place.setdefault(path, []).append(fields)
    for path, of_questions in asked.items():
        found.setdefault(path, []).extend(sorted(of_questions, key=repr))
    return found


def _is_of_question(event: Event) -> bool:
    """Whether it tells of a question, which comes when a person, or the record, lets it."""
    if isinstance(event, AgentWaiting):
        return event.reason.startswith(WAITS_FOR_APPROVAL)
    return isinstance(event, QuestionAsked | QuestionAnswered)


def _compared(event: Event, root_id: str) -> Fields | None:
    """What counts of an event; `None` if nothing does."""
    if isinstance(event, BudgetUpdate | ToolCallReported):
        return None
    if isinstance(event, AgentWaiting) and _WAITS_FOR_ROOM.match(event.reason):
        return None
    fields: dict[str, Any] = plain(
        event, lambda text: text.replace(root_id, ROOT_PATH) if root_id else text
    )
    for name in (*_NEVER, *_LEFT_OUT.get(event.kind, ())):
        fields.pop(name, None)
    if "request" in fields:
        del fields["request"]["cache_prefix"]
    return fields


# -- in words --------------------------------------------------------------------------------------


def _difference(path: str, these: Sequence[Fields], those: Sequence[Fields]) -> str:
    """What differs first between two agents; empty if nothing does."""
    who = "the root" if path == ROOT_PATH else f"agent {path}"
    if not these or not those:
        which = "first" if these else "second"
        return f"{who}: only in the {which} record, with {counted(len(these or those), 'event')}"
    for place, (this, that) in enumerate(zip(these, those, strict=False)):
        if this["kind"] != that["kind"]:
            return f"{who}, event {place}: {this['kind']} and {that['kind']}"
        if why := next(_unequal(this, that), ""):
            return f"{who}, event {place}, {this['kind']}: {why}"
    if len(these) == len(those):
        return ""
    longer, which = (these, "first") if len(these) > len(those) else (those, "second")
    shorter = min(len(these), len(those))
    more = ", ".join(event["kind"] for event in longer[shorter : shorter + 3])
    return f"{who}: from event {shorter} on only in the {which} record: {more}" + (
        ", …" if len(longer) > shorter + 3 else ""
    )


def _differences_of_run(these: Sequence[Fields], those: Sequence[Fields]) -> Iterator[str]:
    """The events of the run that only one of the records has, each as often as it is missing."""
    ours, theirs = (Counter(map(repr, map(_sorted, each))) for each in (these, those))
    for which, rest, events in (
        ("first", ours - theirs, these),
        ("second", theirs - ours, those),
    ):
        for event in events:
            if rest[key := repr(_sorted(event))] > 0:
                rest[key] -= 1
                said = {name: value for name, value in event.items() if name != "kind"}
                yield f"the run: only in the {which} record: {event['kind']} {_short(said)}"


def _sorted(value: Any) -> Any:
    """A plain value whose `repr` does not depend on the order of keys."""
    if isinstance(value, Mapping):
        return [(key, _sorted(value[key])) for key in sorted(value)]
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _unequal(this: Any, that: Any, where: str = "") -> Iterator[str]:
    """Where two plain values differ, and how."""
    if isinstance(this, Mapping) and isinstance(that, Mapping):
        for name in dict.fromkeys([*this, *that]):
            inside = f"{where}.{name}" if where else name
            if name not in this or name not in that:
                yield f"`{inside}` is only in the {'first' if name in this else 'second'}"
            else:
                yield from _unequal(this[name], that[name], inside)
    elif isinstance(this, list) and isinstance(that, list):
        for place, (one, other) in enumerate(zip(this, that, strict=False)):
            yield from _unequal(one, other, f"{where}[{place}]")
        if len(this) != len(that):
            yield f"`{where}` has {len(this)} and {len(that)} items"
    elif this != that or type(this) is not type(that):
        yield f"`{where}` is {_around(this, that)} and {_around(that, this)}"


def _around(value: Any, other: Any) -> str:
    """A value; of a long text the part where it begins to differ."""
    if not isinstance(value, str) or not isinstance(other, str):
        return _short(value)
    first = max(0, first_difference(value, other) - 30)
    return ("… " if first else "") + _short(value[first:])


def _short(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= _MOST_OF_A_VALUE else f"{said[:_MOST_OF_A_VALUE]} …"
