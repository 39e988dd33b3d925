"""The opened parts of a board for one view: a task, a conversation, or both."""

from __future__ import annotations

from collections.abc import Callable

from agentnb.views.boards.live import LiveReply
from agentnb.views.boards.source import BoardSource, Conversation
from agentnb.views.boards.wire import (
    BoardMessage,
    ConversationMessage,
    Line,
    TaskDetails,
    TaskMessage,
)

Say = Callable[[BoardMessage], None]


class Reader:
    """Sends one view what it has opened, and then the changes of it. Under the board's lock.

    Args:
        view: The view's name.
        source: What the board reads of its session.
        say: Sends a message to the pages.
    """

    def __init__(self, view: str, source: BoardSource, say: Say) -> None:
        self._view, self._source, self._say = view, source, say
        self._task: str | None = None
        self._details: TaskDetails | None = None
        self._thread: str | None = None
        self._state: object = None
        self._most = 0
        self._n = -1
        self._sent: dict[int, Line] = {}
        self._head: ConversationMessage | None = None
        self._live: LiveReply | None = None

    def open(self, task_id: str | None) -> None:
        """Open a task, and close the previous one; `None` opens none."""
        self._task = task_id
        if task_id is not None:
            self._details = self._source.task(task_id)
            self._tell_task(task_id)

    def read(self, thread_id: str | None, most: int) -> None:
        """Read a conversation from now on: its newest messages, at most `most`; `None` for none."""
        self.pause()
        self._thread, self._n, self._sent, self._head = thread_id, -1, {}, None
        self._most = most
        if thread_id is not None:
            self._tell_conversation(thread_id)

    def look(self) -> None:
        """Send the changes of what is opened."""
        if self._task is not None:
            details = self._source.task(self._task)
            if details != self._details:
                self._details = details
                self._tell_task(self._task)
        if self._thread is not None:
            if self._source.conversation_state(self._thread) != self._state:
                self._tell_conversation(self._thread)
            else:  # its run may have started in this process only now
                self._follow(self._thread)

    def pause(self) -> None:
        """Send nothing until the next look."""
        if self._live is not None:
            self._live.end(is_over=False)
            self._live = None

    def close(self) -> None:
        """Send nothing more."""
        self._task = self._thread = None
        self.pause()

    # -- parts ------------------------------------------------------------------------------------

    def _tell_task(self, task_id: str) -> None:
        message: TaskMessage = {
            "type": "task",
            "view": self._view,
            "id": task_id,
            "task": self._details,
        }
        self._say(message)

    def _tell_conversation(self, thread_id: str) -> None:
        self._state = self._source.conversation_state(thread_id)
        now = self._source.conversation(thread_id, self._most)
        before, sent = self._head, self._sent
        message = changes_of(now, sent, view=self._view, thread=thread_id, n=self._n + 1)
        self._sent = {line["id"]: line for line in now.lines}
        head: ConversationMessage = {**message, "n": 0, "order": None, "lines": []}
        if head != before or message["lines"] or message["order"] is not None:
            self._n, self._head = message["n"], head
            self._say(message)
        self._follow(thread_id)

    def _follow(self, thread_id: str) -> None:
        """Show the text of the run that works on a thread here, from its beginning to its end."""
        frames = self._source.live(thread_id)
        if self._live is not None and self._live.frames is not frames:
            self._live.end(is_over=True)
            self._live = None
        if frames is not None and self._live is None:
            self._live = LiveReply(frames, self._say, self._view, thread_id)
            self._live.begin()


def changes_of(
    now: Conversation, sent: dict[int, Line], *, view: str, thread: str, n: int
) -> ConversationMessage:
    """The message that updates a page's lines to the present conversation.

    Args:
        now: The present conversation.
        sent: By id: the lines that the page has, in order.
        view: The view on that page.
        thread: The conversation's thread.
        n: The number of the message.
    """
    order = [line["id"] for line in now.lines]
    return {
        "type": "conversation",
        "view": view,
        "thread": thread,
        "n": n,
        "name": now.name,
        "status": now.status,
        "is_there": now.is_there,
        "above": now.above,
        "order": None if n and order == [*sent] else order,
        "lines": [line for line in now.lines if sent.get(line["id"]) != line],
    }
