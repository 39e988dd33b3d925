"""A board without a session: its source is set by a test, and what it sends is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from agentnb.views.boards.publisher import BoardPublisher
from agentnb.views.boards.source import Conversation
from agentnb.views.boards.wire import Line, Order, Row, TaskDetails, TaskRow, checked_command
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.wire import ToolLine
from tests.support import DEADLINE_S


def task_row(number: int = 1, **fields: Any) -> TaskRow:
    row: TaskRow = {
        "id": f"t{number}",
        "title": f"Task {number}",
        "status": "pending",
        "priority": "medium",
        "agent": "",
        "notes": 0,
        "note": "",
    }
    return row | fields  # type: ignore[return-value]


def line(number: int, text: str = "Hello", **fields: Any) -> Line:
    made: Line = {
        "id": number,
        "who": "person",
        "author": "person",
        "kind": "message",
        "text": text,
        "rich": None,
        "run": "",
        "tools": "",
        "queued": False,
    }
    return made | fields  # type: ignore[return-value]


class SomeSource:
    """Fulfils `BoardSource`. A test sets what there is, and calls `change`."""

    def __init__(self, *rows: Row) -> None:
        self.all: list[Row] = [*rows]
        self.details: dict[str, TaskDetails] = {}
        self.talks: dict[str, Conversation] = {}
        self.frames: FramePublisher | None = None
        self.error: Exception | None = None
        self.orders: list[Order] = []
        self.looks = self.reads = self.rests = 0
        self._changes = 0

    def change(self) -> None:
        self._changes += 1

    def changes(self) -> int:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return self._changes

    def rows(self) -> list[Row]:
        self.reads += 1
        return [*self.all]

    def task(self, task_id: str) -> TaskDetails | None:
        return self.details.get(task_id)

    def conversation_state(self, thread_id: str) -> object:
        return self.conversation(thread_id, 50)

    def conversation(self, thread_id: str, most: int) -> Conversation:
        return self.talks.get(thread_id, Conversation(is_there=False))

    def live(self, thread_id: str) -> FramePublisher | None:
        return self.frames

    def calls(self, thread_id: str, run_id: str) -> list[ToolLine]:
        return []

    def act(self, order: Order) -> None:
        if self.error is not None:
            raise self.error
        self.orders.append(order)
        self.change()

    def rest(self) -> None:
        self.rests += 1


class Board:
    """A board whose pages a test is."""

    def __init__(self, source: SomeSource, *, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.source = source
        self.sent: list[dict[str, Any]] = []
        self._came = threading.Condition()
        self.publisher = BoardPublisher(source, self._say, clock=clock)

    def _say(self, message: Any) -> None:
        with self._came:
            self.sent.append(message)
            self._came.notify_all()

    def hear(self, **message: Any) -> list[dict[str, Any]]:
        """Say something as a page; what was sent meanwhile."""
        before = len(self.sent)
        self.publisher.take(checked_command(message))
        return self.sent[before:]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.sent if message["type"] == kind]

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        with self._came:
            assert self._came.wait_for(is_so, DEADLINE_S), self.sent[-3:]
