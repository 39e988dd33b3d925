"""A new run that repeats a recorded one: the records answer, in whatever order agents ask.

Unlike in a recovered run, nothing waits for a frontier: each agent goes as far as its records
answer. A call is answered by the record with the same path, number and key, else by any unused
record with the same key: so a task that moved to another place finds its own. An act that no record
answers is a *miss*. It ends the run with an error, or is done for real: see `Replay`, `explain`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from agentnb.core.errors import OrchestratorError
from agentnb.core.past import AgentPast, Miss, Past
from agentnb.core.records import (
    CANCELLED,
    FINISHED,
    CallRecord,
    EndRecord,
    Kept,
    OrderRecord,
    RunJournal,
    ToolCallRecord,
)
from agentnb.core.types import ROOT_PATH, CompletionRequest

_MAX_TOKENS = "max_tokens"


class Replay(Past):
    """The recording of a run, for a new run that repeats it. For the run's loop only.

    Args:
        journal: The recording. If a call or a tool call has several records, the last counts.
        calls: All recorded calls in order, perhaps several with one path and number; by default
            those of `journal`.
        explain: Makes the error with which a miss ends the run; `None` to do such acts for real.
        other_key: Called with model, request and key if the key is not recorded; returns another
            key to look for.
        speed: The pace: 1.0 as recorded, 2.0 twice as fast, 0 without waiting.
    """

    def __init__(
        self,
        journal: RunJournal,
        *,
        calls: Sequence[CallRecord] | None = None,
        explain: Callable[[Miss], OrchestratorError] | None,
        other_key: Callable[[str, CompletionRequest, str], str] | None = None,
        speed: float = 0,
    ) -> None:
        self._explain = explain
        self.error: OrchestratorError | None = None
        """The error of the first miss, if misses end the run."""
        self.changed_paths: set[str] = set()
        """Paths of the agents that did something that is not recorded."""
        self.used: set[tuple[str, int, str]] = set()
        """Path, number and key of the recorded calls that answered."""
        self.asked: list[str] = []
        """For each call that was made because no record answers it: its agent's path."""
        self._speed = speed
        self._other_key = other_key
        self._now: Callable[[], float] = lambda: 0.0
        self._sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
        self._on_miss: Callable[[OrchestratorError], None] | None = None
        self._left: dict[str, dict[tuple[str, int], CallRecord]] = defaultdict(dict)
        """By key, then path and number: the recorded calls that are left. A key may have many."""
        for call in journal.calls if calls is None else calls:
            if call.status == FINISHED:
                self._left[call.key].setdefault((call.path, call.number), call)
        self._most_output = journal.head.settings.get("max_output_tokens")
        super().__init__(journal, changed="redo")
        if self.may_act:  # a stopped run continues
            self.cancels.leave(ROOT_PATH)

    is_done_again: ClassVar[bool] = True

    @property
    def times(self) -> int:
        """0: a replay is a new run, not a recovered one."""
        return 0

    def orders(self) -> Iterator[OrderRecord]:
        for each in super().orders():
            is_of_run = each.kind == "cancel" and each.value["agent"] is None
            if not (is_of_run and self.cancels.is_dropped(ROOT_PATH)):
                yield each

    def _new(self, path: str) -> ReplayedAgent:
        return ReplayedAgent(self, path)

    def source(self, path: str) -> ReplayedAgent:
        """The recording of the agent with a path."""
        found = self._of(path)
        assert isinstance(found, ReplayedAgent)
        return found

    def find(
        self, path: str, number: int, key: str, model: str, request: CompletionRequest
    ) -> CallRecord | None:
        """Take the record that answers a call, so that it answers no other; `None` on a miss."""
        if key not in self._left and self._other_key is not None:
            key = self._other_key(model, request, key)
        left = self._left.get(key, {})
        found = left.get((path, number))
        if found is not None and found.error == CANCELLED and self.cancels.is_dropped(path):
            found = None  # the recorded cancel will not be applied
        if found is None or not self._fits(found, request):
            # Not a cancelled call of another agent: its cancel would not come here.
            others = (each for each in left.values() if each.error != CANCELLED)
            found = next((each for each in others if self._fits(each, request)), None)
        if found is None:
            return None
        del left[found.path, found.number]
        self.used.add((found.path, found.number, key))
        return found

    def _fits(self, record: CallRecord, request: CompletionRequest) -> bool:
        """Whether a record may answer: a reply cut at the output limit needs the same limit."""
        most = self._most_output
        if record.stop_reason != _MAX_TOKENS or most is None:
            return True
        # A call had twice the limit if its agent's thinking had used up the limit itself.
        return bool(request.max_tokens == (most if record.limits[0] <= most else 2 * most))

    @property
    def recorded(self) -> int:
        """The number of recorded calls."""
        return len(self.used) + sum(len(left) for left in self._left.values())

    # -- a miss -----------------------------------------------------------------------------------

    @property
    def may_act(self) -> bool:
        """Whether misses are done for real."""
        return self._explain is None

    @property
    def tells_the_rest(self) -> bool:
        return not self.changed_paths

    def when_missed(self, callback: Callable[[OrchestratorError], None]) -> None:
        """Call `callback` with the error of the first miss, if that ends the run."""
        self._on_miss = callback

    async def miss(self, miss: Miss) -> None:
        """Return if the act is to be done for real; else end the run, and never return."""
        if self._explain is None:
            self.changed_paths.add(miss.path)
            if miss.tool is None:
                self.asked.append(miss.path)
            await self.go_on()
            return
        if self.error is None:
            self.error = self._explain(miss)
            if self._on_miss is not None:
                self._on_miss(self.error)
        await asyncio.Event().wait()

    # -- its pace ---------------------------------------------------------------------------------

    def keep_pace(
        self, now: Callable[[], float], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        """Set the clock for `until`.

        Args:
            now: Returns the seconds since the run began.
            sleep: Waits for some seconds.
        """
        self._now, self._sleep = now, sleep

    @property
    def has_pace(self) -> bool:
        """Whether it waits for recorded times."""
        return self._speed > 0

    async def until(self, at_s: float) -> None:
        """Wait until the run reaches a time of the recording, in seconds, at the replay's speed."""
        if (wait_s := at_s / self._speed - self._now()) > 0:
            await self._sleep(wait_s)

    # -- what only a recovery does ----------------------------------------------------------------

    def kept(self, record: Kept) -> None:
        match record:
            case CallRecord(path=path, number=number, status=status) if status == FINISHED:
                self.source(path).take("call", number)
            case ToolCallRecord(path=path, number=number, status=status) if status == FINISHED:
                self.source(path).take("tool call", number)
            case EndRecord(path=path) if path is not None:
                self.source(path).take("end", 0)
                self._skip_unstarted(path)

    def _skip_unstarted(self, path: str) -> None:
        """Let no recorded cancel wait for the sub-agents that an agent has not started."""
        for each in self.frontier.at_and_below(path):
            if each.path != path and not each.has_begun:
                self.cancels.leave(each.path)

    def spent(self) -> int | None:
        return None

    def still_paused(self) -> list[str | None]:
        return []

    def used_s(self) -> float:
        return 0.0

    def notes(self) -> dict[str, str]:
        return {}

    def lost(self) -> Iterator[tuple[str, int, int]]:
        return iter(())

    def has_ended(self, path: str) -> bool:
        return not self.may_act

    def open_cancels(self) -> Iterator[tuple[str, str, str]]:
        return iter(())


class ReplayedAgent(AgentPast):
    """The recording of one agent; it may use that of an agent at another path."""

    __slots__ = ("_ahead", "_approved", "_is_changed", "_replay", "_source", "_tools")

    def __init__(self, replay: Replay, path: str) -> None:
        super().__init__(replay, path)
        self._replay = replay
        self._source: ReplayedAgent = self
        """The recording whose records answer."""
        self._ahead = 0
        """Difference between the recorded calls' numbers and the agent's own."""
        self._tools: dict[int, int] = {}
        """By number: the number of the recorded tool call that answers."""
        self._approved: dict[int, int] = {}
        """By number: the number of the recorded tool call whose approval counts."""
        self._is_changed = False
        """Whether the agent did something that is not recorded: from then on its tools are run."""

    @property
    def until(self) -> Callable[[float], Awaitable[None]] | None:
        return self._replay.until if self._replay.has_pace else None

    @property
    def has_changed_below(self) -> bool:
        beginning = "" if self.path == ROOT_PATH else f"{self.path}."
        changed = self._replay.changed_paths - {self.path}
        return any(path.startswith(beginning) for path in changed)

    # -- answers ----------------------------------------------------------------------------------

    def call(
        self, number: int, key: str, model: str, request: CompletionRequest
    ) -> CallRecord | None:
        record = self._replay.find(self.path, number, key, model, request)
        if record is None:
            return None
        self._source = self._replay.source(record.path)
        if self._source is not self:
            self._replay.cancels.leave(self.path)
        self._ahead = record.number - number
        if record.error == CANCELLED:
            self._met("call", record.number)
        return record

    def has_call(self, number: int) -> bool:
        return not self._is_changed and number + self._ahead in self._source.calls

    def has_begun_call(self, number: int) -> bool:
        return not self._replay.may_act or self.has_call(number)

    def of_call(self, kind: str, number: int) -> Any:
        return self.verdict(kind, lambda value: value["call"] == number + self._ahead)

    def of_record(self, kind: str, record: CallRecord) -> Any:
        return self.verdict(kind, lambda value: value["call"] == record.number)

    def was_told_with(self, number: int) -> bool:
        if self._is_changed:
            return False
        return AgentPast.was_told_with(self._source, number + self._ahead)

    @property
    def ends_as_recorded(self) -> bool:
        """Whether the run does only what is recorded: then a person's new notes have no effect."""
        return not self._replay.may_act

    def verdict(
        self, kind: str, matches: Callable[[Mapping[str, Any]], bool] = lambda _: True
    ) -> Any:
        if self._is_changed:
            return None
        if self._source is self:
            return super().verdict(kind, matches)
        return AgentPast.verdict(self._source, kind, matches)

    def approval(self, now: ToolCallRecord, digest: str) -> Any:
        found = super().approval(now, digest)
        if found is None:  # the agent or its call may have moved to another place
            found = self.verdict("approved", lambda value: value["digest"] == digest)
        if found is not None:
            self._approved[now.number] = found["tool_call"]
        return found

    def tool_call(self, now: ToolCallRecord) -> ToolCallRecord | None:
        if self._is_changed:
            return None
        number = self._number_of(now)
        if number is None:
            return None
        self._tools[now.number] = number
        return self._source.tool_calls[number]

    def tool_call_begins(self, number: int) -> None:
        if self._source is self and number in self._tools:
            super().tool_call_begins(self._tools[number])

    def _number_of(self, now: ToolCallRecord) -> int | None:
        """The number of the recorded tool call that answers: its own, else the first equal one."""
        calls, taken = self._source.tool_calls, set(self._tools.values())
        first = self._approved.get(now.number, now.number)
        numbers = (first, *sorted(calls)) if first in calls else sorted(calls)
        for number in numbers:
            each = calls[number]
            is_left = number not in taken and each.status == FINISHED
            if is_left and (each.name, each.input) == (now.name, now.input):
                return number
        return None

    def was_open(self, now: ToolCallRecord) -> bool:
        return False

    def take(self, kind: str, number: int) -> bool:
        if kind == "tool call" and number in self._tools:
            AgentPast.take(self._source, kind, self._tools[number])
            return True
        return super().take(kind, number)

    async def turn_to_end(self, number: int) -> None:
        await super(ReplayedAgent, self._source).turn_to_end(number)

    @property
    def asks_persons(self) -> bool:
        return self._replay.may_act

    def was_admitted(self, numbers: Sequence[int]) -> bool:
        return not self._is_changed and super(ReplayedAgent, self._source).was_admitted(numbers)

    def started(self, number: int) -> bool:
        return super(ReplayedAgent, self._source).started(number)

    # -- what is new ------------------------------------------------------------------------------

    async def does_more(self) -> None:
        """Do nothing: a replay has no frontier, and a miss is found when the act is made."""

    async def is_taken(self, new: Miss | None = None) -> None:
        if new is None or not self._is_other(new):
            await self.is_cancelled()
        if new is None:
            return
        if self._replay.may_act and not self._is_changed:
            self._is_changed = True
            self._source.give_up()  # nothing waits for its recorded tool calls any more
            self._replay.cancels.leave(self.path)
        await self._replay.miss(new)

    def _is_other(self, new: Miss) -> bool:
        """Whether an act differs from those left in the record: then no cancel precedes it."""
        left = {kind for kind, _ in self.untaken}
        return "call" in left or (new.tool is None and "tool call" in left)

    async def is_cancelled(self) -> None:
        is_as_recorded = self._source is self and not self._is_changed
        if is_as_recorded and not self._replay.cancels.is_dropped(self.path):
            await super().is_cancelled()
