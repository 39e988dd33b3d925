"""The protocol of what a board needs of its session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agentnb.views.boards.wire import Line, Order, Row, TaskDetails
from agentnb.views.panel.frames import FramePublisher
from agentnb.views.panel.wire import ToolLine


@dataclass(frozen=True, slots=True)
class Conversation:
    """The newest messages of a thread."""

    name: str = ""
    """Its agent's name."""
    status: str = "idle"
    """As in `ThreadRow.status`."""
    above: int = 0
    """Number of older messages that are left out."""
    lines: Sequence[Line] = ()
    is_there: bool = True
    """Whether the thread exists."""


class BoardSource(Protocol):
    """Reads a session for one board, and changes it. For one thread at a time, except `act`.

    All methods except `act` may raise `AgentnbError` if the store cannot be read.
    """

    def changes(self) -> int:
        """A number that differs after any change of what is shown. Takes almost no time."""
        ...

    def rows(self) -> list[Row]:
        """All rows of the list, in order."""
        ...

    def task(self, task_id: str) -> TaskDetails | None:
        """A task; `None` if the session has no such task."""
        ...

    def conversation_state(self, thread_id: str) -> object:
        """A value that differs after any change of a conversation. Reads no message."""
        ...

    def conversation(self, thread_id: str, most: int) -> Conversation:
        """At most `most` of a thread's newest messages."""
        ...

    def live(self, thread_id: str) -> FramePublisher | None:
        """The frames of the run that works on a thread in this process; `None` without one."""
        ...

    def calls(self, thread_id: str, run_id: str) -> list[ToolLine]:
        """The tool calls of the root of a thread's run; empty if that run is not known any more."""
        ...

    def act(self, order: Order) -> None:
        """Carry out a person's command. On any thread.

        Raises:
            AgentnbError, ValueError: The command cannot be carried out; the message says why.
        """
        ...

    def rest(self) -> None:
        """Release what is needed only for reading, since no page shows the board now."""
        ...
