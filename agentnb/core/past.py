"""What a run did before: its journal answers its agents, until they do something new.

A run that is recovered is played again from its beginning. Each agent asks its own part of the past
first: a call, a tool call, a verdict that was recorded is answered by the record, and asks neither
a provider nor the budget nor a limit. An act that no record answers is new. It waits at the
*frontier* until everything that was kept has been taken: only then is it known that the past still
fits the run, what was spent, and what has to be kept in place of the earlier record.

Everything is pure but the waiting; nothing here is written anywhere.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping
from typing import Any, NamedTuple

from agentnb.core.budget import estimate_input_tokens, estimate_tokens
from agentnb.core.events import (
    TOOL_CANCELLED,
    BudgetPaused,
    BudgetResumed,
    CycleDetected,
    DepthLimitReached,
    Event,
    MemoryCreated,
    RunStarted,
    SpawnIgnored,
    ToolCallFinished,
    ToolCallStarted,
)
from agentnb.core.records import (
    CANCELLED,
    FINISHED,
    CallRecord,
    EndRecord,
    Kept,
    OrderRecord,
    RunJournal,
    ToolCallRecord,
    VerdictRecord,
)
from agentnb.core.types import ROOT_PATH, AgentStatus, path_of

LOST = "lost"
"""The verdict on a call that was open when the process died: what it may have spent."""
WRITES_NOTE = "workspace_write"
OTHER_CALL = "its call is another one than the one that was recorded"
OTHER_TOOL_CALL = "its tool call is another one than the one that was recorded"
MORE_RECORDED = "more is recorded of it than it does now"
NOT_STARTED = "it was started before, and is not now"


class BudgetAct(NamedTuple):
    """Something that was kept of a run's budget: a question, a decision, a new total."""

    place: tuple[str, int]
    """Path and number of the call that was the newest to begin."""
    kind: str
    """`asked` or `warned`, see `agentnb.core.records.VerdictRecord`; or `budget`."""
    value: Any
    by: str = ""


class Past:
    """The past of one run. For the run's loop only.

    Args:
        journal: What was kept of it.
        changed: What is done with an agent that no longer fits its record: `refuse` the recovery,
            `keep` what is recorded, or `redo` it from there.
    """

    def __init__(self, journal: RunJournal, *, changed: str = "refuse") -> None:
        self.journal = journal
        self.changed = changed
        self.repeats_unknown = False
        """Whether a tool with effects that was open is called again."""
        self.is_refused = False
        """Whether it was found not to fit: nothing new begins any more."""
        self.misfits: dict[str, str] = {}
        """By path: why an agent no longer fits what was recorded of it."""
        self.given_up: set[tuple[str, str, int]] = set()
        """Path, kind and number of the records that were not taken."""
        self._agents: dict[str, AgentPast] = {}
        self._children: dict[str, list[str]] = defaultdict(list)
        for call in journal.calls:
            self._of(call.path).calls[call.number] = call
        for tool_call in journal.tool_calls:
            self._of(tool_call.path).tool_calls[tool_call.number] = tool_call
        for verdict in journal.verdicts:
            self._of(verdict.path).verdicts.append(verdict)
        for end in journal.ends:
            if end.path is not None:
                self._of(end.path).end = end
        for order in journal.orders:
            if order.kind == "cancel" and order.value["agent"] is not None:
                self._of(order.value["agent"]).cancel_order = order
        self._note_what_tools_told()
        for path, agent in self._agents.items():
            agent.count()
            if path != ROOT_PATH:
                self._children[_parent_of(path)].append(path)
        self._left = sum(agent.left for agent in self._agents.values())
        self._cancels = [
            _Cancel(*of, list(self._at_and_below(of[0])))
            for of in filter(None, map(self._topmost_cancel, self._agents.values()))
        ]
        self._stops: list[tuple[str, str]] = []
        self._is_taken = asyncio.Event()
        self._going_on: asyncio.Future[None] | None = None
        self._go_on: Callable[[], Awaitable[None]] | None = None
        self._on_settled: Callable[[], None] | None = None
        self._check()

    def _of(self, path: str) -> AgentPast:
        found = self._agents.get(path)
        if found is None:
            found = self._agents[path] = AgentPast(self, path)
        return found

    def _note_what_tools_told(self) -> None:
        """Take from the events what tools tell that are answered and not done again."""
        begun: dict[str, int] = defaultdict(int)
        ended: dict[str, int] = defaultdict(int)
        for entry in self.journal.entries:
            event = entry.event
            path = path_of(getattr(event, "agent_id", ""), self.journal.head.thread_id)
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

    def begin(self, path: str) -> AgentPast:
        """The past of an agent that begins now; an empty one for an agent that is new."""
        agent = self._of(path)
        agent.has_begun = True
        agent.met("begin")
        return agent

    def knows(self, path: str) -> bool:
        """Whether anything is known of an agent."""
        return path in self._agents

    def _topmost_cancel(self, agent: AgentPast) -> tuple[str, str, str] | None:
        """Path, reason and author of the cancel of an agent, if it was not its parent's, too."""
        path, end, order = agent.path, agent.end, agent.cancel_order
        if path == ROOT_PATH or not agent.was_cancelled:
            return None
        if (parent := self._agents.get(_parent_of(path))) is not None and parent.was_cancelled:
            return None
        if end is not None:
            return path, end.error or "", end.by
        assert order is not None  # the process died between the order and the end
        return path, order.value["reason"], order.by

    def when_cancelled(self, cancel: Callable[[str, str, str], None]) -> None:
        """Call `cancel` with path, reason and author when a branch has come to its cancel."""
        for each in self._cancels:
            each.when_due(cancel)

    # -- what was left open -----------------------------------------------------------------------

    def stop_when_taken(self, path: str, reason: str) -> None:
        """An agent stops one below it: this waits until nothing of it is left to be taken."""
        self._stops.append((path, reason))

    def open_cancels(self) -> Iterator[tuple[str, str, str]]:
        """Path, reason and author of the cancels that are left when everything was taken."""
        yield from (each.of for each in self._cancels if each.is_open)
        yield from ((path, reason, "agent") for path, reason in self._stops)

    def notes(self) -> dict[str, str]:
        """The notes that the agents had written, each as it was written last."""
        calls = [
            call
            for agent in self._agents.values()
            for call in agent.tool_calls.values()
            if call.name == WRITES_NOTE and call.status == FINISHED and not call.is_error
        ]
        calls.sort(key=lambda call: call.at_s + (call.duration_ms or 0) / 1000)
        return {call.input["key"]: call.input["text"] for call in calls}

    @property
    def total(self) -> int:
        """The budget's total with which the run began."""
        return self.journal.head.budget_total

    def budget_acts(self) -> list[BudgetAct]:
        """What was asked, decided and ordered about the budget, in order."""
        orders = [
            BudgetAct((each.path, each.number), each.kind, each.value, each.by)
            for each in self.journal.orders
            if each.kind == "budget"
        ]
        acts: list[BudgetAct] = []
        for each in self._of(ROOT_PATH).verdicts:
            if each.kind in ("asked", "warned"):
                act = BudgetAct((each.value["path"], each.value["number"]), each.kind, each.value)
                while orders and self._comes_first(orders[0], act):
                    acts.append(orders.pop(0))
                acts.append(act)
        return acts + orders

    def _comes_first(self, order: BudgetAct, verdict: BudgetAct) -> bool:
        begun, asked = self._sent_at_s(order.place), self._sent_at_s(verdict.place)
        is_answer = verdict.value.get("answer") in ("raised", "lowered")
        return begun < asked or (begun == asked and is_answer)

    def _sent_at_s(self, place: tuple[str, int]) -> float:
        call = self._agents[place[0]].calls.get(place[1]) if place[0] in self._agents else None
        return 0.0 if call is None else call.at_s

    def used_s(self) -> float:
        """Seconds from the run's beginning to the last that is known of it, without pauses."""
        journal, entries = self.journal, self.journal.entries
        times = [0.0, *(entry.at_s for entry in entries[-1:])]
        times += [each.at_s for each in journal.orders]
        times += [each.at_s for each in journal.ends]
        times += [each.at_s + (each.duration_ms or 0) / 1000 for each in journal.calls]
        times += [each.at_s + (each.duration_ms or 0) / 1000 for each in journal.tool_calls]
        last_s, paused_s = max(times), 0.0
        since_s: float | None = None
        for entry in entries:
            if isinstance(entry.event, BudgetPaused):
                since_s = entry.at_s
            elif isinstance(entry.event, BudgetResumed) and since_s is not None:
                paused_s, since_s = paused_s + entry.at_s - since_s, None
        return last_s - paused_s - (0.0 if since_s is None else last_s - since_s)

    # -- the frontier -----------------------------------------------------------------------------

    @property
    def times(self) -> int:
        """How many times the run was recovered, this time included."""
        rows = self.journal.entries[:1]
        started = rows[0].event if rows else None
        return 1 + (started.recovered if isinstance(started, RunStarted) else 0)

    @property
    def is_over(self) -> bool:
        """Whether everything was taken, and new work goes on."""
        return self._going_on is not None and self._going_on.done()

    def when_taken(self, go_on: Callable[[], Awaitable[None]]) -> None:
        """Await `go_on` once, when everything was taken and before anything new begins."""
        self._go_on = go_on

    async def is_taken(self) -> None:
        """Return when everything that was kept was taken, and new work may begin.

        Raises what the run's `go_on` raises.
        """
        if not self.is_over:
            await self._is_taken.wait()
            await self.go_on()
        if self.is_refused:
            await asyncio.Event().wait()  # the run is being cancelled

    async def go_on(self) -> None:
        """New work begins, or the run ends: nothing of the past is waited for any more."""
        if self._going_on is None:
            self._going_on = asyncio.ensure_future(self._go_on_once())
        await asyncio.shield(self._going_on)

    async def _go_on_once(self) -> None:
        if self._go_on is not None:
            await self._go_on()
        if self._on_settled is not None:
            self._on_settled()

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call `callback` when it is known whether the past fits, and what of it was taken."""
        self._on_settled = callback

    def kept(self, record: Kept) -> None:
        """Note that something was kept again."""
        match record:
            case CallRecord(path=path, number=number, status=status) if status == FINISHED:
                self._took(path, "call", number)
            case ToolCallRecord(path=path, number=number, status=status) if status == FINISHED:
                self._took(path, "tool call", number)
            case EndRecord(path=path) if path is not None:
                self._took(path, "end", 0)
                if (agent := self._agents.get(path)) is not None and agent.left:
                    self.give_up(path, MORE_RECORDED)
                self.give_up_unstarted(path)

    def _took(self, path: str, kind: str, number: int) -> None:
        agent = self._agents.get(path)
        if agent is not None and agent.take(kind, number):
            self._left -= 1
            self._check()

    def give_up(self, path: str, why: str) -> None:
        """Wait no longer for what is left of an agent and of those below it, and what follows.

        Those above wait for it, so what they did next cannot be told any more either.
        """
        if not any(each.left for each in self._at_and_below(path)):
            return
        self.misfits.setdefault(path, why)
        for each in self._at_and_below(path):
            self._left -= each.give_up()
        at = path
        while at != ROOT_PATH:
            at = _parent_of(at)
            self._left -= self._agents[at].give_up() if at in self._agents else 0
            for child in self._children.get(at, ()):
                if not self._agents[child].has_begun:
                    self._left -= sum(each.give_up() for each in self._at_and_below(child))
        self._check()

    def lost(self) -> Iterator[tuple[str, int, int]]:
        """Path, number and tokens of the calls that were open when the process died.

        Also those that were open at an earlier death. What they spent is not known: the estimate of
        their input, and of what had arrived of the reply.
        """
        for agent in self._agents.values():
            for each in agent.verdicts:
                if each.kind == LOST:
                    yield agent.path, each.value["number"], each.value["tokens"]
            for call in agent.calls.values():
                if call.status != FINISHED:
                    tokens = estimate_input_tokens(call.request) + estimate_tokens(call.text)
                    yield agent.path, call.number, tokens

    def give_up_unstarted(self, path: str) -> None:
        """Wait no longer for the sub-agents of an agent that it has not started."""
        for child in self._children.get(path, ()):
            if not self._agents[child].has_begun:
                self.give_up(child, NOT_STARTED)

    def _at_and_below(self, path: str) -> Iterator[AgentPast]:
        if path in self._agents:
            yield self._agents[path]
        for child in self._children.get(path, ()):
            yield from self._at_and_below(child)

    def _check(self) -> None:
        if self._left == 0:
            self._is_taken.set()


class AgentPast:
    """The past of one agent: empty for one that is new."""

    __slots__ = (
        "_cancel",
        "_ended",
        "_order_of_ends",
        "_past",
        "_taken_verdicts",
        "_untaken",
        "calls",
        "cancel_order",
        "end",
        "has_begun",
        "path",
        "told_inside",
        "tool_calls",
        "verdicts",
    )

    def __init__(self, past: Past, path: str) -> None:
        self.path = path
        self.calls: dict[int, CallRecord] = {}
        """By number; so are the tool calls."""
        self.tool_calls: dict[int, ToolCallRecord] = {}
        self.verdicts: list[VerdictRecord] = []
        self.end: EndRecord | None = None
        self.cancel_order: OrderRecord | None = None
        """A person's order to cancel it."""
        self.told_inside: list[tuple[int, Event]] = []
        """What its tools told of themselves: how many of its tool calls had ended, the event."""
        self.has_begun = False
        self._past = past
        self._untaken: set[tuple[str, int]] = set()
        self._taken_verdicts: set[int] = set()
        self._order_of_ends: list[int] = []
        """Numbers of the tool calls that have ended, in that order."""
        self._ended: dict[int, asyncio.Event] = {}
        self._cancel: _Cancel | None = None
        """The recorded cancel that ends it, or ended it."""

    def count(self) -> None:
        """Count what is there to be taken, once all records are here."""
        calls = [each.number for each in self.calls.values() if each.status == FINISHED]
        ended = [each for each in self.tool_calls.values() if each.status == FINISHED]
        ended.sort(key=lambda each: (each.ended, each.number))
        self._order_of_ends = [each.number for each in ended]
        self._ended = {number: asyncio.Event() for number in self._order_of_ends}
        self._untaken = {("call", number) for number in calls}
        self._untaken |= {("tool call", number) for number in self._order_of_ends}
        if self.end is not None:
            self._untaken.add(("end", 0))

    @property
    def left(self) -> int:
        """How many records are left to be taken."""
        return len(self._untaken)

    def take(self, kind: str, number: int) -> bool:
        """Note that a record was kept again. Returns whether it was one of those left."""
        if kind == "tool call" and number in self._ended:
            self._ended[number].set()
        self.met(kind, number)
        if (kind, number) not in self._untaken:
            return False
        self._untaken.discard((kind, number))
        return True

    def give_up(self) -> int:
        """Leave what is left. Returns how many records that were."""
        left = len(self._untaken)
        self._past.given_up |= {(self.path, *each) for each in self._untaken}
        self._untaken.clear()
        for event in self._ended.values():
            event.set()
        return left

    # -- answers ----------------------------------------------------------------------------------

    def call(self, number: int, key: str) -> CallRecord | None:
        """The record of the call that the agent is about to make; `None` if it is new.

        Args:
            number: The call's among the agent's.
            key: What it means. See `agentnb.core.keys`.
        """
        record = self.calls.get(number)
        if record is not None and ("call", number) in self._untaken:
            if record.key == key or self._past.changed == "keep":
                if record.error == CANCELLED:
                    self.met("call", number)
                return record
            self._past.give_up(self.path, OTHER_CALL)
        else:
            self._give_up_more()
        self._past.give_up_unstarted(self.path)
        return None

    def has_call(self, number: int) -> bool:
        """Whether a call is recorded as finished, and was not made again so far."""
        return ("call", number) in self._untaken

    def has_begun_call(self, number: int) -> bool:
        """Whether a call is recorded, finished or not."""
        return number in self.calls

    def tool_call(self, now: ToolCallRecord) -> ToolCallRecord | None:
        """The record of a tool call that begins now; `None` if it is new or had no end."""
        record = self.tool_calls.get(now.number)
        if record is None or ("tool call", now.number) not in self._untaken:
            return None
        if (record.name, record.input) == (now.name, now.input) or self._past.changed == "keep":
            if record.is_error and record.result == TOOL_CANCELLED:
                self.met("tool call", now.number)
            return record
        self._past.give_up(self.path, OTHER_TOOL_CALL)
        return None

    def was_open(self, now: ToolCallRecord) -> bool:
        """Whether a tool call had begun before, its end is not known, and it is not repeated."""
        record = self.tool_calls.get(now.number)
        if self._past.repeats_unknown or record is None:
            return False
        return record.status != FINISHED and record.name == now.name

    async def turn_to_end(self, number: int) -> None:
        """Return when the tool calls have ended that ended before this one."""
        await asyncio.sleep(0)  # all calls of a turn begin before the first of them ends
        place = self._order_of_ends.index(number)
        if place:
            await self._ended[self._order_of_ends[place - 1]].wait()

    def told_before_end(self, ended: int) -> Iterator[Event]:
        """What tools told until the agent's tool call of this place ended; each only once."""
        while self.told_inside and self.told_inside[0][0] < ended:
            yield self.told_inside.pop(0)[1]

    def of_call(self, kind: str, number: int) -> Any:
        """The value of the verdict of a kind on a call, if it was not taken; else `None`."""
        return self.verdict(kind, lambda value: value["call"] == number)

    def verdict(
        self, kind: str, matches: Callable[[Mapping[str, Any]], bool] = lambda _: True
    ) -> Any:
        """The value of the first verdict of a kind that fits and was not taken; else `None`."""
        for each in self.verdicts:
            is_new = each.number not in self._taken_verdicts
            if is_new and each.kind == kind and matches(each.value):
                self._taken_verdicts.add(each.number)
                return each.value
        return None

    def started(self, number: int) -> bool:
        """Whether a sub-agent had been started."""
        path = str(number) if self.path == ROOT_PATH else f"{self.path}.{number}"
        return self._past.knows(path)

    async def does_more(self) -> None:
        """Return when the agent may do what is not recorded. What is left of it fits no more."""
        self._give_up_more()
        await self.is_taken()

    def _give_up_more(self) -> None:
        """The agent does something new: more is recorded of it only if it no longer fits."""
        if self._untaken - ({("end", 0)} if self.was_cancelled else set()):
            self._past.give_up(self.path, MORE_RECORDED)

    async def is_taken(self) -> None:
        """See `Past.is_taken`. An agent that was cancelled waits for its cancel."""
        await self.is_cancelled()
        await self._past.is_taken()

    async def is_cancelled(self) -> None:
        """Wait for the cancel, if that ended the agent: it did nothing new, and did not end."""
        if self.was_cancelled and (self.end is None or ("end", 0) in self._untaken):
            self.met("arrive")
            await asyncio.Event().wait()

    def met(self, kind: str, number: int = 0) -> None:
        """The agent has come to something that its recorded cancel waits for."""
        if self._cancel is not None:
            self._cancel.met(self.path, kind, number)

    def before_its_cancel(self, parents: Container[str]) -> Iterator[tuple[str, int]]:
        """What the agent came to before a cancel that ended its branch: kind and number.

        Args:
            parents: Paths of agents that wait for one that is cancelled, too.
        """
        yield "begin", 0
        yield from (each for each in self._untaken if each[0] != "end")
        if not self.was_cancelled:
            yield "end", 0
        elif self.path not in parents and not self._was_ended_in_an_act:
            yield "arrive", 0

    @property
    def _was_ended_in_an_act(self) -> bool:
        tools = self.tool_calls.values()
        return any(each.error == CANCELLED for each in self.calls.values()) or any(
            each.is_error and each.result == TOOL_CANCELLED for each in tools
        )

    @property
    def was_cancelled(self) -> bool:
        """Whether the agent's recorded end is a cancel, or one was ordered before it ended."""
        if self.end is not None:
            return self.end.status is AgentStatus.CANCELLED
        return self.cancel_order is not None


class _Cancel:
    """A recorded cancel of an agent and those below it. It comes when they have done all they did.

    Args:
        path: The agent that was cancelled.
        reason: Why.
        by: Who ordered it.
        branch: The agent, and those below it.
    """

    def __init__(self, path: str, reason: str, by: str, branch: list[AgentPast]) -> None:
        self.of = path, reason, by
        self.is_open = True
        self._due: Callable[[str, str, str], None] | None = None
        self._missing: set[tuple[str, str, int]] = set()
        parents = {_parent_of(each.path) for each in branch if each.was_cancelled}
        for each in branch:
            each._cancel = self
            self._missing |= {(each.path, *what) for what in each.before_its_cancel(parents)}

    def when_due(self, cancel: Callable[[str, str, str], None]) -> None:
        """Call `cancel` when nothing is missing."""
        self._due = cancel
        self._check()

    def met(self, path: str, kind: str, number: int) -> None:
        """Note that an agent has come to something."""
        if (path, kind, number) in self._missing:
            self._missing.discard((path, kind, number))
            self._check()

    def _check(self) -> None:
        if not self._missing and self._due is not None and self.is_open:
            self.is_open = False
            # Not at once: who came here last still has to wait for what its cancel will end.
            asyncio.get_running_loop().call_soon(self._due, *self.of)


def _parent_of(path: str) -> str:
    return path.rpartition(".")[0] or ROOT_PATH
