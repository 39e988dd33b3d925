"""What outlives a run, as plain values: messages of threads, agents, tasks, memories.

Each is a snapshot: a change makes a new one. Times are in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from agentnb.core.shown import Listed, Shown
from agentnb.core.text import literal, quoted

if TYPE_CHECKING:
    from agentnb.core.types import Role

Word = TypeVar("Word", bound=StrEnum)


def one_of(kind: type[Word], given: str, name: str) -> Word:
    """The member of an enum for a given word.

    Args:
        kind: The enum.
        given: A member, or its value.
        name: What the error calls the word.

    Raises:
        ValueError: There is no such member. The message lists all of them.
    """
    try:
        return kind(given)
    except ValueError:
        known = ", ".join(kind)
        raise ValueError(f"{name} must be one of {known}, not {literal(given)}.") from None


class ToolCallId(NamedTuple):
    """Identifies a tool call of a run. Its own changes in the store are marked with this."""

    run_id: str
    path: str
    """The agent's path."""
    number: int
    """Position among its agent's tool calls, from 1."""


class MessageKind(StrEnum):
    """The reason for a message in a thread."""

    MESSAGE = "message"
    TASK_ASSIGNMENT = "task_assignment"
    TASK_COMPLETION = "task_completion"
    NOTE = "note"


class AgentKind(StrEnum):
    """Whether an agent outlives its run."""

    PERSISTENT = "persistent"
    """Created for a task: a message to it starts a run."""
    EPHEMERAL = "ephemeral"
    """A run's own agent, which lives only as long as its run."""


class TaskStatus(StrEnum):
    """The status of a task."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    BLOCKED = "blocked"
    ARCHIVED = "archived"


class Priority(StrEnum):
    """How urgent a task is."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True, repr=False)
class ThreadMessage:
    """One message of a thread's conversation."""

    role: Role
    content: str
    kind: MessageKind = MessageKind.MESSAGE
    author: str | None = None
    """The thread of the agent that wrote it; `None` for a person and for the task system."""
    run_id: str | None = None
    """The run that it started or that wrote it; `None` while queued."""
    created_at: datetime = datetime.min

    def __repr__(self) -> str:
        # Without id and time, so that saved notebooks can be compared; likewise in the others.
        return f"ThreadMessage({self.role}, {self.kind}: {quoted(self.content)})"


@dataclass(frozen=True, slots=True, repr=False)
class AgentMetadata:
    """An agent's data apart from its conversation."""

    thread_id: str
    name: str
    provider: str
    model: str
    """Without its provider."""
    kind: AgentKind
    created_for_task: str | None
    """The id of the task that it was created for."""
    parent_thread_id: str | None
    current_task: str | None
    """The title of the task that it works on."""
    created_at: datetime
    profile: str = ""
    """The name of its profile; empty for none."""

    def __repr__(self) -> str:
        model = quoted(f"{self.provider}/{self.model}")
        return f"AgentMetadata({quoted(self.name)}: {model}, {self.kind})"


@dataclass(frozen=True, slots=True, repr=False)
class TaskNote:
    """A note on a task."""

    text: str
    author: str | None
    """The thread of the agent that wrote it; `None` for a person and for the task system."""
    created_at: datetime

    def __repr__(self) -> str:
        return f"TaskNote({quoted(self.text)})"


@dataclass(frozen=True, slots=True, repr=False)
class Task(Shown):
    """A task of a session."""

    id: str
    """`t1`, `t2`, … in its session."""
    title: str
    prompt: str
    status: TaskStatus
    priority: Priority
    assigned_to: str | None
    """The thread of the agent that it is assigned to."""
    created_by: str | None
    """The thread of the agent that created it; `None` for a person."""
    notes: tuple[TaskNote, ...]
    thread: str
    """The session's thread."""
    created_at: datetime
    updated_at: datetime

    def to_record(self) -> dict[str, Any]:
        """Its fields as one flat dict, with the number of notes in place of the notes."""
        return {
            "id": self.id,
            "title": self.title,
            "prompt": self.prompt,
            "status": str(self.status),
            "priority": str(self.priority),
            "assigned_to": self.assigned_to,
            "created_by": self.created_by,
            "notes": len(self.notes),
            "thread": self.thread,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
        }

    def __repr__(self) -> str:
        return f"Task({self.id}, {quoted(self.title)}: {self.status}, {self.priority})"


class TaskList(Listed[Task]):
    """Tasks, in the order in which they were created."""

    __slots__ = ()
    noun = "task"

    def to_records(self) -> list[dict[str, Any]]:
        """One flat dict per task: `pandas.DataFrame(session.tasks.list().to_records())`."""
        return [task.to_record() for task in self]


@dataclass(frozen=True, slots=True, repr=False)
class MemoryEntry(Shown):
    """A fact that an agent remembered."""

    text: str
    source_agent_id: str
    run_id: str
    created_at: datetime
    id: int = 0
    """Its number in the store; 0 if unknown."""

    def __repr__(self) -> str:
        return f"MemoryEntry({quoted(self.text)})"

    def to_record(self) -> dict[str, Any]:
        """Its fields as one flat dict."""
        return {
            "id": self.id,
            "text": self.text,
            "source_agent_id": self.source_agent_id,
            "run_id": self.run_id,
            "created_at": self.created_at,
        }


class MemoryList(Listed[MemoryEntry]):
    """Several memories."""

    __slots__ = ()
    noun = "memory"

    def to_records(self) -> list[dict[str, Any]]:
        """One flat dict per memory: `pandas.DataFrame(session.memories().to_records())`."""
        return [memory.to_record() for memory in self]
