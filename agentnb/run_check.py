"""Checks that a record can be a run's, beyond each event by itself.

Every view of a record (the tree, the figures, the cost, the panel) relies on what every run
guarantees: times increase, counts are not negative, each agent is spawned once, below an existing
one. A file may violate that. It is checked here, so that no view has to.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from agentnb.core.events import (
    AgentSpawned,
    BudgetPaused,
    Event,
    ModelCallFinished,
    QuestionAsked,
    Row,
    RunStarted,
)
from agentnb.core.records import ToolCallRecord
from agentnb.core.text import quoted
from agentnb.core.types import DEEPEST, MOST, MOST_BITS, child_id

_Check = Callable[[Any], None]
"""Raises `ValueError` for an impossible value; the message is a clause."""

_BACK_S = 1.0
"""Seconds by which an event's time may be before that of an earlier event. A thread reads the clock
before it appends, and may be held up in between."""
_LONGEST_ID = 1_000
"""Most characters of a run's or its root's id. Ids below have one number more for each level."""
_NUMBER = re.compile("[1-9][0-9]{0,8}")


def check_possible(rows: Iterable[Row]) -> None:
    """Check that the rows of a record can be a run's.

    Raises:
        ValueError: They cannot; the message is a clause that names the first wrong event.
    """
    depths: dict[str, int] = {}
    latest_s = 0.0
    root_id = ""
    for seq, row in enumerate(rows):
        at_s = row[0]
        try:
            if at_s > latest_s:
                latest_s = at_s
            elif at_s < latest_s - _BACK_S:
                raise ValueError("`at_s` is before the time of an event that came earlier")
            if len(row) == 3:
                if row[1] not in depths:
                    _check_known(row[1], depths)
                continue
            event = row[1]
            if isinstance(event, RunStarted):
                root_id = _root_of(event, seq)
            elif isinstance(event, AgentSpawned):
                _check_spawn(event, depths, root_id)
                depths[event.agent_id] = event.depth
            elif (agent_id := getattr(event, "agent_id", None)) is not None:
                _check_known(agent_id, depths)
            check_event(event)
        except ValueError as error:
            raise ValueError(f"its event {seq} is invalid: {error}") from None


def check_tool_calls(records: Iterable[ToolCallRecord]) -> None:
    """Check the whole values of tool calls that events cut.

    Raises:
        ValueError: One cannot be a run's; the message is a clause that names it.
    """
    for place, record in enumerate(records):
        try:
            _check_fields(record)
        except ValueError as error:
            raise ValueError(f"its tool call {place} is invalid: {error}") from None


def check_id(run_id: str) -> None:
    """Check the length of a run's or a root's id.

    Raises:
        ValueError: It is too long; the message is a clause.
    """
    if len(run_id) > _LONGEST_ID:
        raise ValueError(f"an id has at most {_LONGEST_ID:,} characters, and not {len(run_id):,}")


# -- the agents -----------------------------------------------------------------------------------


def _root_of(event: RunStarted, seq: int) -> str:
    if seq:
        raise ValueError("a run starts once, with its first event")
    check_id(event.thread_id)
    return event.thread_id


def _check_spawn(event: AgentSpawned, depths: Mapping[str, int], root_id: str) -> None:
    agent_id, parent_id = event.agent_id, event.parent_id
    if agent_id in depths:
        raise ValueError(f"the agent {quoted(agent_id)} is spawned a second time")
    if parent_id is None:
        if depths:
            raise ValueError("a run has one agent without a parent")
        check_id(agent_id)
        if not agent_id or agent_id != (root_id or agent_id):
            raise ValueError(f"`agent_id`: the root of this run is not {quoted(agent_id)}")
    elif parent_id not in depths:
        raise ValueError(f"`parent_id`: there is no agent {quoted(parent_id)} yet")
    elif not _is_child(agent_id, parent_id):
        raise ValueError(f"`agent_id`: {quoted(agent_id)} is not a sub-agent of its parent")
    if event.depth != (0 if parent_id is None else depths[parent_id] + 1):
        raise ValueError("`depth` is not one more than its parent's, from 0 for the root")


def _is_child(agent_id: str, parent_id: str) -> bool:
    number = agent_id[len(parent_id) + 1 :]
    return _NUMBER.fullmatch(number) is not None and agent_id == child_id(parent_id, int(number))


def _check_known(agent_id: str, depths: Mapping[str, int]) -> None:
    if agent_id not in depths:
        raise ValueError(f"`agent_id`: no agent {quoted(agent_id)} was spawned before")


# -- the fields of an event -----------------------------------------------------------------------


def check_event(event: Event) -> None:
    """Check that the numbers of an event are in the ranges that a run can have.

    Raises:
        ValueError: One is not; the message is a clause that names the field.
    """
    _check_fields(event)


def _check_fields(value: Any) -> None:
    cls: Any = type(value)
    check = _check_of(cls)
    if check is not None:
        check(value)


@cache
def _check_of(cls: type) -> _Check | None:
    """The check of a class's fields; `None` if none of them can be wrong."""
    hints = get_type_hints(cls)
    found: dict[str, _Check | None] = {
        field.name: _OWN.get((cls, field.name)) or _check_for(hints[field.name])
        for field in dataclasses.fields(cls)
        if field.name != "kind"
    }
    checks = [(name, check) for name, check in found.items() if check is not None]

    def check_fields(value: Any) -> None:
        for name, check in checks:
            try:
                check(getattr(value, name))
            except ValueError as error:
                raise ValueError(f"`{name}`: {error}") from None

    return check_fields if checks else None


def _check_for(hint: Any) -> _Check | None:
    arguments = get_args(hint)
    if isinstance(hint, UnionType):
        if NoneType not in arguments:
            return _check_fields  # of one of several classes
        (other,) = (argument for argument in arguments if argument is not NoneType)
        check = _check_for(other)
        return check and (lambda value: None if value is None else check(value))
    if get_origin(hint) is tuple:
        return _check_each(_check_for(arguments[0]))
    if hint is Any or get_origin(hint) is Mapping:
        return _check_json
    if dataclasses.is_dataclass(hint):
        return _check_of(hint)  # type: ignore[arg-type]
    return {int: _check_count, float: _check_time}.get(hint)


def _check_each(check: _Check | None) -> _Check | None:
    if check is None:
        return None

    def check_all(values: Iterable[Any]) -> None:
        for value in values:
            check(value)

    return check_all


def _check_count(value: int) -> None:
    if not 0 <= value <= MOST:
        raise ValueError(f"it is not between 0 and {float(MOST):g}")


def _check_difference(value: int) -> None:
    if not -MOST <= value <= MOST:
        raise ValueError(f"it is not between {float(-MOST):g} and {float(MOST):g}")


def _check_time(value: float) -> None:
    if not 0 <= value <= MOST:  # also true for NaN
        raise ValueError(f"it is not between 0 and {float(MOST):g}")


def _check_patience(value: float) -> None:
    if value != math.inf:  # a pause may wait for a person for ever
        _check_time(value)


def _check_json(value: Any) -> None:
    """Check a value of any type: its depth, and that its numbers are JSON's."""
    level = [value]
    for _ in range(DEEPEST + 1):
        if not level:
            return
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below += each.values()
            elif isinstance(each, list):
                below += each
            elif isinstance(each, float) and not math.isfinite(each):
                raise ValueError("it contains a number that is not finite")
            elif isinstance(each, int) and each.bit_length() > MOST_BITS:
                raise ValueError("it contains a number of more than 600 digits")
        level = below
    raise ValueError(f"it contains lists and objects in more than {DEEPEST} levels")


_OWN: Mapping[tuple[type, str], _Check] = {
    (ModelCallFinished, "estimate_error"): _check_difference,
    (BudgetPaused, "wait_s"): _check_patience,
    (QuestionAsked, "wait_s"): _check_patience,
}
"""Checks of the few fields that are neither counts nor finite times."""
