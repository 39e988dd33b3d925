"""Completes the stored record of a run: adds the events that its last records lack.

A journal stores a call's result and an agent's end before their events are published, and it gets
an event only with the next commit. So the last records of a process that died may have no events:
they are added here. Everything is pure; nothing of it is ever written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from agentnb.core.codec import plain
from agentnb.core.durable import MemoryEntry, MemoryList
from agentnb.core.events import (
    AgentCancelled,
    AgentCompleted,
    AgentExhausted,
    AgentFailed,
    AgentInterrupted,
    AgentSpawned,
    AgentTextDelta,
    Event,
    MemoryCreated,
    ModelCallFinished,
    ModelCallStarted,
    Row,
    RunFinished,
    RunStarted,
    ToolCallFinished,
    ToolCallStarted,
    is_terminal,
    rows_of,
)
from agentnb.core.records import FINISHED, CallRecord, EndRecord, RunJournal, ToolCallRecord
from agentnb.core.text import one_line
from agentnb.core.types import AgentStatus, Usage, id_at, path_key, path_of

_UNKNOWN_TIME = datetime.fromtimestamp(0, UTC)
PROCESS_DIED = "its process ended before it did"
"""Reason of an agent or a run that is `interrupted`."""
MOST_IN_EVENT = 2000
"""Most characters of an input or a result in an event."""
_Timed = tuple[float, Event]
_MOST_PER_ARGUMENT = 200
_MOST_ARGUMENTS = 20


def memories_in(rows: Iterable[Row], run_id: str) -> MemoryList:
    """The memories that the agents of a run stored, in order."""
    created = [row[1] for row in rows if isinstance(row[1], MemoryCreated)]
    return MemoryList(
        MemoryEntry(e.fact, e.agent_id, run_id, _time_of(e.created_at), e.memory_id)
        for e in created
    )


def _time_of(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):  # from a file, which may hold any number
        return _UNKNOWN_TIME


def whole_rows(journal: RunJournal, *, interrupted: bool) -> list[Row]:
    """The rows of a stored run, completed with the events that its records lack.

    Args:
        journal: The stored run.
        interrupted: Whether its process is gone. Then each agent without an end gets an
            `AgentInterrupted`, sub-agents before their parents, and the run a `RunFinished`, all at
            the last known time. A run that has ended is left unchanged.

    Returns:
        The stored rows, unchanged, then the added ones.
    """
    head = journal.head
    rows: list[Row] = rows_of(journal.entries).copy()
    if not rows:
        started = RunStarted(
            task_description=head.task,
            model=head.model,
            budget_total=head.budget_total,
            unit=head.unit,
            max_depth=head.max_depth,
            thread_id=head.thread_id,
        )
        rows.append((0.0, started))
    told = _Told(rows)
    if told.has_run_ended:
        return rows
    latest_s = max(row[0] for row in rows)
    for at_s, added in _not_told(journal, told):
        latest_s = max(latest_s, at_s)  # times in a record never decrease
        rows.append(_row(latest_s, added))
        told.learn(added)
    if interrupted and not told.has_run_ended:
        rows += interrupted_ends(rows, head.thread_id)
    return rows


def interrupted_ends(rows: Sequence[Row], root_id: str) -> list[Row]:
    """The ends of a run whose process ended before it, and of its agents: see `whole_rows`."""
    told, at_s = _Told(rows), max(row[0] for row in rows)
    finished = RunFinished(
        status=AgentStatus.INTERRUPTED,
        tokens_used=told.tokens_used,
        duration_ms=round(at_s * 1000),
        error=PROCESS_DIED,
    )
    ends = [
        _row(at_s, AgentInterrupted(agent_id=each, reason=PROCESS_DIED))
        for each in told.open_agents(root_id)
    ]
    return [*ends, (at_s, finished)]


def _row(at_s: float, event: Event) -> Row:
    if isinstance(event, AgentTextDelta):
        return at_s, event.agent_id, event.text
    return at_s, event


# -- what has events -------------------------------------------------------------------------------


@dataclass(slots=True)
class _ToldOfAgent:
    """How much of one agent's calls has events."""

    calls: int = 0
    """Number of calls that began. A call's number is its position among them."""
    calls_ended: int = 0
    pieces: int = 0
    """Pieces of the newest reply's text."""
    tools: Counter[str] = field(default_factory=Counter)
    """By id: how many tool calls began. They need not begin in the order of their numbers, since
    one may wait for approval. Some servers use an id twice."""
    tools_ended: Counter[str] = field(default_factory=Counter)
    """By id: how many tool calls ended."""
    has_ended: bool = False


class _Told:
    """What the rows of a record report, as far as records may know more."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.agents: dict[str, _ToldOfAgent] = {}
        self.has_run_ended = False
        self.tokens_used = 0
        """Budget tokens of the calls that have ended."""
        for row in rows:
            if len(row) == 3:
                self._of(row[1]).pieces += 1
            else:
                self.learn(row[1])

    def _of(self, agent_id: str) -> _ToldOfAgent:
        return self.agents.setdefault(agent_id, _ToldOfAgent())

    def learn(self, event: Event) -> None:
        match event:
            case AgentSpawned():
                self._of(event.agent_id)
            case AgentTextDelta():
                self._of(event.agent_id).pieces += 1
            case ModelCallStarted():
                agent = self._of(event.agent_id)
                agent.calls, agent.pieces = agent.calls + 1, 0
            case ModelCallFinished():
                self._of(event.agent_id).calls_ended += 1
                self.tokens_used += event.usage.budget_tokens
            case ToolCallStarted():
                self._of(event.agent_id).tools[event.tool_use_id] += 1
            case ToolCallFinished():
                self._of(event.agent_id).tools_ended[event.tool_use_id] += 1
            case RunFinished():
                self.has_run_ended = True
            case _ if is_terminal(event):
                self._of(event.agent_id).has_ended = True  # type: ignore[union-attr,arg-type]

    def open_agent(self, agent_id: str) -> _ToldOfAgent | None:
        """What has events of an agent; `None` if its spawn has none, or its end has one."""
        agent = self.agents.get(agent_id)
        return None if agent is None or agent.has_ended else agent

    def open_agents(self, root_id: str) -> list[str]:
        """Ids of the agents that have not ended, sub-agents before their parents."""
        ids = [agent_id for agent_id, agent in self.agents.items() if not agent.has_ended]
        return sorted(ids, key=lambda agent_id: path_key(path_of(agent_id, root_id)), reverse=True)


# -- what has records but no events ----------------------------------------------------------------


def _not_told(journal: RunJournal, told: _Told) -> Iterator[_Timed]:
    """Time and event of each missing event, in an order in which they could be published.

    No record can depend on an agent's end that was not published. So all calls come first, then the
    ends in the order of their records: a child's before its parent's.
    """
    root_id = journal.head.thread_id
    known: Counter[tuple[str, str]] = Counter()
    steps = [_rest_of_call(call, told, id_at(call.path, root_id)) for call in journal.calls]
    for tool_call in journal.tool_calls:
        known[place := (tool_call.path, tool_call.tool_use_id)] += 1
        steps.append(_rest_of_tool_call(tool_call, known[place], told))
    for step in sorted(filter(None, steps), key=lambda step: step[-1][0]):
        yield from step
    for end in journal.ends:
        if end.path is None:
            yield end.at_s, run_finished(end)
            continue
        agent_id = id_at(end.path, root_id)
        if told.open_agent(agent_id) is not None:
            yield end.at_s, agent_ended(end, agent_id)


def _rest_of_call(record: CallRecord, told: _Told, agent_id: str) -> list[_Timed]:
    """The missing events of a finished call, in order."""
    agent = told.open_agent(agent_id)
    if agent is None or record.status != FINISHED or record.number <= agent.calls_ended:
        return []
    events: list[_Timed] = []
    pieces = record.pieces
    if record.number > agent.calls:
        events.append((record.at_s, model_call_started(record, agent_id)))
    else:  # the agent's newest
        pieces = pieces[agent.pieces :]
    events += [(at_s, AgentTextDelta(agent_id=agent_id, text=text)) for at_s, text in pieces]
    ended_at_s = record.at_s + (record.duration_ms or 0) / 1000
    return [*events, (ended_at_s, model_call_finished(record, agent_id))]


def _rest_of_tool_call(record: ToolCallRecord, place: int, told: _Told) -> list[_Timed]:
    """The missing events of a finished tool call, in order.

    Args:
        record: The call.
        place: Its position among its agent's records with the same id, from 1.
        told: What has events.
    """
    agent = told.open_agent(record.agent_id)
    if agent is None or record.status != FINISHED or agent.tools_ended[record.tool_use_id] >= place:
        return []
    events: list[_Timed] = []
    if agent.tools[record.tool_use_id] < place:
        events.append((record.at_s, tool_call_started(record)))
    ended_at_s = record.at_s + (record.duration_ms or 0) / 1000
    return [*events, (ended_at_s, tool_call_finished(record))]


# -- events from records ---------------------------------------------------------------------------


def model_call_started(record: CallRecord, agent_id: str) -> ModelCallStarted:
    """The event of a model call's start."""
    return ModelCallStarted(
        agent_id=agent_id,
        request=record.request,
        model=record.model,
        attempt=record.attempt,
        is_synthesis=record.is_synthesis,
    )


def model_call_finished(record: CallRecord, agent_id: str) -> ModelCallFinished:
    """The event of a finished model call's end."""
    return ModelCallFinished(
        agent_id=agent_id,
        model=record.model,
        usage=record.usage or Usage(),
        duration_ms=record.duration_ms or 0,
        stop_reason=record.stop_reason,
        error=record.error["message"] if record.error else record.not_closed,
        message=record.message,
        estimate_error=record.estimate_error,
    )


def tool_call_started(record: ToolCallRecord) -> ToolCallStarted:
    """The event of a tool call's start, with a long input cut."""
    given, length = cut_input(record.input)
    return ToolCallStarted(
        agent_id=record.agent_id,
        tool_use_id=record.tool_use_id,
        name=record.name,
        input=given,
        input_length=length,
    )


def tool_call_finished(record: ToolCallRecord) -> ToolCallFinished:
    """The event of a finished tool call's end, with a long result cut."""
    text = record.result
    return ToolCallFinished(
        agent_id=record.agent_id,
        tool_use_id=record.tool_use_id,
        name=record.name,
        result_summary=one_line(text),
        is_error=record.is_error,
        duration_ms=record.duration_ms or 0,
        result=text[:MOST_IN_EVENT],
        result_length=len(text) if len(text) > MOST_IN_EVENT else None,
        media=tuple([block.named() for block in record.media]),
    )


def agent_ended(end: EndRecord, agent_id: str) -> Event:
    """The event of an agent's end."""
    error = end.error or ""
    common: dict[str, Any] = {
        "agent_id": agent_id,
        "text": end.text,
        "tokens_used": end.tokens_used,
        "duration_ms": end.duration_ms,
    }
    match end.status:
        case AgentStatus.COMPLETED:
            return AgentCompleted(**common, result_summary=one_line(end.text), cut=end.cut)
        case AgentStatus.CANCELLED:
            return AgentCancelled(**common, reason=error, by=end.by)
        case AgentStatus.EXHAUSTED:
            return AgentExhausted(**common, reason=error)
        case _:
            return AgentFailed(**common, error=error, will_retry=False, attempt=end.attempt)


def run_finished(end: EndRecord) -> RunFinished:
    """The event of the run's end."""
    return RunFinished(
        status=end.status,
        tokens_used=end.tokens_used,
        duration_ms=end.duration_ms,
        error=end.error,
    )


def cut_input(given: Any) -> tuple[Any, int | None]:
    """A tool's input for an event, cut if it is long.

    Returns:
        The input, or the beginnings of its first arguments; and the number of characters of the
        whole input as JSON, `None` if it is not cut.
    """
    if not _is_short(given):
        whole = json.dumps(plain(given), ensure_ascii=False)
        if len(whole) > MOST_IN_EVENT:
            return _shortened(given), len(whole)
    return given, None


def _is_short(given: Any) -> bool:
    """A quick check that an input needs no cut; true for most inputs that need none."""
    if type(given) is not dict or len(given) > _MOST_ARGUMENTS:
        return False
    length = 0
    for name, value in given.items():
        if type(name) is not str or type(value) not in (str, int, bool):
            return False
        length += len(name) + (len(value) if type(value) is str else value.bit_length())
    return length * 6 < MOST_IN_EVENT // 2  # a character takes at most six in JSON


def _shortened(given: Any) -> dict[str, Any]:
    """The beginnings of the first arguments."""
    arguments = plain(given)
    if not isinstance(arguments, dict):  # a provider may send something else
        arguments = {"input": arguments}
    first = list(arguments.items())[:_MOST_ARGUMENTS]
    return {name[:_MOST_PER_ARGUMENT]: _beginning(value) for name, value in first}


def _beginning(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return value if len(text) <= _MOST_PER_ARGUMENT else text[:_MOST_PER_ARGUMENT]
