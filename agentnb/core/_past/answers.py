"""The records of one agent, which answer when the agent repeats what it did.

This module knows neither why the run is repeated nor any other agent.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from agentnb.core.events import TOOL_CANCELLED, Event
from agentnb.core.records import (
    CANCELLED,
    FINISHED,
    CallRecord,
    EndRecord,
    OrderRecord,
    ToolCallRecord,
    VerdictRecord,
)
from agentnb.core.types import ROOT_PATH, AgentStatus

_OF_RUN = ("asked", "warned", "lost", "went_on")
"""Kinds of verdicts that concern the run, and that no agent takes."""
_OF_LEFT = ("approved", "held", "planned", "sampled")
"""Kinds of verdicts that are dropped when an agent is given up: they answer what it asked for in
calls that it now makes anew."""


class Answers:
    """The records of one agent; none for a new agent.

    Each record answers once: it is *left* until it is taken or given up.

    Args:
        path: The agent's path.
    """

    __slots__ = (
        "_ended",
        "_order_of_ends",
        "_verdicts",
        "calls",
        "cancel_order",
        "end",
        "has_begun",
        "marks",
        "open_words",
        "path",
        "told_inside",
        "tool_calls",
        "untaken",
    )

    def __init__(self, path: str) -> None:
        self.path = path
        self.calls: dict[int, CallRecord] = {}
        """Keyed by number, like the tool calls."""
        self.tool_calls: dict[int, ToolCallRecord] = {}
        self.marks: dict[int, str] = {}
        """By number: marks of the tool calls that did their work but have no recorded end."""
        self.end: EndRecord | None = None
        self.cancel_order: OrderRecord | None = None
        """A person's order to cancel the agent."""
        self.open_words: list[OrderRecord] = []
        """Notes from persons that the agent has not read."""
        self.told_inside: list[tuple[int, Event]] = []
        """Events published from inside its tool calls, each with the number of its tool calls that
        had ended before."""
        self.has_begun = False
        """Whether the agent has started in the repeated run."""
        self.untaken: set[tuple[str, int]] = set()
        """Kind and number of the records that are left."""
        self._verdicts: dict[str, dict[int, VerdictRecord]] = {}
        """By kind, then number, in order: the verdicts that are left."""
        self._order_of_ends: list[int] = []
        """Numbers of the finished tool calls, in the order of their ends."""
        self._ended: dict[int, asyncio.Event] = {}

    def add_verdict(self, verdict: VerdictRecord) -> None:
        """Add the next verdict."""
        self._verdicts.setdefault(verdict.kind, {})[verdict.number] = verdict

    def count(self) -> None:
        """Note what is left to be taken. Call it once, after all records were added."""
        calls = [each.number for each in self.calls.values() if each.status == FINISHED]
        ended = [each for each in self.tool_calls.values() if each.status == FINISHED]
        ended.sort(key=lambda each: (each.ended, each.number))
        self._order_of_ends = [each.number for each in ended]
        self._ended = {number: asyncio.Event() for number in self._order_of_ends}
        self.untaken = {("call", number) for number in calls}
        self.untaken |= {("tool call", number) for number in self._order_of_ends}
        if self.end is not None:
            self.untaken.add(("end", 0))

    # -- what is left -----------------------------------------------------------------------------

    @property
    def left(self) -> int:
        """The number of records that are left."""
        return len(self.untaken)

    def take(self, kind: str, number: int) -> bool:
        """Note that a record was made again. Returns whether it was left until now."""
        if kind == "tool call" and number in self._ended:
            self._ended[number].set()
        if (kind, number) not in self.untaken:
            return False
        self.untaken.discard((kind, number))
        return True

    def give_up(self) -> set[tuple[str, int]]:
        """Give up all records that are left. Returns their kinds and numbers."""
        left, self.untaken = self.untaken, set()
        for kind in _OF_LEFT:  # else the answer to one call or plan would count for another
            self._verdicts.pop(kind, None)
        for event in self._ended.values():
            event.set()
        return left

    def has_call(self, number: int) -> bool:
        """Whether a call is recorded as finished, and its record is left."""
        return ("call", number) in self.untaken

    def is_settled(self, number: int) -> bool:
        """Whether the record decides a call: it has finished, or a limit prevented it."""
        left = self._verdict_left("exhausted", lambda value: value["call"] == number)
        return self.has_call(number) or left is not None

    def has_begun_call(self, number: int) -> bool:
        """Whether a call is recorded, finished or open."""
        return number in self.calls

    # -- answers ----------------------------------------------------------------------------------

    def call_left(self, number: int) -> CallRecord | None:
        """The record of a call, if it is left."""
        return self.calls[number] if ("call", number) in self.untaken else None

    def tool_call_left(self, number: int) -> ToolCallRecord | None:
        """The record of a tool call, if it is left."""
        return self.tool_calls[number] if ("tool call", number) in self.untaken else None

    async def turn_to_end(self, number: int) -> None:
        """Wait until the tool call that ended before this one in the record has ended."""
        await asyncio.sleep(0)  # let all calls of a turn begin before the first of them ends
        place = self._order_of_ends.index(number)
        if place:
            await self._ended[self._order_of_ends[place - 1]].wait()

    def told_before_end(self, ended: int) -> Iterator[Event]:
        """Events from inside tool calls until the agent's `ended`-th tool call ended; each once."""
        while self.told_inside and self.told_inside[0][0] < ended:
            yield self.told_inside.pop(0)[1]

    def of_call(self, kind: str, number: int) -> Any:
        """Take a verdict on a call: the value of the first of this kind; `None` if none is left."""
        return self.verdict(kind, lambda value: value["call"] == number)

    def verdict(
        self, kind: str, matches: Callable[[Mapping[str, Any]], bool] = lambda _: True
    ) -> Any:
        """Take a verdict: the value of the first of this kind that matches; else `None`."""
        found = self._verdict_left(kind, matches)
        if found is None:
            return None
        del self._verdicts[kind][found.number]
        return found.value

    def was_told_with(self, number: int) -> bool:
        """Whether a note from a person was delivered with this call, and its verdict is left."""
        told = self._verdict_left(
            "told", lambda value: value["call"] == number and bool(value.get("notes"))
        )
        return told is not None

    def was_admitted(self, numbers: Sequence[int]) -> bool:
        """Whether a verdict of the limits on the tasks with these numbers is left."""
        return self._verdict_left("admitted", lambda it: it.get("numbers") == numbers) is not None

    def _verdict_left(
        self, kind: str, matches: Callable[[Mapping[str, Any]], bool]
    ) -> VerdictRecord | None:
        left = self._verdicts.get(kind, {})
        return next((each for each in left.values() if matches(each.value)), None)

    def assigned(self, *, all_left: bool = False) -> Iterator[Mapping[str, Any]]:
        """Take the verdicts on tasks for other threads that come next in the record.

        The tools that assigned these tasks are answered by their own records, so they do not ask
        for the verdicts again.

        Args:
            all_left: Whether to take also those behind other verdicts that are left.
        """
        admitted = self._verdicts.get("admitted", {})
        passed_over = ("admitted", *_OF_RUN)
        others = [left for kind, left in self._verdicts.items() if kind not in passed_over]
        next_other = min((next(iter(left)) for left in others if left), default=math.inf)
        for number, each in [*admitted.items()]:
            is_assigned = "assigned" in each.value
            if not all_left and (number > next_other or not is_assigned):
                return
            if is_assigned:
                del admitted[number]
                yield each.value

    # -- how it ended -----------------------------------------------------------------------------

    @property
    def was_cancelled(self) -> bool:
        """Whether the agent was cancelled: by its recorded end, or by an order if it has none."""
        if self.end is not None:
            return self.end.status is AgentStatus.CANCELLED
        return self.cancel_order is not None

    @property
    def was_ended_in_an_act(self) -> bool:
        """Whether a cancel ended one of the agent's calls or tool calls."""
        tools = self.tool_calls.values()
        return any(each.error == CANCELLED for each in self.calls.values()) or any(
            each.is_error and each.result == TOOL_CANCELLED for each in tools
        )

    @property
    def was_held_to_the_end(self) -> bool:
        """Whether a tool call of the agent was held and never began."""
        return self._verdict_left("held", lambda value: value["ended"] is None) is not None


def parent_of(path: str) -> str:
    """The path of an agent's parent. `path` is not the root's."""
    return path.rpartition(".")[0] or ROOT_PATH
