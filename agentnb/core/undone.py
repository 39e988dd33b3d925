"""Removes from a run's record what the exhausted budget decided, so that the run can continue.

An agent that the budget stopped continues at its first call that was not made, or was cut short.
Its ancestors read its result, so they continue from the first call that depends on it: their
synthesis, or the turn after a tool call that reported on it. Whatever is complete and depends on
none of this stays.

Pure functions on the record; the ordinary recovery then repeats what is left.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from agentnb.core._past.answers import parent_of
from agentnb.core._past.whole import LOST, open_pauses, spent
from agentnb.core.events import (
    AgentSpawned,
    CycleDetected,
    DepthLimitReached,
    LimitReached,
    ModelCallStarted,
    SpawnIgnored,
)
from agentnb.core.limits import reason_of
from agentnb.core.questions import ENDED
from agentnb.core.records import CallRecord, OrderRecord, RunJournal, ToolCallRecord, VerdictRecord
from agentnb.core.spawn import SPAWN
from agentnb.core.types import ROOT_PATH, AgentStatus, SpawnMode, ToolUseBlock, path_key, path_of

_CLOCK_S = 0.001
"""Tolerance in seconds: durations are whole milliseconds, so computed ends are not exact."""


class Undone(NamedTuple):
    """A record without what the exhausted budget decided."""

    journal: RunJournal
    again: tuple[str, ...] = ()
    """Paths of the agents that continue or start again, in path order."""
    repeated: tuple[ToolCallRecord, ...] = ()
    """Tool calls with effects that were removed: their agents decide anew."""


def undo_want_of_budget(journal: RunJournal) -> Undone:
    """Remove what a run did not do, or did differently, because its budget was exhausted.

    What the removed calls have spent stays spent: a `lost` verdict of the root holds it.
    """
    run = _Run(journal)
    cuts = _cuts(run)
    if not cuts and not any(map(_is_stop, journal.verdicts)):
        return Undone(journal)
    left = _Left(run, cuts)
    dropped_tools = [each for each in journal.tool_calls if not left.has_tool_call(each)]
    kept = replace(
        journal,
        calls=tuple(each for each in journal.calls if left.has_call(each)),
        tool_calls=tuple(each for each in journal.tool_calls if left.has_tool_call(each)),
        orders=tuple(each for each in journal.orders if left.has_order(each)),
        verdicts=_with_lost(list(left.verdicts()), left.spent_by_dropped()),
        ends=tuple(each for each in journal.ends if each.path and left.has_end(each.path)),
    )
    again = sorted({*cuts, *filter(left.is_dropped, run.paths)}, key=path_key)
    return Undone(kept, tuple(again), tuple(each for each in dropped_tools if each.effects))


def _with_lost(verdicts: list[VerdictRecord], tokens: int) -> tuple[VerdictRecord, ...]:
    if tokens:
        number = 1 + max((each.number for each in verdicts if each.path == ROOT_PATH), default=0)
        value = {"number": 0, "tokens": tokens}
        verdicts.append(VerdictRecord(ROOT_PATH, number, LOST, value))
    return tuple(verdicts)


def _is_stop(verdict: VerdictRecord) -> bool:
    return verdict.kind == "warned" and verdict.value["decision"] == "stop"


# -- the record, by agent -------------------------------------------------------------------------


class _Run:
    """The record of a run, sorted by agent."""

    def __init__(self, journal: RunJournal) -> None:
        self.journal = journal
        self.calls: dict[str, dict[int, CallRecord]] = defaultdict(dict)
        self.tool_calls: dict[str, list[ToolCallRecord]] = defaultdict(list)
        self.job_ids: dict[str, str] = {}
        """By path of the job's agent."""
        self.ended_at_s: dict[str, float] = {}
        self.cancelled: set[str] = set()
        self._turns: dict[str, list[tuple[ToolCallRecord, int]]] = {}
        for call in journal.calls:
            self.calls[call.path][call.number] = call
        for tool_call in journal.tool_calls:
            self.tool_calls[tool_call.path].append(tool_call)
        for verdict in journal.verdicts:
            if verdict.kind == "job":
                self.job_ids[_child_of(verdict.path, verdict.value["number"])] = verdict.value["id"]
        for order in journal.orders:
            if order.kind == "cancel" and order.value["agent"] is not None:
                self.cancelled.add(order.value["agent"])
        for end in journal.ends:
            if end.path is not None:
                self.ended_at_s[end.path] = end.at_s
                if end.status is AgentStatus.CANCELLED:
                    self.cancelled.add(end.path)
        self._read_events()

    def _read_events(self) -> None:
        self.spawned: dict[str, AgentSpawned] = {}
        self.born: dict[str, int] = {}
        """By path: how many calls its parent had begun when it started."""
        self.numbers: dict[str, list[tuple[int, int]]] = defaultdict(list)
        """By path: for each task that the agent asked for, how many calls it had begun by then, and
        the task's number."""
        self.limits: set[str] = set()
        """The reasons of limits other than the budget that ended the run's work."""
        begun: Counter[str] = Counter()
        for entry in self.journal.entries:
            event = entry.event
            path = path_of(getattr(event, "agent_id", "") or "", self.journal.head.thread_id)
            numbers: Sequence[int] = ()
            match event:
                case ModelCallStarted():
                    begun[path] += 1
                case AgentSpawned() if path != ROOT_PATH:
                    self.spawned[path] = event
                    self.born[path] = begun[parent_of(path)]
                    path, numbers = parent_of(path), (_number_of(path),)
                case SpawnIgnored() | DepthLimitReached():
                    numbers = event.numbers
                case CycleDetected(number=int(number)) if number:
                    numbers = (number,)
                case LimitReached():
                    self.limits.add(reason_of(event.limit, event.value))
            self.numbers[path] += [(begun[path], number) for number in numbers]

    @property
    def paths(self) -> set[str]:
        """Paths of the agents of which anything is recorded."""
        return {*self.calls, *self.tool_calls, *self.ended_at_s, *self.born}

    def is_of_budget(self, words: str) -> bool:
        """Whether a verdict's reason names the budget, and no other limit."""
        return not words.startswith(tuple(self.limits))

    def ended_its_question(self, planned: Mapping[str, Any]) -> bool:
        """Whether the budget ended before the question about a plan was answered."""
        reason = planned["reason"]
        return planned["answer"] == ENDED and bool(reason) and self.is_of_budget(reason)

    def is_in_cancelled_branch(self, path: str) -> bool:
        """Whether the agent or an ancestor was cancelled; it then stays cancelled."""
        return _is_in(path, self.cancelled)

    def first_synthesis(self, path: str) -> int:
        """The number of an agent's first synthesis call; without one, that of its next call."""
        calls = self.calls[path]
        found = [number for number, call in calls.items() if call.is_synthesis]
        return min(found, default=1 + max(calls, default=0))

    def turns(self, path: str) -> Sequence[tuple[ToolCallRecord, int]]:
        """Each tool call of an agent, with the number of the call that asked for it."""
        if path not in self._turns:
            self._turns[path] = list(self._find_turns(path))
        return self._turns[path]

    def _find_turns(self, path: str) -> Iterator[tuple[ToolCallRecord, int]]:
        asked = (
            (number, block.id)
            for number, call in sorted(self.calls[path].items())
            if call.message is not None
            for block in call.message.content
            if isinstance(block, ToolUseBlock)
        )
        # Tool calls are numbered in the order in which they were asked for; some were not run.
        for tool_call in sorted(self.tool_calls[path], key=lambda each: each.number):
            for number, tool_use_id in asked:
                if tool_use_id == tool_call.tool_use_id:
                    yield tool_call, number
                    break

    def reports_on(self, tool_call: ToolCallRecord, child: str) -> bool:
        """Whether a tool call's result reported the end of a job to its agent."""
        job_id, ended_at_s = self.job_ids.get(child), self.ended_at_s.get(child)
        if job_id is None or ended_at_s is None or tool_call.name == SPAWN:
            return False
        returned_at_s = tool_call.at_s + (tool_call.duration_ms or 0) / 1000 + _CLOCK_S
        return job_id in tool_call.result and returned_at_s >= ended_at_s


def _is_in(path: str, tops: Container[str]) -> bool:
    """Whether an agent is in `tops`, or below one of them."""
    while path not in tops and path != ROOT_PATH:
        path = parent_of(path)
    return path in tops


def _child_of(path: str, number: int) -> str:
    return str(number) if path == ROOT_PATH else f"{path}.{number}"


def _number_of(path: str) -> int:
    return int(path.rpartition(".")[2])


# -- where agents continue ------------------------------------------------------------------------


def _cuts(run: _Run) -> dict[str, int]:
    """By path of each agent that continues: the number of its first call that is removed."""
    cuts: dict[str, int] = {}
    for verdict in run.journal.verdicts:
        cut = _cut_by(verdict, run)
        if cut is not None and not run.is_in_cancelled_branch(verdict.path):
            cuts[verdict.path] = min(cut, cuts.get(verdict.path, cut))
    for path in sorted(cuts, key=lambda each: -len(path_key(each))):
        while path != ROOT_PATH:
            child, path = path, parent_of(path)
            reported = [1 + turn for each, turn in run.turns(path) if run.reports_on(each, child)]
            cut = min([run.first_synthesis(path), *reported])
            cuts[path] = min(cut, cuts.get(path, cut))
    return cuts


def _cut_by(verdict: VerdictRecord, run: _Run) -> int | None:
    """The number of the call at which an agent continues, if the budget decided the verdict."""
    value = verdict.value
    match verdict.kind:
        case "exhausted" if run.is_of_budget(value["ended_by"]):
            return int(value["call"])
        case "halted" if run.is_of_budget(value["ended_by"]):
            call = run.calls[verdict.path].get(value["call"])
            was_cut = call is None or (call.stop_reason is None and call.error is None)
            return int(value["call"]) if was_cut else None
        case "clamped":
            call = run.calls[verdict.path].get(value["call"])
            was_cut = call is not None and call.stop_reason == "max_tokens"
            return int(value["call"]) if was_cut else None
        case "planned" | "sampled" if run.ended_its_question(value):
            return run.first_synthesis(verdict.path)
        case "skipped" if run.is_of_budget(value["why"]):
            return run.first_synthesis(verdict.path)
        case "fitted" if not value["fits"] or {value["tool_limit"], value["body_limit"]} != {None}:
            return run.first_synthesis(verdict.path)
    return None


# -- what is left ---------------------------------------------------------------------------------


class _Left:
    """Decides which parts of a record stay.

    Args:
        run: The record.
        cuts: See `_cuts`.
    """

    def __init__(self, run: _Run, cuts: Mapping[str, int]) -> None:
        self._run = run
        self._cuts = cuts
        self._turns = {path: {t.number: turn for t, turn in run.turns(path)} for path in cuts}
        self._unborn = {
            path for path, born in run.born.items() if born >= cuts.get(parent_of(path), born + 1)
        }
        """Agents that were started by removed calls: other agents will have their paths."""
        self._begin_again = set(self._later_in_sequences())
        ended = {end.path for end in run.journal.ends}
        self._ended_pauses = [
            each for each in open_pauses(run.journal) if each.value["agent"] in ended
        ]
        """Pause orders that ended with their agent, or the run, which now continues: now void."""

    def _later_in_sequences(self) -> Iterator[str]:
        """Agents of a sequence that come after one that continues: they got its result."""
        spawned = self._run.spawned
        for path in self._cuts:
            if path in spawned and spawned[path].mode is SpawnMode.SEQUENTIAL:
                for other, event in spawned.items():
                    is_sibling = parent_of(other) == parent_of(path)
                    if is_sibling and event.mode is SpawnMode.SEQUENTIAL:
                        if _number_of(other) > _number_of(path):
                            yield other

    def is_dropped(self, path: str) -> bool:
        """Whether nothing of an agent stays."""
        return any(_is_in(path, tops) for tops in (self._unborn, self._begin_again))

    def has_call(self, call: CallRecord) -> bool:
        return not self.is_dropped(call.path) and self._is_before_cut(call.path, call.number)

    def has_tool_call(self, tool_call: ToolCallRecord) -> bool:
        path = tool_call.path
        if self.is_dropped(path):
            return False
        if path not in self._cuts:
            return True
        children = (child for child in self._cuts if child != path and parent_of(child) == path)
        if any(self._run.reports_on(tool_call, child) for child in children):
            return False
        turn = self._turns[path].get(tool_call.number)
        return turn is None or self._is_before_cut(path, turn)

    def _has_tool(self, path: str, number: int) -> bool:
        tool_calls = self._run.tool_calls[path]
        found = next((each for each in tool_calls if each.number == number), None)
        # A tool call that had not begun yet was asked for by the newest call.
        return path not in self._cuts if found is None else self.has_tool_call(found)

    def has_end(self, path: str) -> bool:
        return path not in self._cuts and not self.is_dropped(path)

    def has_order(self, order: OrderRecord) -> bool:
        if order in self._ended_pauses:
            return False
        is_of_agent = order.kind in ("cancel", "pause", "resume", "tell")
        agent = order.value["agent"] if is_of_agent else None
        return agent is None or not _is_in(agent, self._unborn)

    def verdicts(self) -> Iterator[VerdictRecord]:
        question: VerdictRecord | None = None
        for verdict in self._run.journal.verdicts:
            if verdict.kind == "asked":
                question = verdict
            elif verdict.kind == "warned":
                if not _is_stop(verdict):
                    yield from filter(None, (question, verdict))
                question = None
            elif not self.is_dropped(verdict.path) and self._has_verdict(verdict):
                yield verdict
        if question is not None:  # still open
            yield question

    def _has_verdict(self, verdict: VerdictRecord) -> bool:
        path, value = verdict.path, verdict.value
        match verdict.kind:
            case "told":  # also those of the repeated call: nobody sends them again
                return bool(value["call"] <= self._cuts.get(path, value["call"]))
            case "halted" | "exhausted":
                is_of_budget = self._run.is_of_budget(value["ended_by"])
                return not is_of_budget and self._is_before_cut(path, value["call"])
            case "clamped" | "wrong_answer":
                return self._is_before_cut(path, value["call"])
            case "skipped":
                return not self._run.is_of_budget(value["why"])
            case "fitted":
                return self._is_before_cut(path, self._run.first_synthesis(path))
            case "job":
                return self._holds_numbers(path, [value["number"]])
            case "approved" | "held":  # for a repeated call, a person is asked again
                return self._has_tool(path, value["tool_call"])
            case "planned" | "sampled" if self._run.ended_its_question(value):
                return False
            case "admitted" | "planned" | "sampled":
                return self._holds_numbers(path, value.get("numbers", ()))
        return True

    def _is_before_cut(self, path: str, number: int) -> bool:
        return path not in self._cuts or number < self._cuts[path]

    def _holds_numbers(self, path: str, numbers: Sequence[int]) -> bool:
        """Whether an agent asked for these tasks in calls that stay."""
        cut = self._cuts.get(path)
        if cut is None:
            return True
        free = min((each for at, each in self._run.numbers[path] if at >= cut), default=None)
        return free is None or all(number < free for number in numbers)

    def spent_by_dropped(self) -> int:
        """What the removed calls have spent, in the budget's unit."""
        journal = self._run.journal
        dropped = [each for each in journal.calls if not self.has_call(each)]
        gone = {path for path in self._run.paths if self.is_dropped(path)}
        before = [each for each in journal.verdicts if each.kind == LOST and each.path in gone]
        return spent(replace(journal, calls=tuple(dropped), verdicts=tuple(before)))
