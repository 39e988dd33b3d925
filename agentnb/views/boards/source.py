"""What a board needs of the session that it shows, as a protocol."""

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
    """Its agent's."""
    status: str = "idle"
    """As `ThreadRow.status`."""
    above: int = 0
    """Older messages that are left out."""
    lines: Sequence[Line] = ()
    is_there: bool = True
    """Whether there is such a thread."""


class BoardSource(Protocol):
    """Reads a session for one board, and changes it. By one thread at a time, but for `act`.

    All but `act` may raise `AgentnbError` if the store cannot be read.
    """

    def changes(self) -> int:
        """A number that differs after any change of what is shown. Costs next to nothing."""
        ...

    def rows(self) -> list[Row]:
        """All rows of the list, in order."""
        ...

    def task(self, task_id: str) -> TaskDetails | None:
        """A task; `None` if the session has no such one."""
        ...

    def conversation_state(self, thread_id: str) -> object:
        """A value that differs after any change of a conversation. Reads no message."""
        ...

    def conversation(self, thread_id: str, most: int) -> Conversation:
        """At most so many of a thread's newest messages."""
        ...

    def live(self, thread_id: str) -> FramePublisher | None:
        """The frames of the run that works on a thread in this process; `None` without one."""
        ...

    def calls(self, thread_id: str, run_id: str) -> list[ToolLine]:
        """The tool calls of the root of a thread's run; empty if that is not known any more."""
        ...

    def act(self, order: Order) -> None:
        """Carry out a person's order. On any thread.

        Raises:
            AgentnbError, ValueError: It cannot be done; the message says why.
        """
        ...

    def rest(self) -> None:
        """Nobody looks for now: let go of what is only needed to read."""
        ...
