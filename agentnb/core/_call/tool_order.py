"""In which order the tool calls of an agent are answered, begin and end.

The calls of one turn go on side by side: a call that waited for approval, or for the end of a
pause, begins when others have begun and ended. A run that is done again keeps that order. So each
answer, each wait for the end of a pause and each such beginning is kept with its place.
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
"""How many calls had ended; 0 for the end that makes them so many, else 1; the place."""


class ToolOrder:
    """The order of one agent's tool calls: that of now, and the recorded one that is left."""

    def __init__(self) -> None:
        self.ended = 0
        """Number of its tool calls that have ended."""
        self._places = 0
        self._turns: dict[tuple[str, int], _Key] = {}
        """By step and number of the tool call: what is recorded and has not come."""
        self._left: dict[tuple[str, int], _Key] = {}
        """Those of them that are sure to come: the others wait for these."""
        self._changed = asyncio.Event()
        """Set when one of these has come, and replaced."""

    def next_place(self) -> dict[str, int]:
        """The place of an answer, a wait or a beginning that comes now, as it is kept."""
        self._places += 1
        return {"ended": self.ended, "place": self._places}

    def expect(
        self,
        number: int,
        answer: Mapping[str, Any] | None,
        held: Mapping[str, Any] | None,
        recorded: ToolCallRecord | None,
    ) -> None:
        """Take up what is recorded of a call, before anything is awaited.

        Only what is sure to come again has to be waited for: not what a cancel or a limit did, and
        of a call without an end nothing behind its answer and its wait, since it goes on as a new
        one.

        Args:
            number: The call's.
            answer: To the question whether it may run.
            held: How it waited for the end of a pause and began, if it did.
            recorded: Its record, with its end.
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
        """Return when everything has come that came before a recorded step."""
        key = self._turns.get((step, number))
        if key is None:
            return
        if step != WAIT:  # that comes at once with its call, or behind its answer
            await asyncio.sleep(0)  # by then all calls of the turn are taken up
        while any(other < key for other in self._left.values()):
            await self._changed.wait()

    def came(self, step: str, number: int) -> None:
        """A step of a call was told."""
        self.ended += step == END
        self._turns.pop((step, number), None)
        if self._left.pop((step, number), None) is not None:
            self._changed.set()
            self._changed = asyncio.Event()
