"""What a run did before: its journal answers its agents, until they do something new.

A recovered run repeats its record from the beginning. Each agent asks its own part of the past
first: a recorded call, tool call or verdict is answered by its record, without a provider, the
budget or a limit. An act that no record answers is new. It waits at the *frontier* until all
records are taken: only then is it known whether the past still fits the run, what was spent, and
what the journal stores in place of the earlier record.

Except for the waiting, everything is pure; nothing here is written anywhere. `agentnb.core._past`
has the parts: the answers, the frontier, the cancels, and what concerns the whole run.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from agentnb.core._past import whole
from agentnb.core._past.answers import Answers
from agentnb.core._past.cancels import Cancels, Due
from agentnb.core._past.frontier import Frontier
from agentnb.core._past.whole import BudgetAct
from agentnb.core.events import (
    TOOL_CANCELLED,
    CycleDetected,
    DepthLimitReached,
    MemoryCreated,
    QuestionAsked,
    RunStarted,
    SpawnIgnored,
    ToolCallFinished,
    ToolCallStarted,
    rows_of,
)
from agentnb.core.records import (
    CANCELLED,
    DONE,
    FINISHED,
    CallRecord,
    EndRecord,
    Kept,
    OrderRecord,
    RunJournal,
    ToolCallRecord,
)
from agentnb.core.types import ROOT_PATH, CompletionRequest, path_of
from agentnb.core.words import Note

NO_LONGER_FITS = "its record no longer fits"
"""Why a run is cancelled whose recovery is refused."""
OTHER_CALL = "its call differs from the recorded one"
OTHER_TOOL_CALL = "its tool call differs from the recorded one"
MORE_RECORDED = "its record has steps that it no longer takes"


def spent_in(journal: RunJournal) -> int:
    """What a run has spent by its record, in its budget's unit; lost calls are estimated."""
    return whole.spent(journal)


class Miss(NamedTuple):
    """An act that no record answers."""

    path: str
    """The agent's path."""
    number: int
    """The act's position among the agent's calls, or its tool calls, from 1."""
    model: str = ""
    """`provider/model`; empty for a tool call."""
    key: str = ""
    """What the call means: see `agentnb.core.keys`."""
    request: CompletionRequest | None = None
    """The call; `None` for a tool call."""
    tool: ToolCallRecord | None = None
    """The tool call."""
    was: ToolCallRecord | None = None
    """The recorded tool call, if the tool was run again and returned something else."""


class Past:
    """The past of one run. For the run's loop only.

    Args:
        journal: The run's record.
        changed: What happens if an agent no longer fits its record: `refuse` the recovery, `keep`
            the recorded answers all the same, or `redo` the agent's work from there.
        new_total: The budget's total once new work begins; `None` to leave it unchanged.
    """

    is_done_again: ClassVar[bool] = False
    """Whether a new run repeats a recorded one, so that its changes are made once more."""

    def __init__(
        self, journal: RunJournal, *, changed: str = "refuse", new_total: int | None = None
    ) -> None:
        self.journal = journal
        self.changed = changed
        self.new_total = new_total
        self.repeats_unknown = False
        """Whether tool calls with effects whose outcome is unknown are called again."""
        self._agents: dict[str, AgentPast] = {}
        self._sort_records()
        self.frontier = Frontier(self._agents)
        self.cancels = Cancels(self._agents, self.frontier.at_and_below)
        self._stops: list[tuple[str, str]] = []

    def _sort_records(self) -> None:
        journal = self.journal
        for call in journal.calls:
            self._of(call.path).calls[call.number] = call
        for tool_call in journal.tool_calls:
            self._of(tool_call.path).tool_calls[tool_call.number] = tool_call
        for verdict in journal.verdicts:
            agent = self._of(verdict.path)
            if verdict.kind == DONE:
                agent.marks[verdict.value["tool_call"]] = verdict.value["mark"]
            else:
                agent.add_verdict(verdict)
        for end in journal.ends:
            if end.path is not None:
                self._of(end.path).end = end
        for order in journal.orders:
            if order.kind == "cancel" and order.value["agent"] is not None:
                self._of(order.value["agent"]).cancel_order = order
        if not self.is_done_again:
            self._note_open_words()
        self._note_what_tools_told()
        for agent in self._agents.values():
            agent.count()

    def _note_open_words(self) -> None:
        """Find the notes that agents have not read. They read them in the order of the orders."""
        read: Counter[str] = Counter()
        for verdict in self.journal.verdicts:
            if verdict.kind == "told":
                read[verdict.path] += len(verdict.value.get("notes", ()))
        for order in self.journal.orders:
            if order.kind == "tell":
                path = order.value["agent"]
                if read[path]:
                    read[path] -= 1
                else:
                    self._of(path).open_words.append(order)

    def _of(self, path: str) -> AgentPast:
        found = self._agents.get(path)
        if found is None:
            found = self._agents[path] = self._new(path)
        return found

    def _new(self, path: str) -> AgentPast:
        return AgentPast(self, path)

    def _note_what_tools_told(self) -> None:
        """Collect the events that tools published from inside their calls.

        A tool that is answered by its record does not publish them again.
        """
        begun: dict[str, int] = defaultdict(int)
        ended: dict[str, int] = defaultdict(int)
        for row in rows_of(self.journal.entries):
            if len(row) == 3:
                continue  # text; most rows are
            event = row[1]
            path = path_of(getattr(event, "agent_id", "") or "", self.journal.head.thread_id)
            match event:
                case ToolCallStarted():
                    begun[path] += 1
                case ToolCallFinished():
                    ended[path] += 1
                case (
                    MemoryCreated()
                    | CycleDetected(number=0)
                    | DepthLimitReached(tasks=())
                    | SpawnIgnored(tasks=())
                ) if begun[path] > ended[path]:
                    self._of(path).told_inside.append((ended[path], event))

    # -- its agents -------------------------------------------------------------------------------

    def is_marked(self, call: ToolCallRecord) -> bool:
        """Whether an open tool call is known to have done its work: its change has a mark."""
        return call.number in self._agents[call.path].marks

    def begin(self, path: str) -> AgentPast:
        """The past of an agent that starts now; an empty one for a new agent."""
        agent = self._of(path)
        agent.has_begun = True
        self.cancels.met(path, "begin")
        return agent

    def knows(self, path: str) -> bool:
        """Whether anything is recorded of an agent, or it has started."""
        return path in self._agents

    def kept(self, record: Kept) -> None:
        """Note that a record was made again."""
        frontier = self.frontier
        match record:
            case CallRecord(path=path, number=number, status=status) if status == FINISHED:
                frontier.took(path, "call", number)
            case ToolCallRecord(path=path, number=number, status=status) if status == FINISHED:
                frontier.took(path, "tool call", number)
            case EndRecord(path=path) if path is not None:
                frontier.took(path, "end", 0)
                if (agent := self._agents.get(path)) is not None and agent.left:
                    frontier.give_up(path, MORE_RECORDED)
                frontier.give_up_unstarted(path)

    # -- words ------------------------------------------------------------------------------------

    def has_ended(self, path: str) -> bool:
        """Whether an agent's recorded end will be repeated before anything new."""
        return path in self._agents and self._agents[path].ends_as_recorded

    def open_words(self) -> Iterator[tuple[str, Note]]:
        """Path and note of each unread note, per agent in order."""
        for path, agent in self._agents.items():
            for order in agent.open_words:
                yield path, Note(order.value["text"], order.by)

    # -- cancels ----------------------------------------------------------------------------------

    def when_cancelled(self, cancel: Due) -> None:
        """Call `cancel` with path, reason and author when a branch reaches its recorded cancel."""
        self.cancels.when_due(cancel)

    def stop_when_taken(self, path: str, reason: str) -> None:
        """Postpone an agent's stop of one below it until all records are taken."""
        self._stops.append((path, reason))

    def open_cancels(self) -> Iterator[tuple[str, str, str]]:
        """Path, reason and author of the cancels that are left when all records are taken."""
        yield from self.cancels.open()
        yield from ((path, reason, "agent") for path, reason in self._stops)

    # -- the whole run ----------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """The budget's total at the run's start."""
        return self.journal.head.budget_total

    @property
    def times(self) -> int:
        """How many times the run was recovered, this time included."""
        rows = self.journal.entries[:1]
        started = rows[0].event if rows else None
        return 1 + (started.recovered if isinstance(started, RunStarted) else 0)

    @property
    def last_question(self) -> str:
        """The id of the last question; empty if there was none."""
        rows = rows_of(self.journal.entries)
        events = (row[1] for row in rows if len(row) == 2)
        asked = [each.question_id for each in events if isinstance(each, QuestionAsked)]
        kept = [
            str(verdict.value.get("question", ""))
            for verdict in self.journal.verdicts
            if verdict.kind in ("approved", "planned", "sampled")
        ]
        return max([*asked, *kept], key=lambda each: (len(each), each), default="")

    def orders(self) -> Iterator[OrderRecord]:
        """The orders of persons, in order."""
        return iter(self.journal.orders)

    def budget_acts(self) -> list[BudgetAct]:
        """The recorded questions, decisions and new totals of the budget, in order."""
        return whole.budget_acts(self.journal)

    def pause_orders(self) -> list[OrderRecord]:
        """The pause and resume orders, in order."""
        return whole.pause_orders(self.journal)

    def still_paused(self) -> list[str | None]:
        """Paths of the agents that a person has paused, `None` for the run."""
        return whole.still_paused(self.journal)

    def spent(self) -> int | None:
        """What the ended calls have spent, in the budget's unit.

        `None` to count each as its record is used, since the budget has not counted them yet.
        """
        return whole.spent_by_calls(self.journal)

    def assigned_left(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Path and verdict of each task for another thread whose tool call was not repeated."""
        for agent in self._agents.values():
            if agent.has_begun:
                yield from ((agent.path, value) for value in agent.assigned(all_left=True))

    def open_tool_calls(self) -> Iterator[ToolCallRecord]:
        """The tool calls that were open when the process died, of agents that still fit.

        They are recorded again as open, since the process may die before their agents reach them.
        """
        left = {*self.misfits, *(path for path, _, _ in self.given_up)}
        for path, agent in self._agents.items():
            if agent.has_begun and path not in left:
                yield from (each for each in agent.tool_calls.values() if each.status != FINISHED)

    def used_s(self) -> float:
        """Seconds of its time limit that the run has used."""
        return whole.used_s(self.journal)

    def notes(self) -> dict[str, str]:
        """The notes that the agents wrote: the last text of each, by key."""
        return whole.notes(self.journal)

    def lost(self) -> Iterator[tuple[str, int, int]]:
        """Path, number and cost in the budget's unit of the calls open when the process died."""
        return whole.lost_calls(self.journal)

    # -- the frontier -----------------------------------------------------------------------------

    @property
    def is_refused(self) -> bool:
        """Whether the record was refused because it does not fit: no new work begins."""
        return self.frontier.is_refused

    def keeps(self, path: str, why: str) -> bool:
        """Whether to use a record that does not fit all the same; if so, note its agent."""
        if self.changed != "keep":
            return False
        self.misfits.setdefault(path, why)
        return True

    def refuse(self) -> None:
        """Refuse the record because it does not fit: no new work begins."""
        self.frontier.is_refused = True

    @property
    def misfits(self) -> dict[str, str]:
        """By path: why an agent no longer fits its record."""
        return self.frontier.misfits

    @property
    def given_up(self) -> set[tuple[str, str, int]]:
        """Path, kind and number of the records that were given up."""
        return self.frontier.given_up

    @property
    def is_taken_up(self) -> bool:
        """Whether new work has begun, or is about to."""
        return self.frontier.is_taken_up

    @property
    def is_over(self) -> bool:
        """Whether `go_on` of `when_taken` has ended: new work has begun, or the run ends."""
        return self.frontier.is_passed

    def when_taken(self, go_on: Callable[[], Awaitable[None]]) -> None:
        """Await `go_on` once, after the last record was taken and before new work begins."""
        self.frontier.when_taken(go_on)

    @property
    def tells_the_rest(self) -> bool:
        """Whether to publish the budget's remaining record before new work."""
        return True

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call `callback` when it is known whether the past fits, and which parts were taken."""
        self.frontier.when_settled(callback)

    async def go_on(self) -> None:
        """Stop waiting for records: new work begins, or the run ends."""
        await self.frontier.go_on()


class AgentPast(Answers):
    """The past of one agent: its records, and what follows for the run if they do not fit."""

    __slots__ = ("_past",)

    def __init__(self, past: Past, path: str) -> None:
        super().__init__(path)
        self._past = past

    @property
    def is_done_again(self) -> bool:
        """See `Past.is_done_again`."""
        return self._past.is_done_again

    @property
    def has_changed_below(self) -> bool:
        """Whether an agent below differs from its record."""
        return False

    @property
    def until(self) -> Callable[[float], Awaitable[None]] | None:
        """Waits until the run reaches a recorded time, in seconds; `None` if there is no pace."""
        return None

    @property
    def ends_as_recorded(self) -> bool:
        """Whether the agent's recorded end will be repeated before anything new."""
        return ("end", 0) in self.untaken

    @property
    def has_open_words(self) -> bool:
        """Whether the agent has unread notes from a person."""
        return bool(self.open_words)

    def take(self, kind: str, number: int) -> bool:
        """See `Answers.take`."""
        was_left = super().take(kind, number)
        self._met(kind, number)
        return was_left

    def call(
        self, number: int, key: str, model: str, request: CompletionRequest
    ) -> CallRecord | None:
        """The record of the call that the agent is about to make; `None` if it is new.

        Args:
            number: The call's number among the agent's.
            key: The call's key. See `agentnb.core.keys`.
            model: `provider/model`.
            request: The call.
        """
        record = self.call_left(number)
        if record is None:
            self._give_up_more()
        elif record.key == key or self._past.keeps(self.path, OTHER_CALL):
            if record.error == CANCELLED:
                self._met("call", number)
            return record
        else:
            self._past.frontier.give_up(self.path, OTHER_CALL)
        self._past.frontier.give_up_unstarted(self.path)
        return None

    def tool_call(self, now: ToolCallRecord) -> ToolCallRecord | None:
        """The record of a tool call that begins now; `None` if it is new or did not finish."""
        record = self.tool_call_left(now.number)
        if record is None:
            return None
        is_same = (record.name, record.input) == (now.name, now.input)
        if is_same or self._past.keeps(self.path, OTHER_TOOL_CALL):
            return record
        self._past.frontier.give_up(self.path, OTHER_TOOL_CALL)
        return None

    def tool_call_begins(self, number: int) -> None:
        """Note that a tool call begins: the recorded cancel that ended it may come from now on."""
        record = self.tool_call_left(number)
        if record is not None and record.is_error and record.result == TOOL_CANCELLED:
            self._met("tool call", number)

    def approval(self, now: ToolCallRecord, digest: str) -> Any:
        """The recorded approval or denial of a tool call; `None` if there is none.

        Args:
            now: The call as the model asks for it.
            digest: The call's digest. A verdict with another digest belongs to another call.
        """
        return self.verdict(
            "approved",
            lambda value: (value["tool_call"], value["digest"]) == (now.number, digest),
        )

    def of_record(self, kind: str, record: CallRecord) -> Any:
        """Take the verdict of a kind on a recorded call: its value; `None` if there is none."""
        return self.of_call(kind, record.number)

    def mark_of(self, now: ToolCallRecord) -> str | None:
        """The mark of the change that an unfinished tool call made; `None` if it made none."""
        record = self.tool_calls.get(now.number)
        is_same = record is not None and (record.name, record.input) == (now.name, now.input)
        return self.marks.get(now.number) if is_same else None

    def was_open(self, now: ToolCallRecord) -> bool:
        """Whether a tool call is recorded without an end, and must not be repeated."""
        record = self.tool_calls.get(now.number)
        if self._past.repeats_unknown or record is None:
            return False
        return record.status != FINISHED and record.name == now.name

    @property
    def asks_persons(self) -> bool:
        """Whether a person is asked a question that no record answers."""
        return True

    def started(self, number: int) -> bool:
        """Whether the sub-agent with this number was started in the record."""
        path = str(number) if self.path == ROOT_PATH else f"{self.path}.{number}"
        return self._past.knows(path)

    # -- what is new ------------------------------------------------------------------------------

    async def does_more(self) -> None:
        """Wait until the agent may do something new. Its records that are left no longer fit."""
        self._give_up_more()
        await self.is_taken()

    def _give_up_more(self) -> None:
        """Give up the agent's records that are left, if any: it does something new instead."""
        if self.untaken - ({("end", 0)} if self.was_cancelled else set()):
            self._past.frontier.give_up(self.path, MORE_RECORDED)

    async def is_taken(self, new: Miss | None = None) -> None:
        """See `Frontier.is_taken`. An agent that was cancelled waits for its cancel instead.

        Args:
            new: The act that no record answers; `None` for none.
        """
        await self.is_cancelled()
        await self._past.frontier.is_taken()

    async def is_cancelled(self) -> None:
        """Wait for the recorded cancel, if one ended the agent; never returns then."""
        if self.was_cancelled and (self.end is None or ("end", 0) in self.untaken):
            self._met("arrive")
            await asyncio.Event().wait()

    def _met(self, kind: str, number: int = 0) -> None:
        self._past.cancels.met(self.path, kind, number)
