"""The order in which the tool calls of an agent are answered, begin and end.

The calls of one turn run side by side: a call that waited for approval, or for the end of a pause,
begins when others have begun and ended. A repeated run keeps that order, so each answer, each wait
for the end of a pause and each beginning after one of these is recorded with its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from agentnb.core.events import TOOL_CANCELLED
from agentnb.core.questions import ENDED as VOID
from agentnb.core.records import ToolCallRecord

ANSWER, WAIT, BEGINNING, END = "answer", "wait", "beginning", "end"
"""The steps of a tool call that have a place."""
_Key = tuple[int, int, int]
"""Number of calls that had ended; 0 for the end of the last of them, else 1; the place."""


class ToolOrder:
    """The order of one agent's tool calls: the present one, and the rest of the recorded one."""

    def __init__(self) -> None:
        self.ended = 0
        """Number of its tool calls that have ended."""
        self._places = 0
        self._turns: dict[tuple[str, int], _Key] = {}
        """By step and number of the tool call: the recorded steps that have not occurred."""
        self._left: dict[tuple[str, int], _Key] = {}
        """Those of them that are certain to occur: the others wait for these."""
        self._changed = asyncio.Event()
        """Set, and then replaced, when one of these has occurred."""

    def next_place(self) -> dict[str, int]:
        """The place of an answer, a wait or a beginning that occurs now, for its record."""
        self._places += 1
        return {"ended": self.ended, "place": self._places}

    def expect(
        self,
        number: int,
        answer: Mapping[str, Any] | None,
        held: Mapping[str, Any] | None,
        recorded: ToolCallRecord | None,
    ) -> None:
        """Add the recorded steps of a call. Call it before anything is awaited.

        Only steps that are certain to occur again are waited for: not what a cancel or a limit did,
        and of a call without an end only its answer and its wait, since from there on it is new.

        Args:
            number: The call's number.
            answer: The verdict on whether it may run, if there is one.
            held: The verdict on how it waited for the end of a pause and began, if there is one.
            recorded: Its record with its end, if there is one.
        """
        if answer is not None and (recorded is not None or answer["answer"] != VOID):
            self._expect(ANSWER, number, answer)
        if held is not None and (wait := held.get("wait")) is not None:
            self._expect(WAIT, number, wait)
        if recorded is None:
            return
        if held is not None and held["ended"] is not None:
            self._expect(BEGINNING, number, held)
        self._turns[END, number] = (recorded.ended, 0, 0)
        if not (recorded.is_error and recorded.result == TOOL_CANCELLED):
            self._left[END, number] = self._turns[END, number]

    def _expect(self, step: str, number: int, place: Mapping[str, Any]) -> None:
        key = (place["ended"], 1, place["place"])
        self._turns[step, number] = self._left[step, number] = key

    async def turn_to(self, step: str, number: int) -> None:
        """Wait until everything has occurred that came before a recorded step."""
        key = self._turns.get((step, number))
        if key is None:
            return
        if step != WAIT:  # a wait comes at once with its call, or after its answer
            await asyncio.sleep(0)  # after this, the steps of all calls of the turn are added
        while any(other < key for other in self._left.values()):
            await self._changed.wait()

    def came(self, step: str, number: int) -> None:
        """Note that a step of a call has occurred."""
        self.ended += step == END
        self._turns.pop((step, number), None)
        if self._left.pop((step, number), None) is not None:
            self._changed.set()
            self._changed = asyncio.Event()
