"""The messages between the kernel and the pages that show a board, in both directions.

As for a run's panel (`agentnb.views.panel.wire`), each field of a command has a rule, and a message
that breaks one is refused. All outgoing texts are visible texts.
`tests/views/boards/test_wire.py` compares them with the JavaScript.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast, get_args

from agentnb.core.durable import TaskStatus
from agentnb.views.panel.limits import LARGEST
from agentnb.views.panel.rules import Rule, Rules, checked_as, kind_of, rules_of
from agentnb.views.panel.wire import (
    ByeCommand,
    HelloCommand,
    HereCommand,
    NewestMessage,
    ResendCommand,
    SyncCommand,
    ToolLine,
    ViewId,
)

# -- to a page ------------------------------------------------------------------------------------


class TaskRow(TypedDict):
    """A task in the list."""

    id: str
    title: str
    status: str
    priority: str
    agent: str
    """The name of the agent that it is assigned to; empty for none."""
    notes: int
    note: str
    """The beginning of the last note, on one line; empty without notes."""


class ThreadRow(TypedDict):
    """A thread in the list."""

    id: str
    name: str
    """Its agent's name, else the beginning of the conversation."""
    kind: str
    """`persistent`, `ephemeral`, or empty for a thread without metadata."""
    model: str
    """`provider/model`, or empty."""
    task: str
    """The task that its agent works on, on one line; empty for none."""
    status: str
    """`working`, `queued`, `interrupted` or `idle`."""
    queued: int
    """Number of waiting messages."""


Row = TaskRow | ThreadRow


class RowsMessage(TypedDict):
    """The list, or its changes since the previous message."""

    type: Literal["frame"]
    seq: int
    base: int | None
    """The frame that this one is based on; `None` for a full one."""
    rows: list[Row]
    """New and changed rows, each with all its fields."""
    order: list[str] | None
    """The ids of all rows, if that changed."""


class SavedRows(RowsMessage):
    """The list that a notebook is saved with."""

    left_out: NotRequired[str]
    """What it does not hold, in words; left out if it is whole."""


class NoteLine(TypedDict):
    """A note on a task."""

    author: str
    text: str


class TaskDetails(TypedDict):
    """An opened task."""

    title: str
    status: str
    priority: str
    agent: str
    model: str
    thread: str | None
    """The assigned agent's."""
    creator: str
    prompt: str
    notes: list[NoteLine]
    """The newest, oldest first."""
    older: int
    """How many are left out before them."""


class TaskMessage(TypedDict):
    """The task that a view has opened, whole."""

    type: Literal["task"]
    view: str
    id: str
    task: TaskDetails | None
    """`None` if the task does not exist."""


Rich = str | list[Any]
"""A text, or an element of a laid-out answer: its tag, its attributes, what is in it."""


class Line(TypedDict):
    """A message of a conversation."""

    id: int
    who: str
    """`person`, `agent`, `system`, or `other` for another agent."""
    author: str
    """In words."""
    kind: str
    text: str
    rich: list[Rich] | None
    """The text laid out, in place of `text`."""
    run: str
    """The run that wrote it, if that called tools; or empty."""
    tools: str
    """`3 tool calls, 1 error`, of that run's root; or empty."""
    queued: bool
    """Whether it waits for its turn."""


class ConversationMessage(TypedDict):
    """The conversation that a view reads, or its changes."""

    type: Literal["conversation"]
    view: str
    thread: str
    n: int
    """Counts from 0; a message that does not follow the previous one is ignored."""
    name: str
    status: str
    is_there: bool
    """Whether the thread exists."""
    above: int
    """Number of older messages that are left out."""
    order: list[int] | None
    """The ids of all lines in order, if these changed; else `None`."""
    lines: list[Line]
    """New and changed lines."""


class LiveMessage(TypedDict):
    """The present text and activity of a conversation's agent, or the new part of them."""

    type: Literal["live"]
    view: str
    thread: str
    n: int
    over: bool
    """Whether the run is over, so that its text is a message now."""
    reset: bool
    """Whether this replaces everything; else it is added."""
    doing: NotRequired[str]
    text: NotRequired[str]
    add: NotRequired[str]
    tools: NotRequired[list[ToolLine]]


class CallsMessage(TypedDict):
    """The tool calls of a run's root."""

    type: Literal["calls"]
    view: str
    run: str
    tools: list[ToolLine]


class DoneMessage(TypedDict):
    """The result of an order."""

    type: Literal["done"]
    view: str
    order: int
    error: str
    """Why the order was not carried out, on one line; empty if it was."""


class NoticeMessage(TypedDict):
    """A line for all pages."""

    type: Literal["notice"]
    line: str


BoardMessage = (
    RowsMessage
    | NewestMessage
    | TaskMessage
    | ConversationMessage
    | LiveMessage
    | CallsMessage
    | DoneMessage
    | NoticeMessage
)

# -- from a page ----------------------------------------------------------------------------------

LONGEST_MESSAGE = 100_000
LONGEST_NOTE = 20_000
MOST_MESSAGES = 5_000
"""Most messages of a conversation that a view may read."""

_AN_ID = Rule(
    lambda value: isinstance(value, str) and 0 < len(value) <= 1_000,
    "a string of 1 to 1,000 characters",
)
_WORDS = Rule(
    lambda value: isinstance(value, str) and 0 < len(value) <= LONGEST_MESSAGE,
    f"a string of 1 to {LONGEST_MESSAGE:,} characters",
)
_NOTE = Rule(
    lambda value: isinstance(value, str) and 0 < len(value) <= LONGEST_NOTE,
    f"a string of 1 to {LONGEST_NOTE:,} characters",
)
_STATUS = Rule(lambda value: value in [*map(str, TaskStatus)], "the status of a task")
_ORDER = Rule(lambda value: type(value) is int and 0 < value <= LARGEST, "a whole number from 1")

_MOST = Rule(
    lambda value: type(value) is int and 0 < value <= MOST_MESSAGES,
    f"a whole number from 1 to {MOST_MESSAGES:,}",
)

Id = Annotated[str, _AN_ID]
OrderNumber = Annotated[int, _ORDER]
"""Number by which the page recognises the result of an order."""


class OpenCommand(TypedDict):
    """A view opens a task."""

    type: Literal["open"]
    view: ViewId
    id: Id | None
    """`None` for none."""


class ReadCommand(TypedDict):
    """A view reads the end of a conversation, and from now on what is new in it."""

    type: Literal["read"]
    view: ViewId
    thread: Id | None
    """`None` for none."""
    most: Annotated[int, _MOST]
    """The number of newest messages to read."""


class CallsCommand(TypedDict):
    """A view requests the tool calls of a run."""

    type: Literal["calls"]
    view: ViewId
    thread: Id
    run: Id


class SendCommand(TypedDict):
    """Send a message to a thread."""

    type: Literal["send"]
    view: ViewId
    order: OrderNumber
    thread: Id
    text: Annotated[str, _WORDS]


class NoteCommand(TypedDict):
    """Add a note to a task."""

    type: Literal["note"]
    view: ViewId
    order: OrderNumber
    id: Id
    text: Annotated[str, _NOTE]


class StatusCommand(TypedDict):
    """Set a task's status."""

    type: Literal["status"]
    view: ViewId
    order: OrderNumber
    id: Id
    status: Annotated[str, _STATUS]


Order = SendCommand | NoteCommand | StatusCommand
"""A command that changes something."""
BoardCommand = (
    HelloCommand
    | HereCommand
    | ByeCommand
    | ResendCommand
    | SyncCommand
    | OpenCommand
    | ReadCommand
    | CallsCommand
    | Order
)

COMMANDS: Mapping[str, Rules] = {
    kind_of(shape): rules_of(shape) for shape in get_args(BoardCommand)
}
"""The commands of a page to a board, by `type`."""


def checked_command(content: object) -> BoardCommand:
    """Validate a message to a board; keeps only the fields of its kind.

    Raises:
        MessageRefused: It is not an object, its kind is unknown, or a value breaks its rule.
    """
    return cast(BoardCommand, checked_as(content, COMMANDS))
