"""The messages between the kernel and the pages that show a run, in both directions.

Frames, details and notices go out; commands come in. Widgets in Python (header, budget, question)
get a `Frame`, and the tree view sends it on as a `FrameMessage`. The JavaScript uses the same
names; `tests/views/panel/test_wire.py` compares them.

Each field of a command has a rule (`agentnb.views.panel.rules`). All texts that go out are visible
texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal, NotRequired, Required, TypedDict, TypeVar, cast, get_args

from agentnb.core.money import TOKENS
from agentnb.core.types import AgentStatus, RunUsage
from agentnb.views.panel.rules import SECONDS, Rules, checked_as, kind_of, rules_of, text, whole

# -- a frame, as widgets in Python get it ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Question:
    """The open question after a budget warning: continue or stop?"""

    tokens_used: int
    budget_total: int
    percentage: float
    """Used part of the total when it was asked, from 0 to 100."""
    wait_s: float
    """How long it waits for an answer before the run stops, in seconds."""
    asked_at_s: float
    """Seconds since the run began."""
    unit: str = TOKENS
    """Of the amounts: `tokens`, or `usd` for micro-dollars."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A run as a whole, at one time."""

    status: AgentStatus
    done: bool
    """Whether the run has ended: the summary is final."""
    at_s: float
    """Seconds since the run began; its duration when it is done."""
    agents: int
    """The root included."""
    by_status: Mapping[AgentStatus, int]
    doing: str
    """One line: what the run waits for, such as "waiting for the first token"; or empty."""
    tokens_used: int
    """What is used, as the budget counts it."""
    budget_total: int
    cost: str
    """Such as "about $0.0123 (estimate)"; empty while nothing is known."""
    question: Question | None
    notices: tuple[str, ...]
    """One visible line each, oldest first: pauses, cancelled branches, work not done for lack of
    budget, why the run failed."""
    is_paused: bool = False
    """Whether a person has paused the whole run."""
    questions: int = 0
    """Open questions to a person, the budget's included."""
    unit: str = TOKENS
    """Of the budget: `tokens`, or `usd` for micro-dollars."""
    usage: RunUsage = field(default_factory=RunUsage)
    """The provider's counts for the calls that have ended."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: the state that a view shows from now on."""

    seq: int
    """The number of the frame, dense from 1."""
    rows: Mapping[str, AgentRow]
    """By path, the changed fields; all fields of a new agent."""
    summary: Summary
    """Always complete."""
    is_kept: bool
    """Whether what a saved page has of the run is sent again: all its views then agree."""


# -- to a page ------------------------------------------------------------------------------------


class ToolMark(TypedDict):
    """The open tool call that a card names."""

    name: str
    """`look_up`, or `look_up and 2 more`."""
    said: str
    """What it reported last; empty for nothing."""
    since: float
    """When it began, in seconds since the run did."""


class AgentRow(TypedDict, total=False):
    """An agent's row in the tree.

    A row has all fields when its agent is new, and later its path and what changed.
    """

    path: str
    """`root`, `1`, `1.2`."""
    parent: str | None
    """The parent's path; `None` for the root."""
    depth: int
    task: str
    """Its beginning, on one line."""
    model: str
    status: str
    tokens: int
    """So far, including an estimate of the open reply."""
    estimated: bool
    begun: float | None
    """In seconds since the run began; so is `ended`."""
    ended: float | None
    """`None` until it has ended."""
    doing: str
    """What it does or waits for; empty if its text says it."""
    tool: ToolMark | None
    """`None` while no tool call is open."""
    tool_calls: int
    tool_errors: int
    until: float | None
    """When its wait ends, in seconds since the run began; `None` where that is unknown."""
    stalled: bool
    """Whether its open call has been silent for long."""
    attempt: int
    """From 1."""
    error: str | None
    notes: int
    """Number of notes in the details."""
    reused: bool
    """Whether all its work is taken from the record of an earlier process."""
    paused: str
    """`here` if a person has paused it itself, `above` if the run or a branch above; else empty."""
    asks: bool
    """Whether it waits for a person's answer."""


class QuestionRow(TypedDict):
    """An open question to a person, other than the budget's."""

    id: str
    kind: str
    """`approval`, `plan`, `sample`."""
    path: str
    """The agent that waits."""
    text: str
    options: list[str]
    """The answers that it takes, in their order."""
    late: str
    """What happens without an answer, such as "denied at 3:20 min without an answer"; or empty."""
    tool: str
    """Of an approval the tool's name; else empty."""
    code: str
    """Of an approval the code that is to run; empty if it is about no code."""
    values: list[list[str]]
    """Of any other approval the name and the value of each argument, whole."""
    arguments: str
    """The same as JSON that reads back as it was; else empty."""
    fixed: str
    """Why code or arguments cannot be changed; empty if they can."""
    tasks: list[str]
    """Of a plan the tasks that are to start; else empty."""


class FrameMessage(TypedDict):
    """The tree, or its changes since the previous frame."""

    type: Literal["frame"]
    seq: int
    base: int | None
    """The frame that this one is based on; `None` for a full frame."""
    at: float
    """Seconds since the run was ordered; when it is done, the time of its last event."""
    done: bool
    status: str
    agents: list[AgentRow]
    questions: NotRequired[list[QuestionRow]]
    """The open ones, oldest first; so is `marks` left out where nothing has changed."""
    marks: NotRequired[list[float]]
    """When a person paused and resumed, was asked and answered: in seconds since the run began."""
    still: NotRequired[int]
    """No frame follows although the run has not ended: it was loaded then, in seconds since the
    epoch."""


class SavedFrame(FrameMessage, total=False):
    """A full frame that a notebook is saved with."""

    made: int
    """When, in seconds since the epoch."""
    left_out: str
    """What it does not hold, in words; left out if it is whole."""


class MapRow(AgentRow, total=False):
    """An agent's row in the table of a map: without task and model, which its details have.

    A new agent's has only what differs from the row of one that has not begun.
    """

    answer: str
    """The beginning of its answer, on one line; empty until it has completed."""


class MapFrameMessage(FrameMessage):
    """The agents of a map, or their changes. The three last are in a full frame only."""

    rows: NotRequired[int]
    judges: NotRequired[int]
    labels: NotRequired[list[str]]
    """The beginning of each row, in order; empty where there is none."""


class NewestMessage(TypedDict):
    """The page has the newest frame; also a sign of life."""

    type: Literal["newest"]


class ReplayMessage(TypedDict):
    """The tree at an earlier time: its agents, with the fields that change while they run."""

    type: Literal["replay"]
    view: str
    n: int
    at: float | None
    """The requested time."""
    agents: list[AgentRow]


class NoticesMessage(TypedDict):
    """New notices, for screen readers."""

    type: Literal["notices"]
    lines: list[str]


class FailedMessage(TypedDict):
    """A command of a page that the run did not take; a notice says why."""

    type: Literal["failed"]
    command: str
    """`answer`, `tell`, `pause`, `resume` or `cancel`."""
    about: str
    """The question's id, or the agent's path."""


class TokenCounts(TypedDict):
    """The provider's token counts of an agent's ended calls."""

    input: int
    output: int
    cache_read: int
    cache_write: int


class CallLine(TypedDict):
    """One model call in the list of an agent's calls."""

    n: int
    model: str
    attempt: int
    is_synthesis: bool
    status: str
    """`open`, `done`, `error`, `cancelled` or `stopped`."""
    tokens: int
    duration_ms: int | None
    """`None` while it is open; likewise the next two."""
    stop_reason: str | None
    error: str | None


class ToolPicture(TypedDict):
    """A file in a tool's result."""

    src: str
    """A `data:` URL of an image; empty for a file that is not shown."""
    alt: str
    """What it is, on one line."""


class ToolLine(TypedDict):
    """One call in the list of an agent's tool calls."""

    n: int
    name: str
    status: str
    """`open`, `done`, `error`, `cancelled` or `interrupted`."""
    begun: float
    """Seconds since the run began."""
    duration_ms: int | None
    said: str
    """Its last report, while it is open."""
    input: NotRequired[str]
    """The arguments as text; code as it is. Sent once, with the next two."""
    is_code: NotRequired[bool]
    """Whether `input` is code."""
    input_cut: NotRequired[int | None]
    """The full length, if the event has only the beginning; so is `result_cut`."""
    result: str
    result_cut: int | None
    pictures: list[ToolPicture]


class PromptMessage(TypedDict):
    """One message of a prompt, tool calls and results included."""

    role: str
    text: str


class Prompt(TypedDict):
    """A request as it was sent."""

    system: str
    messages: list[PromptMessage]


class AgentDetails(TypedDict, total=False):
    """The details of one agent."""

    task: str
    model: str
    job: str
    """Its id as a job; empty if it is none."""
    profile: str
    reused: str
    """What of its work is taken from the record of an earlier process, in words; or empty."""
    status: str
    tokens: TokenCounts
    cost: str
    """In words; empty while it is unknown."""
    error: str | None
    notes: list[str]
    told: int
    """How many texts of a person it has read."""
    calls: list[CallLine]
    call: int | None
    """The number of the shown call; `None` while there is none."""
    following: bool
    """Whether it always shows the newest call."""
    tools: list[ToolLine]
    """With `reset` all of them; else the new or changed ones."""
    prompt: Prompt | None
    text: str
    """The reply so far, with `reset` only."""
    add: str
    """The reply's next text."""


class DetailsMessage(AgentDetails, total=False):
    """The details of one agent, or their changes.

    For an unknown agent it has only `agent` and `at`.
    """

    type: Required[Literal["details"]]
    view: str
    n: Required[int]
    """Counts from 0; a message that does not follow the previous number is ignored."""
    reset: Required[bool]
    """Whether the details are complete."""
    agent: str
    at: float | None
    """The shown time; `None` is now."""


PageMessage = (
    FrameMessage | NewestMessage | ReplayMessage | NoticesMessage | FailedMessage | DetailsMessage
)

Fields = TypeVar("Fields", bound=Mapping[str, object])


def changed_fields(now: Fields, before: Mapping[str, object]) -> Fields:
    """The fields of a row, or of details, that differ from those sent before."""
    return cast(Fields, {name: value for name, value in now.items() if before[name] != value})


# -- from a page ---------------------------------------------------------------------------------

_MOST_IN_TEXT = 1_000
_MOST_IN_WORDS = 20_000
_MOST_IN_ARGUMENTS = 2_000_000

ViewId = Annotated[str, text(100)]
"""The name that a view gave itself."""
AgentPath = Annotated[str, text(_MOST_IN_TEXT)]


class HelloCommand(TypedDict):
    """A view has opened, and requests a full frame."""

    type: Literal["hello"]
    view: ViewId


class HereCommand(TypedDict):
    """A view is still open."""

    type: Literal["here"]
    view: ViewId


class ByeCommand(TypedDict):
    """A view has closed."""

    type: Literal["bye"]
    view: ViewId


class ResendCommand(TypedDict):
    """A view missed a frame, and requests a full one."""

    type: Literal["resend"]


class SyncCommand(TypedDict):
    """A view asks whether its frame is the newest."""

    type: Literal["sync"]
    seq: Annotated[int, whole(-1)]
    """-1 for a page without a frame."""


class DetailsCommand(TypedDict):
    """A view requests an agent's details."""

    type: Literal["details"]
    view: ViewId
    agent: AgentPath
    call: Annotated[int, whole(1)] | None
    """`None` follows the newest."""
    at: Annotated[float, SECONDS] | None
    """A time of the run; `None` is now."""


class BudgetCommand(TypedDict):
    """Set the total."""

    type: Literal["budget"]
    total: Annotated[int, whole(1)]


class CancelCommand(TypedDict):
    """Stop an agent and all below it."""

    type: Literal["cancel"]
    agent: AgentPath


class PauseCommand(TypedDict):
    """Pause an agent and all below it."""

    type: Literal["pause"]
    agent: AgentPath


class ResumeCommand(TypedDict):
    """End the pauses at an agent and below it."""

    type: Literal["resume"]
    agent: AgentPath


class TellCommand(TypedDict):
    """Say something to an agent."""

    type: Literal["tell"]
    agent: AgentPath
    text: Annotated[str, text(_MOST_IN_WORDS)]


class AnswerCommand(TypedDict):
    """Answer an open question."""

    type: Literal["answer"]
    question: Annotated[str, text(100)]
    answer: Annotated[str, text(100)]
    arguments: Annotated[str, text(_MOST_IN_ARGUMENTS)] | None
    """With `approve`: other arguments, as JSON."""
    number: Annotated[int, whole(1)] | None
    """With `fewer`: how many tasks may start."""
    reason: Annotated[str, text(_MOST_IN_TEXT)] | None
    """With `deny`: why."""


Command = (
    HelloCommand
    | HereCommand
    | ByeCommand
    | ResendCommand
    | SyncCommand
    | DetailsCommand
    | BudgetCommand
    | CancelCommand
    | PauseCommand
    | ResumeCommand
    | TellCommand
    | AnswerCommand
)


class SliderState(TypedDict, total=False):
    """The slider's state that a page may change."""

    value: Annotated[int, whole(0)]


class FieldState(TypedDict, total=False):
    """The text field's state that a page may change."""

    value: Annotated[str, text(_MOST_IN_TEXT, shortest=0)]


COMMANDS: Mapping[str, Rules] = {kind_of(shape): rules_of(shape) for shape in get_args(Command)}
"""The commands of a page to the tree view, by `type`."""


def checked_command(content: object) -> Command:
    """Validate a message to the tree view; keeps only the fields of its kind.

    Raises:
        MessageRefused: It is not an object, its kind is unknown, or a value breaks its rule.
    """
    return cast(Command, checked_as(content, COMMANDS))
