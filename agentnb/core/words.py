"""Notes from persons to the agents of one run, until each agent reads them with its next call.

An agent reads a note as `<note_from_person>`, at the end of its next user message. Its ancestors
and siblings never see it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from agentnb.core.errors import AgentEnded
from agentnb.core.quotation import escaped
from agentnb.core.text import literal, sendable
from agentnb.core.types import path_of

LONGEST_WORDS = 100_000
"""Most characters of one note: some 25,000 tokens, like a tool's result."""


class Note(NamedTuple):
    """A note from a person to an agent."""

    text: str
    by: str
    """Where it came from: `panel` or `code`."""

    @property
    def for_model(self) -> str:
        """The note as the agent reads it; escaped, so that it cannot close its element."""
        return f"<note_from_person>{escaped(self.text)}</note_from_person>"


Keep = Callable[[str, Note], None]
"""Records an order: called with the agent's path and the note."""


def checked_words(text: str) -> str:
    """A note's text in a form that can be sent.

    Raises:
        TypeError: `text` is not a `str`.
        ValueError: `text` is blank, or too long.
    """
    if not isinstance(text, str):
        raise TypeError(f"A note to an agent must be a string, not {literal(text)}.")
    if not text.strip():
        raise ValueError("The note is empty: write what the agent should read.")
    if len(text) > LONGEST_WORDS:
        raise ValueError(
            f"A note has at most {LONGEST_WORDS:,} characters, not {len(text):,}: shorten it, or "
            "let a tool read it."
        )
    return sendable(text)


class Words:
    """Unread notes to the agents of one run. For the run's loop only.

    Args:
        thread_id: The root's id. The root can get notes before the run begins.
    """

    def __init__(self, thread_id: str) -> None:
        self._thread_id = thread_id
        self._waiting: defaultdict[str, list[Note]] = defaultdict(list)
        """By agent id."""
        self._closed: dict[str, str] = {}
        """By agent id: why it reads no more notes; empty if it has ended."""
        self._all_closed = False
        self._keep: Keep | None = None
        self._has_ended: Callable[[str], bool] = lambda path: False

    def begin(self, keep: Keep, has_ended: Callable[[str], bool]) -> None:
        """The run begins: record notes from now on, and those that came before.

        Args:
            keep: Records an order.
            has_ended: Returns whether the recorded end of the agent at a path will be repeated.
        """
        self._keep, self._has_ended = keep, has_ended
        for agent_id, notes in self._waiting.items():
            for note in notes:
                keep(self._path(agent_id), note)

    def tell(self, agent_id: str, text: str, by: str) -> None:
        """Let an agent read a note with its next call.

        Args:
            agent_id: An agent of the run.
            text: The note: see `checked_words`.
            by: Where it comes from: see `Note`.

        Raises:
            AgentEnded: The agent makes no more calls.
        """
        path = self._path(agent_id)
        if self._is_closed(agent_id) or self._has_ended(path):
            raise AgentEnded(path, why=self._closed.get(agent_id, ""))
        note = Note(text, by)
        self._waiting[agent_id].append(note)
        if self._keep is not None:
            self._keep(path, note)

    def tell_again(self, agent_id: str, note: Note) -> None:
        """Let an agent read a note that it got before the process died; it is recorded already."""
        if not self._is_closed(agent_id):
            self._waiting[agent_id].append(note)

    def waiting(self, agent_id: str) -> int:
        """How many notes an agent has not read."""
        return len(self._waiting.get(agent_id, ()))

    def take(self, agent_id: str) -> list[Note]:
        """Take an agent's unread notes, oldest first. They count as read from now on."""
        return self._waiting.pop(agent_id, [])

    def put_back(self, agent_id: str, notes: Sequence[Note]) -> None:
        """Put back notes that do not fit into the agent's next call: they are unread again."""
        self._waiting[agent_id][:0] = notes

    def close(self, agent_id: str, why: str = "") -> None:
        """Refuse further notes to an agent, since it makes no more calls; drop its unread ones.

        Args:
            agent_id: The agent.
            why: The reason in `AgentEnded`; by default that it has ended.
        """
        self._closed.setdefault(agent_id, why)
        self._waiting.pop(agent_id, None)

    def end(self) -> None:
        """The run is over: refuse all further notes."""
        self._all_closed = True
        self._waiting.clear()
        self._keep = None
        self._has_ended = lambda path: True  # what it refers to has the whole record

    def _is_closed(self, agent_id: str) -> bool:
        return self._all_closed or agent_id in self._closed

    def _path(self, agent_id: str) -> str:
        return path_of(agent_id, self._thread_id)
